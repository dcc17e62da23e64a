"""Functions of two inputs beside those of one, under a Gaussian (MATH 14): the closest model with some pairs.

A pair has the frame u = z_i, v = what z_j has beyond it, in which the he_a(u) he_b(v) are orthonormal. Of degree
n = a + b, those orthogonal to he_n(z_i) and he_n(z_j) are what the pair adds. Products of different degree stay
orthogonal, so that it is one system for each degree again.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpoly.arrays import Array, constant, namespace, to_numpy
from mlpoly.errors import TooLargeError
from mlpoly.inputs import Gaussian
from mlpoly.measures.shape_systems import solved
from mlpoly.moments import AnyExpansion, Products
from mlpoly.moments.hermite_products import change_of_basis, ladder

_DEGREE = 12  # of pair functions; their number of coefficients grows with its square
_JUDGED = 4  # degree up to which pairs are compared
_CANDIDATES = 5000


class _Frames:
    """Frames of pairs of standardised inputs with correlations (r, r)."""

    def __init__(self, correlation: Array, places: Sequence[tuple[int, int]]) -> None:
        self.places = list(places)
        d, one, two = int(correlation.shape[0]), [i for i, _ in places], [j for _, j in places]
        xp = namespace(correlation=correlation)
        first, second = (constant(np.eye(d)[each], correlation) for each in (one, two))
        self.rho = xp.sum(first @ correlation * second, axis=1)
        self.side = xp.sqrt(1 - self.rho**2)
        self.rows = xp.stack([first, (second - self.rho[:, None] * first) / self.side[:, None]], axis=1)  # (p, 2, r)
        self.seen = self.rows @ correlation  # correlations with all inputs

    def mains(self, n: int) -> Array:
        """Inner products (p, n + 1, r) of he_a(u) he_b(v), a = 0, ..., n, with he_n of all inputs."""
        return _powers(self.seen[:, 0, :], self.seen[:, 1, :], n)

    def projection(self, n: int) -> Array:
        """Matrices (p, n + 1, n + 1) off he_n(z_i) and he_n(z_j)."""
        xp, last = namespace(rho=self.rho), constant(np.eye(n + 1)[n], self.rho)
        other = _powers(self.rho[:, None], self.side[:, None], n)[:, :, 0] * (1 - last)
        size = xp.sum(other**2, axis=1)[:, None, None]
        return constant(np.diag(np.arange(n + 1.0) < n), self.rho) - other[:, :, None] * other[:, None, :] / size

    def products(self, n: int, lower: Array | None) -> Array:
        """Inner products (p, p, n + 1, n + 1) of the products of all pairs of degree n, from those of degree n - 1."""
        xp = namespace(rho=self.rho)
        cross = xp.stack([self.seen @ xp.matrix_transpose(self.rows[q, ...]) for q in range(len(self.places))], axis=1)
        if lower is None:
            return cross[..., :1, :1] * 0 + 1
        up, down = (constant(np.sqrt(v), self.rho) for v in (np.arange(1.0, n + 1), np.arange(n, 0.0, -1)))
        zero = lower[..., :1] * 0

        def taken(rows: Array, k: int) -> Array:
            """What one factor u (k = 0) or v (k = 1) of the first pair takes from the products of the second."""
            none = zero[..., : rows.shape[-2], :]
            raised, kept = xp.concat([none, rows * up], axis=-1), xp.concat([rows * down, none], axis=-1)
            return cross[..., k : k + 1, :1] * raised + cross[..., k : k + 1, 1:] * kept

        first = taken(lower[..., :1, :], 1) / math.sqrt(n)
        return xp.concat([first, taken(lower, 0) / up[:, None]], axis=-2)


def _powers(one: Array, two: Array, n: int) -> Array:
    """Coefficients (p, n + 1, m) of he_n(a u + b v) for |(a, b)| <= 1, arrays (p, m)."""
    xp = namespace(one=one)
    return xp.stack([math.sqrt(math.comb(n, a)) * one**a * two ** (n - a) for a in range(n + 1)], axis=1)


def with_pairs(
    f: AnyExpansion, inputs: Gaussian, directions: Array, correlation: Array, found: Array, series: Array,
    chosen: int | Sequence[tuple[int, int]], floor: float,
) -> tuple[Array, Array, dict[str, Any]]:  # fmt: skip
    """Series (n, r, o) of one input beside pairs, what these explain (o,), and the parts of a model that they are.

    They are listed, or as many of those that explain most of what is left by themselves, up to degree 4. `found` and
    `series` are E[f he_n(z_i)] and the series without them.
    """
    xp, count = namespace(found=found), int(correlation.shape[0])
    degree = min(_DEGREE, int(found.shape[0]))
    places = list(itertools.combinations(range(count), 2)) if isinstance(chosen, int) else list(chosen)
    if isinstance(chosen, int) and chosen < len(places):
        if len(places) > _CANDIDATES:
            what = f"{count} inputs have {len(places)} pairs, more than {_CANDIDATES} to choose from"
            raise TooLargeError(f"{what}; list some, pairs=[(0, 1), (0, 4)].")
        judged = min(_JUDGED, degree)
        frames = _Frames(correlation, places)
        gains = _gains(frames, _projections(f, inputs, directions, frames, judged), correlation, series, judged)
        places = [places[p] for p in np.argsort(-gains, kind="stable")[:chosen]]
    frames = _Frames(correlation, places)
    seen, lower = _projections(f, inputs, directions, frames, degree), frames.products(1, frames.products(0, None))
    joint, parts, gained = [series[:1, ...]], list[Array](), series[0, 0, :] * 0
    outputs, p = int(found.shape[2]), len(places)
    zero = xp.stack([series[0, :1, :] * 0] * p)  # (p, 1, o)
    power = correlation
    for n in range(2, degree + 1):
        lower, power, off = frames.products(n, lower), power * correlation, frames.projection(n)
        between = off[:, None, ...] @ lower @ off[None, ...]  # (p, p, n + 1, n + 1)
        between = xp.reshape(xp.permute_dims(between, (0, 2, 1, 3)), (p * (n + 1), p * (n + 1)))
        cross = xp.reshape(off @ frames.mains(n), (p * (n + 1), count))
        gram = xp.concat([xp.concat([power, cross.T], axis=1), xp.concat([cross, between], axis=1)])
        rhs = xp.concat([found[n - 1, ...], xp.reshape(off @ seen[n], (p * (n + 1), outputs))])
        solution = solved(gram, rhs, floor)
        gained = gained + xp.sum(solution * rhs, axis=0) - xp.sum(series[n - 1, ...] * found[n - 1, ...], axis=0)
        joint.append(solution[None, :count, :])
        parts.append(xp.flip(off @ xp.reshape(solution[count:, :], (p, n + 1, outputs)), axis=1))
    whole = xp.concat([zero, zero, zero, *parts], axis=1)
    more = {"pair_series": whole, "pair_correlations": frames.rho, "places": places}
    return xp.concat([*joint, series[degree:, ...]]), gained, more


def _projections(f: AnyExpansion, inputs: Gaussian, directions: Array, frames: _Frames, degree: int) -> list[Array]:
    """E[f he_a(u) he_b(v)] (p, n + 1, o), a = 0, ..., n, by degree n."""
    own = ladder(2, degree)
    xp, along = namespace(directions=directions), inputs.times_covariance(directions)
    rows: list[Array] = []
    for p in range(len(frames.places)):
        frame = frames.rows[p, ...]
        if isinstance(f, Products):
            turned = frame @ directions @ f.coordinates.back
            rows.append(change_of_basis(turned[:, 0] * 0, turned, own, f.own).T @ f.values)
        else:
            rows.append(f.in_products((frame @ along).T, own))
    table = xp.stack(rows)  # (p, t, o)
    spans = [(n * (n + 1) // 2, (n + 1) * (n + 2) // 2) for n in range(degree + 1)]
    return [xp.flip(table[:, low:high, :], axis=1) for low, high in spans]


def _gains(frames: _Frames, seen: Any, correlation: Array, series: Array, degree: int) -> np.ndarray:
    """What every pair by itself explains of what functions of one input leave, up to a degree."""
    total = np.zeros(len(frames.places))
    own = to_numpy(correlation)
    for n in range(2, degree + 1):
        off, mains, b = (to_numpy(a) for a in (frames.projection(n), frames.mains(n), seen[n]))
        left = off @ (b - mains @ to_numpy(series[n - 1, ...]))
        inverse = np.linalg.pinv(own**n, rcond=1e-12, hermitian=True)
        gram = off @ (np.eye(n + 1) - mains @ inverse @ mains.transpose(0, 2, 1)) @ off
        weights = np.linalg.pinv(gram, rcond=1e-10, hermitian=True) @ left
        total += (left * weights).sum(axis=(1, 2))
    return total
