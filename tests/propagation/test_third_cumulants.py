"""Third cumulants: exact where units are independent or linear, and far closer to samples than two moments."""

import itertools
import math

import numpy as np
import pytest
import torch
from support.backends import JAX64, TORCH64, assert_close, backends, in_library
from support.inputs import gaussian, mixture, standard_grid
from support.networks import network

import mlpoly as mp
from mlpoly.networks import walk
from mlpoly.propagation import State, ThirdCumulants
from mlpoly.propagation.third_cumulants import fourth_cumulants


def random_network(widths, seed=0, bias=0.0):
    """ReLU units with weights N(0, 2 / fan in)."""
    rng = np.random.default_rng(seed)
    return mp.Chain(
        [
            mp.MLP(rng.standard_normal((o, n)) * math.sqrt(2 / n), bias * rng.standard_normal(o))
            for n, o in itertools.pairwise(widths)
        ]
    )


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_one_hidden_layer_is_exact(activation):
    net, inputs = network("MLP", activation), gaussian()
    behind, want = mp.propagate(net, inputs, cumulants=3)[0], mp.second_moment(net, inputs)
    assert_close(behind.mean, want.mean, 1e-12)
    assert_close(behind.cov, want.cov, 1e-12)
    assert float(behind.excess) == 0


def test_independent_units():
    """Cumulants of a sum of independent units add up, with those of ReLU known: E relu(t)^p is half of E |t|^p."""
    rng = np.random.default_rng(0)
    rows, w = np.linalg.qr(rng.standard_normal((5, 5)))[0], rng.standard_normal((4, 5))
    steps = ThirdCumulants()
    walk(mp.Chain([mp.MLP(rows, W2=w), mp.MLP(np.eye(4))]), steps, State.at(mp.Gaussian.standard(5)))
    state = steps.before[1]
    m, two, three, four = (0.5 * 2 ** (p / 2) * math.gamma((p + 1) / 2) / math.sqrt(math.pi) for p in (1, 2, 3, 4))
    var = two - m**2
    third = three - 3 * m * two + 2 * m**3
    fourth = four - 4 * m * three + 6 * m**2 * two - 3 * m**4 - 3 * var**2
    assert_close(state.inputs.covariance, var * w @ w.T)
    assert_close(steps.skewness[1], third * (w**3).sum(1) / (var * (w**2).sum(1)) ** 1.5)
    assert_close(fourth_cumulants(state), fourth * w**2 @ (w**2).T)
    b, u = state.bends, state.along
    found = sum(2 * np.einsum("ak,bk,ck->abc", *f) for f in ((b, u, u), (u, b, u), (u, u, b)))
    assert_close(found, third * np.einsum("ai,bi,ci->abc", w, w, w))


def test_cumulants_of_correlated_units():
    """Those with a repeated unit to fourth order in the correlations, those of three units to second order."""
    size, e = 4, 0.1
    rng = np.random.default_rng(1)
    rho = e * rng.uniform(-1, 1, (size, size))
    inputs = mp.Gaussian(np.zeros(size), np.eye(size) + rho + rho.T - 2 * np.diag(np.diag(rho)))
    net = mp.MLP(0.5 * np.eye(size), rng.standard_normal(size), activation="sin")
    state = walk(net, ThirdCumulants(), State.at(inputs))
    b, u = state.bends, state.along
    found = sum(2 * np.einsum("ak,bk,ck->abc", *f) for f in ((b, u, u), (u, b, u), (u, u, b)))
    z, weight = standard_grid(size, 12)
    values = net(z @ np.linalg.cholesky(inputs.covariance).T)
    values -= weight @ values
    want = np.einsum("n,na,nb,nc->abc", weight, values, values, values, optimize=True)
    a = np.arange(size)
    distinct = (a[:, None, None] != a[:, None]) & (a[:, None, None] != a) & (a[:, None] != a)
    largest = np.abs(want).max()
    assert np.abs(found - want)[~distinct].max() < 10 * e**5 * largest
    assert np.abs(found - want)[distinct].max() < 10 * e**3 * largest
    assert np.abs(want)[distinct].max() > 3 * np.abs(found - want)[distinct].max()
    square = np.einsum("n,na,nb->ab", weight, values**2, values**2)
    cov = np.einsum("n,na,nb->ab", weight, values, values)
    fourth = square - np.outer(np.diag(cov), np.diag(cov)) - 2 * cov**2
    assert np.abs(fourth_cumulants(state) - fourth).max() < 10 * e**5 * np.abs(fourth).max()


