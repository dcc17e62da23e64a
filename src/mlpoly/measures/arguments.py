"""Checks of the arguments of measures; each message names the argument and says what to do."""

from __future__ import annotations

from typing import Any

from mlpoly.inputs import Samples, as_inputs, check_order


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
            plain = callable(value) and name in ("net", "poly")
            data = "; on data (n, d) as inputs any callable works" if plain else ""
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


def checked_data(inputs: Any, minimum: int = 1, **models: Any) -> Samples:
    """Check data (n, d), or `Samples`, for models that take them; at least `minimum` rows."""
    dim, data = check_models(**models), as_inputs(inputs)
    if not isinstance(data, Samples):
        raise TypeError(
            f"inputs must be data of shape (n, d), or mlpoly.Samples, got {type(data).__name__}; "
            f"inputs.sample(n) draws some."
        )
    if dim is not None and data.dim != dim:
        raise ValueError(f"inputs have {data.dim} columns, but the network takes {dim} inputs.")
    for name, model in models.items():  # networks and polynomials have names of their inputs, other functions do not
        check_order(data, model.names if _has_sizes(model) else None, name)
    if data.count < minimum:
        purpose = "a mean" if minimum == 1 else "a variance"
        raise ValueError(f"inputs have {data.count} rows; {purpose} needs at least {minimum}.")
    return data
