"""Fits from Jacobians at samples: exact cases, quadrature, closed forms in standard errors, resuming, bad input."""

import numpy as np
import pytest
import torch
from support.backends import TORCH64, assert_close, in_library
from support.inputs import gaussian, points, standard_grid
from support.mistakes import assert_explained, mistakes
from support.networks import chain, network

import mlpoly as mp
from mlpoly.fitting.deep import sampled
from mlpoly.fitting.methods import Sampled
from mlpoly.records import map_arrays

D, OUT = 3, 2


def layer(activation, d, h, seed, kind="MLP"):
    return network(kind, activation, d, h, None, seed=seed)


DEEP = {
    "two layers": lambda: mp.Chain([layer("tanh", D, 5, 1), network("MLP", "gelu", 5, 4, OUT, seed=2)]),
    "gated": lambda: mp.Chain([layer("silu", D, 4, 3, "GLU"), network("MLP", "tanh", 4, 5, OUT, seed=4)]),
    "residual": lambda: mp.Chain(
        [mp.Residual(network("MLP", "gelu", D, 4, D, seed=5)), network("MLP", "tanh", D, 4, OUT, seed=6)]
    ),
    "row space of two": lambda: mp.Chain([layer("softplus", D, 2, 7), network("MLP", "sin", 2, 4, OUT, seed=8)]),
    "the user's activation": lambda: mp.Chain([layer(np.tanh, D, 3, 9), network("MLP", "gelu", 3, 4, OUT, seed=10)]),
}
INPUTS = gaussian(1, D, shift=0.5)
ONE_LAYER = network("MLP", "relu", D, 8, OUT, seed=11)


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of 64 pairs."""
    monkeypatch.setattr(sampled, "_MOST", 64)


def terms_of(poly):
    """Mean, linear and quadratic terms in standard normal coordinates of INPUTS, flat, in an orthonormal basis."""
    root = np.linalg.cholesky(INPUTS.covariance)
    made = poly.coefficients()
    linear, quadratic = made.linear + 2 * made.quadratic @ INPUTS.mean, root.T @ made.quadratic @ root
    mean = poly(INPUTS.mean) + np.trace(quadratic, axis1=1, axis2=2)
    return np.concatenate([mean, (linear @ root).ravel(), np.sqrt(2) * quadratic.ravel()])


def optimum(net, degree):
    """The same terms of the optimum, and its squared error, by quadrature of the network's values."""
    z, w = standard_grid(D, 40)
    y = net(INPUTS.mean + z @ np.linalg.cholesky(INPUTS.covariance).T)
    mean, linear = w @ y, np.einsum("n,no,ni->oi", w, y, z)
    quadratic = (np.einsum("n,no,ni,nj->oij", w, y, z, z) - mean[:, None, None] * np.eye(D)) / 2
    terms = np.concatenate([mean, linear.ravel() * (degree > 0), np.sqrt(2) * quadratic.ravel() * (degree > 1)])
    return terms, float(w @ np.sum(y * y, axis=1) - np.sum(terms**2))


def distance(one, two):
    """E|one - two|^2 under INPUTS."""
    return float(np.sum((terms_of(one) - terms_of(two)) ** 2))


QUADRATIC = {
    "square": lambda: network("MLP", "square", D, 5, OUT, seed=1),
    "affine maps before": lambda: mp.Chain(
        [mp.Affine(np.eye(4, D)), mp.Residual(mp.Affine(np.ones((4, 4)))), network("MLP", "square", 4, 5, OUT, seed=1)]
    ),
    "bilinear": lambda: network("GLU", "identity", D, 5, OUT, seed=2),
    "residual": lambda: mp.Residual(network("MLP", "square", D, 5, D, seed=3)),
    "linear": lambda: mp.Chain([layer("identity", D, 5, 4), network("MLP", "identity", 5, 4, OUT, seed=5)]),
}


