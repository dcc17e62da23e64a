"""What every way to fit has in common: identities of networks and mixtures, array libraries, gradients, provenance."""

from functools import partial

import numpy as np
import pytest
import torch
from support.backends import (
    JAX32,
    JAX64,
    NUMPY32,
    NUMPY64,
    TORCH32,
    TORCH64,
    Backend,
    assert_close,
    assert_same_kind,
    in_library,
    make,
    to_numpy,
)
from support.inputs import gaussian, mixture, on_support, points
from support.networks import chain, network

import mlpoly as mp
from mlpoly.records import arrays_of, map_arrays, trusted

D = 4
WAYS = {
    "exact": partial(mp.fit, method=mp.methods.Exact(tolerance=0, max_iterations=2000)),
    "neuronwise": partial(mp.fit, method="neuronwise"),
    "bound": partial(mp.fit, bound=2.0),
    "composed": partial(mp.fit, method=mp.methods.Composed(0.02)),
    "expansion": partial(mp.fit, method=mp.methods.Expansion(tolerance=0, max_iterations=2000)),
}
make_net = partial(network, d=D, h=5, o=2, bias=0.5)
kinds = pytest.mark.parametrize("kind", ["MLP", "GLU"])


def duplicated(mix):
    return mp.GaussianMixture(np.tile(mix.weights, 2) / 2, np.tile(mix.means, (2, 1)), np.tile(mix.covs, (2, 1, 1)))


def split(mix, fraction=0.3):
    weights = np.concatenate([[fraction * mix.weights[0], (1 - fraction) * mix.weights[0]], mix.weights[1:]])
    return mp.GaussianMixture(weights, mix.means[[0, 0, 1, 2]], mix.covs[[0, 0, 1, 2]])


def permuted(mix):
    order = [2, 0, 1]
    return mp.GaussianMixture(mix.weights[order], mix.means[order], mix.covs[order])


def with_a_ghost(mix):
    """One more component, far away, of weight zero."""
    means, covs = np.concatenate([mix.means, mix.means[:1] + 50]), np.concatenate([mix.covs, mix.covs[:1]])
    return mp.GaussianMixture(np.concatenate([mix.weights, [0.0]]), means, covs)


# Singular components make a Gram matrix with a small lowest eigenvalue, which amplifies rounding; so do raw basis
# functions of polynomials with lines, and several layers.
WORDS = {("exact", None): 1e-12, ("exact", 2): 1e-9, ("neuronwise", None): 1e-11, ("neuronwise", 2): 1e-9}
WORDS |= {("bound", None): 1e-8, ("composed", None): 1e-9, ("expansion", None): 1e-10}


@pytest.mark.parametrize("change", [duplicated, split, permuted, with_a_ghost])
@pytest.mark.parametrize(("way", "rank"), WORDS)
@kinds
def test_the_same_mixture_in_other_words(kind, way, rank, change):
    net, mix = make_net(kind, "relu"), mixture(D, rank=rank)
    net = mp.Chain([net, network("MLP", "tanh", 2, 5, 2)]) if way in ("composed", "expansion") else net
    x = on_support(mix, rank or D)
    for degree in range(3 if way == "expansion" else 4):
        assert_close(WAYS[way](net, change(mix), degree)(x), WAYS[way](net, mix, degree)(x), WORDS[way, rank])


@pytest.mark.parametrize(("kind", "activation"), [("MLP", "relu"), ("MLP", "step"), ("GLU", "silu"), ("GLU", "relu")])
@pytest.mark.parametrize("degree", [0, 1, 2, 3, 6])
@pytest.mark.parametrize("way", ["exact", "neuronwise", "bound", "composed"])
def test_one_component_is_the_gaussian(way, degree, kind, activation):
    net, mix = make_net(kind, activation), mixture(D, c=1)
    gaussian_fit = WAYS["neuronwise" if way == "exact" else way]
    poly, alone = WAYS[way](net, mix, degree), gaussian_fit(net, mix.components[0], degree)
    assert poly.degree == degree
    assert_close(poly(points(D)), alone(points(D)), 1e-8 if way == "bound" else 1e-11 if degree == 6 else 1e-12)
    if way == "exact":
        for k in range(degree + 1):
            assert_close(poly.coefficients().tensor(k), alone.coefficients().tensor(k), 1e-11)


