"""Measures: how far a polynomial is from its network, and how the network's variance is spread over degrees."""

from mlpoly.measures.additive import additive
from mlpoly.measures.check import DataCheck, UnitCheck, check
from mlpoly.measures.compare import Comparison, Comparisons, compare, kl
from mlpoly.measures.conditional import Conditional, conditional
from mlpoly.measures.conditional_mean import ConditionalMean, conditional_mean
from mlpoly.measures.degree_spectrum import DegreeSpectrum, degree_spectrum
from mlpoly.measures.fvu import fvu
from mlpoly.measures.second_moments import SecondMoment, second_moment
from mlpoly.measures.sensitivity import Sensitivity, sensitivity
from mlpoly.measures.shape_functions import AdditiveModel
from mlpoly.measures.shapley import Shapley, shapley
from mlpoly.measures.similarity import Overlap, Similarity, similarity

__all__ = [
    "AdditiveModel", "Comparison", "Comparisons", "Conditional", "ConditionalMean", "DataCheck", "DegreeSpectrum",
    "Overlap", "SecondMoment", "Sensitivity", "Shapley", "Similarity", "UnitCheck", "additive", "check", "compare",
    "conditional", "conditional_mean", "degree_spectrum", "fvu", "kl", "second_moment", "sensitivity", "shapley",
    "similarity",
]  # fmt: skip
