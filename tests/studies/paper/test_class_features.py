"""What the feature study says of polynomials whose eigenvectors, parts and choices are known."""

import numpy as np
import pytest
from support.backends import NUMPY32, NUMPY64, TORCH32, TORCH64, assert_close, make

import mlpoly as mp
from mlpoly.studies.paper.class_features import align, feature_step
from mlpoly.studies.paper.results import FeatureStep

WEIGHTS = np.array([[3.0, -2.0, 1.0, 0.5, -0.25, 0.125], [-1.0, -2.0, -3.0, 0.0, 0.0, 0.0]])


def squares(build=np.asarray):
    """Outputs sum_i WEIGHTS[c, i] (w_i . x)^2 with orthonormal w_i: eigenvalues and eigenvectors are known."""
    W = np.linalg.qr(np.random.default_rng(3).normal(size=(8, 8)))[0][:6]
    return mp.MLP(build(W), None, build(WEIGHTS), None, "square")


@pytest.mark.parametrize("backend", [NUMPY64, NUMPY32, TORCH64, TORCH32], ids=lambda b: b.name)
def test_features_of_a_quadratic_network(backend):
    def build(a):
        return make(a, backend)

    net, exact = squares(build), squares()
    mean = np.linspace(-1, 1, 8)
    inputs = mp.Gaussian(build(mean))
    one, two = feature_step(64, mp.fit(net, inputs, 1), mp.fit(net, inputs, 2))
    assert [(f.step, f.label) for f in (one, two)] == [(64, 0), (64, 1)]
    assert_close(one.positive, [3, 1, 0.5], 10 * backend.tolerance + 1e-7)  # the records are float32
    assert_close(one.negative, [-2, -0.25], 10 * backend.tolerance + 1e-7)  # there are no more than two
    assert_close(two.negative, [-3, -2, -1], 10 * backend.tolerance + 1e-7)
    assert two.positive.shape == (0,)
    assert two.positive_vectors.shape == (0, 8)
    assert_close(one.spectrum, [3, 1, 0.5, 0.125, 0, 0, -0.25, -2], 10 * backend.tolerance + 1e-7)
    for found, rows in ((one.positive_vectors, [0, 2, 3]), (one.negative_vectors, [1, 4])):
        # Eigenvectors of gap 1/4 and more: rounding is amplified by four.
        assert_close(np.abs(np.sum(found * exact.W1[rows], axis=1)), np.ones(len(rows)), 1e-5)
    # The best linear map of x'Qx under N(mean, I) is its tangent at the mean.
    assert_close(one.linear, 2 * (exact.W1.T * WEIGHTS[0]) @ exact.W1 @ mean, 10 * backend.tolerance + 1e-7)
    arrays = [getattr(one, n) for n in ("positive", "negative_vectors", "linear", "spectrum")]
    assert all(type(a) is np.ndarray and a.dtype == np.float32 for a in arrays)


def step_of(step, positive, negative=(), label=0):
    up, down = (np.array(v, dtype=np.float32).reshape(-1, 3) for v in (positive, negative))
    ranks = [np.arange(len(v), 0, -1, dtype=np.float32) for v in (up, down)]
    return FeatureStep(step, label, ranks[0], -ranks[1], up, down, np.ones(3), np.ones(3))


def test_align_goes_backwards_from_the_last_step():
    last = step_of(4, [[0.6, -0.8, 0]], [[0, 0, -1]])
    middle = step_of(2, [[0.8, -0.6, 0]], [[0, 0.6, -0.8]])
    # Correlates with the middle only, and negatively; by its own largest entry it would not be turned.
    first = step_of(1, [[-1, 0, 0]], [[0, 1, 0]])
    other = step_of(2, [[0, -1, 0]], label=1)
    given = (first, other, last, middle)
    found = align(given)
    assert [(f.step, f.label) for f in found] == [(1, 0), (2, 1), (4, 0), (2, 0)]
    assert_close(found[2].positive_vectors, [[-0.6, 0.8, 0]], 1e-6)  # largest entry positive
    assert_close(found[3].positive_vectors, [[-0.8, 0.6, 0]], 1e-6)
    assert_close(found[0].positive_vectors, [[-1, 0, 0]], 1e-6)
    assert_close(found[2].negative_vectors, [[0, 0, 1]], 1e-6)
    assert_close(found[3].negative_vectors, [[0, -0.6, 0.8]], 1e-6)
    assert_close(found[0].negative_vectors, [[0, -1, 0]], 1e-6)
    assert_close(found[1].positive_vectors, [[0, 1, 0]], 1e-6)
    # Nothing else changes, and nothing in place.
    assert found[0].positive_vectors.dtype == np.float32
    assert_close(found[2].linear, last.linear)
    assert_close(last.positive_vectors, [[0.6, -0.8, 0]], 1e-6)
    again = align(found)
    assert all(np.array_equal(a.positive_vectors, b.positive_vectors) for a, b in zip(found, again, strict=True))
