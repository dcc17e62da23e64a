"""Checks of the arguments of measures; each message names the argument and says what to do."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import (
    Array,
    as_float_array,
    check_columns,
    check_finite,
    check_shape,
)


def check_models(**models: Any) -> int | None:
    """Raise unless all are callable, with the same inputs and outputs; return the number of inputs, if known."""
    for name, value in models.items():
        if not callable(value):
            found = type(value).__name__
            raise TypeError(
                f"{name} must be a network, a polynomial or any callable from (n, d) to (n, o), got {found}."
            )
    known = [model for model in models.values() if _has_sizes(model)]
    if len(known) == 2:
        check_functions(*known)
    return known[0].dim_in if known else None


def check_functions(net: Any, poly: Any, names: tuple[str, str] = ("net", "poly")) -> None:
    """Raise unless both are functions of this library with the same inputs and outputs."""
    for name, value in zip(names, (net, poly), strict=True):
        if not _has_sizes(value):
            hint = "; convert it first with mlpoly.from_torch(module)" if hasattr(value, "state_dict") else ""
            data = (
                "; on data, with samples=x, any callable works" if callable(value) and name in ("net", "poly") else ""
            )
            raise TypeError(
                f"{name} must be a network or polynomial of this library, got {type(value).__name__}{hint}{data}."
            )
    if (net.dim_in, net.dim_out) != (poly.dim_in, poly.dim_out):
        remedy = "was the polynomial fitted to another network?"
        if names != ("net", "poly"):
            remedy = "only functions with the same numbers of inputs and outputs can be compared."
        raise ValueError(
            f"{names[0]} maps {net.dim_in} -> {net.dim_out}, but {names[1]} maps {poly.dim_in} -> {poly.dim_out}; "
            f"{remedy}"
        )


def _has_sizes(value: Any) -> bool:
    return all(hasattr(value, a) for a in ("dim_in", "dim_out", "names", "__call__"))


def checked_samples(samples: Any, minimum: int = 1, **models: Any) -> Array:
    """Check samples (n, d) of the inputs of models, at least `minimum` of them, and return them as floats."""
    dim = check_models(**models)
    for name, model in models.items():  # networks and polynomials know the names of their inputs, other functions not
        check_columns("samples", samples, model.names if _has_sizes(model) else None, f"{name}.names")
    samples = as_float_array("samples", samples, integers=True)
    check_shape("samples", samples, (None, dim), "n samples in rows, as many columns as the network has inputs")
    if samples.shape[0] < minimum:
        purpose = "a mean" if minimum == 1 else "a variance"
        raise ValueError(f"samples holds {samples.shape[0]} rows; {purpose} needs at least {minimum}.")
    check_finite("samples", samples)
    return samples
