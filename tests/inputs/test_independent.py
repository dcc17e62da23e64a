"""Independent inputs: orthogonal polynomials and quadrature of every marginal, copulas, and what is refused."""

import math

import numpy as np
import pytest
from scipy import stats

import mlpoly as mp
from mlpoly.inputs.marginal import marginal_of

K = np.arange(1, 31)
LEGENDRE = (stats.uniform(-1, 2), 0 * K, K / np.sqrt(4.0 * K**2 - 1))
LAGUERRE = (stats.expon(), 2.0 * K - 1, 1.0 * K)
HERMITE = (stats.norm(), 0 * K, np.sqrt(K))


def jacobi(a, b):
    """Of x^(a - 1) (1 - x)^(b - 1) on [0, 1], as SciPy has its weight on [-1, 1]."""
    p, q, n = b - 1, a - 1, K - 1.0
    with np.errstate(invalid="ignore"):
        along = np.where(n == 0, (q - p) / (p + q + 2), (q**2 - p**2) / ((2 * n + p + q) * (2 * n + p + q + 2)))
    up = 4 * K * (K + p) * (K + q) * (K + p + q) / ((2 * K + p + q) ** 2 * ((2 * K + p + q) ** 2 - 1))
    return stats.beta(a, b), (along + 1) / 2, np.sqrt(up) / 2


@pytest.mark.parametrize("case", [LEGENDRE, LAGUERRE, HERMITE, jacobi(2, 5), jacobi(0.5, 3.5)])
def test_recurrences_are_those_of_classical_polynomials(case):
    distribution, a, b = case
    law, center, scale = marginal_of(distribution)
    found_a, found_b = law.recurrence(30)
    np.testing.assert_allclose(center + scale * found_a, a, atol=1e-12 * np.abs(a).max() + 1e-13)
    np.testing.assert_allclose(scale * found_b[1:], b, rtol=1e-12)


LAWS = [
    stats.uniform(3, 2), stats.expon(2), stats.beta(0.3, 0.4), stats.gamma(2.5), stats.lognorm(0.5), stats.triang(0.3),
    stats.truncnorm(-1, 2), stats.weibull_min(1.5), stats.gumbel_r(1, 3), stats.loguniform(0.01, 10), stats.t(9),
]  # fmt: skip


