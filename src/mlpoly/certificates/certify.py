"""Certified bounds of functions over a region, beside values that are attained there."""

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlpoly.arrays import as_number
from mlpoly.certificates.build import add, add_difference
from mlpoly.certificates.graph import Graph
from mlpoly.certificates.region import Box, Region, regions
from mlpoly.certificates.relaxation import Ranges
from mlpoly.certificates.search import attained, widest
from mlpoly.measures.functions import check_functions
from mlpoly.networks import Chain, Network
from mlpoly.networks.chain import import_hint
from mlpoly.polynomials import Polynomial
from mlpoly.tables import Plottable, Table, Tabular

_STEPS = 60  # of descent in the slopes, for the bounds of hidden units
_LAST = 200  # for those of the outputs
_PART = 8  # for both over a part of the region


@dataclass(frozen=True)
class Certificate(Plottable, Tabular):
    """Bounds that hold for every input of a region, and values that are attained in it.

    Attributes
    ----------
    low, high : ndarray (o,)
        Certified bounds of each output.
    lowest, highest : ndarray (o,)
        Smallest and largest values that search found: the exact range is between these and the bounds.
    lowest_at, highest_at : ndarray (o, d)
        Where they are attained.
    parts : int
        Number of parts of the region that the bounds are made of; 1 if it was not split.
    seconds : float
    """

    low: np.ndarray
    high: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray
    lowest_at: np.ndarray = field(repr=False)
    highest_at: np.ndarray = field(repr=False)
    parts: int = 1
    seconds: float = 0.0

    @property
    def largest(self) -> float:
        """Certified bound on the size of every output: of a difference, the largest error anywhere in the region."""
        return float(max(np.max(np.abs(self.low)), np.max(np.abs(self.high))))

    @property
    def attained(self) -> float:
        """Largest size of an output that search found."""
        return float(max(np.max(np.abs(self.lowest)), np.max(np.abs(self.highest))))

    def __repr__(self) -> str:
        return f"Certificate(at most {self.largest:.4g}, attained {self.attained:.4g}, {self.seconds:.1f} s)"

    def _table(self) -> Table:
        columns = ("output", "certified low", "attained low", "attained high", "certified high")
        numbers = (a.tolist() for a in (self.low, self.lowest, self.highest, self.high))
        rows = tuple((i, *row) for i, row in enumerate(zip(*numbers, strict=True)))
        return Table(columns, rows, repr(self), limit=30)


