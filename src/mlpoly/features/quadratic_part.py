"""The part of degree exactly 2 of a polynomial as a sum of rank-one slices, each with its written vector (MATH 12)."""

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

    def along(self, a: Array) -> tuple[Array, tuple[Array, Array]]:
        """Inner products (r, o) with a_j a_j' for rows (r, d), and the products of the rows with left and right."""
        left = a @ self.left.T
        right = left if self.right is self.left else a @ self.right.T
        return (left * right) @ self.writes, (left, right)

    def slopes(self, weights: Array, seen: tuple[Array, Array]) -> Array:
        """Half the gradient (r, d) in a of the sum of weights (r, o) times `along`, given what that returned."""
        left, right = seen
        neurons = 0.5 * (weights @ self.writes.T)
        return (neurons * right) @ self.left + (neurons * left) @ self.right

    def energy(self) -> float:
        """Half the variance of the part, summed over the outputs: the squared norm of its tensor."""
        total, left, right = 0.0, self.left, self.right
        for rows in chunks(int(left.shape[0]), _ROWS):
            a, b = left[rows, ...], right[rows, ...]
            if right is left:
                inner, _ = self.along(a)
            else:
                inner = (0.5 * ((a @ left.T) * (b @ right.T) + (a @ right.T) * (b @ left.T))) @ self.writes
            total += float((widen(inner) * widen(self.writes[rows, ...])).sum())
        return total

    def squares(self) -> tuple[Array, Array]:
        """Unit directions (m, d) or (2 m, d) whose squares span the part, and inner products (m, o) with it.

        A product is a difference of two squares: 4 sym(lr') = (l + r)(l + r)' - (l - r)(l - r)'.
        """
        xp, a = namespace(left=self.left), unit(self.left)
        if self.right is not self.left:
            b = unit(self.right)
            a = unit(xp.concat([a + b, a - b]))
        return a, xp.concat([self.along(a[rows, ...])[0] for rows in chunks(int(a.shape[0]), _ROWS)])


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


def gram(a: Array) -> Array:
    """Inner products (r, r) of a_i a_i' with a_j a_j'."""
    aa = a @ a.T
    return aa * aa


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
