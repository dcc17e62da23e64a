"""Functions under one Gaussian, and their inner products by degree (MATH 5, 10, 11, 12)."""

from mlpoly.moments.expansion import Expansion
from mlpoly.moments.explicit import Products, Quadratic
from mlpoly.moments.inner import AnyExpansion, ByDegree, common, inner
from mlpoly.moments.kernels.conditional import power_series, smoothed

__all__ = [
    "AnyExpansion", "ByDegree", "Expansion", "Products", "Quadratic", "common", "inner", "power_series", "smoothed",
]  # fmt: skip
