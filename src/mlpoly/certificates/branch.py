"""Branch and bound: the box is halved where that helps, until bounds and attained values meet or time is up."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from mlpoly.certificates.graph import Graph
from mlpoly.certificates.region import Box
from mlpoly.certificates.relaxation import Ranges

_STEPS = 8  # of descent in the slopes, for each part
_PROBES = 16  # points at which gradients are compared to choose the input that is halved


@dataclass
class Part:
    """A box, and upper bounds (m,) over it."""

    box: Box
    upper: np.ndarray


def refine(
    graph: Graph,
    node: int,
    rows: np.ndarray,
    root: Part,
    lower: np.ndarray,
    points: np.ndarray,
    room: np.ndarray,
    deadline: float,
) -> tuple[np.ndarray, int]:
    """Upper bounds (m,) on rows (m, size) times a vector over a box, and the number of parts they come from.

    `lower` (m,) and `points` (m, d), attained values and where, are improved in place, until the bounds are within
    `room` (m,) of them.
    """
    rng, parts, settled = np.random.default_rng(0), [root], lower.copy()
    while parts:
        upper = np.maximum(np.max([part.upper for part in parts], axis=0), settled)
        gap = (upper - lower) / room
        row = int(np.argmax(gap))
        if gap[row] <= 1 or time.monotonic() > deadline:
            break
        part = parts.pop(int(np.argmax([part.upper[row] for part in parts])))
        for box in part.box.halves(widest(graph, node, rows[row : row + 1], part.box, rng)):
            ranges = Ranges.of(graph, box, _STEPS, deadline, fine=False)
            bound = np.minimum(ranges.upper(node, rows, _STEPS, deadline), part.upper)
            x = box.sample(4, rng)
            value = graph.values(x)[node] @ rows.T
            better = value.max(axis=0) > lower
            lower[better], points[better] = value.max(axis=0)[better], x[value.argmax(axis=0)[better]]
            if np.all(bound <= lower + room):
                settled = np.maximum(settled, bound)
            else:
                parts.append(Part(box, bound))
    upper = np.max([settled, *(part.upper for part in parts)], axis=0)
    return np.maximum(upper, lower), len(parts)


def widest(graph: Graph, node: int, rows: np.ndarray, box: Box, rng: np.random.Generator) -> int:
    """The input along which gradients of the rows vary most over a box: what is linear in it needs no cut."""
    x = box.sample(_PROBES, rng)
    values, width, change = graph.values(x), box.high - box.low, np.zeros(graph.dim)
    for row in rows:
        slopes = graph.gradient(values, node, np.repeat(row[None], len(x), axis=0))
        change = np.maximum(change, np.nan_to_num(slopes.max(axis=0) - slopes.min(axis=0)) * width)
    return int(np.argmax(change if change.max() > 0 else width))
