"""Measures under independent inputs: Ishigami's function in closed form, conditional means, and what is refused."""

import math

import numpy as np
import pytest
from scipy import stats
from support.backends import JAX64, NUMPY64, TORCH64, assert_close, assert_same_kind, backends, make

import mlpoly as mp

CUBE = mp.Independent([stats.uniform(-math.pi, 2 * math.pi)] * 3, names=["a", "b", "c"])
SKEWED = mp.Independent([stats.lognorm(0.4), stats.uniform(1, 2), stats.expon()])
A, B = 7.0, 0.1


def ishigami_network():
    """The same function as a network of sines: sin a, cos 2b, and c^4 sin a as sines of a +- k c (Fourier in c)."""
    c = np.arange(1, 7)  # six waves, which polynomials of degree 20 represent
    # c^4 on [-pi, pi] = pi^4 / 5 + sum (-1)^k (8 pi^2 / k^2 - 48 / k^4) cos(k c); sin a cos kc = sines of a +- k c.
    waves = (-1.0) ** c * (8 * math.pi**2 / c**2 - 48 / c**4)
    rows = [[1, 0, 0], [0, 2, 0]] + [[1, 0, k] for k in c] + [[1, 0, -k] for k in c]
    readout = [1 + B * math.pi**4 / 5, -A / 2, *(B * waves / 2), *(B * waves / 2)]
    bias = np.zeros(len(rows))
    bias[1] = math.pi / 2  # cos 2b
    arrays = np.array(rows, dtype=float), bias, np.array([readout]), np.array([A / 2])
    return mp.MLP(*arrays, "sin"), B**2 * float(np.sum(waves**2)) / 4


def test_ishigami_in_closed_form():
    """A network of sines with the Fourier series of Ishigami's function: variance and all indices are known."""
    net, both = ishigami_network()
    only, quad = (1 + B * math.pi**4 / 5) ** 2 / 2, A**2 / 8
    poly = mp.fit(net, CUBE, 24)
    variance = only + quad + both
    assert poly.report.fvu < 1e-4
    moments = mp.second_moment(poly, CUBE)
    tolerance = 2 * math.sqrt(poly.report.fvu)  # what the polynomial leaves, at most in any index
    np.testing.assert_allclose(moments.mean, [A / 2], atol=1e-8)
    np.testing.assert_allclose(moments.cov[0, 0], variance, rtol=tolerance)
    found = mp.sensitivity(poly, CUBE, interactions=True)
    first, total = np.array([only, quad, 0.0]), np.array([only + both, quad, both])
    np.testing.assert_allclose(found.first[:, 0], first / variance, atol=tolerance)
    np.testing.assert_allclose(found.total[:, 0], total / variance, atol=tolerance)
    shares = np.array([only + both / 2, quad, both / 2])
    np.testing.assert_allclose(found.shapley[:, 0], shares / variance, atol=tolerance)
    np.testing.assert_allclose(found.pairs[0, 2, 0], both / variance, atol=tolerance)
    assert found.sampled == "" and found.standard_error is None
    np.testing.assert_allclose(found.remainder, poly.report.fvu)
    assert "unexplained" in str(found)


