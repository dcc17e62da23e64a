"""Quadratics as symmetric matrices, and their Gram operator under a mixture, by matrix products alone (MATH 4).

In homogeneous whitened coordinates zh = (1, z) a quadratic of each output is one symmetric matrix H (n, n), with
q(z) = zh' H zh: the constant in its corner, half of the linear part along its edges. With v = E_c[zh] and
M = E_c[zh zh'], a Gaussian component gives

    E_c[q zh zh'] = 2 M H M + <H, M> M - 2 (v' H v) v v'

which is MATH 4's operator with constant, linear and quadratic parts in one formula. That of N(0, I), which it resembles
in whitened coordinates, has a closed inverse: the preconditioner.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlpoly.arrays import Array, add_at, add_product, chunks, device, namespace
from mlpoly.arrays.placement import astype, cast_like, constant, eye, take_rows, widen
from mlpoly.inputs import Coordinates, GaussianMixture
from mlpoly.polynomials import DensePolynomial, RidgePolynomial
from mlpoly.records import record

_NUMBERS = 2**26  # largest intermediate of one product; components and outputs are taken in chunks that stay below it


@record
class GramOperator:
    """Moments of the components in whitened homogeneous coordinates."""

    weights: Array  # (c,)
    means: Array  # (c, n): v
    seconds: Array  # (c, n, n): M
    products: Array  # (c, m, m): M for the large products, in their precision, padded with zeros to m >= n
    weighted: Array  # (m, m, c): the same times the weights, with the components along the last axis

    @property
    def size(self) -> int:
        """Side n of the matrices without padding: 1 and the whitened coordinates."""
        return int(self.means.shape[-1])

    @property
    def side(self) -> int:
        """Side m of the matrices that `apply` takes: n rounded up to a multiple of 8, for the sake of matrix units."""
        return int(self.products.shape[-1])

    def component(self, index: int, matrices: Array) -> Array:
        """Gram operator of one component on quadratics (o, n, n)."""
        v, M = self.means[index, ...], self.seconds[index, ...]
        xp = namespace(matrices=matrices)
        inner = xp.sum(matrices * M, axis=(-1, -2))[:, None, None]
        at_mean = ((matrices @ v) @ v)[:, None, None]
        return 2 * (M @ matrices @ M) + inner * M - 2 * at_mean * (v[:, None] * v[None, :])

    def apply(self, matrices: Array) -> Array:
        """Gram operator of the mixture on quadratics (o, m, m), `padded` with zeros."""
        narrow = astype(matrices, self.products.dtype)
        parts = chunks(self.weights.shape[0], max(1, _NUMBERS // (matrices.shape[0] * self.side**2)))
        half = self._half(narrow, parts[0])
        for part in parts[1:]:
            half = half + self._half(narrow, part)
        half = astype(half, matrices.dtype)
        # The sum with the transpose is the whole operator, and exactly symmetric in spite of rounding.
        return half + namespace(half=half).matrix_transpose(half)

    def in_full_precision(self) -> "GramOperator":
        """The same operator with all products in the precision of its moments."""
        if self.products.dtype == self.seconds.dtype:
            return self
        return _operator(self.weights, self.means, self.seconds, self.seconds.dtype)

    def leading(self, n: int) -> "GramOperator":
        """The operator on quadratics of the first n - 1 whitened coordinates alone."""
        seconds = self.seconds[:, :n, :n] + 0  # contiguous, for the sake of the products
        return _operator(self.weights, self.means[:, :n] + 0, seconds, self.products.dtype)

    def _half(self, matrices: Array, part: slice) -> Array:
        """Half of the operator's three terms, over a chunk of components, in two large products."""
        # H M_c for all outputs and components is one product (o, n, c, n). Read as (o, n c, n), without moving memory,
        # it is the right factor of the second. Because M_c I = M_c and M_c e_0 = v_c, the other two terms of the
        # operator only change the diagonals and first rows in between.
        xp = namespace(matrices=matrices)
        o, n, _ = matrices.shape
        M = self.products[part, ...]
        once = xp.reshape(matrices, (o * n, n)) @ xp.reshape(M, (-1, n)).T
        once = xp.reshape(once, (o, n, -1, n))
        v = M[:, 0, :]
        at_means = xp.sum(once[..., 0] * v.T, axis=1)  # v_c' H v_c, because H M_c e_0 = H v_c
        inner = xp.sum(xp.linalg.diagonal(xp.permute_dims(once, (0, 2, 1, 3))), axis=-1)  # <H, M_c>
        everything, i = slice(None), xp.arange(n, device=device(matrices))
        once = add_at(once, (everything, 0), -at_means[..., None] * v)
        once = add_at(once, (everything, i, everything, i), 0.5 * inner)
        return xp.reshape(self.weighted[..., part], (n, -1)) @ xp.reshape(once, (o, -1, n))


