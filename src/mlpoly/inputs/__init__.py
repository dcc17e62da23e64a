"""What goes in: the distribution of the inputs."""

from mlpoly.inputs.checks import checked_inputs
from mlpoly.inputs.gaussian import Gaussian
from mlpoly.inputs.mixture import GaussianMixture
from mlpoly.inputs.moments import MomentAccumulator

__all__ = ["Gaussian", "GaussianMixture", "MomentAccumulator", "checked_inputs"]
