"""Whether two classifiers choose the same class for every input of a region."""

import time
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.linalg import block_diag

from mlpoly.arrays import as_number
from mlpoly.certificates.build import add
from mlpoly.certificates.certify import checked_function
from mlpoly.certificates.graph import Graph
from mlpoly.certificates.region import Box, Region, regions
from mlpoly.certificates.relaxation import Ranges
from mlpoly.certificates.search import attained, widest
from mlpoly.measures.functions import check_functions
from mlpoly.networks import Network
from mlpoly.polynomials import Polynomial
from mlpoly.tables import Table, Tabular

_STEPS = 40  # of descent in the slopes
_WAY = 65  # points between the middle and one that search found


@dataclass(frozen=True)
class SameClass(Tabular):
    """Whether two functions choose the same class everywhere in a region.

    Attributes
    ----------
    answer : "true", "false" or "open"
    x : ndarray (d,) or None
        Where they differ, if the answer is false.
    classes : tuple of int or None
        Classes of the two functions there.
    parts : int
        Parts of the region that are certified.
    left : int
        Parts that are not.
    seconds : float
    """

    answer: Literal["true", "false", "open"]
    x: np.ndarray | None = field(repr=False)
    classes: tuple[int, int] | None
    parts: int
    left: int
    seconds: float

    def __bool__(self) -> bool:
        return self.answer == "true"

    def _table(self) -> Table:
        where = "" if self.classes is None else "classes {} and {}".format(*self.classes)
        row = (self.answer, where, self.parts, self.left, self.seconds)
        return Table(("same class", "where not", "parts certified", "parts left", "seconds"), (row,))


def same_class(
    f: Network | Polynomial,
    p: Network | Polynomial,
    low: Any = None,
    high: Any = None,
    *,
    inputs: Any = None,
    radius: float | None = None,
    seconds: float = 10.0,
    seed: int = 0,
) -> SameClass:
    """Whether f and p choose the same class, that of the largest output, for every input of a box or an ellipsoid.

    True if in every part of the region one class is certified to be the largest of both; false with an input where the
    classes are certified to differ; open if neither is found in time, and where outputs tie. A single output is the
    logit of class 1.

    Parameters
    ----------
    f, p : network or Polynomial
    low, high, inputs, radius, seconds, seed
        As in `certify`.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.array([[1.0, 0.0], [0.0, 1.0]]), None, "gelu")
    >>> poly = mp.fit(net, mp.Gaussian.standard(2), 3)
    >>> mp.same_class(net, poly, [0.5, -0.2], [0.7, 0.0]).answer
    'true'
    >>> found = mp.same_class(net, poly, -3, 3)
    >>> found.answer, bool(net(found.x[None]).argmax() != poly(found.x[None]).argmax())
    ('false', True)
    """
    f, p = checked_function("f", f), checked_function("p", p)
    check_functions(f, p, ("f", "p"))
    seconds = as_number("seconds", seconds, "a number that is not negative", 0, edge=True)
    start = time.monotonic()
    places = regions(f.dim_in, low, high, inputs, radius)
    graph, o = Graph(f.dim_in), max(f.dim_out, 2)
    logit = np.array([[0.0], [1.0]]) if f.dim_out == 1 else np.eye(o)
    zero = np.zeros_like(logit)
    ends = add(graph, f), add(graph, p)
    node = graph.linear([(ends[0], np.concatenate([logit, zero])), (ends[1], np.concatenate([zero, logit]))])
    found = left = 0
    for place in places:
        x, todo = _difference(graph, node, o, place, start + 0.4 * seconds, seed), [place]
        while x is None and todo:
            part = todo.pop()
            late = time.monotonic() > start + seconds
            x = _differs(graph, node, o, part.sample(64, np.random.default_rng(seed)))
            if x is not None:
                break
            if (part is place or not late) and _certified(graph, node, o, part, start + seconds):
                found += 1
            elif late or not isinstance(part, Box):
                left += 1 + len(todo)
                break
            else:
                c = int(_classes(graph, node, o, part.middle[None])[0][0])
                todo += part.halves(widest(graph, node, _margins(o, c, c), part, np.random.default_rng(seed)))
        if x is not None:
            one, two = (int(c[0]) for c in _classes(graph, node, o, x[None]))
            return SameClass("false", x, (one, two), found, left, time.monotonic() - start)
    return SameClass("open" if left else "true", None, None, found, left, time.monotonic() - start)


def _classes(graph: Graph, node: int, o: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values = graph.values(x)[node]
    return values[:, :o].argmax(axis=1), values[:, o:].argmax(axis=1)


def _margins(o: int, one: int, two: int) -> np.ndarray:
    """Rows (2 (o - 1), 2 o) that are negative where these classes have the largest outputs of the two functions."""
    return block_diag(*(np.delete(np.eye(o) - np.eye(o)[c], c, axis=0) for c in (one, two)))


def _differs(graph: Graph, node: int, o: int, x: np.ndarray) -> np.ndarray | None:
    """The point of (n, d) where the classes differ most clearly, if bounds certify that it is not by rounding."""
    values = graph.values(x)[node].reshape(len(x), 2, o)
    one, two = values.argmax(axis=2).T
    with np.errstate(invalid="ignore"):
        margin = np.diff(np.sort(values, axis=2)[..., -2:]).min(axis=(1, 2))
    i = int(np.argmax(np.where((one != two) & np.isfinite(margin), margin, 0.0)))
    if one[i] == two[i]:
        return None
    rows = _margins(o, int(one[i]), int(two[i]))
    return x[i] if np.all(Ranges.of(graph, Box(x[i], x[i])).upper(node, rows) < 0) else None


def _difference(graph: Graph, node: int, o: int, region: Region, deadline: float, seed: int) -> np.ndarray | None:
    """A point where the classes differ: on the way from the middle to where some other class gains most."""
    c = int(_classes(graph, node, o, region.middle[None])[0][0])
    rows = _margins(o, c, c)
    one, two = np.split(rows, 2)
    _, points = attained(graph, node, np.concatenate([rows, two - one, one - two]), region, deadline, 16, seed)
    way = np.linspace(0.0, 1.0, _WAY)[:, None, None]
    return _differs(graph, node, o, region.between(region.middle, points, way).reshape(-1, graph.dim))


def _certified(graph: Graph, node: int, o: int, region: Region, deadline: float) -> bool:
    """Whether the class of the middle is the largest output of both everywhere in the region."""
    one, two = _classes(graph, node, o, region.middle[None])
    if one[0] != two[0]:
        return False
    rows = _margins(o, int(one[0]), int(two[0]))
    if np.all(Ranges.of(graph, region).upper(node, rows) < 0):
        return True
    return bool(np.all(Ranges.of(graph, region, _STEPS, deadline).upper(node, rows, _STEPS, deadline) < 0))
