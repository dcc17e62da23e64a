"""Features: the directions that a polynomial reads, and inputs without them."""

from mlpoly.features.eigen import EigenFeatures, eigenfeatures
from mlpoly.features.singular import SingularDirections, ablate, singular_directions

__all__ = ["EigenFeatures", "SingularDirections", "ablate", "eigenfeatures", "singular_directions"]
