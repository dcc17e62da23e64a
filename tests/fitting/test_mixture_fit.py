"""Least squares under Gaussian mixtures: identities, an independent oracle, optimality, and the iterative solver."""

import itertools
import math
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from support.backends import NUMPY32, NUMPY64, TORCH64, assert_close, in_library, to_numpy
from support.inputs import grid, mixture, monomials, on_support, points
from support.mistakes import assert_explained, mistakes
from support.networks import network

import mlpoly as mp
from mlpoly.fitting.mixture import quadratic as solver
from mlpoly.fitting.mixture.direct import fit_mixture_direct

KINDS = ("MLP", "GLU")
kinds = pytest.mark.parametrize("kind", KINDS)


make_net = partial(network, o=2, bias=0.5)


def embedded(mix, d, seed=2):
    """The same mixture on an affine subspace of d dimensions: its total covariance is singular."""
    rng = np.random.default_rng(seed)
    a, offset = rng.standard_normal((d, mix.dim)) / math.sqrt(mix.dim), rng.standard_normal(d)
    return mp.GaussianMixture(mix.weights, mix.means @ a.T + offset, a @ mix.covs @ a.T), a


def exactly(net, inputs, degree, method="exact", start=None):
    """The fit with the solver run until rounding ends all progress."""
    exact = mp.methods.Exact(tolerance=0, max_iterations=2000, start=start)
    return mp.fit(net, inputs, degree, method=exact if method == "exact" else method)


def misfits(report):
    """Misfit after each iteration."""
    return [value for _, value in report.history]


@pytest.fixture
def iterative(monkeypatch):
    """Small problems are solved iteratively as well, as large ones are."""
    monkeypatch.setattr(solver, "_DIRECT", 0)


SINGULAR = {  # dimension, components, rank of each, and inputs of which the mixture is on a subspace
    "regular": (8, 4, None, 8),
    "large": (24, 4, None, 24),
    "singular components": (24, 3, 9, 24),
    "components of rank one": (10, 6, 1, 10),
    "two singular components": (24, 2, 9, 24),
    "points": (6, 4, 0, 6),
    "confined": (6, 3, None, 18),
    "confined and singular": (6, 3, 2, 18),
}


@pytest.mark.parametrize("case", SINGULAR)
@kinds
def test_matrix_free_equals_direct(kind, case, iterative):
    """On the support of singular components: beside it the polynomial is not determined."""
    d, c, rank, inputs = SINGULAR[case]
    net = make_net(kind, "relu", inputs, h=20, o=3)
    mix = mixture(d, c, rank=rank) if d == inputs else embedded(mixture(d, c, rank=rank), inputs)[0]
    free, dense = exactly(net, mix, 2), fit_mixture_direct(net, mix, 2)
    assert free.report.details["kept"] == dense.report.details["kept"]
    if d < inputs:
        assert (free.report.details["kept"], free.report.details["dropped"]) == (d, inputs - d)
    if rank is None:
        for k in range(3):
            assert_close(free.coefficients().tensor(k), dense.coefficients().tensor(k), 1e-9)
    x = on_support(mix, d if rank is None else rank)
    assert_close(free(x), dense(x), 1e-9)
    size = np.max(np.mean(net(mix.sample(1000)) ** 2, axis=0))
    assert abs(free.report.misfit - dense.report.misfit) <= 1e-11 * size
    # Components of rank one leave curvatures that differ by some thousand; those on a subspace, twice as many.
    assert free.report.gradient <= (5e-12 if d == inputs else 2e-11)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("rank", [None, 1])
@kinds
def test_closed_form_equals_direct(kind, rank, degree):
    net, mix = make_net(kind, "relu", 6), mixture(6, rank=rank)
    poly, dense = mp.fit(net, mix, degree), fit_mixture_direct(net, mix, degree)
    assert poly.degree == degree and poly.report.summary == "closed form"
    assert_close(poly(points(6)), dense(points(6)), 1e-12)
    size = np.max(np.mean(net(mix.sample(1000)) ** 2, axis=0))
    assert abs(poly.report.misfit - dense.report.misfit) <= 1e-12 * size


