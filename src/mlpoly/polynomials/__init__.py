"""What comes out: polynomials in factored form, their coefficients and files."""

from mlpoly.polynomials.coefficients import Coefficients
from mlpoly.polynomials.files import load
from mlpoly.polynomials.ridge import Gate, RidgePolynomial
from mlpoly.polynomials.source import Source

__all__ = ["Coefficients", "Gate", "RidgePolynomial", "Source", "load"]
