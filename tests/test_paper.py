"""The paper's own tools, and its recipe for a fit of any degree as an independent route to `mlpoly.fit`."""

import math
from itertools import combinations_with_replacement, permutations, product

import mpmath
import numpy as np
import pytest
from scipy import special, stats
from support.backends import assert_close
from support.paper import isserlis, master_theorem, raw_moments

import mlpoly as mp


def gaussian(rng, *shape):
    """A random mean (*shape,) and covariance (*shape, d), of size one and far from singular."""
    d = shape[-1]
    root = rng.standard_normal((*shape, d)) / math.sqrt(d)
    return rng.standard_normal(shape), root @ np.swapaxes(root, -1, -2) + 0.2 * np.eye(d)


def normal_rule(mean, std, kinks=()):
    """Nodes t and weights (normal density included): 20 Gauss-Legendre nodes per panel, panels cut at the kinks."""
    inside = [(k - mean) / std for k in kinks if abs(k - mean) < 14 * std]
    edges = np.unique([*np.arange(-14, 14.25, 0.5), *inside])
    x, w = np.polynomial.legendre.leggauss(20)
    width = np.diff(edges)[:, None]
    t = (edges[:-1, None] + width * (x + 1) / 2).ravel()
    return t, (width * w / 2).ravel() * np.exp(-t * t / 2) / math.sqrt(2 * math.pi)


def expectation(function, mean, std, kinks=()):
    """E[function(x)], x ~ N(mean, std^2)."""
    t, weight = normal_rule(mean, std, kinks)
    return float(np.sum(weight * function(mean + std * t)))


def product_by_quadrature(g, mean, cov, kinks=()):
    """E[g(X_0) X_1 ... X_n] on a tensor grid; three Gauss-Hermite nodes are exact for up to five factors."""
    n = len(mean) - 1
    root = np.linalg.cholesky(cov)  # X_0 depends on the first coordinate alone
    t, weight = normal_rule(mean[0], root[0, 0], kinks)
    x, w = np.polynomial.hermite_e.hermegauss(3)
    w = w / math.sqrt(2 * math.pi)
    total = 0.0
    for node in product(range(3), repeat=n):
        noise = np.stack([t, *[np.full_like(t, x[i]) for i in node]])
        values = mean[:, None] + root @ noise
        total += math.prod(w[i] for i in node) * np.sum(weight * g(values[0]) * np.prod(values[1:], axis=0))
    return total


INDICES = [i for n in range(7) for i in combinations_with_replacement(range(3), n)]


def test_moments_equal_tensor_gauss_hermite(rng):
    # Six nodes are exact to degree 11; nothing here knows of covariances between factors.
    mean, cov = gaussian(rng, 3)
    x, w = np.polynomial.hermite_e.hermegauss(6)
    w = w / math.sqrt(2 * math.pi)
    points = mean + np.array(list(product(x, repeat=3))) @ np.linalg.cholesky(cov).T
    weights = np.array([math.prod(v) for v in product(w, repeat=3)])
    for index in INDICES:
        values = np.prod(points[:, list(index)], axis=1)
        got = isserlis(mean, cov, index)
        assert abs(got - weights @ values) <= 1e-13 * (weights @ np.abs(values))


def master(mean, cov):
    """Master theorem for the first of jointly Gaussian variables and all others."""
    return master_theorem(mean[..., 0], cov[..., 0, 0], mean[..., 1:], cov[..., 0, 1:], cov[..., 1:, 1:])


FUNCTIONS = {"tanh": (np.tanh, ()), "relu": (lambda x: np.maximum(x, 0), (0.0,))}