def certify(
    f: Network | Polynomial,
    low: Any = None,
    high: Any = None,
    against: Network | Polynomial | None = None,
    *,
    inputs: Any = None,
    radius: float | None = None,
    seconds: float = 10.0,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> Certificate:
    """Bounds of every output of a network or polynomial, or of a difference, for all inputs of a box or an ellipsoid.

    Functions of one variable are enclosed on fine panels, activations between their points of inflection. Lines take
    their place on the way back to the inputs, with slopes found by descent; a box is then split for as long as there is
    time. The bounds hold for the exact real function of the weights, whatever their dtype: all sums carry margins for
    the rounding of float64, in which everything is computed, on the CPU and in NumPy. What evaluation in float32 or
    float64 adds by its own rounding is not part of them.

    Parameters
    ----------
    f : network or Polynomial
        Of any form; activations that jump, and functions of the user, cannot be bounded.
    low, high : float or array (d,), optional
        Box of the inputs, such as 0 and 1 for pixels.
    against : network or Polynomial, optional
        Another function: the bounds are those of f - against. A layer and a ridge polynomial of its own units are
        compared unit by unit.
    inputs : Gaussian or GaussianMixture, optional
    radius : float, optional
        With `inputs`, the ellipsoid (x - mean)' cov^-1 (x - mean) <= radius^2, or one for each component.
    seconds : float
        Time for search and for better bounds; the first bounds are always finished.
    tolerance : float
        Fraction of an output's range within which bound and attained value end the splitting.
    seed : int
        Of the starts of the search.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.array([[1.0, 2.0], [-1.0, 1.0]]), None, np.ones((1, 2)), None, "relu")
    >>> found = mp.certify(net, -1, 1)
    >>> found.high.round(1).tolist(), found.highest.round(1).tolist()  # relu(x + 2 y) + relu(y - x)
    ([3.0], [3.0])
    >>> poly = mp.fit(net, mp.Gaussian.standard(2), 2)
    >>> error = mp.certify(net, -1, 1, against=poly)
    >>> bool(error.largest < 0.8)
    True
    """
    f, against = checked_function("f", f), None if against is None else checked_function("against", against)
    if against is not None:
        check_functions(f, against, ("f", "against"))
    seconds = as_number("seconds", seconds, "a number that is not negative", 0, edge=True)
    tolerance = as_number("tolerance", tolerance, "a number that is not negative", 0, edge=True)
    start = time.monotonic()
    places = regions(f.dim_in, low, high, inputs, radius)
    graph = Graph(f.dim_in)
    node = add(graph, f) if against is None else add_difference(graph, f, against)
    rows = np.eye(f.dim_out)
    rows = np.concatenate([rows, -rows])
    each = [_one_region(graph, node, rows, place, seconds / len(places), tolerance, seed) for place in places]
    upper = np.max([one[0] for one in each], axis=0)
    which = np.argmax([one[1] for one in each], axis=0)
    lower = np.stack([one[1] for one in each])[which, np.arange(len(rows))]
    points = np.stack([one[2] for one in each])[which, np.arange(len(rows))]
    o = f.dim_out
    return Certificate(
        -upper[o:], upper[:o], -lower[o:], lower[:o], points[o:], points[:o],
        sum(one[3] for one in each), time.monotonic() - start,
    )  # fmt: skip


def _one_region(
    graph: Graph, node: int, rows: np.ndarray, region: Region, seconds: float, tolerance: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Upper bounds and attained values (m,) of rows times a vector, where they are, and the number of parts."""
    start, o = time.monotonic(), len(rows) // 2
    upper = Ranges.of(graph, region).upper(node, rows)
    lower, points = attained(graph, node, rows, region, start + 0.2 * seconds, seed=seed)
    ranges = Ranges.of(graph, region, _STEPS, start + 0.7 * seconds)
    upper = np.minimum(upper, ranges.upper(node, rows, _LAST, start + 0.9 * seconds))
    if not isinstance(region, Box):
        return upper, lower, points, 1
    # Branch and bound: the part with the largest bound is halved, until bounds and attained values meet.
    width, wide = lower + np.roll(lower, o), upper + np.roll(upper, o)  # of the range of each output, and its bound
    room = tolerance * width + 1e-9 * np.where(np.isfinite(wide), wide, 1.0) + 1e-12 * np.abs(lower) + 1e-290
    rng, parts, settled = np.random.default_rng(0), [(region, upper)], lower.copy()
    while parts:
        gap = (np.maximum(np.max([top for _, top in parts], axis=0), settled) - lower) / room
        row = int(np.argmax(gap))
        if gap[row] <= 1 or time.monotonic() > start + seconds:
            break
        whole, most = parts.pop(int(np.argmax([top[row] for _, top in parts])))
        for box in whole.halves(widest(graph, node, rows[row : row + 1], whole, rng)):
            ranges = Ranges.of(graph, box, _PART, start + seconds, fine=False)
            top = np.minimum(ranges.upper(node, rows, _PART, start + seconds), most)
            x = box.sample(4, rng)
            value = graph.values(x)[node] @ rows.T
            better = value.max(axis=0) > lower
            lower[better], points[better] = value.max(axis=0)[better], x[value.argmax(axis=0)[better]]
            if np.all(top <= lower + room):
                settled = np.maximum(settled, top)
            else:
                parts.append((box, top))
    return np.max([settled, lower, *(top for _, top in parts)], axis=0), lower, points, max(len(parts), 1)


def checked_function(name: str, f: Any) -> Network | Polynomial:
    """A network or polynomial; affine maps are not merged into layers, which would round their products."""
    if isinstance(f, Polynomial):
        return f
    if not isinstance(f, Network):
        kind = type(f).__name__
        raise TypeError(f"{name} must be a network or polynomial of this library, got {kind}{import_hint(f)}.")
    return f.layers[0] if isinstance(f, Chain) and len(f.layers) == 1 else f