def in_units(net, mix, units, offset):
    """The same network of the same inputs, measured in other units from another origin."""
    if isinstance(net, mp.MLP):
        net = replace(net, W1=net.W1 / units, b1=net.b1 - net.W1 @ (offset / units))
    else:
        W, V = net.W_gate / units, net.W_up / units
        net = replace(net, W_gate=W, b_gate=net.b_gate - W @ offset, W_up=V, b_up=net.b_up - V @ offset)
    return net, mp.GaussianMixture(mix.weights, mix.means * units + offset, mix.covs * np.outer(units, units))


@pytest.mark.parametrize("method", ["exact", "neuronwise", "iterative"])
@pytest.mark.parametrize("degree", [1, 2, 3])
@kinds
def test_units_of_the_inputs_do_not_matter(kind, degree, method, monkeypatch):
    """Inputs in units that differ by sixteen orders of magnitude: the same polynomial to nearly all digits."""
    if method == "iterative":
        monkeypatch.setattr(solver, "_DIRECT", 0)
        method = "exact"
    net, mix = make_net(kind, "relu", 3), mixture(3)
    units = np.array([1e8, 1.0, 1e-8])
    x = points(3)
    there = exactly(*in_units(net, mix, units, 0 * units), degree, method=method)
    assert_close(there(x * units), exactly(net, mix, degree, method=method)(x), 1e-11)
    # An origin a thousand times further away than the inputs vary costs those digits.
    there = exactly(*in_units(net, mix, units, 1e3 * units), degree, method=method)
    assert_close(there((x + 1e3) * units), exactly(net, mix, degree, method=method)(x), 1e-8)


@pytest.mark.parametrize("method", ["exact", "neuronwise"])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_units_of_the_inputs_do_not_matter_in_single_precision(degree, method):
    net, mix = make_net("MLP", "tanh", 3), mixture(3)
    units, x = np.array([1e8, 1.0, 1e-8]), points(3)
    changed, moved = in_units(net, mix, units, 0 * units)
    single = replace(changed, **{name: getattr(changed, name).astype("float32") for name in ("W1", "b1", "W2", "b2")})
    inputs = mp.GaussianMixture(*(a.astype("float32") for a in (moved.weights, moved.means, moved.covs)))
    poly = mp.fit(single, inputs, degree, method=method)
    assert poly.report is None or (poly.report.details["kept"], poly.report.details["dropped"]) == (3, 0)
    # Moments and weights are known to 6e-8; a few hundred roundings, as everywhere in single precision.
    assert_close(poly((x * units).astype("float32")), exactly(net, mix, degree, method)(x), 3e-5)


@pytest.mark.parametrize("degree", range(1, 4))
@kinds
def test_minimum_norm(kind, degree):
    """Nothing along the directions in which the mixture never varies, at any point, in units of standard deviations."""
    mix, a = embedded(mixture(3), 7)
    poly = exactly(make_net(kind, "relu", 7), mix, degree)
    stds = np.sqrt(np.diagonal(mix.covariance))
    still = np.linalg.svd(a / stds[:, None])[0][:, 3:]
    slopes = poly.gradient(points(7)) * stds
    assert np.abs(slopes @ still).max() <= 1e-12 * np.abs(slopes).max()
    assert (poly.report.details["kept"], poly.report.details["dropped"]) == (3, 4)


@pytest.mark.parametrize("degree", range(1, 5))
def test_points_are_interpolated(degree):
    """Components without variance: two points can be met by any degree, a class of one sample breaks nothing."""
    net, mix = make_net("MLP", "relu", 4), mixture(4, c=2, rank=0)
    assert_close(exactly(net, mix, degree)(mix.means), net(mix.means), 1e-13)
    one = mp.GaussianMixture(mix.weights, mix.means, np.stack([np.zeros((4, 4)), np.eye(4)]))
    assert np.isfinite(exactly(net, one, degree)(points(4))).all()


