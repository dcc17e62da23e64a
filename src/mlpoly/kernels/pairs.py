"""Covariances of hidden units beyond a degree, chunk by chunk: the route for every activation (MATH 5).

Piecewise-linear activations, sine and cosine have an exact kernel. Every other one is summed degree by degree, with a
rigorous bound on the truncated rest; the diagonal is a one-dimensional integral, and pairs whose bound is not small
enough are integrated by conditioning, which is exact at any correlation. So identical units cost no accuracy, and no
array is larger than a chunk of pairs or K numbers per unit.
"""

from __future__ import annotations

from mlpoly.activations import Activation
from mlpoly.arrays import Array, namespace
from mlpoly.kernels.conditional import UnitFamily, filled, pair_moments, unit_moments
from mlpoly.kernels.piecewise_linear import beyond_linear, breaks_of, cancellation, is_affine
from mlpoly.kernels.sinusoids import is_wave, wave_covariances, wave_variances
from mlpoly.records import map_arrays, record
from mlpoly.units import Angles, Series, Units, decay, energies, terms_between

__all__ = [
    "AffineKernel",
    "Kernel",
    "PolynomialKernel",
    "SeriesKernel",
    "Tail",
    "WaveKernel",
    "affine_tail",
    "kernel_of",
    "series_tail",
    "wave_tail",
]

_DEGREES = (32, 64, 128, 256)  # lengths of series; a longer one only if the one before leaves anything
_CUTS = (16, 32, 64, 128, 256)  # the series of a chunk of pairs stop at the first of these that suffices
_TOLERANCE = 1e-12  # truncation error of one pair, relative to the standard deviations of both units
_ROUNDING = 32.0  # rounding errors in the value of a unit, which make its variance uncertain by as much
_CANCELLATION = 100.0  # how much larger terms may be than the unit that they add up to


@record
class Tail:
    """Covariance of a chunk of units beyond a degree.

    `extra` must be added to `matrix` (a, b) at the pairs (i, j), positions in the whole layer; `bound` (a, b) bounds
    the truncation error, None if nothing was truncated.
    """

    matrix: Array
    bound: Array | None = None
    i: Array | None = None
    j: Array | None = None
    extra: Array | None = None


class AffineKernel:
    """Piecewise-linear activations: closed form up to degree 1, one integral beyond it; nothing is truncated."""

    def __init__(self, activation: Activation, units: Units, variances: Array, degree: int) -> None:
        self.activation = activation
        self.units = units
        self.variances = variances
        self.series = units.expand(activation, max(degree, 1))
        self.breaks = breaks_of(activation, units)

    def tail(self, rows: slice, columns: slice, angles: Angles, degree: int) -> Tail:
        """Covariance of two chunks of units at all degrees above `degree`."""
        return affine_tail(self, self, rows, columns, angles, degree, symmetric=rows == columns)


class WaveKernel:
    """Sine and cosine: closed form; nothing is truncated."""

    def __init__(self, activation: Activation, units: Units, degree: int) -> None:
        self.activation = activation
        self.units = units
        self.variances = wave_variances(activation, units)
        self.series = units.expand(activation, degree)

    def tail(self, rows: slice, columns: slice, angles: Angles, degree: int) -> Tail:
        """Covariance of two chunks of units at all degrees above `degree`."""
        return wave_tail(self, self, rows, columns, angles, degree)


class SeriesKernel:
    """Any activation, plain or gated: a series up to some degree, and conditioning if that does not suffice."""

    def __init__(self, activation: Activation, units: Units, variances: Array, degree: int) -> None:
        self.activation = activation
        self.units = units
        self.variances = variances
        xp = namespace(variances=variances)
        eps = float(xp.finfo(variances.dtype).eps)
        self.tolerance = max(_TOLERANCE, 64 * eps)
        for length in _DEGREES:
            self.series = units.expand(activation, max(length, degree))
            self.energy = energies(self.series, units)
            left = variances - xp.sum(self.energy[1:, ...], axis=0)
            self.left = xp.maximum(left, 8 * eps * variances)  # energy beyond the series; its rounding counts as energy
            # A unit that is constant up to rounding needs no more accuracy than that.
            unknown = (_ROUNDING * eps) ** 2 / self.tolerance * self.series.plain[0, :] ** 2
            self.spreads = xp.sqrt(variances + unknown)
            # What is known to rounding after 64 or 128 terms needs no 256, which take ten times as long.
            enough = self.tolerance if length == _DEGREES[0] else 32 * eps
            if bool(xp.all(self.left <= enough * self.spreads**2)):
                break

    @property
    def family(self) -> UnitFamily:
        """The units with their means as centres."""
        return UnitFamily(self.activation, self.units, self.series.plain[0, :])

    def rest(self, degree: int) -> Array:
        """Root of each unit's energy beyond a degree, (h,)."""
        xp = namespace(energy=self.energy)
        return xp.sqrt(self.left + xp.sum(self.energy[degree + 1 :, ...], axis=0))

    def tail(self, rows: slice, columns: slice, angles: Angles, degree: int) -> Tail:
        """Covariance of two chunks of units at all degrees above `degree`."""
        return series_tail(self, self, rows, columns, angles, degree, own=True)


