"""The exact pair kernel of piecewise-linear activations: ReLU and its relatives, jumps allowed (MATH 5).

Such a function is a line plus (t - x)_+ and 1(t > x) terms, one of each per break. By Plackett's identity the
covariance of two of these terms beyond degree 1 is an integral of the bivariate normal density over its correlation r:

    (t_i - x)_+ with (t_j - y)_+     int_0^rho (rho - r) phi_2(x, y; r) dr
    1(t_i > x)  with (t_j - y)_+     int_0^rho (rho - r) (x - r y) / (1 - r^2) phi_2 dr
    1(t_i > x)  with 1(t_j > y)      int_0^rho phi_2 dr - rho phi(x) phi(y)

With r = cos(p) and q = tan(p/2)^2 everything is rational but one exponential, and phi_2 dr = E dp with
E = exp(-(x - y)^2 / (2 sin(p)^2) - x y / (1 + cos(p))) / (2 pi). Towards r = 1 this has a layer of width |x - y|; the
nodes are crowded there, and start where E rises above 1e-16. A negative rho mirrors y.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlpoly.activations import Activation
from mlpoly.arrays import Array, add_product, decidable, eye, namespace, safe_root, scan
from mlpoly.arrays.gaps import add_scaled
from mlpoly.moments.kernels.conditional import filled
from mlpoly.special import in_deviations, normal_pdf, tail_integrals
from mlpoly.units import Angles, Units, terms_between

if TYPE_CHECKING:
    from mlpoly.moments.expansion import Expansion

_FAR = 60.0  # breaks more standard deviations away than this have no effect
_FEW = 512  # pairs for which a rule of their own does not pay
_EMPTY = 17.0  # E is below 1e-15 of its peak for tan(p/2) < |x - y| / 17


class Break(NamedTuple):
    """A break of every unit: its position in t, and the jumps of slope (in t) and value; (h,) each."""

    at: Array
    slope: Array
    value: Array | None  # None for a continuous function

    def some(self, part: slice, axis: int) -> Break:
        """A slice of the units, laid out along one axis of a matrix."""
        shape = (-1, 1) if axis == 0 else (1, -1)
        xp = namespace(at=self.at)
        return Break(*[None if a is None else xp.reshape(a[part], shape) for a in self])

    def listed(self, index: Array) -> Break:
        """Some of the units, by their positions."""
        xp = namespace(at=self.at)
        return Break(*[None if a is None else xp.take(a, index) for a in self])


def is_affine(activation: Activation) -> bool:
    """Whether all pieces of the activation are known to be straight lines."""
    return activation.pieces is not None and all(c == 0 for piece in activation.pieces for c in piece[2:])


def breaks_of(activation: Activation, units: Units) -> list[Break]:
    """Breaks of a piecewise-linear activation in the t of each unit; a unit without variance has none."""
    xp = namespace(means=units.means)
    moving = units.scales > 0
    lines = [(*piece, 0.0)[:2] for piece in activation.pieces or ()]
    jumps = [
        (at, b[1] - a[1], b[0] - a[0] + (b[1] - a[1]) * at)
        for at, a, b in zip(activation.kinks, lines, lines[1:], strict=False)
    ]
    continuous = all(value == 0 for _, _, value in jumps)
    return [
        Break(
            xp.clip(in_deviations(at - units.means, xp.where(moving, units.scales, 1.0)), -_FAR, _FAR),
            slope * units.scales,
            None if continuous else xp.where(moving, value, 0.0),
        )
        for at, slope, value in jumps
    ]


def cancellation(breaks: list[Break], moments: Array) -> Array:
    """How much larger the terms of a unit are than the unit itself, (h,); rounding errors of a pair grow by both."""
    xp = namespace(moments=moments)
    total = moments * 0
    for b in breaks:
        x = xp.abs(b.at)
        density = normal_pdf(x)
        zero, _, two = tail_integrals(x)
        total = total + xp.abs(b.slope) * xp.sqrt(2 * density * two)
        if b.value is not None:
            total = total + xp.abs(b.value) * xp.sqrt(density * zero)
    some = moments > 0
    return xp.where(some, total / xp.sqrt(xp.where(some, moments, 1.0)), 0.0)


def remainder(
    one: Expansion, two: Expansion, rows: slice, columns: slice, angles: Angles, degree: int, own: bool
) -> tuple[Array, None]:
    """Covariance of chunks of two families of piecewise-linear units at all degrees above `degree`.

    Closed form up to degree 1, one integral beyond it: nothing is truncated.
    """
    assert one.breaks is not None and two.breaks is not None
    beyond = beyond_linear(one.breaks, two.breaks, rows, columns, angles.rho, one is two and rows == columns)
    count = max(degree, 1)
    left, right = one.series(count).rows(rows), two.series(count).columns(columns)
    if degree == 0:
        return beyond + terms_between(left, right, angles, 0, 1), None
    return beyond - terms_between(left, right, angles, 1, degree), None


def beyond_linear(
    left: list[Break], right: list[Break], rows: slice, columns: slice, rho: Array, symmetric: bool = False
) -> Array:
    """Covariance of two chunks of units beyond degree 1, (a, b), from the breaks of the rows and of the columns.

    Pairs are listed by the nodes that they need; of a `symmetric` matrix those below the diagonal are not.
    """
    jumps = any(b.value is not None for b in (*left, *right))
    if jumps:
        left, right = (
            [b._replace(value=b.slope * 0 if b.value is None else b.value) for b in bs] for bs in (left, right)
        )
    single = max(len(left), len(right)) < 2 and not jumps
    most = _rule(128, 6) if jumps else _rule(48 if single else 64, 4)
    if not decidable(rho):
        pairs = [(one.some(rows, 0), two.some(columns, 1)) for one in left for two in right]
        return sum((_pair(one, two, rho, most) for one, two in pairs), rho * 0)
    xp, (height, width) = namespace(rho=rho), rho.shape
    flat = xp.reshape(rho, (-1,))
    size, total = xp.abs(flat), flat * 0
    done = size > 2  # none
    if symmetric:
        done = xp.reshape(xp.tril(xp.ones_like(rho), k=-1), (-1,)) > 0
    # Away from |rho| = 1 there is no layer and few nodes leave only rounding errors. Differences of neighbouring
    # breaks need more digits.
    for limit, count in (
        (0.6, 16 if single else 24),
        (0.9, 24 if single else 40),
        (0.97, 40 if single else 56),
        (2.0, 0),
    ):
        here = ~done & (size <= limit)
        (index,) = xp.nonzero(here)
        if index.shape[0] == 0 or (count and index.shape[0] < _FEW):  # the next rule serves them as well
            continue
        i, j, listed = rows.start + index // width, columns.start + index % width, xp.take(flat, index)
        pairs = [(one.listed(i), two.listed(j)) for one in left for two in right]
        nodes = _rule(count, 1) if count else most
        found = sum((_pair(one, two, listed, nodes) for one, two in pairs), listed * 0)
        total, done = filled(total, here, found), done | here
    total = xp.reshape(total, (height, width))
    return total + total.T - total * eye(height, total) if symmetric else total


@cache
def _rule(count: int, power: int) -> list[tuple[float, float]]:
    """Gauss-Legendre nodes and weights on (0, 1), crowded towards 0 by v -> v^power."""
    x, w = np.polynomial.legendre.leggauss(count)
    v = (x + 1) / 2
    return list(zip((v**power).tolist(), (w / 2 * power * v ** (power - 1)).tolist(), strict=True))


def _pair(one: Break, two: Break, rho: Array, nodes: list[tuple[float, float]]) -> Array:
    """Covariance beyond degree 1 due to one break of the row units and one of the column units."""
    xp = namespace(rho=rho)
    sign = xp.where(rho < 0, -1.0, 1.0)
    size = xp.abs(rho)
    first = (1 - size) / (1 + size)  # q at r = |rho|
    x, y = one.at, sign * two.at
    gap = x - y
    wide, cross = gap * gap * -0.125, x * y * -0.5
    start = xp.clip(xp.maximum(safe_root(first), xp.abs(gap) / _EMPTY), None, 1.0)
    length = 1 - start
    # The first nodes underflow in float32, and k / q and its derivative, k / q^2, must stay finite.
    smallest = rho * 0 + math.sqrt(float(xp.finfo(rho.dtype).smallest_normal))

    def add_node(sums: tuple[Array, Array, Array], v: Any, w: Any) -> tuple[tuple[Array, Array, Array], None]:
        ramps, steps, mixed = sums
        tau = add_scaled(start, length, v)
        q = add_product(smallest, tau, tau)
        k = 1 + q
        ratio = k / q
        density = xp.exp(k * add_product(cross, wide, ratio)) / k  # times w and dp / d(tau) = 2 / k
        ramp = density / k * (q - first)  # |rho| - r = 2 (q - first) / ((1 + q) (1 + first))
        ramps = add_scaled(ramps, ramp, w)
        if one.value is not None and two.value is not None:
            steps, tilt = add_scaled(steps, density, w), q * (x + y)
            # 4 q / (1 + q) times (x - r y) / (1 - r^2) for a jump of the row unit; with x and y swapped for the other.
            jumps = one.value * two.slope * (tilt + gap) + sign * one.slope * two.value * (tilt - gap)
            mixed = add_scaled(mixed, ramp * ratio * jumps, w)
        return (ramps, steps, mixed), None

    (ramps, steps, mixed), _ = scan(add_node, (rho * 0, rho * 0, rho * 0), *zip(*nodes, strict=True))
    unit = length * (1 / math.pi)
    total = (one.slope * two.slope) * ramps
    if one.value is not None and two.value is not None:
        total = total + mixed / 4
        linear = rho * normal_pdf(one.at) * normal_pdf(two.at)
        return total * unit * 2 / (1 + first) + one.value * two.value * (sign * steps * unit - linear)
    return total * unit * 2 / (1 + first)
