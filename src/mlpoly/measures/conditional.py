"""Second moments of single units and of listed pairs as one-dimensional integrals, exact at any correlation.

Given t_i, the other preactivation is normal with mean m_j + s_j rho t_i and standard deviation s_j sqrt(1 - rho^2), and
the expectation of its unit is a Hermite coefficient that the library has anyway. What is left is an integral over t_i,
on panels that follow the kinks and bends of both units. It costs a thousand nodes a pair: for the few pairs whose
series converges too slowly.
"""

from __future__ import annotations

import math

import numpy as np

from mlpoly.activations import Activation, project
from mlpoly.arrays import Array, blocks, constant, namespace, scalar
from mlpoly.measures.units import Angles, Gates, Units
from mlpoly.measures.waves import is_wave
from mlpoly.special import normal_pdf

__all__ = ["filled", "pair_moments", "unit_moments"]

_REACH = 37.0  # beyond, the density is below 1e-297: also units that live in the far tail are integrated in full
_GRID = np.linspace(-_REACH, _REACH, 38)
_NODES = 16
_LADDER = (0.0, *(sign * 3.0**j for j in range(-1, 9) for sign in (-1, 1)))  # where functions without pieces may bend
_LAYER = (0.0, *(sign * x for x in (1.5, 3.0, 5.0, 7.0, 9.0) for sign in (-1, 1)))  # across a smoothed kink
_NOTHING = 1e-31  # share of a node in E[F_i^2] that is left out: together below 1e-14 of sqrt(E[F_i^2] E[F_j^2])
_UNITS, _PAIRS = 1024, 256  # at a time


def unit_moments(activation: Activation, units: Units) -> Array:
    """E[F_i^2] of every hidden unit, (h,)."""
    xp = namespace(means=units.means)
    return xp.concat([_unit_moments(activation, _some(units, part)) for part in blocks(units.size, _UNITS)])


def _unit_moments(activation: Activation, units: Units) -> Array:
    xp = namespace(means=units.means)
    moving = units.stds > 0
    images = _images(_bends(activation), units.means, xp.where(moving, units.stds, 1.0))
    t, weight = _panels([images], 2 * _splits(activation, units))
    moment = xp.sum(_square(units, t, _value(activation, units.means + units.stds * t)) * weight, axis=0)
    return xp.where(moving, moment, _square(units, units.means * 0, _value(activation, units.means)))


def _value(activation: Activation, y: Array) -> Array:
    """act(y); by the closed form where there is one, which keeps the digits that y (1 + erf) loses in the tail."""
    if activation.route == "closed form" and activation.pieces is None:
        return project(activation, y, y * 0, 0)[0, ...]
    return activation(y)


def _square(units: Units, t: Array, value: Array) -> Array:
    """E[F_i^2 | t_i = t] of units whose activation has this value at t."""
    if units.gates is None:
        return value * value
    g = units.gates
    return value * value * ((g.means + g.slopes * t) ** 2 + g.spreads**2)


def pair_moments(activation: Activation, units: Units, i: Array, j: Array, angles: Angles) -> Array:
    """E[F_i F_j] of listed pairs, (p,); `angles` holds their inner products, (p,) each."""
    xp = namespace(rho=angles.rho)
    out = []
    for part in blocks(i.shape[0], _PAIRS):
        some = Angles(*[None if a is None else a[part] for a in angles])
        out.append(_pair_moments(activation, _some(units, i[part]), _some(units, j[part]), some))
    return xp.concat(out)


def _some(units: Units, index: slice | Array) -> Units:
    """Moments of some of the units; their directions are not needed here."""
    xp = namespace(means=units.means)

    def pick(a: Array) -> Array:
        return a[index] if isinstance(index, slice) else xp.take(a, index)

    gates = units.gates
    if gates is not None:
        gates = Gates(gates.directions, pick(gates.means), pick(gates.slopes), pick(gates.spreads))
    return units._replace(means=pick(units.means), stds=pick(units.stds), gates=gates)


def _pair_moments(activation: Activation, one: Units, two: Units, angles: Angles) -> Array:
    xp = namespace(rho=angles.rho)
    rho = angles.rho
    side = xp.sqrt((1 - rho) * (1 + rho))
    splits = max(_splits(activation, one), _splits(activation, two))
    t, weight = _panels(_edges(activation, one, two, rho, side), splits)
    value = _value(activation, one.means + one.stds * t)
    square = weight * _square(one, t, value)
    # By Cauchy and Schwarz, nodes without a share in E[F_i^2] have none in E[F_i F_j]: most panels need no inner step.
    keep = square > _NOTHING * xp.sum(square, axis=0)
    node, pair = xp.nonzero(keep)
    some, other = _some(one, pair), _some(two, pair)
    inner = Angles(*[None if a is None else xp.take(a, pair) for a in angles])
    flat = node * t.shape[1] + pair
    found = _inner(activation, some, other, inner, xp.take(side, pair), xp.take(xp.reshape(t, (-1,)), flat))
    spread = xp.reshape(filled(xp.reshape(t * 0, (-1,)), xp.reshape(keep, (-1,)), found), t.shape)
    return xp.sum(weight * value * spread, axis=0)


