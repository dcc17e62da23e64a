"""Rows with missing values on five data sets: a network's mean given what is observed, beside imputation.

Prints the table of docs/tabular.md: root mean square errors of the target, in standard deviations of it, and how many
targets lie in intervals of 90 %. Three splits each; two minutes on one core.

    python examples/missing_values.py
"""

import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine, make_friedman1
from sklearn.experimental import enable_iterative_imputer  # noqa: F401, which makes the next import possible
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from mlpoly.sklearn import MissingValues

WIDTH = 1.645  # standard deviations on either side that hold 90 % of a Gaussian


def correlated(n: int = 2000, d: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Ten inputs of three common causes."""
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(d, 3))
    x = rng.normal(size=(n, 3)) @ causes.T + 0.5 * rng.normal(size=(n, d))
    return x, np.sin(x[:, 0]) + x[:, 1] * x[:, 2] / 4 + x[:, 3] + 0.2 * rng.normal(size=n)


def data() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, inputs and target of every data set."""
    yield "diabetes", *load_diabetes(return_X_y=True, scaled=False)
    cells, wine = load_breast_cancer().data, load_wine().data
    yield "cancer: worst area", np.log1p(cells[:, :10]), np.log(cells[:, 23])
    yield "wine: alcohol", wine[:, 1:], wine[:, 0]
    yield "friedman1 (independent)", *make_friedman1(2000, n_features=10, noise=1.0, random_state=0)
    yield "correlated (generated)", *correlated()


def network(seed: int) -> Pipeline:
    """A perceptron that is not trained yet."""
    options = {"hidden_layer_sizes": 32, "alpha": 1.0, "max_iter": 400, "learning_rate_init": 0.005}
    return make_pipeline(StandardScaler(), MLPRegressor(random_state=seed, **options))


def results(x: np.ndarray, y: np.ndarray, gaps: float, seed: int) -> list[float]:
    """Errors of four ways, and the fraction of targets in the intervals of two of them."""
    rng = np.random.default_rng(seed)
    known, new, target, wanted = train_test_split(x, y, test_size=0.3, random_state=seed)
    net = network(seed).fit(known, target)
    one, other, left, right = train_test_split(known, target, test_size=0.25, random_state=seed)
    noise = np.sqrt(np.mean((network(seed).fit(one, left).predict(other) - right) ** 2))  # on rows it has not seen
    rows, train = new.copy(), known.copy()
    rows[rng.random(rows.shape) < gaps] = np.nan
    train[rng.random(train.shape) < gaps] = np.nan
    mean, std = MissingValues(net).fit(known).predict(rows, return_std=True)
    iterative = net.predict(IterativeImputer(random_state=0).fit(known).transform(rows))
    plain = net.predict(SimpleImputer().fit(known).transform(rows))
    again = make_pipeline(SimpleImputer(add_indicator=True), network(seed)).fit(train, target).predict(rows)
    errors = [float(np.sqrt(np.mean((p - wanted) ** 2))) for p in (mean, iterative, plain, again)]
    inside = [np.abs(mean - wanted) < WIDTH * np.hypot(std, noise), np.abs(iterative - wanted) < WIDTH * noise]
    return [*errors, *(float(np.mean(each)) for each in inside)]


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")  # of solvers that stop early
    print("| data | missing | given what is observed | IterativeImputer | mean | retrained | in intervals | imputed |")
    print("|---|---|---|---|---|---|---|---|")
    for name, x, y in data():
        y = (y - y.mean()) / y.std()
        for gaps in (0.1, 0.3, 0.5):
            found = np.mean([results(x, y, gaps, seed) for seed in range(3)], axis=0)
            cells = [*(f"{error:.3f}" for error in found[:4]), *(f"{part:.0%}" for part in found[4:])]
            print(f"| {name} | {gaps:.0%} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
