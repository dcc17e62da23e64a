"""The optimal polynomial under one Gaussian: each neuron is projected separately (MATH 1, 2).

He_k of a standardised preactivation is orthogonal to every polynomial of x of degree below k. So the least-squares
polynomial of a whole layer is the sum of the neurons' Hermite series, truncated at the degree: no linear solve, no
feature covariance, no d^n tensor.
"""

from collections.abc import Callable
from typing import Any

from mlpoly.arrays import cast_like
from mlpoly.inputs import Gaussian
from mlpoly.networks import Layer
from mlpoly.polynomials import DensePolynomial, RidgePolynomial, Source
from mlpoly.records import map_arrays, replace
from mlpoly.units import Units

# From a network, a Gaussian and a degree to the best polynomial under that Gaussian, as a solver for mixtures needs it.
Optimum = Callable[[Any, Gaussian, int], RidgePolynomial | DensePolynomial]

METHOD = "least squares under a Gaussian"


def fit_gaussian(net: Layer, inputs: Gaussian, degree: int) -> RidgePolynomial:
    """Optimal polynomial of a network under one Gaussian: sum_{k <= n} of the Hermite series of its units."""
    units = Units.under(net, inputs)
    series = units.expand(net.activation, degree)
    if degree == 0:  # a constant has no second factor
        units = replace(units, gate=None)
    return RidgePolynomial(
        *map_arrays((units, series), lambda a: cast_like(a, net.prototype)),
        readout=net.readout,
        bias=net.bias,
        activation=net.activation,
        inputs=inputs,
        source=Source(net.activation.name, METHOD),
    )
