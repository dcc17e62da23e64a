"""Eigenfeatures, singular directions and ablation against dense linear algebra."""

from functools import partial

import numpy as np
import pytest
from support.backends import assert_close, assert_same_kind, in_library, make
from support.inputs import covariance
from support.mistakes import assert_explained, mistakes
from support.networks import network

import mlpoly as mp
from mlpoly.charts.responses import response_chart
from mlpoly.features import eigen
from mlpoly.features.monomials import interaction_effects

D, H, OUT = 40, 30, 3


make_net = partial(network, activation="gelu", d=D, h=H, o=OUT)


def top_of(matrix, k):
    values, vectors = np.linalg.eigh(matrix)
    order = np.argsort(-np.abs(values))[:k]
    return values[order], vectors[:, order].T


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@pytest.mark.parametrize("route", ["dense", "products"])
def test_eigenfeatures_equal_those_of_the_coefficients(rng, kind, route, monkeypatch):
    monkeypatch.setattr(eigen, "_DENSE", 1024 if route == "dense" else 8)
    poly = mp.fit(make_net(kind, seed=rng), mp.Gaussian(rng.normal(size=D), covariance(rng, D)), 2)
    found = mp.eigenfeatures(poly, output=1, k=5)
    values, vectors = top_of(poly.coefficients().quadratic[1], 5)
    assert_close(found.values, values, 1e-12)
    # Eigenvectors are determined up to sign, to the residual over the gap between eigenvalues.
    assert_close(np.abs(np.sum(found.vectors * vectors, axis=1)), np.ones(5), 1e-10)
    assert_close(found.vectors @ found.vectors.T, np.eye(5), 1e-12)
    assert (found.vectors[np.arange(5), np.abs(found.vectors).argmax(axis=1)] > 0).all()
    assert found.residual <= 5e-12  # some thousand roundings: it is not divided by a gap


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@pytest.mark.parametrize("route", ["dense", "products"])
def test_whitened_metric_is_that_of_the_inputs(rng, kind, route, monkeypatch):
    monkeypatch.setattr(eigen, "_DENSE", 1024 if route == "dense" else 8)
    S = covariance(rng, D)
    inputs = mp.Gaussian(rng.normal(size=D), S)
    poly = mp.fit(make_net(kind, seed=rng), inputs, 2)
    found = mp.eigenfeatures(poly, output=0, k=4, metric="whitened")
    lam, U = np.linalg.eigh(S)
    root = (U * np.sqrt(lam)) @ U.T
    values, _ = top_of(root @ poly.coefficients().quadratic[0] @ root, 4)
    assert_close(found.values, values, 1e-11)
    assert_close(found.directions, found.vectors @ root, 1e-11)
    # Each pair on its own: root Q root v = value v.
    image = found.vectors @ (root @ poly.coefficients().quadratic[0] @ root)
    assert_close(image, found.values[:, None] * found.vectors, 1e-10)


def test_direction_is_a_combination_of_outputs(rng):
    poly = mp.fit(make_net("MLP", seed=rng), mp.Gaussian.standard(D), 2)
    u = np.array([1.0, -1.0, 0.0])
    values, _ = top_of(np.tensordot(u, poly.coefficients().quadratic, 1), 3)
    assert_close(mp.eigenfeatures(poly, output=u, k=3).values, values)
    unit = mp.eigenfeatures(poly, output=np.array([0.0, 0.0, 1.0]), k=3)
    assert_close(unit.values, mp.eigenfeatures(poly, output=2, k=3).values)
    assert_close(unit.values, mp.eigenfeatures(poly, output=-1, k=3).values)


def test_low_rank_form_by_products(rng, monkeypatch):
    """Fewer neurons than asked for: the remaining eigenvalues are zero, and the solver does not stumble."""
    monkeypatch.setattr(eigen, "_DENSE", 8)
    net = mp.MLP(rng.normal(size=(2, D)), None, np.ones((1, 2)), None, "square")
    found = mp.eigenfeatures(mp.fit(net, mp.Gaussian.standard(D), 2), output=0, k=5)
    assert_close(found.values, top_of(net.W1.T @ net.W1, 5)[0], 1e-12)


def test_every_backend(rng, backend):
    given, inputs = make_net("GLU", seed=1), mp.Gaussian(np.zeros(D), covariance(rng, D))
    net = in_library(given, backend)
    poly, exact = mp.fit(net, in_library(inputs, backend), 2), mp.fit(given, inputs, 2)
    for metric in ("input", "whitened"):
        found = mp.eigenfeatures(poly, output=0, k=3, metric=metric)
        assert_same_kind(found.values, net.W_gate)
        assert_same_kind(found.vectors, net.W_gate)
        # float32: the covariance and the weights are rounded, and the root amplifies that by its condition
        assert_close(
            found.values, mp.eigenfeatures(exact, output=0, k=3, metric=metric).values, 100 * backend.tolerance
        )
    singular = mp.singular_directions(poly)
    assert_same_kind(singular.vectors, net.W_gate)
    assert_same_kind(mp.ablate(make(rng.normal(size=(5, D)), backend), singular.vectors[:2, :]), net.W_gate)


def test_singular_directions_are_the_svd_of_the_linear_part(rng):
    poly = mp.fit(make_net("MLP", seed=rng), mp.Gaussian(rng.normal(size=D), covariance(rng, D)), 1)
    found = mp.singular_directions(poly)
    linear = poly.coefficients().linear
    assert_close(found.values, np.linalg.svd(linear, compute_uv=False))
    assert_close((found.outputs.T * found.values) @ found.vectors, linear)
    assert_close(found.vectors @ found.vectors.T, np.eye(OUT))


