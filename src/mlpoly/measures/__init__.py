"""How good: what a polynomial leaves of its network unexplained, and at which degrees the network lives."""

from mlpoly.measures.compare import Comparison, compare
from mlpoly.measures.fvu import FVU, fvu
from mlpoly.measures.kl import Estimate, accuracy, agreement, kl
from mlpoly.measures.moments import SecondMoment, second_moment
from mlpoly.measures.spectrum import DegreeSpectrum, degree_spectrum

__all__ = [
    "FVU",
    "Comparison",
    "DegreeSpectrum",
    "Estimate",
    "SecondMoment",
    "accuracy",
    "agreement",
    "compare",
    "degree_spectrum",
    "fvu",
    "kl",
    "second_moment",
]
