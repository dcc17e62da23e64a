"""Input distributions: Gaussians, mixtures, samples."""

from mlpoly.inputs.accumulator import MomentAccumulator
from mlpoly.inputs.gaussian import Gaussian
from mlpoly.inputs.interface import Gaussians, Inputs
from mlpoly.inputs.mixture import GaussianMixture
from mlpoly.inputs.resolve import (
    InputsLike,
    as_inputs,
    check_order,
    checked_inputs,
    in_library,
    inputs_of,
    require_gaussians,
)
from mlpoly.inputs.samples import Samples

__all__ = [
    "Gaussian", "GaussianMixture", "Gaussians", "Inputs", "InputsLike", "MomentAccumulator", "Samples", "as_inputs",
    "check_order", "checked_inputs", "in_library", "inputs_of", "require_gaussians",
]  # fmt: skip
