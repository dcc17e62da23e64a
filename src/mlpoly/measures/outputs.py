"""Models that measures compare, and their outputs on samples; each message names the argument and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlpoly.arrays import Array, as_float_array, check_columns, check_finite, check_shape, chunks, namespace

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
    models: dict[str, Any] = {"net": net, "poly": poly}
    dim = _common_dim(models)
    for name, model in models.items():  # functions that are not of this library have no names for their inputs
        check_columns("samples", samples, model.names if _has_sizes(model) else None, f"{name}.names")
    samples = as_float_array("samples", samples, integers=True)
    check_shape("samples", samples, (None, dim), "n samples in rows, as many columns as the network has inputs")
    if samples.shape[0] < minimum:
        purpose = "a mean" if minimum == 1 else "a variance"
        raise ValueError(f"samples holds {samples.shape[0]} rows; {purpose} needs at least {minimum}.")
    check_finite("samples", samples)
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
    values = [as_float_array(name, model(samples[rows, ...])) for rows in chunks(samples.shape[0], _ROWS)]
    outputs = namespace(samples=samples).concat(values)
    check_shape(name, outputs, (samples.shape[0], None), "one row per sample, outputs in columns")
    return outputs


def check_functions(net: Any, poly: Any, names: tuple[str, str] = ("net", "poly")) -> None:
    """Raise unless both are functions of this library with the same inputs and outputs."""
    for name, value in zip(names, (net, poly), strict=True):
        if not _has_sizes(value):
            hint = "; convert it first with mlpoly.from_torch(module)" if hasattr(value, "state_dict") else ""
            if callable(value) and name in ("net", "poly"):
                hint += "; on data, with samples=x, any callable works"
            raise TypeError(
                f"{name} must be a network or polynomial of this library, got {type(value).__name__}{hint}."
            )
    if (net.dim_in, net.dim_out) != (poly.dim_in, poly.dim_out):
        remedy = "was the polynomial fitted to another network?"
        if names != ("net", "poly"):
            remedy = "only functions with the same numbers of inputs and outputs can be compared."
        raise ValueError(
            f"{names[0]} maps {net.dim_in} -> {net.dim_out}, but {names[1]} maps {poly.dim_in} -> {poly.dim_out}; "
            f"{remedy}"
        )


def _common_dim(models: dict[str, Any]) -> int | None:
    """Number of inputs of models that must all be callable, if it is known."""
    for name, model in models.items():
        if not callable(model):
            raise TypeError(
                f"{name} must be a network, a polynomial or any callable from (n, d) to (n, o), got "
                f"{type(model).__name__}."
            )
    sized = [model for model in models.values() if _has_sizes(model)]
    if len(sized) == 2:
        check_functions(*sized)
    return sized[0].dim_in if sized else None


def _has_sizes(value: Any) -> bool:
    return all(hasattr(value, a) for a in ("dim_in", "dim_out", "names", "__call__"))
