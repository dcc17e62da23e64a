"""Closed forms beside data: the warning appears where the distribution is wrong, and nowhere else."""

import pickle

import numpy as np
import pytest
from support.backends import NUMPY64, TORCH32, assert_close, backends, in_library, make

import mlpoly as mp
from mlpoly.measures.fvu import far_apart
from mlpoly.scores import FVU

D, H = 24, 6


def rare_events(n=4000, seed=0):
    """One-hot-like columns, most of them rare, and units that are nearly always off."""
    rng = np.random.default_rng(seed)
    x = (rng.random((n, D)) < rng.uniform(0.01, 0.04, D)).astype(float)
    return x, mp.MLP(2.5 * rng.normal(size=(H, D)), -4 + rng.normal(size=H), rng.normal(size=(2, H)), None, "sigmoid")


def normal(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, D)) @ rng.normal(size=(D, D)) / D**0.5 + rng.normal(size=D)
    return x, mp.MLP(rng.normal(size=(H, D)) / D**0.5, rng.normal(size=H), rng.normal(size=(2, H)), None, "gelu")


@pytest.mark.parametrize("seed", range(5))
def test_normal_data_pass(seed):
    x, net = normal(seed=seed)
    inputs = mp.Gaussian.from_samples(x)
    found = mp.check(net, inputs, x)
    assert found.holds and "stands for these data" in found.advice
    assert mp.fvu(net, mp.fit(net, inputs, 2)).data is None  # and no warning, which would be an error here
    # Four standard errors of moments of 4000 normal values: sqrt(6 / n) and sqrt(24 / n).
    assert all(abs(u.skewness) < 0.16 and abs(u.kurtosis) < 0.31 and u.outside < 1e-3 for u in found.units)


@pytest.mark.parametrize("seed", range(5))
def test_rare_events_are_seen(seed):
    x, net = rare_events(20_000, seed)
    inputs = mp.Gaussian.from_samples(x)
    poly = mp.fit(net, inputs, 2)
    with pytest.warns(mp.DataWarning, match=r"mlpoly\.check"):
        found = mp.fvu(net, poly)
    assert float(found.data) > 2 * float(found) and f"on data {float(found.data):.3g}" in repr(found)
    on_all = float(mp.fvu(net, poly, x))
    assert abs(float(found.data) - on_all) < 4 * float(found.data.standard_error)
    checked = mp.check(net, inputs, x)  # without a warning, which would be an error here
    assert not checked.holds and float(checked.data[-1]) == pytest.approx(on_all, rel=1e-12)
    assert "fit on the data, mp.fit(net, x, 2)" in checked.advice and checked.advice in str(checked)


@backends(NUMPY64, TORCH32)
def test_units_are_those_that_matter(backend):
    x, net = rare_events()
    inputs = mp.Gaussian(x.mean(axis=0), np.cov(x.T, bias=True))
    there = in_library(net, backend)
    units = mp.check(there, in_library(inputs, backend), make(x, backend), k=3).units
    contribution = (net.W2**2).sum(axis=0) * net.hidden(x).var(axis=0)
    assert [u.unit for u in units] == np.argsort(-contribution)[:3].tolist()
    t = (x - x.mean(axis=0)) @ net.W1.T
    t = t / t.std(axis=0)
    for u in units:
        assert u.weight == pytest.approx(contribution[u.unit] / contribution.sum(), rel=1e-5)
        own = t[:, u.unit]
        assert_close([u.skewness, u.kurtosis], [(own**3).mean(), (own**4).mean() - 3], 100 * backend.tolerance)
        assert u.outside == np.mean(np.abs(own) > 4)


def test_weights_mixtures_and_deep_networks():
    x, net = normal()
    labels = (x[:, 0] > x[:, 0].mean()).astype(int)
    mixture = mp.GaussianMixture.from_labels(x, labels)
    assert mixture.rows is not None and mixture.in_units(np.ones(D), np.zeros(D)).rows is None
    assert pickle.loads(pickle.dumps(mixture)).rows is None  # data do not travel with what was estimated from them
    weighted = mp.check(net, mixture, mp.Samples(x, weights=np.arange(len(x)) % 3), degree=1)
    repeated = mp.check(net, mixture, np.repeat(x, np.arange(len(x)) % 3, axis=0), degree=1)
    assert float(weighted.data[0]) == pytest.approx(float(repeated.data[0]), rel=1e-10)
    assert_close([u.kurtosis for u in weighted.units], [u.kurtosis for u in repeated.units], 1e-10)
    deep = mp.Chain([net, mp.MLP(np.ones((3, 2)), None, np.ones((1, 3)), None, "tanh")])
    assert mp.check(deep, mp.Gaussian.from_samples(x), x, degree=1).units == ()


def test_errors_that_rest_on_few_rows_are_seen_and_chance_is_not():
    def error(value, spread):
        return FVU(np.array(value), np.array([value]), np.array(value), np.array(spread))

    assert far_apart(error(0.005, 0.0), error(0.16, 0.06))
    assert not far_apart(error(0.005, 0.0), error(0.16, 0.09))  # by chance
    assert not far_apart(error(0.05, 0.0), error(0.09, 0.001))  # within a factor of two


def test_bad_input():
    x, net = normal(50)
    inputs = mp.Gaussian.from_samples(x)
    with pytest.raises(TypeError, match="a Gaussian or a GaussianMixture"):
        mp.check(net, x, x)
    with pytest.raises(TypeError, match="inputs must be data"):
        mp.check(net, inputs, inputs)
    with pytest.raises(ValueError, match="degree"):
        mp.check(net, inputs, x, degree=0)
    with pytest.raises(ValueError, match="columns"):
        mp.check(net, inputs, x[:, :3])
