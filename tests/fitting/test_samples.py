"""The data themselves as inputs: least squares on samples, and every measure that takes inputs."""

import math
import warnings

import jax
import numpy as np
import pytest
import torch
from support.backends import JAX64, assert_close, assert_same_kind, in_library, make, to_numpy
from support.inputs import monomials
from support.networks import network

import mlpoly as mp
from mlpoly.fitting.samples import exact as regression_module
from mlpoly.fitting.samples.neuronwise import SampleFit
from mlpoly.moments.hermite_products import products
from mlpoly.records import map_arrays

D, H, OUT = 3, 24, 2


def make_net(seed=0, dim=D, activation="tanh", gated=False):
    kind, activation = ("GLU", "silu") if gated else ("MLP", activation)
    return network(kind, activation, dim, H, OUT, seed=seed, scale=math.sqrt(dim), up=math.sqrt(dim))


def uniform(n=300, dim=D, seed=1):
    return np.random.default_rng(seed).uniform(-1, 1, (n, dim))


def with_columns(x, third):
    return np.column_stack([x[:, 0], x[:, 1], third])


x_ = uniform()
DATA = {
    "full rank": x_,
    "heavy tails": np.random.default_rng(2).standard_t(4, (300, D)),
    "far from zero": x_ + 10.0,
    "units differ": x_ * np.array([1e-3, 1.0, 1e3]),
    "column repeated": with_columns(x_, x_[:, 1]),
    "column a sum": with_columns(x_, x_[:, 0] + x_[:, 1]),
    "column constant": with_columns(x_, np.full(len(x_), 0.1)),
    "signs": np.sign(x_),
    "few samples": x_[:15],
    "one sample": x_[:1],
    "all equal": np.repeat(x_[:1], 20, axis=0),
}
WEIGHTS = np.random.default_rng(3).exponential(size=300) * (np.random.default_rng(4).uniform(size=300) > 0.1)


def plain_least_squares(x, y, degree, weights=None):
    """Coefficients (t, o) of plain monomials, and their rank; columns of length one, as their units differ."""
    A = monomials(x, degree)
    root = np.ones((len(x), 1)) if weights is None else np.sqrt(weights / weights.sum())[:, None]
    lengths = np.linalg.norm(root * A, axis=0)
    lengths[lengths == 0] = 1
    solved, _, rank, _ = np.linalg.lstsq(root * A / lengths, root * y, rcond=None)
    return solved / lengths[:, None], rank


