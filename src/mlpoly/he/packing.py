"""Vectors in the slots of a ciphertext, and matrix products by rotations of the slots.

A ciphertext holds thousands of numbers, its slots, and can be rotated. A vector of n entries is repeated, so that slot
t holds entry t mod n, and a product with a matrix of m rows and n columns is a sum over its diagonals:

    y[t] = sum_i M[t mod m, (t + i) mod n] v[t + i]

which is repeated in the same way. A rotation costs some twenty products with a plaintext, so there are few of them:
i = giant b + baby, where the rotations by `baby` are shared by all giant steps and those by `giant b` by all powers of
a layer; and where m divides n, the sum over i < n / 2^f is taken first and then folded f times.

Rotations pull in what stands to the right, so the slots in which the result is right are fewer by n - 1 with each
product. The input is therefore repeated over `Packing.block` slots, and as many blocks as fit hold a row each.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mlpoly.he.circuit import Circuit, LinearTerm

_ROTATION = 20  # time of a rotation, in products with a plaintext


@dataclass(frozen=True)
class PackedProduct:
    """Products of the vectors of one layer with their matrices, summed."""

    terms: tuple[LinearTerm, ...]
    period_in: int  # distance of the copies of the vectors, at least the columns of the matrices
    period_out: int  # distance of the copies of the result, at least their rows
    diagonals: int  # diagonals of the matrix that are multiplied: period_in / 2^folds
    folds: int
    baby: int  # rotations b of each vector, that by zero included
    reach: int  # slots in which the result is needed

    @property
    def giants(self) -> range:
        """Giant steps, each a rotation by `baby` more."""
        return range(-(-self.diagonals // self.baby))

    @property
    def rotations(self) -> int:
        """Number of rotations."""
        return len(self.terms) * (self.baby - 1) + len(self.giants) - 1 + self.folds

    @property
    def steps(self) -> set[int]:
        """Distances of the rotations: one key for each, because longer ones are made of them."""
        folds = {self.diagonals << i for i in range(self.folds)}
        return folds | ({1} if self.baby > 1 else set()) | ({self.baby} if len(self.giants) > 1 else set())

    def babies(self, giant: int) -> range:
        """Rotations of the vectors that a giant step uses."""
        return range(min(self.baby, self.diagonals - giant * self.baby))

    def diagonal(self, term: int, giant: int, baby: int, block: int) -> np.ndarray:
        """Numbers (block,) that the vector of a term, rotated by `baby`, is multiplied with before the giant step.

        They are zero wherever the result is not needed, so that no slot outside the reach of a vector is ever used.
        """
        matrix = self.terms[term].matrix
        padded = np.zeros((self.period_out, self.period_in))
        padded[: matrix.shape[0], : matrix.shape[1]] = matrix
        slots = np.arange(block)
        place = slots - giant * self.baby  # where the giant step takes the slot
        inside = (place >= 0) & (place < self.reach + self.period_in - self.diagonals)
        return np.where(inside, padded[place % self.period_out, (slots + baby) % self.period_in], 0.0)


@dataclass(frozen=True)
class Packing:
    """Layout of a circuit's vectors in slots.

    The packed products are those for the forms (layer, False) and the gates (layer, True) of each layer, and for the
    outputs (number of layers + 1, False).
    """

    sums: dict[tuple[int, bool], tuple[PackedProduct, ...]]
    period: int  # distance of the copies of the input
    block: int  # slots for one row of inputs

    @property
    def rotations(self) -> int:
        """Number of rotations in one evaluation, at most: forms and gates share some."""
        return sum(product.rotations for products in self.sums.values() for product in products)

    @property
    def steps(self) -> set[int]:
        """Distances of all rotations."""
        return {step for products in self.sums.values() for product in products for step in product.steps}


def pack(circuit: Circuit) -> Packing:
    """Choose the periods of all vectors, from the outputs to the input, for the fewest rotations."""
    last = len(circuit.layers) + 1
    sums = {(i, False): layer.forms for i, layer in enumerate(circuit.layers, 1)} | {(last, False): circuit.outputs}
    sums |= {(i, True): layer.gates for i, layer in enumerate(circuit.layers, 1) if layer.gates}
    period, reach = {last: circuit.dim_out}, {last: circuit.dim_out}
    for layer in reversed(range(last)):
        size = circuit.layers[layer - 1].size if layer else circuit.dim_in + 1
        users = [
            (target, sum(term.layer == layer for term in terms))
            for (target, _), terms in sums.items()
            if any(term.layer == layer for term in terms)
        ]
        # A period that is a multiple of a user's allows folds; more than twice the size is not worth them.
        multiples = {period[target] << k for target, _ in users for k in range(12)}
        candidates = {size} | {-(-size // m) * m for m in multiples if m < 2 * size}

        def cost(p: int, users: list[tuple[int, int]] = users) -> int:
            splits = [(_split(p, period[target], count), count) for target, count in users]
            return sum(_ROTATION * rotations + diagonals * count for (diagonals, _, _, rotations), count in splits)

        costs = {p: cost(p) for p in candidates if p < 2 * size}
        period[layer] = min(costs, key=lambda p: (costs[p], p))
        reach[layer] = max((reach[target] + period[layer] - 1 for target, _ in users), default=size)

    def packed(target: int, terms: tuple[LinearTerm, ...]) -> Iterator[PackedProduct]:
        for layer in sorted({term.layer for term in terms}):
            here = tuple(term for term in terms if term.layer == layer)
            diagonals, folds, baby, _ = _split(period[layer], period[target], len(here))
            yield PackedProduct(here, period[layer], period[target], diagonals, folds, baby, reach[target])

    products = {key: tuple(packed(key[0], terms)) for key, terms in sums.items()}
    return Packing(products, period[0], reach[0])


def _split(period_in: int, period_out: int, count: int) -> tuple[int, int, int, int]:
    """Diagonals, folds, baby steps and rotations of a product with `count` vectors."""
    diagonals, folds = period_in, 0
    while diagonals % (2 * period_out) == 0:
        diagonals, folds = diagonals // 2, folds + 1
    rotations = {b: count * (b - 1) - (-diagonals // b) - 1 + folds for b in range(1, math.isqrt(diagonals) + 2)}
    baby = min(rotations, key=lambda b: rotations[b])
    return diagonals, folds, baby, rotations[baby]
