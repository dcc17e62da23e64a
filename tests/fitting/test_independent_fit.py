"""Fits under independent inputs: optimal by quadrature, exact for polynomials, on points where there are many."""

import math

import jax
import numpy as np
import pytest
import torch
from scipy import stats
from support.backends import JAX64, NUMPY32, TORCH64, assert_close, assert_same_kind, backends, make, to_numpy

import mlpoly as mp
from mlpoly.inputs import Inputs, Samples
from mlpoly.inputs.interface import digest

UNIFORM = mp.Independent([stats.uniform(-1, 2)] * 3, names=list("abc"))
SKEWED = mp.Independent([stats.lognorm(0.5), stats.uniform(1, 2), stats.expon()])


def network(activation="tanh", d=3, h=16, seed=0, backend=None):
    rng = np.random.default_rng(seed)
    arrays = rng.standard_normal((h, d)), rng.standard_normal(h), rng.standard_normal((2, h)) / 4
    arrays = arrays if backend is None else [make(a, backend) for a in arrays]
    return mp.MLP(*arrays, None, activation)


def legendre_fit(net, degree, nodes=40):
    """Coefficients of the closest polynomial in orthonormal Legendre products on [-1, 1]^3, and its values."""
    t, w = np.polynomial.legendre.leggauss(nodes)
    P = np.polynomial.legendre.legvander(t, degree) * np.sqrt(2 * np.arange(degree + 1) + 1)
    x = np.stack([a.ravel() for a in np.meshgrid(t, t, t, indexing="ij")], axis=1)
    f = net(x).reshape(nodes, nodes, nodes, -1)
    c = np.einsum("abco,ai,bj,ck->ijko", f, *[P * (w / 2)[:, None]] * 3)
    i = np.indices(c.shape[:3]).sum(axis=0)
    return np.where((i <= degree)[..., None], c, 0.0)


@pytest.mark.parametrize("degree", [0, 1, 4, 7])
def test_uniform_inputs_beside_legendre_projections(degree):
    net = network()
    poly, c = mp.fit(net, UNIFORM, degree), legendre_fit(net, degree)
    x = UNIFORM.sample(200)
    P = [np.polynomial.legendre.legvander(x[:, i], degree) * np.sqrt(2 * np.arange(degree + 1) + 1) for i in range(3)]
    # The last grid changed the polynomial by less than 1e-4 standard deviations; another would change it far less.
    np.testing.assert_allclose(poly(x), np.einsum("ijko,ni,nj,nk->no", c, *P), atol=1e-5)
    assert poly.report.converged and poly.names == ("a", "b", "c")
    second = np.sum(c**2, axis=(0, 1, 2)) - c[0, 0, 0] ** 2
    f = net(UNIFORM.grid(40, 2).x)
    w = UNIFORM.grid(40, 2).weights[:, None]
    variance = np.sum(w * f**2, axis=0) - np.sum(w * f, axis=0) ** 2
    np.testing.assert_allclose(poly.report.fvu, 1 - second.sum() / variance.sum(), rtol=1e-5, atol=1e-10)
    fvu = mp.fvu(net, poly)
    np.testing.assert_allclose(float(fvu), poly.report.fvu, rtol=1e-5, atol=1e-10)
    assert fvu.standard_error is None and float(fvu.bound) < 1e-8


@pytest.mark.parametrize("inputs", [UNIFORM, SKEWED], ids=["uniform", "skewed"])
@pytest.mark.parametrize("activation", ["square", "identity"])
def test_polynomial_networks_are_reproduced(inputs, activation):
    net = network(activation)
    for degree in (2, 5):
        poly, x = mp.fit(net, inputs, degree), inputs.sample(500)
        np.testing.assert_allclose(poly(x), net(x), rtol=1e-10, atol=1e-10 * np.abs(net(x)).max())
        assert poly.report.fvu < 1e-20


def test_no_other_polynomial_is_closer():
    """The residual is orthogonal to all monomials, by Monte Carlo in standard errors."""
    net = network(seed=1)
    poly, x = mp.fit(net, SKEWED, 2), SKEWED.sample(200_000, seed=4)
    residual = (net(x) - poly(x))[:, 0]
    u = (x - SKEWED.mean) / np.sqrt(np.diag(SKEWED.covariance))
    for feature in (np.ones(len(u)), *u.T, *(u[:, i] * u[:, j] for i in range(3) for j in range(i + 1))):
        product = residual * feature
        assert abs(product.mean()) < 5 * product.std() / math.sqrt(len(u))


def test_fits_under_normal_marginals_are_those_under_a_gaussian():
    net = network("gelu")
    inputs = mp.Independent([stats.norm(1, 2), stats.norm(0, 0.5), stats.norm(-1, 1)])
    gaussian = mp.Gaussian(np.array([1.0, 0.0, -1.0]), np.array([4.0, 0.25, 1.0]))
    x = gaussian.sample(100)
    # 64 nodes of each input integrate a GELU network under three normal inputs to 1e-6 or better.
    np.testing.assert_allclose(mp.fit(net, inputs, 3)(x), mp.fit(net, gaussian, 3)(x), atol=1e-5)


@backends(NUMPY32, TORCH64, JAX64)
def test_every_library(backend):
    net = network(backend=backend)
    for inputs in (UNIFORM, UNIFORM.to(net.prototype)):
        poly = mp.fit(net, inputs, 3)
        x = inputs.to(net.prototype).sample(20)
        assert_same_kind(poly(x), net.prototype)
        assert_close(poly(x), mp.fit(network(), UNIFORM, 3)(to_numpy(x).astype(float)), 100 * backend.tolerance)


