"""Certified bounds on every number of a circuit, for all inputs in a region."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlpoly.certificates.functions import EPS, polynomials
from mlpoly.certificates.graph import Graph
from mlpoly.certificates.region import regions
from mlpoly.certificates.relaxation import Ranges
from mlpoly.certificates.search import attained
from mlpoly.he.circuit import CAPACITY, Circuit, LinearTerm
from mlpoly.inputs import Inputs
from mlpoly.tables import Table, Tabular

_STEPS = 60  # of descent in the slopes of the bounds
_SAME = 1e-9  # relative difference up to which the polynomials of a unit count as multiples of one


@dataclass(frozen=True)
class Bounds(Tabular):
    """Bounds that hold for every input in a region, beside values that are attained in it.

    Attributes
    ----------
    names : tuple of str
        Names of the layers.
    sizes, powers : tuple of float
        For each layer bounds on |u| and |e| in multiples of its range, and on the powers of u that it needs, with e.
    low, high : ndarray (o,)
        Bounds on the outputs.
    found : tuple of float
        Largest |u| or |e| of each layer that search found.
    lowest, highest : ndarray (o,)
        Smallest and largest outputs that search found.
    """

    names: tuple[str, ...]
    sizes: tuple[float, ...]
    powers: tuple[float, ...]
    low: np.ndarray
    high: np.ndarray
    found: tuple[float, ...]
    lowest: np.ndarray
    highest: np.ndarray

    @property
    def fits(self) -> bool:
        """Whether no input in the region makes a number above 2^19; `headroom_bits` may allow outputs less."""
        return not self.excess

    @property
    def excess(self) -> dict[str, float]:
        """Layers, and "the output", whose numbers may exceed 2^19, with how many times that they may reach."""
        largest = float(max(np.max(np.abs(self.low)), np.max(np.abs(self.high))))
        sizes = zip((*self.names, "the output"), (*self.powers, largest), strict=True)
        return {name: size / CAPACITY for name, size in sizes if not size <= CAPACITY}

    def __repr__(self) -> str:
        low, high = float(self.low.min()), float(self.high.max())
        return f"Bounds(outputs in [{low:.4g}, {high:.4g}], fits={self.fits})"

    def _table(self) -> Table:
        columns = ("layer", "largest |u|", "attained", "largest power")
        rows = tuple(zip(self.names, self.sizes, self.found, self.powers, strict=True))
        note = f"outputs attained: {float(self.lowest.min()):.4g} to {float(self.highest.max()):.4g}"
        for name, times in self.excess.items():
            note += f"\n{name} may exceed 2^19, the most that an encryption holds, {times:.3g} times"
        return Table(columns, rows, repr(self), note=note)


def bound(
    circuit: Circuit,
    low: Any = None,
    high: Any = None,
    *,
    inputs: Inputs | None = None,
    radius: float | None = None,
    seconds: float = 10.0,
) -> Bounds:
    """Certified bounds on every intermediate value and on the outputs, for all inputs in a box or in an ellipsoid.

    They are made as those of `mlpoly.certify`, with the same margins for rounding; evaluation under encryption adds
    its own noise.

    Parameters
    ----------
    circuit : Circuit
    low, high, inputs, radius, seconds
        As in `mlpoly.certify`.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> circuit = mp.fit(mp.MLP(np.eye(3), activation="gelu"), mp.Gaussian.standard(3), degree=4).to_he()
    >>> mp.he.bound(circuit, -1, 1).fits
    True
    """
    places = regions(circuit.dim_in, low, high, inputs, radius)
    graph, vectors = _graph(circuit)
    ends = [np.concatenate([np.eye(graph.sizes[v]), -np.eye(graph.sizes[v])]) for v in vectors]
    upper, found = [np.full(len(rows), -np.inf) for rows in ends], [np.full(len(rows), -np.inf) for rows in ends]
    for place in places:
        start, time_here = time.monotonic(), seconds / len(places)
        for i, (v, rows) in enumerate(zip(vectors, ends, strict=True)):
            deadline = start + 0.3 * time_here * (i + 1) / len(vectors)
            found[i] = np.maximum(found[i], attained(graph, v, rows, place, deadline)[0])
        ranges = Ranges.of(graph, place, _STEPS, start + 0.8 * time_here)
        ranges.improve(vectors[-1], 2 * _STEPS, start + time_here)
        for i, v in enumerate(vectors):
            upper[i] = np.maximum(upper[i], np.concatenate([ranges.high[v], -ranges.low[v]]))
    sizes, powers, reached = [], [], []
    each = iter(zip(upper, found, strict=True))
    for layer in circuit.layers:
        u, at_u = (float(np.max(a, initial=0.0)) for a in next(each))
        e, at_e = (float(np.max(a, initial=0.0)) for a in next(each)) if layer.gates else (0.0, 0.0)
        with np.errstate(over="ignore"):
            top = np.maximum(u, 1.0)  # the entry that is always one
            power = np.maximum(top**layer.degree, e * top ** (layer.degree - 1))
        powers.append(float(power * (1 + 4 * layer.degree * EPS)))
        sizes.append(max(u, e))
        reached.append(max(at_u, at_e))
    o, names = circuit.dim_out, tuple(layer.name for layer in circuit.layers)
    low, high, lowest, highest = -upper[-1][o:], upper[-1][:o], -found[-1][o:], found[-1][:o]
    return Bounds(names, tuple(sizes), tuple(powers), low, high, tuple(reached), lowest, highest)


def _graph(circuit: Circuit) -> tuple[Graph, list[int]]:
    """A circuit as a graph, and its vectors u and e of every layer, without the entries that are one, and outputs."""
    graph = Graph(circuit.dim_in)
    forms, gates, vectors = [0], [0], []

    def total(terms: Sequence[LinearTerm], rows: int) -> int:
        parts: list[tuple[int, np.ndarray]] = []
        bias, size = np.zeros(rows), np.zeros(rows)
        for layer, gated in dict.fromkeys((term.layer, term.gated) for term in terms):
            here = [term for term in terms if (term.layer, term.gated) == (layer, gated)]
            for term in here:
                if not gated:  # the entry of e is zero there
                    bias, size = bias + term.matrix[:rows, -1], size + np.abs(term.matrix[:rows, -1])
            if layer == 0:
                parts.append((0, here[0].matrix[:rows, :-1]))
                continue
            table = np.zeros((max(t.power for t in here) + 1, rows, graph.sizes[forms[layer]]))
            for term in here:
                table[term.power] += term.matrix[:rows, :-1]
            parts.append(_units(graph, table, forms[layer], gates[layer] if gated else None))
        return graph.linear(parts, bias, len(terms) * EPS * size)

    for layer in circuit.layers:
        forms.append(total(layer.forms, layer.size - 1))
        gates.append(total(layer.gates, layer.size - 1) if layer.gates else 0)
        vectors += [forms[-1], gates[-1]] if layer.gates else [forms[-1]]
    return graph, [*vectors, total(circuit.outputs, circuit.dim_out)]


def _units(graph: Graph, table: np.ndarray, u: int, e: int | None) -> tuple[int, np.ndarray]:
    """Polynomials of u with coefficients (n + 1, rows, units), times e if there is one: a vector, and its matrix.

    The polynomials of a unit are multiples of one, except in circuits of other origin: then every row has its own.
    """
    size = np.abs(table)
    lead = np.argmax(size.max(axis=0), axis=0)  # the row with the largest coefficients
    units = np.arange(table.shape[2])
    own = table[:, lead, units]  # (n + 1, units)
    power = np.argmax(np.abs(own), axis=0)
    pivot = own[power, units]
    matrix = table[power, :, units].T / np.where(pivot == 0, 1.0, pivot)
    left = np.abs(table - own[:, None, :] * matrix) + 4 * EPS * size
    errors = np.max(np.where(size.max(axis=0) > 0, left / np.where(matrix == 0, 1e-300, np.abs(matrix)), 0.0), axis=1)
    if not np.all(errors <= _SAME * np.abs(pivot)):
        rows = table.shape[1]
        repeated = np.tile(np.eye(len(units)), (rows, 1))
        u = graph.linear([(u, repeated)])
        e = None if e is None else graph.linear([(e, repeated)])
        own, matrix = table.reshape(len(table), -1), np.repeat(np.eye(rows), len(units), axis=1)
        errors = 0 * own
    values = graph.apply(u, polynomials(own, errors))
    return (values if e is None else graph.product(values, e)), matrix
