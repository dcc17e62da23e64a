"""Fine-tuning: it improves what is wrong, leaves what is right, and never returns worse than it was given."""

import math
import sys

import numpy as np
import pytest
import torch
from support.backends import BACKENDS, assert_same_kind, make, to_numpy

import mlpoly as mp
from mlpoly.fitting import descent
from mlpoly.fitting.descent import trainable
from mlpoly.fitting.finetune import finetune
from mlpoly.polynomials import to_dense
from mlpoly.polynomials.base import map_polynomial
from mlpoly.records import arrays_of, replace

D, H, OUT = 4, 8, 2
SHORT = {"steps": 40, "batch_size": 256}


def network(gated=False, backend=BACKENDS[0], readout=True, seed=0, inputs=1.0, outputs=1.0):
    rng = np.random.default_rng(seed)
    W, V, R = (rng.standard_normal(s) / math.sqrt(s[1]) for s in ((H, D), (H, D), (OUT, H)))
    b, c, a = (0.3 * rng.standard_normal(n) for n in (H, H, OUT))
    last = (R * outputs, a * outputs) if readout else (None, None)
    if gated:
        return mp.GLU(*(make(v, backend) for v in (2 * W / inputs, b, V / inputs, c, *last)), activation="silu")
    return mp.MLP(*(make(v, backend) for v in (2 * W / inputs, b, *last)), activation="relu")