NODES = {2: 40, 3: 24}  # per axis, by dimension
SMOOTH = {"MLP": ("tanh", 0.3), "GLU": ("silu", 0.4)}  # activation, and the scale of weights that these nodes resolve


@cache
def smooth_case(kind, d):
    activation, scale = SMOOTH[kind]
    return make_net(kind, activation, d, scale=scale), mixture(d)


def loss(net, poly, mix):
    x, w = grid(mix, NODES)
    return w @ (net(x) - poly(x)) ** 2


@pytest.mark.parametrize("degree", range(1, 6))
@pytest.mark.parametrize("d", [2, 3])
@kinds
def test_equals_least_squares_on_the_union_of_grids(kind, d, degree):
    net, mix = smooth_case(kind, d)
    x, w = grid(mix, NODES)
    root = np.sqrt(w)[:, None]
    coefficients = np.linalg.lstsq(root * monomials(x, degree), root * net(x), rcond=None)[0]
    at = points(d)
    # 1e-8: quadrature of tanh and silu with these nodes, amplified by the condition number of the monomials
    assert_close(exactly(net, mix, degree)(at), monomials(at, degree) @ coefficients, 1e-8)


@pytest.mark.parametrize("degree", range(5))
@kinds
def test_the_misfit_is_what_the_components_optima_do_not_explain(kind, degree):
    """E|f - g|^2 = sum_c pi_c E_c|f - g_c|^2 + misfit (MATH 5)."""
    net, mix = smooth_case(kind, 2)
    poly = exactly(net, mix, degree)
    unreachable = 0.0
    for share, g in zip(mix.weights, mix.components, strict=True):
        x, weights = grid(g, NODES)
        unreachable += share * np.sum(weights @ (net(x) - mp.fit(net, g, degree)(x)) ** 2)
    total = np.sum(loss(net, poly, mix))
    assert abs(total - unreachable - poly.report.misfit) <= 1e-9 * total


@cache
def hard_case(o=4):
    """30 inputs, 6 components: some twenty iterations at the default tolerance."""
    return make_net("MLP", "relu", 30, h=40, o=o), mixture(30, c=6)


@cache
def converged():
    return exactly(*hard_case(), 2)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-4, 1e-6])
def test_the_tolerance_is_kept(tolerance):
    """Twice the tolerance: what is left is extrapolated, not known."""
    report = mp.fit(*hard_case(), 2, method=mp.methods.Exact(tolerance=tolerance)).report
    assert report.converged and report.details["gain_left"] <= tolerance
    assert 1 - 1e-9 <= report.misfit / converged().report.misfit <= 1 + 2 * tolerance


def test_the_report():
    report = mp.fit(*hard_case(), 2).report
    assert 5 < report.iterations < 100 and len(report.history) == report.iterations
    assert (report.details["kept"], report.details["dropped"]) == (30, 0)
    assert all(b < a for a, b in itertools.pairwise(misfits(report)))
    assert_close(misfits(report)[-1], report.misfit, 1e-9)
    assert converged().report.gradient <= 1e-12 < report.gradient < 1e-2
    for word in ("conjugate gradients converged after", "iterations", "gradient", "kept", "dropped"):
        assert word in str(report)


@pytest.mark.parametrize("degree", [0, 1])
@kinds
def test_the_certificate_of_degree_one_is_computed(kind, degree):
    """Against E[(f - p) m] on a grid, for an answer that is rounded to float32, and rounding for one that is not.

    The components' optima are rounded too, which the certificate does not see: hence a factor of ten.
    """
    net, mix = smooth_case(kind, 2)
    assert mp.fit(net, mix, degree).report.gradient <= 1e-13
    single = in_library(net, NUMPY32)
    net, poly = in_library(single, NUMPY64), mp.fit(single, mix, degree)
    x, w = grid(mix, NODES)
    z = (x - mix.mean) @ np.linalg.inv(np.linalg.cholesky(mix.covariance)).T
    m = np.concatenate([np.ones((len(x), 1)), z[:, : 2 * degree]], axis=1) * w[:, None]
    gradient = np.linalg.norm(m.T @ (net(x) - in_library(poly, NUMPY64)(x))) / np.linalg.norm(m.T @ net(x))
    assert gradient / 10 < poly.report.gradient < 10 * gradient < 1e-5