@pytest.mark.parametrize(("name", "degree"), [*((name, 2) for name in QUADRATIC), ("linear", 1)])
def test_networks_that_are_polynomials_are_found_without_variance(name, degree):
    net, x = QUADRATIC[name](), points(D)
    poly = mp.fit(net, INPUTS, degree, method=Sampled(tolerance=0.0))
    assert_close(poly(x), net(x), 1e-11)
    report = poly.report
    assert report.converged
    assert report.details["chunks"] == 1
    size = float(np.mean(net(x) ** 2))
    assert max(report.excess, report.misfit) <= 1e-24 * size
    assert report.fvu <= 1e-24


@pytest.mark.parametrize("degree", [0, 1, 2])
def test_one_hidden_layer_agrees_with_the_closed_form_in_standard_errors(degree):
    poly, exact = mp.fit(ONE_LAYER, INPUTS, degree, method=Sampled()), mp.fit(ONE_LAYER, INPUTS, degree)
    assert poly.degree == degree
    apart, report = distance(poly, exact), poly.report
    # The excess is the mean of this distance, and its root a standard error.
    assert report.excess / 16 <= apart <= 16 * report.excess
    assert report.excess <= 1e-2 * report.misfit
    least = float(mp.fvu(ONE_LAYER, exact, INPUTS).total)
    assert abs(report.fvu - least) <= 0.1 * least


def begin_with(begun, monkeypatch):
    monkeypatch.setattr(sampled, "_begin", lambda *given: begun)


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("name", DEEP)
def test_unbiased_and_its_errors_are_as_stated(name, degree, small_chunks, monkeypatch):
    """Against quadrature of the network's values, which knows nothing of Jacobians."""
    net, seeds = DEEP[name](), 40
    right, least = optimum(net, degree)
    begin_with(sampled._begin(net, INPUTS, degree), monkeypatch)  # the same closed form for all seeds
    found = [mp.fit(net, INPUTS, degree, method=Sampled(0.0, 512, seed=seed)) for seed in range(seeds)]
    assert all(poly.report.details["chunks"] == 4 for poly in found)
    errors = np.stack([terms_of(poly) for poly in found]) - right
    spread, bias = errors.std(axis=0, ddof=1), errors.mean(axis=0)
    used = spread > 1e-9
    assert np.abs(bias[~used]).max(initial=0.0) <= 1e-8
    assert np.abs(bias[used] / spread[used]).max() * np.sqrt(seeds) <= 4.5
    stated, real = np.mean([poly.report.excess for poly in found]), np.mean(np.sum(errors**2, axis=1))
    assert 0.6 * real <= stated <= 1.6 * real
    misfits = np.array([poly.report.misfit for poly in found])
    assert abs(misfits.mean() - least) <= 4.5 * misfits.std() / np.sqrt(seeds)


def test_the_linear_forms_are_those_of_the_first_layer():
    poly = mp.fit(DEEP["row space of two"](), INPUTS, 2, method=Sampled(0.0, 2))
    assert poly.directions.shape == (2, D)
    assert_close(poly.directions @ INPUTS.covariance @ poly.directions.T, np.eye(2), 1e-10)


def test_singular_and_diagonal_inputs():
    net = DEEP["two layers"]()
    for inputs in (
        gaussian(2, D, rank=2),
        mp.Gaussian(np.zeros(D), np.array([1.0, 0.0, 2.0])),
        mp.Gaussian(np.ones(D)),
    ):
        poly = mp.fit(net, inputs, 2, method=Sampled())
        x = inputs.sample(20_000, seed=5)
        errors = np.sum((net(x) - poly(x)) ** 2, axis=1)
        assert abs(errors.mean() - poly.report.misfit) <= 0.15 * poly.report.misfit


@pytest.mark.parametrize("degree", [1, 2])
def test_of_equal_components_a_mixture_is_one_of_them(degree):
    net, x, method = DEEP["two layers"](), points(D), Sampled(0.0, 2)
    halves = mp.GaussianMixture(np.full(2, 0.5), np.stack([INPUTS.mean] * 2), np.stack([INPUTS.covariance] * 2))
    found, alone = (mp.fit(net, inputs, degree, method=method) for inputs in (halves, INPUTS))
    assert_close(found(x), alone(x), 1e-9)