@pytest.mark.parametrize("inputs", [gaussian(d=D), mixture(D)], ids=["Gaussian", "mixture"])
@pytest.mark.parametrize("guard", ["expansion", None, 0.03])
def test_permuting_and_rescaling_hidden_units_changes_nothing(guard, inputs):
    net = chain(sizes=(D, 6, 5, 3))
    one, two, last = net.layers
    order, size = np.random.default_rng(0).permutation(6), np.random.default_rng(1).uniform(0.5, 2, 6)
    moved = mp.MLP((one.W1 * size[:, None])[order], (one.b1 * size)[order])
    other = mp.Chain([moved, mp.MLP((two.W1 / size)[:, order], two.b1), last])
    if guard == "expansion":
        found, want = (mp.fit(f, inputs, 2) for f in (other, net))
        assert_close(found(points(D)), want(points(D)), 1e-11)
        return
    found, want = (mp.fit(f, inputs, 3, method=mp.methods.Composed(guard)) for f in (other, net))
    assert_close(found(points(D)), want(points(D)), 1e-10)
    assert_close(found.bounded(2.0)(points(D)), want.bounded(2.0)(points(D)), 1e-10)


@pytest.mark.parametrize("inputs", [gaussian(d=D), mixture(D)], ids=["Gaussian", "mixture"])
@pytest.mark.parametrize("degree", range(5))
def test_a_partner_without_variance_leaves_an_mlp(degree, inputs):
    net = make_net("GLU", "silu")
    constant = mp.GLU(net.W_gate, net.b_gate, 0 * net.W_up, net.b_up, net.W_down, net.b_down, "silu")
    same = mp.MLP(net.W_gate, net.b_gate, net.W_down * net.b_up, net.b_down, activation="silu")
    found, want = (WAYS["neuronwise"](f, inputs, degree) for f in (constant, same))
    assert_close(found(points(D)), want(points(D)))


@pytest.mark.parametrize(
    ("kind", "activation", "degree"),
    [
        ("MLP", "identity", 1),
        ("MLP", "square", 2),
        ("MLP", "square", 5),
        ("MLP", "cube", 3),
        ("MLP", "cube", 4),
        ("GLU", "identity", 2),
        ("GLU", "identity", 3),
        ("GLU", "square", 3),
        ("GLU", "cube", 4),
    ],
)
@pytest.mark.parametrize(
    ("inputs", "method", "tolerance"),
    [
        (gaussian(d=D), "auto", 1e-12),
        (gaussian(d=D), "composed", 1e-12),
        # On lines, points are up to 11 standard deviations out, where a basis of degree 5 has a norm of 9e4: times a
        # condition of 40, a rounding and coefficients of 1, over outputs of 15, 5e-11.
        *((mixture(D, rank=rank), m, t) for rank, t in ((None, 1e-11), (1, 1e-10)) for m in ("neuronwise", "composed")),
        *((mixture(D, rank=rank), "auto", t) for rank, t in ((None, 1e-11), (1, 1e-10))),
        (mp.Samples(points(D, 400)), "auto", 1e-11),
        *((mp.Samples(points(D, 400)), method, 1e-9) for method in ("neuronwise", "joint", "composed")),
    ],
)
def test_polynomial_networks_are_reproduced(kind, activation, degree, inputs, method, tolerance):
    singular = isinstance(inputs, mp.GaussianMixture) and np.linalg.matrix_rank(inputs.covs[0]) < D
    x = on_support(inputs, 1) if singular else inputs.mean + points(D)
    net = make_net(kind, activation)
    poly = mp.fit(net, inputs, degree, method=method)  # at the default tolerance: nothing is left to gain but rounding
    iterated = degree == 2 and method == "auto" and isinstance(inputs, mp.GaussianMixture)
    assert_close(poly(x), net(x), 1e-8 if iterated else tolerance)


@pytest.mark.parametrize(
    ("method", "degree"),
    [(m, n) for m in ("auto", "neuronwise", "composed") for n in range(5)]
    + [(m, n) for m in ("expansion", "sampled") for n in range(3)],
)
@kinds
def test_without_variance_the_answer_is_the_value(kind, method, degree):
    """Zero total variance: a constant polynomial, equal to the network at the one point there is."""
    net, point = make_net(kind, "relu"), np.array([0.5, -1.0, 2.0, 0.1])
    still = mp.Gaussian(point, np.zeros((D, D)))
    both = mp.GaussianMixture(np.array([0.4, 0.6]), np.stack([point] * 2), np.zeros((2, D)))
    for inputs in (still, both):
        poly = mp.fit(net, inputs, degree, method=method)
        assert_close(poly(point), net(point), 1e-13)
        if inputs is both and method in ("auto", "neuronwise"):
            assert_close(poly(points(D)), np.broadcast_to(net(point), (30, 2)), 1e-14)
        assert poly.report is None or poly.report.converged
    assert_close(mp.fit(net, both, degree, bound=3.0)(point), net(point), 1e-9)