@pytest.mark.parametrize("distribution", LAWS, ids=lambda d: d.dist.name)
def test_rules_are_orthonormal_and_have_the_moments(distribution):
    law, center, scale = marginal_of(distribution)
    mean, variance, skew = (float(v) for v in distribution.stats("mvs"))
    np.testing.assert_allclose([center, scale], [mean, math.sqrt(variance)], rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(law.moments(3), [1, 0, 1, skew], rtol=1e-11, atol=1e-11)
    u, w = law.gauss(4)
    P = law.values(u, 3)
    np.testing.assert_allclose(P.T @ (w[:, None] * P), np.eye(4), atol=1e-12)
    coefficients = law.in_hermite(3)
    he = np.stack([np.ones_like(u), u, (u**2 - 1) / math.sqrt(2), (u**3 - 3 * u) / math.sqrt(6)], axis=1)
    np.testing.assert_allclose(he @ coefficients.T, P, atol=1e-11)


def test_lognormal_moments_and_the_degrees_that_floats_allow():
    """The recurrence of exp(s z), by the closed form of its monic polynomials (Stieltjes-Wigert)."""
    s = 0.5
    law, center, scale = marginal_of(stats.lognorm(s))
    q, n = math.exp(s * s), np.arange(8)
    a, b = law.recurrence(8)
    # Of the moments exp(s^2 k^2 / 2), with q = exp(s^2).
    along = q ** (2 * n - 0.5) * (q ** (1.0 + 0 * n) + 1 - q ** (-1.0 * n))
    up = q ** (2 * (n + 1) - 1.5) * np.sqrt(q ** (n + 1.0) - 1) / q ** ((n + 1) / 2) * q**0.5
    np.testing.assert_allclose(center + scale * a, along, rtol=1e-11)
    np.testing.assert_allclose(scale * b[1:], up, rtol=1e-11)
    with pytest.raises(ValueError, match="moment of order 60 is infinite or beyond floating point"):
        marginal_of(stats.lognorm(1.0))[0].recurrence(30)


def test_rules_of_lognormal_inputs_converge_although_moments_do_not_determine_them():
    """E tanh(x - 1), beside a fine rule in the normal score; Gauss rules in x itself stop short of it."""
    law, center, scale = marginal_of(stats.lognorm(1.0))
    z, w = np.polynomial.hermite_e.hermegauss(300)
    wanted = (w / w.sum()) @ np.tanh(np.exp(z) - 1)
    u, weights = law.rule(80, 2)
    np.testing.assert_allclose(weights @ np.tanh(center + scale * u - 1), wanted, atol=1e-6)


@pytest.mark.parametrize("sigma", [0.5, 1.0])
def test_weights_far_out_keep_their_digits(sigma):
    """There they are 1e-100 and less, and squares of polynomials as large: products must still be orthonormal."""
    law = marginal_of(stats.lognorm(sigma))[0]
    u, w = law.rule(160, 8)
    P, fine = law.values(u, 8), law.values(law.u, 8)
    np.testing.assert_allclose(P.T @ (w[:, None] * P), np.eye(9), atol=1e-12)
    np.testing.assert_allclose(P.T @ (w * np.tanh(u)), fine.T @ (law.weights * np.tanh(law.u)), atol=1e-11)


def test_copula_joins_normal_scores():
    R = np.array([[1.0, 0.7], [0.7, 1.0]])
    inputs = mp.Independent([stats.lognorm(0.5), stats.lognorm(0.3)], copula=R)
    # Of exp(s z), exp(t w): the covariance is exp((s^2 + t^2) / 2) (exp(s t r) - 1).
    wanted = math.exp((0.25 + 0.09) / 2) * (math.exp(0.5 * 0.3 * 0.7) - 1)
    np.testing.assert_allclose(inputs.covariance[0, 1], wanted, rtol=1e-12)
    # Ranks of a Gaussian copula: Spearman's correlation of uniform marginals is 6 / pi asin(r / 2).
    flat = mp.Independent([stats.uniform()] * 2, copula=R)
    np.testing.assert_allclose(12 * flat.covariance[0, 1], 6 / math.pi * math.asin(0.35), rtol=1e-12)
    x = inputs.sample(100_000, seed=3)
    u = x - inputs.mean
    products = u[:, 0] * u[:, 1]
    assert abs(products.mean() - wanted) < 5 * products.std() / math.sqrt(len(x))
    assert inputs.fingerprint != mp.Independent([stats.lognorm(0.5), stats.lognorm(0.3)]).fingerprint


def test_names_units_and_points():
    inputs = mp.Independent({"load": stats.expon(), "length": stats.uniform(1, 2)})
    assert inputs.names == ("load", "length") and repr(inputs) == "Independent(dim=2)"
    moved = inputs.in_units(np.array([-2.0, 1.0]), 3.0)
    np.testing.assert_allclose(moved.sample(5), np.array([3.0, 3.0]) + inputs.sample(5) * np.array([-2.0, 1.0]))
    np.testing.assert_allclose(moved.mean, [1.0, 5.0], rtol=1e-14)
    points = inputs.points(1000)
    assert points.count == 1024 and points.names == inputs.names
    np.testing.assert_allclose(points.mean, inputs.mean, atol=2e-3)  # quasi-random: far below 1 / sqrt(1024)


@pytest.mark.parametrize(
    ("marginals", "options", "error", "words"),
    [
        ([], {}, TypeError, "sequence, or a mapping"),
        (stats.norm(), {}, TypeError, "sequence, or a mapping"),
        ([3.0], {}, TypeError, "marginal 0 cannot be used: it has no quantiles"),
        ({"a": stats.poisson(2.0)}, {}, TypeError, "marginal 'a' cannot be used: it is discrete; mlpoly.Samples"),
        ([stats.cauchy()], {}, ValueError, "no variance, or an infinite one"),
        ([stats.t(2)], {}, ValueError, "marginal 0 cannot be used"),
        ([stats.norm(np.zeros(3))], {}, TypeError, "parameters that are arrays"),
        ([stats.norm()] * 2, {"copula": np.eye(3)}, ValueError, "copula has shape"),
        ([stats.norm()] * 2, {"copula": 2 * np.eye(2)}, ValueError, "with ones on its diagonal"),
        ([stats.norm()] * 2, {"copula": np.array([[1, 2.0], [2.0, 1]])}, ValueError, "not positive semidefinite"),
        ([stats.norm()] * 2, {"names": ["a"]}, ValueError, "names"),
    ],
)
def test_what_is_refused(marginals, options, error, words):
    with pytest.raises(error, match=words):
        mp.Independent(marginals, **options)


def test_other_objects_with_quantiles_are_marginals():
    np.testing.assert_allclose(mp.Independent([stats.norm]).mean, [0.0], atol=1e-15)  # a family with its defaults
    inputs = mp.Independent([stats.Normal(mu=1.0, sigma=2.0), stats.rv_histogram((np.array([1, 3]), np.arange(3)))])
    np.testing.assert_allclose(inputs.mean, [1.0, 1.25], rtol=1e-10)
    np.testing.assert_allclose(inputs.covariance[0, 0], 4.0, rtol=1e-10)
