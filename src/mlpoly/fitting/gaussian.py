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
from mlpoly.layers import GLU, MLP
from mlpoly.polynomials import Gate, RidgePolynomial, Source
from mlpoly.special import times_line

__all__ = ["fit_gaussian"]

METHOD = "least squares under a Gaussian"


def fit_gaussian(net: MLP | GLU, inputs: Gaussian, degree: int) -> RidgePolynomial:
    """Optimal polynomial of a network under one Gaussian."""
    return fit_mlp(net, inputs, degree) if isinstance(net, MLP) else fit_glu(net, inputs, degree)


def fit_mlp(net: MLP, inputs: Gaussian, degree: int) -> RidgePolynomial:
    """Optimal polynomial of an MLP: p_i = sum_{k <= n} c_k he_k(t_i) (MATH 1)."""
    y = preactivations(inputs, net.W1)
    mean = y.centres if net.b1 is None else y.centres + net.b1
    series = project(net.activation, mean, y.stds, degree)
    return RidgePolynomial(
        directions=net.W1,
        shifts=cast_like(y.centres, net.W1),
        scales=cast_like(y.stds, net.W1),
        series=cast_like(series, net.W1),
        readout=net.W2,
        bias=net.b2,
        inputs=inputs,
        source=Source(net.activation.name, METHOD),
    )


def fit_glu(net: GLU, inputs: Gaussian, degree: int) -> RidgePolynomial:
    """Optimal polynomial of a GLU: sum_{k <= n} C_k he_k(t_i) + e_i sum_{k <= n-1} c_k he_k(t_i) (MATH 2)."""
    y = preactivations(inputs, net.W_gate, net.W_up)
    mean = y.centres if net.b_gate is None else y.centres + net.b_gate
    up_mean = y.gate_centres if net.b_up is None else y.gate_centres + net.b_up
    slopes = regression(y.cross, y.stds)
    c = project(net.activation, mean, y.stds, degree + 1)
    gate = Gate(
        directions=net.W_up,
        shifts=cast_like(y.gate_centres, net.W_up),
        slopes=cast_like(slopes, net.W_up),
        series=cast_like(c[:degree, ...], net.W_up),
    )
    return RidgePolynomial(
        directions=net.W_gate,
        shifts=cast_like(y.centres, net.W_gate),
        scales=cast_like(y.stds, net.W_gate),
        series=cast_like(times_line(c, up_mean, slopes), net.W_gate),
        readout=net.W_down,
        bias=net.b_down,
        gate=gate if degree else None,
        inputs=inputs,
        source=Source(net.activation.name, METHOD),
    )
