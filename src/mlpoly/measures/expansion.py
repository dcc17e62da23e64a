"""Polynomials as units with finite series under any Gaussian, whatever they were fitted under."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlpoly.arrays import Array, constant, namespace, widen
from mlpoly.inputs import Gaussian
from mlpoly.measures.readout import OutputSum
from mlpoly.measures.series import Series, energies, terms_between
from mlpoly.measures.units import Gates, Units, angles, units_of
from mlpoly.polynomials import RidgePolynomial
from mlpoly.special import clenshaw, hermite

__all__ = ["Expansion", "difference", "expansion_of", "mean_of", "variance_of"]


class Expansion(NamedTuple):
    """A polynomial readout [P_i(t_i) + e_i Q_i(t_i)]_i + bias whose t_i are standard normal under units.inputs."""

    units: Units
    series: Series
    readout: Array | None
    bias: Array | None


def expansion_of(poly: RidgePolynomial, inputs: Gaussian) -> Expansion:
    """The polynomial in the Hermite basis of `inputs`, exactly.

    With t = shift + scale t' the old and the new standardised preactivation, n + 1 Gauss-Hermite nodes in t' integrate
    every product of two polynomials of degree n exactly.
    """
    gate = poly.gate
    units = units_of(inputs, poly.directions, None, None if gate is None else gate.directions)
    inverse = widen(poly.inverse_scales)
    shift, scale = (units.means - widen(poly.shifts)) * inverse, units.stds * inverse
    n = poly.degree
    nodes, weights = np.polynomial.hermite_e.hermegauss(n + 1)
    t = constant(nodes[:, None], shift)
    weight = constant(weights[:, None] / np.sqrt(2 * np.pi), shift)
    values = clenshaw(widen(poly.series)[:, None, :], shift + scale * t)
    gated = None
    if gate is not None and units.gates is not None:
        second = clenshaw(widen(gate.series)[:, None, :], shift + scale * t)
        # Old e = v.x - shifts - slopes t; v.x has a new regression on the new t'.
        slopes = widen(gate.slopes)
        level = units.gates.means - widen(gate.shifts) - slopes * shift
        values = values + (level + (units.gates.slopes - slopes * scale) * t) * second
        gated = _series(second * weight, t, n - 1)
    bias = None if poly.bias is None else widen(poly.bias)
    readout = None if poly.readout is None else widen(poly.readout)
    return Expansion(units, Series(_series(values * weight, t, n), gated), readout, bias)


def _series(weighted: Array, t: Array, degree: int) -> Array:
    """Orthonormal coefficients (degree + 1, h) from weighted values at the nodes t (n, 1)."""
    xp = namespace(t=t)
    return xp.stack([xp.sum(weighted * he, axis=0) for he in hermite(t, degree)])


def mean_of(expansion: Expansion) -> Array:
    """E[p], (o,)."""
    hidden = expansion.series.plain[0, :]
    out = hidden if expansion.readout is None else expansion.readout @ hidden
    return out if expansion.bias is None else out + expansion.bias


def variance_of(expansion: Expansion) -> Array:
    """Variance of each output, (o,): a finite sum over degrees (MATH 5)."""
    xp = namespace(series=expansion.series.plain)
    if expansion.readout is None:
        return xp.sum(energies(expansion.series, expansion.units)[1:, ...], axis=0)
    total = OutputSum(expansion.readout, full=False)
    series = expansion.series
    for rows, columns, inner in angles(expansion.units):
        total.add(rows, columns, terms_between(series.rows(rows), series.columns(columns), inner, 0, series.degree))
    return total.value


def difference(one: Expansion, two: Expansion) -> Expansion:
    """One minus two, under the same Gaussian: unit by unit where they share their units, else side by side."""
    degree = max(one.series.degree, two.series.degree)
    gated = one.series.gated is not None or two.series.gated is not None
    one, two = _padded(one, degree, gated), _padded(two, degree, gated)
    bias = _minus(one.bias, two.bias)
    if _same_units(one, two):
        both = Series(*[_minus(a, b) for a, b in zip(one.series, two.series, strict=True)])
        return Expansion(one.units, both, one.readout, bias)
    xp = namespace(left=one.series.plain)
    readout = xp.concat([_explicit(one), -_explicit(two)], axis=1)
    joined = [None if a is None else xp.concat([a, b], axis=1) for a, b in zip(one.series, two.series, strict=True)]
    return Expansion(_joined(one.units, two.units), Series(*joined), readout, bias)


def _minus(a: Array | None, b: Array | None) -> Array | None:
    if b is None:
        return a
    return -b if a is None else a - b


def _padded(e: Expansion, degree: int, gated: bool) -> Expansion:
    """Series up to `degree`, with a gate of zeros where the other expansion has one."""
    xp = namespace(series=e.series.plain)
    zero = e.series.plain[:1, ...] * 0

    def grown(a: Array | None, rows: int) -> Array:
        have = [] if a is None else [a]
        return xp.concat([*have, *[zero] * (rows - (0 if a is None else a.shape[0]))]) if rows else zero[:0, ...]

    units = e.units
    if gated and units.gates is None:
        flat = units.means * 0
        units = units._replace(gates=Gates(units.directions * 0, flat, flat, flat))
    series = Series(grown(e.series.plain, degree + 1), grown(e.series.gated, degree) if gated else None)
    return Expansion(units, series, e.readout, e.bias)


def _same_units(one: Expansion, two: Expansion) -> bool:
    pairs = [(one.units.directions, two.units.directions), (one.readout, two.readout)]
    if one.units.gates is not None and two.units.gates is not None:
        pairs.append((one.units.gates.directions, two.units.gates.directions))
    return all(_equal(a, b) for a, b in pairs)


def _equal(a: Array | None, b: Array | None) -> bool:
    if a is None or b is None or a is b:
        return a is b
    return a.shape == b.shape and bool(namespace(a=a).all(a == b))


def _explicit(e: Expansion) -> Array:
    return constant(np.eye(e.units.size), e.series.plain) if e.readout is None else e.readout


def _joined(one: Units, two: Units) -> Units:
    xp = namespace(one=one.means)

    def join(a: Array, b: Array) -> Array:
        return xp.concat([a, b], axis=0)

    gates = None
    if one.gates is not None and two.gates is not None:
        gates = Gates(*[join(a, b) for a, b in zip(one.gates, two.gates, strict=True)])
    directions, means = join(one.directions, two.directions), join(one.means, two.means)
    return Units(one.inputs, directions, means, join(one.stds, two.stds), gates)
