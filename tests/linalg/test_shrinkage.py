"""Shrunk least squares from second moments, with one eigendecomposition and with a solution for each shrinkage."""

import numpy as np
import pytest

from mlpoly.linalg import shrinkage
from mlpoly.linalg.shrinkage import ShrunkLeastSquares

RNG = np.random.default_rng(0)
ROWS, FEATURES, TARGETS = 400, 30, 3


def moments(rows):
    rows = np.concatenate([np.ones((len(rows), 1)), rows], axis=1)
    return rows.T @ rows


@pytest.fixture(params=["one eigendecomposition", "a solution each"])
def problem(request, monkeypatch):
    """Features of very different sizes, targets, and the solver of their moments."""
    features = RNG.normal(size=(2 * ROWS, FEATURES)) * np.geomspace(1e-3, 1e3, FEATURES) + 2.0
    targets = features @ (
        RNG.normal(size=(FEATURES, TARGETS)) / np.geomspace(1e-3, 1e3, FEATURES)[:, None]
    ) + RNG.normal(size=(2 * ROWS, TARGETS))
    if request.param == "a solution each":
        monkeypatch.setattr(shrinkage, "MANY", 0)
    rows = np.concatenate([features, targets], axis=1)
    return features, targets, rows, ShrunkLeastSquares(moments(rows[:ROWS]), FEATURES)


@pytest.mark.parametrize("weight", [0.0, 1e-3, 1.0])
def test_it_is_ridge_regression_on_standardised_features(problem, weight):
    features, targets, rows, solver = problem
    known, wanted = features[:ROWS], targets[:ROWS]
    deviation = known.std(0)
    # Least squares on the rows themselves, with rows for the penalty below: no normal equations.
    left = np.concatenate([(known - known.mean(0)) / deviation / ROWS**0.5, weight**0.5 * np.eye(FEATURES)])
    right = np.concatenate([(wanted - wanted.mean(0)) / ROWS**0.5, np.zeros((FEATURES, TARGETS))])
    expected = np.linalg.lstsq(left, right)[0] / deviation[:, None]
    change, level = solver.solve(weight)
    # The moments of features that are 1e3 times their deviation lose 6 of 16 digits.
    np.testing.assert_allclose(change * deviation[:, None], expected * deviation[:, None], rtol=1e-7, atol=1e-8)
    predicted = features[ROWS:] @ change + level
    error = np.mean(np.sum((targets[ROWS:] - predicted) ** 2, axis=1))
    assert solver.errors(moments(rows[ROWS:]), [weight])[0] == pytest.approx(error, rel=1e-7)
    singular = np.linalg.svd(left[:ROWS], compute_uv=False) ** 2
    assert solver.effective(weight) == pytest.approx(np.sum(singular / (singular + weight)), rel=1e-6)
    assert solver.rank == FEATURES


def test_duplicates_and_constants_do_no_harm(problem):
    features, targets, _, _ = problem
    doubled = np.concatenate([features, features[:, :5], np.ones((2 * ROWS, 1))], axis=1)
    rows = np.concatenate([doubled, targets], axis=1)
    solver = ShrunkLeastSquares(moments(rows[:ROWS]), FEATURES + 6)
    assert solver.rank == FEATURES
    around = np.concatenate([np.ones((ROWS, 1)), features[:ROWS]], axis=1)
    best = around @ np.linalg.lstsq(around, targets[:ROWS])[0]
    change, level = solver.solve(0.0)
    # A shrinkage of the size of rounding changes the values by less than its root.
    np.testing.assert_allclose(doubled[:ROWS] @ change + level, best, atol=1e-5)
    assert np.all(change[-1] == 0)