def _inner(activation: Activation, one: Units, two: Units, angles: Angles, side: Array, t: Array) -> Array:
    """E[act_j | t_i = t], and for gated units E[z_i z_j act_j | t_i = t]; all (m,)."""
    c = project(activation, two.means + two.stds * angles.rho * t, two.stds * side, 0 if one.gates is None else 2)
    if one.gates is None or two.gates is None:
        return c[0, ...]
    return _gated(one.gates, two.gates, angles, side, t, c)


def filled(values: Array, where: Array, found: Array) -> Array:
    """`values` (m,) with those marked by `where` replaced by `found`, in order; without writing into an array."""
    xp = namespace(values=values)
    if found.shape[0] == 0:
        return values
    position = xp.cumulative_sum(xp.astype(where, xp.int64)) - 1
    return xp.where(where, xp.take(found, xp.clip(position, 0, None)), values)


def _gated(one: Gates, two: Gates, angles: Angles, side: Array, t: Array, c: Array) -> Array:
    """E[z_i z_j act(y_j) | t_i = t]: with t_j = rho t + side w, e_i and e_j are linear in t, w and what is independent.

    e_i = (left/side) w + ..., e_j = right t - (rho right/side) w + ...; powers of w are Hermite coefficients of act.
    """
    xp = namespace(t=t)
    apart = side > 0
    inverse = xp.where(apart, 1 / xp.where(apart, side, 1.0), 0.0)
    in_i = angles.left * inverse
    in_j = two.slopes * side - angles.rho * angles.right * inverse
    zi = one.means + one.slopes * t
    zj = two.means + (two.slopes * angles.rho + angles.right) * t
    constant_part = zi * zj + angles.gates + angles.left * two.slopes
    return constant_part * c[0, ...] + (zi * in_j + in_i * zj) * c[1, ...] + math.sqrt(2) * in_i * in_j * c[2, ...]


# -- panels ------------------------------------------------------------------------------------------------------------


def _bends(activation: Activation) -> list[float]:
    """Points in y that cut the activation into smooth pieces."""
    ladder = () if activation.pieces is not None else _LADDER
    return sorted({*ladder, *activation.kinks})


def _splits(activation: Activation, units: Units) -> int:
    """Parts that every panel is cut into: one, but for waves, which never settle, as many as they have turns."""
    return 1 + int(scalar(namespace(stds=units.stds).max(units.stds)) / 2) if is_wave(activation) else 1


def _images(points: list[float], mean: Array, scale: Array) -> Array:
    """Where mean + scale t passes the points, (points, p); scale must not be zero."""
    return (constant(np.asarray(points, dtype=float).reshape(-1, 1), mean) - mean) / scale


def _edges(activation: Activation, one: Units, two: Units, rho: Array, side: Array) -> list[Array]:
    """Images of the bends of both units in t; a kink of the second one is smoothed over a width of side/|rho|."""
    xp = namespace(rho=rho)
    moving = one.stds > 0
    out = [_images(_bends(activation), one.means, xp.where(moving, one.stds, 1.0))]
    slope = two.stds * rho
    seen = xp.abs(rho) * _REACH > side  # otherwise the layer is wider than the whole line
    moving = seen & (two.stds > 0)
    slope = xp.where(moving, slope, 1.0)
    width = xp.where(moving, side / xp.where(seen, xp.abs(rho), 1.0), 0.0)
    out.append(xp.where(moving, _images(_bends(activation), two.means, slope), _REACH))
    for at in _images(list(activation.kinks), two.means, slope):
        out.append(at + constant(np.asarray(_LAYER)[:, None], rho) * width)
    return out


def _panels(edges: list[Array], splits: int) -> tuple[Array, Array]:
    """Nodes (n, p), and weights with the normal density, of Gauss-Legendre on the panels between grid and edges."""
    xp = namespace(edges=edges[0])
    like = edges[0]
    count = like.shape[1]
    grid = xp.broadcast_to(constant(_GRID, like)[:, None], (len(_GRID), count))
    cuts = xp.sort(xp.concat([grid, *[xp.clip(e, -_REACH, _REACH) for e in edges]], axis=0), axis=0)
    left, width = cuts[:-1, :], (cuts[1:, :] - cuts[:-1, :]) / splits
    x, w = np.polynomial.legendre.leggauss(_NODES)
    inside = constant((np.arange(splits)[:, None] + (x + 1) / 2).reshape(1, -1, 1), like)
    share = constant(np.tile(w / 2, splits).reshape(1, -1, 1), like)
    shape = (left.shape[0] * _NODES * splits, count)
    t = xp.reshape(left[:, None, :] + width[:, None, :] * inside, shape)
    return t, xp.reshape(width[:, None, :] * share, shape) * normal_pdf(t)
