"""Second moments of network optimum minus dense quadratic: two d x d products per output (MATH 4)."""

from __future__ import annotations

import math

import numpy as np

from mlpoly.arrays import Array, constant, namespace, widen
from mlpoly.inputs import Gaussian
from mlpoly.polynomials import DensePolynomial, RidgePolynomial

__all__ = ["dense_gap"]


def dense_gap(best: RidgePolynomial, poly: DensePolynomial, inputs: Gaussian) -> tuple[Array, Array]:
    """Mean and variance of best - poly for each output, (o,) each; both of degree up to 2, under best's Gaussian.

    Around the mean the difference is a + b.u + u'Cu; its linear and quadratic Hermite parts have the variances
    b'Sb and 2 tr(CSCS).
    """
    xp = namespace(mean=inputs.mean)
    n = poly.degree
    at = inputs.mean - widen(poly.center)
    level = widen(poly.constant)
    linear = None if poly.linear is None else widen(poly.linear)
    if linear is not None:
        level = level + linear @ at
    means, variances = [], []
    for o in range(poly.dim_out):
        row = None if best.readout is None else best.readout[o, :]
        mean, variance = level[o], level[o] * 0
        slope = at * 0 if linear is None else linear[o, :]
        if n == 2 and poly.quadratic is not None:
            form = widen(poly.quadratic[o, ...])
            mean = mean + at @ form @ at + _trace(form, inputs)
            slope = slope + 2 * (form @ at)
            variance = 2 * _squared(_quadratic(best, row, o) - form, inputs)
        if n >= 1:
            gap = _linear(best, row, o) - slope
            variance = variance + xp.sum(gap * inputs.times_covariance(gap[None, :])[0, :])
        means.append(mean)
        variances.append(variance)
    return best.mean() - xp.stack(means), xp.stack(variances)


def _pick(values: Array, row: Array | None, output: int) -> Array:
    """Weights (h,) of the units in one output, times `values` (h,)."""
    if row is None:
        row = constant(np.arange(values.shape[0]) == output, values)
    return row * values


def _linear(best: RidgePolynomial, row: Array | None, output: int) -> Array:
    """Coefficients (d,) of the part of degree 1: P_1 t_i + Q_0 e_i."""
    units, series = best.units, best.series
    inverse = units.inverse_scales
    direct = series.plain[1, :] * inverse
    if series.gated is None or units.gate is None:
        return _pick(direct, row, output) @ units.directions
    gate = series.gated[0, :]
    direct = direct - gate * units.gate.slopes * inverse
    return _pick(direct, row, output) @ units.directions + _pick(gate, row, output) @ units.gate.directions


def _quadratic(best: RidgePolynomial, row: Array | None, output: int) -> Array:
    """Symmetric coefficients (d, d) of the part of degree 2: P_2 he_2(t_i) + Q_1 t_i e_i."""
    units, series = best.units, best.series
    inverse, W = units.inverse_scales, units.directions
    square = series.plain[2, :] * inverse**2 / math.sqrt(2)
    if series.gated is None or units.gate is None:
        return (_pick(square, row, output)[:, None] * W).T @ W
    gate = series.gated[1, :] * inverse
    square = square - gate * units.gate.slopes * inverse
    mixed = (_pick(gate / 2, row, output)[:, None] * W).T @ units.gate.directions
    return (_pick(square, row, output)[:, None] * W).T @ W + mixed + mixed.T


def _trace(form: Array, inputs: Gaussian) -> Array:
    """tr(C S)."""
    xp = namespace(form=form)
    if inputs.cov is not None and len(inputs.cov.shape) == 2:
        return xp.sum(form * inputs.cov)
    diagonal = xp.linalg.diagonal(form)
    return xp.sum(diagonal if inputs.cov is None else diagonal * inputs.cov)


def _squared(form: Array, inputs: Gaussian) -> Array:
    """tr(C S C S)."""
    product = inputs.times_covariance(form)
    return namespace(form=form).sum(product * product.T)
