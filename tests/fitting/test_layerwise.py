"""Fits of deep networks layer by layer: identities, every kind of inputs, and the guard against explosion."""

import numpy as np
import pytest
import torch
from support.backends import JAX32, NUMPY64, TORCH32, TORCH64, assert_close, backends, in_library, make
from support.inputs import gaussian, mixture, points
from support.mistakes import assert_explained, mistakes
from support.networks import chain, network

import mlpoly as mp
from mlpoly.fitting.deep import on_samples
from mlpoly.fitting.deep.layerwise import GUARDS
from mlpoly.polynomials import ComposedPolynomial
from mlpoly.records import replace, trusted

D = 4
X = points(D)
INPUTS = {
    "Gaussian": gaussian(d=D),
    "singular Gaussian": gaussian(d=D, rank=2),
    "mixture": mixture(D),
    "samples": mp.Samples(gaussian(d=D).sample(400)),
}
all_inputs = pytest.mark.parametrize("inputs", INPUTS.values(), ids=list(INPUTS))


def near(inputs):
    """Points that the inputs can take: in the range of a singular covariance, up to rounding."""
    return inputs.sample(30, seed=9)


@pytest.mark.parametrize("degree", [0, 1, 2, 5])
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@all_inputs
def test_one_hidden_layer_is_the_layers_own_fit(kind, inputs, degree):
    net = network(kind, "gelu", D)
    found, want = mp.fit(net, inputs, degree, method="composed"), mp.fit(net, inputs, degree, method="neuronwise")
    assert len(found.stages) == 1 and found.guarded is None and found.degree == degree
    assert_close(found(X), want(X), 1e-11)
    merged = mp.fit(
        mp.Chain([mp.Affine(np.eye(D) * 2.0), net, mp.Affine(np.eye(3) * 0.5)]), inputs, degree, method="composed"
    )
    assert len(merged.stages) == 1


@all_inputs
@pytest.mark.parametrize("guard", [None, 0.05])
def test_polynomial_activations_are_exact(inputs, guard):
    """Squares of squares, with a gated layer of degree 2 between them: degree 8, equal to the network."""
    net = mp.Chain(
        [
            network("MLP", "square", D, 5, 3, scale=0.5),
            network("GLU", "identity", 3, 4, 3, seed=1, scale=0.3, up=0.3),
            network("MLP", "square", 3, 4, 2, seed=2, scale=0.2),
        ]
    )
    guard = None if isinstance(inputs, mp.Samples) else guard
    for degree in (2, 3):
        found = mp.fit(net, inputs, degree, method=mp.methods.Composed(guard))
        x = near(inputs)
        assert_close(found(x), net(x), 1e-9)
    assert mp.fit(net, inputs, 2, method=mp.methods.Composed(guard)).degree == 8


@all_inputs
def test_deep_linear_networks_are_exact_and_of_degree_one(inputs):
    linear = network("MLP", "identity", D, 6, D)
    net = mp.Chain([mp.Residual(linear), mp.Affine(np.ones((2, D))), mp.Residual(network("MLP", "identity", 2, 3, 2))])
    for degree in (1, 3):
        found = mp.fit(net, inputs, degree, method="composed")
        assert found.degree == 1 and found.report.details["degrees"] == (1, 1, 1)
        x = near(inputs)
        assert_close(found(x), net(x), 1e-11)


@all_inputs
def test_residual_connections_around_quadratic_layers_are_exact(inputs):
    inner = mp.Residual(network("MLP", "square", D, 5, D, seed=1, scale=0.3))
    around = mp.Residual(mp.Chain([inner, network("GLU", "identity", D, 5, D, seed=2, scale=0.3, up=0.3)]))
    net = mp.Chain([around, network("MLP", "identity", D, 3, 2)])
    found = mp.fit(net, inputs, 2, method="composed")
    x = near(inputs)
    assert_close(found(x), net(x), 1e-9)
    assert found.degree == 4 and found.report.details["degrees"] == (2, 2, 1)
    first = found.stages[0]
    assert first.skip and first.stages[0].skip and not found.skip
    alone = mp.fit(around, inputs, 2, method="composed")
    assert alone.skip and alone.inputs is inputs and alone.source.method.startswith("composed, layer by layer, ")
    assert_close(alone(x), around(x), 1e-9)


def test_layers_are_fitted_under_the_propagated_moments():
    net = chain(sizes=(D, 6, 5, 3))
    for inputs, fit in ((gaussian(d=D), mp.fit), (mixture(D), lambda *a: mp.fit(*a, method="neuronwise"))):
        found, behind = mp.fit(net, inputs, 3, method=mp.methods.Composed(None)), mp.propagate(net, inputs)
        second = fit(mp.MLP(net.layers[1].W1, net.layers[1].b1, net.layers[2].W, net.layers[2].b), behind[0].outputs, 3)
        y = np.abs(points(6))
        assert_close(found.stages[1](y), second(y), 1e-10)
        assert found.report.details["closure_errors"][0] == 0
        assert_close(found.report.details["closure_errors"][1], behind[1].excess, 1e-12)


