"""Checks of a network and its inputs that fitting and measures share."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import namespace
from mlpoly.inputs import Inputs
from mlpoly.networks import Layer

__all__ = ["checked_inputs"]


def checked_inputs(net: Layer, inputs: Any) -> Inputs:
    """The inputs, checked against the network and in its array library."""
    if not isinstance(inputs, Inputs):
        raise TypeError(
            f"inputs must be a Gaussian, a GaussianMixture or Samples, got {type(inputs).__name__}; for data use "
            f"mlpoly.Samples(x) or mlpoly.Gaussian.from_samples(x), for N(0, I) mlpoly.Gaussian.standard(d)."
        )
    if inputs.dim != net.dim_in:
        raise ValueError(f"inputs have dimension {inputs.dim}, but the network takes {net.dim_in} inputs.")
    weight = net.prototype
    inputs = inputs.like(weight)
    namespace(net=weight, inputs=inputs.prototype)
    return inputs