def mixture(backend=BACKENDS[0], seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    roots = 0.5 * rng.standard_normal((3, D, D))
    covs = roots @ roots.transpose(0, 2, 1) + 0.05 * np.eye(D)
    means = 1.5 * rng.standard_normal((3, D))
    parts = (np.array([0.5, 0.25, 0.25]), means * scale, covs * scale**2)
    return mp.GaussianMixture(*(make(v, backend) for v in parts))


def wrong(kind, net):
    """The optimum under N(0, I), which the mixture is far from."""
    if kind == "dense":
        ridge = mp.fit(net, mp.Gaussian.standard(D), degree=2)
        return to_dense(ridge, ridge.prototype[0, :] * 0)
    good = mp.fit(net, mixture(), degree=3)
    return mp.polynomials.ChaosPolynomial(good.center, good.whitener, good.exponents, good.values * 0.7)


def in_torch(poly):
    return map_polynomial(poly, lambda a: make(a, BACKENDS[2]))


def fvu(net, poly, inputs, n=20000):
    return float(mp.fvu(net, poly, inputs.sample(n, seed=987)).total)


kinds = pytest.mark.parametrize("kind", ["dense", "chaos"])
gates = pytest.mark.parametrize("gated", [False, True], ids=["mlp", "glu"])


@kinds
@gates
def test_wrong_start_improves(kind, gated):
    net, inputs = network(gated), mixture()
    start = wrong(kind, net)
    found = finetune(net, start, inputs, **SHORT)
    report = found.report
    assert type(found) is type(start)
    assert report.fvu < 0.6 * report.details["fvu_before"]
    assert report.details["best_step"] > 0
    assert report.iterations == 40
    assert report.converged
    assert report.details["fvu_before"] - report.fvu > 3 * report.details["standard_error"]
    # The report's figures are of the held-out samples; others agree.
    assert fvu(net, found, inputs) < 0.6 * fvu(net, start, inputs)
    assert report.fvu == pytest.approx(fvu(net, found, inputs), rel=0.3)
    if kind == "dense":
        np.testing.assert_array_equal(found.quadratic, np.swapaxes(found.quadratic, 1, 2))


@gates
def test_reaches_the_optimum_that_is_known(gated):
    """From a ridge polynomial, which is made dense."""
    net, inputs = network(gated), mixture()
    found = finetune(net, mp.fit(net, mp.Gaussian.standard(D)), inputs, steps=200, batch_size=1024)
    best = mp.fit(net, inputs, degree=2)
    assert fvu(net, best, inputs) <= fvu(net, found, inputs) < 1.02 * fvu(net, best, inputs)


@gates
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_exact_optimum_is_left_alone(gated, degree):
    net, inputs = network(gated), mixture()
    start = mp.fit(net, inputs, degree=degree)
    found = finetune(net, start, inputs, **SHORT)
    assert found.report.details["best_step"] == 0
    assert found.report.fvu == found.report.details["fvu_before"]
    for name in ("constant", "linear", "quadratic", "values"):
        assert getattr(found, name, None) is getattr(start, name, None)
    assert found.source == start.source


def test_negative_control_chance_alone_looks_like_a_gain(monkeypatch):
    """The best of many looks is below the start on the held-out samples; without the test of its size it would win."""
    net, inputs = network(), mixture()
    start = mp.fit(net, inputs, degree=2, method=mp.methods.Exact(1e-9))
    monkeypatch.setattr(descent, "_HELD_OUT", 1024)
    seen = [finetune(net, start, inputs, **SHORT, seed=s).report for s in range(4)]
    assert any(min(v for _, v in r.history) < r.details["fvu_before"] for r in seen)
    assert all(r.details["best_step"] == 0 for r in seen)


@kinds
def test_absurd_learning_rate_returns_the_start(kind):
    net, inputs = network(), mixture()
    start = wrong(kind, net)
    with pytest.warns(RuntimeWarning, match="lower learning_rate"):
        found = finetune(net, start, inputs, learning_rate=1e4, **SHORT)
    report = found.report
    assert report.details["reason"] == "diverged"
    assert not report.converged
    assert report.iterations < 40
    assert report.details["best_step"] == 0
    assert report.fvu == report.details["fvu_before"]
    assert report.history[-1][1] > 10 * report.details["fvu_before"]  # what the optimiser alone would have returned
    x = inputs.sample(10, seed=1)
    np.testing.assert_array_equal(found(x), start(x))


def test_default_learning_rate_retreats_when_it_diverges(monkeypatch):
    net, inputs = network(), mixture()
    monkeypatch.setattr(descent, "_RATE", 300.0)
    found = finetune(net, wrong("dense", net), inputs, **SHORT)
    assert found.report.details["learning_rate"] < 20
    assert found.report.iterations == 40
    assert found.report.fvu < 0.6 * found.report.details["fvu_before"]


@pytest.mark.parametrize("one_logit", [False, True])  # whose softmax would be a constant
def test_divergence_as_loss(one_logit):
    net, inputs = network(outputs=3.0), mixture()
    net = mp.MLP(net.W1, net.b1, net.W2[:1, :], net.b2[:1], "gelu") if one_logit else net
    start = wrong("dense", net)
    found = finetune(net, start, inputs, loss="kl", **SHORT)
    report, x = found.report, inputs.sample(20000, seed=5)
    assert 0 < report.details["kl"] < 0.6 * report.details["kl_before"]
    assert report.history[0][1] == report.details["kl_before"]
    assert float(mp.measures.kl(net, found, x).mean) < 0.6 * float(mp.measures.kl(net, start, x).mean)
    assert finetune(net, start, inputs, **SHORT).report.details.get("kl") is None


@pytest.mark.parametrize("weighted", [False, True])
def test_held_out_rows_are_not_trained_on(weighted):
    x, weights = np.arange(100.0)[:, None], np.where(np.arange(100) % 2, 1.0, 0.0)
    rest, held_out = descent._split(mp.Samples(x, weights if weighted else None), 0, torch.zeros(1))
    trained, held = set(rest.x[:, 0].tolist()), set(held_out[:, 0].tolist())
    assert not trained & held
    assert (len(trained), len(held_out)) == ((40, 10) if weighted else (80, 20))
    assert trained | held <= set(range(1, 100, 2) if weighted else range(100))


def test_overfit_is_not_returned(monkeypatch):
    net, inputs = network(), mixture()
    start = mp.fit(net, inputs, degree=2)
    few = inputs.sample(15, seed=2)  # of which 12 are trained on, fewer than the 15 coefficients of an output
    found = finetune(net, start, few, **SHORT)
    assert found.report.details["best_step"] == 0


@kinds
def test_deterministic(kind):
    net, inputs = network(), mixture()
    start, x = wrong(kind, net), inputs.sample(50, seed=2)
    state, numpy_state = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    one, two = (finetune(net, start, inputs, **SHORT, seed=4) for _ in range(2))
    np.testing.assert_array_equal(one(x), two(x))
    assert one.report == two.report
    other = finetune(net, start, inputs, **SHORT, seed=5)
    assert np.abs(other(x) - one(x)).max() > 0
    assert torch.equal(torch.random.get_rng_state(), state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)


def test_interrupt_keeps_the_best(monkeypatch):
    net, inputs, step, calls = network(), mixture(), descent.Descent._step, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 25:
            raise KeyboardInterrupt
        return step(*arguments)

    monkeypatch.setattr(descent.Descent, "_step", interrupted)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        found = finetune(net, wrong("dense", net), inputs, **SHORT)
    assert found.report.details["reason"] == "interrupted"
    assert 0 < found.report.details["best_step"] <= found.report.iterations == 25
    assert found.report.fvu < found.report.details["fvu_before"]


@kinds
def test_learning_rate_has_no_units(kind):
    """Inputs a thousand times larger and outputs a million times smaller: the same descent."""
    plain, scaled = network(), network(inputs=1e3, outputs=1e-6)
    one = finetune(plain, wrong(kind, plain), mixture(), **SHORT)
    start = wrong(kind, plain)
    if kind == "dense":
        parts = (start.center * 1e3, start.constant * 1e-6, start.linear * 1e-9, start.quadratic * 1e-12)
        start = mp.polynomials.DensePolynomial(*parts)
    else:
        start = mp.polynomials.ChaosPolynomial(
            start.center * 1e3, start.whitener / 1e3, start.exponents, start.values * 1e-6
        )
    two = finetune(scaled, start, mixture(scale=1e3), **SHORT)
    np.testing.assert_allclose(two.report.history, one.report.history, rtol=1e-3)


def test_torch_networks_in_training_are_left_alone():
    """Also where gradients are off, with inputs of no library, and with weights of 16 bits."""
    net, inputs = network(backend=BACKENDS[2]), mixture(BACKENDS[2])
    net.W1.requires_grad_()
    before = net.W1.detach().clone()
    with torch.no_grad():
        found = finetune(net, mp.fit(net, mp.Gaussian.standard(D)), inputs, **SHORT)
    assert found.report.fvu < found.report.details["fvu_before"]
    assert torch.equal(net.W1, before) and net.W1.grad is None
    assert not found.linear.requires_grad
    found = finetune(net, mp.fit(net, inputs, degree=1), mp.Gaussian.standard(D), **SHORT)
    assert found.report.fvu < found.report.details["fvu_before"] and isinstance(found.inputs.mean, torch.Tensor)
    net = network(backend=BACKENDS[3])
    low = mp.MLP(*(w.bfloat16() for w in (net.W1, net.b1, net.W2, net.b2)))
    start = mp.fit(low, mp.Gaussian.standard(D), degree=2)
    found = finetune(low, start, mixture(BACKENDS[3]).sample(4000), **SHORT)
    assert found.linear.dtype == torch.float32
    assert found.report.fvu < 0.6 * found.report.details["fvu_before"]


def test_activation_of_the_user_in_their_own_library():
    net = network()
    own = mp.MLP(net.W1, net.b1, net.W2, net.b2, activation=lambda a: np.where(np.asarray(a) > 0, np.asarray(a), 0.0))
    start = wrong("dense", net)
    one, two = (finetune(f, start, mixture(), **SHORT) for f in (net, own))
    np.testing.assert_allclose(one.quadratic, two.quadratic, rtol=1e-9)


@kinds
def test_library_and_dtype_are_kept(kind, backend):
    net, inputs = network(backend=backend), mixture(backend)
    start = map_polynomial(wrong(kind, network()), lambda a: make(a, backend))
    found = finetune(net, start, inputs, **SHORT)
    assert found.report.fvu < 0.6 * found.report.details["fvu_before"]
    own, before = (arrays_of(replace(p, inputs=None)) for p in (found, start))
    assert own.keys() == before.keys()
    for array in own.values():
        assert_same_kind(array, start.prototype)
    x = make(mixture().sample(1000, seed=3), backend)
    assert_same_kind(found(x), start(x))
    errors = [float(np.mean(to_numpy(net(x) - p(x)) ** 2)) for p in (start, found)]
    assert errors[1] < 0.7 * errors[0]
    if backend.dtype == "float64":  # the samples are the same in all libraries, so the answers are
        same = finetune(network(), wrong(kind, network()), mixture(), **SHORT)
        np.testing.assert_allclose(to_numpy(found(x)), same(to_numpy(x)), rtol=1e-6, atol=1e-9)


def polynomial(kind, degree):
    g = mp.Gaussian.from_samples(np.random.default_rng(3).standard_normal((50, D)) + 1)
    if kind == "dense":
        return to_dense(mp.fit(network(), g, degree=degree), g.mean)
    return mp.fit(network(), mixture(), degree=3).truncate(degree)


@pytest.mark.parametrize("shape", [("dense", 0), ("dense", 1), ("dense", 2), ("chaos", 2), ("chaos", 3)], ids=str)
@pytest.mark.parametrize("batch_size", [8, 4096])
@pytest.mark.parametrize("flat", [False, True], ids=["", "an input that does not vary"])
def test_parameters_change_no_value(shape, batch_size, flat):
    poly = polynomial(*shape)
    x = torch.tensor(mixture().sample(500, seed=1))
    if flat:
        x[:, 1] = 0.5
    made = trainable(in_torch(poly), x, batch_size)
    everywhere = torch.tensor(3 * np.random.default_rng(0).standard_normal((50, D)))
    expected = poly(everywhere.numpy())
    tolerance = 1e-10 * np.abs(expected).max()
    got = made.polynomial(made.parameters)(everywhere).numpy()
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)
    got = made.build(made.parameters)(everywhere).numpy()
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)
    moved_on = [p + 0.1 for p in made.parameters]  # negative control, and both routes agree away from the start too
    one = made.polynomial(moved_on)(everywhere).numpy()
    assert np.abs(one - expected).max() > 1e-3
    two = made.build(moved_on)(everywhere).numpy()
    np.testing.assert_allclose(two, one, rtol=0, atol=1e-10 * np.abs(one).max())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"steps": 0}, ValueError, "steps must be at least 1"),
        ({"loss": "mae"}, ValueError, "loss must be 'mse' or 'kl'"),
        ({"learning_rate": float("nan")}, ValueError, "learning_rate must be positive"),
        ({"inputs": np.ones((50, 3))}, ValueError, "inputs have dimension 3"),
        ({"inputs": np.ones((9, 4))}, ValueError, "too few to hold some out"),
        ({"inputs": mp.Samples(np.ones((50, 4)), 1.0 * (np.arange(50) < 9))}, ValueError, "9 rows with a weight"),
        ({"inputs": np.ones((50, 4))}, ValueError, "constant on the held-out samples"),
        ({"inputs": "digits"}, TypeError, "must be a Gaussian"),
        ({"inputs": mp.Gaussian.standard(4, torch.zeros(1))}, TypeError, "different array libraries"),
        ({"poly": "p"}, TypeError, "poly must be a polynomial"),
        ({"poly": mp.fit(network(), mp.Gaussian.standard(D), 3)}, TypeError, "RidgePolynomial of degree 3; .*joint"),
        ({"net": torch.nn.Linear(4, 2)}, TypeError, "from_torch"),
        ({"net": network(readout=False)}, ValueError, "net maps 4 -> 8, but poly maps 4 -> 2"),
        ({"net": network(backend=BACKENDS[2])}, TypeError, "different array libraries"),
    ],
    ids=str,
)
def test_errors(changes, error, message):
    net = network()
    given = {"poly": wrong("dense", net), "net": net, "inputs": mixture()} | changes
    with pytest.raises(error, match=message):
        finetune(given.pop("net"), given.pop("poly"), given.pop("inputs"), **given)


@pytest.mark.parametrize("package", ["torch", "schedulefree"])
def test_missing_package_names_the_remedy(package, monkeypatch):
    net, inputs = network(), mixture()
    start = wrong("dense", net)
    monkeypatch.delitem(sys.modules, "mlpoly.fitting.descent")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"finetune needs {package}.*pip install 'mlpoly\[torch\]'"):
        finetune(net, start, inputs)