def test_layers_on_samples_are_fitted_on_the_values_of_the_network():
    net = chain(sizes=(D, 6, 5, 3))
    x, weights = INPUTS["samples"].x, np.random.default_rng(0).uniform(0, 1, 400)
    for w in (None, weights):
        found = mp.fit(net, mp.Samples(x, w), 3, method="composed")
        last = mp.Chain([net.layers[1], net.layers[2]])
        want = mp.fit(last, mp.Samples(net.layers[0](x), w), 3, method="neuronwise")
        y = np.abs(points(6))
        assert_close(found.stages[1](y), want(y), 1e-10)
        assert found.report.details == {"degrees": (3, 3), "guard": 0.0, "closure_errors": (), "kind": "neuronwise"}
        assert "on samples" in found.source.method and "each layer by itself" in found.report.summary


def rare(n, seed):
    """Rows of zeros and ones."""
    return (np.random.default_rng(seed).random((n, 12)) < 0.15).astype(float)


@backends(NUMPY64, TORCH32, JAX32)
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_layers_make_up_for_those_before(kind, backend):
    net = mp.Chain(
        [
            network(kind, "relu", 12, 16, None, seed=1),
            mp.Residual(network("MLP", "gelu", 16, 16, 16, seed=2)),
            mp.Affine(np.random.default_rng(3).normal(size=(9, 16)) / 4),
            network("MLP", "relu", 9, 16, 2, seed=4),
        ]
    )
    x, fresh = rare(3000, 0), rare(3000, 1)
    there, rows = in_library(net, backend), make(x, backend)
    found = mp.fit(there, rows, 2, method="composed")
    assert found.report.details["kind"] == "joint" and "makes up" in found.report.summary
    alone = ComposedPolynomial(on_samples.fitted(there, mp.Samples(rows), (2, 2, 1, 2), together=False))
    one, two = (float(mp.fvu(there, p, make(fresh, backend))) for p in (alone, found))
    assert two < 0.9 * one
    assert float(mp.fvu(there, found.bounded(3.0), make(fresh, backend))) < float(
        mp.fvu(there, alone.bounded(3.0), rows)
    )
    # The report is of a fit to four of five samples.
    assert found.report.fvu == pytest.approx(two, rel=0.25) and found.report.details["start"] == pytest.approx(
        one, rel=0.25
    )


def test_a_layer_brings_the_values_as_close_as_least_squares():
    """With as many samples as here the shrinkage is none: the last stage is least squares on its own neurons."""
    net = mp.Chain([network("MLP", "relu", 12, 8, None, seed=1), network("MLP", "relu", 8, 8, 2, seed=2)])
    x = rare(4000, 0)
    first, last = on_samples.fitted(net, mp.Samples(x), (2, 2), together=True)
    before = first(x)
    neurons = replace(last, readout=None, bias=None)(before)
    design = np.concatenate([np.ones((len(x), 1)), neurons], axis=1)
    best = design @ np.linalg.lstsq(design, net(x), rcond=None)[0]
    one, two = (((p - net(x)) ** 2).sum() for p in (last(before), best))
    assert one <= two * (1 + 1e-9)  # neurons that hardly contribute keep their weights, and here these are constant


def test_deeper_polynomials_come_closer_with_their_degree():
    """With lines beyond three standard deviations the error falls with the degree, for data as for distributions."""
    net, mix = chain(sizes=(8, 32, 32, 32, 4)), mixture(8, 2)
    for inputs in (gaussian(d=8), mix, mp.Samples(mix.sample(4000, seed=1))):
        errors = []
        for degree in (1, 2, 3, 5, 7):
            p = mp.fit(net, inputs, degree, method=mp.methods.Composed(None)).bounded(3.0)
            errors.append(float(mp.fvu(net, p, inputs.sample(4000, seed=2))))
        assert errors == sorted(errors, reverse=True)
        assert errors[2] < 0.06 and errors[-1] < 0.02


def test_a_guard_is_the_neurons_optimum_under_a_mixture_with_a_wide_component():
    net, g, eps = chain(sizes=(D, 6, 5, 3)), gaussian(d=D), 0.07
    found, plain = mp.fit(net, g, 3, method=mp.methods.Composed(eps)), mp.fit(net, g, 3, method=mp.methods.Composed(0))
    wide = mp.GaussianMixture.of(np.array([1 - eps, eps]), [g, mp.Gaussian(g.mean, 4 * g.cov)])
    want = mp.fit(net.layers[0], wide, 3, method="neuronwise")
    assert_close(found.applied[0](X), want(X), 1e-11)
    for one, two in zip(found.stages, plain.stages, strict=True):  # what lines continue is not guarded
        np.testing.assert_array_equal(one.series.plain, two.series.plain)
    assert_close(found.bounded(2.0)(X), plain.bounded(2.0)(X), 0.0)
    assert found.report.details == {**plain.report.details, "guard": eps} and "0.07" in str(found.report)