def deep():
    return mp.Chain([mp.Residual(network("GLU", "silu", D, o=D, scale=0.5, up=0.5)), *chain().layers])


def by(degree, method="auto"):
    return partial(mp.fit, degree=degree, method=method)


ROWS = points(D, 300) ** 2
WEIGHTED = mp.Samples(ROWS, np.random.default_rng(3).exponential(size=300))
CASES = {  # network, inputs, fit, and tolerances in double and single precision
    "mixture 1": (make_net("MLP"), mixture(D), by(1), 1e-11, 1e-4),
    "mixture 2": (make_net("GLU"), mixture(D), by(2), 1e-11, 1e-4),
    "mixture 3": (make_net("GLU"), mixture(D), by(3), 1e-11, 1e-4),
    "points": (make_net("MLP"), mixture(D, rank=0), by(1), 1e-9, 2e-4),
    "lines 2": (make_net("MLP"), mixture(D, rank=1), by(2), 1e-9, 2e-4),
    "lines 3": (make_net("MLP"), mixture(D, rank=1), by(3), 1e-9, 2e-4),
    "neuronwise MLP": (make_net("MLP"), mixture(D), partial(WAYS["neuronwise"], degree=3), 1e-11, 1e-5),
    "neuronwise GLU": (make_net("GLU"), mixture(D), partial(WAYS["neuronwise"], degree=3), 1e-11, 1e-5),
    "bound MLP": (make_net("MLP"), mixture(D), partial(WAYS["bound"], degree=3), 1e-8, 1e-4),
    "bound GLU": (make_net("GLU"), mixture(D), partial(WAYS["bound"], degree=3), 1e-8, 1e-4),
    "expansion": (deep(), gaussian(d=D), by(2), 1e-10, 1e-3),
    "sampled 1": (chain("tanh"), gaussian(d=D), by(1, mp.methods.Sampled(0, 256)), 1e-10, 1e-3),
    "sampled 2": (chain("tanh"), gaussian(d=D), by(2, mp.methods.Sampled(0, 256)), 1e-10, 1e-3),
    "composed": (deep(), gaussian(d=D), by(3, mp.methods.Composed(None)), 1e-10, 2e-3),
    "guarded": (deep(), mixture(D, 2), by(3, mp.methods.Composed(0.03)), 1e-10, 2e-3),
    "samples": (make_net("MLP"), WEIGHTED, by(3), 2e-11, 2e-4),
    "samples, bound": (make_net("GLU"), WEIGHTED, partial(WAYS["bound"], degree=3), 1e-9, 1e-4),
    # Shrinkage bounds the condition number by 1000 times the number of features.
    "readout": (make_net("GLU"), WEIGHTED, by(2, mp.methods.Joint("readout", 1e-3)), 1e-9, 1e-2),
    "free": (make_net("GLU"), WEIGHTED, by(2, mp.methods.Joint("free", 1e-3)), 1e-9, 1e-2),
}
QUICK_IN_JAX = ("mixture 2", "lines 3")  # each new shape costs seconds


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        pytest.param(n, b, marks=[pytest.mark.slow] if b in (JAX32, JAX64) and n not in QUICK_IN_JAX else [])
        for n in CASES
        for b in (NUMPY64, NUMPY32, TORCH64, TORCH32, JAX64, JAX32)
    ],
    indirect=["backend"],
    ids=lambda v: getattr(v, "name", v),
)
def test_every_library_gives_the_same_numbers(name, backend):
    """Of numbers that float32 holds, so that only the answer is rounded. NumPy's arrays are read-only.

    Singular covariances rounded to float32 are not quite positive: that must not be taken for curvature.
    """
    net, inputs, fit, double, single = CASES[name]
    rank = np.linalg.matrix_rank(inputs.covs[0]) if isinstance(inputs, mp.GaussianMixture) else D
    at = on_support(inputs, rank) if rank < D else points(D)
    if rank == D:
        net, inputs = map_arrays((net, inputs), lambda a: a.astype(np.float32).astype(float))
    at = inputs.x if isinstance(inputs, mp.Samples) else at
    x, twin = make(at, backend), fit(net, inputs)
    there = in_library(net, backend), in_library(inputs, backend)
    before = [to_numpy(a).copy() for a in arrays_of(there).values()]
    poly = fit(*there)
    for after, value in zip(arrays_of(there).values(), before, strict=True):
        np.testing.assert_array_equal(to_numpy(after), value)
    tolerance = double if backend.dtype == "float64" else single
    assert_same_kind(poly(x), x)
    assert_close(poly(x), twin(at), tolerance)
    if rank == D:  # beside the support of a singular mixture the polynomial is not determined
        assert_same_kind(poly.gradient(x), x)
        assert_close(poly.gradient(x), twin.gradient(at), 10 * tolerance)
        if poly.report is not None and poly.report.misfit is not None:
            assert_close(poly.report.misfit, twin.report.misfit, tolerance)


