"""Polynomials with explicit matrices."""

from functools import partial

import numpy as np
import pytest
from support.backends import assert_close
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