def test_warm_starts():
    """From the answer nothing is left to do; from that of a nearby network less than from zero."""
    net, mix = hard_case()
    cold = mp.fit(net, mix, 2, method=mp.methods.Exact(tolerance=1e-6)).report.iterations
    best = converged()
    again = mp.fit(net, mix, 2, method=mp.methods.Exact(start=best))
    assert again.report.iterations <= 1 and again.report.converged
    assert_close(again(points(30)), best(points(30)), 1e-10)
    nearby = replace(net, W1=net.W1 * (1 + 1e-3))
    warm = mp.fit(nearby, mix, 2, method=mp.methods.Exact(start=best, tolerance=1e-6))
    assert warm.report.iterations < cold and cold > 6
    assert_close(exactly(nearby, mix, 2, start=best)(points(30)), exactly(nearby, mix, 2)(points(30)), 1e-9)


@pytest.mark.parametrize("degree", range(3))
def test_any_polynomial_may_be_the_start(degree, iterative):
    net, mix = make_net("GLU", "silu", 5), mixture(5)
    starts = [
        mp.fit(net, mp.Gaussian.standard(5), degree),
        mp.fit(net, mix, degree),
        fit_mixture_direct(net, mix, degree),
    ]
    for start in starts:
        assert_close(exactly(net, mix, 2, start=start)(points(5)), exactly(net, mix, 2)(points(5)), 1e-11)


def watched(monkeypatch, update):
    """Updates of the progress bar go to a function of the number of iterations and a note; returns the titles."""
    titles = []

    @contextmanager
    def bar(title, total):
        titles.append((title, total))
        yield update

    monkeypatch.setattr(solver, "progress_bar", bar)
    return titles


def test_an_interrupt_keeps_the_iterate(monkeypatch):
    def impatient(done, note):
        if done == 4:
            raise KeyboardInterrupt

    watched(monkeypatch, impatient)
    with pytest.warns(UserWarning, match="interrupted"):
        poly = mp.fit(*hard_case(), 2)
    assert poly.report.iterations == 4 and not poly.report.converged
    monkeypatch.undo()
    same = mp.fit(*hard_case(), 2, method=mp.methods.Exact(max_iterations=4))
    assert_close(poly(points(30)), same(points(30)), 1e-13)


def test_a_network_of_zeros():
    net, mix = hard_case()
    silent = replace(net, W2=0 * net.W2, b2=0 * net.b2)
    poly = mp.fit(silent, mix, 2)
    assert not poly(points(30)).any()
    assert poly.report.converged and poly.report.misfit == 0 and poly.report.details["gain_left"] == 0
    again = mp.fit(silent, mix, 2, method=mp.methods.Exact(start=converged()))
    assert np.abs(again(points(30))).max() < 1e-6 * np.abs(net(points(30))).max()


def test_repeated_and_missing_outputs():
    """Rank-deficient blocks: copies, multiples, sums and zeros of outputs change nothing for the others."""
    net, mix = hard_case(o=2)
    a, b = net.W2
    rows = np.stack([a, b, a, -3 * a, a + b, 0 * a])
    biases = rows @ np.linalg.lstsq(net.W2, net.b2, rcond=None)[0]  # consistent with the rows
    wide = replace(net, W2=rows, b2=biases)
    poly, alone = exactly(wide, mix, 2), exactly(net, mix, 2)
    x = points(30)
    assert_close(poly(x)[:, :2], alone(x), 1e-9)
    assert_close(poly(x)[:, 2:], np.stack([alone(x) @ v for v in ((1, 0), (-3, 0), (1, 1), (0, 0))], axis=1), 1e-9)
    assert poly.report.converged


def test_outputs_of_very_different_size():
    net, mix = hard_case()
    sizes = np.array([1e-6, 1.0, 1e3, 1e6])
    poly = exactly(replace(net, W2=net.W2 * sizes[:, None], b2=net.b2 * sizes), mix, 2)
    assert_close(poly(points(30)) / sizes, converged()(points(30)), 1e-6)


