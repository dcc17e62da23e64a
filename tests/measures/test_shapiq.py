"""The game of one prediction through shapiq's interface: the same values, and what its imputer estimates."""

import numpy as np
import pytest
from support.inputs import gaussian, mixture
from support.networks import network

import mlpoly as mp

shapiq = pytest.importorskip("shapiq", reason="shapiq is not installed")


class Prediction(shapiq.Game):
    """v(S) = E[f | x_S = x0_S] of one output."""

    def __init__(self, net, inputs, x0, output):
        self.net, self.inputs, self.x0, self.at = net, inputs, x0, output
        super().__init__(n_players=len(x0), normalize=False)

    def value_function(self, coalitions):
        sets = [np.flatnonzero(row) for row in coalitions]
        return np.array([mp.conditional_mean(self.net, self.inputs, s)(self.x0[None, s])[0, self.at] for s in sets])


def in_support(g):
    """A point where the density is not zero: draws of a singular Gaussian are off its support by 1e-9."""
    values, vectors = np.linalg.eigh(g.covariance)
    kept = values > 1e-12 * values[-1]
    return g.mean + (vectors[:, kept] * np.sqrt(values[kept])) @ np.linspace(-1, 1.5, int(kept.sum()))


@pytest.mark.parametrize(
    ("kind", "activation", "inputs"),
    [("MLP", "relu", gaussian(d=5)), ("GLU", "silu", gaussian(d=5, rank=3)), ("MLP", "gelu", mixture(5))],
)
def test_values_are_the_same(kind, activation, inputs):
    net = network(kind, activation, d=5, o=2)
    x0 = in_support(inputs.components[0])
    ours = mp.shapley(net, x0, inputs)
    for output in range(2):
        game = Prediction(net, inputs, x0, output)
        theirs = shapiq.ExactComputer(game, n_players=5)("SV").get_n_order_values(1)
        np.testing.assert_allclose(ours.values[:, output], theirs, atol=1e-12 * np.abs(ours.values).max())


def test_its_imputer_estimates_the_same_game():
    """v(S) from 20 000 draws of the other inputs, within four standard errors."""
    net = network("MLP", "gelu", d=4, o=1)
    data = gaussian(d=4).sample(500, seed=0)
    inputs = mp.Gaussian(data.mean(axis=0), np.cov(data.T))
    sets = np.array([[(i >> k) & 1 for k in range(4)] for i in range(16)], dtype=bool)
    exact = Prediction(net, inputs, data[0], 0).value_function(sets)
    imputer = shapiq.GaussianImputer(lambda x: net(x)[:, 0], data, data[0], sample_size=20_000, random_state=0)
    drawn = imputer._draw_samples(data[0], sets)
    errors = np.array([net(x)[:, 0].std() for x in drawn]) / np.sqrt(20_000)
    assert np.all(np.abs(imputer.value_function(sets) - exact) <= 4 * errors + 1e-12)
