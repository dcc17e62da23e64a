"""Features: the directions that a polynomial reads, and inputs without them."""

from mlpoly.features.decomposition import QuadraticDecomposition, decompose
from mlpoly.features.eigen import EigenFeatures, eigenfeatures
from mlpoly.features.principal import PrincipalForms, principal_forms
from mlpoly.features.single_prediction import Contribution, Explanation, explain
from mlpoly.features.singular import SingularDirections, ablate, singular_directions
from mlpoly.features.term_table import Term, Terms

__all__ = [
    "Contribution", "EigenFeatures", "Explanation", "PrincipalForms", "QuadraticDecomposition",
    "SingularDirections", "Term", "Terms", "ablate", "decompose", "eigenfeatures", "explain", "principal_forms",
    "singular_directions",
]  # fmt: skip
