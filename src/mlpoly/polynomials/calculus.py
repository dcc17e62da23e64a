"""Derivatives of polynomials made of neurons, from those of the neurons in their linear forms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mlpoly.arrays import Array, constant, namespace
from mlpoly.records import record

if TYPE_CHECKING:
    from mlpoly.polynomials.bounded import BoundedPolynomial
    from mlpoly.polynomials.ridge import RidgePolynomial


@record
class Derivatives:
    """Derivatives of neurons N_i(t_i, z_i) with z_i = v_i.x, (..., h) each.

    Attributes
    ----------
    along, bend : array
        First and second derivative in t_i; `bend` is None if only the first was requested.
    factor : array or None
        Derivative in z_i, for gated units.
    change : array or None
        Derivative of `factor` in t_i.
    """

    along: Array
    bend: Array
    factor: Array | None = None
    change: Array | None = None


def derivative(series: Array) -> Array:
    """Hermite series of the derivative: he_k' = sqrt(k) he_{k-1}."""
    n = series.shape[0] - 1
    if n == 0:
        return series * 0
    return series[1:, ...] * constant([[math.sqrt(k)] for k in range(1, n + 1)], series)


def gradient(p: RidgePolynomial | BoundedPolynomial, x: Array) -> Array:
    """Jacobian (..., o, d): readout times the gradients of the neurons."""
    found, units = p.derivatives(*p.forms_at(x), second=False), p.units

    def spread(weights: Array, forms: Array) -> Array:
        """Sum over neurons of readout[o, i] weights[..., i] forms[i]: (..., o, d)."""
        if p.readout is None:
            return weights[..., :, None] * forms
        return (weights[..., None, :] * p.readout) @ forms

    total = spread(found.along * units.inverse_scales, units.directions)
    return total if found.factor is None or units.gate is None else total + spread(found.factor, units.gate.directions)


def hessian(p: RidgePolynomial | BoundedPolynomial, x: Array, directions: Array | None = None) -> Array:
    """Second derivatives (..., o, d, d), or (..., a, d, d) along output directions (..., a, o)."""
    found, units, readout = p.derivatives(*p.forms_at(x)), p.units, p.readout
    if directions is not None:
        readout = directions if readout is None else directions @ readout
    xp, inverse = namespace(bend=found.bend), units.inverse_scales

    def sandwich(weights: Array, left: Array, right: Array) -> Array:
        """Sum over neurons of readout[o, i] weights[..., i] left[i] right[i]': (..., o, d, d)."""
        if readout is None:
            return weights[..., :, None, None] * left[:, :, None] * right[:, None, :]
        rows = [readout[..., i, :] for i in range(readout.shape[-2])]
        forms = [((row * weights)[..., None, :] * left.T) @ right for row in rows]
        return xp.stack(forms, axis=-3)

    total = sandwich(found.bend * inverse * inverse, units.directions, units.directions)
    if found.change is None or units.gate is None:
        return total
    cross = sandwich(found.change * inverse, units.directions, units.gate.directions)
    return total + cross + xp.matrix_transpose(cross)
