"""Input distributions: Gaussians, mixtures, samples, independent inputs with any marginals."""

from mlpoly.inputs.accumulator import MomentAccumulator
from mlpoly.inputs.conditioning import Given, check_possible, input_places, posterior
from mlpoly.inputs.coordinates import Coordinates
from mlpoly.inputs.gaussian import Gaussian
from mlpoly.inputs.independent import Independent
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
    "Coordinates", "Gaussian", "GaussianMixture", "Gaussians", "Given", "Independent", "Inputs", "InputsLike",
    "MomentAccumulator", "Samples", "as_inputs", "check_order", "check_possible", "checked_inputs", "in_library",
    "input_places", "inputs_of", "posterior", "require_gaussians",
]  # fmt: skip
