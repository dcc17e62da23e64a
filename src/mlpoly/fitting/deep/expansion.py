"""The closest linear or quadratic map of a deep network under one Gaussian, from its expansion (MATH 9)."""

from __future__ import annotations

from mlpoly.arrays import cast_like, namespace, scalar
from mlpoly.fitting.deep.sampled import Distance, distance_to_optimum
from mlpoly.fitting.report import FitReport
from mlpoly.inputs import Gaussian
from mlpoly.networks import Network
from mlpoly.polynomials import DensePolynomial, Source
from mlpoly.propagation import expand
from mlpoly.records import replace

METHOD = "least squares under a Gaussian, by second-order expansion"
_FAR = 0.05  # excess over the optimum, as a fraction of its error, above which the report says what to do
_KNOWN = 4  # standard errors from which on an excess is stated; below, the report says only how large it can be
_HEAVY = 0.2  # share of one pair of samples in the squared error, whose relative error is below the root of the largest


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
    return replace(made, report=_report(made, net, inputs, scalar(explained), pairs))


def _report(poly: DensePolynomial, net: Network, inputs: Gaussian, explained: float, pairs: int) -> FitReport:
    """How far the polynomial is from the optimum, if it is to be estimated and the network's Jacobian determines it."""
    found = distance_to_optimum(poly, net, inputs, pairs) if pairs else None
    if found is None:
        return FitReport(METHOD, "closed form", details={"explained": explained})
    details = {"explained": explained, "variance": found.variance, "standard_error": found.standard_error}
    if not found.variance > 0:
        return FitReport(
            METHOD, "the network does not vary under these inputs", found.misfit, found.excess, details=details
        )
    fvu = (found.misfit + found.excess) / found.variance
    summary = f"fraction of variance unexplained about {fvu:.3g}{'' if found.exact else _above(found)}"
    return FitReport(METHOD, summary, found.misfit, found.excess, fvu, details=details)


def _above(found: Distance) -> str:
    """How far the error is above that of the optimum, as far as the samples tell, and what to do."""
    closer = "; method='sampled' comes closer"
    if found.share > _HEAVY:
        return f", {found.share:.0%} of it from one pair of samples, which leaves open how far the optimum is{closer}"
    if not found.misfit > 0:
        return closer
    known = found.excess >= _KNOWN * found.doubt * found.misfit
    above = (found.excess if known else found.excess + _KNOWN * found.standard_error) / found.misfit
    return f", {'' if known else 'at most about '}{above:.1%} above that of the optimum{closer if above > _FAR else ''}"
