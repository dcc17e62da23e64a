"""Polynomials with straight lines beyond a bound, fitted together under a Gaussian or a mixture (MATH 4b, 4c).

Under a component, w.x of a neuron is Gaussian, and the second factor v.x of a gated unit is a line in it plus
independent noise. So the squared error of a neuron is an integral over one variable, for any function of its
preactivation: the moments of the inputs determine the best polynomial with lines as they determine the best polynomial.
"""

import math
from typing import Any, Literal

import numpy as np

from mlpoly.arrays import namespace, widen
from mlpoly.fitting.gaussian import fit_gaussian
from mlpoly.fitting.mixture.neuronwise import fit_neuronwise
from mlpoly.fitting.neuron_equations import NeuronEquations
from mlpoly.fitting.samples.neuronwise import fit_samples_neuronwise
from mlpoly.inputs import GaussianMixture, Samples
from mlpoly.networks import Layer, Network
from mlpoly.polynomials import BoundedPolynomial
from mlpoly.polynomials.bounded import check_bound
from mlpoly.special import LADDER, in_deviations, panels, reach_of
from mlpoly.units import Units

METHOD = "least squares neuron by neuron with lines beyond a bound, under a Gaussian"
PRIOR = 1e-9
BOUNDS = (1.5, 2.0, 2.5, 3.0, 4.0)  # those that are tried for "auto"
_NODES = 12  # Gauss-Legendre nodes on each panel


def fit_bounded(
    net: Network, inputs: Any, degree: int, bound: float | Literal["auto"], prior: float = PRIOR
) -> BoundedPolynomial:
    """Every neuron's best polynomial within a bound and continuous lines beyond it, under its own marginal.

    The `prior`, above 0, is the weight of the fit without a bound, with lines along the activation, relative to that of
    the inputs; it decides where hardly any input is. Samples have a prior of their own, see `SampleFit`.
    """
    bounds, net = BOUNDS if bound == "auto" else (check_bound(bound),), net.at_least_single()
    if not isinstance(net, Layer):
        raise TypeError(
            f"bound needs a network with one hidden layer, got {net!r}; use "
            f"mlpoly.fit(net, inputs, {degree}, method='composed').bounded({bounds[-1]:g})."
        )
    if isinstance(inputs, Samples):
        poly: BoundedPolynomial = fit_samples_neuronwise(net, inputs, degree, bounds)
        return poly
    mixture = isinstance(inputs, GaussianMixture)
    closed = fit_neuronwise(net, inputs, degree) if mixture else fit_gaussian(net, inputs, degree)
    if degree == 0:
        return closed.bounded(bounds[-1])
    problems = [_equations(net, inputs, closed.bounded(each)) for each in bounds]
    best = min(problems, key=lambda equations: equations.misfit(prior))
    return best.polynomial(prior, f"{METHOD}{' mixture' if mixture else ''}")


def _equations(net: Layer, inputs: Any, start: BoundedPolynomial) -> NeuronEquations[BoundedPolynomial]:
    """The normal equations of all neurons at the nodes of their marginals."""
    if isinstance(inputs, GaussianMixture):
        weights, (pooled, parts) = widen(inputs.weights), Units.pooled(net, inputs)
    else:
        pooled = Units.under(net, inputs, spreads=True)
        weights, parts = [1.0], [pooled]
    equations = NeuronEquations(start, pooled.gate)
    # Nodes t (m, h) of a component's standardised preactivations, on panels that end at bounds and kinks and are narrow
    # enough for products of two basis functions.
    xp, reach = namespace(shifts=start.units.shifts), reach_of(start.degree)
    count = math.ceil(reach / min(1.0, math.sqrt(4.5 / (start.degree + 1))))
    grid, units, activation = np.linspace(-reach, reach, count + 1), start.units, net.activation
    places = activation.kinks if activation.pieces is not None else sorted({*LADDER, *activation.kinks})
    for weight, own in zip(weights, parts, strict=True):
        bends = [units.shifts + sign * start.bounds * units.scales for sign in (-1, 1)]
        bends += [own.shifts * 0 + place - own.bias for place in places]
        edges = xp.stack([widen(bend) for bend in bends]) - own.shifts
        t, density = panels(grid, [in_deviations(edges, xp.where(own.scales > 0, own.scales, 1.0))], _NODES)
        y = own.shifts + own.scales * t
        value = net.activation(y + widen(own.bias))
        if own.gate is None:
            equations.add(y, None, value, weight * density)
            continue
        # The error is quadratic in the noise e, so the two values +-spread have the moments that it needs.
        for sign in (-1.0, 1.0):
            z = own.gate.shifts + own.gate.slopes * t + sign * own.gate.spreads
            factor = z + widen(own.gate.bias)
            equations.add(y, z, value * factor, 0.5 * weight * density)
    return equations
