"""What it says: the directions a polynomial reads, and removing them."""

from mlpoly.features.eigen import EigenFeatures, eigenfeatures
from mlpoly.features.singular import SingularDirections, ablate, singular_directions

__all__ = ["EigenFeatures", "SingularDirections", "ablate", "eigenfeatures", "singular_directions"]
