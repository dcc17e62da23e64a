"""What is bounded: vectors made from the inputs by linear maps, functions of one variable and products, in float64."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlpoly.certificates.functions import EPS, Functions, Part

Matrix = np.ndarray | None  # (n, m); (n,) for a diagonal one; None for the identity


@dataclass(frozen=True)
class Linear:
    """The sum of matrices times earlier vectors, plus a bias. Entries of matrices may be off by a few roundings."""

    terms: tuple[tuple[int, Matrix], ...]
    bias: np.ndarray
    spread: np.ndarray  # bounds on the errors of the bias


@dataclass(frozen=True)
class Apply:
    """A function of one variable of every entry of an earlier vector."""

    parent: int
    functions: Functions


@dataclass(frozen=True)
class Product:
    """Products of the entries of two earlier vectors."""

    one: int
    two: int


def times(rows: np.ndarray, matrix: Matrix) -> np.ndarray:
    """Rows (..., n) times a matrix (n, m)."""
    return rows if matrix is None else rows * matrix if matrix.ndim == 1 else rows @ matrix


def image(matrix: Matrix, x: np.ndarray) -> np.ndarray:
    """A matrix (n, m) times points (..., m)."""
    return x if matrix is None else x * matrix if matrix.ndim == 1 else x @ matrix.T


class Graph:
    """Vectors in the order in which they are computed; the first is the input."""

    def __init__(self, dim: int) -> None:
        self.dim, self.sizes = dim, [dim]
        self.nodes: list[Linear | Apply | Product | None] = [None]

    def _add(self, node: Linear | Apply | Product, size: int) -> int:
        self.nodes.append(node)
        self.sizes.append(size)
        return len(self.nodes) - 1

    def linear(self, terms: Sequence[tuple[int, Matrix]], bias: object = 0.0, spread: object = 0.0) -> int:
        """Add the sum of matrices times vectors, plus a bias."""
        parent, matrix = terms[0]
        size = self.sizes[parent] if matrix is None else len(matrix)
        own, error = (np.broadcast_to(np.asarray(a, dtype=float), (size,)) for a in (bias, spread))
        return self._add(Linear(tuple(terms), own, error + 4 * EPS * np.abs(own)), size)

    def apply(self, parent: int, *parts: Part) -> int:
        """Add functions of one variable, the sums of parts, of the entries of a vector."""
        return self._add(Apply(parent, Functions(parts)), self.sizes[parent])

    def product(self, one: int, two: int) -> int:
        """Add the products of the entries of two vectors."""
        return self._add(Product(one, two), self.sizes[one])

    def values(self, x: np.ndarray) -> list[np.ndarray]:
        """All vectors (n, size) at points x (n, d)."""
        found = [x]
        with np.errstate(over="ignore", invalid="ignore"):
            for node in self.nodes[1:]:
                if isinstance(node, Linear):
                    found.append(sum((image(m, found[j]) for j, m in node.terms), start=node.bias))
                elif isinstance(node, Apply):
                    found.append(node.functions.at(found[node.parent]))
                else:
                    assert node is not None
                    found.append(found[node.one] * found[node.two])
        return found

    def gradient(self, values: list[np.ndarray], target: int, rows: np.ndarray) -> np.ndarray:
        """Gradients (n, d) of rows (n, size) times the target vector, at the points of `values`."""
        pulled = {target: rows}
        with np.errstate(over="ignore", invalid="ignore"):
            for i in range(target, 0, -1):
                node, c = self.nodes[i], pulled.pop(i, None)
                if c is None:
                    continue
                if isinstance(node, Linear):
                    new = [(j, times(c, m)) for j, m in node.terms]
                elif isinstance(node, Apply):
                    new = [(node.parent, c * node.functions.at(values[node.parent], 1))]
                else:
                    assert node is not None
                    new = [(node.one, c * values[node.two]), (node.two, c * values[node.one])]
                for j, a in new:
                    pulled[j] = pulled[j] + a if j in pulled else a
        return pulled.get(0, np.zeros((len(rows), self.dim)))
