"""The part of degree exactly 2 of a polynomial as a sum of rank-one slices, each with its written vector (MATH 12)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlpoly.arrays import Array, chunks, namespace, safe_inverse
from mlpoly.arrays.placement import cast_like, cast_result, constant, eye, take_rows, widen
from mlpoly.inputs import Gaussian
from mlpoly.moments.hermite_products import check_monomials, ladder
from mlpoly.polynomials import BoundedPolynomial, Polynomial, RidgePolynomial
from mlpoly.records import record

_ROWS = 1024  # candidates at a time: (chunk, m) arrays stay small


@record
class QuadraticPart:
    """p_2(x) = sum_i writes_i (left_i.z right_i.z - left_i.right_i), with x = mean + S^(1/2) z.

    Under the Gaussian the covariance of z'Mz and z'Nz is 2 tr(MN), so that everything here is an inner product of the
    slices M_i = sym(left_i right_i').
    """

    left: Array  # (m, d), whitened read directions
    right: Array  # (m, d), the same array for slices that are squares
    writes: Array  # (m, o)

    def along(self, a: Array, b: Array) -> tuple[Array, tuple[Array, Array, Array, Array]]:
        """Inner products (r, o) with sym(a_j b_j') for rows (r, d), and the products with left and right, (r, m)."""
        al = a @ self.left.T
        ar = al if self.right is self.left else a @ self.right.T
        bl, br = (al, ar) if b is a else (b @ self.left.T, b @ self.right.T)
        return (0.5 * (al * br + ar * bl)) @ self.writes, (al, ar, bl, br)

    def slopes(self, weights: Array, seen: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        """Gradients (r, d) in a and b of the sum of weights (r, o) times `along`, given what that returned."""
        al, ar, bl, br = seen
        neurons = 0.5 * (weights @ self.writes.T)
        in_a = (neurons * br) @ self.left + (neurons * bl) @ self.right
        return in_a, in_a if bl is al else (neurons * ar) @ self.left + (neurons * al) @ self.right

    def energy(self) -> float:
        """Half the variance of the part, summed over the outputs: the squared norm of its tensor."""
        total = 0.0
        for rows in chunks(int(self.left.shape[0]), _ROWS):
            a = self.left[rows, ...]
            products, _ = self.along(a, a if self.right is self.left else self.right[rows, ...])
            total += float((widen(products) * widen(self.writes[rows, ...])).sum())
        return total

    def products(self) -> tuple[Array, Array, Array]:
        """The slices themselves as candidates: unit directions (m, d) twice, and inner products (m, o)."""
        return self._with_inner_products(unit(self.left), unit(self.right))

    def squares(self) -> tuple[Array, Array, Array]:
        """Unit directions (m, d) or (2 m, d) whose squares span the part, twice, and inner products with it.

        A product is a difference of two squares: 4 sym(lr') = (l + r)(l + r)' - (l - r)(l - r)'.
        """
        a = unit(self.left)
        if self.right is not self.left:
            b = unit(self.right)
            a = unit(namespace(a=a).concat([a + b, a - b]))
        return self._with_inner_products(a, a)

    def _with_inner_products(self, a: Array, b: Array) -> tuple[Array, Array, Array]:
        parts = []
        for rows in chunks(int(a.shape[0]), _ROWS):
            some = a[rows, ...]
            parts.append(self.along(some, some if b is a else b[rows, ...])[0])
        return a, b, namespace(a=a).concat(parts)


def check_part(poly: Any, degree: int) -> None:
    """Raise unless it is a polynomial with a part of degree 1 or 2."""
    if not isinstance(poly, Polynomial):
        raise TypeError(f"poly must be a polynomial made by mlpoly.fit or mlpoly.load, got {type(poly).__name__}.")
    if poly.degree < degree:
        part = "linear" if degree == 1 else "quadratic"
        raise ValueError(f"poly has degree {poly.degree} and no {part} part; fit it with degree={degree} or more.")


def times_root(rows: Array, root: Array) -> Array:
    """Rows (m, d) times the root (d,) or (d, d) of a covariance or of its inverse."""
    root = cast_like(root, rows)
    return rows * root if len(root.shape) == 1 else rows @ root


def unit(rows: Array) -> Array:
    """Rows over their lengths; zero rows stay."""
    xp = namespace(rows=rows)
    return rows * safe_inverse(xp.sqrt(xp.vecdot(rows, rows)))[:, None]


def signs(rows: Array) -> Array:
    """Signs (m, 1) that make the entry of largest magnitude of every row positive, so that results are reproducible."""
    xp = namespace(rows=rows)
    return cast_like(xp.where(xp.max(rows, axis=1) >= -xp.min(rows, axis=1), 1.0, -1.0), rows)[:, None]


def gram(a: Array, b: Array) -> Array:
    """Inner products (r, r) of sym(a_i b_i') with sym(a_j b_j')."""
    aa = a @ a.T
    if b is a:
        return aa * aa
    ab = a @ b.T
    return 0.5 * (aa * (b @ b.T) + ab * ab.T)


def quadratic_part(poly: Polynomial, inputs: Gaussian) -> QuadraticPart:
    """The part of Hermite degree exactly 2 of a polynomial under a Gaussian.

    For a polynomial made of neurons there is one slice for each, and nothing of size d^2 o is made; for other forms
    there are the eigenvectors of every output.
    """
    like, root = poly.prototype, widen(inputs.root)
    if isinstance(poly, RidgePolynomial | BoundedPolynomial):
        expansion = poly.hermite(inputs)
        units, series, writes = expansion.units, expansion.series(2), expansion.weights.T
        left = times_root(units.directions, root) * units.inverse_scales[:, None]
        size = series.plain[2, :] / math.sqrt(2)  # he_2(t) = (t^2 - 1) / sqrt 2
        if series.gated is None or units.gate is None:
            left = cast_result(left, like)
            return QuadraticPart(left, left, cast_result(writes * size[:, None], like))
        # size (t^2 - 1) + second t e with e = v.x - slope t: one product of two linear forms.
        second, slopes = series.gated[1, :], units.gate.slopes
        right = size[:, None] * left + second[:, None] * (
            times_root(units.gate.directions, root) - slopes[:, None] * left
        )
        return QuadraticPart(*(cast_result(a, like) for a in (left, right, writes)))
    # The eigenvectors of all outputs, each written to its own output.
    xp = namespace(root=root)
    values, vectors = xp.linalg.eigh(_matrices(poly, inputs, root))
    outputs, d = values.shape
    left = cast_result(xp.reshape(xp.matrix_transpose(vectors), (outputs * d, d)), like)
    writes = values[:, :, None] * eye(outputs, values)[:, None, :]
    return QuadraticPart(left, left, cast_result(xp.reshape(writes, (outputs * d, outputs)), like))


def _matrices(poly: Polynomial, inputs: Gaussian, root: Array) -> Array:
    """Quadratic coefficients (o, d, d) in whitened inputs, in the widest precision."""
    xp, d = namespace(root=root), poly.dim_in
    back = root[:, None] * eye(d, root) if len(root.shape) == 1 else root
    if poly.degree == 2:  # no term of higher degree that has a part of degree 2
        return back @ widen(poly.tensor(2)) @ back
    if not poly.closed_form:
        remedy = "fit one polynomial to the whole network, mlpoly.fit(net, inputs, 2)"
        raise TypeError(f"a {type(poly).__name__} has no closed form of its part of degree 2; {remedy}.")
    check_monomials(d, poly.degree, "decompose poly.truncate(2), or a polynomial made of neurons")
    own = ladder(d, poly.degree)
    pairs = np.flatnonzero(own.degrees == 2)
    rows = take_rows(poly.in_products(widen(inputs.mean), back, own), pairs)  # (d (d + 1) / 2, o)
    # he_2(z_j) = (z_j^2 - 1) / sqrt 2 on the diagonal, z_j z_k in two places off it
    places = np.zeros((d * d, len(pairs)))
    for number, exponents in enumerate(own.exponents[pairs]):
        j, k = np.repeat(np.arange(d), exponents)
        places[[j * d + k, k * d + j], number] = 1 / math.sqrt(2) if j == k else 0.5
    return xp.reshape((constant(places, rows) @ rows).T, (poly.dim_out, d, d))
