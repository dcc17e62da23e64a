"""The closest linear or quadratic map of a deep network under one Gaussian, from its expansion (MATH 9)."""

from __future__ import annotations

import math

from mlpoly.arrays import cast_like, namespace, scalar
from mlpoly.fitting.deep.sampled import distance_to_optimum
from mlpoly.fitting.report import ExpansionReport
from mlpoly.inputs import Gaussian
from mlpoly.networks import Network
from mlpoly.polynomials import DensePolynomial, Source
from mlpoly.propagation import expand
from mlpoly.records import replace

METHOD = "least squares under a Gaussian, by second-order expansion"


def fit_expansion(net: Network, inputs: Gaussian, degree: int, pairs: int = 512) -> DensePolynomial:
    """Closest polynomial of degree 0, 1 or 2 of a deep network, in the linear forms that enter its first layer.

    Its coefficients are the first terms of the network's expansion in Hermite polynomials, as optimality demands, but
    computed by a closure: exact for one hidden layer, close for more. How close, the report estimates from the
    network's Jacobian at some `pairs` of samples.
    """
    e, forward = expand(net, inputs)
    xp, outputs = namespace(forward=forward), e.state.inputs
    constant, quadratic, explained = outputs.mean, None, xp.sum(outputs.mean) * 0
    if degree:
        explained = xp.sum(e.linear**2)
    if degree == 2 and e.quadratic is not None:
        quadratic = e.quadratic
        constant = constant - xp.linalg.trace(quadratic)
        explained = explained + 2 * xp.sum(quadratic**2)
    like = net.prototype
    made = DensePolynomial(
        cast_like(inputs.mean, like),
        cast_like(constant, like),
        cast_like(e.linear, like) if degree else None,
        None if quadratic is None else cast_like(quadratic, like),
        cast_like(forward, like) if degree else None,
        inputs=inputs,
        source=Source(net.activation_names, METHOD),
    )
    found = distance_to_optimum(made, net, inputs, pairs) if pairs else (math.nan,) * 4
    return replace(made, report=ExpansionReport(METHOD, scalar(explained), *found))
