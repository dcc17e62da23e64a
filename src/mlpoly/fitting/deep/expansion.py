"""The closest linear or quadratic map of a deep network under one Gaussian, from its expansion (MATH 9)."""

from typing import Any

from mlpoly.arrays import cast_like, namespace, scalar
from mlpoly.fitting.deep.sampled import distance_to_optimum
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
    parts = (inputs.mean, constant, e.linear if degree else None, quadratic, forward if degree else None)
    arrays = (None if a is None else cast_like(a, net.prototype) for a in parts)
    made = DensePolynomial(*arrays, inputs=inputs, source=Source(net.activation_names, METHOD))
    return replace(made, report=_report(made, net, inputs, scalar(explained), pairs))


def _report(poly: DensePolynomial, net: Network, inputs: Gaussian, explained: float, pairs: int) -> FitReport:
    """How far the polynomial is from the optimum, if it is to be estimated and the network's Jacobian determines it."""
    found = distance_to_optimum(poly, net, inputs, pairs) if pairs else None
    if found is None:
        return FitReport(METHOD, "closed form", details={"explained": explained})
    details = {"explained": explained, "variance": found.variance, "standard_error": found.standard_error}
    figures: Any = {"misfit": found.misfit, "excess": found.excess, "details": details}
    if not found.variance > 0:
        return FitReport(METHOD, "the network does not vary under these inputs", **figures)
    fvu, closer = (found.misfit + found.excess) / found.variance, "; method='sampled' comes closer"
    summary = f"fraction of variance unexplained about {fvu:.3g}"
    # How far that is above the error of the optimum, as far as the samples show, and what to do.
    if found.share > _HEAVY and not found.exact:
        part = f"{found.share:.0%} of it from one pair of samples"
        summary += f", {part}, which leaves open how far the optimum is{closer}"
    elif not found.misfit > 0 and not found.exact:
        summary += closer
    elif not found.exact:
        certain = found.excess >= _KNOWN * found.doubt * found.misfit
        above = (found.excess if certain else found.excess + _KNOWN * found.standard_error) / found.misfit
        summary += f", {'' if certain else 'at most about '}{above:.1%} above that of the optimum"
        summary += closer if above > _FAR else ""
    return FitReport(METHOD, summary, fvu=fvu, **figures)
