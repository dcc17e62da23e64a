"""Quadratic polynomials as symmetric matrices in homogeneous whitened coordinates, and back.

With zh = (1, z), a quadratic of each output is q(z) = zh' H zh for one matrix H (n, n): the constant in its corner,
half of the linear part along its edges.
"""

from __future__ import annotations

import math

import numpy as np

from mlpoly.arrays import Array, cast_like, chunks, constant, eye, namespace, take_rows, widen
from mlpoly.inputs import Coordinates
from mlpoly.polynomials import DensePolynomial, RidgePolynomial

_NUMBERS = 2**26  # largest intermediate; outputs are taken in chunks that stay below it


def matrices_of(p: RidgePolynomial | DensePolynomial, whitening: Coordinates) -> Array:
    """A polynomial of degree 2 as matrices (o, n, n) in homogeneous whitened coordinates."""
    if isinstance(p, DensePolynomial):
        return matrices_of_dense(p, whitening)
    units, g = p.units, p.units.gate
    t = _homogeneous(units.directions, units.shifts, whitening) * widen(units.inverse_scales)[:, None]
    series = _three_rows(widen(p.series.plain))
    root = 2**-0.5  # he_2 = (t^2 - 1) / sqrt(2)
    edge = series[1, :][:, None] * t  # the terms that meet the constant 1, (h, n)
    left, right = [t], [(series[2, :] * root)[:, None] * t]
    if g is not None and p.series.gated is not None:
        e = _homogeneous(g.directions, g.shifts, whitening) - widen(g.slopes)[:, None] * t
        d = _three_rows(widen(p.series.gated))
        left.append(e)
        right.append(d[1, :][:, None] * t)
        edge = edge + d[0, :][:, None] * e
    # Sum over neurons of readout times symmetrised outer products, some outputs at a time.
    xp = namespace(edge=edge)
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


def _three_rows(series: Array) -> Array:
    xp = namespace(series=series)
    return xp.concat([series, *[series[:1, ...] * 0] * (3 - series.shape[0])])


def _homogeneous(directions: Array, shifts: Array, whitening: Coordinates) -> Array:
    """Linear forms w.x - shift as vectors over (1, z): (h, n)."""
    xp = namespace(directions=directions)
    w = widen(directions)
    return xp.concat([(w @ whitening.center - widen(shifts))[:, None], w @ whitening.back], axis=1)


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


def matrices_of_dense(p: DensePolynomial, whitening: Coordinates) -> Array:
    """A dense polynomial as matrices (o, n, n), restricted to the range of the mixture."""
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
