"""All neurons fitted together on samples: against plain least squares, and never worse than neuron by neuron."""

import math

import numpy as np
import pytest
from support.backends import to_numpy
from support.networks import network

import mlpoly as mp
from mlpoly.fitting.joint_features import features_of
from mlpoly.records import replace

Joint = mp.methods.Joint

D, H, OUT = 6, 5, 2


def make_net(gated=False, seed=0, h=H, d=D, activation="relu"):
    kind, activation = ("GLU", "silu") if gated else ("MLP", activation)
    return network(kind, activation, d, h, OUT, seed=seed, scale=math.sqrt(d), up=math.sqrt(d))


def skewed(n, seed=1, d=D):
    """Correlated inputs with heavy tails to one side."""
    rng = np.random.default_rng(seed)
    return rng.exponential(size=(n, d)) @ np.random.default_rng(d).standard_normal((d, d)) / math.sqrt(d)


def error(net, poly, x):
    return float(((poly(x) - net(x)) ** 2).sum() / ((net(x) - net(x).mean(0)) ** 2).sum())


def functions(net, poly, x, degree, bound):
    """Functions with free coefficients, from the weights: 1, powers of w.x within the bound, lines, and gates."""
    y = x @ to_numpy(net.forms.directions).T
    h = y.shape[1]
    shifts, scales = (to_numpy(a)[:h] for a in (poly.units.shifts, poly.units.scales))
    t = (y - shifts) / scales
    held = t if bound is None else t.clip(-bound, bound)
    plain = [held**k for k in range(1, degree + 1)]
    lines = [] if bound is None else [(t - held).clip(max=0), (t - held).clip(min=0)]
    columns = [*plain, *lines]
    if net.forms.gate_directions is not None:
        z = x @ to_numpy(net.forms.gate_directions).T
        slopes = to_numpy(poly.units.gate.slopes)[:h]
        e = z - to_numpy(poly.units.gate.shifts)[:h] - slopes * held
        columns += [e * f for f in (np.ones_like(t), *plain[:-1], *lines)]
    return np.concatenate([np.ones((len(x), 1)), *columns], axis=1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bound", [None, 1.5])
@pytest.mark.parametrize("gated", [False, True])
def test_free_coefficients_without_shrinkage_are_plain_least_squares(gated, bound, weighted):
    net, x, degree = make_net(gated), skewed(600), 3
    weights = np.random.default_rng(3).exponential(size=600) if weighted else None
    poly = mp.fit(net, mp.Samples(x, weights), degree, method=Joint("free", 0.0), bound=bound)
    A, root = functions(net, poly, x, degree, bound), 1.0 if weights is None else np.sqrt(weights)[:, None]
    lengths = np.linalg.norm(root * A, axis=0)
    solved = np.linalg.lstsq(root * A / lengths, root * net(x), rcond=None)[0]
    # Normal equations lose twice the digits that the condition number of the scaled features costs.
    condition = np.linalg.cond(root * A / lengths)
    assert (
        np.abs(poly(x) - A / lengths @ solved).max() < 100 * np.finfo(float).eps * condition**2 * np.abs(net(x)).max()
    )


@pytest.mark.parametrize("bound", [None, 1.5])
@pytest.mark.parametrize("gated", [False, True])
def test_a_readout_without_shrinkage_is_plain_least_squares_on_the_neurons(gated, bound):
    net, x = make_net(gated, seed=1), skewed(600)  # units that are never on would be rounding alone
    poly = mp.fit(net, x, 3, method=Joint("readout", 0.0), bound=bound)
    neurons = replace(poly, readout=None, bias=None)(x)
    A = np.concatenate([np.ones((len(x), 1)), neurons], axis=1)  # moments are summed before they are centred
    solved = np.linalg.lstsq(A, net(x), rcond=None)[0]
    condition = np.linalg.cond(A / np.linalg.norm(A, axis=0))
    assert np.abs(poly(x) - A @ solved).max() < 100 * np.finfo(float).eps * condition**2 * np.abs(net(x)).max()


@pytest.mark.parametrize("kind", ["readout", "free"])
def test_what_samples_do_not_determine_is_of_least_norm(kind):
    net, x = make_net(seed=1), skewed(600)
    twice = mp.MLP(np.tile(net.W1, (2, 1)), np.tile(net.b1, 2), np.tile(net.W2, 2), net.b2, "relu")
    poly = mp.fit(twice, x, 2, method=Joint(kind, 0.0))
    start = replace(mp.fit(twice, x, 2, method="neuronwise"), inputs=None)
    features = features_of(start, kind)[0]
    values = features.each(x) - features.each(x).mean(0)
    values, sizes = values / values.std(0), values.std(0)
    gap = twice(x) - start(x)
    least = np.linalg.lstsq(values, gap - gap.mean(0), rcond=1e-7)[0]
    change = (poly.readout - features.readout).T * sizes[:, None]
    assert np.abs(change - least).max() < 1e-8 * np.abs(net(x)).max()


def test_large_shrinkage_is_the_fit_that_the_others_start_from():
    net, x = make_net(), skewed(600)
    free, readout = (mp.fit(net, x, 3, method=Joint(kind, 1e30)) for kind in ("free", "readout"))
    assert np.abs(free(x) - readout(x)).max() < 1e-12 * np.abs(net(x)).max()
    assert free.report.details["effective"] < 1e-20


def compared(seed):
    """Errors on fresh rows, neuron by neuron and together, for a random network and a random number of samples."""
    rng = np.random.default_rng(seed)
    d, h, degree, gated = int(rng.integers(2, 12)), int(rng.integers(2, 24)), int(rng.integers(1, 6)), bool(seed % 2)
    net = make_net(gated, seed, h, d)
    count = int(h * degree * (1 + gated) * 10 ** rng.uniform(math.log10(1.1), 2))
    bound = [None, 3.0][seed // 2 % 2]
    x, fresh = skewed(max(count, 12), seed, d), skewed(4000, 10**6 + seed, d)
    own = mp.fit(net, x, degree, method="neuronwise", bound=bound)
    joint = mp.fit(net, x, degree, method="joint", bound=bound)
    return error(net, own, fresh), error(net, joint, fresh)


def test_it_is_no_worse_than_neuron_by_neuron_on_fresh_rows():
    # A gain of less than two standard errors on held-out rows is not taken: chance exceeds that in 2.3 % of cases.
    errors = np.array([compared(seed) for seed in range(60)])
    assert (errors[:, 1] > 1.05 * errors[:, 0]).sum() <= 3, errors[errors[:, 1] > 1.05 * errors[:, 0]]
    assert np.log(errors[:, 1] / errors[:, 0]).mean() < 0


@pytest.mark.parametrize("seed", [1006, 1102, 1190, 1191, 1218, 1287])
def test_what_few_rows_say_about_lines_and_small_neurons_is_not_believed(seed):
    """Cases of a random search that were 6 to 5600 times worse on fresh rows before features kept such weights."""
    own, joint = compared(seed)
    assert joint <= 1.05 * own


@pytest.mark.parametrize("seed", range(12))
def test_it_is_no_worse_than_neuron_by_neuron_on_its_own_rows(seed):
    net, x, bound = make_net(bool(seed % 2), seed), skewed(20 + 40 * seed, seed), [None, 2.0, "auto"][seed % 3]
    own = mp.fit(net, x, 2, method="neuronwise", bound=bound)
    for method in (Joint(), Joint("readout"), Joint("free")):
        assert error(net, mp.fit(net, x, 2, method=method, bound=bound), x) <= error(net, own, x) * (1 + 1e-6)


@pytest.mark.parametrize("period", [1.0, 0.1])
def test_the_reported_fraction_is_that_of_fresh_rows(period):
    """Over 20 sets of samples, of which every fifth may be another kind; the report is of fits to four fifths."""
    net, reported, actual = make_net(), [], []

    def rows(n, seed):
        return skewed(n, seed) * np.where(np.arange(n)[:, None] % 5 == 4, period, 1.0)

    for seed in range(20):
        poly = mp.fit(net, rows(400, seed), 2, method="joint")
        reported.append(poly.report.fvu)
        actual.append(error(net, poly, rows(20000, 99)))
    gap = np.log(reported) - np.log(actual)
    assert abs(gap.mean()) < 0.15 + 4 * gap.std() / math.sqrt(20)


@pytest.mark.parametrize("kind", ["auto", "readout", "free"])
@pytest.mark.parametrize("gated", [False, True])
def test_degree_0_is_the_mean_and_neurons_may_be_the_outputs(gated, kind):
    net, x = replace(make_net(gated), **dict.fromkeys(("W_down", "b_down") if gated else ("W2", "b2"))), skewed(300)
    constant = mp.fit(net, x, 0, method=Joint(kind, 0.0))
    assert np.abs(constant(x[0]) - net(x).mean(0)).max() < 1e-12
    errors = [error(net, mp.fit(net, x, 2, method=m), x) for m in (Joint(kind, 0.0), mp.methods.Exact())]
    assert errors[1] < errors[0] < 0.5


def test_samples_without_weight_do_not_count():
    net, x = make_net(), skewed(300)
    for left_out in (np.arange(300) % 5 == 4, np.arange(300) % 5 != 4):
        poly = mp.fit(net, mp.Samples(x, 1.0 - left_out), 2, method=Joint("free", 0.0))
        alone = mp.fit(net, x[~left_out], 2, method=Joint("free", 0.0))
        assert poly.report.details["samples"] == (~left_out).sum()
        assert np.abs(poly(x) - alone(x)).max() < 1e-9 * np.abs(net(x)).max()


def test_a_gain_on_one_sample_is_no_evidence():
    weights = np.full(300, 1e-9)
    weights[::60] = 1.0  # of the held-out samples one or two count
    poly = mp.fit(make_net(), mp.Samples(skewed(300), weights), 2, method="joint")
    assert poly.report.details["kind"] == "neuronwise"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda net, x: mp.fit(net, x[:9], 2, method="joint"), ValueError, "takes 10"),
        (lambda net, x: mp.fit(net, mp.Samples(x, 1.0 * (np.arange(100) < 9)), 2, method="joint"), ValueError, "10"),
        (lambda net, x: mp.fit(net, np.where(x > 2, np.nan, x), 2, method="joint"), ValueError, "NaN or infinite"),
        (lambda net, x: mp.fit(net, mp.Gaussian.standard(D), 2, method="joint"), TypeError, "samples"),
        (lambda net, x: Joint("all"), ValueError, "coefficients"),
        (lambda net, x: Joint("free", -1.0), ValueError, "shrinkage"),
    ],
)
def test_bad_input_says_what_to_do(call, error, words):
    with pytest.raises(error, match=words):
        call(make_net(), skewed(100))


def test_few_samples_constant_columns_and_duplicates_are_no_obstacle():
    net, x = make_net(), skewed(12)
    x[:, 0] = 1.0
    poly = mp.fit(net, np.concatenate([x, x]), 3, method="joint")
    assert np.isfinite(poly(skewed(100))).all()
