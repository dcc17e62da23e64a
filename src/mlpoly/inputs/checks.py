"""The check that something is a distribution of a network's inputs."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import Array, namespace
from mlpoly.inputs.base import Inputs

__all__ = ["checked_inputs"]


def checked_inputs(inputs: Any, dim: int, weights: Array) -> Any:
    """The inputs of a network that takes `dim` of them, in the array library of its weights."""
    if not isinstance(inputs, Inputs):
        raise TypeError(
            f"inputs must be a Gaussian, a GaussianMixture or Samples, got {type(inputs).__name__}; for data use "
            f"mlpoly.Samples(x) or mlpoly.Gaussian.from_samples(x), for N(0, I) mlpoly.Gaussian.standard(d)."
        )
    if inputs.dim != dim:
        raise ValueError(f"inputs have dimension {inputs.dim}, but the network takes {dim} inputs.")
    inputs = inputs.like(weights)
    namespace(net=weights, inputs=inputs.prototype)
    return inputs