def gram_operator(inputs: GaussianMixture, whitening: Coordinates, single: bool = False) -> GramOperator:
    """Operator of a mixture in the given coordinates; `single` runs its large products in float32."""
    xp = namespace(means=inputs.means)
    means, seconds = [], []
    for g in inputs.components:
        mean, cov = whitening.gaussian(g.mean, g.covariance)
        v = xp.concat([mean[:1] * 0 + 1 if mean.shape[0] else xp.ones_like(widen(inputs.weights)[:1]), mean])
        means.append(v)
        frame = constant(np.eye(v.shape[0])[:, 1:], cov)  # a zero row and column in front
        seconds.append(frame @ cov @ frame.T + v[:, None] * v[None, :])
    second = xp.stack(seconds)
    return _operator(widen(inputs.weights), xp.stack(means), second, xp.float32 if single else second.dtype)


def _operator(weights: Array, means: Array, seconds: Array, dtype: Any) -> GramOperator:
    """The operator with matrices for the products in a dtype."""
    xp = namespace(seconds=seconds)
    products = padded(astype(seconds, dtype), -(-seconds.shape[-1] // 8) * 8)
    weighted = xp.stack([products[c, ...] * astype(w, dtype) for c, w in enumerate(weights)], axis=-1)
    return GramOperator(weights, means, seconds, products, weighted)


def standard_inverse(n: int, like: Array) -> Callable[[Array], Array]:
    """Inverse of the Gram operator of N(0, I), 2 H + tr(H) I - 2 H_00 e e', on (o, m, m) padded with zeros beyond n."""
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


def matrices_of(p: RidgePolynomial | DensePolynomial, whitening: Coordinates) -> Array:
    """A polynomial of degree 2 as matrices (o, n, n) in homogeneous whitened coordinates."""
    if isinstance(p, DensePolynomial):  # restricted to the range of the mixture
        xp = namespace(center=p.center)
        center = whitening.center
        value = widen(p(cast_like(center, p.center)))
        linear = widen(p.gradient(cast_like(center, p.center))) @ whitening.back
        rows = xp.concat([value[:, None], 0.5 * linear], axis=1)[:, None, :]
        if p.quadratic is None:
            lower = xp.matmul(linear[:, :, None] * 0, linear[:, None, :])
        else:
            forms = whitening.back if p.directions is None else widen(p.directions) @ whitening.back
            lower = forms.T @ widen(p.quadratic) @ forms
        return xp.concat([rows, xp.concat([0.5 * linear[:, :, None], lower], axis=2)], axis=1)
    units, g = p.units, p.units.gate

    def homogeneous(directions: Array, shifts: Array) -> Array:
        """Linear forms w.x - shift as vectors over (1, z): (h, n)."""
        w = widen(directions)
        return xp.concat([(w @ whitening.center - widen(shifts))[:, None], w @ whitening.back], axis=1)

    def three_rows(series: Array) -> Array:
        return xp.concat([widen(series), *[widen(series[:1, ...]) * 0] * (3 - series.shape[0])])

    xp = namespace(directions=units.directions)
    t = homogeneous(units.directions, units.shifts) * widen(units.inverse_scales)[:, None]
    series = three_rows(p.series.plain)
    root = 2**-0.5  # he_2 = (t^2 - 1) / sqrt(2)
    edge = series[1, :][:, None] * t  # the terms that meet the constant 1, (h, n)
    left, right = [t], [(series[2, :] * root)[:, None] * t]
    if g is not None and p.series.gated is not None:
        e, d = homogeneous(g.directions, g.shifts) - widen(g.slopes)[:, None] * t, three_rows(p.series.gated)
        left.append(e)
        right.append(d[1, :][:, None] * t)
        edge = edge + d[0, :][:, None] * e
    # Sum over neurons of readout times symmetrised outer products, some outputs at a time.
    readout = eye(p.dim_out, edge) if p.readout is None else widen(p.readout)
    h, n = edge.shape
    first = eye(n, edge)[:1, :]  # (1, n): the constant's place
    value = readout @ (series[0, :] - root * series[2, :]) + (0 if p.bias is None else widen(p.bias))
    out = []
    for part in chunks(p.dim_out, max(1, _NUMBERS // max(h * n, 1))):
        weight = readout[part, :]
        total = (weight @ edge)[:, :, None] * first
        for a, b in zip(left, right, strict=True):
            total = total + (a.T * weight[:, None, :]) @ b
        total = 0.5 * (total + xp.matrix_transpose(total))
        out.append(total + value[part][:, None, None] * (first.T * first))
    return xp.concat(out) if len(out) > 1 else out[0]


def matrices_of_chaos(values: Array) -> Array:
    """Coefficients (t, o) of the Hermite products of degree up to 2, in their usual order, as matrices (o, n, n)."""
    xp = namespace(values=values)
    n = math.isqrt(2 * values.shape[0])  # t = n (n + 1) / 2
    # The products in order are 1, z_i and z_i z_j with i <= j, in which z_i z_i stands for (z_i^2 - 1) / sqrt(2).
    row, column = np.triu_indices(n)
    order = np.argsort(np.where(row == 0, 0, 1), kind="stable")
    place = np.zeros((n, n), dtype=np.int64)
    place[row[order], column[order]] = place[column[order], row[order]] = np.arange(len(row))
    factor = np.full((n, n), 0.5)
    np.fill_diagonal(factor, 0.5**0.5)
    factor[0, 0] = 1.0
    matrices = xp.reshape(take_rows(values, place.reshape(-1)), (n, n, -1)) * constant(factor[..., None], values)
    matrices = xp.permute_dims(matrices, (2, 0, 1))
    first = eye(n, values)[:1, :]
    squares = xp.sum(xp.linalg.diagonal(matrices)[:, 1:], axis=-1)
    return matrices - squares[:, None, None] * (first.T * first)


def dense_from_matrices(matrices: Array, whitening: Coordinates, like: Array) -> DensePolynomial:
    """Back to coefficients in x: (o, n, n) to a dense polynomial around the mixture's mean, in the dtype of `like`."""
    forward = whitening.forward
    quadratic = forward.T @ matrices[:, 1:, 1:] @ forward
    linear = 2 * matrices[:, 0, 1:] @ forward
    return DensePolynomial(*(cast_like(a, like) for a in (whitening.center, matrices[:, 0, 0], linear, quadratic)))


def padded(matrices: Array, n: int) -> Array:
    """Square matrices (..., m, m) with rows and columns of zeros added up to n."""
    xp = namespace(matrices=matrices)
    missing = n - matrices.shape[-1]
    if missing == 0:
        return matrices
    side = xp.broadcast_to(matrices[..., :1] * 0, (*matrices.shape[:-1], missing))
    wide = xp.concat([matrices, side], axis=-1)
    below = xp.broadcast_to(wide[..., :1, :] * 0, (*wide.shape[:-2], missing, n))
    return xp.concat([wide, below], axis=-2)
