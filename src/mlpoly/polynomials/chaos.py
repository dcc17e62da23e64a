"""Polynomial chaos: a sum of products of Hermite polynomials in whitened coordinates, any degree in few inputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np

from mlpoly.arrays import Array, constant, namespace, promote, record, static, take_rows
from mlpoly.polynomials.base import Polynomial, check_points
from mlpoly.polynomials.files import save_polynomial
from mlpoly.polynomials.source import Source
from mlpoly.special import hermite

__all__ = ["ChaosPolynomial", "multi_indices"]


def multi_indices(variables: int, degree: int) -> np.ndarray:
    """Exponents (t, variables) of all monomials of total degree up to `degree`, by degree, then lexicographically."""
    rows = []
    for k in range(degree + 1):
        for chosen in itertools.combinations_with_replacement(range(variables), k):
            row = [0] * variables
            for i in chosen:
                row[i] += 1
            rows.append(row)
    return np.asarray(rows, dtype=np.int64).reshape(len(rows), variables)


@record
class ChaosPolynomial(Polynomial):
    """p(x) = sum_a values[:, a] prod_i he_{a_i}(z_i), with z = whitener (x - center).

    Attributes
    ----------
    center : array (d,)
    whitener : array (r, d)
    exponents : NumPy integer array (t, r)
        The multi-indices a.
    values : array (o, t)
    inputs : GaussianMixture or None
        What the polynomial was fitted under, if known.
    report : SolveReport or None
    source : Source
    """

    center: Array
    whitener: Array
    exponents: np.ndarray
    values: Array
    inputs: Any = None
    report: Any = static(default=None)
    source: Source = static(default=Source())

    @property
    def degree(self) -> int:
        """Total degree."""
        return int(self.exponents.sum(axis=1).max(initial=0))

    @property
    def dim_in(self) -> int:
        """Number of inputs d."""
        return int(self.center.shape[0])

    @property
    def dim_out(self) -> int:
        """Number of outputs o."""
        return int(self.values.shape[0])

    @property
    def sample_array(self) -> Array:
        """The centre, to tell library, dtype and device."""
        return self.center

    def __repr__(self) -> str:
        terms = self.exponents.shape[0]
        return f"ChaosPolynomial(degree={self.degree}, {self.dim_in} -> {self.dim_out}, {terms} terms, {self.source})"

    def __call__(self, x: Array) -> Array:
        """Values (..., o) at points x (..., d)."""
        x = check_points(x, self.center, self.dim_in)
        z, whitener = promote(x - self.center, self.whitener)
        features = _features(z @ whitener.T, self.exponents)
        features, values = promote(features, self.values)
        xp = namespace(values=values)
        return xp.moveaxis(xp.tensordot(values, features, axes=1), 0, -1)

    def tensor(self, k: int) -> Array:
        """Symmetric coefficients (o, d, ..., d) of the monomials of degree k: the k-th derivatives at x = 0 over k!."""
        xp = namespace(values=self.values)
        r, d, o = self.whitener.shape[0], self.dim_in, self.dim_out
        at = -(self.whitener @ self.center)
        total = self.values @ _features(at, self.exponents) if k == 0 else self._derivatives(at, k)
        total = xp.reshape(total, (o, *[r] * k))
        for _ in range(k):
            # Contract the first input axis; the result moves to the end, so that after k turns the order is restored.
            total = xp.tensordot(total, self.whitener, axes=([1], [0]))
        return xp.reshape(total, (o, *[d] * k))

    def _derivatives(self, at: Array, k: int) -> Array:
        """Symmetric tensor (o, r^k) of derivatives with respect to z over k!, from he_a' = sqrt(a) he_{a-1}."""
        xp = namespace(values=self.values)
        columns: dict[tuple[int, ...], Array] = {}
        out = []
        for chosen in itertools.product(range(self.whitener.shape[0]), repeat=k):
            key = tuple(sorted(chosen))
            if key not in columns:
                columns[key] = self._derivative(at, key) / math.factorial(k)
            out.append(columns[key])
        return xp.stack(out, axis=-1)

    def _derivative(self, at: Array, chosen: tuple[int, ...]) -> Array:
        taken = np.bincount(np.asarray(chosen, dtype=int), minlength=self.exponents.shape[1])
        left = self.exponents - taken
        rows = np.flatnonzero((left >= 0).all(axis=1))
        if rows.size == 0:
            return self.values[:, 0] * 0
        factors = [
            math.sqrt(math.prod(math.perm(int(a), int(b)) for a, b in zip(self.exponents[i], taken, strict=True)))
            for i in rows
        ]
        weights = take_rows(self.values.T, rows).T
        return weights @ (_features(at, left[rows]) * constant(factors, self.values))

    def tensor_numbers(self, k: int) -> int:
        """The result, in input and in whitened coordinates."""
        return self.dim_out * (self.dim_in**k + int(self.whitener.shape[0]) ** k)

    def quadratic_form(self, direction: Array) -> Callable[[Array], Array]:
        """Product of the quadratic coefficients along an output direction (o,) with a block (d, m)."""
        form = namespace(values=self.values).tensordot(direction, self.coefficients().quadratic, axes=1)
        return lambda block: form @ block

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file with a JSON header; `mlpoly.load` reads it."""
        save_polynomial(self, path)


def _features(z: Array, exponents: np.ndarray) -> Array:
    """Products prod_i he_{a_i}(z_i): (t, ...) for z (..., r)."""
    xp = namespace(z=z)
    tables = list(hermite(z, int(exponents.max(initial=0))))
    table = xp.stack(tables)  # (n + 1, ..., r)
    if not exponents.shape[1]:
        return xp.sum(table[:1, ...], axis=-1) + 1  # no variable: the empty product, in the shape of the points
    out = take_rows(table[..., 0], exponents[:, 0])
    for i in range(1, exponents.shape[1]):
        out = out * take_rows(table[..., i], exponents[:, i])
    return out
