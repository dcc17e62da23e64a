"""Measures: how far a polynomial is from its network, and how the network's variance is spread over degrees."""

from mlpoly.measures.compare import Comparison, compare
from mlpoly.measures.conditional_mean import ConditionalMean, conditional_mean
from mlpoly.measures.degree_spectrum import DegreeSpectrum, degree_spectrum
from mlpoly.measures.fvu import fvu
from mlpoly.measures.kl import accuracy, agreement, kl
from mlpoly.measures.number import FVU, Estimate
from mlpoly.measures.outputs import (
    ErrorSums,
    accuracy_of_outputs,
    agreement_of_outputs,
    fvu_of_outputs,
    kl_of_outputs,
)
from mlpoly.measures.second_moments import SecondMoment, second_moment
from mlpoly.measures.sensitivity import Sensitivity, sensitivity
from mlpoly.measures.shapley import Shapley, shapley
from mlpoly.measures.similarity import Overlap, Similarity, similarity

__all__ = [
    "FVU",
    "Comparison",
    "ConditionalMean",
    "DegreeSpectrum",
    "ErrorSums",
    "Estimate",
    "Overlap",
    "SecondMoment",
    "Sensitivity",
    "Shapley",
    "Similarity",
    "accuracy",
    "accuracy_of_outputs",
    "agreement",
    "agreement_of_outputs",
    "compare",
    "conditional_mean",
    "degree_spectrum",
    "fvu",
    "fvu_of_outputs",
    "kl",
    "kl_of_outputs",
    "second_moment",
    "sensitivity",
    "shapley",
    "similarity",
]
