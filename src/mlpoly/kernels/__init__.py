"""Second moments of hidden units and of what a layer makes of them, under a Gaussian (MATH 5)."""

from mlpoly.kernels.conditional import power_series, smoothed
from mlpoly.kernels.cross import CrossCovariance, cross_covariance
from mlpoly.kernels.layer_moments import Hidden, Variance, hidden_of, output_moments, variance_by_degree

__all__ = [
    "CrossCovariance",
    "Hidden",
    "Variance",
    "cross_covariance",
    "hidden_of",
    "output_moments",
    "power_series",
    "smoothed",
    "variance_by_degree",
]
