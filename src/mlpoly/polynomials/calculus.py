"""Derivatives of a ridge polynomial at a point, from he_k' = sqrt(k) he_{k-1}."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mlpoly.arrays import Array, constant, namespace
from mlpoly.polynomials.base import at_least_single
from mlpoly.special import clenshaw

if TYPE_CHECKING:
    from mlpoly.polynomials.ridge import RidgePolynomial

__all__ = ["gradient", "hessian"]


def _derivative(series: Array) -> Array:
    """Hermite series of the derivative."""
    n = series.shape[0] - 1
    if n == 0:
        return series * 0
    return series[1:, ...] * constant([[math.sqrt(k)] for k in range(1, n + 1)], series)


def gradient(p: RidgePolynomial, x: Array) -> Array:
    """Jacobian (..., o, d): readout times the gradients of the neurons."""
    p = at_least_single(p)
    t = p.standardise(x)
    along = clenshaw(_derivative(p.series), t)  # d/dt of each neuron
    if p.gate is None:
        return _spread(p, along * p.inverse_scales, p.directions)
    q = clenshaw(p.gate.series, t)
    along = along + p.gate_residual(x, t) * clenshaw(_derivative(p.gate.series), t) - p.gate.slopes * q
    return _spread(p, along * p.inverse_scales, p.directions) + _spread(p, q, p.gate.directions)


def _spread(p: RidgePolynomial, weights: Array, forms: Array) -> Array:
    """Sum over neurons of readout[o, i] weights[..., i] forms[i]: (..., o, d)."""
    if p.readout is None:
        return weights[..., :, None] * forms
    return (weights[..., None, :] * p.readout) @ forms


def hessian(p: RidgePolynomial, x: Array) -> Array:
    """Second derivatives (..., o, d, d)."""
    xp, p = namespace(x=x), at_least_single(p)
    t = p.standardise(x)
    first = _derivative(p.series)
    bend = clenshaw(_derivative(first), t)
    forms, inverse = p.directions, p.inverse_scales
    if p.gate is None:
        return _sandwich(p, bend * inverse * inverse, forms, forms)
    g = p.gate
    dq = _derivative(g.series)
    slope = clenshaw(dq, t)
    bend = bend + p.gate_residual(x, t) * clenshaw(_derivative(dq), t) - 2 * g.slopes * slope
    cross = _sandwich(p, slope * inverse, forms, g.directions)
    return _sandwich(p, bend * inverse * inverse, forms, forms) + cross + xp.matrix_transpose(cross)


def _sandwich(p: RidgePolynomial, weights: Array, left: Array, right: Array) -> Array:
    """Sum over neurons of readout[o, i] weights[..., i] left[i] right[i]': (..., o, d, d)."""
    xp = namespace(weights=weights)
    if p.readout is None:
        return weights[..., :, None, None] * left[:, :, None] * right[:, None, :]
    forms = [((p.readout[i, :] * weights)[..., None, :] * left.T) @ right for i in range(p.dim_out)]
    return xp.stack(forms, axis=-3)
