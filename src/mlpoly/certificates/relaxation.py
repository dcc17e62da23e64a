"""Bounds of linear combinations of a vector: lines instead of functions, back to the inputs, with optimised slopes.

A row of coefficients is carried from its vector to the inputs. At a function of one variable it takes a line above or
below, as its sign asks for; the region then has an exact maximum. Any slopes give a bound. The path of the maximiser
back through the lines is the derivative of the bound in the coefficients, so that slopes are improved by descent.
"""

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlpoly.certificates.functions import EPS, TINY
from mlpoly.certificates.graph import Apply, Graph, Linear, Product, image, times
from mlpoly.certificates.interval import Enclosure, enclose
from mlpoly.certificates.region import Box, Region
from mlpoly.certificates.squares import Squares

_RATE = 0.1  # first step of the descent, in multiples of how much a function's slope varies
_BLOCK = 2**21  # numbers in the arrays of a block of rows


@dataclass
class Ranges:
    """Bounds on the vectors of a graph over a region."""

    graph: Graph
    region: Region
    low: list[np.ndarray] = field(default_factory=list)
    high: list[np.ndarray] = field(default_factory=list)
    enclosures: dict[int, Enclosure] = field(default_factory=dict)
    finite: bool = True
    fine: bool = True  # whether functions have a node where they are largest and where they are smallest

    def size(self, i: int) -> np.ndarray:
        """Bounds on the sizes of the entries of a vector."""
        return np.maximum(np.abs(self.low[i]), np.abs(self.high[i]))

    @classmethod
    def of(
        cls, graph: Graph, region: Region, steps: int = 0, deadline: float = math.inf, fine: bool = True
    ) -> "Ranges":
        """Bounds on all vectors; those that functions take are improved by so many steps of descent."""
        found = cls(graph, region, fine=fine)
        one = np.eye(graph.dim)
        found.high.append(region.high if isinstance(region, Box) else region.largest(one)[0])
        found.low.append(region.low if isinstance(region, Box) else -region.largest(-one)[0])
        taken = {j for n in graph.nodes[1:] for j in _parents(n) if not isinstance(n, Linear)}
        taken = {j for j in taken if isinstance(graph.nodes[j], Linear)}
        now = time.monotonic()
        shares = {j: now + (deadline - now) * (k + 1) / len(taken) for k, j in enumerate(sorted(taken))}
        for i in range(1, len(graph.nodes)):
            with np.errstate(over="ignore", invalid="ignore"):
                low, high = found._interval(i)
            found.low.append(np.where(np.isnan(low), -np.inf, low))
            found.high.append(np.where(np.isnan(high), np.inf, high))
            if i in taken:
                found.improve(i, steps, shares[i])
            if not np.isfinite(found.size(i)).all():  # nor has what follows
                for size in graph.sizes[i + 1 :]:
                    found.low.append(np.full(size, -np.inf))
                    found.high.append(np.full(size, np.inf))
                found.finite = False
                break
        return found

    def improve(self, i: int, steps: int, deadline: float = math.inf) -> None:
        """Tighten the bounds of a vector by lines."""
        one = np.eye(self.graph.sizes[i])
        top = self.upper(i, np.concatenate([one, -one]), steps, deadline)
        self.high[i] = np.minimum(self.high[i], top[: len(one)])
        self.low[i] = np.maximum(self.low[i], -top[len(one) :])

    def _interval(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on a vector by interval arithmetic from the vectors before it."""
        node = self.graph.nodes[i]
        if isinstance(node, Apply):
            e = enclose(node.functions, self.low[node.parent], self.high[node.parent], self.fine)
            self.enclosures[i] = e
            return e.low, e.high
        if isinstance(node, Product):
            ends = [(self.low[j], self.high[j]) for j in (node.one, node.two)]
            corners = np.stack([a * b for a in ends[0] for b in ends[1]])
            slack = 2 * EPS * np.abs(corners).max(axis=0) + TINY
            return corners.min(axis=0) - slack, corners.max(axis=0) + slack
        assert isinstance(node, Linear)
        low = high = node.bias
        slack = node.spread + 4 * EPS * np.abs(node.bias) + TINY
        for j, matrix in node.terms:
            middle, half = (self.high[j] + self.low[j]) / 2, (self.high[j] - self.low[j]) / 2
            size = None if matrix is None else np.abs(matrix)
            center, reach = image(matrix, middle), image(size, half)
            slack = slack + _gamma(matrix) * image(size, self.size(j) + half)
            low, high = low + center - reach, high + center + reach
        return low - slack, high + slack

    def upper(self, i: int, rows: np.ndarray, steps: int = 0, deadline: float = math.inf) -> np.ndarray:
        """Upper bounds (m,) on rows (m, size) times a vector."""
        if not self.finite or not len(rows):
            return np.full(len(rows), np.inf)
        width = max((e.nodes.size for e in self.enclosures.values()), default=1) + self.graph.dim
        count = max(1, _BLOCK // width)
        blocks = [rows[j : j + count] for j in range(0, len(rows), count)]
        return np.concatenate([self._descend(i, block, steps, deadline) for block in blocks])

    def _descend(self, i: int, rows: np.ndarray, steps: int, deadline: float) -> np.ndarray:
        """The least bounds that some steps of descent find, in the slopes and in the multipliers of `Squares`."""
        slopes: dict[int, np.ndarray] = {}
        best, changes, weights = self.back(i, rows, slopes, steps > 0)
        if not steps or not slopes:
            return best
        squares = Squares.of(self.graph, self.region, self.enclosures, weights, deadline)
        slopes[-1] = np.ones(len(rows))
        unit = {k: self._variation(k) for k in slopes}
        first: dict[int, Any] = dict.fromkeys(slopes, 0.0)
        second: dict[int, Any] = dict.fromkeys(slopes, 0.0)
        for step in range(steps):
            bound, changes, _ = self.back(i, rows, slopes, True, squares)
            best = np.fmin(best, bound)
            if time.monotonic() > deadline:
                break
            for k, change in changes.items():  # Adam
                first[k] = 0.8 * first[k] + 0.2 * unit[k] * change
                second[k] = 0.98 * second[k] + 0.02 * (unit[k] * change) ** 2
                size = np.sqrt(second[k] / (1 - 0.98 ** (step + 1))) + 1e-300
                slopes[k] = slopes[k] - _RATE / (1 + step / 40) * unit[k] * first[k] / (1 - 0.8 ** (step + 1)) / size
            slopes[-1] = np.maximum(slopes[-1], 0.0)
        return best

    def _variation(self, k: int) -> np.ndarray:
        """How much the slopes of functions (h,) vary: the unit of a step."""
        if k not in self.enclosures:
            return np.full(1, 0.5)
        e = self.enclosures[k]
        width = np.diff(e.nodes, axis=1)
        whole = np.maximum(width.sum(axis=1, keepdims=True), 1e-300)
        wide = width > 1e-6 * whole
        slope = np.where(wide, np.diff(e.upper, axis=1) / np.where(wide, width, 1.0), 0.0)
        weight = np.where(wide, width, 0.0) / whole
        mean = (slope * weight).sum(axis=1, keepdims=True)
        return np.sqrt((weight * (slope - mean) ** 2).sum(axis=1))

    def back(
        self,
        i: int,
        rows: np.ndarray,
        slopes: dict[int, np.ndarray],
        want: bool = False,
        squares: Squares | None = None,
    ) -> tuple[np.ndarray, dict[int, np.ndarray], dict[int, np.ndarray]]:
        """Upper bounds (m,) with given slopes, which are chosen where missing, their derivatives, and the coefficients.

        With `squares`, slopes[-1] (m,) are the multipliers of what these are at most.
        """
        carried: dict[int, np.ndarray] = {i: rows}
        parts: list[np.ndarray] = []  # of the bounds, which are their sums
        slack = np.full(len(rows), TINY)
        record: dict[int, tuple[np.ndarray, ...]] = {}
        spent = np.zeros(len(rows))  # by the squares where the functions are largest
        for k in range(i, 0, -1):
            c, node = carried.pop(k, None), self.graph.nodes[k]
            if c is None:
                continue
            size = np.abs(c)
            new: list[tuple[int, np.ndarray]] = []
            if isinstance(node, Linear):
                parts.append(c @ node.bias)
                slack += size @ (node.spread + (len(node.bias) + 4) * EPS * np.abs(node.bias))
                for j, matrix in node.terms:
                    new.append((j, times(c, matrix)))
                    reach = image(None if matrix is None else np.abs(matrix), self.size(j))
                    slack += (_gamma(matrix) + len(node.bias) * EPS) * (size @ reach)
            elif isinstance(node, Apply):
                e, upward = self.enclosures[k], c >= 0
                if k not in slopes:
                    above, below = e.supports((self.low[node.parent] + self.high[node.parent]) / 2)
                    slopes[k] = np.where(upward, above, below)
                curves = None
                if squares is not None and k in squares.weights:
                    curves = slopes[-1][:, None] * squares.weights[k]
                lines = c * slopes[k]
                height, at, square = e.highest(c, lines, curves)
                parts.append(height.sum(axis=1))
                slack += (len(c.T) + 4) * EPS * np.abs(height).sum(axis=1)
                if curves is not None and squares is not None:
                    spent += (squares.weights[k] * square).sum(axis=1)
                    curved = curves * square
                else:
                    curved = 0.0
                new.append((node.parent, lines))
                record[k] = (c, height + curved, at)
            else:
                assert isinstance(node, Product)
                if k not in slopes:
                    slopes[k] = np.full(c.shape, 0.5)
                share = np.clip(slopes[k], 0.0, 1.0)
                one, two, level, gap = self._plane(node, c >= 0, share)
                parts.append((c * level).sum(axis=1))
                ends = self.size(node.one), self.size(node.two)
                slack += (len(c.T) + 16) * EPS * 2 * size @ (ends[0] * ends[1])
                new += [(node.one, c * one), (node.two, c * two)]
                record[k] = (c, one, two, level, gap)
            for j, a in new:
                carried[j] = carried[j] + a if j in carried else a
                slack += (4 * EPS * np.abs(carried[j]) + TINY) @ self.size(j)
        top, at = self.region.largest(carried.get(0, np.zeros((len(rows), self.graph.dim))))
        parts.append(top)
        if squares is not None:
            parts.append(slopes[-1] * squares.most * (1 + 8 * EPS))
        bound = np.sum(parts, axis=0) + 1.01 * slack + (len(parts) + 8) * EPS * np.sum(np.abs(parts), axis=0)
        changes = self._path(i, record, slopes, at) if want else {}
        if squares is not None:
            changes[-1] = squares.most - spent
        return np.where(np.isnan(bound), np.inf, bound), changes, {k: part[0] for k, part in record.items()}

    def _plane(self, node: Product, upward: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, ...]:
        """Coefficients of a plane above or below a product, between McCormick's two, and what decides between them."""
        a, b = (self.low[node.one], self.high[node.one]), (self.low[node.two], self.high[node.two])
        # above: b_1 x + a_0 y - a_0 b_1 and b_0 x + a_1 y - a_1 b_0; below: b_0 x + a_0 y - ..., b_1 x + a_1 y - ...
        first = np.where(upward, b[1], b[0]), np.where(upward, a[0], a[0])
        other = np.where(upward, b[0], b[1]), np.where(upward, a[1], a[1])
        one, two = (share * p + (1 - share) * q for p, q in zip(first, other, strict=True))
        level = -(share * first[0] * first[1] + (1 - share) * other[0] * other[1])
        gap = np.stack([first[0] - other[0], first[1] - other[1], other[0] * other[1] - first[0] * first[1]])
        return one, two, level, gap

    def _path(
        self, i: int, record: dict[int, tuple[np.ndarray, ...]], slopes: dict[int, np.ndarray], x: np.ndarray
    ) -> dict[int, np.ndarray]:
        """Derivatives of the bounds in the slopes, from the maximisers x (m, d) forward through lines and planes."""
        values: dict[int, np.ndarray] = {0: x}
        changes: dict[int, np.ndarray] = {}
        for k in range(1, i + 1):
            node = self.graph.nodes[k]
            if any(j not in values for j in _parents(node)):
                continue
            if isinstance(node, Linear):
                values[k] = sum((image(m, values[j]) for j, m in node.terms), start=node.bias)
            elif k in record and isinstance(node, Apply):
                c, height, at = record[k]
                share = height / np.where(c == 0, 1.0, c)
                values[k] = slopes[k] * values[node.parent] + np.where(c == 0, 0.0, share)
                changes[k] = c * (values[node.parent] - at)
            elif k in record and isinstance(node, Product):
                c, one, two, level, gap = record[k]
                values[k] = one * values[node.one] + two * values[node.two] + level
                changes[k] = c * (gap[0] * values[node.one] + gap[1] * values[node.two] + gap[2])
        return changes


def _gamma(matrix: np.ndarray | None) -> float:
    """Bound on the relative rounding error of a product with a matrix, and of its entries."""
    return (8 + (0 if matrix is None else max(matrix.shape))) * EPS


def _parents(node: object) -> tuple[int, ...]:
    if isinstance(node, Linear):
        return tuple(j for j, _ in node.terms)
    if isinstance(node, Apply):
        return (node.parent,)
    return (node.one, node.two) if isinstance(node, Product) else ()
