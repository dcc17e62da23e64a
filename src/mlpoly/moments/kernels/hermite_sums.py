"""Covariances of hidden units as sums over their Hermite series, the route for every activation (MATH 5).

A chunk of pairs is summed degree by degree, with a rigorous bound on the truncated rest: as far as most pairs need, and
farther for the few others. The diagonal is a one-dimensional integral, and pairs whose bound is still not small enough
are integrated by conditioning, which is exact at any correlation. So identical units cost no accuracy, and no array is
larger than a chunk of pairs or K numbers per unit.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from mlpoly.arrays import Array, chunks, decidable, eye, namespace
from mlpoly.moments.kernels.conditional import Pairs, filled, pair_moments
from mlpoly.records import map_arrays, replace
from mlpoly.units import Angles, decay, terms_between

if TYPE_CHECKING:
    from mlpoly.moments.expansion import Expansion

_CUTS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)  # the series of a pair stops at one of these
TRACED = 128  # where values cannot be looked at, every pair gets this many terms
_LONG = 256  # beyond, only if there are many pairs that need them
_MANY = 1 / 8  # pairs of a chunk for each unit of the layer: integrating so many takes as long as a long series
_FEW = 1 / 16  # of the pairs of a chunk get more terms pair by pair, which costs several times as much for each
_LISTED = 1024  # such pairs at a time, so that their series stay in the cache


def remainder(
    one: Expansion, two: Expansion, rows: slice, columns: slice, angles: Angles, degree: int, own: bool
) -> tuple[Array, Array | None]:
    """Covariance of chunks of two families of units, both gated or neither, at all degrees above `degree`.

    All pairs get the terms that most of them need; the few others get more, and those that no series serves are
    integrated. `own` says that these are the same units of the same inputs, so that the variance of a unit is the
    covariance with itself.
    """
    xp, gated = namespace(rho=angles.rho), one.units.gate is not None
    longest = min(one.longest, two.longest)

    def terms(cut: int) -> Array:
        left, right = one.series(cut), two.series(cut)
        return terms_between(left.rows(rows), right.columns(columns), angles, degree, cut)

    def bound_at(cut: int) -> Array:
        return decay(angles.rho, cut, gated) * one.rests(cut)[rows][:, None] * two.rests(cut)[columns][None, :]

    if one.activation is None or two.activation is None:  # no terms beyond the end of either
        cut = max(longest, degree)
        exact = any(e.activation is None and e.beyond is None and e.longest <= cut for e in (one, two))
        return terms(cut), None if exact else bound_at(cut)
    if not decidable(angles.rho):  # as under jax.jit
        cut = max(min(TRACED, longest), degree)
        matrix, bound = terms(cut), bound_at(cut)
        if own and rows == columns:
            same = eye(matrix.shape[0], matrix) > 0
            matrix, bound = xp.where(same, one.rests(degree)[rows] ** 2, matrix), xp.where(same, 0.0, bound)
        return matrix, bound
    shape = (rows.stop - rows.start, columns.stop - columns.start)
    # Of a symmetric chunk, the pairs that are needed.
    upper = None
    if one is two and rows == columns:
        upper = xp.triu(xp.ones_like(angles.rho), k=int(own)) > 0
    limit = max(one.tolerance, two.tolerance) * one.spreads[rows][:, None] * two.spreads[columns][None, :]
    for goal in [c for c in _CUTS if c > degree] or [degree]:
        cut = max(min(goal, longest), degree)
        bound = bound_at(cut)
        open_pairs = bound > limit
        others = open_pairs if upper is None else open_pairs & (upper | upper.T)
        if cut < goal or int(xp.count_nonzero(others)) <= _FEW * shape[0] * shape[1]:
            break
    matrix = terms(cut)
    if not bool(xp.any(open_pairs)):
        return matrix, bound
    if upper is not None:
        if own:
            matrix = xp.where(open_pairs & ~(upper | upper.T), one.rests(degree)[rows] ** 2, matrix)
        open_pairs = open_pairs & upper
    where = xp.reshape(open_pairs, (-1,))
    (flat,) = xp.nonzero(where)
    i, j = flat // shape[1] + rows.start, flat % shape[1] + columns.start
    limits, short = (xp.take(xp.reshape(a, (-1,)), flat) for a in (limit, matrix))
    longer = _beyond(Pairs(one, two, i, j, angles.at(flat), limits), short, degree, cut)
    matrix = xp.reshape(filled(xp.reshape(matrix, (-1,)), where, longer), shape)
    return matrix if upper is None else xp.where(upper, matrix, matrix.T), xp.minimum(bound, limit)


def _beyond(pairs: Pairs, covariances: Array, degree: int, cut: int) -> Array:
    """Covariances (p,) of pairs of different units above `degree`, from those up to `cut`, which are not enough."""
    xp, one, two = namespace(rho=pairs.angles.rho), pairs.one, pairs.two
    unsettled = pairs.limits >= 0
    for further in (c for c in _CUTS if cut < c <= min(one.longest, two.longest)):
        (index,) = xp.nonzero(unsettled)
        if index.shape[0] == 0:
            return covariances
        if further > _LONG and index.shape[0] < _MANY * one.units.size:
            break
        some = pairs.at(index)
        covariances = filled(covariances, unsettled, xp.take(covariances, index) + _terms(some, cut, further))
        rests = xp.take(one.rests(further), some.i) * xp.take(two.rests(further), some.j)
        bound, cut = decay(some.angles.rho, further, one.units.gate is not None) * rests, further
        unsettled = filled(unsettled, unsettled, bound > some.limits)
    (index,) = xp.nonzero(unsettled)
    if index.shape[0] == 0:
        return covariances
    some = pairs.at(index)
    exact = pair_moments(replace(some, limits=10 * some.limits))
    return filled(covariances, unsettled, exact - _terms(some, 0, degree))


def _terms(pairs: Pairs, low: int, high: int) -> Array:
    """Covariances (p,) at degrees low < k <= high together."""
    left, right, sums = pairs.one.series(high), pairs.two.series(high), []
    for part in chunks(pairs.i.shape[0], _LISTED):
        angles = map_arrays(pairs.angles, itemgetter(part))
        sums.append(terms_between(left.listed(pairs.i[part]), right.listed(pairs.j[part]), angles, low, high))
    return namespace(i=pairs.i).concat(sums)