@pytest.mark.parametrize("n", range(5))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_master_theorem_against_tensor_quadrature(rng, name, n):
    g, kinks = FUNCTIONS[name]
    mean, cov = gaussian(rng, n + 1)
    terms = master(mean, cov) * raw_moments(name, mean[0], math.sqrt(cov[0, 0]), n)
    want = product_by_quadrature(g, mean, cov, kinks)
    assert abs(terms.sum() - want) <= 1e-13 * max(*np.abs(terms), abs(want))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_papers_sum_to_n_minus_1_leaves_something_out(rng, n):
    mean, cov = gaussian(rng, n + 1)
    terms = master(mean, cov) * raw_moments("tanh", mean[0], math.sqrt(cov[0, 0]), n)
    want = product_by_quadrature(np.tanh, mean, cov)
    assert abs(terms[:-1].sum() - want) > 1e-3 * np.max(np.abs(terms))


def test_two_factors_by_hand(rng):
    mean, cov = gaussian(rng, 3)
    beta = cov[0, 1:] / cov[0, 0]
    alpha = mean[1:] - beta * mean[0]
    residual = cov[1, 2] - cov[0, 1] * cov[0, 2] / cov[0, 0]
    want = [alpha[0] * alpha[1] + residual, alpha[0] * beta[1] + alpha[1] * beta[0], beta[0] * beta[1]]
    assert_close(master(mean, cov), np.array(want), 1e-14)
    # The paper multiplies the two parts of the constant.
    assert abs(alpha[0] * alpha[1] * residual - want[0]) > 1e-2


def sigmoid(y):
    return special.expit(y)


DERIVATIVES = {
    "tanh": lambda y: 1 / np.cosh(y) ** 2,
    "gelu": lambda y: stats.norm.cdf(y) + y * stats.norm.pdf(y),
    "silu": lambda y: sigmoid(y) * (1 + y * (1 - sigmoid(y))),
    "softplus": sigmoid,
}
PLACES = [(0.0, 1.0), (0.7, 0.4), (-1.5, 2.0), (3.0, 1.3)]


@pytest.mark.parametrize(("m", "s"), PLACES)
@pytest.mark.parametrize("name", DERIVATIVES)
def test_steins_lemma(name, m, s):
    slope = expectation(DERIVATIVES[name], m, s)
    np.testing.assert_allclose(mp.activations.hermite_coefficients(name, m, s, 1)[1] / s, slope, rtol=1e-12)
    # Cov(act(y), x) from the raw moments and the master theorem, with no derivative in sight.
    mean_x, cov_yx = 1.7, -0.6
    raw = raw_moments(name, m, s, 1)
    product_mean = np.sum(master_theorem(m, s * s, [mean_x], [cov_yx], [[2.0]]) * raw)
    np.testing.assert_allclose(product_mean - raw[0] * mean_x, cov_yx * slope, rtol=0, atol=1e-13 * (1 + abs(raw[0])))


def test_steins_lemma_is_about_the_covariance():
    # As printed, without E[act(y)] E[x], it fails as soon as x has a mean.
    raw = raw_moments("gelu", 0.7, 0.4, 1)
    slope = expectation(DERIVATIVES["gelu"], 0.7, 0.4)
    for mean_x, holds in ((0.0, True), (1.7, False)):
        product_mean = np.sum(master_theorem(0.7, 0.16, [mean_x], [-0.6], [[2.0]]) * raw)
        assert math.isclose(product_mean, -0.6 * slope, rel_tol=1e-12) is holds


@pytest.mark.parametrize("name", mp.activations.names())
def test_raw_moments_of_every_activation(name):
    act = mp.activations.get(name)
    m, s = 0.4, 0.9
    got = raw_moments(name, m, s, 4)
    size = math.sqrt(expectation(lambda x: act(x) ** 2, m, s, act.kinks))
    for k in range(5):
        want = expectation(lambda x, k=k: x**k * act(x), m, s, act.kinks)
        assert abs(got[k] - want) <= 1e-13 * size * math.sqrt(expectation(lambda x, k=k: x ** (2 * k), m, s))


