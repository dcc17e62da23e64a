"""The Gaussians that a distribution is made of."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import namespace, readable, widen
from mlpoly.inputs import Gaussian, Gaussians, checked_inputs
from mlpoly.networks import Layer, check_network

__all__ = ["components"]


def components(net: Layer, inputs: Any) -> list[tuple[Any, Gaussian]]:
    """Weights and Gaussians of the inputs, in the array library of the network; one Gaussian has weight 1.

    Every measure in closed form is a weighted sum over them, plus what lies between their means.
    """
    check_network(net)
    inputs = checked_inputs(inputs, net.dim_in, net.prototype)
    if not readable(net.prototype, inputs.mean):
        raise TypeError(
            "closed-form measures choose their route by value; call them outside jax.jit and torch.compile."
        )
    if not isinstance(inputs, Gaussians):
        raise TypeError(f"inputs must be a Gaussian or a GaussianMixture, got {type(inputs).__name__}.")
    weights = widen(inputs.weights)
    weights = weights / namespace(weights=weights).sum(weights)
    return [(weights[c], g) for c, g in enumerate(inputs.components)]
