"""Fraction of variance unexplained on data: against plain NumPy, known values, and its errors."""

import numpy as np
import pytest
import torch

import mlpoly as mp
import mlpoly.measures.functions
from mlpoly.measures import fvu
from mlpoly.records import replace

rng = np.random.default_rng(0)
W1, B1 = rng.standard_normal((6, 4)), rng.standard_normal(6)
W2, B2 = rng.standard_normal((3, 6)), rng.standard_normal(3)
X = rng.standard_normal((500, 4))
for a in (W1, B1, W2, B2, X):
    a.flags.writeable = False


def network(**changes):
    return mp.MLP(**({"W1": W1, "b1": B1, "W2": W2, "b2": B2, "activation": "relu"} | changes))


def fitted(net, degree=2):
    return mp.fit(net, mp.Gaussian.standard(4), degree=degree)


def test_against_plain_numpy():
    net = network()
    poly = fitted(net)
    f, p = net(X), poly(X)
    got = fvu(net, poly, X)
    np.testing.assert_allclose(got.per_output, np.mean((f - p) ** 2, axis=0) / f.var(axis=0), rtol=1e-12)
    total = np.sum((f - p) ** 2) / np.sum((f - f.mean(axis=0)) ** 2)
    np.testing.assert_allclose(got.total, total, rtol=1e-12)
    np.testing.assert_allclose(got.explained, 1 - total, rtol=1e-12)
    assert np.shape(got.total) == ()
    assert got.per_output.shape == (3,)


def test_blocks_do_not_change_the_result(monkeypatch):
    net = network()
    whole = fvu(net, fitted(net), X)
    monkeypatch.setattr(mlpoly.measures.functions, "_ROWS", 7)
    np.testing.assert_allclose(fvu(net, fitted(net), X).per_output, whole.per_output, rtol=1e-12)


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        (X[:, :3], ValueError, "inputs have 3 columns, but the network takes 4"),
        (X[0], ValueError, "inputs has shape"),
        (X[None], ValueError, "inputs has shape"),
        (X[:1], ValueError, "at least 2"),
        (X[:0], ValueError, "at least one sample"),
        (np.where(X > 2, np.nan, X), ValueError, "x holds NaN"),
        (np.ones((5, 4), dtype=bool), TypeError, "floating"),
        ("digits", TypeError, "inputs must be a Gaussian"),
    ],
    ids=["columns", "vector", "three axes", "one row", "no row", "nan", "truth values", "string"],
)
def test_sample_errors(samples, error, message):
    net = network()
    with pytest.raises(error, match=message):
        fvu(net, fitted(net), samples)


def test_other_errors():
    net, poly = network(), fitted(network())
    with pytest.raises(ValueError, match="give inputs"):
        fvu(net, replace(poly, inputs=None))
    with pytest.raises(ValueError, match="4 -> 6"):
        fvu(network(W2=None, b2=None), poly, X)
    with pytest.raises(TypeError, match="poly must be"):
        fvu(net, "poly", X)
    with pytest.raises(TypeError, match=r"net must be a network .*got function; on data .* any callable"):
        fvu(lambda x: x, poly)
    with pytest.raises(TypeError, match="from_torch"):
        fvu(torch.nn.Linear(4, 3), poly)
    with pytest.raises(TypeError, match="different array libraries"):
        fvu(net, poly, torch.tensor(X))
