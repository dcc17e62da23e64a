"""Neuron by neuron under a mixture: each its own one-dimensional least squares, a ridge form of any degree and size."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support.backends import assert_close
from support.inputs import grid, mixture, points
from support.networks import network

import mlpoly as mp

KINDS = ("MLP", "GLU")
kinds = pytest.mark.parametrize("kind", KINDS)


make_net = partial(network, h=5, o=2, bias=0.5)
make_mixture = partial(mixture, gap=1.0)


def neuronwise(net, mix, degree):
    return mp.fit(net, mix, degree, method="neuronwise")


@pytest.mark.parametrize("degree", range(8))
@pytest.mark.parametrize(("kind", "activation"), [("MLP", "relu"), ("MLP", "tanh"), ("GLU", "silu"), ("GLU", "relu")])
def test_of_one_input_it_is_the_optimum_of_the_mixture(kind, activation, degree):
    """With d = 1 every polynomial of x is one of the preactivation, whatever the number of neurons."""
    net, mix = make_net(kind, activation, 1), make_mixture(1)
    best = mp.fit(net, mix, degree, method=mp.methods.Exact(tolerance=0))
    # 1e-10: raised to the power 7 at points two standard deviations out
    assert_close(neuronwise(net, mix, degree)(points(1)), best(points(1)), 1e-10)


def line(means, stds, weights, n=60):
    """Nodes and weights of a one-dimensional mixture."""
    z, w = np.polynomial.hermite_e.hermegauss(n)
    w = w / w.sum()
    return np.concatenate([m + s * z for m, s in zip(means, stds, strict=True)]), np.concatenate(
        [p * w for p in weights]
    )


def least_squares(basis, target, weights):
    """Values of the weighted least-squares fit at the nodes; columns scaled, so that their condition is their own."""
    root = np.sqrt(weights)[:, None]
    size = np.sqrt(weights @ basis**2)
    coefficients = np.linalg.lstsq(root * basis / size, root[:, 0] * target, rcond=1e-14)[0]
    return (basis / size) @ coefficients


@pytest.mark.parametrize("degree", range(6))
@pytest.mark.parametrize("gap", [1.0, 4.0])
def test_each_neuron_of_an_mlp_has_its_own_least_squares(gap, degree):
    net = make_net("MLP", "tanh", 3, o=None, scale=0.4)
    mix = make_mixture(3, gap=gap)
    poly = neuronwise(net, mix, degree)
    for i, w in enumerate(net.W1):
        means, stds = mix.means @ w, [math.sqrt(w @ g.cov @ w) for g in mix.components]
        y, weights = line(means, stds, mix.weights)
        best = least_squares(np.stack([y**k for k in range(degree + 1)], axis=1), np.tanh(y + net.b1[i]), weights)
        # any x on the line through the neuron's direction has that preactivation
        got = poly(y[:, None] * w / (w @ w))[:, i]
        assert math.sqrt(weights @ (got - best) ** 2) <= 1e-9 * math.sqrt(weights @ best**2)


@pytest.mark.parametrize("degree", range(5))
def test_each_unit_of_a_glu_has_its_own_least_squares(degree):
    """Basis y^k (k <= n) and y^k z (k < n) under the bivariate mixture of the two preactivations."""
    net = make_net("GLU", "silu", 3, o=None, scale=0.5)
    mix = make_mixture(3)
    poly = neuronwise(net, mix, degree)
    for i in range(net.dim_hidden):
        pair = np.stack([net.W_gate[i], net.W_up[i]])
        both = mp.GaussianMixture(mix.weights, mix.means @ pair.T, pair @ mix.covs @ pair.T)
        yz, weights = grid(both, 30)
        y, z = yz.T
        target = net.activation(y + net.b_gate[i]) * (z + net.b_up[i])
        columns = [y**k for k in range(degree + 1)] + [y**k * z for k in range(degree)]
        best = least_squares(np.stack(columns, axis=1), target, weights)
        got = poly(yz @ np.linalg.pinv(pair).T)[:, i]
        assert math.sqrt(weights @ (got - best) ** 2) <= 1e-9 * math.sqrt(weights @ best**2)


@pytest.mark.parametrize("degree", range(5))
@kinds
def test_units_without_variance_are_constants(kind, degree):
    """Units 0 and 1 see only an input that never changes: they are constants (for a GLU, linear in the other half)."""
    net = make_net(kind, "relu", 3)
    name = "W1" if kind == "MLP" else "W_gate"
    weight = getattr(net, name).copy()
    weight[:2, :2] = 0
    net = replace(net, **{name: weight})
    mix = make_mixture(3)
    covs, means = mix.covs.copy(), mix.means.copy()
    covs[:, 2, :], covs[:, :, 2], means[:, 2] = 0, 0, 0.7
    mix = mp.GaussianMixture(mix.weights, means, covs)
    poly = neuronwise(net, mix, degree)
    assert np.isfinite(poly(points(3))).all()
    still = replace(net, **{"W2" if kind == "MLP" else "W_down": None, "b2" if kind == "MLP" else "b_down": None})
    x = mix.sample(40)
    want, got = still(x)[:, :2], neuronwise(still, mix, degree)(x)[:, :2]
    assert_close(
        got, want if degree or kind == "MLP" else np.broadcast_to(mix.weights @ still(mix.means)[:, :2], got.shape)
    )


@pytest.mark.parametrize("degree", range(1, 6))
def test_gates_that_are_collinear_with_their_partners(degree):
    """z = 2 y + const: act(y) z is a function of y alone, so the basis y^k z adds at most one degree."""
    net, mix = make_net("GLU", "silu", 3, o=None), make_mixture(3)
    net = replace(net, W_up=2 * net.W_gate)
    poly = neuronwise(net, mix, degree)
    for i in range(net.dim_hidden):
        b, c = net.b_gate[i], net.b_up[i]
        same = mp.MLP(
            net.W_gate[i : i + 1],
            net.b_gate[i : i + 1],
            None,
            None,
            lambda y, b=b, c=c: y / (1 + np.exp(-y)) * (2 * (y - b) + c),
        )
        assert_close(poly(points(3))[:, i], neuronwise(same, mix, degree)(points(3))[:, 0], 1e-8)


def test_sizes_that_the_exact_fit_refuses():
    """Degree 5 in 300 inputs has 2e10 monomials; neuron by neuron it is a few numbers each, and beats one Gaussian."""
    net, mix = make_net("MLP", "relu", 300, h=100, o=4), make_mixture(300, c=4)
    with pytest.raises(mp.TooLargeError, match="neuronwise"):
        mp.fit(net, mix, 5)
    poly = neuronwise(net, mix, 5)
    assert poly.series.plain.shape == (6, 100)
    x = mix.sample(4000, seed=1)
    pooled = mp.fit(net, mp.Gaussian(mix.mean, mix.covariance), 5)
    assert mp.fvu(net, poly, x).total < 1.001 * mp.fvu(net, pooled, x).total


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("method", ["exact", "neuronwise"])
def test_two_points_of_equal_weight(method, degree):
    """There t is 1 or -1, so that t^2 - 1 is made of rounding errors; every degree above 0 fits both points."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x, net = rng.normal(size=(2, 2)), mp.MLP(rng.normal(size=(4, 2)), None, np.ones((1, 4)), None, "gelu")
        poly = mp.fit(net, mp.GaussianMixture(np.array([0.5, 0.5]), x, np.zeros((2, 2, 2))), degree, method=method)
        assert_close(poly(x), net(x), 1e-10)
