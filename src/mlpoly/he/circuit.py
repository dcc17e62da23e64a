"""A polynomial as a circuit for homomorphic encryption: matrix products, and products of encrypted vectors.

An encrypted vector can be multiplied by a known matrix, added to another, and multiplied with another, entry by entry.
Each of the products costs a level, and levels are what an encryption has few of. So scales, shifts and coefficients
are folded into the matrices, biases go through an entry that is always one, and the readout of a layer and the linear
forms of the next one are a single matrix:

    u_l = sum of matrices @ powers of earlier layers,    u_l^2, u_l^3, ... by a square tree
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mlpoly.arrays import as_float_array, check_finite, to_numpy
from mlpoly.records import record, static
from mlpoly.tables import Table, Tabular

CAPACITY = 2.0**19  # largest number with 20 bits before the point, its sign included


class Vector(NamedTuple):
    """Name of an encrypted vector: u_layer^power, times e_layer if gated. Layer 0 is the input."""

    layer: int
    power: int = 1
    gated: bool = False


def depth_of_power(k: int) -> int:
    """Products that follow one another in a power u^k, or in any product of k vectors: ceil(log2 k)."""
    return max(k - 1, 0).bit_length()


def products(vectors: Iterable[Vector]) -> dict[Vector, tuple[Vector, Vector]]:
    """Products of two vectors each that make the given powers of one layer, in an order in which they can be computed.

    u^k = u^a u^(k - a) and e u^k = u^a (e u^(k - a)), where a is half the number of factors, rounded up: the least
    depth.
    """
    factors: dict[Vector, tuple[Vector, Vector]] = {}

    def add(v: Vector) -> None:
        if v in factors or v.power + v.gated <= 1:
            return
        first = (v.power + v.gated + 1) // 2  # factors in the first half
        halves = Vector(v.layer, first, False), Vector(v.layer, v.power - first, v.gated)
        for half in halves:
            add(half)
        factors[v] = halves

    for vector in vectors:
        add(vector)
    return factors


@record
class LinearTerm:
    """A matrix (rows, columns) times an encrypted vector: u_layer^power, times e_layer if gated."""

    matrix: np.ndarray
    layer: int = static()
    power: int = static(default=1)
    gated: bool = static(default=False)

    @property
    def vector(self) -> Vector:
        """The vector that the matrix is multiplied with."""
        return Vector(self.layer, self.power, self.gated)


@record
class EncryptedLayer:
    """A hidden layer: linear forms u of earlier vectors and, for gated units, second factors e.

    Attributes
    ----------
    forms, gates : tuple of LinearTerm
        u and e (h + 1,) are the sums of the terms; the last entries are one and zero. No gates without a gate.
    degree, name
        Degree of the layer's polynomial, and name of the layer in errors.
    radius : float
        Number of standard deviations of each form about its mean for which its entry of u is within [-1, 1].
    """

    forms: tuple[LinearTerm, ...]
    gates: tuple[LinearTerm, ...] = ()
    degree: int = static(default=1)
    radius: float = static(default=1.0)
    name: str = static(default="")

    @property
    def size(self) -> int:
        """Number of entries of u, the one included."""
        return int(self.forms[0].matrix.shape[0])


@record
class Circuit(Tabular):
    """A polynomial as encrypted inference evaluates it; `poly.to_he()` makes it.

    The input is x with a one appended, (d + 1,).

    Attributes
    ----------
    layers : tuple of EncryptedLayer
        Hidden layers, in the order of the data; layer 1 is the first.
    outputs : tuple of LinearTerm
        The outputs are the sum of the terms, (o,).

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(3), None, np.ones((2, 3)), None, "gelu")
    >>> circuit = mp.fit(net, mp.Gaussian.standard(3), degree=4).to_he()
    >>> circuit.levels, circuit.multiplications, circuit.matrix_products
    (4, 2, 4)
    >>> circuit(np.ones((5, 3))).shape  # in the clear; mp.he.session(circuit) makes keys
    (5, 2)
    """

    layers: tuple[EncryptedLayer, ...]
    outputs: tuple[LinearTerm, ...]

    @property
    def dim_in(self) -> int:
        """Number of inputs d, without the appended one."""
        return next(int(term.matrix.shape[1]) - 1 for term in self._terms() if term.layer == 0)

    @property
    def dim_out(self) -> int:
        """Number of outputs o."""
        return int(self.outputs[0].matrix.shape[0])

    def _terms(self) -> Iterator[LinearTerm]:
        for layer in self.layers:
            yield from layer.forms
            yield from layer.gates
        yield from self.outputs

    def powers(self, layer: int) -> list[Vector]:
        """Vectors of a layer that some matrix is multiplied with, lowest power first."""
        return sorted({term.vector for term in self._terms() if term.layer == layer}, key=lambda v: (v.gated, v.power))

    @property
    def levels(self) -> int:
        """Products that follow one another: levels that an encryption of the input needs."""
        return self._depths()[-1]

    @property
    def multiplications(self) -> int:
        """Number of products of two encrypted vectors."""
        return sum(len(products(self.powers(layer))) for layer in range(1, len(self.layers) + 1))

    @property
    def matrix_products(self) -> int:
        """Number of products of a matrix with an encrypted vector."""
        return sum(1 for _ in self._terms())

    def _depths(self) -> list[int]:
        """Levels used up by u of each layer, and by the outputs."""
        used = {Vector(0): 0}

        def depth_of_sum(terms: Iterable[LinearTerm]) -> int:
            return 1 + max(used[term.vector] for term in terms)

        for i, layer in enumerate(self.layers, 1):
            used[Vector(i)] = depth_of_sum(layer.forms)
            if layer.gates:
                used[Vector(i, 0, True)] = depth_of_sum(layer.gates)
            for power, (one, two) in products(self.powers(i)).items():
                used[power] = 1 + max(used[one], used[two])
        return [*(used[Vector(i)] for i in range(1, len(self.layers) + 1)), depth_of_sum(self.outputs)]

    def __call__(self, x: Any) -> np.ndarray:
        """Outputs (..., o) at points x (..., d), in float64 and without encryption."""
        return self.run(x).outputs

    def run(self, x: Any) -> "CircuitValues":
        """Values of all layers and outputs at points x (..., d), in float64 and without encryption."""
        x = to_numpy(as_float_array("x", x, integers=True)).astype(np.float64)
        if x.ndim == 0 or x.shape[-1] != self.dim_in:
            raise ValueError(f"x has shape {x.shape}, expected (..., {self.dim_in}): one row for each point.")
        check_finite("x", x)
        forms, gates = [np.concatenate([x, np.ones_like(x[..., :1])], axis=-1)], [np.zeros(1)]

        def total(terms: Iterable[LinearTerm]) -> np.ndarray:
            result: Any = 0.0
            for term in terms:
                value = forms[term.layer] ** term.power
                result = result + (value * gates[term.layer] if term.gated else value) @ term.matrix.T
            return result

        with np.errstate(over="ignore", invalid="ignore"):  # far outside the range, where callers look at the sizes
            for layer in self.layers:
                u, e = total(layer.forms), total(layer.gates)
                forms.append(u)
                gates.append(e)
            return CircuitValues(self.layers, tuple(forms), tuple(gates), total(self.outputs))

    def __repr__(self) -> str:
        degrees = ", ".join(str(layer.degree) for layer in self.layers)
        return (
            f"Circuit({self.dim_in} -> {self.dim_out}, degrees ({degrees}), {self.levels} levels, "
            f"{self.multiplications} multiplications, {self.matrix_products} matrix products)"
        )

    def _table(self) -> Table:
        columns = ("layer", "units", "degree", "gated", "range (sd)", "levels so far", "multiplications")
        rows = [
            (r.name, r.size - 1, r.degree, bool(r.gates), r.radius, depth, len(products(self.powers(i))))
            for i, (r, depth) in enumerate(zip(self.layers, self._depths(), strict=False), 1)
        ]
        return Table(columns, tuple(rows), repr(self))


@dataclass(frozen=True)
class CircuitValues:
    """Values of a circuit at points, without encryption: forms u_l and gates e_l (..., h + 1), outputs (..., o)."""

    layers: tuple[EncryptedLayer, ...]
    forms: tuple[np.ndarray, ...]
    gates: tuple[np.ndarray, ...]
    outputs: np.ndarray

    @property
    def entries(self) -> list[np.ndarray]:
        """Entries of u (..., h) or of u and e (..., 2 h) of every layer, at most one within the range."""
        rows = zip(self.layers, self.forms[1:], self.gates[1:], strict=True)
        return [np.concatenate([u[..., :-1], e[..., :-1]], -1) if r.gates else u[..., :-1] for r, u, e in rows]

    @property
    def sizes(self) -> list[np.ndarray]:
        """Largest number (...) among the powers of each layer, and among the outputs."""
        largest = []
        with np.errstate(over="ignore", invalid="ignore"):
            for layer, u, e in zip(self.layers, self.forms[1:], self.gates[1:], strict=True):
                size = np.max(np.abs(u), axis=-1)  # at least one, the entry that is always one
                gated = np.max(np.abs(e), axis=-1) * size ** (layer.degree - 1) if layer.gates else 0.0
                largest.append(np.maximum(size**layer.degree, gated))
        return [*largest, np.max(np.abs(self.outputs), axis=-1)]

    def value(self, v: Vector) -> np.ndarray:
        """The vector of that name, (..., h + 1)."""
        power = self.forms[v.layer] ** v.power
        return power * self.gates[v.layer] if v.gated else power
