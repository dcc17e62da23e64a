"""What becomes of a Gaussian in a deep network: its moments, and the first terms of every unit's expansion (MATH 9)."""

from mlpoly.propagation.closure import Closure, State
from mlpoly.propagation.first_terms import FirstTerms, coordinates, expand
from mlpoly.propagation.propagate import LayerMoments, Propagation, propagate
from mlpoly.propagation.third_cumulants import ThirdCumulants, takes_third_cumulants

__all__ = [
    "Closure", "FirstTerms", "LayerMoments", "Propagation", "State", "ThirdCumulants", "coordinates", "expand",
    "propagate", "takes_third_cumulants",
]  # fmt: skip