@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_a_large_offset_costs_only_its_digits(offset):
    net, mix = hard_case()
    poly = mp.fit(replace(net, b2=net.b2 + offset), mix, 2, method=mp.methods.Exact(tolerance=1e-6))
    assert_close(
        poly(points(30)) - offset, mp.fit(net, mix, 2, method=mp.methods.Exact(tolerance=1e-6))(points(30)), 1e-2
    )
    assert poly.report.misfit <= 1.001 * converged().report.misfit + 1e-13 * offset**2


def test_many_outputs_are_solved_in_blocks(iterative):
    """40 outputs are two blocks: their history is the sum of those of fits of the two, the shorter held."""
    mix, net = mixture(8, c=3), make_net("MLP", "relu", 8, h=12, o=40)
    net = mp.MLP(net.W1, net.b1, net.W2 * np.repeat([1.0, 1e-3], [32, 8])[:, None], net.b2, "relu")
    poly, best = exactly(net, mix, 2), fit_mixture_direct(net, mix, 2)
    assert_close(poly(points(8)), best(points(8)), 1e-10)
    start = exactly(net, mix, 2, start=mp.fit(net, mp.Gaussian.standard(8), 2))
    assert_close(start(points(8)), best(points(8)), 1e-10)
    whole = poly.report
    assert_close(whole.misfit, best.report.misfit, 1e-10)
    parts = [mp.MLP(net.W1, net.b1, net.W2[rows], net.b2[rows], "relu") for rows in (slice(32), slice(32, 40))]
    one, two = (misfits(exactly(part, mix, 2).report) for part in parts)
    assert len(whole.history) == whole.iterations == max(len(one), len(two)) != min(len(one), len(two))
    shorter, longer = sorted((one, two), key=len)
    sums = [a + b for a, b in itertools.zip_longest(longer, shorter, fillvalue=shorter[-1])]
    assert_close(np.array(misfits(whole)), np.array(sums), 1e-9)
    assert whole.plot() is not None


@pytest.mark.parametrize("distance", [1e2, 1e3, 1e4])
@kinds
def test_components_far_apart(kind, distance, iterative):
    """What varies inside components shows only in the last digits of the Gram operator; iterations must get there."""
    net, mix = make_net(kind, "gelu", 8, h=12), mixture(8, c=2)
    mix = mp.GaussianMixture(mix.weights, mix.means + distance * np.array([[0.0], [1.0]]) / 8**0.5, mix.covs)
    poly, best = mp.fit(net, mix, 2), fit_mixture_direct(net, mix, 2)
    # Of the misfit of the linear polynomial at most this is left.
    assert poly.report.misfit - best.report.misfit <= 1e-5 * mp.fit(net, mix, 1).report.misfit
    assert poly.report.converged


def test_components_out_of_sight_of_one_another_are_named(iterative):
    net, mix = make_net("MLP", "gelu", 8), mixture(8, c=2)
    far = mp.GaussianMixture(mix.weights, mix.means + 1e6 * np.array([[0.0], [1.0]]), mix.covs)
    with pytest.warns(UserWarning, match="neuronwise"):
        assert not mp.fit(net, far, 2).report.converged


def test_a_start_far_away_is_left_alone():
    net, mix = hard_case()
    eyes = np.stack([np.eye(30)] * 4)
    far = mp.polynomials.DensePolynomial(np.full(30, 1e6), np.zeros(4), np.zeros((4, 30)), eyes)
    poly, cold = mp.fit(net, mix, 2, method=mp.methods.Exact(start=far)), mp.fit(net, mix, 2)
    assert poly.report.converged
    assert_close(poly(points(30)), cold(points(30)), 1e-12)


