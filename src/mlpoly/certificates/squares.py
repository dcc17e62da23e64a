"""What the squares of units that see the inputs are together at most (MATH 15)."""

import math
import time
from dataclasses import dataclass

import numpy as np

from mlpoly.certificates.functions import EPS
from mlpoly.certificates.graph import Apply, Graph, Linear, image
from mlpoly.certificates.interval import Enclosure
from mlpoly.certificates.region import Region


@dataclass
class Squares:
    """Weights of squares (t - middle)^2 of units that see the inputs, and what their sums are at most in the region.

    Units cannot all be at the ends of their intervals at once: for every multiplier, adding it times (most - sum) to a
    bound leaves it one, and takes most of what lines lose from functions that bend.
    """

    weights: dict[int, np.ndarray]  # (m, h) for each vector of functions
    most: np.ndarray  # (m,)

    @classmethod
    def of(
        cls,
        graph: Graph,
        region: Region,
        enclosures: dict[int, Enclosure],
        rows: dict[int, np.ndarray],
        deadline: float,
    ) -> "Squares | None":
        """Weights in proportion to what lines lose, for rows that reach vectors with these coefficients."""
        forms, weights, noise = {}, {}, []
        for k, c in rows.items():
            form = _forms(graph, k)
            if form is None or not len(form[1]):
                continue
            e, (matrix, bias) = enclosures[k], form
            half = e.nodes[:, -1] - e.middle
            above, below = e.supports(e.middle)
            lines = c * np.where(c >= 0, above, below)
            nearest = np.argmin(np.abs(e.nodes - e.middle[:, None]), axis=1)[:, None]
            upper, lower = (np.take_along_axis(a, nearest, 1)[:, 0] for a in (e.upper, e.lower))
            loss = e.highest(c, lines)[0] + lines * e.middle - c * np.where(c >= 0, upper, lower)
            varies = half > 1e-100  # the square of a smaller number is none
            weights[k], forms[k] = (
                np.where(varies, np.maximum(loss, 0.0) / np.where(varies, half, 1.0) ** 2, 0.0),
                matrix,
            )
            # The squares are about the middle of the interval, which is that of the region up to rounding.
            x, d = region.middle, graph.dim
            size = np.abs(matrix) @ np.abs(x) + np.abs(bias)
            noise.append(np.abs(e.middle - matrix @ x - bias) + 8 * (d + 8) * EPS * size)
        if not forms:
            return None
        stacked, together = np.concatenate(list(forms.values())), np.concatenate(list(weights.values()), axis=1)

        def most(row: np.ndarray) -> float:
            bound = region.largest_squares(stacked, row)
            return (math.sqrt(bound) + math.sqrt(float(row @ np.concatenate(noise) ** 2))) ** 2 * (1 + 8 * EPS)

        found, start = [], time.monotonic()
        for row in together:
            found.append(most(row))
            now = time.monotonic()
            if now + (now - start) * (len(together) / len(found) - 1) > deadline:  # one for all rows
                mean = together.mean(axis=0)
                together, found = np.repeat(mean[None], len(together), axis=0), [most(mean)] * len(together)
                break
        ends = np.cumsum([len(form) for form in forms.values()])[:-1]
        if not np.isfinite(found).all():
            return None
        return cls(dict(zip(forms, np.split(together, ends, axis=1), strict=True)), np.asarray(found))


def _forms(graph: Graph, k: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Matrix (h, d) and bias through which a vector of functions sees the inputs, if it sees nothing else."""
    node = graph.nodes[k]
    source = graph.nodes[node.parent] if isinstance(node, Apply) else None
    if not isinstance(source, Linear) or any(j for j, _ in source.terms):
        return None
    zero = np.zeros((len(source.bias), graph.dim))
    return sum((image(m, np.eye(graph.dim)).T for _, m in source.terms), start=zero), source.bias
