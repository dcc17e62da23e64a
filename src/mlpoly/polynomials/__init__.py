"""What comes out: polynomials in factored, dense and chaos form, their coefficients and files."""

from mlpoly.polynomials.base import Polynomial
from mlpoly.polynomials.chaos import ChaosPolynomial
from mlpoly.polynomials.coefficients import Coefficients
from mlpoly.polynomials.dense import DensePolynomial, to_dense
from mlpoly.polynomials.files import load
from mlpoly.polynomials.ridge import Gate, RidgePolynomial
from mlpoly.polynomials.source import Source
from mlpoly.polynomials.tails import Tails

__all__ = [
    "ChaosPolynomial",
    "Coefficients",
    "DensePolynomial",
    "Gate",
    "Polynomial",
    "RidgePolynomial",
    "Source",
    "Tails",
    "load",
    "to_dense",
]
