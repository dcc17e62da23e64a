"""The closest additive model: optimal by conditional means and on tensor grids, exact for additive networks."""

import itertools

import numpy as np
import pytest
import torch
from support.backends import JAX64, NUMPY32, TORCH64, assert_close, assert_same_kind, backends, in_library, make
from support.inputs import gaussian, grid, mixture, points
from support.mistakes import assert_explained, mistakes
from support.networks import chain, network
from support.quadrature import trapezoid

import mlpoly as mp
from mlpoly.errors import FileFormatError
from mlpoly.measures import AdditiveModel

G = gaussian(3, 4, ridge=0.3)
MIX = mixture(3, c=2)
NETWORKS = pytest.mark.parametrize(
    ("kind", "name"), [("MLP", "relu"), ("MLP", "tanh"), ("MLP", "hardtanh"), ("GLU", "silu"), ("GLU", "relu")]
)


def conditional_average(model, inputs, i, z):
    """E[model | x_i] (n, o) at standardised values z (n,), by the trapezoidal rule in the rest of every other input."""
    w, weights = trapezoid(1, 1 / 32)
    deviation = np.sqrt(np.diag(inputs.covariance))
    total = model.mean + model.shape(i)(inputs.mean[i] + deviation[i] * z)
    for j in range(inputs.dim):
        if j != i:
            rho = inputs.covariance[i, j] / (deviation[i] * deviation[j])
            at = rho * z[:, None] + np.sqrt(1 - rho**2) * w[:, 0]
            total = total + np.einsum("nwo,w->no", model.shape(j)(inputs.mean[j] + deviation[j] * at), weights)
    return total


@NETWORKS
def test_residual_has_no_conditional_mean(kind, name):
    """E[f - g | x_i] = 0 for every input is what makes g the projection; E[f | x_i] is another closed form."""
    net = network(kind, name, 4, 7, 2)
    model = mp.additive(net, G)
    z = np.linspace(-2.5, 2.5, 7)
    for i in range(4):
        x = (G.mean[i] + np.sqrt(G.cov[i, i]) * z)[:, None]
        # The trapezoidal rule is exact up to 1e-10 for averages of ReLUs whose spread is a step or more.
        assert_close(conditional_average(model, G, i, z), mp.conditional_mean(net, G, i)(x), 1e-8)


@pytest.mark.parametrize(("kind", "name"), [("MLP", "tanh"), ("GLU", "gelu")])
def test_against_a_tensor_grid(kind, name):
    """Least squares in two inputs, on a rule that is exact for these functions; FVU, and values of the model."""
    g, net = gaussian(2, 2, ridge=0.4), network(kind, name, 2, 5, 2, scale=0.7)
    w, weights = trapezoid(2, 1 / 8)
    x = g.mean + w @ np.linalg.cholesky(g.cov).T
    y, model = net(x), mp.additive(net, g, degree=6)
    z = (x - g.mean) / np.sqrt(np.diag(g.cov))
    columns = [
        np.polynomial.hermite_e.hermeval(z, np.eye(7)[n]) / np.sqrt(float(np.prod(np.arange(1.0, n + 1))))
        for n in range(1, 7)
    ]
    features = np.concatenate([np.ones((len(x), 1)), *columns], axis=1) * np.sqrt(weights)[:, None]
    found = features @ np.linalg.lstsq(features, y * np.sqrt(weights)[:, None], rcond=1e-13)[0]
    assert_close(model(x) * np.sqrt(weights)[:, None], found, 1e-8)
    variance = weights @ (y - weights @ y) ** 2
    left = ((y * np.sqrt(weights)[:, None] - found) ** 2).sum(axis=0) / variance
    assert_close(model.fraction["neither"], left, 1e-8)
    assert_close(model.variance, variance, 1e-8)