@pytest.mark.parametrize("activation", ["relu", "square"])
def test_iterating_past_convergence_is_harmless(activation):
    """Singular components: once nothing is left but rounding errors, the solver must notice, not amplify them."""
    net, mix = make_net("MLP", activation, 48, h=30, o=4), mixture(48, c=3, rank=18)
    poly = exactly(net, mix, 2)
    assert poly.report.converged and poly.report.iterations < 500
    assert poly.report.gradient <= 1e-11
    assert abs(poly.report.misfit) <= 1e-9


@pytest.mark.parametrize(("activation", "rank"), [("relu", None), ("square", None), ("relu", 30)])
def test_large_products_in_single_precision_are_not_seen(activation, rank):
    """From 64 inputs the default tolerance lets large products run in float32; where that is too coarse they do not."""
    net, mix = make_net("MLP", activation, 72, h=50, o=4), mixture(72, c=3, rank=rank)
    quick, best = mp.fit(net, mix, 2), exactly(net, mix, 2)
    assert quick.report.converged
    size = np.sum(np.mean(net(mix.sample(1000)) ** 2, axis=0))
    assert abs(quick.report.misfit - best.report.misfit) <= 5e-3 * best.report.misfit + 1e-11 * size
    assert len(quick.report.history) == quick.report.iterations


def test_weights_that_require_gradients():
    """A torch network in training can be fitted; the answer of the solver carries no gradient it does not have."""
    net, mix = in_library(make_net("MLP", "relu", 4), TORCH64), in_library(mixture(4), TORCH64)
    learning = replace(net, W1=net.W1.clone().requires_grad_())
    x = torch.tensor(points(4))
    for degree in range(4):
        assert_close(to_numpy(mp.fit(learning, mix, degree)(x)), mp.fit(net, mix, degree)(x), 1e-12)
    assert not mp.fit(learning, mix, 2)(x).requires_grad


NET, MIX = make_net("MLP", "relu", 3), mixture(3)

TABLE = [
    ("negative degree", lambda: mp.fit(NET, MIX, -1), ValueError, "^degree ", "at least 0"),
    ("unknown method", lambda: mp.fit(NET, MIX, 2, method="sgd"), ValueError, "^method .*'sgd'", "'neuronwise'"),
    ("another dimension", lambda: mp.fit(NET, mixture(4)), ValueError, "^inputs .*dimension 4", "takes 3"),
    ("torch network, NumPy mixture", lambda: mp.fit(mp.MLP(torch.eye(3)), MIX), TypeError,
     "net is torch, inputs is numpy", "convert"),
    ("too many monomials", lambda: mp.fit(make_net("MLP", "relu", 40), mixture(40), 3), mp.TooLargeError,
     "degree 3 in 40 directions has 12341 monomials", "method='neuronwise'"),
    ("start is a cubic", lambda: mp.methods.Exact(start=mp.fit(NET, MIX, 3)), ValueError, "^start has degree 3",
     "truncate"),
    ("start of other inputs", lambda: exactly(NET, MIX, 2, start=mp.fit(make_net("MLP", "relu", 4), mixture(4), 1)),
     ValueError, "^start maps 4 -> 2", "same inputs and outputs"),
    ("start of another library",
     lambda: exactly(NET, MIX, 2, start=mp.fit(mp.MLP(torch.eye(3)[:2]), mp.Gaussian.standard(3))), TypeError, "torch",
     "convert"),
    ("negative tolerance", lambda: mp.methods.Exact(tolerance=-1e-3), ValueError, "^tolerance ", ">= 0"),
    ("no iterations", lambda: mp.methods.Exact(max_iterations=0), ValueError, "^max_iterations ", "at least 1"),
]  # fmt: skip


@mistakes(TABLE)
def test_mistakes_are_explained(act, exception, patterns):
    assert_explained(act, exception, patterns)


def test_too_many_monomials_of_few_kept_directions():
    """What counts is the number of directions with variance, not of inputs."""
    mix, _ = embedded(mixture(3), 40)
    poly = mp.fit(make_net("MLP", "relu", 40), mix, 4)
    assert poly.report.details["kept"] == 3
    assert mp.fit(make_net("MLP", "relu", 40), mixture(40), 3, method="neuronwise").degree == 3
