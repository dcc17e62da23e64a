"""Dense coefficients in the monomial basis, computed from the stored form on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpoly.arrays import Array, as_integer
from mlpoly.errors import TooLargeError

if TYPE_CHECKING:
    from mlpoly.polynomials.base import Polynomial


class Coefficients:
    """Symmetric coefficient tensors T_k with p(x) = sum_k T_k[x, ..., x].

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.array([[1.0, 2.0]]), np.ones(1), np.ones((1, 1)), None, "square")  # (x0 + 2 x1 + 1)^2
    >>> found = mp.fit(net, mp.Gaussian.standard(2), degree=2).coefficients()
    >>> found.constant.round(6).tolist(), found.linear.round(6).tolist(), found.quadratic.round(6).tolist()
    ([1.0], [[2.0, 4.0]], [[[1.0, 2.0], [2.0, 4.0]]])
    """

    def __init__(self, polynomial: Polynomial, max_bytes: int) -> None:
        self._polynomial = polynomial
        self._max_bytes = max_bytes
        self._made: dict[int, Array] = {}

    def __repr__(self) -> str:
        p = self._polynomial
        return f"Coefficients(degree={p.degree}, {p.dim_in} -> {p.dim_out})"

    @property
    def degree(self) -> int:
        """Highest degree."""
        return self._polynomial.degree

    @property
    def constant(self) -> Array:
        """Constant term (o,)."""
        return self.tensor(0)

    @property
    def linear(self) -> Array:
        """Linear coefficients (o, d)."""
        return self.tensor(1)

    @property
    def quadratic(self) -> Array:
        """Quadratic coefficients (o, d, d), symmetric."""
        return self.tensor(2)

    def tensor(self, k: int) -> Array:
        """Coefficients of degree k: (o, d, ..., d), symmetric in the k input axes; zeros above the degree."""
        k = as_integer("k", k, 0)
        if k not in self._made:
            p, limit = self._polynomial, self._max_bytes
            size = p.tensor_numbers(k) * p.prototype.dtype.itemsize
            if size > limit:
                raise TooLargeError(
                    f"the tensor of degree {k} needs {size / 2**30:.3g} GiB, more than {limit / 2**30:.3g} GiB. Keep "
                    f"the stored form (poly(x), eigenfeatures), or raise poly.coefficients(max_bytes=...)."
                )
            self._made[k] = p.tensor(k)
        return self._made[k]