def quiet_fit(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return mp.fit(*arguments, **options)


@pytest.mark.parametrize(
    ("x", "weights", "error", "words"),
    [
        (np.zeros((0, 3)), None, ValueError, "x has no rows; pass at least one sample"),
        (np.zeros((3, 0)), None, ValueError, "x has no columns"),
        (np.zeros(3), None, ValueError, r"x has shape \(3,\), expected \(any, any\): n samples of d inputs"),
        (np.array([[0, np.nan], [np.nan, np.nan], [0, 1], [np.inf, 0]]), None, ValueError, "in 3 of its 4 rows; drop"),
        (np.zeros((3, 2), dtype=bool), None, TypeError, "x must hold real floating-point numbers"),
        ("data", None, TypeError, "x must be an array"),
        (np.zeros((3, 2)), np.ones(2), ValueError, r"weights has shape \(2,\), expected \(3,\): one weight per row"),
        (np.zeros((3, 2)), np.array([1.0, -0.5, 1.0]), ValueError, "weights must not be negative, lowest is -0.5"),
        (np.zeros((3, 2)), np.array([1.0, np.nan, 1.0]), ValueError, "weights holds 1 NaN"),
        (np.zeros((3, 2)), np.zeros(3), ValueError, "weights are all zero; at least one sample must count"),
        (np.zeros((3, 2)), torch.ones(3), TypeError, "different array libraries"),
    ],
)
def test_bad_samples(x, weights, error, words):
    with pytest.raises(error, match=words):
        mp.Samples(x, weights)


def test_integers_are_data_and_weights_are_normalised(backend):
    rows = make([[0.0, 2.0], [4.0, 6.0]], backend)
    weights = make([3.0, 1.0], backend)
    inputs = mp.Samples(rows, weights)
    assert_close(inputs.weights, [0.75, 0.25], backend.tolerance)
    assert inputs.count == 2 and "weighted" in repr(inputs)
    assert_close(mp.Samples(np.array([[0, 2], [4, 6]]), np.array([3, 1])).mean, inputs.mean, 1e-15)
    huge = mp.Samples(np.eye(2), np.array([1.5e308, 0.5e308]))  # whose sum would overflow
    assert_close(huge.weights, [0.75, 0.25], 1e-15)


def test_values_too_large_to_square_say_so():
    with pytest.raises(ValueError, match="too large"):
        mp.Samples(np.array([[1e200], [-1e200]])).covariance  # noqa: B018


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("degree", range(6))
@pytest.mark.parametrize("name", DATA)
def test_it_is_plain_least_squares(name, degree, weighted):
    net, x = make_net(), DATA[name]
    weights = WEIGHTS[: len(x)] + (len(x) < 300) if weighted else None
    poly = quiet_fit(net, mp.Samples(x, weights), degree)
    # Plain monomials of inputs far from zero, or of heavy tails, are so ill-conditioned that they are the ones that
    # lose digits: they are taken of standardised inputs, which span the same polynomials.
    standard = (x - x.mean(axis=0)) / np.where(x.std(axis=0) > 1e-12, x.std(axis=0), 1.0)
    coefficients, rank = plain_least_squares(standard, net(x), degree, weights)
    counts = np.ones(len(x), dtype=bool) if weights is None else weights > 0
    assert_close(poly(x)[counts], (monomials(standard, degree) @ coefficients)[counts], 1e-9)
    assert poly.degree == (degree if poly.report.details["kept"] else 0)
    assert poly.report.details["rank"] == rank
    assert poly.report.details["samples"] == counts.sum()
    assert poly.report.details["terms"] == math.comb(poly.report.details["kept"] + degree, degree)
    assert poly.report.gradient <= 1e-9
    assert poly.report.details["kept"] + poly.report.details["dropped"] == D
    share = np.full(len(x), 1 / len(x)) if weights is None else weights / weights.sum()
    error = (share[:, None] * (net(x) - poly(x)) ** 2).sum()
    assert abs(poly.report.misfit - error) <= 1e-12 * (1 + error)


@pytest.mark.parametrize("degree", [3, 4, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_fewer_samples_than_monomials_are_interpolated(degree, weighted):
    net, x = make_net(), x_[:18]
    inputs = mp.Samples(x, WEIGHTS[:18] + 0.1 if weighted else None)
    terms = math.comb(D + degree, degree)
    with pytest.warns(UserWarning, match=rf"18 samples cannot determine the {terms} monomials .*neuronwise"):
        poly = mp.fit(net, inputs, degree)
    assert_close(poly(x), net(x), 1e-12)
    assert (poly.report.details["rank"], poly.report.details["terms"]) == (18, terms)
    assert "of which 18 determined" in str(poly.report)


def test_too_few_samples_are_reported_before_the_work(monkeypatch):
    net = make_net()
    monkeypatch.setattr(type(net), "__call__", None)  # the network is not evaluated
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="18 samples cannot determine"):
            mp.fit(net, mp.Samples(x_[:18]), 4)


def test_of_all_that_interpolate_it_has_the_least_norm():
    """Mean squares of the terms, summed: moving along what vanishes on the samples only adds to them."""
    x = x_[:18]
    poly = quiet_fit(make_net(), mp.Samples(x), 4)
    z = (x - poly.center) @ poly.whitener.T
    terms = products(z, np.array(poly.exponents))  # (t, n)
    sizes = np.sqrt((terms**2).mean(axis=1))
    _, _, right = np.linalg.svd((terms / sizes[:, None]).T)
    vanishing = right[18:]
    assert len(vanishing) == len(poly.exponents) - 18
    assert np.abs(vanishing @ (sizes[:, None] * poly.values.T)).max() <= 1e-12 * np.abs(poly.values).max()


def test_inputs_that_nearly_repeat_others_keep_their_digits():
    """At a relative size of 10^-6 a covariance knows the direction to four digits, dense coefficients to none."""
    x = with_columns(x_, x_[:, 1] + 1e-6 * x_[:, 2])
    turn = np.array([[1.0, 0, 0], [0, 1, -1e6], [0, 0, 1e6]])  # back to x_, up to the rounding of x
    net = make_net(5)
    expected = monomials(x @ turn, 2) @ plain_least_squares(x @ turn, net(x), 2)[0]
    assert_close(mp.fit(net, mp.Samples(x), 2)(x), expected, 1e-8)


@pytest.mark.parametrize("rows", [1, 7, 10**6])
def test_any_number_of_rows_at_a_time_gives_the_same(rows, monkeypatch):
    expected = mp.fit(make_net(), mp.Samples(x_, WEIGHTS), 3)
    monkeypatch.setattr(regression_module, "_NUMBERS", rows)
    monkeypatch.setattr("mlpoly.inputs.samples._NUMBERS", rows)
    found = mp.fit(make_net(), mp.Samples(x_, WEIGHTS), 3)
    assert_close(found(x_), expected(x_), 1e-12)


def test_whole_weights_are_repeated_rows():
    counts = np.random.default_rng(5).integers(0, 3, len(x_))
    weighted, repeated = mp.Samples(x_, counts), mp.Samples(np.repeat(x_, counts, axis=0))
    net = make_net(gated=True)
    for method in ("exact", "neuronwise"):
        one, two = (mp.fit(net, inputs, 3, method=method) for inputs in (weighted, repeated))
        # The closed form counts as a fraction of the samples that there are.
        assert_close(one(x_), two(x_), 1e-9)
        assert abs(float(mp.fvu(net, one)) / float(mp.fvu(net, two)) - 1) <= 1e-9
    for measure in (mp.second_moment, lambda n, i: mp.degree_spectrum(n, i, 3)):
        for a, b in zip(*(vars(measure(net, i)).values() for i in (weighted, repeated)), strict=True):
            assert_close(a, b, 1e-11)


def test_samples_wider_and_narrower_than_the_network():
    net = map_arrays(make_net(), lambda a: a.astype(np.float32))
    poly = mp.fit(net, mp.Samples(x_), 3)
    assert poly.values.dtype == np.float32
    assert_close(poly(x_), mp.fit(make_net(), mp.Samples(x_), 3)(x_), 2e-5)
    assert mp.fit(make_net(), mp.Samples(x_.astype(np.float32)), 3).values.dtype == np.float64


def test_sixteen_bits():
    net = map_arrays(make_net(), lambda a: torch.tensor(a, dtype=torch.bfloat16))
    x = torch.tensor(x_, dtype=torch.bfloat16)
    poly = mp.fit(net, mp.Samples(x), 3)
    assert poly.values.dtype == torch.float32
    wide = map_arrays(net, lambda a: a.double())
    assert_close(poly(x), mp.fit(wide, mp.Samples(x.double()), 3)(x.double()), 0.03)


def test_no_gradient_flows_and_tracing_is_refused():
    net = map_arrays(make_net(), lambda a: torch.tensor(a).requires_grad_())
    assert not mp.fit(net, mp.Samples(torch.tensor(x_)), 2).values.requires_grad
    with JAX64.active(), pytest.raises(TypeError, match=r"outside jax\.jit"):
        jax.jit(lambda x: mp.fit(in_library(make_net(), JAX64), mp.Samples(x), 2).values)(make(x_, JAX64))


def test_outputs_that_overflow_say_so():
    net = mp.MLP(np.full((1, 1), 800.0), None, None, None, mp.activations.get("square"))
    with np.errstate(all="ignore"), pytest.raises(OverflowError, match="overflows on some sample"):
        mp.fit(net, mp.Samples(np.array([[1.0], [1e153]])), 1)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="the samples are too large"):
        mp.fit(net, mp.Samples(np.array([[1.0], [1e160]])), 1)


@pytest.mark.parametrize("gated", [False, True])
def test_too_many_monomials_are_fitted_by_neurons(gated):
    x = np.random.default_rng(6).standard_normal((800, 40))
    net = make_net(dim=40, gated=gated)
    poly, joint = mp.fit(net, x, 3), mp.fit(net, x, 3, method="joint")  # 12341 monomials
    assert isinstance(poly, mp.polynomials.RidgePolynomial)
    assert_close(poly(x), joint(x), 0.0)
    own = mp.fit(net, x, 3, method="neuronwise")
    expected = SampleFit(net, mp.fit(net, mp.Gaussian.from_samples(x), 3)).update(x).polynomial()
    assert_close(own(x), expected(x), 1e-10)
    assert isinstance(poly.inputs, mp.Samples)


def test_directions_are_counted_not_inputs():
    """Forty inputs that vary in five directions have 56 monomials of degree 3."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((400, 5)) @ rng.standard_normal((5, 40))
    poly = mp.fit(make_net(dim=40), mp.Samples(x), 3)
    assert (poly.report.details["kept"], poly.report.details["dropped"], poly.report.details["terms"]) == (5, 35, 56)
    # Most samples vary in few directions only: those that are looked at first cannot tell.
    more = np.concatenate([np.repeat(x[:1], 50_000, axis=0), rng.standard_normal((45, 40))])
    assert isinstance(mp.fit(make_net(dim=40), mp.Samples(more), 3), mp.polynomials.RidgePolynomial)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_fvu_on_samples(weights):
    net, inputs = make_net(), mp.Samples(x_, weights)
    poly = mp.fit(net, inputs, 2)
    found = mp.fvu(net, poly)
    share = (np.ones(300) if weights is None else weights)[:, None]
    f, p = net(x_), poly(x_)
    mean = (share * f).sum(axis=0) / share.sum()
    expected = (share * (f - p) ** 2).sum(axis=0) / (share * (f - mean) ** 2).sum(axis=0)
    assert_close(found.per_output, expected, 1e-12)
    assert float(found.standard_error) > 0
    assert_close(mp.fvu(net, poly, inputs).total, found.total, 0)
    assert_close(mp.fvu(lambda x: net(x), lambda x: poly(x), inputs).total, found.total, 0)
    if weights is None:
        assert_close(mp.fvu(net, poly, x_).standard_error, found.standard_error, 1e-12)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_second_moment_on_samples(weights, backend):
    net = in_library(make_net(gated=True), backend)
    inputs = mp.Samples(make(x_, backend), make(weights, backend))
    found = mp.second_moment(net, inputs)
    f = make_net(gated=True)(x_)
    assert_close(found.mean, np.average(f, axis=0, weights=weights), 10 * backend.tolerance)
    assert_close(found.cov, np.cov(f, rowvar=False, bias=True, aweights=weights), 10 * backend.tolerance)
    share = np.full(300, 1 / 300) if weights is None else weights / weights.sum()
    assert_close(found.raw, (share[:, None] * f).T @ f, 10 * backend.tolerance)
    assert not to_numpy(found.bound).any()
    assert_same_kind(found.cov, make(0.0, backend))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", [n for n in DATA if n not in ("one sample", "all equal")])
def test_degree_spectrum_is_that_of_nested_fits(name, weighted):
    net, x = make_net(), DATA[name]
    weights = WEIGHTS[: len(x)] + (len(x) < 300) if weighted else None
    share = (np.ones(len(x)) if weights is None else weights)[:, None]
    share = share / share.sum()
    found = mp.degree_spectrum(net, mp.Samples(x, weights), 4)
    f = net(x)
    left = [
        (share * (f - quiet_fit(net, mp.Samples(x, weights), k)(x)) ** 2).sum(axis=0) for k in range(5)
    ]  # of the best polynomials of each degree
    size = left[0].max()
    assert np.abs(to_numpy(found.variance) - -np.diff(left, axis=0)).max() <= 1e-9 * size
    assert np.abs(to_numpy(found.remainder) - left[4]).max() <= 1e-9 * size
    assert_close(found.total, left[0], 1e-12)
    assert not to_numpy(found.between).any() and not to_numpy(found.bound).any()
    assert_close(to_numpy(found.unexplained)[1], left[2].sum() / left[0].sum(), 1e-7)


@pytest.mark.parametrize("name", ["one sample", "all equal"])
def test_degree_spectrum_without_variance(name):
    found = mp.degree_spectrum(make_net(), mp.Samples(DATA[name]), 3)
    assert to_numpy(found.total).max() <= 1e-28 and found.degree == 3


def test_degree_spectrum_of_too_many_monomials():
    x = np.random.default_rng(6).standard_normal((800, 40))
    with pytest.raises(mp.TooLargeError, match=r"lower degree, or use .*from_samples"):
        mp.degree_spectrum(make_net(dim=40), mp.Samples(x), 3)
    assert mp.degree_spectrum(make_net(dim=40), mp.Samples(x), 2).degree == 2


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_finetune_on_samples(weights):
    net = make_net()
    start = mp.fit(net, mp.Gaussian(np.full(D, 2.0)), 2)
    rows = uniform(3000, seed=8)
    inputs = mp.Samples(rows, None if weights is None else np.tile(weights, 10))
    better = mp.finetune(net, start, inputs, steps=40, batch_size=256)
    assert better.report.fvu < 0.7 * better.report.details["fvu_before"]
    assert better.inputs is inputs
    assert float(mp.fvu(net, better)) < 0.7 * float(mp.fvu(net, start, inputs))
    if weights is None:
        assert_close(mp.finetune(net, start, rows, steps=40, batch_size=256)(rows), better(rows), 0)


def test_few_samples_are_left_out_one_at_a_time():
    """The error in the report against fits without each sample; it warns, and the error on new samples is as large."""
    net, rng = network("MLP", "tanh", 3, 5, 2, scale=2.0), np.random.default_rng(0)
    x, new = rng.standard_normal((30, 3)), rng.standard_normal((4000, 3))
    with pytest.warns(UserWarning, match="30 samples are few for the 20 monomials.*left out"):
        poly = mp.fit(net, x, 3)
    squares = 0.0
    for i in range(30):
        rows = np.delete(x, i, axis=0)
        features, point = (monomials(a, 3) for a in (rows, x[i : i + 1]))
        squares += np.sum((point @ np.linalg.lstsq(features, net(rows), rcond=None)[0] - net(x[i : i + 1])) ** 2)
    expected = squares / np.sum((net(x) - net(x).mean(0)) ** 2)
    assert poly.report.fvu == pytest.approx(expected, rel=1e-8)
    assert float(mp.fvu(net, poly, x)) < 0.25 * expected < float(mp.fvu(net, poly, new)) < 4 * expected
    assert mp.fit(net, rng.standard_normal((400, 3)), 3).report.fvu is None
