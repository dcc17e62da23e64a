"""Means given some inputs, and measures made of them, for polynomials of all forms, deep networks and data."""

import numpy as np
import pytest
from support.backends import TORCH64, assert_close, assert_same_kind, in_library
from support.inputs import gaussian, mixture
from support.networks import chain, network
from support.quadrature import average

import mlpoly as mp

G = gaussian(3, 3, ridge=0.1)
MIX = mixture(3, c=2)
X0 = np.array([0.7, -1.2, 0.4])
DEEP = chain("tanh", (3, 5, 4, 2))
FORMS = {
    "ridge": mp.fit(network("MLP", "silu", 3, 5, 2), G, 4),
    "gated ridge": mp.fit(network("GLU", "silu", 3, 5, 2), G, 5),
    "linear": mp.fit(network("GLU", "silu", 3, 5, 2), G, 1),
    "dense": mp.fit(network("MLP", "silu", 3, 5, 2), MIX, 2),
    "directions": mp.fit(mp.Chain([mp.MLP(np.eye(2, 3), activation="tanh"), mp.MLP(np.eye(2), activation="tanh")]), G),
    "chaos": mp.fit(network("MLP", "silu", 3, 5, 2), MIX, 4),
    "sparse chaos": mp.fit(network("MLP", "silu", 3, 5, 2), MIX, 3)._with_terms(
        np.eye(3, dtype=int)[:1] * 7, np.ones((2, 1))
    ),
}
SAMPLED = {
    "deep": DEEP,
    "composed": mp.fit(DEEP, G, 2, method="composed"),
    "bounded": mp.fit(network("MLP", "silu", 3, 5, 2), G, 3).bounded(2.0),
}


def by_hand(function, inputs, known, values, nodes=20):
    """E[f | x_S = values] by regressions, densities and quadrature."""
    total = weight = 0.0
    for share, g in zip(inputs.weights, inputs.components, strict=True):
        cov, gap = g.covariance, values - g.mean[known]
        slopes = np.linalg.solve(cov[np.ix_(known, known)], cov[known]).T
        density = np.exp(-gap @ np.linalg.solve(cov[np.ix_(known, known)], gap) / 2)
        mass = share * density / np.sqrt(np.linalg.det(cov[np.ix_(known, known)]))
        total = total + mass * average(function, g.mean + slopes @ gap, cov - slopes @ cov[known], nodes)
        weight += mass
    return total / weight


@pytest.mark.parametrize("inputs", [G, MIX], ids=["gaussian", "mixture"])
@pytest.mark.parametrize("form", FORMS)
def test_means_of_polynomials_are_exact(form, inputs):
    """Polynomials of degree up to 7, so that 20 nodes are exact; far from the fit too."""
    poly = FORMS[form]
    for known in ([1], [2, 0]):
        values = np.array([[0.3, -1.0], [-2.0, 1.5]])[:, : len(known)]
        mean = mp.conditional_mean(poly, inputs, known)
        expected = np.stack([by_hand(poly, inputs, known, v) for v in values])
        assert_close(mean(values), expected, 1e-11)
        np.testing.assert_array_equal(mean.standard_error(values), 0)
        assert mean.sampled == ""
    values = mp.shapley(poly, X0, inputs)
    assert_close(values.values.sum(0), poly(X0) - values.mean, 1e-11)
    assert_close(values.mean, mp.second_moment(poly, inputs).mean, 1e-11)
    assert values.standard_error is None


def test_averages_move_with_the_noise_of_diagonal_covariances():
    """Noise given as a diagonal, as a matrix and as quadrature."""
    variances = np.array([0.5, 0.0, 2.0])
    for poly in FORMS.values():
        expected = average(poly, X0, np.diag(variances))
        for cov in (variances, np.diag(variances)):
            assert_close(poly.averaged(mp.Gaussian(np.zeros(3), cov))(X0), expected, 1e-11)


@pytest.mark.parametrize("inputs", [G, MIX], ids=["gaussian", "mixture"])
@pytest.mark.parametrize("kind", SAMPLED)
def test_sampled_means_are_within_their_errors(kind, inputs):
    """The oracle's own error at 40 nodes is about what changes from 30 to 40 of them."""
    function, known, values = SAMPLED[kind], [1], np.array([[0.3], [-1.0]])
    mean = mp.conditional_mean(function, inputs, known)
    expected, coarse = (np.stack([by_hand(function, inputs, known, v, n) for v in values]) for n in (40, 30))
    own = np.max(np.abs(expected - coarse))
    assert own < 3e-3
    error = mean.standard_error(values)
    assert np.all(np.abs(mean(values) - expected) <= 6 * error + own)  # t with 7 degrees of freedom, 4 numbers
    assert "draws of the other inputs" in mean.sampled
    found = mp.shapley(function, X0, inputs)
    assert_close(found.values.sum(0), found.prediction - found.mean, 1e-12)
    assert_close(found.prediction, function(X0), 1e-12)
    assert np.all(found.standard_error < 0.05) and "draws" in found.note and "standard error" in str(found)


