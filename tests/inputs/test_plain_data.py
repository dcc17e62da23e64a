"""Data (n, d) are accepted wherever inputs are, and mean the distribution of these samples."""

import numpy as np
import pandas as pd
import pytest
from support.backends import NUMPY64, make

import mlpoly as mp
from mlpoly.features.monomials import interaction_effects

D = 3
X = np.random.default_rng(0).gamma(2.0, size=(80, D))
FRAME = pd.DataFrame(X, columns=["age", "dose", "time"])


def network(backend=NUMPY64):
    rng = np.random.default_rng(1)
    return mp.MLP(*[make(rng.standard_normal(s), backend) for s in [(6, D), 6, (2, 6), 2]], activation="gelu")


ON_DATA = {
    "fit": lambda net, poly, x: mp.fit(net, x, 2)(X),
    "composed": lambda net, poly, x: mp.fit(net, x, 2, method="composed")(X),
    "fvu": lambda net, poly, x: mp.fvu(net, poly, x).per_output,
    "second_moment": lambda net, poly, x: mp.second_moment(net, x).raw,
    "degree_spectrum": lambda net, poly, x: mp.degree_spectrum(net, x, 2).overall,
    "similarity": lambda net, poly, x: mp.similarity(net, poly, x).distance,
    "terms": lambda net, poly, x: [term.effect for term in poly.terms(inputs=x).terms],
    "explain": lambda net, poly, x: [term.amount for term in mp.explain(poly, X[0], x).terms],
    "explain a network": lambda net, poly, x: [term.amount for term in mp.explain(net, X[0], x).terms],
    "eigenfeatures": lambda net, poly, x: mp.eigenfeatures(poly, 0, metric="whitened", inputs=x).values,
    "decompose": lambda net, poly, x: mp.decompose(poly, 1, x).explained,
    "interactions": lambda net, poly, x: interaction_effects(poly, inputs=x),
}


@pytest.mark.parametrize("name", ON_DATA)
def test_data_are_the_samples(name):
    net = network()
    poly = mp.fit(net, mp.Gaussian.from_samples(X), 2)
    expected = ON_DATA[name](net, poly, mp.Samples(X))
    for x in (X, FRAME, X.tolist()):
        # The columns of a frame are contiguous, its rows are not: sums are taken in another order.
        np.testing.assert_allclose(ON_DATA[name](net, poly, x), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "ask",
    [
        lambda net, x: mp.propagate(net, x),
        lambda net, x: mp.conditional(net, x, X[:1]),
        lambda net, x: mp.principal_forms(mp.fit(net, mp.Gaussian.standard(D), 2), inputs=x),
    ],
)
def test_what_needs_a_gaussian_says_how_to_make_one(ask):
    with pytest.raises(TypeError, match=r"must be a Gaussian.*got Samples; .*Gaussian.from_samples\(x\)"):
        ask(network(), X)


def test_arrays_of_every_library(backend):
    net, x = network(backend), make(X, backend)
    np.testing.assert_array_equal(np.asarray(mp.fit(net, x, 1)(x)), np.asarray(mp.fit(net, mp.Samples(x), 1)(x)))


def test_names_of_the_columns_come_along():
    poly = mp.fit(network(), FRAME, 1)
    assert poly.names == ("age", "dose", "time")
    with pytest.raises(ValueError, match="inputs have 'dose' at place 0, but that is input 1 of poly"):
        mp.fvu(network(), poly, FRAME[["dose", "age", "time"]])


@pytest.mark.parametrize(
    ("inputs", "error", "words"),
    [
        ("x", TypeError, r"inputs must be a Gaussian, .* or data \(n, d\), got str: .* N\(0, I\)"),
        (None, TypeError, "inputs must be a Gaussian, .*got NoneType"),
        (X > 1, TypeError, "inputs must be a Gaussian.* bool"),
        (X[0], ValueError, r"inputs has shape \(3,\), expected \(any, any\): data with n samples in rows"),
        (X[:, :2], ValueError, "inputs have dimension 2, but the network takes 3 inputs"),
        (np.where(X > 3, np.nan, X), ValueError, "x holds NaN or infinite entries in .* rows; drop these rows"),
        (FRAME.assign(time="noon"), TypeError, r"inputs has columns that are not numbers \(time\)"),
    ],
)
def test_mistakes_are_explained(inputs, error, words):
    with pytest.raises(error, match=words):
        mp.fit(network(), inputs, 1)
