"""Explained variances and conditional means: against nested quadrature, exact identities and brute force."""

import itertools
import sys

import numpy as np
import pytest
from support.backends import NUMPY32, TORCH32, TORCH64, assert_close, assert_same_kind, backends, in_library, make
from support.inputs import gaussian, mixture
from support.mistakes import assert_explained, mistakes
from support.networks import chain, network
from support.quadrature import average, explained_variance, normal_mean

import mlpoly as mp
from mlpoly.measures import sensitivity
from mlpoly.measures.sensitivity import _ClosedForm

G = gaussian(3, 3, ridge=0.1)
SUBSETS = [s for k in (1, 2) for s in itertools.combinations(range(3), k)]
ACTIVATIONS = ("relu", "gelu", "silu", "tanh")


def effects_by_hand(worth, count):
    """Shapley values as the average over all orders."""
    orders = list(itertools.permutations(range(count)))
    total = [0.0] * count
    for order in orders:
        for place, i in enumerate(order):
            total[i] += (worth(order[: place + 1]) - worth(order[:place])) / len(orders)
    return np.stack(total)


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_against_nested_quadrature(kind, name):
    """Var E[f | x_S] for every set of three correlated inputs.

    The quadrature over x_S converges geometrically: at these steps its error is 1e-12, and 1e-9 for two inputs and
    ReLU, whose kink is smoothed by little that these inputs leave.
    """
    net, steps = network(kind, name, 3, 4, 2, bias=0.5), {1: 0.05, 2: 0.15 if name == "relu" else 0.25}
    tolerance = {1: 1e-11, 2: 1e-8 if name == "relu" else 1e-11}
    by_hand = {s: explained_variance(net, G, s, steps[len(s)]) for s in SUBSETS}
    for s in ((0,), (1, 2)):
        assert_close(explained_variance(net, G, s, 1.2 * steps[len(s)], nodes=12), by_hand[s], 1e-11)
    explained, variance = _ClosedForm(net, G), np.diagonal(mp.second_moment(net, G).cov)
    for s, expected in by_hand.items():
        assert_close(explained(np.array(s))[0] * variance, expected, tolerance[len(s)])
    found = sensitivity(net, G, interactions=True)
    assert_close(found.variance, variance, 1e-12)
    by_hand |= {(): variance * 0, (0, 1, 2): variance}
    assert_close(found.first, np.stack([by_hand[(i,)] for i in range(3)]) / variance, 1e-10)
    assert_close(found.total, 1 - np.stack([by_hand[s] for s in SUBSETS[:2:-1]]) / variance, 1e-7)
    effects = effects_by_hand(lambda s: by_hand[tuple(sorted(s))], 3) / variance
    assert_close(found.shapley, effects, 1e-8)
    for i, j in itertools.combinations(range(3), 2):
        both = (by_hand[i, j] - by_hand[(i,)] - by_hand[(j,)]) / variance
        np.testing.assert_allclose(found.pairs[i, j], both, atol=1e-8)
        np.testing.assert_allclose(found.pairs[i, j], found.pairs[j, i], atol=1e-15)
    assert np.all(found.bound <= 1e-11)
    assert found.standard_error is None and found.sampled == ""


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@pytest.mark.parametrize("name", ["relu", "silu", "sin", "step"])
def test_identities(kind, name):
    """All inputs explain the variance and none nothing; effects add up to one; more inputs never explain less."""
    net, g = network(kind, name, 4, 6, 2), gaussian(1, 4, ridge=0.05)
    found = sensitivity(net, g)
    variance = np.diagonal(mp.second_moment(net, g).cov)
    assert_close(found.shapley.sum(0), np.ones(2), 1e-12)
    explained = _ClosedForm(net, g)
    worth = {
        s: explained(np.array(s, dtype=int))[0] * variance
        for k in range(5)
        for s in itertools.combinations(range(4), k)
    }
    np.testing.assert_array_equal(worth[()], np.zeros(2))
    assert_close(worth[0, 1, 2, 3], variance, 1e-12)
    assert_close(worth[(2,)], sensitivity(net, g, groups=[2]).first[0] * variance, 1e-12)
    for s, i in itertools.product(worth, range(4)):
        if i not in s:
            assert np.all(worth[tuple(sorted((*s, i)))] >= worth[s] - 1e-12 * variance)
    assert_close(found.shapley, effects_by_hand(lambda s: worth[tuple(sorted(s))], 4) / variance, 1e-12)


