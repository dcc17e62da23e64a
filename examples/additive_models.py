"""The closest additive model in closed form, beside additive models that are trained on samples of the network.

Prints the table of docs/tabular.md: fraction of the network's variance that is left on 400 000 fresh inputs, and the
processor time. Explainable boosting machines need the package interpret-core. Ten minutes on one core.

    python examples/additive_models.py
"""

import time
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

import mlpoly as mp

try:
    from interpret.glassbox import ExplainableBoostingRegressor
except ImportError:
    ExplainableBoostingRegressor = None

SAMPLES = 100_000

Function = Callable[[np.ndarray], np.ndarray]


def network(d: int, h: int, activation: str) -> tuple[mp.MLP, mp.Gaussian]:
    """A random network, and a Gaussian whose correlations reach 0.5."""
    rng = np.random.default_rng(d)
    factor = rng.normal(size=(d, 3))
    covariance = factor @ factor.T + 3.0 * np.eye(d)
    scale = np.sqrt(np.diag(covariance))
    W1, b1 = rng.normal(size=(h, d)) / np.sqrt(d) * 1.5, rng.normal(size=h)
    net = mp.MLP(W1, b1, rng.normal(size=(1, h)) / np.sqrt(h), None, activation=activation)
    return net, mp.Gaussian(np.zeros(d), covariance / np.outer(scale, scale))


def models(net: mp.MLP, inputs: mp.Gaussian, x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, Function, float]]:
    """Name, function and seconds of every way to an additive model."""
    mp.additive(net, inputs)  # what the first call sets up is no part of the time
    start = time.process_time()
    model = mp.additive(net, inputs)
    yield "`mp.additive`, closed form", lambda z: model(z)[:, 0], time.process_time() - start
    trained = {
        "splines, 12 knots": make_pipeline(SplineTransformer(12), Ridge(1.0)),
        "splines, 40 knots": make_pipeline(SplineTransformer(40), Ridge(1.0)),
        "linear regression": LinearRegression(),
    }
    if ExplainableBoostingRegressor is not None:
        trained["explainable boosting machine"] = ExplainableBoostingRegressor(interactions=0, n_jobs=1)
    for name, estimator in trained.items():
        start = time.process_time()
        estimator.fit(x, y)
        yield name, estimator.predict, time.process_time() - start


print("| network | model | variance left | processor seconds |\n|---|---|---|---|")
for d, h, activation in ((12, 64, "relu"), (12, 64, "sin"), (30, 256, "gelu")):
    net, inputs = network(d, h, activation)
    x, new = inputs.sample(SAMPLES, seed=1), inputs.sample(400_000, seed=2)
    y, truth = net(x)[:, 0], net(new)[:, 0]
    for name, function, seconds in models(net, inputs, x, y):
        squares = (function(new) - truth) ** 2 / truth.var()
        error = squares.std() / np.sqrt(len(squares))
        print(f"| {d}-{h}-1, {activation} | {name} | {squares.mean():.4f} ± {error:.4f} | {seconds:.3f} |", flush=True)
    left = float(mp.additive(net, inputs).fraction["neither"][0])
    print(f"| {d}-{h}-1, {activation} | its own statement, without samples | {left:.4f} | |", flush=True)
