"""Functions of one variable, one for each unit, enclosed on panels: between its nodes each is near a chord (MATH 15).

A unit's function is a sum of parts, and each part says for every panel how far it rises above its chord and falls below
it, and between which bounds its second derivative lies: of a polynomial from its Taylor series in the middle of the
panel, of a smooth activation from its tangents, since between points of inflection it is convex or concave.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.polynomial import polyder, polyval

from mlpoly.activations import Activation

EPS = 2.0**-52  # twice the rounding error of one operation, which leaves room for that of the margins themselves
TINY = 1e-300  # more than underflow loses in a vector of any length
_LIBRARY = 16 * EPS  # relative error of exp, tanh, erf and of the few operations around them; a test measures it


class Panels(NamedTuple):
    """Functions (h,) at nodes (h, n), and between them."""

    value: np.ndarray  # (h, n)
    error: np.ndarray  # (h, n), bounds on the rounding of the values
    left: np.ndarray  # (h, n - 1), derivatives at the left and right ends of the panels
    right: np.ndarray
    slack: np.ndarray  # (h, n - 1), bounds on the error of the derivatives
    above: np.ndarray  # (h, n - 1), bounds on function - chord
    below: np.ndarray  # (h, n - 1), bounds on chord - function
    least: np.ndarray  # (h, n - 1), bounds on the second derivative
    most: np.ndarray


def to_nodes(gap: np.ndarray) -> np.ndarray:
    """Numbers (h, n) for nodes: the larger ones of the panels (h, n - 1) on both sides, which are not negative."""
    return np.maximum(np.pad(gap, ((0, 0), (1, 0))), np.pad(gap, ((0, 0), (0, 1))))


@dataclass(frozen=True)
class Pieces:
    """Piecewise polynomials: piece j of unit i is the sum of coefficients[j, k, i] t^k, from breaks[j - 1, i] on."""

    coefficients: np.ndarray  # (p, n + 1, h)
    errors: np.ndarray  # (p, n + 1, h), bounds on the errors of the coefficients
    breaks: np.ndarray  # (p - 1, h)
    wobble: np.ndarray  # (p - 1, h), bounds on the errors of the breaks

    @property
    def nodes(self) -> np.ndarray:
        """Places (h, b) that must be nodes."""
        return self.breaks.T

    def minus(self, other: "Pieces") -> "Pieces":
        """The difference, with the breaks of both: their Taylor series then cancel."""
        breaks = np.concatenate([self.breaks, other.breaks])
        order = np.argsort(breaks, axis=0)
        breaks = np.take_along_axis(breaks, order, 0)
        wobble = np.take_along_axis(np.concatenate([self.wobble, other.wobble]), order, 0)
        units, n = np.arange(breaks.shape[1]), max(p.coefficients.shape[1] for p in (self, other))
        edge = np.full((1, len(units)), np.inf)
        middle = np.concatenate([-edge, breaks[:-1] / 2 + breaks[1:] / 2, edge]) if len(breaks) else edge

        def taken(p: Pieces, table: np.ndarray) -> np.ndarray:
            table = np.pad(table, ((0, 0), (0, n - table.shape[1]), (0, 0)))
            place = np.sum(middle[:, None] >= p.breaks, axis=1)  # (pieces, h)
            return table[place, :, units].transpose(0, 2, 1)

        values = taken(self, self.coefficients), taken(other, other.coefficients)
        errors = taken(self, self.errors) + taken(other, other.errors) + EPS * (np.abs(values[0]) + np.abs(values[1]))
        return Pieces(values[0] - values[1], errors, breaks, wobble)

    def at(self, t: np.ndarray, order: int = 0) -> np.ndarray:
        """Values or derivatives at points t (..., h), from the right at breaks."""
        place = np.sum(t[..., None, :] >= self.breaks, axis=-2)
        return np.choose(place, [polyval(t, polyder(piece, order), tensor=False) for piece in self.coefficients])

    def panels(self, t: np.ndarray) -> Panels:
        """The functions on panels between nodes t (h, n)."""
        middle, half = (t[:, :-1] + t[:, 1:]) / 2, (t[:, 1:] - t[:, :-1]) / 2
        n, reach = self.coefficients.shape[1], np.abs(middle) + half
        # Horner's rule of these sizes bounds all errors of that of the coefficients.
        sizes = self.errors + (4 * n + 4) * EPS * np.abs(self.coefficients)
        place, units = np.sum(middle[:, :, None] >= self.breaks.T[:, None, :], axis=2), np.arange(len(t))[:, None]
        table, size = (np.moveaxis(a[place, :, units], -1, 0) for a in (self.coefficients, sizes))  # (n + 1, h, panels)
        ends = [polyval(x, table, tensor=False) for x in (t[:, :-1], t[:, 1:])]
        value = np.concatenate([ends[0], ends[1][:, -1:]], axis=1)
        error = polyval(reach, size, tensor=False) + TINY
        left, right = (polyval(x, polyder(table), tensor=False) for x in (t[:, :-1], t[:, 1:]))
        series = list(table)  # Taylor series in the middle, by repeated synthetic division
        for start in range(n):
            for j in range(n - 2, start - 1, -1):
                series[j] = series[j] + middle * series[j + 1]
        bend = 2 * series[2] if n > 2 else 0 * middle
        spread = sum((k * (k - 1) * np.abs(series[k]) * half ** (k - 2) for k in range(3, n)), start=0 * middle)
        spread = spread + polyval(reach, polyder(size, 2), tensor=False)
        # A break that is rounded leaves a sliver to the wrong piece.
        step = np.zeros_like(middle)
        for at, off in zip(self.breaks, self.wobble, strict=True):
            steep = np.max([polyval(np.abs(at), polyder(np.abs(c)), tensor=False) for c in self.coefficients], axis=0)
            close = np.abs(t - at[:, None]) <= off[:, None]
            step += np.where(close[:, :-1] | close[:, 1:], (4 * off * (steep + EPS))[:, None], 0.0)
        least, most = bend - spread, bend + spread
        above, below = (np.maximum(b, 0) * half**2 * (0.5 + 8 * EPS) + step for b in (-least, most))
        slack = polyval(reach, polyder(size), tensor=False)
        return Panels(value, to_nodes(error + step), left, right, slack, above, below, least, most)


@dataclass(frozen=True)
class Smooth:
    """weight act(mean + scale t), for a smooth activation with known points of inflection."""

    activation: Activation
    weight: np.ndarray  # (h,)
    mean: np.ndarray  # (h,)
    scale: np.ndarray  # (h,), not zero

    @property
    def nodes(self) -> np.ndarray:
        """Places (h, b) that must be nodes: kinks and points of inflection."""
        at = np.asarray([*self.activation.kinks, *(self.activation.bends or ())], dtype=float)
        return (at - self.mean[:, None]) / self.scale[:, None]

    def at(self, t: np.ndarray, order: int = 0) -> np.ndarray:
        """Values or derivatives at points t (..., h), from the right at kinks."""
        y = self.mean + self.scale * t
        if order:
            return self.weight * self.scale * np.asarray(self.activation.slope(y))
        return self.weight * np.asarray(self.activation(y))

    def panels(self, t: np.ndarray) -> Panels:
        """The functions on panels between nodes t (h, n)."""
        mean, scale, weight = self.mean[:, None], self.scale[:, None], self.weight[:, None]
        y = mean + scale * t
        shift = 4 * EPS * (np.abs(mean) + np.abs(scale * t)) + TINY  # of y, by rounding
        side = shift * np.sign(scale)  # slopes are taken just inside a panel, on the right side of a kink
        value = weight * np.asarray(self.activation(y))
        left = weight * scale * np.asarray(self.activation.slope((y + 2 * side)[:, :-1]))
        right = weight * scale * np.asarray(self.activation.slope((y - 2 * side)[:, 1:]))
        per_y = to_nodes(np.maximum(np.abs(left), np.abs(right))) / np.abs(scale) + 1e-6 * np.abs(weight)
        error = _LIBRARY * (np.abs(value) + np.abs(y) * per_y) + 4 * shift * per_y
        slack = np.abs(weight * scale) * (2 * _LIBRARY + 8 * np.maximum(shift[:, 1:], shift[:, :-1]))
        slack = slack + 2 * _LIBRARY * np.maximum(np.abs(left), np.abs(right))
        width = t[:, 1:] - t[:, :-1]
        noise = error[:, 1:] + error[:, :-1]
        if self.activation.bends is None:  # a second derivative of at most one: sine and cosine
            bend = np.abs(weight) * scale**2 + 0 * width
            gap = np.minimum(bend * width**2 / 8, 2 * np.abs(weight)) + noise
            return Panels(value, error, left, right, slack, gap, gap, -bend, bend)
        # Convex, or concave: between the chord and the tangents at both ends, which meet where they are farthest off.
        convex = right >= left
        chord = (value[:, 1:] - value[:, :-1]) / np.where(width > 0, width, 1.0)
        one, two = np.abs(chord - left), np.abs(right - chord)
        gap = width * one * two / np.where(one + two > 0, one + two, 1.0)
        gap = gap + 2 * noise + 6 * slack * width
        flat = np.abs(right - left) <= slack * 4
        up = np.where(convex & ~flat, 0.0, gap)
        down = np.where(convex | flat, gap, 0.0)
        least = np.where(convex & ~flat, 0.0, -np.inf)
        most = np.where(convex | flat, np.inf, 0.0)
        return Panels(value, error, left, right, slack, up, down, least, most)


Part = Pieces | Smooth


@dataclass(frozen=True)
class Functions:
    """One function of one variable for each of h units: the sum of parts."""

    parts: Sequence[Part]

    @property
    def nodes(self) -> np.ndarray:
        """Places (h, b) that must be nodes."""
        return np.concatenate([part.nodes for part in self.parts], axis=1)

    def at(self, t: np.ndarray, order: int = 0) -> np.ndarray:
        """Values or derivatives at points t (..., h)."""
        values = [part.at(t, order) for part in self.parts]
        return sum(values[1:], start=values[0])

    def panels(self, t: np.ndarray) -> Panels:
        """The functions on panels between nodes t (h, n), which contain `nodes`."""
        found = [part.panels(t) for part in self.parts]
        return Panels(*(sum(group[1:], start=group[0]) for group in zip(*found, strict=True)))


def polynomials(powers: Any, errors: Any) -> Pieces:
    """Polynomials with coefficients (h,) of 1, t, t^2, ..., and bounds on the errors of these."""
    table = np.stack([np.asarray(a, dtype=float) for a in powers])
    none = np.zeros((0, table.shape[1]))
    return Pieces(table[None], np.stack([np.abs(np.asarray(e, dtype=float)) for e in errors])[None], none, none)


def activations(activation: Activation, size: int, mean: Any = 0.0, scale: Any = 1.0, weight: Any = 1.0) -> Part:
    """Weight act(mean + scale t) for `size` units; a scale is not zero."""
    mean, scale, weight = (np.broadcast_to(np.asarray(a, dtype=float), (size,)) for a in (mean, scale, weight))
    if activation.jumps(np.zeros(1)):
        raise ValueError(
            f"the activation {activation.name!r} jumps, so that no line bounds it; certify takes continuous functions."
        )
    if activation.pieces is None:
        if activation.own is not None:
            raise ValueError(
                f"nothing bounds the user's activation {activation.name!r} between the points where it is evaluated; "
                f"certify takes piecewise polynomials and the registered ones."
            )
        return Smooth(activation, weight, mean, scale)
    table = np.asarray(activation.pieces, dtype=float)
    p, n = table.shape
    coefficients, errors = np.zeros((p, n, size)), np.zeros((p, n, size))
    for j in range(p):  # sum_r a_r (mean + scale t)^r, by powers of t
        for r in range(n):
            for k in range(r + 1):
                term = weight * table[j, r] * math.comb(r, k) * mean ** (r - k) * scale**k
                coefficients[j, k] += term
                errors[j, k] += (n + r + 4) * EPS * np.abs(term)
    kinks = np.asarray(activation.kinks, dtype=float)[:, None]
    breaks = (kinks - mean) / scale
    wobble = 4 * EPS * (np.abs(kinks) + np.abs(mean)) / np.abs(scale)
    if len(kinks) and np.any(scale < 0):
        raise ValueError("scales must be positive.")
    return Pieces(coefficients, errors, breaks, wobble)