class PolynomialKernel(SeriesKernel):
    """Units that are polynomials: their series end."""

    def __init__(self, units: Units, series: Series) -> None:
        self.units, self.series = units, series
        xp = namespace(plain=series.plain)
        self.energy = energies(series, units)
        self.variances = xp.sum(self.energy[1:, ...], axis=0)
        self.tolerance, self.left, self.spreads = 0.0, self.variances * 0, xp.sqrt(self.variances)


def affine_tail(
    one: AffineKernel, two: AffineKernel, rows: slice, columns: slice, angles: Angles, degree: int, symmetric: bool
) -> Tail:
    """Covariance of chunks of two families of piecewise-linear units at all degrees above `degree`."""
    left, right = one.series.rows(rows), two.series.columns(columns)
    beyond = beyond_linear(one.breaks, two.breaks, rows, columns, angles.rho, symmetric)
    if degree == 0:
        return Tail(beyond + terms_between(left, right, angles, 0, 1))
    return Tail(beyond - terms_between(left, right, angles, 1, degree))


def wave_tail(one: WaveKernel, two: WaveKernel, rows: slice, columns: slice, angles: Angles, degree: int) -> Tail:
    """Covariance of chunks of two families of sines and cosines at all degrees above `degree`."""
    left, right = one.series.rows(rows), two.series.columns(columns)
    total = wave_covariances(one.activation, one.units, two.activation, two.units, rows, columns, angles.rho)
    return Tail(total - terms_between(left, right, angles, 0, degree))


def series_tail(
    one: SeriesKernel, two: SeriesKernel, rows: slice, columns: slice, angles: Angles, degree: int, own: bool
) -> Tail:
    """Covariance of chunks of two families of units, both gated or neither, at all degrees above `degree`.

    `own` says that they are the same units of the same inputs, so that pairs are needed once, and of a unit with itself
    the variance is known.
    """
    xp, gated = namespace(rho=angles.rho), one.series.gated is not None
    limit = max(one.tolerance, two.tolerance) * one.spreads[rows][:, None] * two.spreads[columns][None, :]
    most = min(one.series.degree, two.series.degree)

    def bounded(cut: int) -> Array:
        """Bound on what the series leave beyond a degree, (a, b)."""
        return decay(angles.rho, cut, gated) * one.rest(cut)[rows][:, None] * two.rest(cut)[columns][None, :]

    open_pairs = bounded(most) > limit
    # The shortest series that is as good as the longest for all pairs that a series can serve.
    for cut in (*(c for c in _CUTS if degree <= c < most), most):
        bound = bounded(cut)
        if bool(xp.all(open_pairs | (bound <= limit))):
            break
    left, right = one.series.rows(rows), two.series.columns(columns)
    matrix = terms_between(left, right, angles, degree, cut)
    bound = xp.where(open_pairs, 0.0, bound)
    if not bool(xp.any(open_pairs)):
        return Tail(matrix, bound)
    a, b = xp.nonzero(open_pairs)
    if own and rows == columns:  # each pair once
        keep = a <= b
        a, b = a[keep], b[keep]
    flat = a * matrix.shape[1] + b
    i, j, listed = a + rows.start, b + columns.start, angles.at(flat)
    exact = xp.take(one.variances, i)  # exact for a unit with itself
    other = (i != j) if own else (i >= 0)
    if bool(xp.any(other)):
        some = map_arrays(listed, lambda a: a[other])
        limits = xp.take(xp.reshape(limit, (-1,)), flat)[other]
        exact = filled(exact, other, pair_moments(one.family, two.family, i[other], j[other], some, limits))
    exact = exact - terms_between(one.series.listed(i), two.series.listed(j), listed, 0, degree)
    return Tail(matrix, bound, i, j, exact - xp.take(xp.reshape(matrix, (-1,)), flat))


Kernel = AffineKernel | WaveKernel | SeriesKernel


def kernel_of(activation: Activation, units: Units, degree: int) -> Kernel:
    """The kernel for a layer's activation, with series up to `degree` at least."""
    xp = namespace(means=units.means)
    if units.gate is None and is_wave(activation):
        return WaveKernel(activation, units, degree)
    means = units.expand(activation, 0).plain[0, :]
    variances = unit_moments(activation, units, means)
    if units.gate is None and is_affine(activation):
        excess = cancellation(breaks_of(activation, units), variances + means**2)
        if len(activation.kinks) < 2 or bool(xp.all(excess <= _CANCELLATION)):
            return AffineKernel(activation, units, variances, degree)
    return SeriesKernel(activation, units, variances, degree)
