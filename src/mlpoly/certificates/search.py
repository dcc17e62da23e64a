"""The other side of a bound: values that are attained, by ascent from many starts; and where to halve a box."""

import time

import numpy as np

from mlpoly.certificates.graph import Graph
from mlpoly.certificates.region import Box, Region

_SHARES = (0.3, 0.1, 0.03, 0.01)  # of the inputs that move to their best side at once; all of them by a step of one
_STEPS = (1.0, 0.5, 0.2, 0.05, 0.01, 1e-3, 1e-4, 1e-6)  # of the way to where the linear part is largest
_ROUNDS = 200
_PROBES = 16  # points at which gradients are compared to choose the input along which a box is halved
_NUMBERS = 2**21  # in the arrays of one evaluation


def attained(
    graph: Graph, node: int, rows: np.ndarray, region: Region, deadline: float, starts: int = 32, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Large values (m,) of rows (m, size) times a vector, and the points (m, d) of the region where they are attained.

    From every start the inputs that gain most, by the gradient, move to their best sides, or all go part of the way to
    where the linear part is largest; in a box single inputs follow, at the best point.
    """
    rng, m = np.random.default_rng(seed), len(rows)
    x = np.repeat(region.sample(starts, rng)[None], m, axis=0).reshape(m * starts, graph.dim)
    each = np.repeat(rows, starts, axis=0)
    best = _value(graph, node, each, x)
    for _ in range(_ROUNDS):
        slope = graph.gradient(graph.values(x), node, each)
        slope = np.where(np.isfinite(slope), slope, 0.0)
        target, moved = region.largest(slope)[1], False
        candidates = [region.between(x, target, step) for step in _STEPS]
        if isinstance(region, Box) and graph.dim > 1:
            gain = slope * (target - x)
            least = np.quantile(gain, [1 - share for share in _SHARES], axis=1)[..., None]
            candidates += [np.where(gain >= edge, target, x) for edge in least]
        for candidate in candidates:
            value = _value(graph, node, each, candidate)
            gain = value > best + 1e-12 * np.abs(best)
            x, best, moved = np.where(gain[:, None], candidate, x), np.where(gain, value, best), moved or gain.any()
        if not moved or time.monotonic() > deadline:
            break
    top = best.reshape(m, starts).argmax(axis=1) + starts * np.arange(m)
    x, best = x[top], best[top]
    if isinstance(region, Box):
        for i in range(m):
            best[i], x[i] = _single_inputs(graph, node, rows[i : i + 1], region, x[i], best[i], deadline)
    return best, x


def _value(graph: Graph, node: int, rows: np.ndarray, x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        value = (graph.values(x)[node] * rows).sum(axis=1)
    return np.where(np.isfinite(value), value, -1e300)  # an overflow is no value


def _single_inputs(
    graph: Graph, node: int, row: np.ndarray, box: Box, x: np.ndarray, best: float, deadline: float
) -> tuple[float, np.ndarray]:
    """Move one input at a time to a side of the box, the one that gains most, until none does."""
    d = graph.dim
    block = max(1, _NUMBERS // max(graph.sizes))
    while time.monotonic() < deadline:
        value, place, side = best, -1, box.low
        for end in (box.low, box.high):
            for start in range(0, d, block):
                inputs = np.arange(start, min(start + block, d))
                points = np.repeat(x[None], len(inputs), axis=0)
                points[np.arange(len(inputs)), inputs] = end[inputs]
                values = _value(graph, node, row, points)
                if values.max() > value + 1e-12 * abs(value):
                    value, place, side = float(values.max()), int(inputs[values.argmax()]), end
        if place < 0:
            break
        best, x = value, x.copy()
        x[place] = side[place]
    return best, x


def widest(graph: Graph, node: int, rows: np.ndarray, box: Box, rng: np.random.Generator) -> int:
    """The input along which gradients of the rows vary most over a box: what is linear in it needs no cut."""
    x = box.sample(_PROBES, rng)
    values, width, change = graph.values(x), box.high - box.low, np.zeros(graph.dim)
    for row in rows:
        slopes = graph.gradient(values, node, np.repeat(row[None], len(x), axis=0))
        change = np.maximum(change, np.nan_to_num(slopes.max(axis=0) - slopes.min(axis=0)) * width)
    return int(np.argmax(change if change.max() > 0 else width))
