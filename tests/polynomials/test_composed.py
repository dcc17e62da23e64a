"""Composed polynomials: their coefficients and derivatives, arithmetic on residual connections, and their files."""

import math

import numpy as np
import pytest
import torch
from support.backends import assert_close
from support.inputs import gaussian, points
from support.mistakes import assert_explained, mistakes
from support.networks import chain, network

import mlpoly as mp
from mlpoly.polynomials.symmetric import multisets, places
from mlpoly.records import replace
from mlpoly.units import Series

D, H, OUT = 3, 5, 2
X = points(D, 6, spread=1.0)


def ridge(d=D, o=H, degree=2, kind="MLP", seed=0):
    return mp.fit(network(kind, "tanh", d, 4, o, seed=seed), gaussian(d=d), degree)


def dense(d=H, o=OUT, seed=0):
    w = np.random.default_rng(seed).standard_normal
    bends = w((o, d, d))
    return mp.polynomials.DensePolynomial(w(d), w(o), w((o, d)), bends + bends.transpose(0, 2, 1))


def composed():
    """One of each kind of stage: ridge, gated with a residual connection around it, dense."""
    around = mp.polynomials.ComposedPolynomial((ridge(H, 4, kind="GLU"), ridge(4, H, 1)), skip=True)
    return mp.polynomials.ComposedPolynomial((ridge(), around, dense()))


def guarded():
    p = ridge()
    return mp.polynomials.ComposedPolynomial((p, dense()), (Series(p.series.plain * 0.9), None))


def test_stages_follow_one_another():
    p = composed()
    first, around, last = p.stages
    y = first(X)
    y = y + around.stages[1](around.stages[0](y))
    assert_close(p(X), last(y), 1e-14)
    assert p.degree == 2 * 2 * 2 and (p.dim_in, p.dim_out) == (D, OUT)
    assert repr(p) == "ComposedPolynomial(degree=8, 3 -> 2, 3 stages, of unknown source)"
    assert "2 stages, skip" in repr(around)


def test_the_degree_with_a_skip_is_at_least_one():
    constant = ridge(D, D, 0)
    assert mp.polynomials.ComposedPolynomial((constant,)).degree == 0
    p = mp.polynomials.ComposedPolynomial((constant,), skip=True)
    assert p.degree == 1
    assert_close(p(X), X + constant(X), 1e-15)
    assert_close(p.coefficients().linear, np.eye(D), 1e-15)


def test_guarded_series_are_those_that_are_evaluated():
    p = guarded()
    first, last = p.stages
    assert_close(p(X), last(replace(first, series=p.guarded[0])(X)), 1e-15)
    assert_close(p.coefficients().tensor(0), p(np.zeros(D)), 1e-15)
    assert np.abs(p(X) - last(first(X))).max() > 0.1
    assert "guarded" in repr(p)


def test_third_derivatives_are_those_of_autograd():
    p = composed().to(torch.zeros(1, dtype=torch.float64))

    def bends(x):
        return torch.autograd.functional.jacobian(lambda y: p.gradient(y), x, create_graph=True)

    third = torch.autograd.functional.jacobian(bends, torch.zeros(D, dtype=torch.float64))
    assert_close(6 * p.tensor(3), third, 1e-12)


@pytest.mark.parametrize("form", ["ridge", "gated", "bounded", "dense", "chaos", "composed"])
def test_second_derivatives_along_directions(form):
    """Each form's own route against the sum over its outputs."""
    mix = mp.GaussianMixture(np.full(2, 0.5), np.eye(2, D))
    p = {
        "ridge": lambda: ridge(),
        "gated": lambda: ridge(kind="GLU"),
        "bounded": lambda: ridge().bounded(1.0),
        "dense": lambda: dense(D, H),
        "chaos": lambda: mp.fit(network(d=D, o=H), mix, 3),
        "composed": composed,
    }[form]()
    along = np.random.default_rng(1).standard_normal((len(X), 4, p.dim_out))
    want = np.einsum("nao,noij->naij", along, p.hessian(X))
    assert_close(p.hessian_along(X, along), want, 1e-12)
    assert_close(p.hessian_along(X[0], along[0]), want[0], 1e-12)


def test_large_coefficients_are_refused_before_they_are_computed():
    p = mp.fit(chain(sizes=(40, 30, 20, 3)), mp.Gaussian.standard(40), 3, method=mp.methods.Composed(None))
    assert p.coefficients().quadratic.shape == (3, 40, 40)
    with pytest.raises(mp.TooLargeError, match="degree 6"):
        p.coefficients().tensor(6)


