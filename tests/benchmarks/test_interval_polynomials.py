"""Polynomials on intervals that the benchmark of encrypted inference compares with."""

import numpy as np
import pytest
from numpy.polynomial import Chebyshev
from scipy.special import erf

from benchmarks.interval_polynomials import OnePerLayer, interpolated, least_squares, minimax, projected


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


def test_minimax_of_the_absolute_value():
    """On [-1, 1] the best quadratic is x^2 + 1/8, so that of the ReLU is x^2 / 2 + x / 2 + 1/16; cubic is the same."""
    for degree in (2, 3):
        power = minimax(relu, degree, (-1.0, 1.0), kinks=(0.0,)).convert(kind=np.polynomial.Polynomial).coef
        assert power[:3] == pytest.approx([1 / 16, 1 / 2, 1 / 2], abs=1e-7)
        assert np.abs(power[3:]).max(initial=0.0) < 1e-7


def test_minimax_of_a_polynomial_is_itself():
    cubic = Chebyshev([0.3, -1.0, 2.0, 0.7], domain=(-2, 5))
    y = np.linspace(-2, 5, 50)
    for degree in (3, 6):
        assert minimax(cubic, degree, (-2, 5))(y) == pytest.approx(cubic(y), abs=1e-11)


def test_chebyshev_interpolates():
    interval, degree = (-3.0, 7.0), 5
    nodes = 2 + 5 * np.cos((2 * np.arange(degree + 1) + 1) * np.pi / (2 * degree + 2))
    p = interpolated(gelu, degree, interval)
    assert p.degree() == degree
    assert p(nodes) == pytest.approx(gelu(nodes), abs=1e-13)


def test_chebyshev_projects():
    """|t| has the series 2/pi - 4/pi sum (-1)^k T_2k / (4 k^2 - 1)."""
    found = projected(np.abs, 5, (-1.0, 1.0)).coef
    # The error of the quadrature is what it folds back: the terms around twice the number of its points.
    assert found == pytest.approx([2 / np.pi, 0, 4 / np.pi / 3, 0, -4 / np.pi / 15, 0], abs=1e-6)


def test_least_squares_leaves_a_residual_without_low_degrees():
    values = np.random.default_rng(0).normal(1.0, 2.0, 5000)
    residual = relu(values) - least_squares(relu, 4, (values.min(), values.max()), values)(values)
    assert np.abs(np.vander(values / 8, 5).T @ residual).max() < 1e-9 * len(values)


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
