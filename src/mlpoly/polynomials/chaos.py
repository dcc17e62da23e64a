"""Polynomial chaos: a sum of products of Hermite polynomials in whitened coordinates, any degree in few inputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from mlpoly.arrays import Array, as_integer, constant, namespace, promote, take_rows
from mlpoly.polynomials.base import Polynomial, at_least_single, check_points
from mlpoly.polynomials.files import save_polynomial
from mlpoly.polynomials.source import Source
from mlpoly.records import record, static
from mlpoly.special import hermite

__all__ = ["ChaosPolynomial", "hermite_products", "multi_indices"]


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
    exponents : tuple of tuples of int, t by r
        The multi-indices a; an integer array is taken as well.
    values : array (o, t)
    inputs : GaussianMixture or None
        What the polynomial was fitted under, if known.
    report : SolveReport or None
    source : Source
    """

    center: Array
    whitener: Array
    exponents: Any = static()
    values: Array
    inputs: Any = None
    report: Any = static(default=None)
    source: Source = static(default=Source())

    def __post_init__(self) -> None:
        # They are structure, and hashable: JAX must not trace them.
        rows = np.asarray(self.exponents, dtype=np.int64).tolist()
        object.__setattr__(self, "exponents", tuple(map(tuple, rows)))

    @cached_property
    def _table(self) -> np.ndarray:
        """The exponents as an integer array (t, r)."""
        return np.asarray(self.exponents, dtype=np.int64).reshape(len(self.exponents), self.whitener.shape[0])

    @property
    def degree(self) -> int:
        """Total degree."""
        return max(map(sum, self.exponents))

    @property
    def dim_in(self) -> int:
        """Number of inputs d."""
        return int(self.center.shape[0])

    @property
    def dim_out(self) -> int:
        """Number of outputs o."""
        return int(self.values.shape[0])

    @property
    def prototype(self) -> Array:
        """The centre, to tell library, dtype and device."""
        return self.center

    def __repr__(self) -> str:
        shape = f"{self.dim_in} -> {self.dim_out}, {len(self.exponents)} terms"
        return f"ChaosPolynomial(degree={self.degree}, {shape}, {self.source})"

    def __call__(self, x: Array) -> Array:
        """Values (..., o) at points x (..., d)."""
        x, p = check_points(x, self.center, self.dim_in), at_least_single(self)
        return p._sum(p._coordinates(x), p._table, p.values)

    def _coordinates(self, x: Array) -> Array:
        u, whitener = promote(x - self.center, self.whitener)
        return u @ whitener.T

    def _sum(self, z: Array, exponents: np.ndarray, values: Array) -> Array:
        """Values (..., o) of the series with the given exponents (t, r) and coefficients (o, t)."""
        features, values = promote(hermite_products(z, exponents), values)
        xp = namespace(values=values)
        return xp.moveaxis(xp.tensordot(values, features, axes=1), 0, -1)

    def truncate(self, degree: int) -> ChaosPolynomial:
        """Drop the products above `degree`. Under a mixture this is NOT the optimum of that degree."""
        degree = as_integer("degree", degree, 0)
        if degree >= self.degree:
            return self
        rows = np.flatnonzero(self._table.sum(axis=1) <= degree)
        values = take_rows(self.values.T, rows).T
        source = Source(self.source.activation)
        return ChaosPolynomial(self.center, self.whitener, self._table[rows], values, self.inputs, None, source)

    def gradient(self, x: Array) -> Array:
        """Jacobian (..., o, d) at points x (..., d)."""
        p = at_least_single(self)
        z = p._coordinates(check_points(x, p.center, self.dim_in))
        if not p.exponents[0]:
            return (z @ p.whitener)[..., None, :] + p.values[:, :1] * 0
        xp = namespace(values=p.values)
        parts = [p._sum(z, *p._differentiated((i,))) for i in range(len(p.exponents[0]))]
        slopes, whitener = promote(xp.stack(parts, axis=-1), p.whitener)
        return slopes @ whitener

    def hessian(self, x: Array) -> Array:
        """Second derivatives (..., o, d, d) at points x (..., d)."""
        p = at_least_single(self)
        return 2 * p._tensor_at(p._coordinates(check_points(x, self.center, self.dim_in)), 2)

    def tensor(self, k: int) -> Array:
        """Symmetric coefficients (o, d, ..., d) of the monomials of degree k: the k-th derivatives at x = 0 over k!."""
        p = at_least_single(self)
        return p._tensor_at(-(p.whitener @ p.center), k)

    def _tensor_at(self, at: Array, k: int) -> Array:
        """The k-th derivatives with respect to x over k!, (..., o, d, ..., d), at points given as z (..., r)."""
        xp = namespace(values=self.values)
        r, d, o = self.whitener.shape[0], self.dim_in, (*at.shape[:-1], self.dim_out)
        total = self._sum(at, self._table, self.values) if k == 0 else self._derivatives(at, k)
        total, whitener = promote(xp.reshape(total, (*o, *[r] * k)), self.whitener)
        for _ in range(k):
            # Contract the first input axis; the result moves to the end, so that after k turns the order is restored.
            total = xp.tensordot(total, whitener, axes=([len(o)], [0]))
        return xp.reshape(total, (*o, *[d] * k))

    def _derivatives(self, at: Array, k: int) -> Array:
        """Symmetric tensor (..., o, r^k) of derivatives with respect to z over k!, from he_a' = sqrt(a) he_{a-1}."""
        xp = namespace(values=self.values)
        columns: dict[tuple[int, ...], Array] = {}
        out = []
        for chosen in itertools.product(range(self.whitener.shape[0]), repeat=k):
            key = tuple(sorted(chosen))
            if key not in columns:
                columns[key] = self._sum(at, *self._differentiated(key)) / math.factorial(k)
            out.append(columns[key])
        return xp.stack(out, axis=-1) if out else self._sum(at, self._table, self.values)[..., None][..., :0]

    def _differentiated(self, chosen: tuple[int, ...]) -> tuple[np.ndarray, Array]:
        """Exponents and coefficients of the derivative with respect to the chosen coordinates of z."""
        taken = np.bincount(np.asarray(chosen, dtype=int), minlength=self._table.shape[1])
        left = self._table - taken
        rows = np.flatnonzero((left >= 0).all(axis=1))
        if rows.size == 0:
            return self._table[:1] * 0, self.values[:, :1] * 0
        factors = [
            math.sqrt(math.prod(math.perm(a, int(b)) for a, b in zip(self.exponents[i], taken, strict=True)))
            for i in rows
        ]
        return left[rows], take_rows(self.values.T, rows).T * constant(factors, self.values)

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


def hermite_products(z: Array, exponents: np.ndarray) -> Array:
    """Products prod_i he_{a_i}(z_i): (t, ...) for z (..., r) and exponents (t, r)."""
    xp = namespace(z=z)
    variables = exponents.shape[1]
    table = xp.stack(list(hermite(z, int(exponents.max(initial=0)))))  # (n + 1, ..., r)
    if not variables:
        return xp.sum(table[:1, ...], axis=-1) + 1  # no variable: the empty product, in the shape of the points
    rows = xp.reshape(xp.moveaxis(table, -1, 1), (-1, *z.shape[:-1]))  # he_a(z_i) in row a r + i
    # A product has no more factors than its degree, which is far below r: the variables it has, then he_0 = 1.
    factors = max(1, int((exponents > 0).sum(axis=1).max(initial=0)))
    chosen = np.argsort(exponents == 0, axis=1, kind="stable")[:, :factors]
    places = np.take_along_axis(exponents, chosen, axis=1) * variables + chosen
    out = take_rows(rows, places[:, 0])
    for k in range(1, factors):
        out = out * take_rows(rows, places[:, k])
    return out