def assert_same_fit(one, two):
    assert_close(terms_of(one), terms_of(two))
    assert one.report.converged == two.report.converged
    assert one.report.details == two.report.details
    for name in ("excess", "misfit", "fvu"):
        assert getattr(one.report, name) == pytest.approx(getattr(two.report, name), rel=1e-9)


def test_a_smaller_tolerance_takes_more_samples_and_holds(small_chunks):
    net = DEEP["two layers"]()
    poly = mp.fit(net, INPUTS, 2, method=Sampled(0.3))
    finer = mp.fit(net, INPUTS, 2, method=Sampled(0.01))
    assert finer.report.details["samples"] > poly.report.details["samples"]
    assert finer.report.excess <= 0.01 * finer.report.misfit
    assert finer.report.converged


def test_the_limit_on_samples_is_kept(small_chunks):
    report = mp.fit(DEEP["two layers"](), INPUTS, 2, method=Sampled(0.0, 1000)).report
    assert report.details["samples"] == 896  # seven chunks of 128
    assert not report.converged
    assert "stopped early after 896 samples" in str(report)


def test_an_interrupt_keeps_what_has_been_found(monkeypatch, small_chunks):
    net, correction, calls = DEEP["two layers"](), sampled._correction, []

    def interrupted(*given):
        calls.append(None)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return correction(*given)

    monkeypatch.setattr(sampled, "_correction", interrupted)
    poly = mp.fit(net, INPUTS, 2, method=Sampled(0.0))
    assert not poly.report.converged
    assert_same_fit(poly, mp.fit(net, INPUTS, 2, method=Sampled(0.0, 384)))


def test_seeds_differ_and_repeat(small_chunks):
    one, two, again = (mp.fit(ONE_LAYER, INPUTS, 1, method=Sampled(0.0, 128, seed=seed)) for seed in (1, 2, 1))
    assert distance(one, two) > 0
    assert distance(one, again) == 0


def test_no_gradients_are_recorded():
    net = in_library(DEEP["two layers"](), TORCH64)
    net = map_arrays(net, lambda a: a.requires_grad_())
    poly = mp.fit(net, in_library(INPUTS, TORCH64), 2, method=Sampled(0.0, 2))
    assert not poly.quadratic.requires_grad
    assert torch.is_tensor(poly.linear)


def sampled_fit(net=ONE_LAYER, inputs=INPUTS, degree=1):
    return mp.fit(net, inputs, degree, method=Sampled())


@mistakes(
    [
        ("negative tolerance", lambda: Sampled(-0.1), ValueError, "tolerance", ">= 0"),
        ("NaN", lambda: Sampled(float("nan")), ValueError, "tolerance", ">= 0"),
        ("text", lambda: Sampled("small"), ValueError, "tolerance", "number"),
        ("no samples", lambda: Sampled(max_samples=1), ValueError, "max_samples", "at least 2"),
        ("half a seed", lambda: Sampled(seed=0.5), TypeError, "seed", "integer"),
        ("degree 3", lambda: sampled_fit(degree=3), ValueError, "degree", "composed"),
        ("degree True", lambda: sampled_fit(degree=True), TypeError, "degree", "integer"),
        ("samples", lambda: sampled_fit(inputs=points(D)), TypeError, "method 'sampled' needs a Gaussian"),
        ("jumps", lambda: sampled_fit(network("MLP", "step", D, 4, OUT)), ValueError, "'step' jumps", "closed form"),
        ("overflow", lambda: sampled_fit(mp.Chain([mp.MLP(1e90 * np.eye(D), activation="square")] * 2)), ValueError,
         "overflows", "scale"),
    ]
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_bad_input(act, exception, patterns):
    assert_explained(act, exception, patterns)


def test_activations_too_steep_for_their_slopes_to_be_met():
    """Almost no sample falls where tanh of a million rises: the Jacobian is zero, and the values are not."""
    net = chain("tanh")
    steep = mp.Chain([mp.MLP(1e6 * net.layers[0].W1, activation="tanh"), *net.layers[1:]])
    with pytest.raises(ValueError, match=r"does not explain its values.*method='expansion'"):
        mp.fit(steep, mp.Gaussian.standard(4), 2, method="sampled")
