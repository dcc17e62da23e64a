"""All monomials of a polynomial, a slice of its coefficients at a time, and their standard deviations.

A slice of degree k belongs to k - 2 leading inputs and holds the monomials with any two more: d x d numbers, so that
nothing of size d^k is ever made. Everything here is NumPy in float64: it is for reading, not for computing on.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any

import numpy as np

from mlpoly.arrays import to_numpy, widen
from mlpoly.errors import TooLargeError
from mlpoly.features.quadratic_part import check_part
from mlpoly.inputs import Gaussian, Gaussians, Inputs, inputs_of
from mlpoly.polynomials import BoundedPolynomial, ComposedPolynomial, Polynomial
from mlpoly.polynomials.symmetric import multisets, places

MOST = 200_000_000  # monomials that are looked at one by one
_POINTS = 2**16  # of distributions under which their spreads have no closed form
_MOMENTS, _RECURSIVE = 400_000, 5  # moments in a table, and degree up to which spreads do without one
Weights = Callable[[tuple[int, ...], int], np.ndarray]


def count_monomials(variables: int, degree: int) -> int:
    """Number of monomials of degree 1 to `degree`."""
    return math.comb(variables + degree, degree) - 1


def highest_degree(poly: Polynomial) -> int:
    """Degree up to which the terms of a polynomial are listed: of a composed one those that are not too many."""
    degree, d = poly.degree, poly.dim_in
    if isinstance(poly, ComposedPolynomial):
        while degree > 2 and math.comb(d + 2 * degree - 1, 2 * degree) > _MOMENTS:
            degree -= 1
    return degree


def check_count(poly: Polynomial, limit: int, remedy: str, degree: int | None = None) -> None:
    """Raise if a polynomial has more monomials than `limit`, up to a degree."""
    degree = poly.degree if degree is None else degree
    count = count_monomials(poly.dim_in, degree)
    if count > limit:
        size = f"degree {degree} in {poly.dim_in} inputs has {count} monomials"
        raise TooLargeError(f"a polynomial of {size}, more than {limit}; {remedy}.")


def slices(poly: Polynomial, degree: int | None = None) -> Iterator[tuple[tuple[int, ...], int, np.ndarray]]:
    """Leading inputs, degree, and coefficients of a NumPy polynomial with one output, without the constant.

    Of degree 1 the coefficients are (d,). Of degree k >= 2 they are (d, d), for the leading inputs times two more; of
    the equal ones in different slices, or on both sides of a diagonal, only one is not zero.
    """
    d = poly.dim_in
    if poly.degree >= 1:
        yield (), 1, poly.coefficients().linear[0, :]
    for k in range(2, (poly.degree if degree is None else degree) + 1):
        tensor, upper = poly.tensor_slices(k), np.triu(np.ones((d, d), dtype=bool))
        for lead in itertools.combinations_with_replacement(range(d), k - 2):
            # k! / prod(counts!) entries of the symmetric tensor belong to the same monomial.
            counts = np.bincount(np.asarray(lead, dtype=int), minlength=d)
            repeats = math.prod(math.factorial(int(c)) for c in counts)
            equal = repeats * (counts[:, None] + 1) * (counts[None, :] + 1 + np.eye(d, dtype=int))
            mask = upper & (np.arange(d) >= (lead[-1] if lead else 0))[:, None]
            yield lead, k, np.where(mask, tensor(lead)[0, ...] * (math.factorial(k) / equal), 0.0)


def in_order(poly: Polynomial) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Coefficients of all monomials and the inputs that are their factors, by degree, then by their inputs."""
    for lead, k, coefficients in slices(poly):
        if k == 1:
            yield from zip(coefficients.tolist(), zip(range(poly.dim_in)), strict=True)
            continue
        start = lead[-1] if lead else 0
        rows, columns = (index + start for index in np.triu_indices(poly.dim_in - start))
        for i, j, value in zip(rows.tolist(), columns.tolist(), coefficients[rows, columns].tolist(), strict=True):
            yield value, (*lead, i, j)


