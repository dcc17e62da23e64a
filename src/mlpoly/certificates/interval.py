"""Ranges of functions of one variable over intervals, and the points between which they lie for every line.

A panel's margin is added to its two nodes. Then max over nodes of (upper - slope t) bounds the function minus a line
of any slope, and the polygon of these points has all that linear relaxations need.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlpoly.certificates.functions import EPS, TINY, Functions, Panels, to_nodes

_GRID = 33  # nodes of equal distance; a margin is then 1 / 1024 of what a single chord leaves
_BISECTIONS = 48


@dataclass(frozen=True)
class Enclosure:
    """Functions (h,) over intervals: their ranges, and upper and lower values at nodes for lines of any slope.

    For every slope a and every t of the interval, g(t) - a t is at most max_k upper_k - a nodes_k. Between the nodes a
    function is below the polygon of its upper points and above that of the lower ones.
    """

    nodes: np.ndarray  # (h, n), ascending
    upper: np.ndarray  # (h, n)
    lower: np.ndarray  # (h, n)
    low: np.ndarray  # (h,)
    high: np.ndarray  # (h,)

    @cached_property
    def squares(self) -> np.ndarray:
        """Lower values (h, n) at the nodes of (t - middle)^2, which chords between nodes exceed."""
        room = to_nodes(np.diff(self.nodes, axis=1) ** 2 / 4)
        return (self.nodes - self.middle[:, None]) ** 2 - room - 8 * EPS * np.max(self.nodes**2, axis=1, keepdims=True)

    @property
    def middle(self) -> np.ndarray:
        """Middles (h,) of the intervals."""
        return (self.nodes[:, 0] + self.nodes[:, -1]) / 2

    def highest(
        self, weights: np.ndarray, slopes: np.ndarray, curves: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Upper bounds (m, h) on weight g(t) - slope t - curve (t - middle)^2, and t and square where it is largest.

        Curves are not negative.
        """
        points = np.where(weights[..., None] >= 0, self.upper, self.lower) * weights[..., None]
        heights = points - slopes[..., None] * self.nodes
        if curves is not None:
            heights -= curves[..., None] * self.squares
        place = np.argmax(heights, axis=-1)[..., None]
        top = np.take_along_axis(heights, place, -1)[..., 0]
        at, square = (
            np.take_along_axis(np.broadcast_to(a, heights.shape), place, -1)[..., 0] for a in (self.nodes, self.squares)
        )
        size = np.max(np.abs(points), axis=-1) + np.abs(slopes) * np.max(np.abs(self.nodes), axis=-1)
        if curves is not None:
            size = size + curves * np.max(np.abs(self.squares), axis=-1)
        return top + 8 * EPS * size, at, square

    def supports(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slopes (..., h) of the lines above and below that are closest at points (..., h) of the intervals."""
        return _hull_slopes(self.nodes, self.upper, at), -_hull_slopes(self.nodes, -self.lower, at)


def _hull_slopes(t: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Slope of the upper hull of points (h, n) over each place (..., h): the chord moves up until nothing is above."""
    t, values = (np.broadcast_to(a, (*at.shape, a.shape[-1])) for a in (t, values))
    left, right = np.zeros(at.shape, dtype=int), np.full(at.shape, t.shape[-1] - 1)

    def pick(a: np.ndarray, place: np.ndarray) -> np.ndarray:
        return np.take_along_axis(a, place[..., None], -1)[..., 0]

    slope = np.zeros(at.shape)
    for _ in range(t.shape[-1]):
        width = pick(t, right) - pick(t, left)
        slope = np.where(width > 0, (pick(values, right) - pick(values, left)) / np.where(width > 0, width, 1.0), 0.0)
        top = np.argmax(values - slope[..., None] * t, axis=-1)
        inside = (top > left) & (top < right)
        if not inside.any():
            break
        to_left = pick(t, top) <= at
        left, right = np.where(inside & to_left, top, left), np.where(inside & ~to_left, top, right)
    return slope


def enclose(functions: Functions, low: np.ndarray, high: np.ndarray, fine: bool = True) -> Enclosure:
    """Enclose functions (h,) over the intervals [low, high] (h,)."""
    fractions = np.linspace(0.0, 1.0, _GRID)
    even = low[:, None] + (high - low)[:, None] * fractions
    even[:, -1] = high
    t = np.sort(np.clip(np.concatenate([even, functions.nodes], axis=1), low[:, None], high[:, None]), axis=1)
    if fine:  # a node where the function is largest and one where it is smallest: ranges are then exact
        values = functions.at(t.T).T
        extra = [_stationary(functions, t, np.argmax(sign * values, axis=1), sign) for sign in (1.0, -1.0)]
        t = np.sort(np.concatenate([t, np.stack(extra, axis=1)], axis=1), axis=1)
    p = functions.panels(t)
    noise = p.error + 2 * EPS * np.abs(p.value) + TINY
    upper, lower = p.value + to_nodes(p.above) + noise, p.value - to_nodes(p.below) - noise
    return Enclosure(t, upper, lower, -_peak(p, t, -1.0), _peak(p, t, 1.0))


def _stationary(functions: Functions, t: np.ndarray, place: np.ndarray, sign: float) -> np.ndarray:
    """Points (h,) beside nodes where sign * function is largest and its derivative changes sign, by bisection."""
    rows, last = np.arange(len(t)), t.shape[1] - 1
    left, right = t[rows, np.maximum(place - 1, 0)], t[rows, np.minimum(place + 1, last)]
    for _ in range(_BISECTIONS):
        middle = (left + right) / 2
        rising = sign * functions.at(middle, 1) > 0
        left, right = np.where(rising, middle, left), np.where(rising, right, middle)
    return np.clip((left + right) / 2, t[:, 0], t[:, -1])


def _peak(p: Panels, t: np.ndarray, sign: float) -> np.ndarray:
    """Upper bounds (h,) on sign * function: ends of convex panels, tangents of concave ones, else chord and margin."""
    value, width = sign * p.value + p.error, t[:, 1:] - t[:, :-1]
    above, least, most = (p.above, p.least, p.most) if sign > 0 else (p.below, -p.most, -p.least)
    ends = np.maximum(value[:, :-1], value[:, 1:])
    up, down = (sign * p.left + p.slack) * width, (p.slack - sign * p.right) * width
    tangent = np.minimum(value[:, :-1] + np.maximum(up, 0), value[:, 1:] + np.maximum(down, 0))
    over = np.where(most <= 0, np.maximum(ends, np.minimum(tangent, ends + above)), ends + above)
    over = np.where(least >= 0, ends, over)
    top = np.max(over, axis=1)
    return top + 4 * EPS * np.abs(top) + TINY
