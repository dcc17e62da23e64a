"""Shapley values of one prediction: against brute force over orders and quadrature, and exact sums."""

import importlib
import itertools

import numpy as np
import pytest
from support.backends import NUMPY32, TORCH32, TORCH64, assert_close, assert_same_kind, backends, in_library, make
from support.inputs import gaussian, mixture
from support.mistakes import assert_explained, mistakes
from support.networks import chain, network
from support.quadrature import normal_mean

import mlpoly as mp
from mlpoly.measures import shapley
from mlpoly.measures.shapley import prediction_worth

G = gaussian(3, 4, ridge=0.1)
MIX = mixture(4, c=2)
X0 = np.array([0.7, -1.2, 0.4, 1.9])
INPUTS = pytest.mark.parametrize("inputs", [G, MIX], ids=["gaussian", "mixture"])


def worth_by_hand(net, inputs, x0, known):
    """E[f | x_S = x0_S] from densities, regressions and one-dimensional integrals."""
    known, total, out = list(known), 0.0, 0.0
    for weight, g in zip(inputs.weights, inputs.components, strict=True):
        cov, density, means, left = g.covariance, 1.0, g.mean, g.covariance
        if known:
            own, gap = cov[np.ix_(known, known)], x0[known] - g.mean[known]
            density = np.exp(-0.5 * gap @ np.linalg.solve(own, gap)) / np.sqrt(np.linalg.det(2 * np.pi * own))
            regression = np.linalg.solve(own, cov[known]).T
            means, left = g.mean + regression @ gap, cov - regression @ cov[known]
        total = total + weight * density
        out = out + weight * density * normal_mean(net, means[None, :], left)[0]
    return out / total


@INPUTS
@pytest.mark.parametrize(("kind", "name"), [("MLP", "relu"), ("MLP", "tanh"), ("GLU", "silu"), ("GLU", "gelu")])
def test_against_all_orders(kind, name, inputs):
    """Four inputs: 24 orders, 16 sets, each worth by quadrature."""
    net = network(kind, name, 4, 5, 2)
    found = shapley(net, X0, inputs)
    worth = {s: worth_by_hand(net, inputs, X0, s) for k in range(5) for s in itertools.combinations(range(4), k)}
    expected = np.zeros((4, 2))
    for order in itertools.permutations(range(4)):
        for place, i in enumerate(order):
            after, before = (tuple(sorted(order[:n])) for n in (place + 1, place))
            expected[i] += (worth[after] - worth[before]) / 24
    assert_close(found.values, expected, 1e-10)
    assert_close(found.mean, mp.second_moment(net, inputs).mean, 1e-12)
    assert_close(found.prediction, net(X0), 1e-14)
    game = prediction_worth(mp.conditional_mean(net, inputs, []), X0, [np.array([i]) for i in range(4)])
    for s, value in worth.items():
        assert_close(game(s), value, 1e-11)


@INPUTS
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@pytest.mark.parametrize("name", ["relu", "gelu", "step"])
def test_values_add_up(kind, name, inputs):
    net = network(kind, name, 4, 6, 3)
    for options in ({}, {"permutations": 6}, {"groups": [[0, 3], [1]]}, {"groups": {"a": [2], "b": [0, 1, 3]}}):
        found = shapley(net, X0, inputs, **options)
        gap = found.values.sum(0) - (net(X0) - mp.second_moment(net, inputs).mean)
        assert np.all(np.abs(gap) <= 1e-12 * np.maximum(np.abs(found.values).sum(0), np.abs(found.prediction)))


def test_drawn_orders_are_within_their_standard_error():
    net, g, x0 = network("MLP", "gelu", 7, 12, 3), gaussian(2, 7, ridge=0.1), gaussian(2, 7).sample(1, seed=3)[0]
    exact, drawn = shapley(net, x0, g), shapley(net, x0, g, permutations=40)
    z = (drawn.values - exact.values) / drawn.standard_error
    assert exact.standard_error is None
    assert np.max(np.abs(z)) <= 3 and 0.3 <= np.mean(z**2) <= 2.5
    assert_close(drawn.values.sum(0), exact.values.sum(0), 1e-12)


def test_singular_covariance():
    """Inputs that determine one another share what they tell; the point must be one that can occur."""
    A = np.random.default_rng(0).standard_normal((4, 1))
    g, net = mp.Gaussian(np.zeros(4), A @ A.T), network("MLP", "gelu", 4, 6, 2)
    found = shapley(net, 0.7 * A[:, 0], g)
    assert_close(found.values, np.tile((net(0.7 * A[:, 0]) - found.mean) / 4, (4, 1)), 1e-11)


