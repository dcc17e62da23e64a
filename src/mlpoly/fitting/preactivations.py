"""Mean and spread of the preactivations under a Gaussian: the only place where weights meet a covariance."""

from __future__ import annotations

from typing import NamedTuple

from mlpoly.arrays import Array, blocks, namespace, promote, widen
from mlpoly.inputs import Gaussian
from mlpoly.layers import GLU, MLP

__all__ = ["Preactivations", "first_weight", "preactivations", "regression"]

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
    """
    xp = namespace(weights=weight, inputs=inputs.mean)
    variances, crosses = [], []
    for rows in blocks(weight.shape[0], _ROWS):
        spread = inputs.times_covariance(promote(weight[rows, ...], inputs.mean)[0])
        variances.append(_dots(spread, weight[rows, ...]))
        if gate is not None:
            crosses.append(_dots(spread, gate[rows, ...]))
    variance = widen(xp.concat(variances))
    positive = variance > 0  # rounding may leave a zero variance slightly negative
    stds = xp.where(positive, xp.sqrt(xp.where(positive, variance, 1.0)), 0.0)
    return Preactivations(
        centres=_centres(weight, inputs.mean),
        stds=stds,
        cross=None if gate is None else widen(xp.concat(crosses)),
        gate_centres=None if gate is None else _centres(gate, inputs.mean),
    )


def first_weight(net: MLP | GLU) -> Array:
    """The first weight matrix, to tell the library, dtype and device of a network."""
    return net.W1 if isinstance(net, MLP) else net.W_gate


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
    return widen(weight @ mean)