@pytest.mark.parametrize("method", ["auto", "neuronwise"])
@pytest.mark.parametrize("inputs", [CUBE, SKEWED], ids=["cube", "skewed"])
def test_moments_and_means_given_some_inputs_against_quadrature(inputs, method):
    rng = np.random.default_rng(0)
    net = mp.MLP(0.4 * rng.standard_normal((8, 3)), rng.standard_normal(8), rng.standard_normal((2, 8)), None, "tanh")
    poly = mp.fit(net, inputs, 3, method=method)
    rules = [law.gauss(12) for law in inputs.marginals]  # exact for all that follows
    u, w = (np.stack([a.ravel() for a in np.meshgrid(*(r[k] for r in rules), indexing="ij")], axis=1) for k in (0, 1))
    points, weights = inputs.center + inputs.scale * u, w.prod(axis=1)
    values = poly(points)
    data = mp.Samples(values, weights)
    moments = mp.second_moment(poly, inputs)
    np.testing.assert_allclose(moments.mean, data.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(moments.cov, data.covariance, rtol=1e-8, atol=1e-9)
    # E[p | x_0, x_2] and its variance, on the grid of the others
    mean = mp.conditional_mean(poly, inputs, [0, 2])
    table, weights = values.reshape(12, 12, 12, 2), weights.reshape(12, 12, 12)
    one = weights.sum(axis=(0, 2))
    wanted = np.einsum("abcd,b->acd", table, one)
    x = points.reshape(12, 12, 12, 3)[:, 0, :, :][..., [0, 2]].reshape(-1, 2)
    np.testing.assert_allclose(mean(x), wanted.reshape(-1, 2), rtol=1e-8, atol=1e-9)
    explained = np.einsum("acd,ac->d", (wanted - data.mean) ** 2, weights.sum(axis=1)) / np.diag(data.covariance)
    np.testing.assert_allclose(1 - mp.sensitivity(poly, inputs).total[1], explained, atol=1e-8)
    # values of one prediction add up
    point = np.array([0.7, 1.5, 0.4])
    values = mp.shapley(poly, point, inputs)
    np.testing.assert_allclose(values.values.sum(axis=0), poly(point) - moments.mean, atol=1e-10)


def test_normal_marginals_agree_with_a_gaussian():
    rng = np.random.default_rng(1)
    net = mp.MLP(rng.standard_normal((8, 3)), rng.standard_normal(8), rng.standard_normal((1, 8)), None, "relu")
    gaussian = mp.Gaussian(np.array([1.0, 0.0, -1.0]), np.array([4.0, 0.25, 1.0]))
    poly = mp.fit(net, gaussian, 4)
    same = mp.Independent([stats.norm(1, 2), stats.norm(0, 0.5), stats.norm(-1, 1)])
    one, two = mp.sensitivity(poly, gaussian, interactions=True), mp.sensitivity(poly, same, interactions=True)
    for name in ("first", "total", "shapley", "variance", "pairs"):
        np.testing.assert_allclose(getattr(two, name), getattr(one, name), atol=1e-9)
    np.testing.assert_allclose(two.remainder, 0.0)  # it was not fitted under these
    x = np.array([0.3, 0.2, 0.1])
    np.testing.assert_allclose(mp.shapley(poly, x, same).values, mp.shapley(poly, x, gaussian).values, atol=1e-10)


def test_effects_of_many_inputs_need_no_orders():
    many = mp.Independent([stats.uniform(-1, 2)] * 16)
    net = mp.MLP(np.eye(16), None, np.arange(1.0, 17)[None, :], None, "square")
    found = mp.sensitivity(mp.fit(net, many, 2), many)
    squares = np.arange(1.0, 17) ** 2
    np.testing.assert_allclose(found.shapley[:, 0], squares / squares.sum(), atol=1e-9)
    assert found.sampled == ""
    drawn = mp.sensitivity(mp.fit(net, many, 2), many, permutations=4)
    assert "4 orders" in drawn.sampled


@backends(NUMPY64, TORCH64, JAX64)
def test_every_library(backend):
    rng = np.random.default_rng(2)
    arrays = rng.standard_normal((8, 3)) / 4, rng.standard_normal(8), rng.standard_normal((1, 8))
    net = mp.MLP(*(make(a, backend) for a in arrays), None, "tanh")
    poly = mp.fit(net, CUBE, 3)
    wanted = mp.sensitivity(mp.fit(mp.MLP(*arrays, None, "tanh"), CUBE, 3), CUBE)
    assert_close(mp.sensitivity(poly, CUBE).first, wanted.first, 1e-9)
    given = mp.conditional_mean(mp.fit(mp.MLP(*arrays, None, "tanh"), CUBE, 3), CUBE, ["a", "b"])
    x = np.array([[0.5, 0.2]])
    found = mp.conditional_mean(poly, CUBE, ["a", "b"])(make(x, backend))
    assert_same_kind(found, net.prototype)
    assert_close(found, given(x), 1e-9)


def test_terms_are_ranked_on_points():
    net = mp.MLP(np.eye(3), None, np.array([[1.0, 2.0, 3.0]]), None, "identity")
    terms = mp.fit(net, CUBE, 1).terms()
    effects = [(term.name, term.effect) for term in terms]
    spread = math.pi / math.sqrt(3)
    for (name, effect), wanted in zip(effects, (("c", 3), ("b", 2), ("a", 1)), strict=True):
        assert name == wanted[0] and abs(effect) == pytest.approx(wanted[1] * spread, rel=1e-3)


def test_interventions_need_a_gaussian():
    poly = mp.fit(mp.MLP(np.eye(3), None, np.ones((1, 3)), None, "relu"), CUBE, 2)
    with pytest.raises(TypeError, match="causal needs one Gaussian"):
        mp.shapley(poly, np.zeros(3), CUBE, causal=[["a"], ["b", "c"]])


@pytest.mark.parametrize("measure", [mp.sensitivity, mp.second_moment])
def test_what_has_no_closed_form_says_what_to_do(measure):
    net = mp.MLP(np.eye(3), None, np.ones((1, 3)), None, "relu")
    with pytest.raises(TypeError, match="mlpoly"):
        measure(net, CUBE)
    joined = mp.Independent([stats.uniform()] * 3, copula=np.eye(3))
    with pytest.raises(TypeError, match=r"copula.*mlpoly\.Samples\(inputs\.sample\(n\)\)"):
        measure(mp.fit(net, joined, 2), joined)
