"""Polynomials on intervals that the benchmark of encrypted inference compares with."""

import numpy as np
import pytest
from numpy.polynomial import Chebyshev
from scipy.special import erf

from benchmarks.interval_polynomials import OnePerLayer, interpolated, minimax


def relu(y):
    return np.maximum(y, 0.0)


def gelu(y):
    return y * (1 + erf(y / np.sqrt(2))) / 2


@pytest.mark.parametrize("interval", [(-1.0, 1.0), (-9.3, 6.1), (-0.2, 14.0)])
@pytest.mark.parametrize("degree", [2, 3, 5, 8])
@pytest.mark.parametrize("f", [relu, gelu])
def test_the_minimax_error_equioscillates(f, degree, interval):
    """By Chebyshev's theorem: degree + 2 points where the largest error is attained with alternating signs."""
    p = minimax(f, degree, interval, kinks=(0.0,))
    y = np.union1d(np.linspace(*interval, 400_001), [0.0])
    error = f(y) - p(y)
    largest = np.abs(error).max()
    runs = np.split(error, np.flatnonzero(np.diff(np.sign(error))) + 1)
    peaks = np.array([np.abs(run).max() for run in runs])
    # A grid of m points in the cosine misses a smooth extremum by at most (degree pi / m)^2 / 2 of the error's range.
    assert (peaks > largest * (1 - 1e-4)).sum() >= degree + 2
    assert largest < np.abs(f(y) - interpolated(f, degree, interval)(y)).max()


def test_layers_follow_one_another_and_what_leaves_an_interval_is_seen():
    rng = np.random.default_rng(0)
    weights = tuple((rng.normal(size=shape), rng.normal(size=shape[0])) for shape in ((4, 3), (5, 4), (2, 5)))
    square = Chebyshev.cast(np.polynomial.Polynomial([0, 0, 1.0]), domain=(-2, 2))
    x = rng.normal(size=(40, 3)) / 3
    made, outside = OnePerLayer(weights, (square, square))(x)
    (a, p), (b, q), (c, r) = weights
    first = x @ a.T + p
    second = first**2 @ b.T + q
    assert made == pytest.approx(second**2 @ c.T + r, abs=1e-10)
    left = (np.abs(first) > 2).any(1) | (np.abs(second) > 2).any(1)
    assert 0 < left.sum() < 40 and (outside == left).all()
