"""Polynomials in factored, dense, chaos, bounded and composed form, their coefficients and files."""

from mlpoly.polynomials.base import Polynomial, map_polynomial
from mlpoly.polynomials.bounded import BoundedPolynomial
from mlpoly.polynomials.chaos import ChaosPolynomial
from mlpoly.polynomials.coefficients import Coefficients
from mlpoly.polynomials.composed import ComposedPolynomial
from mlpoly.polynomials.dense import DensePolynomial, to_dense
from mlpoly.polynomials.fields import Source
from mlpoly.polynomials.ridge import RidgePolynomial
from mlpoly.polynomials.saving import load

__all__ = [
    "BoundedPolynomial", "ChaosPolynomial", "Coefficients", "ComposedPolynomial", "DensePolynomial", "Polynomial",
    "RidgePolynomial", "Source", "load", "map_polynomial", "to_dense",
]  # fmt: skip
