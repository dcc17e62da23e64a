"""Polynomials and lines fitted together under Gaussians and mixtures, from moments alone."""

import math
from functools import partial

import numpy as np
import pytest
from support.backends import assert_close
from support.inputs import mixture, points
from support.networks import network
from support.quadrature import panels

import mlpoly as mp
from mlpoly.fitting.bounded import BOUNDS, fit_bounded
from mlpoly.polynomials import BoundedPolynomial

kinds = pytest.mark.parametrize(("kind", "activation"), [("MLP", "gelu"), ("MLP", "relu"), ("GLU", "silu")])

make_net = partial(network, h=4, o=None, bias=0.5)
make_mixture = partial(mixture, gap=1.0)


def neurons_on_nodes(net, mix, poly, i):
    """Preactivations y and z of unit i at nodes, weights, and its values and basis functions there.

    The basis is in monomials, and the noise in z has three Gauss-Hermite nodes: another route than that of the fit.
    """
    forms, b = net.forms, float(poly.bounds[i])
    shift, scale = poly.units.shifts[i], poly.units.scales[i]
    noise, chance = np.polynomial.hermite_e.hermegauss(3)
    chance = chance / chance.sum()
    rows = []
    for c, g in enumerate(mix.components):
        w = forms.directions[i]
        m, s = w @ g.mean, math.sqrt(w @ g.cov @ w)
        bias = 0.0 if forms.bias is None else forms.bias[i]
        cuts = [(shift - b * scale - m) / s, (shift + b * scale - m) / s]
        cuts += [(place - bias - m) / s for place in (-9, -3, -1, 0, 1, 3, 9)]
        t, weights = panels(np.array(cuts), nodes=20)
        y, value = m + s * t, net.activation(m + s * t + bias)
        if forms.gate_directions is None:
            rows.append((y, 0 * y, mix.weights[c] * weights, value))
            continue
        v = forms.gate_directions[i]
        slope = v @ g.cov @ w / s
        spread = math.sqrt(v @ g.cov @ v - slope**2)
        for e, p in zip(noise, chance, strict=True):
            z = v @ g.mean + slope * t + spread * e
            rows.append((y, z, mix.weights[c] * p * weights, value * (z + forms.gate_bias[i])))
    y, z, weights, target = (np.concatenate(part) for part in zip(*rows, strict=True))
    t = (y - shift) / scale
    held, n = np.clip(t, -b, b), poly.degree
    lines = [np.minimum(t - held, 0), np.maximum(t - held, 0)]
    columns = [*(held**k for k in range(n + 1)), *lines]
    if forms.gate_directions is not None:
        e = z - poly.units.gate.slopes[i] * held
        columns += [f * e for f in [*(held**k for k in range(n)), *(lines if n >= 2 else [])]]
    return y, z, weights, target, np.stack(columns, axis=1)


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("c", [1, 3])
@kinds
def test_each_neuron_is_the_least_squares_of_polynomial_and_lines(kind, activation, c, degree):
    net, mix = make_net(kind, activation, 3), make_mixture(3, c=c)
    poly = fit_bounded(net, mix, degree, 1.5, prior=1e-14)
    assert isinstance(poly, BoundedPolynomial) and poly.degree == degree
    for i in range(net.dim_hidden):
        y, z, weights, target, basis = neurons_on_nodes(net, mix, poly, i)
        got = poly.neurons(y[:, None] + np.zeros(4), None if kind == "MLP" else z[:, None] + np.zeros(4))[:, i]
        root, sizes = np.sqrt(weights)[:, None], np.sqrt(weights @ basis**2)
        best = (basis / sizes) @ np.linalg.lstsq(root * basis / sizes, root[:, 0] * target, rcond=1e-14)[0]
        scale = math.sqrt(weights @ target**2)
        # A function of mean square q moves by prior / (q + prior) towards the prior: by sqrt(prior) / 2 at most.
        assert math.sqrt(weights @ (got - best) ** 2) <= 1e-6 * scale
        # Orthogonality says the same without a solver: no direction in the basis improves the squared error.
        residual = (weights * (target - got)) @ basis / sizes
        assert np.abs(residual).max() <= 1e-6 * scale


