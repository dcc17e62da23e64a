"""Polynomials with explicit matrices."""

from functools import partial

import numpy as np
import pytest
from support.backends import NUMPY32, TORCH32, TORCH64, assert_close, assert_same_kind, make
from support.inputs import mixture, points
from support.networks import network

import mlpoly as mp
from mlpoly.fitting.mixture.direct import fit_mixture_direct
from mlpoly.polynomials import to_dense

D, OUT = 4, 3
degrees = pytest.mark.parametrize("degree", [0, 1, 2])


def dense(degree=2, seed=0, build=np.asarray, d=D, o=OUT):
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((o, d, d))
    parts = [rng.standard_normal(d), rng.standard_normal(o), rng.standard_normal((o, d)), q + q.transpose(0, 2, 1)]
    return mp.polynomials.DensePolynomial(*(build(a) for a in parts[: degree + 2]))


make_net = partial(network, d=D, seed=1, scale=2.0, up=2.0)
X, MIX = points(D, 7), mixture(D, 2, seed=2)


# ---------------------------------------------------------------------------------------------------------------------
# Values, coefficients, derivatives
# ---------------------------------------------------------------------------------------------------------------------


@degrees
def test_values_are_the_formula(degree):
    p, x = dense(degree), X
    u = x - p.center
    want = np.broadcast_to(p.constant, (7, OUT)).copy()
    if degree >= 1:
        want += u @ p.linear.T
    if degree == 2:
        want += np.einsum("ni,oij,nj->no", u, p.quadratic, u)
    assert (p.degree, p.dim_in, p.dim_out) == (degree, D, OUT)
    assert_close(p(x), want, 1e-14)
    assert_close(p(x[0]), want[0], 1e-14)
    assert_close(p(x.reshape(7, 1, D)), want[:, None], 1e-14)
    assert p(x[:0]).shape == (0, OUT)
    assert repr(p) == f"DensePolynomial(degree={degree}, 4 -> 3, of unknown source)"


@degrees
def test_moving_the_centre_changes_nothing(degree):
    p, center = dense(degree), points(D, 1)[0]
    moved = to_dense(p, center)
    assert moved.center is center and moved.degree == degree
    assert_close(moved(X), p(X), 1e-13)
    assert to_dense(p, p.center) is p


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_other_forms_become_dense(kind, degree):
    n, center = make_net(kind), points(D, 1)[0]
    for poly in (mp.fit(n, mp.Gaussian.standard(D), degree), fit_mixture_direct(n, MIX, degree)):
        made = to_dense(poly, center)
        assert made.degree == degree
        assert_close(made(X), poly(X), 1e-12)
    with pytest.raises(ValueError, match=r"degree 3 .*truncate"):
        to_dense(mp.fit(n, mp.Gaussian.standard(D), 3), center)


# ---------------------------------------------------------------------------------------------------------------------
# Truncation and arithmetic
# ---------------------------------------------------------------------------------------------------------------------


def test_truncation_is_around_the_centre():
    p = mp.fit(make_net(), MIX, 2)
    for degree in (0, 1):
        cut = p.truncate(degree)
        assert cut.degree == degree and cut.report is None
        # a truncated optimum of a mixture is no optimum: it must not claim to be one
        assert cut.source.method == "" and cut.source.activation == "relu"
        assert_close(cut(p.center), p(p.center), 1e-15)
    assert_close(p.truncate(1).gradient(X), np.broadcast_to(p.gradient(p.center), (7, OUT, D)), 1e-15)
    assert p.truncate(2) is p and p.truncate(9) is p
    with pytest.raises(ValueError, match=r"^degree .*at least 0"):
        p.truncate(-1)


def test_arithmetic_with_other_forms():
    """A sum with a ridge or chaos polynomial of degree up to 2, from either side, is dense."""
    p, x, n = mp.fit(make_net(), MIX, 2), X, make_net(seed=9)
    for other in (mp.fit(n, mp.Gaussian.standard(D), 2), fit_mixture_direct(n, MIX, 2), mp.fit(n, MIX, 1)):
        assert_close((p + other)(x), p(x) + other(x), 1e-12)
        assert_close((p - other)(x), p(x) - other(x), 1e-12)
        assert_close((other + p)(x), p(x) + other(x), 1e-12)
        assert_close((other - p)(x), other(x) - p(x), 1e-12)
        assert type(p - other) is mp.polynomials.DensePolynomial
    assert (p - p).source.method == ""


def test_inputs_that_differ_are_named():
    with pytest.raises(ValueError, match=r"4 -> 3 and 5 -> 3.*same inputs and outputs"):
        dense() - dense(d=5)


# ---------------------------------------------------------------------------------------------------------------------
# Features
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["input", "whitened"])
def test_eigenfeatures_are_those_of_the_matrix(metric):
    p = mp.fit(make_net(), MIX, 2)
    form = p.quadratic[1]
    if metric == "whitened":
        values, vectors = np.linalg.eigh(MIX.covariance)
        root = (vectors * np.sqrt(values)) @ vectors.T
        form = root @ form @ root
    values, vectors = np.linalg.eigh(form)
    order = np.argsort(-np.abs(values))
    found = mp.eigenfeatures(p, output=1, k=D, metric=metric)
    assert_close(found.values, values[order], 1e-12)
    assert_close(np.abs(np.sum(found.vectors * vectors[:, order].T, axis=1)), np.ones(D), 1e-10)
    both = mp.eigenfeatures(p, output=np.array([1.0, 0.0, -1.0]), k=2)
    gap = np.linalg.eigvalsh(p.quadratic[0] - p.quadratic[2])
    assert_close(both.values, gap[np.argsort(-np.abs(gap))[:2]], 1e-12)


def test_singular_directions_are_those_of_the_matrix():
    p = mp.fit(make_net(), MIX, 1)
    found = mp.singular_directions(p)
    assert_close(found.values, np.linalg.svd(p.linear, compute_uv=False), 1e-13)
    assert_close(found.outputs.T @ np.diag(found.values) @ found.vectors, p.linear, 1e-13)


# ---------------------------------------------------------------------------------------------------------------------
# Array libraries
# ---------------------------------------------------------------------------------------------------------------------


@degrees
def test_every_library_gives_the_same_numbers(degree, backend):
    p, twin = dense(degree, build=lambda a: make(a, backend)), dense(degree)
    x = make(X, backend)
    for got, want in [
        (p(x), twin(X)),
        (p.gradient(x), twin.gradient(X)),
        (p.hessian(x[0]), twin.hessian(X[0])),
        (p.coefficients().constant, twin.coefficients().constant),
        (p.coefficients().linear, twin.coefficients().linear),
        ((2.0 * p - p.truncate(1))(x), (2.0 * twin - twin.truncate(1))(X)),
    ]:
        assert_same_kind(got, x)
        assert_close(got, want, backend.tolerance)


@pytest.mark.parametrize("narrow", [NUMPY32, TORCH32], ids=lambda b: b.name)
def test_points_of_higher_precision_are_taken(narrow):
    wide = TORCH64 if narrow is TORCH32 else None
    p = dense(build=lambda a: make(a, narrow))
    x = X if wide is None else make(X, wide)
    for got in (p(x), p.gradient(x)):
        assert "float64" in str(got.dtype)
    assert_close(p(x), dense()(X), 1e-5)
    assert_close(p.gradient(x), dense().gradient(X), 1e-5)