def test_gradients_flow_to_the_weights():
    net = network()
    weights = [torch.tensor(a, requires_grad=True) for a in (net.W1, net.b1, net.W2)]
    x = UNIFORM.sample(5)

    def value(W1):
        return mp.fit(mp.MLP(W1, net.b1, net.W2, None, "tanh"), UNIFORM, 3)(x).sum()

    mp.fit(mp.MLP(*weights, None, "tanh"), UNIFORM, 3)(torch.tensor(x)).sum().backward()
    step = np.zeros_like(net.W1)
    step[2, 1] = 1e-5
    slope = (value(net.W1 + step) - value(net.W1 - step)) / 2e-5
    assert float(weights[0].grad[2, 1]) == pytest.approx(slope, rel=1e-6)
    with jax.enable_x64(True):
        arrays = [jax.numpy.asarray(a) for a in (net.W1, net.b1, net.W2)]
        traced = jax.jit(
            jax.grad(lambda W: mp.fit(mp.MLP(W, *arrays[1:], None, "tanh"), UNIFORM, 3)(jax.numpy.asarray(x)).sum())
        )
        assert float(traced(arrays[0])[2, 1]) == pytest.approx(slope, rel=1e-6)


def test_deep_networks_and_composed_fits():
    rng = np.random.default_rng(2)
    net = mp.Chain([network(h=8), mp.MLP(rng.standard_normal((8, 2)), None, rng.standard_normal((1, 8)), None, "tanh")])
    whole = mp.fit(net, UNIFORM, 6)
    assert isinstance(whole, mp.polynomials.ChaosPolynomial) and whole.report.converged
    draws = mp.fvu(net, whole, mp.Samples(UNIFORM.sample(20_000)))
    assert abs(float(draws) - whole.report.fvu) < 5 * float(draws.standard_error)
    composed = mp.fit(net, UNIFORM, 3, method="composed")
    assert composed.inputs is not None and composed.report.fvu < 0.5


def test_degrees_without_moments_are_refused():
    net = network(d=1)
    for law, degree in ((stats.lognorm(1.0), 20), (stats.t(5), 3)):
        with pytest.raises(ValueError, match=f"degree {degree} is too high for 'load': its moment of order"):
            mp.fit(net, mp.Independent({"load": law}), degree)
    errors = [mp.fit(net, mp.Independent([stats.lognorm(1.0)]), degree).report.fvu for degree in (2, 5, 8)]
    assert 1 > errors[0] > errors[1] > errors[2] > 0


def test_many_inputs_take_points():
    many = mp.Independent([stats.uniform(-1, 2)] * 10)
    net = network(d=10)
    poly = mp.fit(net, many, 2)
    assert "on 32768 points" in poly.report.summary
    held = mp.fvu(net, poly, mp.Samples(many.sample(20_000, seed=9)))
    assert abs(float(held) - poly.report.fvu) < 5 * float(held.standard_error)
    # One unit in many directions: neuron by neuron no other polynomial of the preactivation is better.
    neurons = mp.fit(net, many, 2, method="neuronwise")
    assert isinstance(neurons, mp.polynomials.RidgePolynomial)
    assert poly.report.fvu < neurons.report.fvu < 1.5 * poly.report.fvu
    assert isinstance(mp.fit(net, many, 8), mp.polynomials.RidgePolynomial)  # 43 758 monomials


def test_copulas_take_points_too():
    R = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 1.0]])
    joined = mp.Independent([stats.uniform(-1, 2)] * 3, copula=R)
    net = network()
    poly = mp.fit(net, joined, 3)
    error = mp.fvu(net, poly)
    assert float(error.standard_error) > 0
    assert abs(float(error) - poly.report.fvu) < 5 * float(error.standard_error)
    # The fit for independent inputs is worse where they are not.
    assert float(mp.fvu(net, mp.fit(net, UNIFORM, 3), joined)) > float(error)


@pytest.mark.parametrize("method", ["expansion", "sampled"])
def test_ways_that_need_gaussians_say_so(method):
    with pytest.raises(TypeError, match="needs a Gaussian or a GaussianMixture, got Independent; use 'exact'"):
        mp.fit(network(), UNIFORM, 2, method=method)


class Box(Inputs):
    """Uniform on a box: a distribution that someone else wrote, with what the contract asks for and no more."""

    def __init__(self, low, high):
        self.low, self.high = low, high

    @property
    def mean(self):
        return (self.low + self.high) / 2

    @property
    def covariance(self):
        return np.diag((self.high - self.low) ** 2 / 12)

    @property
    def fingerprint(self):
        return digest(self.low, self.high)

    def sample(self, n, seed=0):
        return np.random.default_rng(seed).uniform(self.low, self.high, (n, len(self.low)))

    def _moments(self, directions, order):
        raise NotImplementedError

    def __repr__(self):
        return "Box()"


@pytest.mark.parametrize("method", ["auto", "neuronwise", "joint", "composed"])
def test_other_distributions_are_fitted_on_their_points(method):
    box, net = Box(-np.ones(3), np.ones(3)), network()
    poly = mp.fit(net, box, 3, method=method)
    assert poly.inputs is box and "on 32768 points of the inputs" in poly.report.summary
    error, optimum = mp.fvu(net, poly), mp.fit(net, UNIFORM, 3).report.fvu
    assert float(error.standard_error) > 0
    assert optimum < float(error) + 5 * float(error.standard_error) < 1.5 * optimum + 10 * float(error.standard_error)
    with pytest.raises(TypeError, match="inputs must be a Gaussian or a GaussianMixture, got Box"):
        mp.degree_spectrum(net, box)
    bounded = mp.fit(net, box, 3, bound=2.0)
    assert isinstance(bounded, mp.polynomials.BoundedPolynomial)


def test_points_of_samples_are_the_samples():
    data = Samples(UNIFORM.sample(50))
    assert data.points(7) is data
