"""The scikit-learn estimator for rows with gaps: moments by EM, predictions, probabilities, checks of scikit-learn."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator
from support.backends import assert_close
from support.inputs import gaussian, mixture

import mlpoly as mp
from mlpoly.inputs.incomplete import gaussian_with_gaps
from mlpoly.sklearn import MissingValues

G = gaussian(3, 4, ridge=0.3)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def with_gaps(x, fraction, seed=0):
    x = x.copy()
    x[np.random.default_rng(seed).random(x.shape) < fraction] = np.nan
    return x


def log_likelihood(x, mean, cov):
    """Of rows with gaps, from densities of what is observed."""
    total = 0.0
    for row in x:
        o = np.flatnonzero(~np.isnan(row))
        if len(o):
            gap, own = row[o] - mean[o], cov[np.ix_(o, o)]
            total -= 0.5 * (gap @ np.linalg.solve(own, gap) + np.linalg.slogdet(2 * np.pi * own)[1])
    return total


def test_em_is_a_maximum():
    """No small change of mean or covariance makes the observed entries likelier."""
    x = with_gaps(G.sample(300, 1), 0.3)
    found, rounds = gaussian_with_gaps(x, tolerance=1e-10, rounds=2000)
    assert 5 < rounds < 2000
    best, rng = log_likelihood(x, found.mean, found.cov), np.random.default_rng(0)
    for _ in range(10):
        step, turn = rng.normal(size=4), rng.normal(size=(4, 4))
        up, down = (
            log_likelihood(x, found.mean + e * step, found.cov + e * (turn + turn.T) / 8) for e in (1e-3, -1e-3)
        )
        assert max(up, down) < best
        assert abs(up - down) < 1e-4 * (2 * best - up - down) / 1e-3  # the slope is zero
    whole, none = gaussian_with_gaps(G.sample(50, 1))
    assert none == 0
    assert_close(whole.cov, mp.Gaussian.from_samples(G.sample(50, 1)).cov, 1e-13)


def test_odd_columns():
    """An empty column, a constant one, a copy with gaps."""
    x = np.random.default_rng(0).normal(size=(60, 2))
    x = np.column_stack([x, np.full(60, np.nan), np.full(60, 3.0), x[:, 0]])
    x[::3, 4] = np.nan
    found, _ = gaussian_with_gaps(x)
    assert found.mean[2] == found.cov[2, 2] == 0
    assert found.mean[3] == 3 and found.cov[3, 3] == 0
    assert_close(found.cov[4, 4], found.cov[0, 0], 1e-4)


def test_regressor():
    """The values are those of mp.conditional under the moments of fit, in original units."""
    x = 5 + G.sample(400, 1)
    model = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=12, max_iter=50, random_state=0)).fit(
        x, x[:, 0] * x[:, 1]
    )
    robust = MissingValues(model).fit(with_gaps(x, 0.2))
    assert robust.estimator_ is model and robust.rounds_ > 1
    rows = with_gaps(x[:20], 0.4, 1)
    mean, std = robust.predict(rows, return_std=True)
    found = mp.conditional(mp.from_sklearn(model), robust.inputs_, rows)
    assert_close(mean, found.mean[:, 0], 1e-12)
    assert_close(std, found.std[:, 0], 1e-12)
    assert_close(robust.predict(x), model.predict(x), 1e-12)
    assert robust.score(x, x[:, 0] * x[:, 1]) == pytest.approx(model.score(x, x[:, 0] * x[:, 1]))
    mix = mixture(4, c=2)
    assert_close(
        MissingValues(model, mix).fit(x).predict(rows), mp.conditional(robust.net_, mix, rows).mean[:, 0], 1e-12
    )


def test_classifiers():
    """Two and three classes, several labels: without gaps the probabilities of the perceptron."""
    x, y = load_iris(return_X_y=True)
    for target in (y, (y > 0).astype(int), np.array(["a", "b", "c"])[y], np.stack([y > 0, y > 1], axis=1).astype(int)):
        model = MLPClassifier(8, max_iter=100, random_state=0).fit(x, target)
        robust = MissingValues(model).fit(x)
        assert_close(robust.predict_proba(x), model.predict_proba(x), 1e-10)
        assert np.array_equal(robust.predict(x), model.predict(x))
        assert robust.score(x, target) == model.score(x, target)
        gaps = robust.predict_proba(with_gaps(x, 0.5))
        assert np.all((gaps > 0) & (gaps < 1))
        if gaps.shape[1] != 2:
            assert_close(gaps.sum(axis=1), np.ones(len(x)), 1e-12)
    nothing = MissingValues(MLPClassifier(8, max_iter=100, random_state=0).fit(x, y > 0)).fit(x)
    found = mp.conditional(nothing.net_, nothing.inputs_, np.full((1, 4), np.nan))
    expected = 1 / (1 + np.exp(-found.mean / np.sqrt(1 + np.pi * found.std**2 / 8)))
    assert_close(nothing.predict_proba(np.full((1, 4), np.nan))[:, 1:], expected, 1e-12)


def test_training_with_gaps():
    """A copy of a column with gaps costs nothing: the gaps are filled by what determines them."""
    x = np.random.default_rng(0).normal(size=(300, 2))
    x = np.column_stack([x, x[:, 0]])
    y, rows = x[:, 0] + x[:, 1], x.copy()
    rows[::2, 2] = np.nan
    start = MLPRegressor(hidden_layer_sizes=16, solver="lbfgs", max_iter=300, random_state=0)
    assert MissingValues(start).fit(rows, y).score(rows, y) > 0.99


def test_mistakes():
    x = G.sample(30, 1)
    with pytest.raises(NotFittedError):
        MissingValues().predict(x)
    with pytest.raises(ValueError, match="requires y"):
        MissingValues().fit(x)
    with pytest.raises(TypeError, match="one hidden layer"):
        MissingValues(MLPRegressor(hidden_layer_sizes=(4, 4), max_iter=5)).fit(x, x[:, 0]).predict(x)
    with pytest.raises(ValueError, match="return_std"):
        MissingValues(MLPClassifier(4, max_iter=5)).fit(x, x[:, 0] > 0).predict(x, return_std=True)
    with pytest.raises(TypeError, match="cannot take"):
        MissingValues(make_pipeline(QuantileTransformer(n_quantiles=10), MLPRegressor(max_iter=5))).fit(x, x[:, 0])


@pytest.mark.parametrize("start", [MLPRegressor, MLPClassifier], ids=lambda c: c.__name__)
def test_checks_of_scikit_learn(start):
    """All but those whose data have a target that the perceptron cannot take either."""
    estimator = MissingValues(start(hidden_layer_sizes=8, solver="lbfgs", max_iter=60, random_state=0))
    failed = {}
    for made, check in estimator_checks_generator(estimator):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                check(made)
            except Exception as error:
                if type(error).__name__ not in ("SkipTest", "Skipped", "SkipTestWarning"):
                    failed[check.func.__name__] = repr(error)[:200]
    assert failed == {}