def binomial(m, s, degree, integrals):
    """E[x^n act(x)] by the binomial theorem, from integrals of z^k (eqs. 26 and 33)."""
    return np.array(
        [
            sum(math.comb(n + 1, k) * m ** (n + 1 - k) * s**k * integrals[k] for k in range(n + 2))
            for n in range(degree + 1)
        ]
    )


def relu_integrals(u, degree, sign=-1.0):
    """Integrals of z^k phi(z) from -u to infinity; the printed recursion has sign = +1 (eq. 34)."""
    density = stats.norm.pdf(u)
    out = [stats.norm.cdf(u), density]
    for k in range(2, degree + 2):
        out.append((sign * u) ** (k - 1) * density + (k - 1) * out[k - 2])
    return out


@pytest.mark.parametrize(("m", "s"), PLACES)
def test_relu_moments_by_the_papers_recursion(m, s):
    got = raw_moments("relu", m, s, 4)
    # The binomial sum cancels for m < 0: its terms are 50 times the result at (-1.5, 2).
    np.testing.assert_allclose(got, binomial(m, s, 4, relu_integrals(m / s, 4)), rtol=1e-13)
    np.testing.assert_allclose(got[0], m * stats.norm.cdf(m / s) + s * stats.norm.pdf(m / s), rtol=1e-13)  # eq. 29


def test_the_printed_relu_recursion_has_the_wrong_sign():
    for m, right in ((0.0, True), (0.7, False), (-1.5, False)):
        printed = binomial(m, 1.0, 2, relu_integrals(m, 2, sign=1.0))
        assert np.allclose(printed, raw_moments("relu", m, 1.0, 2), rtol=1e-6) is right


def upper_integral(k, a):
    """Integral of z^k phi(z) from a to infinity by incomplete gamma functions, with the sign of a kept."""
    h, x = (k + 1) / 2, a * a / 2
    scale = 2 ** (k / 2 - 1) / math.sqrt(math.pi) * special.gamma(h)
    return scale * (special.gammaincc(h, x) if a >= 0 else 1 + (-1) ** k * special.gammainc(h, x))


@pytest.mark.parametrize(("m", "s"), PLACES)
def test_relu_moments_by_incomplete_gamma_functions(m, s):
    integrals = [upper_integral(k, -m / s) for k in range(5)]
    np.testing.assert_allclose(raw_moments("relu", m, s, 3), binomial(m, s, 3, integrals), rtol=1e-13)


def test_the_printed_incomplete_gamma_form_fails():
    # Eq. 35 has 2^(k/2) for 2^((k-1)/2) and -u^2/2 for u^2/2. With both mended, it still forgets the sign of u.
    for u, right in ((-1.0, True), (1.0, False)):
        for k in (0, 2):
            h = (k + 1) / 2
            mended = 2 ** ((k - 1) / 2) / math.sqrt(2 * math.pi) * special.gamma(h) * special.gammaincc(h, u * u / 2)
            assert math.isclose(mended, upper_integral(k, -u), rel_tol=1e-12) is right
            assert not math.isclose(mended * math.sqrt(2), upper_integral(k, -u), rel_tol=1e-2)


@pytest.mark.parametrize(("m", "s"), PLACES)
def test_gelu_mean_and_derivative_of_the_paper(m, s):
    v = math.sqrt(1 + s * s)
    below, density = stats.norm.cdf(m / v), stats.norm.pdf(m / v)
    mean = m * below + s * s / v * density  # eq. 21
    slope = below + density * (m / v - m * s * s / v**3)  # after eq. 22
    raw = raw_moments("gelu", m, s, 1)
    np.testing.assert_allclose(raw[0], mean, rtol=1e-13)
    np.testing.assert_allclose(mp.activations.hermite_coefficients("gelu", m, s, 1)[1] / s, slope, rtol=1e-13)
    np.testing.assert_allclose(raw[1], m * mean + s * s * slope, rtol=1e-13)  # Stein


