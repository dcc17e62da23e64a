"""Mean square of network minus polynomial under one Gaussian, in closed form (MATH 5).

The network differs from its own best polynomial of the same degree by the tail of its degree spectrum, and that
difference is orthogonal to every polynomial of the degree. So E|f - g|^2 = E|f - g_n|^2 + E|g_n - g|^2, and the second
term is the second moment of a polynomial.
"""

from __future__ import annotations

from mlpoly.arrays import Array, namespace
from mlpoly.inputs import Gaussian
from mlpoly.measures.moments import hidden_of, variance_by_degree
from mlpoly.networks import Layer
from mlpoly.polynomials import Polynomial
from mlpoly.records import record

__all__ = ["Error", "gaussian_error"]


@record
class Error:
    """Moments under one Gaussian, (o,) each; those of a mixture are their weighted means."""

    mean: Array  # E[f]
    variance: Array  # Var[f]
    miss_mean: Array  # E[f - g]
    miss: Array  # E[(f - g)^2]
    bound: Array  # what cut series may have left out of `variance` and `miss` at most
    rounding: Array  # a variance below this is none


def gaussian_error(net: Layer, poly: Polynomial, inputs: Gaussian) -> Error:
    """How a network and any polynomial differ under one Gaussian."""
    poly, missing = poly.projected(inputs)
    n = poly.degree
    hidden = hidden_of(net, inputs, n)
    spread = variance_by_degree(hidden, n)
    gap_mean, gap_variance = poly.gap(hidden.best(n), hidden.inputs)
    xp = namespace(tail=spread.tail)
    variance = spread.tail + xp.sum(spread.head, axis=0)
    miss = spread.tail + gap_variance + gap_mean**2
    # Deviations from the mean carry the rounding of the values, variances that of what cancels in the sum over units.
    eps = 100 * float(xp.finfo(variance.dtype).eps)
    spreads, values = xp.sqrt(hidden.kernel.variances), xp.abs(hidden.kernel.series.plain[0, :])
    if hidden.net.readout is not None:
        spreads, values = xp.abs(hidden.net.readout) @ spreads, xp.abs(hidden.net.readout) @ values
    rounding, bound = eps * spreads**2 + (eps * values) ** 2, spread.bound
    if missing is not None:
        # What is beyond the degree, of the network and of a piecewise polynomial, may partly cancel or add up.
        bound = bound + missing + 2 * xp.sqrt(missing * spread.tail)
    return Error(spread.mean, variance, gap_mean, miss, bound, rounding)
