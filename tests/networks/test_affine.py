"""A lone linear map as a network: every fit and every measure of it is known exactly."""

from functools import partial

import numpy as np
import pytest
from support.backends import assert_close, assert_same_kind, make
from support.inputs import gaussian, points

import mlpoly as mp

D, OUT = 4, 3


W, B = np.random.default_rng(0).standard_normal((OUT, D)), np.random.default_rng(1).standard_normal(OUT)
make_gaussian = partial(gaussian, d=D, spread=2.0, ridge=0.1)
GAUSSIAN, MIX = make_gaussian(), mp.GaussianMixture.of(np.array([0.2, 0.8]), [make_gaussian(2), make_gaussian(3)])
X = points(D, 20, spread=3.0)

biases = pytest.mark.parametrize("with_bias", [True, False])
degrees = pytest.mark.parametrize("degree", [0, 1, 2, 3])


def affine(with_bias=True):
    return mp.Affine(W, B if with_bias else None)


@degrees
@biases
def test_a_fit_is_the_map_itself(with_bias, degree, backend):
    """At degree 0 its mean, above it the map, and nothing of a higher degree."""
    net = affine(with_bias).to(make(np.zeros(1), backend))
    inputs = GAUSSIAN.to(net.prototype)
    poly, x = mp.fit(net, inputs, degree), X
    want = x @ W.T if degree else np.broadcast_to(GAUSSIAN.mean @ W.T, (20, OUT))
    want = want + B if with_bias else want
    assert_same_kind(poly(make(x, backend)), net.prototype)
    assert_close(net(make(x, backend)), x @ W.T + (B if with_bias else 0), backend.tolerance)
    assert_close(poly(make(x, backend)), want, backend.tolerance)
    c = poly.coefficients()
    if degree:
        assert_close(c.linear, W, backend.tolerance)
        assert_close(c.constant, B if with_bias else np.zeros(OUT), 10 * backend.tolerance)
    for k in range(2, degree + 1):
        assert_close(c.tensor(k), np.zeros((OUT, *[D] * k)), backend.tolerance)
    assert poly.source.activation == "identity"
    if degree == 3:
        lines = mp.fit(affine(with_bias), GAUSSIAN, 3).bounded(1.0)
        assert_close(lines(x), want, 1e-12)
        assert_close(lines.gradient(x), np.broadcast_to(W, (20, OUT, D)), 1e-12)


@biases
def test_all_variance_is_of_degree_one(with_bias):
    net, inputs = affine(with_bias), GAUSSIAN
    spectrum = mp.degree_spectrum(net, inputs, degree=4)
    want = np.zeros(np.asarray(spectrum.variance).shape)
    want[1 if want.shape[0] == 5 else 0] = np.diag(W @ inputs.cov @ W.T)
    assert_close(spectrum.variance, want, 1e-12)
    for given, cov in ((inputs, inputs.cov), (MIX, MIX.covariance)):
        moments = mp.second_moment(net, given)
        assert_close(moments.mean, W @ given.mean + (B if with_bias else 0), 1e-12)
        assert_close(moments.cov, W @ cov @ W.T, 1e-12)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((np.ones(3), None), r"W has shape \(3,\)"),
        ((np.ones((2, 3)), np.ones(3)), r"b has shape \(3,\)"),
        ((np.array([[np.nan, 1.0]]), None), "W"),
        ((np.ones((0, 3)), None), "has no outputs"),
    ],
)
def test_bad_weights_are_named(weights, message):
    with pytest.raises(ValueError, match=message):
        mp.Affine(*weights)
