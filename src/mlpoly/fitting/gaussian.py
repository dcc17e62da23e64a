"""The optimal polynomial under one Gaussian: each neuron is projected separately (MATH 1, 2).

He_k of a standardised preactivation is orthogonal to every polynomial of x of degree below k. So the least-squares
polynomial of a whole layer is the sum of the neurons' Hermite series, truncated at the degree: no linear solve, no
feature covariance, no d^n tensor.
"""

from collections.abc import Callable
from typing import Any

from mlpoly.arrays import cast_like
from mlpoly.inputs import Gaussian, Inputs
from mlpoly.networks import Layer
from mlpoly.polynomials import DensePolynomial, RidgePolynomial, Source
from mlpoly.records import map_arrays, replace
from mlpoly.units import Series, Units

# From a network, a Gaussian and a degree to the best polynomial under that Gaussian, as a solver for mixtures needs it.
Optimum = Callable[[Any, Gaussian, int], RidgePolynomial | DensePolynomial]

METHOD = "least squares under a Gaussian"


def fit_gaussian(net: Layer, inputs: Gaussian, degree: int) -> RidgePolynomial:
    """Optimal polynomial of a network under one Gaussian: sum_{k <= n} of the Hermite series of its units."""
    units = Units.under(net, inputs)
    series = units.expand(net.activation, degree)
    return ridge_polynomial(net, inputs, units, series, METHOD)


def ridge_polynomial(net: Layer, inputs: Inputs, units: Units, series: Series, method: str) -> RidgePolynomial:
    """The polynomial of a network with these units and series, in the network's dtype."""
    units = units if series.degree else replace(units, gate=None)  # a constant has no second factor
    arrays = map_arrays((units, series), lambda a: cast_like(a, net.prototype))
    fields: dict[str, Any] = {"readout": net.readout, "bias": net.bias, "activation": net.activation, "inputs": inputs}
    return RidgePolynomial(*arrays, **fields, source=Source(net.activation.name, method))
