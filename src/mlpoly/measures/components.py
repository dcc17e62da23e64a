"""The Gaussians that a distribution is made of, and the checks that every measure shares."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import Array, namespace, widen
from mlpoly.inputs import Gaussian, GaussianMixture
from mlpoly.layers import GLU, MLP

__all__ = ["check_net", "components", "weights_of"]


def components(net: MLP | GLU, inputs: Any) -> list[tuple[Any, Gaussian]]:
    """Weights and Gaussians of the inputs, in the array library of the network; one Gaussian has weight 1.

    Every measure of this folder is a weighted sum over them, plus what lies between their means.
    """
    check_net(net)
    if not isinstance(inputs, (Gaussian, GaussianMixture)):
        raise TypeError(
            f"inputs must be a Gaussian or a GaussianMixture, got {type(inputs).__name__}; "
            f"for data use mlpoly.Gaussian.from_samples(x), for N(0, I) mlpoly.Gaussian.standard(d)."
        )
    if inputs.dim != net.dim_in:
        raise ValueError(f"inputs have dimension {inputs.dim}, but the network takes {net.dim_in} inputs.")
    inputs = inputs.like(weights_of(net))
    namespace(net=weights_of(net), inputs=inputs.mean)
    if isinstance(inputs, Gaussian):
        return [(1.0, inputs)]
    weights = widen(inputs.weights)
    weights = weights / namespace(weights=weights).sum(weights)
    return [(weights[c], g) for c, g in enumerate(inputs.components)]


def weights_of(net: MLP | GLU) -> Array:
    """The first weight matrix, to tell library, dtype and device."""
    return net.W1 if isinstance(net, MLP) else net.W_gate


def check_net(net: Any) -> None:
    """Raise unless `net` is one of the library's networks."""
    if not isinstance(net, (MLP, GLU)):
        hint = "; convert it first with mlpoly.from_torch(module)" if hasattr(net, "state_dict") else ""
        raise TypeError(f"net must be an mlpoly.MLP or mlpoly.GLU, got {type(net).__name__}{hint}.")
