"""Networks without hidden units are constants, which every function takes."""

import numpy as np
import pytest
from support.backends import assert_close
from support.inputs import gaussian, mixture
from support.networks import network

import mlpoly as mp

D, VALUE = 3, np.array([1.0, -2.0])
EMPTY = {
    "MLP": mp.MLP(np.zeros((0, D)), None, np.zeros((2, 0)), VALUE, "tanh"),
    "GLU": mp.GLU(np.zeros((0, D)), None, np.zeros((0, D)), None, np.zeros((2, 0)), VALUE, activation="silu"),
}
X = np.random.default_rng(0).standard_normal((20, D))
kinds = pytest.mark.parametrize("kind", EMPTY)
distributions = pytest.mark.parametrize("inputs", [gaussian(d=D), mixture(D)], ids=["one", "mix"])


@kinds
@distributions
def test_measures_of_a_constant(kind, inputs):
    net, other = EMPTY[kind], network("MLP", "gelu", D, o=2)
    found = mp.similarity(net, other, inputs)
    mean = mp.second_moment(other, inputs).mean
    assert_close(found.inner, VALUE @ mean, 1e-12)
    assert_close(mp.similarity(net, net, inputs).distance, 0.0, 1e-12)
    assert_close(mp.second_moment(net, inputs).raw, np.outer(VALUE, VALUE), 1e-12)
    assert not mp.degree_spectrum(net, inputs, 3).variance.any()
    assert_close(mp.conditional_mean(net, inputs, 0)(X[:, :1]), np.tile(VALUE, (20, 1)), 1e-12)
    assert_close(mp.shapley(net, X[0], inputs).values, np.zeros((D, 2)), 1e-12)
    layer = mp.propagate(net, inputs)[0]
    assert_close(layer.mean, VALUE, 1e-12)
    assert float(layer.excess) == 0
    with pytest.raises(ValueError, match="an output has no variance"):
        mp.sensitivity(net, inputs)
    with pytest.raises(ValueError, match="FVU is undefined"):
        mp.fvu(net, mp.fit(net, inputs, 1))


@kinds
@pytest.mark.parametrize("options", [{}, {"method": "neuronwise"}, {"method": "composed"}, {"method": "expansion"},
                                     {"method": "sampled"}, {"bound": 2.0}], ids=str)  # fmt: skip
def test_fits_of_a_constant(kind, options):
    for inputs in (gaussian(d=D), mixture(D)):
        poly = mp.fit(EMPTY[kind], inputs, 2, **options)
        assert_close(poly(X), np.tile(VALUE, (20, 1)), 1e-12)
    assert_close(mp.fit(EMPTY[kind], mp.Samples(X), 1)(X), np.tile(VALUE, (20, 1)), 1e-12)
