"""The preconditioner of quadratics: the inverse of the Gram operator of N(0, I), in closed form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlpoly.arrays import Array, add_product, constant, eye, namespace


def standard_inverse(n: int, like: Array) -> Callable[[Array], Array]:
    """Return the inverse of the Gram operator of N(0, I), 2 H + tr(H) I - 2 H_00 e e', on (o, m, m).

    With it, the operator in these coordinates is the identity for one Gaussian and well scaled for a mixture. Matrices
    may be padded with zeros beyond n.
    """
    m = like.shape[-1]
    # It halves the matrix and adds to its diagonal a linear map of the diagonal: few kernels, two passes over memory.
    map_of_diagonal = np.zeros((m, m))
    map_of_diagonal[0, 1:n] = map_of_diagonal[1:n, 0] = -1
    map_of_diagonal[0, 0] = n
    change, one = constant(map_of_diagonal, like), eye(m, like)

    def apply(matrices: Array) -> Array:
        half = 0.5 * matrices
        diagonal = namespace(half=half).linalg.diagonal(half)
        return add_product(half, (diagonal @ change)[:, None, :], one)

    return apply
