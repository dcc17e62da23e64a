"""Mean square of network minus polynomial under one Gaussian, in closed form (MATH 5).

The network differs from its own best polynomial of the same degree by the tail of its degree spectrum, and that
difference is orthogonal to every polynomial of the degree. So E|f - g|^2 = E|f - g_n|^2 + E|g_n - g|^2, and the second
term is the second moment of a polynomial.
"""

from __future__ import annotations

from typing import NamedTuple

from mlpoly.arrays import Array, namespace
from mlpoly.inputs import Gaussian
from mlpoly.measures.dense import dense_gap
from mlpoly.measures.expansion import Expansion, difference, expansion_of, mean_of, variance_of
from mlpoly.measures.moments import hidden_of, variance_by_degree
from mlpoly.measures.series import Series
from mlpoly.networks import Layer
from mlpoly.polynomials import DensePolynomial, Polynomial, RidgePolynomial

__all__ = ["Error", "gaussian_error"]


class Error(NamedTuple):
    """Moments under one Gaussian, (o,) each; those of a mixture are their weighted means."""

    mean: Array  # E[f]
    variance: Array  # Var[f]
    miss_mean: Array  # E[f - g]
    miss: Array  # E[(f - g)^2]
    bound: Array  # what cut series may have left out of `variance` and `miss` at most
    rounding: Array  # a variance below this is none


def gaussian_error(net: Layer, poly: Polynomial, inputs: Gaussian) -> Error:
    """How a network and any polynomial differ under one Gaussian."""
    hidden = hidden_of(net, inputs, poly.degree)
    spread = variance_by_degree(hidden, poly.degree)
    units, series = hidden.kernel.units, hidden.kernel.series
    gated = None if series.gated is None or poly.degree == 0 else series.gated[: poly.degree, ...]
    best = Expansion(units, Series(series.plain[: poly.degree + 1, ...], gated), hidden.readout, hidden.bias)
    gap_mean, gap_variance = _gap(best, poly)
    xp = namespace(tail=spread.tail)
    variance = spread.tail + xp.sum(spread.head, axis=0)
    miss = spread.tail + gap_variance + gap_mean**2
    # Deviations from the mean carry the rounding of the values, variances that of what cancels in the sum over units.
    eps = 100 * float(xp.finfo(variance.dtype).eps)
    spreads, values = xp.sqrt(hidden.kernel.variances), xp.abs(series.plain[0, :])
    if hidden.readout is not None:
        spreads, values = xp.abs(hidden.readout) @ spreads, xp.abs(hidden.readout) @ values
    return Error(spread.mean, variance, gap_mean, miss, spread.bound, eps * spreads**2 + (eps * values) ** 2)


def _gap(best: Expansion, poly: Polynomial) -> tuple[Array, Array]:
    """Mean and variance of best - poly for each output, (o,)."""
    if isinstance(poly, RidgePolynomial):
        apart = difference(best, expansion_of(poly, best.units.inputs))
        return mean_of(apart), variance_of(apart)
    if isinstance(poly, DensePolynomial):
        return dense_gap(best, poly)
    raise TypeError(
        f"the closed form takes a RidgePolynomial or a DensePolynomial, got {type(poly).__name__}; "
        f"on data any polynomial can be judged: fvu(net, poly, samples=x)."
    )
