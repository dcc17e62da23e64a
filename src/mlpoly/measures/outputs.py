"""Outputs of models on samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlpoly.arrays import Array, as_float_array, check_shape, chunks, namespace
from mlpoly.measures.arguments import checked_samples

_ROWS = 8192  # samples evaluated at once, so that hidden units do not fill the memory


def outputs_of(
    net: Callable[[Array], Array],
    poly: Callable[[Array], Array],
    samples: Any,
    *,
    minimum: int = 1,
    known: Array | None = None,
) -> tuple[Array, Array]:
    """Outputs (n, o) of two models on at least `minimum` samples (n, d); those of `net` may already be known."""
    samples = checked_samples(samples, minimum, net=net, poly=poly)
    if known is not None:
        shape = (samples.shape[0], getattr(net, "dim_out", None))
        check_shape("outputs", known, shape, "outputs of the network on the samples")
    f = evaluated("net", net, samples) if known is None else known
    p = evaluated("poly", poly, samples)
    check_shape("poly(samples)", p, tuple(f.shape), "one row per sample, as many columns as the network has outputs")
    return f, p


def evaluated(name: str, model: Callable[[Array], Array], samples: Array) -> Array:
    """Outputs (n, o) of one model on checked samples (n, d), chunk by chunk."""
    name = f"{name}(samples)"
    made = [as_float_array(name, model(samples[rows, ...])) for rows in chunks(samples.shape[0], _ROWS)]
    outputs = namespace(samples=samples).concat(made)
    check_shape(name, outputs, (samples.shape[0], None), "one row per sample, outputs in columns")
    return outputs
