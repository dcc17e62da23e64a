"""Covariances of hidden units beyond a degree, chunk by chunk: the route for every activation (MATH 5).

Piecewise-linear activations, sine and cosine have an exact kernel. Every other one is summed degree by degree, with a
rigorous bound on the truncated rest: as far as most pairs of a chunk need, and farther for the few others. The diagonal
is a one-dimensional integral, and pairs whose bound is still not small enough are integrated by conditioning, which is
exact at any correlation. So identical units cost no accuracy, and no array is larger than a chunk of pairs or K numbers
per unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from mlpoly.activations import Activation
from mlpoly.arrays import Array, chunks, constant, namespace, safe_root
from mlpoly.kernels.conditional import UnitFamily, filled, pair_moments, unit_moments
from mlpoly.kernels.piecewise_linear import beyond_linear, breaks_of, cancellation, is_affine
from mlpoly.kernels.sinusoids import is_wave, wave_covariances, wave_variances
from mlpoly.records import map_arrays, record
from mlpoly.units import Angles, Series, Units, decay, energies, terms_between

_CUTS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)  # the series of a pair stops at one of these
_LONG = 256  # beyond, only if the coefficients cost little and there are many pairs that need them
_MANY = 1 / 8  # pairs of a chunk for each unit of the layer: integrating so many takes as long as a long series
_FEW = 1 / 16  # of the pairs of a chunk get more terms pair by pair, which costs several times as much for each
_LISTED = 1024  # such pairs at a time, so that their series stay in the cache
_TOLERANCE = 64.0  # truncation error of one pair, in roundings of the product of the standard deviations of both units
_ROUNDING = 32.0  # rounding errors in the value of a unit, which make its variance uncertain by as much
_CANCELLATION = 100.0  # how much larger terms may be than the unit that they add up to


@record
class Tail:
    """Covariance `matrix` (a, b) of two chunks of units beyond a degree.

    `bound` (a, b) bounds the truncation error, None if nothing was truncated.
    """

    matrix: Array
    bound: Array | None = None


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
    """Any activation, plain or gated: a series that grows on demand, and conditioning if that does not suffice."""

    def __init__(self, activation: Activation, units: Units, variances: Array, degree: int) -> None:
        self.activation = activation
        self.units = units
        self.variances = variances
        self.tolerance = _TOLERANCE * float(namespace(v=variances).finfo(variances.dtype).eps)
        cheap = activation.route == "closed form" or activation.strip is not None
        self.longest = max(c for c in _CUTS if cheap or c <= _LONG)
        self._expand(max(_CUTS[0], degree))

    def _expand(self, degree: int) -> None:
        """The series up to a degree, and the root `rests` (n + 1, h) of each unit's energy beyond every degree."""
        variances = self.variances
        xp = namespace(variances=variances)
        eps = float(xp.finfo(variances.dtype).eps)
        self.series = self.units.expand(self.activation, degree)
        energy = energies(self.series, self.units)[1:, ...]
        # Energy beyond the series; its rounding counts as energy.
        self.rests = _rests(energy, xp.maximum(variances - xp.sum(energy, axis=0), 8 * eps * variances))
        # A unit that is constant up to rounding needs no more accuracy than that.
        unknown = (_ROUNDING * eps) ** 2 / self.tolerance * self.series.plain[0, :] ** 2
        self.spreads = safe_root(variances + unknown)

    def grow(self, degree: int) -> None:
        """Have the series up to a degree, or as long as it may be."""
        if self.series.degree < min(degree, self.longest):
            self._expand(min(max(degree, 2 * self.series.degree), self.longest))

    @property
    def family(self) -> UnitFamily:
        """The units with their means as centres."""
        return UnitFamily(self.activation, self.units, self.series.plain[0, :])

    def tail(self, rows: slice, columns: slice, angles: Angles, degree: int) -> Tail:
        """Covariance of two chunks of units at all degrees above `degree`."""
        return series_tail(self, self, rows, columns, angles, degree, own=True)


class PolynomialKernel(SeriesKernel):
    """Units that are polynomials: their series end."""

    def __init__(self, units: Units, series: Series) -> None:
        self.units, self.series = units, series
        energy = energies(series, units)[1:, ...]
        self.variances = namespace(energy=energy).sum(energy, axis=0)
        self.tolerance, self.spreads = 0.0, safe_root(self.variances)
        self.rests = _rests(energy, self.variances * 0)

    def grow(self, degree: int) -> None:
        """Nothing: no term is missing."""