def test_ablation_removes_the_span_and_nothing_else(rng):
    x, directions = rng.normal(size=(7, D)), rng.normal(size=(3, D))
    left = mp.ablate(x, directions)
    assert_close(left @ directions.T, np.zeros((7, 3)), 1e-12)
    assert_close(mp.ablate(left, directions), left)
    # What was removed lies in the span.
    coefficients, *_ = np.linalg.lstsq(directions.T, (x - left).T, rcond=None)
    assert_close(directions.T @ coefficients, (x - left).T)
    repeated = np.concatenate([directions, directions[:1]])
    assert_close(mp.ablate(x, repeated), left)
    assert_close(mp.ablate(x, directions[:0]), x)


POLY = mp.fit(make_net("MLP"), mp.Gaussian.standard(D), 2)
ERRORS = [
    ("output out of range", lambda: mp.eigenfeatures(POLY, output=OUT), ValueError, "output is 3, but .* 3 outputs"),
    ("no such output", lambda: mp.eigenfeatures(POLY, output="a"), ValueError, "no output .a.; .* use an index"),
    ("direction length", lambda: mp.eigenfeatures(POLY, output=np.ones(2)), ValueError, "output has shape"),
    ("direction NaN", lambda: mp.eigenfeatures(POLY, output=np.full(OUT, np.nan)), ValueError, "output holds"),
    ("k zero", lambda: mp.eigenfeatures(POLY, output=0, k=0), ValueError, "k must be at least 1"),
    ("metric", lambda: mp.eigenfeatures(POLY, output=0, metric="x"), ValueError, "metric must be one of"),
    ("linear", lambda: mp.eigenfeatures(POLY.truncate(1), output=0), ValueError, "no quadratic part.*degree=2"),
    ("not a polynomial", lambda: mp.eigenfeatures(np.eye(3), output=0), TypeError, "poly must be"),
    ("other inputs", lambda: mp.eigenfeatures(POLY, output=0, metric="whitened", inputs=mp.Gaussian.standard(3)),
     ValueError, "inputs have dimension 3"),
    ("constant", lambda: mp.singular_directions(POLY.truncate(0)), ValueError, "no linear part.*degree=1"),
    ("SVD of no polynomial", lambda: mp.singular_directions(3), TypeError, "poly must be"),
    ("ablate width", lambda: mp.ablate(np.ones((2, 3)), np.ones((1, 4))), ValueError, "directions has shape"),
]  # fmt: skip


@mistakes(ERRORS)
def test_mistakes_are_explained(act, exception, patterns):
    assert_explained(act, exception, patterns)


def test_whitened_needs_the_inputs_which_a_file_has(tmp_path):
    POLY.save(tmp_path / "p.safetensors")
    loaded = mp.load(tmp_path / "p.safetensors")
    known = mp.eigenfeatures(loaded, output=0, metric="whitened")
    assert_close(known.values, mp.eigenfeatures(POLY, output=0, metric="whitened").values)
    loaded = mp.records.replace(loaded, inputs=None)
    with pytest.raises(ValueError, match="inputs are needed, because"):
        mp.eigenfeatures(loaded, output=0, metric="whitened")
    given = mp.eigenfeatures(loaded, output=0, metric="whitened", inputs=mp.Gaussian.standard(D))
    assert_close(given.values, mp.eigenfeatures(POLY, output=0).values)


def test_all_eigenpairs_where_there_are_fewer_than_asked_for(rng):
    for d in (1, 3, 5, 8):
        poly = mp.fit(mp.MLP(rng.normal(size=(6, d)), None, rng.normal(size=(2, 6))), mp.Gaussian.standard(d), 2)
        found = mp.eigenfeatures(poly, output=1)
        assert_close(found.values, top_of(poly.coefficients().quadratic[1], min(5, d))[0], 1e-12)
        for metric in ("input", "whitened"):
            all_of_them = mp.eigenfeatures(poly, output=1, k=d + 7, metric=metric)
            assert_close(all_of_them.values, top_of(poly.coefficients().quadratic[1], d)[0], 1e-12)
            assert all_of_them.vectors.shape == all_of_them.directions.shape == (d, d)


@pytest.mark.parametrize(
    "ask",
    [
        lambda p, inputs: mp.eigenfeatures(p, 0, inputs=inputs, metric="whitened"),
        lambda p, inputs: mp.decompose(p, 1, inputs),
        lambda p, inputs: mp.principal_forms(p, inputs=inputs),
        lambda p, inputs: p.terms(inputs=inputs),
        lambda p, inputs: mp.explain(p, np.zeros(D), inputs),
        lambda p, inputs: interaction_effects(p, inputs=inputs),
        lambda p, inputs: response_chart(None, p, inputs),
    ],
)
def test_inputs_that_are_missing_or_wrong_are_explained(ask):
    """By every function that falls back on the inputs of the fit."""
    with pytest.raises(TypeError, match=r"inputs must be a Gaussian, .* or data \(n, d\), got str: "):
        ask(POLY, "data")
    with pytest.raises(ValueError, match=f"inputs have dimension 9, but the polynomial takes {D} inputs"):
        ask(POLY, mp.Gaussian.standard(9))
    with pytest.raises(ValueError, match=r"inputs are needed, because .* pass inputs=Gaussian"):
        ask(mp.records.replace(POLY, inputs=None), None)