def gelu_integral(k, a, b):
    """Integral of z^k Phi(a z + b) phi(z) over the line, by noncentral t distributions (eqs. 23 and 24)."""

    def half(slope):
        return stats.nct.cdf(slope * math.sqrt(k + 1), k + 1, -b)

    return math.gamma((k + 1) / 2) * 2 ** ((k - 1) / 2) / math.sqrt(2 * math.pi) * (half(a) + (-1) ** k * half(-a))


@pytest.mark.parametrize(("m", "s"), [(0.3, 1.2), (2.0, 1.5), (-1.0, 0.5)])
def test_gelu_moments_by_noncentral_t(m, s):
    integrals = [gelu_integral(k, s, m) for k in range(5)]
    # The sum to n + 1 is E[x^(n+1) Phi(x)] = E[x^n gelu(x)], not the E[x^n Phi(x)] in front of it (eqs. 25 and 26).
    np.testing.assert_allclose(raw_moments("gelu", m, s, 3), binomial(m, s, 3, integrals), rtol=1e-12)
    cdf_moment = expectation(lambda x: x * stats.norm.cdf(x), m, s)
    np.testing.assert_allclose(binomial(m, s, 0, integrals)[0], cdf_moment, rtol=1e-12)
    assert abs(binomial(m, s, 1, integrals)[1] - cdf_moment) > 1e-2


def test_no_binomial_sum_keeps_digits_far_below_the_kink():
    m, s = -10.0, 1.0
    with mpmath.workdps(40):
        want = mpmath.quad(lambda x: x**5 * mpmath.npdf(x, m, s), [0, 1, 2, 4, 8])
        ours = abs(raw_moments("relu", m, s, 4)[4] / want - 1)
        papers = abs(binomial(m, s, 4, relu_integrals(m / s, 4))[4] / want - 1)
    # Multiplication by x cancels as well (100 per factor, at ten standard deviations), but far less.
    assert ours < 1e-8
    assert papers > 100 * ours


def monomials(d, degree):
    """The features z of degree 1 to `degree`, as multi-indices in order."""
    return [i for k in range(1, degree + 1) for i in combinations_with_replacement(range(d), k)]


def feature_covariance(mean, cov, features):
    first = np.array([isserlis(mean, cov, i) for i in features])
    second = np.array([[isserlis(mean, cov, i + j) for j in features] for i in features])
    return first, second - np.outer(first, first)


def hidden_times(net, mean, cov, index):
    """E[hidden_i x^index] (h,): act(y_i), times z_i for a GLU, times the inputs, by the master theorem."""
    gated = isinstance(net, mp.GLU)
    weight, bias = (net.W_gate, net.b_gate) if gated else (net.W1, net.b1)
    h, d = weight.shape
    forms = np.broadcast_to(np.eye(d)[list(index)], (h, len(index), d))
    offsets = np.zeros((h, len(index)))
    if gated:
        forms = np.concatenate([net.W_up[:, None, :], forms], axis=1)
        offsets = np.concatenate([net.b_up[:, None], offsets], axis=1)
    centre, variance = weight @ mean + bias, np.einsum("hi,ij,hj->h", weight, cov, weight)
    a = master_theorem(
        centre,
        variance,
        forms @ mean + offsets,
        np.einsum("hi,ij,hnj->hn", weight, cov, forms),
        forms @ cov @ np.swapaxes(forms, 1, 2),
    )
    return np.sum(a * raw_moments(net.activation, centre, np.sqrt(variance), forms.shape[1]), axis=0)


def papers_fit(net, mean, cov, degree):
    """Ordinary least squares on the features: beta = Cov[z]^-1 Cov[z, f], alpha = E[f] - beta' E[z] (eqs. 4 and 5)."""
    readout, bias = (net.W_down, net.b_down) if isinstance(net, mp.GLU) else (net.W2, net.b2)
    features = monomials(len(mean), degree)
    first, spread = feature_covariance(mean, cov, features)
    mean_f = readout @ hidden_times(net, mean, cov, ()) + bias
    cross = np.stack(
        [
            readout @ hidden_times(net, mean, cov, i) + bias * z - mean_f * z
            for i, z in zip(features, first, strict=True)
        ]
    )
    beta = np.linalg.solve(spread, cross)
    return mean_f - first @ beta, dict(zip(features, beta, strict=True))