@NETWORKS
def test_independent_inputs(kind, name):
    """The functional ANOVA: conditional means as shapes, first-order Sobol indices as fractions."""
    net, g = network(kind, name, 4, 7, 2), mp.Gaussian(np.array([0.3, -1.0, 0.0, 2.0]), np.array([1.0, 0.2, 4.0, 1.5]))
    model, first = mp.additive(net, g), mp.sensitivity(net, g).first
    assert_close(model.fraction["additive"], first.sum(axis=0), 1e-11)
    assert_close(model.importance**2, first * model.variance, 1e-11)
    x = np.linspace(-3, 3, 9)
    for i in range(4):
        expected = mp.conditional_mean(net, g, i)(x[:, None]) - model.mean
        assert_close(model.shape(i)(x), expected, 1e-9)


def test_independent_and_aligned():
    """One unit of a single input: the kink of its ReLU is there, however many degrees it would take."""
    net = mp.MLP(np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([0.3, 0.0]), np.array([[1.0, 2.0]]), None, "relu")
    g = mp.Gaussian(np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]))
    model, z = mp.additive(net, g), np.linspace(-3, 3, 1001)
    bends = np.diff(model.shape(0)(z)[:, 0], 2)
    assert abs(int(np.argmax(bends)) - int(np.searchsorted(z, -0.3))) <= 2
    assert bends.max() > 0.002  # a kink of slope 1 on steps of 0.006
    assert set(model.sharp.owners) == {0, 1}


@pytest.mark.parametrize("name", ["relu", "gelu", "step", "sin"])
def test_additive_network_is_reproduced(name):
    """Every unit sees one input, the inputs are correlated: nothing is left, and every function is found."""
    rng = np.random.default_rng(5)
    W = np.zeros((12, 4))
    W[np.arange(12), np.arange(12) % 4] = rng.normal(size=12)
    net = mp.MLP(W, rng.normal(size=12), rng.normal(size=(2, 12)), rng.normal(size=2), name)
    model = mp.additive(net, G)
    x = G.sample(200, 1)
    assert_close(model(x), net(x), 1e-10)
    assert_close(model.fraction["additive"], np.ones(2), 1e-12)
    values = np.linspace(-2, 2, 5)
    for i in range(4):
        at = np.zeros((5, 4))
        at[:, i] = values
        own = net(at)
        assert_close(np.diff(model.shape(i)(values), axis=0), np.diff(own, axis=0), 1e-9)


def test_additive_gated_network_is_reproduced():
    """GLU units of one input each, gate and factor."""
    rng = np.random.default_rng(6)
    W, V = np.zeros((8, 4)), np.zeros((8, 4))
    W[np.arange(8), np.arange(8) % 4], V[np.arange(8), np.arange(8) % 4] = rng.normal(size=8), rng.normal(size=8)
    net = mp.GLU(W, rng.normal(size=8), V, rng.normal(size=8), rng.normal(size=(1, 8)), None, "relu")
    model, x = mp.additive(net, G), G.sample(100, 1)
    assert_close(model(x), net(x), 1e-10)


def test_multiples_and_constants():
    """A copy, a negative copy and a constant change nothing but how the functions are divided."""
    net, g = network("MLP", "relu", 3, 6, 1), gaussian(5, 3, ridge=0.3)
    back = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [2, 0, 0], [0, -0.5, 0], [0, 0, 0]])  # six inputs of three
    wide = mp.Gaussian(back @ g.mean + np.array([0, 0, 0, 1.0, 0, 7]), back @ g.cov @ back.T)
    W = net.W1 @ np.array([[0.5, 0, 0, 0.25, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]])
    shifted = mp.MLP(W, net.b1 - net.W1[:, 0] * 0.25, net.W2, net.b2, "relu")
    x = g.sample(50, 2)
    y = x @ back.T + np.array([0, 0, 0, 1.0, 0, 7])
    assert_close(shifted(y), net(x), 1e-12)
    narrow, model = mp.additive(net, g), mp.additive(shifted, wide)
    assert_close(model(y), narrow(x), 1e-9)
    assert_close(model.fraction["additive"], narrow.fraction["additive"], 1e-10)
    assert_close(model.shape(0)(y[:, 0]), model.shape(3)(y[:, 3]), 1e-9)
    assert_close(2 * model.shape(4)(y[:, 4]), narrow.shape(1)(x[:, 1]), 1e-9)
    assert np.all(model.shape(5)(np.array([7.0, 9.0])) == 0)