def _rests(energy: Array, left: Array) -> Array:
    """Roots (n + 1, h) of the energy beyond degree 0, ..., n, from that at each (n, h) and what is `left` (h,)."""
    xp = namespace(energy=energy)
    upwards = xp.flip(xp.concat([energy, left[None, :]]), axis=0)
    return safe_root(xp.flip(xp.cumulative_sum(upwards, axis=0), axis=0))


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

    All pairs get the terms that most of them need; the few others get more, and those that no series serves are
    integrated. `own` says that they are the same units of the same inputs, so that pairs are needed once, and of a unit
    with itself the variance is known.
    """
    xp, gated = namespace(rho=angles.rho), one.series.gated is not None
    shape = (rows.stop - rows.start, columns.stop - columns.start)
    upper = constant(np.triu(np.ones(shape), 1), angles.rho) > 0 if own and rows == columns else None
    limit = max(one.tolerance, two.tolerance) * one.spreads[rows][:, None] * two.spreads[columns][None, :]
    for goal in [c for c in _CUTS if c > degree] or [degree]:
        cut = _grown(one, two, goal)
        bound = decay(angles.rho, cut, gated) * one.rests[cut, rows][:, None] * two.rests[cut, columns][None, :]
        open_pairs = bound > limit
        others = open_pairs if upper is None else open_pairs & (upper | upper.T)
        if cut < goal or int(xp.count_nonzero(others)) <= _FEW * shape[0] * shape[1]:
            break
    matrix = terms_between(one.series.rows(rows), two.series.columns(columns), angles, degree, cut)
    if not bool(xp.any(open_pairs)):
        return Tail(matrix, bound)
    if upper is not None:
        matrix = xp.where(open_pairs & ~(upper | upper.T), one.rests[degree, rows] ** 2, matrix)
        open_pairs = open_pairs & upper
    where = xp.reshape(open_pairs, (-1,))
    (flat,) = xp.nonzero(where)
    i, j = flat // shape[1] + rows.start, flat % shape[1] + columns.start
    limits, found = (xp.take(xp.reshape(a, (-1,)), flat) for a in (limit, matrix))
    pairs = _Listed(one, two, i, j, angles.at(flat), limits)
    matrix = xp.reshape(filled(xp.reshape(matrix, (-1,)), where, pairs.tail(found, degree, cut)), shape)
    return Tail(matrix if upper is None else xp.where(upper, matrix, matrix.T), xp.minimum(bound, limit))


def _grown(one: SeriesKernel, two: SeriesKernel, degree: int) -> int:
    """Let both series grow to a degree; return it, or the last one that both have."""
    one.grow(degree)
    two.grow(degree)
    return min(degree, one.series.degree, two.series.degree)


@dataclass(frozen=True, eq=False)
class _Listed:
    """Listed pairs of different units, with what they may miss, (p,) each."""

    one: SeriesKernel
    two: SeriesKernel
    i: Array
    j: Array
    angles: Angles
    limits: Array

    def at(self, index: Array) -> _Listed:
        """Some of the pairs, by their positions."""
        xp = namespace(index=index)
        i, j, limits = (xp.take(a, index) for a in (self.i, self.j, self.limits))
        return _Listed(self.one, self.two, i, j, self.angles.at(index), limits)

    def tail(self, found: Array, degree: int, cut: int) -> Array:
        """Covariances (p,) above `degree`, where those up to `cut` were `found`."""
        xp, one, two = namespace(found=found), self.one, self.two
        still = self.limits >= 0  # the pairs that need more
        for goal in (c for c in _CUTS if c > cut):
            (index,) = xp.nonzero(still)
            if index.shape[0] == 0:
                return found
            if goal > _LONG and index.shape[0] < _MANY * one.units.size:
                break
            further = _grown(one, two, goal)
            some = self.at(index)
            found = filled(found, still, xp.take(found, index) + some.terms(cut, further))
            rests = xp.take(one.rests[further, :], some.i) * xp.take(two.rests[further, :], some.j)
            bound, cut = decay(some.angles.rho, further, one.series.gated is not None) * rests, further
            still = filled(still, still, bound > some.limits)
        (index,) = xp.nonzero(still)
        if index.shape[0] == 0:
            return found
        some = self.at(index)
        exact = pair_moments(one.family, two.family, some.i, some.j, some.angles, 10 * some.limits)
        return filled(found, still, exact - some.terms(0, degree))

    def terms(self, low: int, high: int) -> Array:
        """Covariances (p,) at degrees low < k <= high together."""
        left, right, parts = self.one.series.truncate(high), self.two.series.truncate(high), []
        for part in chunks(self.i.shape[0], _LISTED):
            angles = map_arrays(self.angles, itemgetter(part))
            parts.append(terms_between(left.listed(self.i[part]), right.listed(self.j[part]), angles, low, high))
        return namespace(i=self.i).concat(parts)


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