def strongest(
    poly: Polynomial, weights: Weights, count: int, degree: int | None = None
) -> list[tuple[float, tuple[int, ...], float]]:
    """The monomials with the largest |coefficient * weight| of a NumPy polynomial with one output, in descending order.

    Returned are products, inputs and coefficients; `weights` takes the leading inputs and the degree of a slice.
    """
    degree = min(poly.degree, highest_degree(poly) if degree is None else degree)
    check_count(poly, MOST, f"take fewer degrees, terms(degree={min(2, degree - 1)}), or fewer inputs", degree)
    best: list[tuple[float, tuple[int, ...], float, float]] = []  # a heap: the weakest comes first
    for lead, k, coefficients in slices(poly, degree):
        products = coefficients * weights(lead, k)
        sizes = np.abs(products).ravel()
        least = best[0][0] if len(best) == count else 0.0
        chosen = np.flatnonzero(sizes > least)
        if len(chosen) > count:
            chosen = chosen[np.argpartition(sizes[chosen], -count)[-count:]]
        for index in chosen.tolist():
            at = np.unravel_index(index, products.shape)
            item = (sizes[index], (*lead, *map(int, at)), float(coefficients[at]), float(products[at]))
            if len(best) < count:
                heapq.heappush(best, item)
            elif item > best[0]:
                heapq.heapreplace(best, item)
    # Of equally strong ones, those of lower degree and with the first inputs come first.
    ordered = sorted(best, key=lambda item: (-item[0], len(item[1]), item[1]))
    return [(product, inputs, coefficient) for _, inputs, coefficient, product in ordered]


def monomial_spread(inputs: Inputs, center: np.ndarray) -> Weights:
    """Return a function to the standard deviations of monomials in x - center: closed forms, or on points."""
    if not isinstance(inputs, Gaussians):
        inputs = inputs.points(_POINTS)
        y = np.asarray(inputs.x, dtype=np.float64) - center
        weights = np.full(len(y), 1 / len(y)) if inputs.weights is None else np.asarray(inputs.weights)

        def on_samples(lead: tuple[int, ...], degree: int) -> np.ndarray:
            if degree == 1:
                return np.sqrt(weights @ (y - weights @ y) ** 2)
            along = np.prod(y[:, list(lead)], axis=1)
            mean = (y * (weights * along)[:, None]).T @ y
            square = (y**2 * (weights * along**2)[:, None]).T @ y**2
            return np.sqrt(np.clip(square - mean**2, 0, None))

        return on_samples
    fractions = [float(w) for w in inputs.weights]
    moments = [_Products(g, center) for g in inputs.components]

    def spread(lead: tuple[int, ...], degree: int) -> np.ndarray:
        means = [m.mean(lead, degree) for m in moments]
        middle = sum(w * mean for w, mean in zip(fractions, means, strict=True))
        total = sum(
            w * (m.variance(lead, degree) + (mean - middle) ** 2)
            for w, m, mean in zip(fractions, moments, means, strict=True)
        )
        return np.sqrt(np.clip(total, 0, None))

    return spread