def test_mean_and_variance_of_a_unit_under_the_edgeworth_series():
    """By quadrature with the density phi(t) (1 + K_iii He_3(t) / 6 + K_iiii He_4(t) / 24) of what enters each unit."""
    rng = np.random.default_rng(3)
    before, steps = mp.MLP(rng.standard_normal((3, 3)), W2=rng.standard_normal((2, 3)) / 2), ThirdCumulants()
    behind = walk(mp.Chain([before, mp.MLP(np.eye(2), activation="sin")]), steps, State.at(mp.Gaussian.standard(3)))
    y = steps.before[1]
    skewness, excess = steps.skewness[1], np.diag(fourth_cumulants(y)) / np.diag(y.inputs.covariance) ** 2
    t, weight = np.polynomial.hermite_e.hermegauss(80)
    series = 1 + skewness[:, None] * (t**3 - 3 * t) / 6 + excess[:, None] * (t**4 - 6 * t**2 + 3) / 24
    weight = weight / weight.sum() * series
    values = np.sin(y.inputs.mean[:, None] + np.sqrt(np.diag(y.inputs.covariance))[:, None] * t)
    mean = (weight * values).sum(1)
    assert min(abs(skewness).min(), abs(excess).min()) > 0.1
    assert_close(behind.inputs.mean, mean, 1e-12)
    assert_close(np.diag(behind.inputs.covariance), (weight * values**2).sum(1) - mean**2, 1e-12)