@pytest.mark.parametrize("method", ["auto", "neuronwise"])
@pytest.mark.parametrize("degree", range(4))
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_network_decides_the_dtype(library, degree, method):
    """A mixture in double precision, as statistics usually are, does not widen the result."""
    narrow, wide = Backend(library, "float32"), Backend(library, "float64")
    net, mix = make_net("MLP"), mixture(D)
    own, x = in_library(net, narrow), make(points(D), narrow)
    poly = mp.fit(own, in_library(mix, wide), degree, method=method)
    assert_same_kind(poly(x), own.W1)
    assert_same_kind(poly.prototype, own.W1)
    assert_close(poly(x), mp.fit(net, mix, degree, method=method)(points(D)), 1e-5)


@kinds
@pytest.mark.parametrize("means", [(1.0, 1.0), (1.0, 2.0)], ids=["same means", "other means"])
@pytest.mark.parametrize("way", ["neuronwise", "bound"])
def test_gradients_flow_through_fits_under_mixtures(way, means, kind):
    """Problems of components that share their mean are symmetric: their singular values coincide."""
    x, h = torch.tensor(points(3)), 1e-5
    net, eye = network(kind, "gelu", 3, o=1).to(x), torch.eye(3).double()

    def loss(step):
        parts = [
            trusted(mp.Gaussian, mean=m * torch.ones(3).double() * step, cov=k * eye)
            for m, k in zip(means, (1, 4), strict=True)
        ]
        weights = torch.tensor([0.6, 0.4]).double()
        return WAYS[way](net, mp.GaussianMixture.of(weights, parts), 3)(x).square().mean()

    step = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    loss(step).backward()
    slope = (loss(step.detach() + h) - loss(step.detach() - h)) / (2 * h)
    assert_close(step.grad, slope, 1e-6 if way == "neuronwise" else 1e-5)


@pytest.mark.parametrize(
    ("inputs", "options", "method"),
    [
        (gaussian(d=D), {}, "least squares under a Gaussian"),
        (gaussian(d=D), {"method": "neuronwise"}, "least squares under a Gaussian"),
        (mixture(D), {}, "least squares under a Gaussian mixture"),
        (mixture(D), {"method": "neuronwise"}, "least squares neuron by neuron under a Gaussian mixture"),
        (mixture(D), {"method": "expansion"}, "least squares under a Gaussian mixture, by second-order expansion"),
        (mixture(D), {"method": "composed"}, "composed, layer by layer, under a Gaussian mixture"),
        (mixture(D), {"bound": 2.0},
         "least squares neuron by neuron with lines beyond a bound, under a Gaussian mixture"),
        (WEIGHTED, {}, "least squares on samples"),
        (WEIGHTED, {"method": "joint"}, "least squares over all neurons together on samples"),
    ],
)  # fmt: skip
def test_the_result_and_its_file_say_which_optimum_it_is(inputs, options, method, tmp_path):
    poly = mp.fit(make_net("GLU", "silu"), inputs, 2, **options)
    poly.save(tmp_path / "poly")
    again = mp.load(tmp_path / "poly")
    assert (
        (poly.source.method, poly.source.activation)
        == (again.source.method, again.source.activation)
        == (method, "silu")
    )
    assert again.source.inputs == inputs.fingerprint == poly.inputs.fingerprint
    assert_close(again(points(D)), poly(points(D)), 0.0)