@backends(NUMPY32, TORCH32, TORCH64)
@INPUTS
def test_libraries_and_precisions(backend, inputs):
    net = network("GLU", "gelu", 4, 5, 2)
    there = in_library(net, backend)
    found, expected = shapley(there, make(X0, backend), in_library(inputs, backend)), shapley(net, X0, inputs)
    for name in ("values", "mean", "prediction"):
        assert_same_kind(getattr(found, name), there.W_gate)
        assert_close(getattr(found, name), getattr(expected, name), 200 * backend.tolerance)


def test_tables_have_the_numbers_by_name():
    g = mp.Gaussian(G.mean, G.cov, names=("age", "bmi", "s1", "s2"))
    drawn = shapley(
        network("MLP", "relu", 4, 5, 2), X0, g, permutations=4, groups={"body": ["bmi", "s1"], "age": "age"}
    )
    frame, size = drawn.to_pandas(), dict(zip(drawn.groups, np.abs(drawn.values).max(axis=1), strict=True)).get
    assert drawn.groups == ("body", "age", "others") and "sampled: orders of the inputs" in str(drawn)
    assert list(frame["inputs"]) == ["expected output", *sorted(drawn.groups, key=size, reverse=True), "prediction"]
    assert frame["output 1"][:4].sum() == pytest.approx(frame["output 1"][4])
    errors = frame.set_index("inputs")["standard error"]
    for name, error in zip(drawn.groups, drawn.standard_error, strict=True):
        assert errors[name] == pytest.approx(error.max())


NET = network("MLP", "relu", 4, 5, 2)


@mistakes(
    [
        ("shape", lambda: shapley(NET, X0[:3], G), ValueError, "x has shape", "one number per input"),
        ("NaN", lambda: shapley(NET, X0 * np.nan, G), ValueError, "x holds|x has"),
        ("causal deep", lambda: shapley(chain(), X0, G, causal=[[0, 1, 2, 3]]), TypeError, "causal needs",
         "mlpoly.fit"),
        ("impossible", lambda: shapley(NET, X0, mp.Gaussian(np.zeros(4), np.ones((4, 4)))), ValueError, "x has",
         "cannot occur"),
        ("does not vary", lambda: shapley(NET, X0, mp.Gaussian(np.zeros(4), np.array([1.0, 0, 1, 1]))), ValueError,
         "input 1 does not vary"),
    ]
)  # fmt: skip
def test_mistakes(act, exception, patterns):
    assert_explained(act, exception, patterns)


def test_sets_share_checks_and_wide_copies(monkeypatch):
    """2^4 sets of inputs, one preparation."""
    module, calls = importlib.import_module("mlpoly.measures.conditional_mean"), []
    real = module.gaussians
    monkeypatch.setattr(module, "gaussians", lambda *a: calls.append(a) or real(*a))
    shapley(NET, X0, G)
    assert len(calls) == 1


ORDER = [[2], [0, 3], [1]]  # a chain of three groups
FLAGS = pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=3)))


def drawn(g, chosen, x, flags, n, seed=0):
    """Draws (n, d) of the chain graph: group after group from regressions of the original Gaussian."""
    rng, out, before = np.random.default_rng(seed), np.empty((n, 4)), []
    for group, confounded in zip(ORDER, flags, strict=True):
        fixed, free = [i for i in group if i in chosen], [i for i in group if i not in chosen]
        out[:, fixed] = x[fixed]
        known = before + ([] if confounded else fixed)
        if free:
            slope = np.linalg.solve(g.cov[np.ix_(known, known)], g.cov[np.ix_(known, free)]).T
            left = g.cov[np.ix_(free, free)] - slope @ g.cov[np.ix_(known, free)]
            noise = rng.normal(size=(n, len(free))) @ np.linalg.cholesky(left).T
            out[:, free] = g.mean[free] + (out[:, known] - g.mean[known]) @ slope.T + noise
        before = before + group
    return out


def causal_worths(net, flags, monkeypatch):
    """The values of all sets that shapley asks for."""
    module, seen = importlib.import_module("mlpoly.measures.shapley"), {}
    original = module.shapley_values

    def noted(worth, *rest):
        seen.update({chosen: worth(chosen) for size in range(5) for chosen in itertools.combinations(range(4), size)})
        return original(worth, *rest)

    monkeypatch.setattr(module, "shapley_values", noted)
    found = shapley(net, X0, G, causal=ORDER, confounding=list(flags))
    assert_close(found.values.sum(axis=0), found.prediction - found.mean, 1e-11)
    return seen


def check_against_draws(flags, n, monkeypatch):
    net = network("MLP", "relu", 4, 6, 1)
    for chosen, worth in causal_worths(net, flags, monkeypatch).items():
        values = net(drawn(G, chosen, X0, flags, n))[:, 0]
        error = values.std() / np.sqrt(n) + 1e-12
        assert abs(worth[0] - values.mean()) < 4.5 * error, chosen  # of 14 sets that are drawn


@FLAGS
def test_chain_of_three_groups(flags, monkeypatch):
    check_against_draws(flags, 40_000, monkeypatch)


