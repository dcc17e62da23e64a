"""A polynomial of any degree in few inputs under one Gaussian, in products of Hermite polynomials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlpoly.arrays import Array, constant
from mlpoly.inputs.coordinates import Coordinates
from mlpoly.moments.expansion import Expansion
from mlpoly.moments.hermite_products import Ladder, conditioned, ladder
from mlpoly.moments.quadratic import Quadratic


@dataclass(frozen=True, eq=False)
class Products:
    """f(x) = sum_b values_b prod_i he_{b_i}(z_i) in the standard coordinates z of a Gaussian."""

    coordinates: Coordinates
    own: Ladder  # the exponents b
    values: Array  # (t, o)

    @property
    def mean(self) -> Array:
        """E[f] (o,)."""
        return self.values[0, :]

    @property
    def degree(self) -> int:
        """Total degree."""
        return int(self.own.degrees.max(initial=0))

    def like(self, other: Expansion | Quadratic | Products, degree: int) -> Products:
        """Another function under the same inputs, up to a degree, in these products."""
        own = self.own if degree == self.degree else ladder(self.own.variables, degree)
        if isinstance(other, Products):
            return Products(self.coordinates, own, other.values[: len(own.exponents), :])
        return Products(self.coordinates, own, other.in_products(self.coordinates.back, own))

    def minus(self, other: Products) -> Products:
        """Difference of two functions in the same products."""
        return Products(self.coordinates, self.own, self.values - other.values)

    def covariances(self, other: Products, times: Callable[[Array], Array] | None, full: bool) -> list[Array]:
        """E[f g] at degree 1, 2, ..., where `times` multiplies with the covariance of the x of f and that of g."""
        values = other.values
        if times is not None:
            forward = self.coordinates.forward
            values = conditioned(values, times(forward) @ forward.T, self.own)
        if full:
            blocks = [np.flatnonzero(self.own.degrees == k) for k in range(1, self.degree + 1)]
            spans = [slice(int(b[0]), int(b[-1]) + 1) if len(b) else slice(0, 0) for b in blocks]
            return [self.values[s, :].T @ values[s, :] for s in spans]
        each = constant(np.arange(1, self.degree + 1)[:, None] == self.own.degrees, values)
        return list(each @ (self.values * values))
