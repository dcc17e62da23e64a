"""Mean and spread of the preactivations under a Gaussian: the only place where weights meet a covariance."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mlpoly.arrays import Array, chunks, namespace, no_gradients, promote, readable, widen
from mlpoly.inputs import Gaussian

__all__ = ["Preactivations", "preactivations", "regression"]

_ROWS = 2048  # rows of W at a time: a product of this size runs at full speed, and its buffer stays small


class Preactivations(NamedTuple):
    """Moments of y_i = w_i.x + b_i, and of a second family z_i = v_i.x + c_i where there is one; (h,) each."""

    centres: Array  # w_i.mean
    stds: Array
    cross: Array | None  # Cov(y_i, z_i)
    gate_centres: Array | None  # v_i.mean


def preactivations(inputs: Gaussian, weight: Array, gate: Array | None = None) -> Preactivations:
    """Moments of weight (h, d) @ x and of gate (h, d) @ x, without a buffer of more than a block of rows.

    The one product with the covariance per block, W S, serves both s_i^2 = w_i' S w_i and w_i' S v_i (MATH 1, 2).

    Raises
    ------
    ValueError
        If a mean or a standard deviation is too large for the dtype of the weights.
    """
    xp = namespace(weights=weight, inputs=inputs.mean)
    size = _size(inputs)
    stds, crosses = [], []
    for rows in chunks(weight.shape[0], _ROWS):
        unit, scale = _scaled(weight[rows, ...], size)
        spread = inputs.times_covariance(unit)
        variance = widen(_dots(spread, unit))
        positive = variance > 0  # rounding may leave a zero variance slightly negative
        root = xp.where(positive, xp.sqrt(xp.where(positive, variance, 1.0)), 0.0)
        stds.append(_product(root, scale))
        if gate is not None:
            other, other_scale = _scaled(gate[rows, ...], size)
            crosses.append(_product(widen(_dots(spread, other)), scale, other_scale))
    centres = _centres(weight, inputs.mean)
    return Preactivations(
        centres=centres,
        stds=_in_range(xp.concat(stds), centres, weight),
        cross=None if gate is None else xp.concat(crosses),
        gate_centres=None if gate is None else _centres(gate, inputs.mean),
    )


def regression(cross: Array, stds: Array) -> Array:
    """Slope r_i = Cov(z_i, y_i) / s_i of z on the standardised preactivation; zero where that is constant (MATH 2)."""
    xp = namespace(cross=cross)
    moving = stds > 0
    return xp.where(moving, cross / xp.where(moving, stds, 1.0), 0.0)


def _dots(left: Array, right: Array) -> Array:
    """Row-by-row inner products."""
    left, right = promote(left, right)
    return namespace(rows=left).vecdot(left, right)


def _centres(weight: Array, mean: Array) -> Array:
    weight, mean = promote(weight, mean)
    with np.errstate(over="ignore", invalid="ignore"):
        return widen(weight @ mean)


# -- sizes are taken out before squares are formed, which soon leave the range of floats, and put back after -----------


def _size(inputs: Gaussian) -> Array:
    """About the largest standard deviation of an input, as a power of two, ()."""
    xp = namespace(mean=inputs.mean)
    if inputs.cov is None:
        return inputs.mean[0] * 0 + 1
    return _power_of_two(xp.sqrt(xp.max(inputs.cov if len(inputs.cov.shape) == 1 else xp.linalg.diagonal(inputs.cov))))


def _scaled(weight: Array, size: Array) -> tuple[Array, Array]:
    """Rows (m, d) over their scale, and that scale (m,): their own size times that of the inputs."""
    xp = namespace(weight=weight)
    weight, size = promote(weight, size)
    high, low = xp.max(weight, axis=1), -xp.min(weight, axis=1)
    limits = xp.finfo(weight.dtype)
    with np.errstate(over="ignore"):
        scale = _power_of_two(xp.where(high > low, high, low)) * size
    # Out of this range the spread itself has left the range of the dtype.
    scale = xp.clip(scale, float(limits.smallest_normal), float(limits.max))
    return weight / scale[:, None], scale


def _product(first: Array, *others: Array) -> Array:
    """Their product in the widest precision; infinite where it is out of range, which is found later."""
    with np.errstate(over="ignore"):
        for a in others:
            first = first * widen(a)
    return first


def _power_of_two(a: Array) -> Array:
    """The power of two below each entry; dividing by it changes no digit. One for zeros, constant under autograd."""
    xp = namespace(a=a)
    with no_gradients(a):
        exponent = xp.floor(xp.log2(xp.where(a > 0, a, 1.0)))
        return 2.0 ** xp.clip(exponent, math.log2(float(xp.finfo(a.dtype).smallest_normal)), None)


def _in_range(stds: Array, centres: Array, weight: Array) -> Array:
    """Standard deviations, zero where the dtype of the weights could not hold their inverse."""
    xp = namespace(stds=stds)
    limits = xp.finfo(promote(weight)[0].dtype)
    if readable(stds) and not bool(xp.all((stds <= float(limits.max)) & (xp.abs(centres) <= float(limits.max)))):
        raise ValueError(
            f"preactivations w.x under these inputs are too large for {weight.dtype}; scale the first weights or the "
            f"inputs down, or use float64."
        )
    return xp.where(stds >= float(limits.smallest_normal), stds, 0.0)
