"""Outputs of models on data."""

from __future__ import annotations

from collections.abc import Callable

from mlpoly.arrays import Array, as_float_array, check_shape, chunks, namespace

_ROWS = 8192  # samples evaluated at once, so that hidden units do not fill the memory


def outputs_of(name: str, model: Callable[[Array], Array], x: Array, columns: int | None = None) -> Array:
    """Outputs (n, o) of a model on checked data (n, d), chunk by chunk; o may be prescribed."""
    name = f"{name}(x)"
    parts = [as_float_array(name, model(x[rows, ...])) for rows in chunks(x.shape[0], _ROWS)]
    outputs = namespace(x=x).concat(parts)
    check_shape(name, outputs, (x.shape[0], columns), "one row per sample, as many columns as there are outputs")
    return outputs