class _Products:
    """Means and variances of monomials in y = x - center under a Gaussian, (d,) or (d, d) for a slice."""

    def __init__(self, inputs: Gaussian, center: np.ndarray) -> None:
        self.inputs, self.center = inputs, np.asarray(inputs.mean) - center
        self.tables: list[np.ndarray] = []

    @cached_property
    def cov(self) -> np.ndarray:
        """The covariance as a matrix, which monomials of degree 1 do without."""
        return np.asarray(self.inputs.covariance)

    def mean(self, lead: tuple[int, ...], degree: int) -> np.ndarray:
        if degree == 1:
            return self.center
        if self._tabulated(degree):
            return self._table(degree)[self._places(lead, 1)]
        mean, cov = self._factors(lead)
        return expected_product(degree, 1.0, lambda i, value: mean[i] * value, lambda i, j, value: cov(i, j) * value)

    def variance(self, lead: tuple[int, ...], degree: int) -> np.ndarray:
        """Covariance of the monomial with a copy of itself.

        A value is the pair of E[pq] and Cov(p, q), with p a product of factors of the monomial and q of the copy's. The
        covariance has a recursion of its own, as the difference of moments would lose its digits far from zero: where
        a factor of p meets one of q, all that they leave behind counts, E[...], and otherwise its covariance.
        """
        if degree == 1:
            return np.asarray(self.inputs._variances())
        if self._tabulated(degree):
            return self._table(2 * degree)[self._places(lead, 2)] - self.mean(lead, degree) ** 2
        mean, cov = self._factors(lead)

        def times_cov(i: int, j: int, value: np.ndarray) -> np.ndarray:
            return cov(i % degree, j % degree) * (value if (i < degree) == (j < degree) else value[[0, 0]])

        one = np.array([1.0, 0.0])[:, None, None]  # rows and columns come with the factors that have them
        return expected_product(2 * degree, one, lambda i, value: mean[i % degree] * value, times_cov)[1]

    def _tabulated(self, degree: int) -> bool:
        """Whether there is a table of moments: the recursion over many factors takes long."""
        return degree > _RECURSIVE and math.comb(len(self.center) + 2 * degree - 1, 2 * degree) <= _MOMENTS

    def _places(self, lead: tuple[int, ...], power: int) -> np.ndarray:
        """Places (d, d) in a table of moments of the leading inputs and two more, to a power."""
        d = len(self.center)
        pairs = np.stack(np.meshgrid(np.arange(d), np.arange(d), indexing="ij"), axis=-1)
        return places(np.concatenate([*[np.broadcast_to(np.asarray(lead), (d, d, len(lead))), pairs] * power], axis=-1))

    def _table(self, size: int) -> np.ndarray:
        """E[y_i y_j ...] of all products of `size` factors, at the entries of `polynomials.symmetric` (Isserlis)."""
        d = len(self.center)
        for n in range(len(self.tables), size + 1):
            rows = multisets(d, n)
            if not n:
                self.tables.append(np.ones(1))
                continue
            first, rest = rows[:, 0], rows[:, 1:]
            total = self.center[first] * self.tables[n - 1][places(rest)]
            for j in range(n - 1):
                total += self.cov[first, rest[:, j]] * self.tables[n - 2][places(np.delete(rest, j, axis=1))]
            self.tables.append(total)
        return self.tables[size]

    def _factors(self, lead: tuple[int, ...]) -> tuple[list[Any], Callable[[int, int], Any]]:
        """Means of the leading inputs and two more, over rows and columns, and covariances of two of these factors."""
        rows = len(lead)

        def between(a: int, b: int) -> Any:
            a, b = min(a, b), max(a, b)
            if b < rows:
                return self.cov[lead[a], lead[b]]
            line = self.cov[lead[a], :] if a < rows else np.diagonal(self.cov)
            return self.cov if rows <= a < b else line[:, None] if b == rows else line[None, :]

        return [*self.center[list(lead)], self.center[:, None], self.center[None, :]], between


def expected_product(
    factors: int, one: Any, times_mean: Callable[[int, Any], Any], times_cov: Callable[[int, int, Any], Any]
) -> Any:
    """E[y_0 y_1 ...] of jointly Gaussian factors (Isserlis): E[y_i R] = mean_i E[R] + sum_{j in R} cov_ij E[R / y_j].

    `one` is the empty product; the other arguments multiply a value by the mean of a factor, or the covariance of two.
    """

    @cache
    def value(left: tuple[int, ...]) -> Any:
        if not left:
            return one
        first, rest = left[0], left[1:]
        total = times_mean(first, value(rest))
        for at, other in enumerate(rest):
            total = total + times_cov(first, other, value(rest[:at] + rest[at + 1 :]))
        return total

    return value(tuple(range(factors)))


def interaction_effects(poly: Polynomial, output: int | str = 0, inputs: Inputs | None = None) -> np.ndarray:
    """Effects (d, d), symmetric, of the products (x_i - m_i)(x_j - m_j): coefficient times standard deviation."""
    inputs = inputs_of(poly, inputs)
    check_part(poly, 2)
    one = poly.output(output)
    one = one.polynomial if isinstance(one, BoundedPolynomial) else one
    form: Any = to_numpy(widen(one.truncate(2).coefficients().quadratic))[0]
    mean, cov = (to_numpy(widen(a)) for a in (inputs.mean, inputs.covariance))
    spread = monomial_spread(Gaussian(mean, cov), mean)((), 2)
    return (form + form.T) / 2 * spread * (2 - np.eye(len(cov)))  # symmetric to the last digit
