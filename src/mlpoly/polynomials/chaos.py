"""Polynomial chaos: a sum of products of Hermite polynomials in whitened coordinates, any degree in few inputs."""

import itertools
import math
from functools import cached_property
from typing import Any

import numpy as np

from mlpoly.arrays import Array, cast_like, constant, eye, namespace, promote, readable, take_rows, to_numpy, widen
from mlpoly.arrays.checks import check_points
from mlpoly.inputs import Coordinates, Gaussian
from mlpoly.moments import Products
from mlpoly.moments.hermite_products import Ladder, change_of_basis, check_monomials, ladder, products
from mlpoly.polynomials.base import Polynomial
from mlpoly.polynomials.dense import DensePolynomial
from mlpoly.polynomials.fields import Source, check_shapes, store_floats
from mlpoly.records import map_arrays, record, replace, static
from mlpoly.units import Units

_HIGHEST = 1000  # largest exponent of a polynomial with fewer terms than that
_INVERTIBLE = 1e-10  # least ratio of the singular values of coordinates from which x can be recovered


@record
class ChaosPolynomial(Polynomial):
    """p(x) = sum_a values[:, a] prod_i he_{a_i}(z_i), with z = whitener (x - center).

    Attributes
    ----------
    center : array (d,)
    whitener : array (r, d)
    exponents : tuple of tuples of int, t by r
        The multi-indices a; an integer array is accepted as well.
    values : array (o, t)
    """

    center: Array
    whitener: Array
    exponents: Any = static()
    values: Array

    def __post_init__(self) -> None:
        super().__post_init__()
        store_floats(self, "center", "whitener", "values")
        table = np.asarray(self.exponents)
        if table.size and table.dtype.kind not in "iu":
            raise TypeError(f"exponents must be integers, got {table.dtype}.")
        highest = int(table.max(initial=0))
        # Values take a recurrence up to the highest exponent, which must not outgrow the arrays.
        if len(table.shape) != 2 or not len(table) or table.min(initial=0) < 0 or highest > max(len(table), _HIGHEST):
            wanted = f"(t, r), t terms and r coordinates, from 0 to {_HIGHEST} or the number of terms"
            raise ValueError(f"exponents must be {wanted}, got shape {table.shape} with entries up to {highest}.")
        # Exponents are structure: hashable, so that JAX does not trace them.
        object.__setattr__(self, "exponents", tuple(map(tuple, table.tolist())))
        sizes = {"t": len(table), "r": table.shape[1]}
        check_shapes(self, sizes, center="d", whitener="r d", values="o t")

    @cached_property
    def table(self) -> np.ndarray:
        """The exponents as an integer array (t, r)."""
        return np.asarray(self.exponents, dtype=np.int64).reshape(len(self.exponents), self.whitener.shape[0])

    @property
    def degree(self) -> int:
        """Total degree."""
        return max(map(sum, self.exponents))

    @property
    def dim_out(self) -> int:
        """Number of outputs o."""
        return int(self.values.shape[0])

    @property
    def prototype(self) -> Array:
        """The centre."""
        return self.center

    def __repr__(self) -> str:
        shape = f"{self.dim_in} -> {self.dim_out}, {len(self.exponents)} terms"
        return f"ChaosPolynomial(degree={self.degree}, {shape}, {self.source})"

    def __call__(self, x: Array) -> Array:
        """Values (..., o) at points x (..., d)."""
        x = check_points(x, self.dim_in, polynomial=self.center)
        return self._sum(self._coordinates(x), self.table, self.values)

    def _coordinates(self, x: Array) -> Array:
        u, whitener = promote(x - self.center, self.whitener)
        return u @ whitener.T

    def _sum(self, z: Array, exponents: np.ndarray, values: Array) -> Array:
        """Values (..., o) of the series with the given exponents (t, r) and coefficients (o, t)."""
        features, values = promote(products(z, exponents), values)
        xp = namespace(values=values)
        return xp.moveaxis(xp.tensordot(values, features, axes=1), 0, -1)

    def _truncated(self, degree: int) -> "ChaosPolynomial":
        rows = np.flatnonzero(self.table.sum(axis=1) <= degree)
        values = take_rows(self.values.T, rows).T
        known = {"inputs": self.inputs, "output_names": self.output_names, "source": Source(self.source.activation)}
        return ChaosPolynomial(self.center, self.whitener, self.table[rows], values, **known)

    def gradient(self, x: Array) -> Array:
        """Jacobian (..., o, d) at points x (..., d)."""
        return self._tensor_at(self._coordinates(check_points(x, self.dim_in, polynomial=self.center)), 1)

    def hessian(self, x: Array) -> Array:
        """Second derivatives (..., o, d, d) at points x (..., d)."""
        return 2 * self._tensor_at(self._coordinates(check_points(x, self.dim_in, polynomial=self.center)), 2)

    def _tensor(self, k: int) -> Array:
        return self._tensor_at(-(self.whitener @ self.center), k)

    def _tensor_at(self, at: Array, k: int) -> Array:
        """The k-th derivatives with respect to x over k!, (..., o, d, ..., d), at points given as z (..., r)."""
        xp = namespace(values=self.values)
        r, d, o = self.whitener.shape[0], self.dim_in, (*at.shape[:-1], self.dim_out)
        total = self._sum(at, self.table, self.values) if k == 0 else self._derivatives(at, k)
        total, whitener = promote(xp.reshape(total, (*o, *[r] * k)), self.whitener)
        for _ in range(k):
            # Contract the first input axis; the result moves to the end, so that after k turns the order is restored.
            total = xp.tensordot(total, whitener, axes=([len(o)], [0]))
        return xp.reshape(total, (*o, *[d] * k))

    def _derivatives(self, at: Array, k: int) -> Array:
        """Symmetric tensor (..., o, r^k) of derivatives with respect to z over k!, from he_a' = sqrt(a) he_{a-1}."""
        xp = namespace(values=self.values)
        columns: dict[tuple[int, ...], Array] = {}
        keys = [tuple(sorted(key)) for key in itertools.product(range(self.whitener.shape[0]), repeat=k)]
        for key in dict.fromkeys(keys):
            taken = np.bincount(np.asarray(key, dtype=int), minlength=self.table.shape[1])
            used = np.flatnonzero(taken)
            rows = np.flatnonzero((self.table[:, used] >= taken[used]).all(axis=1))
            exponents, values = self.table[:1] * 0, self.values[:, :1] * 0  # where nothing is left
            if rows.size:
                squares = (math.prod(math.perm(self.exponents[i][j], int(taken[j])) for j in used) for i in rows)
                exponents, factors = self.table[rows] - taken, constant(list(map(math.sqrt, squares)), self.values)
                values = take_rows(self.values.T, rows).T * factors
            columns[key] = self._sum(at, exponents, values) / math.factorial(k)
        out = [columns[key] for key in keys]
        return xp.stack(out, axis=-1) if out else self._sum(at, self.table, self.values)[..., None][..., :0]

    def tensor_numbers(self, k: int) -> int:
        """Number of entries of the tensor in input and in whitened coordinates."""
        return self.dim_out * (self.dim_in**k + int(self.whitener.shape[0]) ** k)

    # -- second moments -----------------------------------------------------------------------------------------------

    def hermite(self, inputs: Gaussian, near: Units | None = None) -> Products:
        """Expansion under a Gaussian, of which second moments are made."""
        coordinates = Coordinates.of(inputs)
        check_monomials(coordinates.kept, self.degree, "measure it on data, with inputs=Samples(x)")
        own = ladder(coordinates.kept, self.degree)
        return Products(coordinates, own, self.in_products(widen(inputs.mean), coordinates.back, own))

    def averaged(self, noise: Gaussian) -> "ChaosPolynomial":
        """The polynomial x -> E[p(x + u)] for u of mean zero, in the widest precision: exp(D'LD / 2) p.

        L is the covariance of the noise of z, and D_j he_a = sqrt(a_j) he_{a - 1_j}.
        """
        p, r = map_arrays(replace(self, inputs=None), widen), int(self.whitener.shape[0])
        check_monomials(r, self.degree, "average its values")
        own, cov = ladder(r, self.degree), noise.times_covariance(p.whitener) @ p.whitener.T
        places = {row: i for i, row in enumerate(self.exponents)}
        index = [places.get(tuple(row), len(places)) for row in own.exponents.tolist()]
        values = namespace(values=p.values).concat([p.values, p.values[:, :1] * 0], axis=1).T
        total = term = take_rows(values, np.asarray(index, dtype=np.int64))
        for j in range(1, self.degree // 2 + 1):
            slopes = [own.lowered(term, i) for i in range(r)]
            mixed = (sum(cov[i, k] * slopes[k] for k in range(r)) for i in range(r))
            term = sum(own.lowered(row, i) for i, row in enumerate(mixed)) / (2 * j)
            total = total + term
        return replace(p, exponents=own.exponents, values=total.T)

    def in_products(self, center: Array, back: Array, own: Ladder) -> Array:
        """Coefficients (t, o) in the Hermite products of w (q,) of the polynomial at x = center + back w."""
        whitener, basis = widen(self.whitener), ladder(int(self.whitener.shape[0]), self.degree)
        place = whitener @ (widen(center) - widen(self.center))
        columns = change_of_basis(place, whitener @ back, basis, own)
        rows = {tuple(row): i for i, row in enumerate(basis.exponents.tolist())}
        chosen = take_rows(columns.T, np.asarray([rows[row] for row in self.exponents], dtype=np.int64)).T
        return chosen @ widen(self.values).T

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def _scaled(self, factor: Any) -> "ChaosPolynomial":
        return replace(self, values=self.values * factor)

    def _shifted(self, by: Array) -> "ChaosPolynomial":
        return self._with_terms(self.table[:1] * 0, by[:, None])

    def _mapped(self, matrix: Array) -> "ChaosPolynomial":
        return replace(self, values=matrix @ self.values)

    def _precomposed(self, factors: Array, offset: Array) -> "ChaosPolynomial":
        center = cast_like((widen(self.center) - offset) / factors, self.center)
        return replace(self, center=center, whitener=cast_like(self.whitener * factors, self.whitener))

    def _plus(self, other: "ChaosPolynomial") -> "ChaosPolynomial":
        same = [(self.center, other.center), (self.whitener, other.whitener)]
        if all(a is b or (readable(a, b) and a.shape == b.shape and bool((a == b).all())) for a, b in same):
            return self._with_terms(other.table, other.values)
        return sum_in_products(self, other, self.center)

    def _absorbed(self, other: Polynomial) -> "ChaosPolynomial | None":
        if isinstance(other, DensePolynomial) and max(self.degree, other.degree) <= 2:
            return None  # the dense form represents the sum, and is cheaper to evaluate
        return sum_in_products(self, other, self.center)

    def _with_terms(self, exponents: np.ndarray, values: Array) -> "ChaosPolynomial":
        """The polynomial plus products of the same coordinates with exponents (s, r) and coefficients (o, s)."""
        known: dict[tuple[int, ...], int] = {}
        for j, row in enumerate(map(tuple, exponents.tolist())):
            known.setdefault(row, j)
        own, more = promote(self.values, values)
        # Common terms are merged; a missing one refers to the column of zeros behind the last.
        shared = np.asarray([known.pop(row, len(exponents)) for row in self.exponents], dtype=np.int64)
        rest = np.setdiff1d(np.arange(len(exponents)), shared)
        xp = namespace(values=own)
        padded = xp.concat([more.T, more.T[:1, ...] * 0])
        made = xp.concat([own.T + take_rows(padded, shared), take_rows(more.T, rest)]).T
        return replace(self, exponents=(*self.exponents, *map(tuple, exponents[rest].tolist())), values=made)


def sum_in_products(one: Polynomial, two: Polynomial, center: Array) -> ChaosPolynomial:
    """Sum of any two polynomials in the coordinates of the first that determine x, else in multiples of x - center.

    The multiples are of the size of the coordinates: in units of x high powers of small inputs would cancel.
    """
    d, degree = one.dim_in, max(one.degree, two.degree)
    check_monomials(d, degree, "add the values of the polynomials, lambda x: p(x) + q(x), or truncate them first")
    chaotic = [p for p in (one, two) if isinstance(p, ChaosPolynomial)]
    whitener = back = eye(d, widen(center))
    for p in chaotic[:1]:
        xp, whitener = namespace(whitener=p.whitener), widen(p.whitener)
        size = xp.sum(xp.abs(whitener), axis=0)
        size = xp.where(size > 0, size, 1.0)
        whitener, back = eye(d, size) * size, eye(d, size) / size
    for p in chaotic:
        if p.whitener.shape[0] == d and readable(p.whitener):
            sizes = np.linalg.svd(to_numpy(widen(p.whitener)), compute_uv=False)
            if sizes[-1] > _INVERTIBLE * sizes[0]:
                center, whitener = p.center, p.whitener
                back = namespace(whitener=whitener).linalg.inv(widen(whitener))
                break
    own = ladder(d, degree)
    values = (one.in_products(center, back, own) + two.in_products(center, back, own)).T
    like = promote(one.prototype, two.prototype)[0]
    center, whitener, values = (cast_like(a, like) for a in (center, whitener, values))
    return ChaosPolynomial(center, whitener, own.exponents, values)
