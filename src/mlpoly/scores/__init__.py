"""Measures of two arrays: how close two tables of outputs are, wherever they come from.

Sums are taken in float64 where the library has it. Samples may have weights, relative frequencies of any scale: moments
are then weighted population moments, and for integer weights those of repeated rows. Standard errors treat the samples
as independent draws with given weights w: the squared error of a mean of v is sum w^2 (v - mean)^2 / (sum w)^2, times
m / (m - 1) for the effective number of samples m = (sum w)^2 / sum w^2.
"""

from mlpoly.scores.classifiers import accuracy_of_outputs, agreement_of_outputs, kl_of_outputs
from mlpoly.scores.error_sums import ErrorSums, fvu_of_outputs
from mlpoly.scores.number import FVU, Estimate

__all__ = [
    "FVU", "ErrorSums", "Estimate", "accuracy_of_outputs", "agreement_of_outputs", "fvu_of_outputs",
    "kl_of_outputs",
]  # fmt: skip