def test_inputs_that_determine_one_another():
    """x2 = x0 + x1: shapes of degree 1 are not unique, the model is."""
    back = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    g = mp.Gaussian(np.zeros(3), back @ np.array([[1.0, 0.3], [0.3, 2.0]]) @ back.T)
    line = mp.MLP(np.eye(3), None, np.array([[1.0, -2.0, 0.5]]), None, "identity")
    x = points(2, 20) @ back.T
    assert_close(mp.additive(line, g)(x), line(x), 1e-10)
    net = network("MLP", "gelu", 3, 5, 1)
    model = mp.additive(net, g)
    for i in range(3):
        z = np.linspace(-2, 2, 5)
        known = mp.conditional_mean(net, g, i)((np.sqrt(g.cov[i, i]) * z)[:, None])
        assert_close(conditional_average(model, g, i, z), known, 1e-8)


@pytest.mark.parametrize("inputs", [MIX, gaussian(3, 3, ridge=0.3)], ids=["mixture", "gaussian"])
@pytest.mark.parametrize(("kind", "name"), [("MLP", "tanh"), ("GLU", "gelu")])
def test_polynomial_shapes(kind, name, inputs):
    """A fixed degree, in closed form and on the nodes of a rule as data with weights."""
    net = network(kind, name, 3, 5, 2, scale=0.4, bias=0.5)
    x, weights = grid(inputs, 34)
    model, found = mp.additive(net, inputs, degree=4), mp.additive(net, mp.Samples(x, weights), degree=4)
    # tanh on 34 nodes of the rule is exact to about 1e-9.
    assert_close(found.fraction["additive"], model.fraction["additive"], 1e-7)
    assert_close(found(x[::50]), model(x[::50]), 1e-6)
    assert_close(found.importance, model.importance, 1e-6)
    assert_close(found.variance, model.variance, 1e-7)


def test_on_data_is_least_squares():
    """Against a solver on all powers of every column."""
    rng = np.random.default_rng(0)
    x, net = rng.gamma(2.0, size=(500, 3)), network("MLP", "relu", 3, 6, 2)
    x[:, 2] = rng.integers(0, 2, 500)  # two values: powers beyond the first are the same column again
    model = mp.additive(net, x, degree=3)
    features = np.concatenate([np.ones((500, 1)), x, x[:, :2] ** 2, x[:, :2] ** 3], axis=1)
    expected = features @ np.linalg.lstsq(features, net(x), rcond=None)[0]
    assert_close(model(x), expected, 1e-9)
    left = ((net(x) - expected) ** 2).sum(axis=0) / ((net(x) - net(x).mean(axis=0)) ** 2).sum(axis=0)
    assert_close(model.fraction["neither"], left, 1e-9)
    assert_close(mp.additive(lambda a: net(a), x, degree=3)(x), expected, 1e-9)
    assert "500 samples" in str(model)


def test_polynomials_of_every_form():
    """Ridge, dense and chaos form of one function have one additive model; so has the network cut at its degree."""
    net, g = network("MLP", "tanh", 3, 5, 2), gaussian(3, 3, ridge=0.3)
    for degree in (1, 2, 3):
        ridge = mp.fit(net, g, degree)
        model, x = mp.additive(ridge, g), g.sample(20, 1)
        assert_close(mp.additive(net, g, degree=degree)(x), model(x), 1e-10)
        exact = mp.fit(net, mp.Samples(g.sample(3000, 2)), degree)
        here = mp.additive(exact, g)
        rows, weights = grid(g, 12)
        assert_close(here(x), mp.additive(exact, mp.Samples(rows, weights), degree=degree)(x), 1e-7)


