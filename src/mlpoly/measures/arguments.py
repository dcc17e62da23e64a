"""Checks of the arguments of measures; each message names the argument and says what to do."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlpoly.arrays import (
    Array,
    as_float_array,
    check_columns,
    check_finite,
    check_shape,
    constant_index,
    namespace,
    readable,
    to_numpy,
    widen,
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


def checked_outputs(f: Any, p: Any) -> tuple[Array, Array]:
    """Check two tables of outputs (n, o) on the same samples."""
    f, p = as_float_array("f", f), as_float_array("p", p)
    namespace(f=f, p=p)
    check_shape("f", f, (None, None), "one row per sample, outputs in columns")
    check_shape("p", p, tuple(f.shape), "the outputs of another model on the samples of f")
    return f, p


def checked_labels(labels: Any, samples: Array) -> Array:
    """Check integer labels (n,) of samples or outputs, and return them in their library and on their device."""
    found = to_numpy(labels) if hasattr(labels, "shape") else np.asarray(labels)
    if found.dtype.kind not in "iu":
        remedy = "labels.astype(int)"
        if found.dtype.kind not in "fb":  # words
            remedy = "numpy.unique(labels, return_inverse=True)[1] if the outputs are in the order of the sorted words"
        raise TypeError(f"labels must be integers, got dtype {found.dtype}; use {remedy}.")
    if found.shape != tuple(samples.shape[:1]):
        raise ValueError(f"labels have shape {found.shape}, expected ({samples.shape[0]},): one label per sample.")
    return constant_index(found, samples)


def check_binary(labels: Array) -> None:
    """Raise unless all labels (n,) are 0 or 1, the classes of a network with one output."""
    found = to_numpy(labels) if readable(labels) else np.zeros(0)
    others = found[(found != 0) & (found != 1)]
    if others.size:
        raise ValueError(
            f"labels has {others[0]}, but the classes of a network with one output, the logit of class 1, are 0 and 1; "
            f"use (labels == {found.max()}).astype(int)."
        )


def checked_weights(weights: Any, samples: Array) -> Array | None:
    """Check weights (n,) of samples or outputs, or None; return them in float64 where the library has it."""
    if weights is None:
        return None
    weights = as_float_array("weights", weights, integers=True)
    xp = namespace(weights=weights, samples=samples)
    check_shape("weights", weights, tuple(samples.shape[:1]), "one weight per sample")
    check_finite("weights", weights)
    if readable(weights) and weights.shape[0] and not bool(xp.all(weights >= 0)):
        raise ValueError(f"weights must not be negative, but the smallest is {float(xp.min(weights)):.3g}.")
    return widen(weights)
