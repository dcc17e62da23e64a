"""Checks that both layer records share."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import Array, as_float_array, check_finite, check_shape, namespace

__all__ = ["check_bias", "check_library", "check_samples", "check_weight"]


def check_weight(name: str, value: Any, shape: tuple[int | None, ...], meaning: str) -> Array:
    """A weight matrix: floating, of the right shape, finite."""
    weight = as_float_array(name, value)
    check_shape(name, weight, shape, meaning)
    check_finite(name, weight)
    return weight


def check_bias(name: str, value: Any, length: int) -> Array | None:
    """An optional bias vector."""
    if value is None:
        return None
    return check_weight(name, value, (length,), "one entry per row of its weight matrix")


def check_library(weights: dict[str, Array]) -> None:
    """All weights in one array library, on one device, of one dtype."""
    namespace(**weights)
    dtypes = {name: w.dtype for name, w in weights.items() if w is not None}
    if len(set(dtypes.values())) > 1:
        found = ", ".join(f"{name} is {dtype}" for name, dtype in dtypes.items())
        raise TypeError(f"weights have different dtypes ({found}); convert them to one.")


def check_samples(x: Any, weight: Array, dim: int) -> Array:
    """Samples (..., d) in the library and on the device of the weights."""
    x = as_float_array("x", x)
    namespace(x=x, weights=weight)
    if len(x.shape) < 1 or x.shape[-1] != dim:
        raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., {dim}): the last axis holds the inputs.")
    return x
