"""Second moments of single units and of listed pairs as one-dimensional integrals, exact at any correlation.

Given t_i, the other preactivation is normal with mean m_j + s_j rho t_i and standard deviation s_j sqrt(1 - rho^2), and
the expectation of its unit is a Hermite coefficient, which the library can already compute. That leaves an integral
over t_i, on panels that follow the kinks and bends of both units.

If that coefficient is itself an integral on panels, a pair costs half a million evaluations. But pairs whose series
converges too slowly are nearly collinear: given t_i little noise is left, and a simple rule with a few nodes suffices.
Rules of increasing order are tried until two in a row agree on a pair; if none do, it is integrated in full.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlpoly.activations import Activation
from mlpoly.arrays import Array, chunks, constant, decidable, namespace, on_cpu, safe_inverse, safe_root, scalar
from mlpoly.moments.kernels.sinusoids import is_wave
from mlpoly.progress_bars import progress_bar
from mlpoly.records import map_arrays, replace
from mlpoly.special import LADDER, WIDEST, hermite, images, normal_pdf, panels
from mlpoly.units import Angles, Units

if TYPE_CHECKING:
    from mlpoly.moments.expansion import Expansion

_GRID = np.linspace(-WIDEST, WIDEST, 38)  # even units that are nonzero only in the far tail are covered
_NODES = 16
_LAYER = (0.0, *(sign * x for x in (3.0, 6.0, 9.0) for sign in (-1, 1)))  # panel ends across a smoothed kink
_NOTHING = 1e-31  # fraction of E[F_i^2] below which a node is skipped: in all below 1e-14 of sqrt(E[F_i^2] E[F_j^2])
_UNITS, _PAIRS = 1024, 64  # in a chunk; so few pairs that their nodes stay in the cache (16 times that on a GPU)
_CACHED = 2**14  # values of the activation at once, which stay in the cache
_NOISE = np.linspace(-8.5, 8.5, 6)  # panels for the noise where it reaches across a kink


class _Rule(NamedTuple):
    """Nodes and weights for standard normal noise, and the number of nodes of a panel that ends at a kink."""

    nodes: list[float]
    weights: list[float]
    beside: int


def _gauss(size: int, beside: int) -> _Rule:
    nodes, weights = np.polynomial.hermite_e.hermegauss(size)
    return _Rule(nodes.tolist(), (weights / math.sqrt(2 * math.pi)).tolist(), beside)


def _trapezoid(parts: int, beside: int) -> _Rule:
    """Step 1/parts: it converges geometrically, and faster than Gauss-Hermite if many nodes are needed."""
    nodes = np.arange(-10 * parts, 10 * parts + 1) / parts
    return _Rule(nodes.tolist(), (np.exp(-nodes * nodes / 2) / (parts * math.sqrt(2 * math.pi))).tolist(), beside)


# Each is compared with the one before, so no two may use the same nodes on the panels beside a kink.
_RULES = (_gauss(8, 12), _gauss(16, 16), *[_trapezoid(2**k, 14 + 8 * k) for k in range(1, 6)])


def unit_moments(activation: Activation, units: Units, centres: Array | None = None) -> Array:
    """E[(F_i - centre_i)^2] of every hidden unit, (h,); around zero by default, and variances around the means."""
    xp = namespace(means=units.means)
    centres = units.means * 0 if centres is None else centres
    out = []
    for part in chunks(units.size, _UNITS):
        some = _some(units, part)
        t, weight = _unit_nodes(activation, some)
        square = _square(some, t, activation(some.means + some.scales * t), centres[part])
        still = _square(some, some.means * 0, activation(some.means), centres[part])
        out.append(xp.where(some.scales > 0, xp.sum(square * weight, axis=0), still))
    return xp.concat(out)


def power_series(activation: Activation, units: Units, centres: Array, powers: int, degree: int) -> list[Array]:
    """Orthonormal Hermite series (n + 1, h) of (act(y_i) - centre_i)^p in t_i, p = 0, 1, ..., `powers`; plain units."""
    xp = namespace(means=units.means)
    out: list[list[Array]] = []
    for part in chunks(units.size, _UNITS):
        some = _some(units, part)
        t, power = _unit_nodes(activation, some)
        value = activation(some.means + some.scales * t) - centres[part]
        series = []
        for _ in range(powers + 1):
            series.append(hermite(t, degree, power, read=partial(xp.sum, axis=0)))
            power = power * value
        out.append(series)
    return [xp.concat(series, axis=1) for series in zip(*out, strict=True)]


def _unit_nodes(activation: Activation, units: Units) -> tuple[Array, Array]:
    """Nodes t (n, h) and weights for the integral over the t of each unit."""
    xp = namespace(scales=units.scales)
    edges = images(_bends(activation), units.means, xp.where(units.scales > 0, units.scales, 1.0))
    return panels(_GRID, [edges], _NODES, 2 * _splits(activation, units))


def _square(units: Units, t: Array, value: Array, centres: Array) -> Array:
    """E[(F_i - centre_i)^2 | t_i = t] of units whose activation has this value at t."""
    if units.gate is None:
        return (value - centres) ** 2
    g = units.gate
    return (value * (g.means + g.slopes * t) - centres) ** 2 + (value * g.spreads) ** 2


@dataclass(frozen=True, eq=False)
class Pairs:
    """Listed pairs of a unit of one expansion and a unit of another, both gated or neither; (p,) each."""

    one: Expansion
    two: Expansion
    i: Array  # positions in the first
    j: Array  # positions in the second
    angles: Angles
    limits: Array = None  # errors that are small enough

    def at(self, index: Array) -> Pairs:
        """Some of the pairs, by their positions, which may repeat."""
        xp = namespace(index=index)
        i, j, limits = (None if a is None else xp.take(a, index) for a in (self.i, self.j, self.limits))
        return Pairs(self.one, self.two, i, j, self.angles.at(index), limits)

    def swapped(self) -> Pairs:
        """The same pairs with the second unit first."""
        a = self.angles
        return Pairs(self.two, self.one, self.j, self.i, Angles(a.rho, a.left, a.right, a.gates), self.limits)

    @property
    def activations(self) -> tuple[Any, Any]:
        """Those of both expansions, which are of layers."""
        return self.one.activation, self.two.activation

    @cached_property
    def units(self) -> tuple[Units, Units]:
        """Both units of every pair."""
        return _some(self.one.units, self.i), _some(self.two.units, self.j)

    @cached_property
    def centres(self) -> tuple[Array, Array]:
        """The numbers that are subtracted from their values: the means of the units."""
        xp = namespace(i=self.i)
        return xp.take(self.one.centres, self.i), xp.take(self.two.centres, self.j)

    @cached_property
    def side(self) -> Array:
        """The root of 1 - rho^2."""
        return safe_root((1 - self.angles.rho) * (1 + self.angles.rho))


def pair_moments(pairs: Pairs) -> Array:
    """E[(F_i - centre_i) (G_j - centre_j)] of listed pairs, (p,); around the means no digits are lost to large ones.

    Two rules for the noise that differ by less than the limit of a pair suffice; without limits every pair is
    integrated in full.
    """
    xp = namespace(rho=pairs.angles.rho)
    # The noise smooths the second unit, so that is the one with the smaller standard deviation: it sees less noise.
    turned = xp.take(pairs.two.units.scales, pairs.j) > xp.take(pairs.one.units.scales, pairs.i)
    moments = pairs.angles.rho * 0
    for where, these in ((~turned, pairs), (turned, pairs.swapped())):
        (index,) = xp.nonzero(where)
        if index.shape[0]:
            moments = filled(moments, where, _in_chunks(these.at(index)))
    return moments


def _in_chunks(pairs: Pairs) -> Array:
    """Moments of pairs, a chunk at a time."""
    xp, closed = namespace(rho=pairs.angles.rho), pairs.activations[1].route == "closed form"
    rules: Sequence[_Rule] = () if pairs.limits is None or closed else _RULES
    # In the order of their noise: a rule that is too coarse for one chunk of pairs is too coarse for all later ones.
    order = xp.argsort(pairs.units[1].scales * pairs.side)
    out = []
    parts = chunks(order.shape[0], _PAIRS if on_cpu(order) else 16 * _PAIRS)
    with progress_bar("strongly correlated pairs", len(parts)) as update:
        for done, part in enumerate(parts):
            update(done, "")
            moments, rules = _settled(pairs.at(order[part]), rules)
            out.append(moments)
    return xp.take(xp.concat(out), xp.argsort(order))


def _settled(pairs: Pairs, rules: Sequence[_Rule]) -> tuple[Array, Sequence[_Rule]]:
    """Moments by the first rule that agrees with the one before it, or in full; and the rules worth trying next."""
    rho, xp = pairs.angles.rho, namespace(rho=pairs.angles.rho)
    moments, unsettled = rho * 0, rho == rho
    useful: Sequence[_Rule] = ()
    before = None
    for level, rule in enumerate([*rules, None]):
        (index,) = xp.nonzero(unsettled)
        moments = filled(moments, unsettled, _pair_moments(pairs.at(index), rule))
        if before is not None and rule is not None:
            agree = xp.abs(moments - before) <= pairs.limits
            if not useful and bool(xp.any(agree)):
                useful = rules[level - 1 :]
            unsettled = unsettled & ~agree
            if not bool(xp.any(unsettled)):
                break
        before = moments
    return moments, useful


def _pair_moments(pairs: Pairs, rule: _Rule | None) -> Array:
    rho, (one, two) = pairs.angles.rho, pairs.units
    xp, (left, right) = namespace(rho=rho), pairs.activations
    # Panels end at the images of the bends of both units in t. Averaged over the noise, a kink of the second unit
    # becomes a smooth layer of width side / |rho| in t, which gets panels of its own.
    seen = xp.abs(rho) * WIDEST > pairs.side  # otherwise the layer is wider than the range of t
    moving = seen & (two.scales > 0)
    slope = xp.where(moving, two.scales * rho, 1.0)
    width = xp.where(moving, pairs.side / xp.where(seen, xp.abs(rho), 1.0), 0.0)
    layer = constant(np.asarray(_LAYER)[:, None], rho) * width
    edges = [
        images(_bends(left), one.means, xp.where(one.scales > 0, one.scales, 1.0)),
        xp.where(moving, images(_bends(right), two.means, slope), WIDEST),
        *(at + layer for at in images(list(right.kinks), two.means, slope)),
    ]
    t, weight = panels(_GRID, edges, _NODES, max(_splits(left, one), _splits(right, two)))
    value = left(one.means + one.scales * t)
    square = weight * _square(one, t, value, pairs.centres[0])
    # By Cauchy and Schwarz, nodes that add nothing to E[F_i^2] add nothing to E[F_i F_j]: most need no inner integral.
    keep = xp.reshape(square > _NOTHING * xp.sum(square, axis=0), (-1,))
    (flat,) = xp.nonzero(keep)
    kept_t, kept_value = (xp.take(xp.reshape(a, (-1,)), flat) for a in (t, value))
    inner = _inner(pairs.at(flat % t.shape[1]), kept_t, kept_value, rule)
    return xp.sum(weight * xp.reshape(filled(xp.reshape(t * 0, (-1,)), keep, inner), t.shape), axis=0)


def _inner(pairs: Pairs, t: Array, value: Array, rule: _Rule | None) -> Array:
    """E[(F_i - centre_i) (F_j - centre_j) | t_i = t], where act_i has this value; all (m,).

    With t_j = rho t + side w, gated units have e_i = (left/side) w + ... and e_j = right t - (rho right/side) w + ...;
    the omitted parts are independent of t and w, and averages of powers of w are Hermite coefficients of act_j.
    """
    (one, two), (centre_i, centre_j) = pairs.units, pairs.centres
    angles, side = pairs.angles, pairs.side
    degree = 0 if one.gate is None else 2
    c = _smoothed(pairs.activations[1], two.means + two.scales * angles.rho * t, two.scales * side, degree, rule)
    if one.gate is None or two.gate is None:
        return (value - centre_i) * (c[0] - centre_j)
    inverse = safe_inverse(side)
    in_i = angles.left * inverse
    in_j = two.gate.slopes * side - angles.rho * angles.right * inverse
    zi = one.gate.means + one.gate.slopes * t
    zj = two.gate.means + (two.gate.slopes * angles.rho + angles.right) * t
    # The product of both means given t, and the covariance given t, from what e_i and e_j have in common.
    means = (value * zi - centre_i) * (zj * c[0] + in_j * c[1] - centre_j)
    beyond = (angles.gates + angles.left * two.gate.slopes) * c[0] + in_i * (zj * c[1] + math.sqrt(2) * in_j * c[2])
    return means + value * beyond


def _smoothed(activation: Activation, mean: Array, std: Array, degree: int, rule: _Rule | None) -> list[Array]:
    """Hermite coefficients of act under N(mean, std^2) up to degree 0 or 2, (m,) each; by the rule, if any.

    If the noise reaches across a kink, it is integrated on panels that end there.
    """
    if rule is None:
        c = activation.project(mean, std, degree)
        return [c[k, ...] for k in range(degree + 1)]
    xp = namespace(mean=mean)
    total = _averages(activation, mean, std, degree, rule)
    if not activation.kinks:
        return total
    distance = constant(np.asarray(activation.kinks)[:, None], mean) - mean
    near = (std > 0) & xp.any(xp.abs(distance) < float(_NOISE[-1]) * std, axis=0)
    (index,) = xp.nonzero(near)
    mean, std = xp.take(mean, index), xp.take(std, index)
    split = _split_averages(activation, mean, std, degree, rule.beside)
    return [filled(a, near, b) for a, b in zip(total, split, strict=True)]


def smoothed(activation: Activation, mean: Array, std: Array, degree: int, tolerance: float = 0.0) -> list[Array]:
    """Hermite coefficients of act under N(mean, std^2) up to a degree of at most 2, (m,) each, for many means.

    Rules of increasing order are tried until two in a row agree, to rounding or to a relative `tolerance`; where none
    do, it is integrated in full.
    """
    if activation.route == "closed form" or not decidable(mean, std):
        return _smoothed(activation, mean, std, degree, None)
    xp = namespace(mean=mean)
    tolerance = max(64 * float(xp.finfo(mean.dtype).eps), tolerance)
    found, open_means, before = [mean * 0] * 3, mean == mean, None
    for rule in (*_RULES, None):
        (index,) = xp.nonzero(open_means)
        some = _smoothed(activation, xp.take(mean, index), xp.take(std, index), 2, rule)
        found = [filled(a, open_means, b) for a, b in zip(found, some, strict=True)]
        if before is not None:
            size = xp.max(xp.abs(xp.stack(found)), axis=0)
            agree = [xp.abs(a - b) <= tolerance * size for a, b in zip(found, before, strict=True)]
            open_means = open_means & ~(agree[0] & agree[1] & agree[2])
            if not bool(xp.any(open_means)):
                break
        before = found
    return found[: degree + 1]


def _averages(activation: Activation, mean: Array, std: Array, degree: int, rule: _Rule) -> list[Array]:
    """Averages of act(mean + std w) he_k(w) over the nodes w of a rule, k <= degree; in chunks that fit the cache."""
    xp = namespace(mean=mean)
    w, weights = np.asarray(rule.nodes), np.asarray(rule.weights)
    tables = constant(np.stack([weights, weights * w, weights * (w * w - 1) * math.sqrt(0.5)])[: degree + 1], mean)
    w = constant(w[:, None], mean)
    size = max(1, (_CACHED if on_cpu(mean) else 256 * _CACHED) // len(rule.nodes))
    parts = chunks(mean.shape[0], size)
    found = [tables @ activation(mean[part] + std[part] * w) for part in parts]
    whole = xp.concat(found, axis=1)
    return [whole[k, :] for k in range(degree + 1)]


def _split_averages(activation: Activation, mean: Array, std: Array, degree: int, count: int) -> list[Array]:
    """The same by Gauss-Legendre on panels of the noise that end at the kinks."""
    xp = namespace(mean=mean)
    grid = xp.broadcast_to(constant(_NOISE[:, None], mean), (len(_NOISE), mean.shape[0]))
    kinks = xp.clip(images(list(activation.kinks), mean, std), float(_NOISE[0]), float(_NOISE[-1]))
    cuts = xp.sort(xp.concat([grid, kinks], axis=0), axis=0)
    total = [mean * 0 for _ in range(degree + 1)]
    x, weights = np.polynomial.legendre.leggauss(count)
    for left, right in zip(cuts[:-1, :], cuts[1:, :], strict=True):  # node by node, to stay in the cache
        width = (right - left) / 2
        for at, weight in zip((x + 1).tolist(), weights.tolist(), strict=True):
            w = left + width * at
            value = activation(mean + std * w) * (normal_pdf(w) * (width * weight))
            total[0] = total[0] + value
            if degree:
                total[1] = total[1] + value * w
                total[2] = total[2] + value * ((w * w - 1) * math.sqrt(0.5))
    return total


def _some(units: Units, index: slice | Array) -> Units:
    """Some of the units, without their directions, which are not needed here."""
    xp = namespace(scales=units.scales)
    gate = None if units.gate is None else replace(units.gate, directions=None)
    moments = replace(units, directions=None, gate=gate)
    return map_arrays(moments, lambda a: a[index] if isinstance(index, slice) else xp.take(a, index))


def filled(values: Array, where: Array, found: Array) -> Array:
    """Replace the `values` (m,) marked by `where` by `found`, in order, without writing into an array."""
    xp = namespace(values=values)
    if found.shape[0] == 0:
        return values
    position = xp.cumulative_sum(xp.astype(where, xp.asarray(0).dtype)) - 1  # JAX may have 32 bits
    return xp.where(where, xp.take(found, xp.clip(position, 0, None)), values)


# -- panels ------------------------------------------------------------------------------------------------------------


def _bends(activation: Activation) -> list[float]:
    """Points in y that cut the activation into smooth pieces."""
    ladder = () if activation.pieces is not None else LADDER
    return sorted({*ladder, *activation.kinks})


def _splits(activation: Activation, units: Units) -> int:
    """Number of parts of every panel: one, but more for fast sines and cosines, which oscillate everywhere."""
    return 1 + int(scalar(namespace(scales=units.scales).max(units.scales)) / 2) if is_wave(activation) else 1
