"""Covariances of hidden units degree by degree: finite sums over the Hermite series of each unit (MATH 5).

With orthonormal series P_i = sum_k p_k he_k(t_i) and Q_i = sum_k q_k he_k(t_i), the covariance at total degree k is

    p_k p_k' rho^k + sqrt(k) rho^(k-1) (p_k q_{k-1}' E[t_i e_j] + q_{k-1} p_k' E[e_i t_j])
        + q_{k-1} q_{k-1}' (rho^(k-1) E[e_i e_j] + (k-1) rho^(k-2) E[t_i e_j] E[e_i t_j])
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpoly.arrays import Array, add_product, constant, namespace, safe_root, scan
from mlpoly.records import map_arrays, record
from mlpoly.special import clenshaw, hermite, times_line

if TYPE_CHECKING:
    from mlpoly.units.inner_products import Angles
    from mlpoly.units.units import Units


@record
class Series:
    """Orthonormal Hermite series of units P_i(t_i) + e_i Q_i(t_i), ascending."""

    plain: Array  # (n + 1, h), coefficients of the P_i
    gated: Array | None = None  # (n, h), those of the Q_i of gated units; None at degree 0

    @property
    def degree(self) -> int:
        """Total degree n."""
        return int(self.plain.shape[0]) - 1

    def truncate(self, degree: int) -> Series:
        """The terms up to a degree."""
        gated = None if self.gated is None or degree == 0 else self.gated[:degree, ...]
        return Series(self.plain[: degree + 1, ...], gated)

    def padded(self, degree: int, gated: bool) -> Series:
        """The same series padded with zeros up to a degree, with a gated series of zeros if `gated` and it has none."""
        zero = self.plain[:1, ...] * 0
        rows = [] if self.gated is None else [self.gated]
        missing = degree - (0 if self.gated is None else int(self.gated.shape[0]))
        xp = namespace(plain=self.plain)
        plain = xp.concat([self.plain, *[zero] * (degree - self.degree)])
        return Series(plain, xp.concat([*rows, *[zero] * missing]) if gated and degree else None)

    def beside(self, other: Series) -> Series:
        """The series of both families of units, of the same degrees and both gated or neither."""
        xp = namespace(plain=self.plain)
        gated = None if self.gated is None else xp.concat([self.gated, other.gated], axis=1)
        return Series(xp.concat([self.plain, other.plain], axis=1), gated)

    def rebase(self, old: Units, new: Units) -> Series:
        """Series of the same functions of x in the t and e of `new`, which has the directions of `old`; exact.

        With t = shift + scale t' the old and the new standardised preactivation, n + 1 Gauss-Hermite nodes in t'
        integrate every product of two polynomials of degree n.
        """
        n = self.degree
        inverse = old.inverse_scales
        shift, scale = (new.shifts - old.shifts) * inverse, new.scales * inverse
        nodes, weights = np.polynomial.hermite_e.hermegauss(n + 1)
        t = constant(nodes[:, None], shift)
        weight = constant(weights[:, None] / math.sqrt(2 * math.pi), shift)
        values = clenshaw(self.plain[:, None, :], shift + scale * t)
        xp = namespace(t=t)

        def projected(at_nodes: Array, degree: int) -> Array:
            return hermite(t, degree, at_nodes * weight, read=partial(xp.sum, axis=0))

        if self.gated is None or old.gate is None or new.gate is None:
            return Series(projected(values, n))
        second = clenshaw(self.gated[:, None, :], shift + scale * t)
        # v.x is shift + slope t + e in both; the difference of the old e and the new one joins the first series.
        level = new.gate.shifts - old.gate.shifts - old.gate.slopes * shift
        values = values + (level + (new.gate.slopes - old.gate.slopes * scale) * t) * second
        return Series(projected(values, n), projected(second, n - 1))

    def at_no_factor(self, units: Units) -> Array:
        """Series (n + 1, h) of the units at v_i.x = 0: P_i - (shift_i + slope_i t) Q_i.

        A unit is this plus v_i.x Q_i, so that e_i never needs an array of the size of all units.
        """
        if self.gated is None or units.gate is None:
            return self.plain
        xp, zero = namespace(plain=self.plain), self.plain[:1, ...] * 0
        rows = max(int(self.plain.shape[0]), int(self.gated.shape[0]) + 1)
        plain = xp.concat([self.plain, *[zero] * (rows - self.plain.shape[0])])
        factor = xp.concat([self.gated, *[zero] * (rows + 1 - self.gated.shape[0])])  # times_line drops the top row
        return plain - times_line(factor, units.gate.shifts, units.gate.slopes)

    def rows(self, part: slice) -> Series:
        """The series of a chunk of units as rows of a matrix, (n + 1, a, 1)."""
        return map_arrays(self, lambda a: a[:, part][:, :, None])

    def columns(self, part: slice) -> Series:
        """The series of a chunk of units as columns of a matrix, (n + 1, 1, b)."""
        return map_arrays(self, lambda a: a[:, part][:, None, :])

    def listed(self, index: Array) -> Series:
        """The series of listed units, (n + 1, p)."""
        return map_arrays(self, lambda a: namespace(a=a).take(a, index, axis=1))


def energies(series: Series, units: Units) -> Array:
    """Variance of each unit at each degree, (n + 1, h); a gate must have its spreads."""
    out = series.plain**2
    if series.gated is None or units.gate is None:
        return out
    return out + namespace(out=out).concat([out[:1, ...] * 0, series.gated**2 * units.gate.spreads**2])


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

    def step(total: Array, weight: Any, a: Array, b: Array) -> tuple[Array, None]:
        return add_product(weight * a * b, total, rho), None

    xp = namespace(rho=rho)
    total, _ = scan(step, rho * 0, weights[::-1], xp.flip(left, axis=0), xp.flip(right, axis=0))
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
    side = safe_root((1 - size) * (1 + size))
    power = size ** (k - 1)
    factor = power * (size + k * side * side + math.sqrt(k + 1) * size * side)
    return xp.where(size * (k + 1) <= k, xp.clip(factor, None, 1.0), 1.0)
