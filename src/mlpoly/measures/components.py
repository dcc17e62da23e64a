"""The Gaussians that a distribution is made of, and the checks that every measure shares."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import namespace, readable, widen
from mlpoly.inputs import Gaussian, checked_inputs
from mlpoly.networks import Layer, check_network

__all__ = ["check_functions", "check_models", "components"]


def components(net: Layer, inputs: Any) -> list[tuple[Any, Gaussian]]:
    """Weights and Gaussians of the inputs, in the array library of the network; one Gaussian has weight 1.

    Every measure of this folder is a weighted sum over them, plus what lies between their means.
    """
    check_network(net)
    inputs = checked_inputs(inputs, net.dim_in, net.prototype)
    if not readable(net.prototype, inputs.mean):
        raise TypeError(
            "closed-form measures choose their route by value; call them outside jax.jit and torch.compile."
        )
    if isinstance(inputs, Gaussian):
        return [(1.0, inputs)]
    weights = widen(inputs.weights)
    weights = weights / namespace(weights=weights).sum(weights)
    return [(weights[c], g) for c, g in enumerate(inputs.components)]


def check_models(net: Any, poly: Any) -> int | None:
    """Raise unless both can be called, with the same inputs and outputs; the number of inputs, if one of them tells."""
    for name, value in (("net", net), ("poly", poly)):
        if not callable(value):
            found = type(value).__name__
            raise TypeError(
                f"{name} must be a network, a polynomial or any callable from (n, d) to (n, o), got {found}."
            )
    known = [model for model in (net, poly) if _is_ours(model)]
    if len(known) == 2:
        check_functions(net, poly)
    return known[0].dim_in if known else None


def _is_ours(value: Any) -> bool:
    return all(hasattr(value, a) for a in ("dim_in", "dim_out", "__call__"))


def check_functions(net: Any, poly: Any) -> None:
    """Raise unless both are functions of this library with the same inputs and outputs."""
    for name, value in (("net", net), ("poly", poly)):
        if not _is_ours(value):
            hint = "; convert it first with mlpoly.from_torch(module)" if hasattr(value, "state_dict") else ""
            data = "; on data, samples=x, any callable will do" if callable(value) else ""
            raise TypeError(
                f"{name} must be a network or polynomial of this library, got {type(value).__name__}{hint}{data}."
            )
    if (net.dim_in, net.dim_out) != (poly.dim_in, poly.dim_out):
        raise ValueError(
            f"net maps {net.dim_in} -> {net.dim_out}, but poly maps {poly.dim_in} -> {poly.dim_out}; "
            f"was the polynomial fitted to another network?"
        )
