"""A function under each of the Gaussians that its inputs are made of: what every closed form starts from."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import Array, decidable, namespace, widen
from mlpoly.inputs import Gaussian, checked_inputs, require_gaussians
from mlpoly.moments import AnyExpansion, Expansion
from mlpoly.networks import check_layer
from mlpoly.polynomials import Polynomial


def gaussians(function: Any, inputs: Any) -> list[tuple[Array, Gaussian]]:
    """Weights and Gaussians of the inputs, in the array library of a function of them; one Gaussian has weight 1."""
    inputs = require_gaussians(checked_inputs(function, inputs))
    if not decidable(function.prototype, inputs.mean):
        raise TypeError(
            "closed-form measures choose their route by value; call them outside jax.jit and torch.compile."
        )
    weights = widen(inputs.weights)
    weights = weights / namespace(weights=weights).sum(weights)
    return [(weights[c], g) for c, g in enumerate(inputs.components)]


def expansion(function: Any, inputs: Gaussian) -> AnyExpansion:
    """A checked layer or polynomial under one Gaussian."""
    return function.hermite(inputs) if isinstance(function, Polynomial) else Expansion.of(function, inputs)


def expansions(function: Any, inputs: Any) -> list[tuple[Array, AnyExpansion]]:
    """A network with one hidden layer, or a polynomial, under each Gaussian of the inputs, with their weights."""
    function = function if isinstance(function, Polynomial) else check_layer(function)
    return [(weight, expansion(function, g)) for weight, g in gaussians(function, inputs)]
