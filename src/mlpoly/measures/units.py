"""Hidden units under one Gaussian: their preactivations, and how they are correlated, block by block.

A unit is F_i = P_i(t_i) + e_i Q_i(t_i), with t_i standard normal and e_i independent of t_i (MATH 1, 2). All that
second moments need of the inputs are the inner products of t_i, e_i with t_j, e_j.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mlpoly.arrays import Array, chunks, constant, namespace, widen
from mlpoly.fitting.preactivations import preactivations, regression
from mlpoly.inputs import Gaussian
from mlpoly.networks import Layer

__all__ = ["Angles", "Gates", "Units", "angles", "block_count", "hidden_units", "units_of", "wide_inputs"]

# Hidden units in a block. About twenty (block, block) arrays in float64 are alive at a time: 40 MB and 160 MB.
_SMALL, _LARGE = 512, 1024


class Gates(NamedTuple):
    """Second factors z_i = mean_i + slope_i t_i + e_i of gated units; (h, d) and (h,)."""

    directions: Array
    means: Array
    slopes: Array
    spreads: Array  # standard deviations of e_i


class Units(NamedTuple):
    """Preactivations y_i = mean_i + std_i t_i under `inputs`; (h, d) and (h,), in float64 where there is one."""

    inputs: Gaussian
    directions: Array
    means: Array
    stds: Array
    gates: Gates | None = None

    @property
    def size(self) -> int:
        """Number of hidden units h."""
        return int(self.directions.shape[0])


class Angles(NamedTuple):
    """Inner products of a block of units (a,) with another (b,); (a, b) each, or any common shape for listed pairs."""

    rho: Array  # E[t_i t_j]
    right: Array = None  # E[t_i e_j]; None for plain units, like the two below
    left: Array = None  # E[e_i t_j]
    gates: Array = None  # E[e_i e_j]

    def at(self, flat: Array) -> Angles:
        """The same for listed pairs, given by their positions in the flattened block."""
        xp = namespace(rho=self.rho)
        return Angles(*[None if a is None else xp.take(xp.reshape(a, (-1,)), flat) for a in self])


def wide_inputs(inputs: Gaussian) -> Gaussian:
    """The same Gaussian in float64 where there is one."""
    return inputs.to(widen(inputs.mean))


def units_of(
    inputs: Gaussian, weight: Array, bias: Array | None, gate: Array | None = None, gate_bias: Array | None = None
) -> Units:
    """Preactivations weight (h, d) @ x + bias and second factors gate (h, d) @ x + gate_bias under `inputs`."""
    inputs, weight = wide_inputs(inputs), widen(weight)
    gate = None if gate is None else widen(gate)
    y = preactivations(inputs, weight, gate)
    means = y.centres if bias is None else y.centres + widen(bias)
    if gate is None or y.gate_centres is None:
        return Units(inputs, weight, means, y.stds)
    xp = namespace(weight=weight)
    slopes = regression(y.cross, y.stds)
    spread = preactivations(inputs, gate).stds ** 2 - slopes**2
    up_means = y.gate_centres if gate_bias is None else y.gate_centres + widen(gate_bias)
    gates = Gates(gate, up_means, slopes, xp.sqrt(xp.clip(spread, 0, None)))
    return Units(inputs, weight, means, y.stds, gates)


def hidden_units(net: Layer, inputs: Gaussian) -> Units:
    """The hidden units of a network."""
    forms = net.forms
    return units_of(inputs, forms.directions, forms.bias, forms.gate_directions, forms.gate_bias)


def angles(units: Units) -> Iterator[tuple[slice, slice, Angles]]:
    """Inner products of all units, as blocks (rows, columns) on and above the diagonal.

    One product with the covariance per block of rows; no h x h array is made unless it is one block.
    """
    parts = _parts(units)
    for number, rows in enumerate(parts):
        spread = units.inputs.times_covariance(units.directions[rows, :])
        gate_spread = None if units.gates is None else units.inputs.times_covariance(units.gates.directions[rows, :])
        for columns in parts[number:]:
            yield rows, columns, _block(units, rows, columns, spread, gate_spread)


def block_count(units: Units) -> int:
    """How many blocks `angles` yields."""
    count = len(_parts(units))
    return count * (count + 1) // 2


def _parts(units: Units) -> list[slice]:
    return chunks(units.size, _SMALL if units.size <= 8 * _SMALL else _LARGE)


def _block(units: Units, rows: slice, columns: slice, spread: Array, gate_spread: Array | None) -> Angles:
    xp = namespace(spread=spread)
    moving = units.stds > 0
    inverse = xp.where(moving, 1 / xp.where(moving, units.stds, 1.0), 0.0)
    up, down = inverse[rows][:, None], inverse[columns][None, :]
    rho = _snapped((spread @ units.directions[columns, :].T) * up * down)
    if rows == columns:  # rounding must not part a unit from itself
        eye = constant(np.eye(rows.stop - rows.start), rho)
        rho = xp.where((eye > 0) & moving[rows][:, None], 1.0, rho)
    if units.gates is None or gate_spread is None:
        return Angles(rho)
    g = units.gates
    tz = (spread @ g.directions[columns, :].T) * up
    zt = (gate_spread @ units.directions[columns, :].T) * down
    ri, rj = g.slopes[rows][:, None], g.slopes[columns][None, :]
    ee = gate_spread @ g.directions[columns, :].T - zt * rj - ri * tz + ri * rj * rho
    # e is orthogonal to its own t, so it meets another t at most with what that has beside its own: sqrt(1 - rho^2).
    side = xp.sqrt((1 - rho) * (1 + rho))
    qi, qj = g.spreads[rows][:, None], g.spreads[columns][None, :]
    return Angles(rho, _within(tz - rho * rj, side * qj), _within(zt - ri * rho, side * qi), _within(ee, qi * qj))


def _snapped(rho: Array) -> Array:
    """Correlations inside [-1, 1]; those that differ from +-1 by rounding only become +-1."""
    xp = namespace(rho=rho)
    near = xp.abs(rho) > 1 - 64 * float(xp.finfo(rho.dtype).eps)
    return xp.where(near, xp.sign(rho), rho)


def _within(a: Array, limit: Array) -> Array:
    """A clipped to [-limit, limit]."""
    xp = namespace(a=a)
    return xp.where(xp.abs(a) > limit, xp.sign(a) * limit, a)