def test_bounds_reach_every_stage_and_come_off_again():
    net = mp.Chain([mp.Residual(network("MLP", "tanh", D, H, D)), network("GLU", "silu", D, H, OUT)])
    p = mp.fit(net, gaussian(d=D), 3, method=mp.methods.Composed(0.01))
    b = p.bounded(1.0)
    assert b.guarded is None and b.stages[0].guarded is None
    assert b.piecewise and not p.piecewise and "bounded" in repr(b)
    kinds = [type(s) for s in (*b.stages[0].stages, b.stages[1])]
    assert kinds == [mp.polynomials.BoundedPolynomial] * 2
    y = X + p.stages[0].stages[0].bounded(1.0)(X)
    assert_close(b(X), p.stages[1].bounded(1.0)(y), 1e-14)
    plain = replace(p, stages=(replace(p.stages[0], guarded=None), p.stages[1]), guarded=None)
    assert_close(b.polynomial(X), plain(X), 1e-14)
    assert_close(b.coefficients().quadratic, plain.coefficients().quadratic, 1e-13)
    assert_close(b.bounded(2.0)(X), p.bounded(2.0)(X), 1e-14)
    assert b.report.details == {**p.report.details, "guard": 0.0} and b.inputs is p.inputs


def test_linear_stages_have_no_need_of_bounds():
    p = 2 * mp.polynomials.ComposedPolynomial((ridge(D, D),), skip=True)  # an added stage doubles the sum
    y = X + p.stages[0].stages[0].bounded(1.5)(X)
    assert_close(p.bounded(1.5)(X), 2 * y, 1e-14)
    with pytest.raises(TypeError, match="no neurons"):
        composed().bounded(3.0)


def test_arithmetic_changes_the_guarded_series_too():
    """Neurons that are outputs are scaled themselves."""
    p = ridge()
    last = mp.fit(mp.MLP(np.eye(2, H), activation="tanh"), mp.Gaussian.standard(H), 2)
    q = mp.polynomials.ComposedPolynomial((p, last), (None, Series(last.series.plain * 0.5)))
    # The factor meets the coefficients instead of the sum over the units: a rounding for each unit and degree.
    rounding = 10 * H * 3 * np.finfo(float).eps
    assert_close((3 * q)(X), 3 * q(X), rounding)
    assert_close((q + 1)(X), q(X) + 1, rounding)
    assert_close((np.ones((1, 2)) @ q)(X), q(X).sum(1, keepdims=True), rounding)


def test_sums_have_a_form_up_to_degree_two_only():
    low = mp.polynomials.ComposedPolynomial((ridge(degree=1), dense()))
    for other in (dense(D, OUT), ridge(D, OUT)):
        for total in (low + other, other + low):
            assert type(total) is mp.polynomials.DensePolynomial
            assert_close(total(X), low(X) + other(X), 1e-12)
    for act in (lambda: composed() + dense(D, OUT), lambda: ridge(D, OUT) - composed(), lambda: low - low):
        with pytest.raises(TypeError, match=r"no common form.*add their values"):
            act()
    with pytest.raises(TypeError, match=r"no common form.*without the bounds"):
        mp.polynomials.ComposedPolynomial((ridge(D, OUT).bounded(1.0),)) + dense(D, OUT)


COMPOSE = mp.polynomials.ComposedPolynomial


@mistakes(
    [
        ("empty", lambda: COMPOSE(()), TypeError, "stages must be", "at least one"),
        ("alone", lambda: COMPOSE(ridge()), TypeError, "stages must be a list"),
        ("other kind", lambda: COMPOSE((ridge(), 3)), TypeError, r"stages\[1\] must be a ridge", "int"),
        ("sizes", lambda: COMPOSE((ridge(), ridge())), ValueError, r"stages\[0\] has 5 outputs.*takes 3"),
        ("library", lambda: COMPOSE((ridge(), dense().to(torch.zeros(1)))), TypeError, "stages_1 is torch"),
        ("dtype", lambda: COMPOSE((ridge(), dense().to(np.zeros(1, np.float32)))), TypeError,
         r"stages\[0\] is float64, and the next one float32", r"\.to\(array"),
        ("skip", lambda: COMPOSE((ridge(),), skip=True), ValueError, "map 3 -> 5", "as many outputs"),
        ("guards", lambda: COMPOSE((ridge(),), (None, None)), ValueError, "guarded has 2", "expected 1"),
        ("guard of another degree", lambda: COMPOSE((ridge(),), (ridge(degree=3).series,)), ValueError,
         r"guarded\[0\] must be None"),
        ("cut", lambda: composed().truncate(3), TypeError, "degree 8 cannot be truncated", r"mlpoly\.fit\("),
        ("bound", lambda: guarded().bounded(-1.0), ValueError, "bound must be positive|bound must be a positive"),
    ]
)  # fmt: skip
def test_mistakes_are_explained(act, exception, patterns):
    assert_explained(act, exception, patterns)


def test_power_series_are_the_polynomial(rng):
    """The entries of all degrees, times how often they occur, add up to the values."""
    p = composed()
    x = rng.standard_normal((5, p.dim_in))
    total = 0.0
    for k, part in enumerate(p.power_series(p.degree)):
        rows = multisets(p.dim_in, k)
        np.testing.assert_array_equal(places(rows), np.arange(len(rows)))
        counts = [math.factorial(k) / math.prod(map(math.factorial, np.bincount(row))) for row in rows]
        assert sum(counts) == p.dim_in**k
        total = total + np.prod(x[:, rows], axis=-1) @ (part * counts).T
    assert_close(total, p(x), 1e-10)  # high powers of x amplify the rounding of the coefficients