def test_random_networks_against_samples():
    """What order 2 ignores moves the means far more than the samples' own error, and order 3 finds nearly all of it."""
    net, inputs, rng = random_network((48,) * 5), mp.Gaussian.standard(48), np.random.default_rng(5)
    pairs, total, squares, cov, third = 200_000, 0.0, 0.0, 0.0, 0.0
    for _ in range(20):
        z = rng.standard_normal((pairs // 20, 48))
        x = mp.Chain(net.layers[:-1])(np.concatenate([z, -z]))
        entering = x @ net.layers[-1].prototype.T
        third = third + np.mean((entering - entering.mean(0)) ** 3, axis=0) / entering.std(0) ** 3 / 20
        y = net.layers[-1](x)
        both = 0.5 * (y[: len(z)] + y[len(z) :])
        total, squares, cov = total + both.sum(0), squares + (both**2).sum(0), cov + np.cov(y.T) / 20
    mean = total / pairs
    noise = np.mean(squares / pairs - mean**2) / pairs
    two, three = (mp.propagate(net, inputs, cumulants=order)[-1] for order in (2, 3))
    errors = [np.mean((p.mean - mean) ** 2) for p in (two, three)]
    assert errors[0] > 100 * noise
    assert errors[1] - noise < errors[0] / 10
    assert np.linalg.norm(three.cov - cov) < 0.5 * np.linalg.norm(two.cov - cov)
    skewness = [np.linalg.norm(p.skewness[0] - third) for p in (two, three)]
    assert skewness[1] < skewness[0] < 0.5 * np.linalg.norm(third)
    alive = np.diag(cov) > 1e-3
    real = math.sqrt(np.mean(((three.mean - mean) ** 2)[alive] / np.diag(cov)[alive]))
    assert real / 5 < float(three.excess) < 2 * real


def test_linear_layers_between():
    """A readout, a separate affine map, and one merged into the next layer are the same."""
    rng, inputs = np.random.default_rng(2), gaussian()
    w1, w2, w3 = rng.standard_normal((6, 4)), rng.standard_normal((5, 6)) / 2, rng.standard_normal((3, 5))
    b1, b2 = rng.standard_normal(6), rng.standard_normal(5)
    nets = [
        mp.Chain([mp.MLP(w1, b1, w2, b2), mp.MLP(w3)]),
        mp.Chain([mp.MLP(w1, b1), mp.Affine(w2, b2), mp.MLP(w3)]),
        mp.Chain([mp.MLP(w1, b1), mp.MLP(w3 @ w2, w3 @ b2)]),
    ]
    first, *others = (mp.propagate(net, inputs, cumulants=3)[-1] for net in nets)
    for other in others:
        assert_close(other.mean, first.mean, 1e-11)
        assert_close(other.cov, first.cov, 1e-11)
        assert_close(other.skewness, first.skewness, 1e-11)


def test_rarely_active_units_keep_a_covariance():
    """The series alone would leave negative variances here."""
    rng = np.random.default_rng(6)
    biases = ((12, 3, -1), (12, 12, -6), (2, 12, 0))
    net = mp.Chain([mp.MLP(rng.standard_normal((o, n)), np.full(o, float(b))) for o, n, b in biases])
    for layer in mp.propagate(net, mp.Gaussian.standard(3), cumulants=3):
        values = np.linalg.eigvalsh(layer.cov)
        assert values[0] > -1e-12 * values[-1]


@backends(TORCH64, slow=(JAX64,))
def test_every_library(backend):
    net, inputs = random_network((4, 6, 5, 3), bias=1.0), mixture(4)
    want = mp.propagate(net, inputs, cumulants=3)
    with backend.active():
        found = mp.propagate(in_library(net, backend), in_library(inputs, backend), cumulants=3)
        for one, other in zip(found, want, strict=True):
            assert_close(one.mean, other.mean, 1e-11)
            assert_close(one.cov, other.cov, 1e-11)


def test_gradients():
    net, like = random_network((4, 6, 5, 3), bias=1.0), in_library(gaussian(), TORCH64)

    def moments(*weights):
        layers = [mp.MLP(w, torch.tensor(layer.b1)) for w, layer in zip(weights, net.layers, strict=True)]
        behind = mp.propagate(mp.Chain(layers), like, cumulants=3)[-1]
        return behind.mean, behind.cov

    leaves = [torch.tensor(layer.W1, requires_grad=True) for layer in net.layers]
    assert torch.autograd.gradcheck(moments, leaves, eps=1e-5, atol=1e-7, rtol=1e-6, fast_mode=True)


def test_bad_input():
    inputs = mp.Gaussian.standard(4)
    for net in (network("GLU"), mp.Residual(network(o=4)), mp.Chain([network(), network("GLU", d=3)])):
        with pytest.raises(ValueError, match=r"cumulants=2 takes"):
            mp.propagate(net, inputs, cumulants=3)
    for order in (1, 4, "3"):
        with pytest.raises(ValueError, match=r"cumulants must be 2 .* or 3"):
            mp.propagate(network(), inputs, cumulants=order)


def test_it_says_where_its_series_does_not_converge():
    """Duplicate units: corrections are larger than what they correct, and the excess shows it."""
    rng = np.random.default_rng(2)
    first = mp.MLP(np.repeat(rng.normal(size=(2, 3)), 3, 0))
    last = mp.MLP(np.repeat(rng.normal(size=(1, 6)), 5, 0), None, rng.normal(size=(2, 5)), None, "silu")
    assert float(mp.propagate(mp.Chain([first, last]), mp.Gaussian.standard(3), cumulants=3)[1].excess) > 1