def test_deep_networks():
    """Of the quadratic polynomial, and the result says so."""
    net, g = chain(sizes=(4, 6, 5, 2)), G
    model, x = mp.additive(net, g), g.sample(30, 1)
    assert_close(model(x), mp.additive(mp.fit(net, g, 2), g)(x), 1e-12)
    assert "the quadratic polynomial of the network" in str(model)


@backends(NUMPY32, TORCH64, JAX64)
@pytest.mark.parametrize("inputs", [G, mixture(4, c=2)], ids=["gaussian", "mixture"])
def test_backends(backend, inputs):
    net = network("MLP", "relu", 4, 6, 2)
    x = G.sample(10, 1)
    expected, on_rows = mp.additive(net, inputs), mp.additive(net, G.sample(100, 2), degree=3)
    with backend.active():
        other, points = in_library(net, backend), make(x, backend)
        model = mp.additive(other, in_library(inputs, backend))
        assert_same_kind(model(points), points)
        assert_same_kind(model.shape(1)(points[:, 1]), points)
        assert_close(model(points), expected(x), 100 * backend.tolerance)
        assert_close(model.fraction["additive"], expected.fraction["additive"], 100 * backend.tolerance)
        data = mp.additive(other, make(G.sample(100, 2), backend), degree=3)
        assert_close(data(points), on_rows(x), 1000 * backend.tolerance)


def test_gradients_flow():
    """Of the fraction, with respect to the weights: against differences."""
    net = network("MLP", "tanh", 4, 6, 1)

    def additive(W):
        return mp.additive(mp.MLP(W, *(torch.tensor(a) for a in (net.b1, net.W2, net.b2)), "tanh"), inputs).additive[0]

    inputs = in_library(G, TORCH64)
    W = torch.tensor(net.W1, requires_grad=True)
    (slope,) = torch.autograd.grad(additive(W), W)
    step = torch.tensor(np.random.default_rng(1).normal(size=net.W1.shape))
    differences = (additive(W + 1e-5 * step) - additive(W - 1e-5 * step)).detach() / 2e-5
    assert_close((slope * step).sum(), differences, 1e-6)


@pytest.mark.parametrize("inputs", [G, MIX], ids=["gaussian", "mixture"])
def test_files(inputs, tmp_path):
    net = mp.GLU(np.eye(inputs.dim)[:, :], None, np.eye(inputs.dim), None, np.ones((2, inputs.dim)), None, "relu")
    model = mp.additive(net, inputs)
    model.save(tmp_path / "model.safetensors")
    again, x = AdditiveModel.load(tmp_path / "model.safetensors"), inputs.sample(5, 1)
    assert np.array_equal(again(x), model(x))
    assert repr(again) == repr(model)
    (tmp_path / "model.safetensors").write_bytes(b"no file")
    with pytest.raises(FileFormatError, match="safetensors"):
        AdditiveModel.load(tmp_path / "model.safetensors")
    mp.fit(network(), gaussian(1, 4), 2).save(tmp_path / "poly.safetensors")
    with pytest.raises(FileFormatError, match="no additive model"):
        AdditiveModel.load(tmp_path / "poly.safetensors")


NET = network("MLP", "relu", 4, 6, 2)


@pytest.mark.parametrize(("kind", "name"), [("MLP", "tanh"), ("GLU", "gelu"), ("MLP", "sin")])
def test_all_pairs_of_three(kind, name):
    """Least squares over all products of two inputs up to the degree, on a rule that is exact for them."""
    net, g, degree = network(kind, name, 3, 5, 2, scale=0.6), gaussian(4, 3, ridge=0.4), 5
    w, weights = trapezoid(3, 0.5)
    x, root = g.mean + w @ np.linalg.cholesky(g.cov).T, np.sqrt(weights)[:, None]
    model, y = mp.additive(net, g, pairs=3, degree=degree), net(x)
    z = (x - g.mean) / np.sqrt(np.diag(g.cov))
    powers = [p for p in itertools.product(range(degree + 1), repeat=3) if sum(p) <= degree and 0 in p]
    features = np.stack([np.prod(z**p, axis=1) for p in powers], axis=1) * root
    found = features @ np.linalg.lstsq(features, y * root, rcond=1e-14)[0]
    assert_close(model(x) * root, found, 1e-7)
    left = ((y * root - found) ** 2).sum(axis=0) / (weights @ (y - weights @ y) ** 2)
    assert_close(model.fraction["neither"], left, 1e-7)
    assert_close(model.fraction["additive"], mp.additive(net, g, degree=degree).additive, 1e-12)