@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_all_but_one_that_the_others_determine(name):
    """Of a singular covariance, inputs that determine the rest explain everything, though the closed form is used."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((4, 2))
    g = mp.Gaussian(rng.standard_normal(4), A @ A.T)
    net = network("MLP", name, 4, 6, 2)
    found = sensitivity(net, g, groups=[[0, 1], [2, 3]])
    assert_close(found.first, np.ones((2, 2)), 1e-11)
    np.testing.assert_allclose(found.total, np.zeros((2, 2)), atol=1e-11)
    assert_close(found.shapley, np.full((2, 2), 0.5), 1e-11)


def test_an_input_that_does_not_vary_explains_nothing():
    net, cov = network("MLP", "gelu", 3, 5, 2), np.array(G.cov)
    cov[1] = cov[:, 1] = 0.0
    found = sensitivity(net, mp.Gaussian(G.mean, cov))
    # Differences of fractions, each a sum over 5 x 5 pairs of units of series whose terms cancel by a factor below ten.
    rounding = 10 * 5**2 * np.finfo(float).eps
    for values in (found.first[1], found.total[1], found.shapley[1]):
        np.testing.assert_allclose(values, 0, atol=rounding)


def additive(name, kind="MLP"):
    """A network that is a function of x0 and x1 plus a function of x2 plus one of x3 and x4."""
    net = network(kind, name, 5, 9, 2)
    parts = [[0, 1], [2], [3, 4]]
    mask = np.zeros((9, 5))
    for unit in range(9):
        mask[unit, parts[unit % 3]] = 1.0
    if kind == "MLP":
        return mp.MLP(net.W1 * mask, net.b1, net.W2, net.b2, name), parts
    return mp.GLU(net.W_gate * mask, net.b_gate, net.W_up * mask, net.b_up, net.W_down, net.b_down, name), parts


@pytest.mark.parametrize(("kind", "name"), [("MLP", "relu"), ("MLP", "tanh"), ("GLU", "silu")])
def test_independent_groups_of_an_additive_network(kind, name):
    """Groups explain sums: alone, in total and on average the same."""
    net, parts = additive(name, kind)
    cov = np.zeros((5, 5))
    for part in parts:
        cov[np.ix_(part, part)] = gaussian(4, len(part), ridge=0.1).cov
    g = mp.Gaussian(np.linspace(-1, 1, 5), cov)
    found = sensitivity(net, g, groups=parts, interactions=True)
    assert_close(found.first.sum(0), np.ones(2), 1e-12)
    assert_close(found.total, found.first, 1e-12)
    assert_close(found.shapley, found.first, 1e-12)
    np.testing.assert_allclose(found.pairs, 0, atol=1e-12)
    for i in range(3):  # each is the variance of its own units
        units = np.arange(9) % 3 == i
        alone = net.with_parts(net.forms, net.readout * units, net.bias)
        assert_close(found.first[i] * found.variance, np.diagonal(mp.second_moment(alone, g).cov), 1e-12)


def test_sobol_indices_of_a_product():
    """x0 x1 with independent inputs of means a, b and variances s, t: b^2 s, a^2 t and s t of the variance."""
    net = mp.GLU(np.array([[1.0, 0.0]]), None, np.array([[0.0, 1.0]]), None, activation="identity")
    found = sensitivity(net, mp.Gaussian(np.array([2.0, -1.0]), np.array([3.0, 0.5])), interactions=True)
    parts = np.array([3.0, 2.0, 1.5])
    assert_close(found.variance, np.array([6.5]), 1e-13)
    assert_close(found.first[:, 0], parts[:2] / 6.5, 1e-13)
    assert_close(found.total[:, 0], (parts[:2] + 1.5) / 6.5, 1e-13)
    assert_close(found.pairs[..., 0], np.array([[0, 1.5], [1.5, 0]]) / 6.5, 1e-13)
    assert_close(found.shapley[:, 0], (parts[:2] + 0.75) / 6.5, 1e-13)


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_polynomials_against_quadrature(kind, degree):
    """Averages of polynomials are polynomials: Gauss-Hermite with few nodes is exact."""
    poly = mp.fit(network(kind, "silu", 3, 5, 2), G, degree)
    dense = mp.fit(
        network(kind, "silu", 3, 5, 2), mp.GaussianMixture(np.array([1.0]), G.mean[None], G.cov[None]), degree
    )
    x, w = np.polynomial.hermite_e.hermegauss(2 * degree + 2)
    w = w / w.sum()
    grid = np.array(list(itertools.product(range(len(x)), repeat=3)))
    for p in (poly, dense):
        found = sensitivity(p, G)
        for i in range(3):
            order = [i, *(j for j in range(3) if j != i)]
            root = np.zeros((3, 3))
            root[order] = np.linalg.cholesky(G.cov[np.ix_(order, order)])
            values = p(G.mean + x[grid] @ root.T).reshape(len(x), -1, 2)  # the first coordinate is that of x_i
            inner = np.einsum("nko,k->no", values, np.outer(w, w).ravel())
            variance = w @ (inner - w @ inner) ** 2
            assert_close(found.first[i] * found.variance, variance, 1e-11)
        assert_close(found.variance, p.moments(G)[1], 1e-12)
        assert_close(found.shapley.sum(0), np.ones(2), 1e-12)


def test_drawn_orders_are_within_their_standard_error():
    net, g = network("MLP", "relu", 7, 12, 3), gaussian(2, 7, ridge=0.1)
    exact, drawn = sensitivity(net, g), sensitivity(net, g, permutations=40, seed=1)
    assert drawn.standard_error.shape == (7, 3) and np.all(drawn.standard_error > 0)
    z = (drawn.shapley - exact.shapley) / drawn.standard_error
    assert np.max(np.abs(z)) <= 3
    assert 0.3 <= np.mean(z**2) <= 2.5  # so the error is neither too small nor too large
    assert_close(drawn.shapley.sum(0), np.ones(3), 1e-12)
    assert "40 orders" in drawn.sampled and exact.sampled == ""
    np.testing.assert_array_equal(drawn.first, exact.first)
    again = sensitivity(net, g, permutations=40, seed=1)
    np.testing.assert_array_equal(again.shapley, drawn.shapley)


def test_more_than_twelve_groups_are_drawn():
    net = mp.Affine(np.arange(1.0, 15.0)[None, :])
    found = sensitivity(net, mp.Gaussian.standard(14))
    assert "64 orders" in found.sampled
    squares = np.arange(1.0, 15.0) ** 2
    assert_close(found.shapley[:, 0], squares / squares.sum(), 1e-12)  # every order gives the same


@pytest.mark.parametrize("kind", ["MLP", "GLU", "RidgePolynomial", "ChaosPolynomial", "Chain", "BoundedPolynomial"])
def test_mixture_against_brute_force(kind):
    """E[f | x_i] on a fine grid, by Bayes and quadrature by hand; the draws are within four of their errors."""
    net, mix = network("GLU" if kind == "GLU" else "MLP", "silu", 3, 5, 2), mixture(3, c=2)
    if kind == "Chain":
        net = chain("silu", (3, 5, 4, 2))
    elif kind != "MLP" and kind != "GLU":
        net = mp.fit(net, mix if kind == "ChaosPolynomial" else G, 3)
        net = net.bounded(2.0) if kind == "BoundedPolynomial" else net
    assert type(net).__name__ == kind
    found = sensitivity(net, mix)
    x = np.linspace(-9, 9, 1801)
    for i in range(3):
        others = [j for j in range(3) if j != i]
        densities, means = [], []
        for weight, g in zip(mix.weights, mix.components, strict=True):
            s = g.cov[i, i]
            densities.append(weight * np.exp(-((x - g.mean[i]) ** 2) / (2 * s)) / np.sqrt(2 * np.pi * s))
            at = g.mean + (x - g.mean[i])[:, None] * g.cov[i] / s
            left = g.cov - np.outer(g.cov[i], g.cov[i]) / s
            means.append(normal_mean(net, at, left) if kind in ("MLP", "GLU") else average(net, at[:, None, :], left))
        p = sum(densities)
        values = sum(d[:, None] * m for d, m in zip(densities, means, strict=True)) / p[:, None]
        p = p * (x[1] - x[0])
        assert p.sum() == pytest.approx(1, abs=1e-9)
        expected = p @ (values - p @ values) ** 2 / found.variance
        assert others and np.all(np.abs(found.first[i] - expected) <= 4 * found.standard_error[i])
    assert np.all(found.standard_error < 0.02) and "draws of the inputs" in found.sampled
    if kind in ("Chain", "BoundedPolynomial"):
        assert_close(found.variance, np.var(net(mix.sample(10**6)), axis=0), 0.02)  # five errors of the samples
    else:
        assert_close(found.variance, np.diagonal(mp.second_moment(net, mix).cov), 1e-12)
    assert_close(found.shapley.sum(0), np.ones(2), 1e-12)


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_errors_of_draws_are_of_the_right_size(name):
    """Splitting a component in two changes nothing but the draws: against the closed form of one Gaussian."""
    net = network("MLP", name, 3, 12, 2)
    twice = mp.GaussianMixture(np.array([0.3, 0.7]), np.stack([G.mean] * 2), np.stack([G.cov] * 2))
    exact, z = sensitivity(net, G, interactions=True), []
    for seed in range(8):
        found = sensitivity(net, twice, seed=seed, interactions=True)
        z += [(getattr(found, a) - getattr(exact, a)) / found.standard_error for a in ("first", "total", "shapley")]
        np.testing.assert_allclose(found.pairs, exact.pairs, atol=0.03)
        assert np.all(found.standard_error < 0.01)
    # The listed error is the largest of the three, estimated from eight replicates: t with 7 degrees of freedom.
    assert np.max(np.abs(z)) <= 7 and np.mean(np.square(z)) <= 2


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("known", [[1], [2, 0]])
def test_conditional_mean_against_quadrature(kind, name, known):
    net = network(kind, name, 3, 4, 2, bias=0.5)
    found = mp.conditional_mean(net, G, known)
    values = np.random.default_rng(0).standard_normal((7, len(known)))
    regression = np.linalg.solve(G.cov[np.ix_(known, known)], G.cov[known]).T
    means = G.mean + (values - G.mean[known]) @ regression.T
    assert_close(found(values), normal_mean(net, means, G.cov - regression @ G.cov[known]), 1e-12)
    assert (found.dim_in, found.dim_out) == (len(known), 2)
    np.testing.assert_array_equal(found.given, known)


@pytest.mark.parametrize("inputs", [G, mixture(3)], ids=["gaussian", "mixture"])
def test_conditional_mean_is_the_mean_of_the_conditioned(inputs):
    """Two ways: the function, and the mean of the network with one input fixed under the inputs given its value."""
    net, found = network("MLP", "gelu", 3, 4, 2), mp.conditional_mean(network("MLP", "gelu", 3, 4, 2), inputs, 1)
    for value in (-1.0, 0.3, 2.5):
        rest = mp.MLP(net.W1[:, [0, 2]], net.b1 + net.W1[:, 1] * value, net.W2, net.b2, "gelu")
        expected = mp.second_moment(rest, inputs.condition({1: value})).mean
        assert_close(found(np.array([[value]]))[0], expected, 1e-12)


def test_conditional_mean_of_all_and_of_none(rng):
    net, x = network("GLU", "silu", 3, 4, 2), rng.standard_normal((5, 3))
    assert_close(mp.conditional_mean(net, G, [0, 1, 2])(x), net(x), 1e-12)
    assert_close(mp.conditional_mean(net, G, [2, 0, 1])(x[:, [2, 0, 1]]), net(x), 1e-12)
    assert mp.conditional_mean(net, G, [0])(np.zeros((0, 1))).shape == (0, 2)
    everything = mp.conditional_mean(net, G, [])
    assert_close(everything(np.zeros((1, 0)))[0], mp.second_moment(net, G).mean, 1e-12)


def test_conditional_mean_of_names_and_chunks(monkeypatch):
    g = mp.Gaussian(G.mean, G.cov, names=("a", "b", "c"))
    net, x = network("MLP", "relu", 3, 4, 2), np.linspace(-2, 2, 10)[:, None]
    found = mp.conditional_mean(net, g, "b")
    assert found.names == ("b",) and "given b" in repr(found)
    whole = found(x)
    monkeypatch.setattr(sys.modules["mlpoly.measures.conditional_mean"], "_NUMBERS", 12)
    assert_close(found(x), whole, 1e-15)


@backends(NUMPY32, TORCH32, TORCH64)
@pytest.mark.parametrize("inputs", [G, mixture(3, c=2)], ids=["gaussian", "mixture"])
def test_libraries_and_precisions(inputs, backend):
    net = network("GLU", "silu" if inputs is G else "gelu", 3, 5, 2)
    there, g = in_library(net, backend), in_library(inputs, backend)
    x = np.random.default_rng(0).standard_normal((4, 2))
    mean = mp.conditional_mean(there, g, [0, 2])(make(x, backend))
    assert_same_kind(mean, there.W_gate)
    assert_close(mean, mp.conditional_mean(net, inputs, [0, 2])(x), 50 * backend.tolerance)
    found, expected = sensitivity(there, g, interactions=True), sensitivity(net, inputs, interactions=True)
    for name in ("first", "total", "shapley", "variance", "pairs", "bound"):
        assert_same_kind(getattr(found, name), there.W_gate)
    if inputs is G:
        for name in ("first", "total", "shapley", "variance", "pairs"):
            assert_close(getattr(found, name), getattr(expected, name), 200 * backend.tolerance)
    else:  # other draws
        gap = np.abs(np.asarray(found.first) - expected.first)
        assert np.all(gap <= 4 * np.hypot(expected.standard_error, np.asarray(found.standard_error)))


def test_gradients_of_explained_variance():
    """What an input explains can be trained, and conditional means have slopes: against finite differences."""
    import torch

    net, g = network("MLP", "gelu", 3, 4, 1), in_library(G, TORCH64)

    def measures(x, *weights):
        there = mp.MLP(*weights, "gelu")
        return sensitivity(there, g).first[0, 0], mp.conditional_mean(there, g, 0)(x)

    leaves = [torch.tensor(a, requires_grad=True) for a in (np.array([[0.3]]), net.W1, net.b1, net.W2, net.b2)]
    assert torch.autograd.gradcheck(measures, leaves, eps=1e-5, atol=1e-7, rtol=1e-6, fast_mode=True)


def test_tables_have_the_numbers_by_name():
    g, net = mp.Gaussian(G.mean, G.cov, names=("age", "bmi", "s1")), network("MLP", "relu", 3, 5, 2)
    found = sensitivity(net, g, interactions=True)
    weights, frame = found.variance / found.variance.sum(), found.to_pandas().set_index("inputs")
    assert found.groups == ("age", "bmi", "s1") and "closed form" in str(found)
    assert frame["Shapley"]["bmi"] == pytest.approx(found.shapley[1] @ weights)
    assert frame["first"]["age \N{MIDDLE DOT} s1"] == pytest.approx(found.pairs[0, 2] @ weights)
    drawn = sensitivity(net, g, permutations=4)
    errors = drawn.to_pandas().set_index("inputs")["standard error"]
    assert errors["bmi"] == pytest.approx(drawn.standard_error[1] @ weights)
    for groups, names in (
        ({"body": ["bmi", "s1"]}, ("body", "others")),
        ({"others": ["age"], "body": ["bmi", "s1"]}, ("others", "body")),
        ([[0, 1]], ("age + bmi", "others")),
    ):
        assert sensitivity(net, g, groups=groups).groups == names


NET = network("MLP", "relu", 3, 5, 2)
LINE = mp.Gaussian(np.zeros(3), np.ones((3, 3)))
FLAT = mp.MLP(np.zeros((2, 3)), np.ones(2), None, None, "relu")


@mistakes(
    [
        ("index", lambda: sensitivity(NET, G, groups=[0, 3]), ValueError, "groups has the index 3", "from 0 to 2"),
        ("overlap", lambda: sensitivity(NET, G, groups=[[0, 1], [1]]), ValueError, "groups 0 and 1 both have input 1"),
        ("empty group", lambda: sensitivity(NET, G, groups=[[0], []]), ValueError, "empty group", "needs an input"),
        ("no groups", lambda: sensitivity(NET, G, groups=[]), ValueError, "groups is empty", "leave it out"),
        ("name", lambda: sensitivity(NET, G, groups=["a"]), ValueError, "groups has 'a'", "use indices"),
        ("one pair", lambda: sensitivity(NET, G, permutations=2), ValueError, "at least 4 for a standard error; got 2"),
        ("name of the rest", lambda: sensitivity(NET, G, groups={"others": [0]}), ValueError,
         "two groups of the name 'others', which is that of all inputs in no group", "another name"),
        ("names twice", lambda: sensitivity(NET, G, groups={1: [0], "1": [1]}), ValueError, "of the name '1'; give"),
        ("few rows", lambda: sensitivity(NET, G.sample(6)), ValueError, "inputs have 6 rows, too few", "more rows"),
        ("constant", lambda: sensitivity(FLAT, G), ValueError, "no variance"),
        ("impossible", lambda: mp.conditional_mean(NET, LINE, [0, 1])(np.eye(2)), ValueError, "x has values", "occur"),
        ("columns", lambda: mp.conditional_mean(NET, G, 0)(np.zeros((4, 2))), ValueError, "x has shape", "known input"),
    ]
)  # fmt: skip
def test_mistakes(act, exception, patterns):
    assert_explained(act, exception, patterns)
