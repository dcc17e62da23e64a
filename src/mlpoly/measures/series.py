"""Covariances of hidden units degree by degree: finite sums over the Hermite series of each unit (MATH 5).

With orthonormal series P_i = sum_k p_k he_k(t_i) and Q_i = sum_k q_k he_k(t_i), the covariance at total degree k is

    p_k p_k' rho^k + sqrt(k) rho^(k-1) (p_k q_{k-1}' E[t_i e_j] + q_{k-1} p_k' E[e_i t_j])
        + q_{k-1} q_{k-1}' (rho^(k-1) E[e_i e_j] + (k-1) rho^(k-2) E[t_i e_j] E[e_i t_j])
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from mlpoly.activations import Activation, project
from mlpoly.arrays import Array, namespace
from mlpoly.measures.units import Angles, Units
from mlpoly.special import times_line

__all__ = ["Series", "decay", "energies", "expand", "terms", "terms_between"]


class Series(NamedTuple):
    """Orthonormal Hermite series of units: P (K + 1, h), and Q (K, h) for gated ones."""

    plain: Array
    gated: Array | None = None

    @property
    def degree(self) -> int:
        """Total degree K."""
        return int(self.plain.shape[0]) - 1

    def rows(self, part: slice) -> Series:
        """The series of a block of units as rows of a matrix, (K + 1, a, 1)."""
        return Series(*[None if a is None else a[:, part][:, :, None] for a in self])

    def columns(self, part: slice) -> Series:
        """The series of a block of units as columns of a matrix, (K + 1, 1, b)."""
        return Series(*[None if a is None else a[:, part][:, None, :] for a in self])

    def listed(self, index: Array) -> Series:
        """The series of listed units, (K + 1, p)."""
        return Series(*[None if a is None else namespace(a=a).take(a, index, axis=1) for a in self])


def expand(activation: Activation, units: Units, degree: int) -> Series:
    """Series of the hidden units of a network up to a total degree (MATH 1, 2)."""
    if units.gates is None:
        return Series(project(activation, units.means, units.stds, degree))
    c = project(activation, units.means, units.stds, degree + 1)
    plain = times_line(c, units.gates.means, units.gates.slopes)
    return Series(plain, c[:degree, ...] if degree else None)


def energies(series: Series, units: Units) -> Array:
    """Variance of each unit at each degree, (K + 1, h)."""
    out = series.plain**2
    if series.gated is None or units.gates is None:
        return out
    xp = namespace(out=out)
    return out + xp.concat([out[:1, ...] * 0, series.gated**2 * units.gates.spreads**2])


def terms(left: Series, right: Series, angles: Angles, degree: int) -> Iterator[Array]:
    """Covariances (a, b) at degree exactly 1, 2, ..., `degree`; rows with columns, or listed pairs (p,)."""
    xp = namespace(rho=angles.rho)
    power, before, earlier = angles.rho, xp.ones_like(angles.rho), angles.rho * 0  # rho^k, rho^(k-1), rho^(k-2)
    for k in range(1, degree + 1):
        p, q = left.plain[k, ...], right.plain[k, ...]
        out = p * q * power
        if left.gated is not None and right.gated is not None:
            pg, qg = left.gated[k - 1, ...], right.gated[k - 1, ...]
            out = out + math.sqrt(k) * before * (p * qg * angles.right + pg * q * angles.left)
            out = out + pg * qg * (before * angles.gates + (k - 1) * earlier * angles.right * angles.left)
        yield out
        power, before, earlier = power * angles.rho, power, before


def terms_between(left: Series, right: Series, angles: Angles, low: int, high: int) -> Array:
    """Sum of the covariances at degrees low < k <= high, without keeping the matrices of single degrees."""
    rho = angles.rho
    if high <= low:
        return rho * 0
    degrees = range(low + 1, high + 1)
    pair = left.plain[low + 1 : high + 1, ...], right.plain[low + 1 : high + 1, ...]
    total = _power_sum(*pair, [1.0] * len(degrees), rho, low + 1)
    if left.gated is None or right.gated is None:
        return total
    gate: tuple[Array, Array] = (left.gated[low:high, ...], right.gated[low:high, ...])
    root = [math.sqrt(k) for k in degrees]
    total = total + angles.right * _power_sum(pair[0], gate[1], root, rho, low)
    total = total + angles.left * _power_sum(gate[0], pair[1], root, rho, low)
    total = total + angles.gates * _power_sum(*gate, [1.0] * len(degrees), rho, low)
    if low == 0:  # the factor k - 1 is zero at k = 1
        gate, degrees = (gate[0][1:, ...], gate[1][1:, ...]), degrees[1:]
    bend = _power_sum(*gate, [k - 1.0 for k in degrees], rho, max(low - 1, 0))
    return total + angles.left * angles.right * bend


def _power_sum(left: Array, right: Array, weights: list[float], rho: Array, first: int) -> Array:
    """Sum_k weights[k] left[k] right[k] rho^(first + k), by Horner's rule."""
    total = rho * 0
    for k in range(len(weights) - 1, -1, -1):
        total = total * rho + weights[k] * left[k, ...] * right[k, ...]
    return total * rho**first if first else total


def decay(rho: Array, degree: int, gated: bool) -> Array:
    """Factor g with |covariance of two units beyond `degree`| <= g sqrt(T_i T_j), T_i a unit's own energy beyond it.

    For plain units each term shrinks by rho^k, so g = |rho|^(K+1). For gated ones |E[t_i e_j]| <= |e_j| sqrt(1-rho^2)
    bounds the 2 x 2 matrix of factors between (P, Q) and (P, Q) by its largest row sum. Its entries fall with k from
    K+1 on if |rho| <= K/(K+1); beyond that, and wherever it is smaller, the bound is that of Cauchy and Schwarz: 1.
    """
    xp = namespace(rho=rho)
    size = xp.abs(rho)
    if not gated:
        return size ** (degree + 1)
    k = max(degree, 1)
    side = xp.sqrt((1 - size) * (1 + size))
    power = size ** (k - 1)
    factor = power * (size + k * side * side + math.sqrt(k + 1) * size * side)
    return xp.where(size * (k + 1) <= k, xp.clip(factor, None, 1.0), 1.0)