def test_pairs_of_a_network_of_pairs():
    """x0 x1 + x1 x2 + x3: the strongest pairs are found, each by its own, and reproduce the function."""
    W, V = np.eye(4)[[0, 1]], np.eye(4)[[1, 2]]
    net = mp.GLU(W, None, V, None, np.array([[1.0, 2.0]]), None, "identity")
    g = gaussian(4, 4, ridge=0.6)
    for pairs in (2, [(2, 1), (0, 1)]):
        model, x = mp.additive(net, g, pairs=pairs), g.sample(20, 1)
        assert set(model.places) == {(0, 1), (1, 2)}
        assert_close(model(x), net(x), 1e-10)
        assert_close(model.fraction["neither"], [0.0], 1e-10)
    ridge, chaos = mp.fit(net, g, 2), mp.fit(net, mp.Samples(g.sample(2000, 5)), 2)
    for poly in (ridge, chaos, mp.fit(network("MLP", "relu", 4, 6, 1), g.sample(2000, 5), 3)):
        rest = mp.additive(poly, g, pairs=6).fraction["neither"]
        assert np.all(rest < 1e-10) if poly.degree == 2 else np.all(rest > 1e-6)
    one, two = np.linspace(-1, 1, 5), np.linspace(0, 2, 5)
    assert_close(model.pair(1, 0)(two, one), model.pair(0, 1)(one, two), 1e-14)


def test_pairs_are_pure():
    """A pair function has no mean given one of its inputs."""
    model = mp.additive(network("MLP", "relu", 4, 7, 2), G, pairs=2)
    w, weights = trapezoid(1, 1 / 8)
    deviation = np.sqrt(np.diag(G.cov))
    for i, j in model.places:
        rho = G.cov[i, j] / (deviation[i] * deviation[j])
        for a, b in ((i, j), (j, i)):
            z = np.linspace(-2, 2, 5)[:, None]
            other = G.mean[b] + deviation[b] * (rho * z + np.sqrt(1 - rho**2) * w[:, 0])
            values = model.pair(a, b)(G.mean[a] + deviation[a] * z + 0 * other, other)
            size = np.abs(values).max()
            assert_close(np.einsum("nwo,w->no", values, weights) / size, np.zeros((5, 2)), 1e-12)


@mistakes(
    [
        ("tolerance", lambda: mp.additive(NET, G, tolerance=0.0), ValueError, "tolerance", "between"),
        ("degree", lambda: mp.additive(NET, G, degree=0), ValueError, "degree"),
        ("dimension", lambda: mp.additive(NET, MIX), ValueError, "inputs have dimension 3"),
        ("name", lambda: mp.additive(NET, G).shape("age"), ValueError, "age", "names"),
        ("index", lambda: mp.additive(NET, G).shape(4), ValueError, "index 4", "numbered"),
        ("pairs of data", lambda: mp.additive(NET, G.sample(9), pairs=1), ValueError, "pairs", "Gaussian"),
        ("pairs of one", lambda: mp.additive(NET, G, pairs=[(0,)]), ValueError, "pairs", r"\[\(0, 1\)"),
        ("no pairs", lambda: mp.additive(NET, G).pair(0, 1), ValueError, "x0 and x1", "pairs are"),
    ]
)
def test_mistakes(act, exception, patterns):
    assert_explained(act, exception, patterns)
