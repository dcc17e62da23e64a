"""Input distributions: Gaussians, mixtures, samples."""

from mlpoly.inputs.accumulator import MomentAccumulator
from mlpoly.inputs.gaussian import Gaussian
from mlpoly.inputs.interface import Gaussians, Inputs, check_order, checked_inputs, inputs_of
from mlpoly.inputs.mixture import GaussianMixture
from mlpoly.inputs.samples import Samples

__all__ = [
    "Gaussian",
    "GaussianMixture",
    "Gaussians",
    "Inputs",
    "MomentAccumulator",
    "Samples",
    "check_order",
    "checked_inputs",
    "inputs_of",
]