@pytest.mark.parametrize("degree", [1, 3, 6])
@kinds
def test_a_bound_beyond_all_inputs_gives_the_polynomial_without_one(kind, activation, degree):
    net, mix = make_net(kind, activation, 3), make_mixture(3)
    far = mp.fit(net, mix, degree, bound=60.0)
    assert_close(far(points(3)), mp.fit(net, mix, degree, method="neuronwise")(points(3)), 1e-9)
    gaussian = mix.components[0]
    alone = mp.fit(net, gaussian, degree, bound=60.0)
    assert_close(alone(points(3)), mp.fit(net, gaussian, degree)(points(3)), 1e-9)


def test_polynomials_with_one_bend_at_the_bound_are_reproduced():
    """relu(y) with its kink at the upper bound of t is zero inside, and a line of slope `scale` beyond."""
    gaussian = mp.Gaussian(np.zeros(1), np.eye(1))
    net = mp.MLP(np.array([[2.0]]), np.array([-3.0]), None, None, activation="relu")
    poly = mp.fit(net, gaussian, 3, bound=1.5)
    x = np.linspace(-6, 6, 101)[:, None]
    assert_close(poly(x), net(x), 1e-7)
    assert_close(poly.slopes[:, 0], np.array([0.0, 2.0]), 1e-7)


def test_two_points_leave_the_lines_to_the_activation():
    """No input lies beyond one standard deviation, so that the prior decides on the slopes there."""
    x = np.random.default_rng(0).normal(size=(2, 2))
    net, mix = make_net("MLP", "gelu", 2), mp.GaussianMixture(np.array([0.5, 0.5]), x, np.zeros((2, 2, 2)))
    poly, drawn = mp.fit(net, mix, 2, bound=3.0), mp.fit(net, mix, 2, method="neuronwise").bounded(3.0)
    assert_close(poly(x), net(x), 1e-7)
    assert_close(poly.slopes, drawn.slopes, 1e-9)


def test_what_is_wrong_with_a_bound():
    net, inputs = make_net("MLP", "relu", 3), mp.Gaussian.standard(3)
    for wrong in (0, -1.0, math.inf, math.nan, True, "3"):
        with pytest.raises(ValueError, match="bound must be a positive number of standard deviations"):
            mp.fit(net, inputs, 3, bound=wrong)
    for method in ("exact", "expansion", "sampled", "composed"):
        with pytest.raises(ValueError, match="with a bound every neuron is fitted by itself"):
            mp.fit(net, inputs, 3, bound=3.0, method=method)
    deep = mp.Chain([network("MLP", "relu", 3, o=3), network("MLP", "relu", 3, o=2)])
    with pytest.raises(TypeError, match=r"method='composed'\)\.bounded\(3\)"):
        mp.fit(deep, inputs, 3, bound=3.0)


@pytest.mark.parametrize("inputs", ["Gaussian", "mixture", "samples"])
@kinds
def test_the_bound_may_be_chosen(kind, activation, inputs):
    """A single neuron is all of the network, so that the least error of its own is the least of all."""
    net, mix = make_net(kind, activation, 3, h=1), make_mixture(3, c=3)
    under = {"Gaussian": mix.components[0], "mixture": mix, "samples": mp.Samples(mix.sample(500, 0))}[inputs]
    chosen = mp.fit(net, under, 3, bound="auto")
    errors = {b: float(mp.fvu(net, mp.fit(net, under, 3, bound=b)).total) for b in BOUNDS}
    assert float(chosen.bounds[0]) == min(errors, key=errors.__getitem__)
    assert float(mp.fvu(net, chosen).total) == min(errors.values())
    if inputs != "Gaussian":
        joint = mp.fit(net, under, 3, method="joint", bound="auto")
        assert float(joint.bounds[0]) == float(chosen.bounds[0])
        assert float(mp.fvu(net, joint).total) <= min(errors.values()) * (1 + 1e-6)
    constant = mp.fit(net, under, 0, bound="auto")
    assert np.ptp(constant(under.sample(9, 0) if inputs != "samples" else under.x), axis=0).max() < 1e-9