def random_mlp(rng, activation):
    w1, w2 = rng.standard_normal((5, 3)), rng.standard_normal((2, 5))
    w1[2] = 0  # a neuron that never moves
    return mp.MLP(w1, rng.standard_normal(5), w2, rng.standard_normal(2), activation)


def random_glu(rng, activation):
    gate, up, down = rng.standard_normal((5, 3)), rng.standard_normal((5, 3)), rng.standard_normal((2, 5))
    gate[1] = 0  # a gate that never moves: the unit is linear
    return mp.GLU(gate, rng.standard_normal(5), up, rng.standard_normal(5), down, rng.standard_normal(2), activation)


RECIPES = [
    (make_net, activation)
    for make_net, activations in ((random_mlp, ("relu", "gelu", "tanh")), (random_glu, ("silu", "relu", "identity")))
    for activation in activations
]


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize(("make_net", "activation"), RECIPES)
def test_fit_equals_the_papers_recipe(rng, make_net, activation, degree):
    net = make_net(rng, activation)
    mean, cov = gaussian(rng, 3)
    constant, beta = papers_fit(net, mean, cov, degree)
    c = mp.fit(net, mp.Gaussian(mean, cov), degree).coefficients()
    # A monomial stands in the symmetric tensor once for every order of its factors.
    got = [len(set(permutations(i))) * c.tensor(len(i))[(slice(None), *i)] for i in beta]
    # The solve amplifies rounding by the condition of Cov[z], at worst 3e1, 8e3 and 3e6 for such inputs.
    tolerance = {1: 1e-12, 2: 1e-11, 3: 1e-10}[degree]
    assert_close(np.stack([c.constant, *got]), np.stack([constant, *beta.values()]), tolerance)


def test_mean_of_a_relu_network_under_a_standard_gaussian(rng):
    net = mp.MLP(*(rng.standard_normal(shape) for shape in ((5, 3), (5,), (2, 5), (2,))), "relu")
    s = np.linalg.norm(net.W1, axis=1)
    printed = net.W2 @ (net.b1 * stats.norm.cdf(net.b1 / s) + s * stats.norm.pdf(net.b1 / s))  # eq. 31, without b2
    got = mp.fit(net, mp.Gaussian.standard(3), degree=0).coefficients().constant
    assert_close(got, printed + net.b2, 1e-14)
    assert np.all(np.abs(got - printed) > 1e-3)


def test_bilinear_units_are_reproduced_by_the_recipe(rng):
    net = random_glu(rng, "identity")
    mean, cov = gaussian(rng, 3)
    constant, beta = papers_fit(net, mean, cov, 2)
    x = rng.standard_normal((7, 3))
    value = constant + sum(np.prod(x[:, list(i)], axis=1)[:, None] * b for i, b in beta.items())
    assert_close(value, net(x), 1e-11)


def test_features_of_a_standard_gaussian_are_uncorrelated():
    # Appendix B, with its dimension mended: d + d (d + 1) / 2 features.
    d = 4
    features = monomials(d, 2)
    assert len(features) == d + d * (d + 1) // 2 == 14
    first, spread = feature_covariance(np.zeros(d), np.eye(d), features)
    np.testing.assert_array_equal(spread, np.diag(np.diagonal(spread)))
    assert [spread[j, j] for j in range(14)] == [2.0 if i[0] == i[-1] and len(i) == 2 else 1.0 for i in features]
    np.testing.assert_array_equal(first, [1.0 if i[0] == i[-1] and len(i) == 2 else 0.0 for i in features])
    # With a mean, or a correlation, they are not.
    _, moved = feature_covariance(np.ones(d), np.eye(d), features)
    assert moved[0, d] == 2.0