@pytest.mark.slow
@FLAGS
def test_chain_of_three_groups_with_a_million_draws(flags, monkeypatch):
    check_against_draws(flags, 1_000_000, monkeypatch)


@FLAGS
def test_linear_networks_in_a_chain(flags):
    """A line of the means, which draws without noise give exactly: against all orders."""
    line = mp.MLP(np.eye(4), None, np.array([[1.0, -2.0, 0.5, 3.0]]), None, "identity")

    def worth(chosen):
        mean, before = np.zeros(4), []
        for group, confounded in zip(ORDER, flags, strict=True):
            fixed, free = [i for i in group if i in chosen], [i for i in group if i not in chosen]
            mean[fixed], known = X0[fixed], before + ([] if confounded else fixed)
            slope = np.linalg.solve(G.cov[np.ix_(known, known)], G.cov[np.ix_(known, free)]).T
            mean[free] = G.mean[free] + slope @ (mean[known] - G.mean[known])
            before = before + group
        return line(mean)[0]

    expected = np.zeros(4)
    for order in itertools.permutations(range(4)):
        for k, i in enumerate(order):
            expected[i] += (worth(order[: k + 1]) - worth(order[:k])) / 24
    assert_close(shapley(line, X0, G, causal=ORDER, confounding=list(flags)).values[:, 0], expected, 1e-11)


@pytest.mark.parametrize("inputs", [G, mp.Gaussian(G.mean, np.diag(G.cov).copy())], ids=["full", "diagonal"])
def test_one_group_is_a_known_game(inputs):
    """Without confounding the conditional game, with it the marginal one, by plugging values into the network."""
    net = network("GLU", "gelu", 4, 6, 2)
    assert_close(shapley(net, X0, inputs, causal=[range(4)]).values, shapley(net, X0, inputs).values, 1e-11)
    found, expected = shapley(net, X0, inputs, causal=[range(4)], confounding=True), np.zeros((4, 2))

    def worth(chosen):
        free, forms = [i for i in range(4) if i not in chosen], net.forms
        if not free:
            return net(X0)
        known = np.where(np.isin(np.arange(4), chosen), X0, 0.0)
        bias = forms.directions @ known + forms.bias, forms.gate_directions @ known + forms.gate_bias
        rest = mp.GLU(
            forms.directions[:, free], bias[0], forms.gate_directions[:, free], bias[1], net.W_down, net.b_down, "gelu"
        )
        cov = inputs.covariance[np.ix_(free, free)]
        return mp.second_moment(rest, mp.Gaussian(inputs.mean[free], cov)).mean

    for order in itertools.permutations(range(4)):
        for k, i in enumerate(order):
            expected[i] += (worth(order[: k + 1]) - worth(order[:k])) / 24
    assert_close(found.values, expected, 1e-11)


def test_asymmetric_values():
    """Averages over the orders that respect the chain; without confounding, of the conditional game."""
    net = network("MLP", "gelu", 4, 6, 2)
    found = shapley(net, X0, G, causal=ORDER, asymmetric=True)
    worth = {s: worth_by_hand(net, G, X0, s) for k in range(5) for s in itertools.combinations(range(4), k)}
    expected, orders = np.zeros((4, 2)), [(2, 0, 3, 1), (2, 3, 0, 1)]
    for order in orders:
        for k, i in enumerate(order):
            expected[i] += (worth[tuple(sorted(order[: k + 1]))] - worth[tuple(sorted(order[:k]))]) / 2
    assert_close(found.values, expected, 1e-10)
    groups = {"a": [2], "b": [0, 3], "c": [1]}
    for order in (ORDER, ["a", ["b"], "c"]):  # causal groups of inputs, or of the names of `groups`
        grouped = shapley(net, X0, G, groups=groups, causal=order, asymmetric=True)
        assert_close(grouped.values[1], expected[0] + expected[3], 1e-10)
        assert grouped.standard_error is None


@mistakes(
    [
        ("part", lambda: shapley(network(), X0, G, causal=[[0, 1]]), ValueError, "causal", "every one"),
        ("twice", lambda: shapley(network(), X0, G, causal=[[0, 1], [1, 2, 3]]), ValueError, "causal", "one group"),
        ("flags", lambda: shapley(network(), X0, G, causal=ORDER, confounding=[True]), ValueError, "confounding",
         "each of 3"),
        ("mixture", lambda: shapley(network(), X0, MIX, causal=ORDER), TypeError, "causal", "Gaussian"),
        ("no order", lambda: shapley(network(), X0, G, asymmetric=True), ValueError, "asymmetric", "causal="),
        ("groups", lambda: shapley(network(), X0, G, groups=[[0, 2]], causal=ORDER, asymmetric=True), ValueError,
         "groups", "need one"),
    ]
)  # fmt: skip
def test_mistakes_of_causal_games(act, exception, patterns):
    assert_explained(act, exception, patterns)
