"""The optimal polynomial under one Gaussian: every neuron is projected by itself (MATH 1, 2).

He_k of a standardised preactivation is orthogonal to every polynomial of x of degree below k. So the least-squares
polynomial of a whole layer is each neuron's own Hermite series, cut at the degree: no linear solve, no feature
covariance, no d^n tensor.
"""

from __future__ import annotations

from mlpoly.activations import project
from mlpoly.arrays import cast_like
from mlpoly.fitting.preactivations import preactivations, regression
from mlpoly.inputs import Gaussian
from mlpoly.networks import Layer
from mlpoly.polynomials import Gate, RidgePolynomial, Source
from mlpoly.special import times_line

__all__ = ["fit_gaussian"]

METHOD = "least squares under a Gaussian"


def fit_gaussian(net: Layer, inputs: Gaussian, degree: int) -> RidgePolynomial:
    """Optimal polynomial of a network under one Gaussian."""
    return fit_mlp(net, inputs, degree) if net.forms.gate_directions is None else fit_glu(net, inputs, degree)


def fit_mlp(net: Layer, inputs: Gaussian, degree: int) -> RidgePolynomial:
    """Optimal polynomial of an MLP: p_i = sum_{k <= n} c_k he_k(t_i) (MATH 1)."""
    forms = net.forms
    y = preactivations(inputs, forms.directions)
    mean = y.centres if forms.bias is None else y.centres + forms.bias
    series = project(net.activation, mean, y.stds, degree)
    return RidgePolynomial(
        directions=forms.directions,
        shifts=cast_like(y.centres, forms.directions),
        scales=cast_like(y.stds, forms.directions),
        series=cast_like(series, forms.directions),
        readout=net.readout,
        bias=net.bias,
        inputs=inputs,
        source=Source(net.activation.name, METHOD),
    )


def fit_glu(net: Layer, inputs: Gaussian, degree: int) -> RidgePolynomial:
    """Optimal polynomial of a GLU: sum_{k <= n} C_k he_k(t_i) + e_i sum_{k <= n-1} c_k he_k(t_i) (MATH 2)."""
    forms = net.forms
    y = preactivations(inputs, forms.directions, forms.gate_directions)
    mean = y.centres if forms.bias is None else y.centres + forms.bias
    up_mean = y.gate_centres if forms.gate_bias is None else y.gate_centres + forms.gate_bias
    slopes = regression(y.cross, y.stds)
    c = project(net.activation, mean, y.stds, degree + 1)
    gate = Gate(
        directions=forms.gate_directions,
        shifts=cast_like(y.gate_centres, forms.gate_directions),
        slopes=cast_like(slopes, forms.gate_directions),
        series=cast_like(c[:degree, ...], forms.gate_directions),
    )
    return RidgePolynomial(
        directions=forms.directions,
        shifts=cast_like(y.centres, forms.directions),
        scales=cast_like(y.stds, forms.directions),
        series=cast_like(times_line(c, up_mean, slopes), forms.directions),
        readout=net.readout,
        bias=net.bias,
        gate=gate if degree else None,
        inputs=inputs,
        source=Source(net.activation.name, METHOD),
    )