def test_a_composed_polynomial_with_one_stage_is_that_stage():
    """Sampled against closed form: every fraction is within its standard error."""
    poly = FORMS["ridge"]
    composed = mp.polynomials.ComposedPolynomial((poly,))
    exact, found = mp.sensitivity(poly, G), mp.sensitivity(composed, G)
    for name in ("first", "total", "shapley"):
        gap = np.abs(getattr(found, name) - getattr(exact, name))
        assert np.all(gap <= 5 * found.standard_error)
    assert np.max(np.abs(found.variance / exact.variance - 1)) < 0.05
    assert "f(x) f(x')" in str(found) and "standard error" in found.to_pandas()
    one, two = (mp.shapley(p, X0, G) for p in (poly, composed))
    assert np.all(np.abs(one.values - two.values) <= 6 * two.standard_error)


def test_other_libraries():
    there, g = in_library(DEEP, TORCH64), in_library(G, TORCH64)
    found = mp.sensitivity(there, g)
    assert_same_kind(found.first, there.prototype)
    assert_close(found.first, mp.sensitivity(DEEP, G).first, 1e-9)
    assert_close(
        mp.conditional_mean(there, g, 0)(g.mean[None, :1]), mp.conditional_mean(DEEP, G, 0)(G.mean[None, :1]), 1e-9
    )


def test_sobol_indices_of_data_from_independent_uniforms():
    """x0 + x1 x2 of uniforms on (-1, 1): variances 1/3 and 1/9."""
    net = mp.GLU(np.array([[0, 0, 0], [0, 1.0, 0]]), np.array([1.0, 0]), np.eye(3)[[0, 2]], None, np.ones((1, 2)), None,
                 activation="identity")  # fmt: skip
    x = np.random.default_rng(0).uniform(-1, 1, (4000, 3))
    found = mp.sensitivity(net, x)
    for name, expected in (("first", [0.75, 0, 0]), ("total", [0.75, 0.25, 0.25]), ("shapley", [0.75, 0.125, 0.125])):
        assert np.all(np.abs(getattr(found, name)[:, 0] - expected) <= 4 * found.standard_error[:, 0])
    assert np.all(found.standard_error < 0.02)
    assert_close(found.shapley.sum(0), 1 - found.remainder, 1e-12)
    assert np.all(np.abs(found.remainder) < 1e-12)
    assert "regression of degree 8 on 4000 rows" in str(found)


def test_data_and_the_gaussian_that_they_come_from():
    """A cubic polynomial: E[f | x_S] is one too, so that the regression has no error but that of the rows."""
    poly, x = mp.fit(network("MLP", "tanh", 3, 5, 2), G, 3), G.sample(20_000)
    exact, found = mp.sensitivity(poly, G), mp.sensitivity(poly, mp.Samples(x))
    for name in ("first", "total", "shapley"):
        assert np.all(np.abs(getattr(found, name) - getattr(exact, name)) <= 5 * found.standard_error)
    at = np.array([[0.5, -0.3]])
    one, two = (mp.conditional_mean(poly, inputs, [0, 2]) for inputs in (G, x))
    assert np.all(np.abs(two(at) - one(at)) <= 5 * two.standard_error(at))
    values = mp.shapley(poly, X0, x)
    assert np.all(np.abs(values.values - mp.shapley(poly, X0, G).values) <= 5 * values.standard_error)
    assert_close(values.values.sum(0), poly(X0) - values.mean, 1e-12)
    np.testing.assert_allclose(values.mean, poly(x).mean(0), rtol=1e-3)


def test_few_rows_explain_nothing_by_chance():
    """An input that has nothing to do with the output explains no more than its errors, though 56 monomials fit 600."""
    x = np.random.default_rng(1).standard_normal((600, 5))
    found = mp.sensitivity(lambda x: np.sin(3 * x[:, :1]), x)
    assert found.groups[0] == "x0" and found.remainder[0] > 0.2  # the sine has no close polynomial of this degree
    assert np.all(np.abs(found.first[1:]) <= 4 * found.standard_error[1:])
    assert "unexplained" in str(found)


def test_weights_are_copies_of_rows():
    poly, x = FORMS["ridge"], G.sample(300)
    weights = np.random.default_rng(0).integers(1, 3, 300)
    one = mp.conditional_mean(poly, mp.Samples(x, weights=weights / 1.0), 0)(np.array([[0.2]]))
    two = mp.conditional_mean(poly, mp.Samples(np.repeat(x, weights, axis=0)), 0)(np.array([[0.2]]))
    np.testing.assert_allclose(one, two, rtol=0.02)  # other groups are left out