def test_guards_reach_gated_layers_and_those_within_residual_connections():
    first = network("GLU", "silu", D, 6, D, scale=0.5, up=0.5)
    net = mp.Chain([mp.Residual(mp.Chain([first, network("MLP", "tanh", D, 5, D)])), mp.Residual(mp.Affine(np.eye(D)))])
    g, eps = gaussian(d=D), 0.05
    found = mp.fit(net, g, 3, method=mp.methods.Composed(eps))
    wide = mp.GaussianMixture.of(np.array([1 - eps, eps]), [g, mp.Gaussian(g.mean, 4 * g.cov)])
    inner = found.stages[0]
    assert inner.guarded[0].gated is not None and inner.guarded[1].gated is None
    assert_close(inner.applied[0](X), mp.fit(first, wide, 3, method="neuronwise")(X), 1e-10)
    assert found.stages[1].guarded is None  # affine layers are exact


def test_a_guard_keeps_deep_polynomials_from_exploding():
    """Far tails: 40000 samples, of which the automatic choice sees none."""
    net, g = chain(sizes=(16, 64, 64, 64, 4), seed=1), gaussian(d=16)
    x = g.sample(40_000, seed=5)

    def error(p):
        return float(mp.fvu(net, p, x))

    for degree in (5, 7):
        plain, chosen = mp.fit(net, g, degree, method=mp.methods.Composed(0)), mp.fit(net, g, degree, method="composed")
        assert chosen.report.details["guard"] in GUARDS[1:]
        assert error(chosen) < 0.1 < 10 < error(plain)
        assert error(plain.bounded(3.0)) < error(chosen)


def test_the_automatic_guard_is_none_where_there_is_no_need():
    cases = (
        (network("MLP", "relu", D), INPUTS["Gaussian"], 7),
        (mp.Chain([mp.Residual(mp.Affine(np.eye(D))), network("MLP", "relu", D)]), INPUTS["mixture"], 5),
        (chain(), INPUTS["Gaussian"], 1),
        (chain(), INPUTS["samples"], 5),
        (chain("square"), INPUTS["Gaussian"], 2),  # exact without
    )
    for net, inputs, degree in cases:
        found = mp.fit(net, inputs, degree, method="composed")
        assert found.report.details["guard"] == 0 and found.guarded is None
    for none in (None, 0, 0.0):
        assert mp.fit(chain(), INPUTS["Gaussian"], 3, method=mp.methods.Composed(none)).guarded is None


@pytest.mark.parametrize("guard", [None, 0.05])
def test_gradients_flow_to_the_weights_and_the_inputs(guard):
    net, inputs = in_library(chain(sizes=(D, 5, 4, 2)), TORCH64), in_library(gaussian(d=D), TORCH64)
    x, direction = make(X, TORCH64), torch.randn(5, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def loss(step, shift):
        first = mp.MLP(net.layers[0].W1 + step * direction, net.layers[0].b1)
        moved = trusted(mp.Gaussian, mean=inputs.mean + shift, cov=inputs.cov)
        return (mp.fit(mp.Chain([first, *net.layers[1:]]), moved, 3, method=mp.methods.Composed(guard))(x) ** 2).mean()

    zero = torch.zeros((), dtype=torch.float64)
    step, shift = zero.clone().requires_grad_(), zero.clone().requires_grad_()
    loss(step, shift).backward()
    h = 1e-4  # differences of fourth order: those of second order would have the error of a polynomial of degree 27
    for found, (a, b) in ((step.grad, (h, 0.0)), (shift.grad, (0.0, h))):
        one, two = ((loss(zero + k * a, zero + k * b) - loss(zero - k * a, zero - k * b)) / (2 * k * h) for k in (1, 2))
        assert_close(found, (4 * one - two) / 3, 1e-6)


def composed(net, inputs, degree=2, guard="auto"):
    return mp.fit(net, inputs, degree, method=mp.methods.Composed(guard))


@mistakes(
    [
        ("degree", lambda: composed(chain(), gaussian(), -1), ValueError, "degree must be at least 0"),
        ("guard of one", lambda: mp.methods.Composed(1.0), ValueError, "guard must be", "0.01"),
        ("guard in words", lambda: mp.methods.Composed("some"), ValueError, "guard must be 'auto'"),
        ("guard on samples", lambda: composed(chain(), X, 2, 0.1), ValueError, "guard is 0.1", r"bounded\(3.0\)"),
        ("dimension", lambda: composed(chain(), gaussian(d=5)), ValueError, "dimension 5", "takes 4 inputs"),
        ("network", lambda: composed(torch.nn.Linear(4, 4), gaussian()), TypeError, "net must be", "from_torch"),
    ]
)
def test_mistakes_are_explained(act, exception, patterns):
    assert_explained(act, exception, patterns)
