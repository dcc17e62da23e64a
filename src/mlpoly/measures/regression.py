"""Means given some inputs on data: least squares with polynomials of these inputs.

Data of continuous inputs have no two rows with the same x_S, so E[f | x_S] is the closest polynomial of x_S. Groups of
rows are left out in turn (jackknife), which shows how much the rows matter.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlpoly.arrays import Array, namespace, no_gradients, safe_inverse, safe_root, triangular_factor
from mlpoly.arrays.placement import constant_index, take_rows, to_numpy, widen
from mlpoly.inputs import Independent, Samples
from mlpoly.linalg.least_squares import LeastSquares
from mlpoly.measures.functions import checked_data, outputs_of
from mlpoly.measures.orthogonal import Orthogonal
from mlpoly.moments.hermite_products import multi_indices, products
from mlpoly.polynomials import Polynomial

GROUPS = 10
_MOST, _HIGHEST = 1000, 8  # monomials and degree of a regression
_ROWS = 5  # for each monomial, where the degree is chosen here


class Regression:
    """Polynomials of any of the inputs fitted to a function on data, by replicates that leave out some rows."""

    replicates = GROUPS
    factor = math.sqrt(GROUPS - 1)  # from the standard deviation between replicates to the standard error

    def __init__(self, function: Callable[[Array], Array], data: Samples) -> None:
        data = checked_data(data, 2, net=function)
        values = widen(outputs_of("net", function, data.x))
        xp, rows = namespace(values=values), np.random.default_rng(0).permutation(data.count)
        weights = values[:, :1] * 0 + 1 / data.count if data.weights is None else widen(data.weights)[:, None]
        self.count = 1 / float(to_numpy(xp.sum(weights**2)))  # of equal weights that would scatter as much
        self.degree = _degree_for(function, data.dim, self.count)
        self.exponents, self.data = multi_indices(data.dim, self.degree), data
        self.inverse, self.level = safe_inverse(safe_root(data._variances())), xp.sum(weights * values, axis=0)
        self.variance = xp.sum(weights * (values - self.level) ** 2, axis=0)
        parts = []
        with no_gradients(values):
            for group in np.array_split(rows, GROUPS):
                x, y, w = (take_rows(a, group) for a in (data.x, values - self.level, weights))
                features = products((widen(x) - data.mean) * self.inverse, self.exponents).T
                parts.append(LeastSquares().add(w, features, y).factor)
            self.factors = [triangular_factor(xp.concat(parts[:g] + parts[g + 1 :])) for g in range(GROUPS)]
        self.remainder, self.bound = 1 - xp.mean(self(np.arange(data.dim)), axis=0), self.variance * 0
        self.sampled = f"regression of degree {self.degree} on {data.count} rows"

    def _solved(self, factor: Array, places: np.ndarray) -> tuple[np.ndarray, Array, Array, int]:
        """Columns of the monomials of some inputs, their coefficients (t, o), what they leave (o,), and their rank."""
        others = np.setdiff1d(np.arange(self.exponents.shape[1]), places)
        index = np.flatnonzero(self.exponents[:, others].sum(axis=1) == 0)
        xp, terms = namespace(factor=factor), len(self.exponents)
        basis, rest = xp.take(factor, constant_index(index, factor), axis=1), factor[:, terms:]
        scale = safe_inverse(xp.sqrt(xp.sum(basis**2, axis=0)))
        left, sizes, right = xp.linalg.svd(basis * scale, full_matrices=False)
        kept = sizes > 10 * len(index) * float(xp.finfo(sizes.dtype).eps) * xp.max(sizes)
        along = left.T @ rest
        inverse = xp.where(kept, 1 / xp.where(kept, sizes, 1.0), 0.0)
        residual = rest - left @ (along * xp.astype(kept, along.dtype)[:, None])
        coefficients = (right.T @ (inverse[:, None] * along)) * scale[:, None]
        return index, coefficients, xp.sum(residual**2, axis=0), int(xp.count_nonzero(kept))

    def __call__(self, places: np.ndarray) -> Array:
        """Fraction of the variance that x_S explains, (r, o), less what monomials explain by chance: adjusted R^2."""
        rows, count = [], self.count * (1 - 1 / GROUPS)
        xp = namespace(level=self.level)
        for factor in self.factors:
            *_, left, rank = self._solved(factor, places)
            *_, nothing, _ = self._solved(factor, places[:0])
            rows.append(1 - left * (count - 1) / (count - rank) / xp.where(nothing > 0, nothing, 1.0))
        return xp.stack(rows)

    def mean_given(self, places: np.ndarray) -> Callable[[Array], Array]:
        """E[f | x_S] by replicates: values (n, s) to means (n, r, o)."""
        solved = [self._solved(factor, places) for factor in self.factors]
        exponents, xp = self.exponents[solved[0][0]][:, places], namespace(level=self.level)
        center, inverse = take_rows(self.data.mean, places), take_rows(self.inverse, places)
        coefficients = xp.stack([c for _, c, *_ in solved])  # (r, t, o)

        def mean(x: Array) -> Array:
            features = products((widen(x) - center) * inverse, exponents).T
            return xp.permute_dims(features @ coefficients, (1, 0, 2)) + self.level

        return mean


def _degree_for(function: Any, dim: int, count: float) -> int:
    """The degree of a polynomial, or the highest with five rows for each monomial."""
    own = function.degree if isinstance(function, Polynomial) else 0
    if own and math.comb(dim + own, own) <= min(_MOST, count / 2):
        return own
    if count < 2 * (dim + 1):
        raise ValueError(
            f"inputs have {count:.0f} rows, too few for means given some of {dim} inputs; use more rows, groups of a "
            f"smaller table, or a distribution such as mlpoly.Gaussian.from_samples(x, shrinkage=0.01)."
        )
    fitting = [k for k in range(1, _HIGHEST + 1) if math.comb(dim + k, k) <= min(_MOST, count / _ROWS)]
    return max(fitting, default=1)


def without_gaussians(function: Any, inputs: Any) -> Any:
    """What has the means given some inputs on data or of independent inputs; None under Gaussians."""
    if isinstance(inputs, Samples):
        return Regression(function, inputs)
    return Orthogonal(function, inputs) if isinstance(inputs, Independent) else None
