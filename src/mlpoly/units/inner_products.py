"""Inner products of hidden units under a Gaussian, chunk by chunk.

Second moments of units P_i(t_i) + e_i Q_i(t_i) depend on the inputs only through the inner products of t_i, e_i with
t_j, e_j (MATH 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from mlpoly.arrays import Array, chunks, constant, namespace, safe_root, stop_gradient
from mlpoly.records import map_arrays, record
from mlpoly.units.units import Units

# Hidden units in a chunk. About twenty float64 arrays (chunk, chunk) exist at a time: 40 MB and 160 MB.
_SMALL, _LARGE = 512, 1024


@record
class Angles:
    """Inner products of a chunk of units (a,) with another (b,); (a, b) each, or any common shape for listed pairs.

    Attributes
    ----------
    rho : array
        E[t_i t_j].
    right, left, gates : array or None
        E[t_i e_j], E[e_i t_j] and E[e_i e_j]; None for plain units.
    """

    rho: Array
    right: Array = None
    left: Array = None
    gates: Array = None

    def at(self, index: Array) -> Angles:
        """The same for listed pairs, given by their positions in the flattened chunk."""
        xp = namespace(rho=self.rho)
        return map_arrays(self, lambda a: xp.take(xp.reshape(a, (-1,)), index))


def angles(
    one: Units, two: Units, times: Callable[[Array], Array], own: bool = False
) -> Iterator[tuple[slice, slice, Angles]]:
    """Inner products of all units of one family with all of another, as chunks (rows, columns).

    Of one family with itself the chunks are those on and above the diagonal. One product with the covariance per chunk
    of rows; no h x h array unless that is a single chunk.

    Parameters
    ----------
    one, two : Units
        Units under Gaussians of x and x', with the spreads of their gates; both families have a gate, or neither has.
    times : callable
        Product of rows (m, d) with the covariance of x and x', which is symmetric.
    own : bool
        Whether both are the same units of the same x.
    """
    parts, others = _parts(one), _parts(two)
    for number, rows in enumerate(parts):
        spread = times(one.directions[rows, :])
        gate_spread = None if one.gate is None else times(one.gate.directions[rows, :])
        for columns in others[number if one is two else 0 :]:
            yield rows, columns, _inner(one, two, rows, columns, spread, gate_spread, own)


def angle_count(one: Units, two: Units) -> int:
    """Number of chunks that `angles` yields."""
    count = len(_parts(one))
    return count * (count + 1) // 2 if one is two else count * len(_parts(two))


def _parts(units: Units) -> list[slice]:
    return chunks(units.size, _SMALL if units.size <= 8 * _SMALL else _LARGE)


def _inner(
    one: Units, two: Units, rows: slice, columns: slice, spread: Array, gate_spread: Array | None, own: bool
) -> Angles:
    xp = namespace(spread=spread)
    up, down = one.inverse_scales[rows][:, None], two.inverse_scales[columns][None, :]
    rho = (spread @ two.directions[columns, :].T) * up * down
    # Correlations within [-1, 1]; those that differ from +-1 only by rounding become +-1.
    rho = xp.where(xp.abs(rho) > 1 - 64 * float(xp.finfo(rho.dtype).eps), xp.sign(rho), rho)
    if own and rows == columns:  # a unit must correlate with itself by exactly one
        eye = constant(np.eye(rows.stop - rows.start), rho)
        rho = xp.where((eye > 0) & (one.scales > 0)[rows][:, None], 1.0, rho)
    if one.gate is None or two.gate is None or gate_spread is None:
        return Angles(rho)
    g, h = one.gate, two.gate
    tz = (spread @ h.directions[columns, :].T) * up
    zt = (gate_spread @ two.directions[columns, :].T) * down
    ri, rj = g.slopes[rows][:, None], h.slopes[columns][None, :]
    ee = gate_spread @ h.directions[columns, :].T - zt * rj - ri * tz + ri * rj * rho
    # e is orthogonal to its own t, so its inner product with another t is at most sqrt(1 - rho^2) of its size.
    side = safe_root((1 - rho) * (1 + rho))
    qi, qj = g.spreads[rows][:, None], h.spreads[columns][None, :]
    return Angles(rho, _within(tz - rho * rj, side * qj), _within(zt - ri * rho, side * qi), _within(ee, qi * qj))


def _within(a: Array, limit: Array) -> Array:
    """A clipped to [-limit, limit], which rounding alone exceeds: gradients are those of a."""
    xp = namespace(a=a)
    return a + stop_gradient(xp.where(xp.abs(a) > limit, xp.sign(a) * limit, a) - a)
