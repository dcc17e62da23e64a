"""All measures at once: they are those of the functions for each, to the last bit."""

import dataclasses

import numpy as np
import pytest
import torch
from support.backends import NUMPY32, NUMPY64, TORCH32, TORCH64, Backend, backends, in_library, make, to_numpy
from support.networks import network

import mlpoly as mp
from mlpoly.measures import Comparison, compare
from mlpoly.scores import accuracy_of_outputs, agreement_of_outputs

D, H, OUT, N = 6, 9, 3, 400


def case(backend=NUMPY64, kind="MLP", n=N, degree=2):
    """A network, a polynomial of it, samples and labels."""
    rng = np.random.default_rng(3)
    activation = "relu" if kind == "MLP" else "silu"
    net = in_library(network(kind, activation, D, H, OUT, seed=rng, scale=D**0.5, up=D**0.5), backend)
    poly = mp.fit(net, mp.Gaussian.standard(D, like=net.prototype), degree=degree)
    return net, poly, make(rng.normal(size=(n, D)), backend), rng.integers(0, OUT, n)


def assert_same(a, b):
    """Two records of numbers are equal to the last bit, in the same library and dtype."""
    assert type(a) is type(b)
    if dataclasses.is_dataclass(a):
        for f in dataclasses.fields(a):
            assert_same(getattr(a, f.name), getattr(b, f.name))
    elif a is not None:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(to_numpy(a), to_numpy(b), strict=True)


@pytest.mark.parametrize("n", [N, 20_000])  # in one block and in several
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@backends(NUMPY64, NUMPY32, TORCH64, TORCH32)
def test_the_same_as_one_by_one(backend, kind, n):
    net, poly, x, labels = case(backend, kind, n)
    found = compare(net, poly, x, labels)
    assert_same(found.fvu, mp.fvu(net, poly, x))
    assert_same(found.kl, mp.kl(net, poly, x))
    assert_same(found.agreement, agreement_of_outputs(net(x), poly(x)))
    assert_same(found.accuracy, accuracy_of_outputs(poly(x), labels))
    assert_same(found.network_accuracy, accuracy_of_outputs(net(x), labels))
    # The case can tell them apart.
    assert 0 < float(found.accuracy) != float(found.network_accuracy) < 1
    assert 0 < float(found.agreement) < 1
    assert float(found.kl) > 0


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@backends(NUMPY64, TORCH32)
def test_several_polynomials_take_one_evaluation_of_the_network(backend, kind):
    net, poly, x, labels = case(backend, kind)
    calls = []

    def counted(x):
        calls.append(len(x))
        return net(x)

    together = compare(counted, {"poly": poly, "itself": net}, x, labels)
    assert calls == [N] and list(together) == ["poly", "itself"]
    for name, model in (("poly", poly), ("itself", net)):
        assert_same(together[name], compare(net, model, x, labels))
    assert float(together["itself"].fvu.total) == float(together["itself"].kl.mean) == 0
    assert "itself" in str(together) and "network_accuracy" in str(together)


def test_labels_are_optional_and_of_any_library():
    net, poly, x, labels = case()
    without = compare(net, poly, x)
    assert isinstance(without, Comparison)
    assert without.accuracy is without.network_accuracy is None
    whole = compare(net, poly, x, labels)
    assert_same(without, dataclasses.replace(whole, accuracy=None, network_accuracy=None))
    for same in (labels.tolist(), torch.tensor(labels), labels.astype(np.uint8)):
        assert_same(compare(net, poly, x, same), whole)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"inputs": np.zeros((5, D + 1))}, ValueError, "inputs have 7 columns"),
        ({"inputs": np.zeros(D)}, ValueError, "inputs has shape"),
        ({"inputs": np.zeros((1, D))}, ValueError, "inputs have 1 rows; a variance needs at least 2"),
        ({"inputs": np.full((5, D), np.nan)}, ValueError, "x holds NaN"),
        ({"inputs": mp.Gaussian.standard(D)}, TypeError, r"inputs must be data .*inputs\.sample"),
        ({"labels": np.zeros(N)}, TypeError, "labels must be integers, got dtype float64"),
        (
            {"labels": ["a"] * N},
            TypeError,
            r"labels must be integers, .*use numpy.unique\(labels, .*order of the sorted",
        ),
        ({"labels": np.zeros(N - 1, int)}, ValueError, "labels have shape .399,., expected .400,"),
        ({"poly": {}}, ValueError, "poly is an empty mapping"),
        ({"net": lambda x: x}, ValueError, r"^poly\(x\) has shape \(400, 3\), expected \(400, 6\)"),
        ({"poly": lambda x: x}, ValueError, r"^poly\(x\) has shape \(400, 6\), expected \(400, 3\)"),
        ({"net": "net"}, TypeError, "^net must be .*callable"),
        ({"poly": "poly"}, TypeError, "^poly must be .*callable"),
        ({"poly": lambda x: x[:, 0]}, ValueError, r"^poly\(x\) has shape \(400,\).*as many columns"),
        ({"poly": lambda x: x.tolist()[0]}, ValueError, r"^poly\(x\) has shape"),
        ({"poly": mp.polynomials.DensePolynomial(np.zeros(D), np.zeros(OUT + 1))}, ValueError, "6 -> 4"),
        ({"net": lambda x: np.zeros((len(x), OUT))}, ValueError, "no variance"),
    ],
)
def test_errors(changes, error, message):
    net, poly, x, labels = case()
    given = {"net": net, "poly": poly, "inputs": x, "labels": labels} | changes
    with pytest.raises(error, match=message):
        compare(**given)
    if changes.keys() <= {"net", "poly"} and "no variance" not in message and "mapping" not in message:
        with pytest.raises(error, match=message):
            mp.kl(given["net"], given["poly"], x)


@pytest.mark.parametrize("kind", ["torch bfloat16", "torch float16", "numpy float16", "jax bfloat16"])
def test_more_classes_than_a_16_bit_float_counts(kind):
    """bfloat16 has no 257, float16 no 2049; places and labels are integers."""
    library, dtype = kind.split()
    n = 2100
    one_hot = make(np.eye(n), Backend(library, dtype))
    assert float(accuracy_of_outputs(one_hot, np.arange(n))) == 1
    assert float(accuracy_of_outputs(one_hot, np.full(n, n - 1))) == pytest.approx(1 / n)
    assert float(agreement_of_outputs(one_hot, one_hot)) == 1
    shifted = make(np.roll(np.eye(n), 1, axis=1), Backend(library, dtype))
    assert float(agreement_of_outputs(one_hot, shifted)) == 0


@backends(NUMPY64, TORCH32)
def test_any_callable_can_be_judged_on_data(backend):
    net, poly, x, labels = case(backend, n=20_000)
    for f, p in ((lambda x: net(x), poly), (net, lambda x: poly(x)), (lambda x: net(x), lambda x: poly(x))):
        assert_same(compare(f, p, x, labels), compare(net, poly, x, labels))
        assert_same(mp.fvu(f, p, x), mp.fvu(net, poly, x))
        assert_same(mp.kl(f, p, x), mp.kl(net, poly, x))


def test_integers_are_data():
    net, poly, x, labels = case()
    whole = np.round(3 * x).astype(int)
    assert_same(compare(net, poly, whole, labels), compare(net, poly, whole.astype(float), labels))
    assert_same(mp.fvu(net, poly, whole), mp.fvu(net, poly, whole.astype(float)))
    assert_same(mp.kl(net, poly, whole), mp.kl(net, poly, whole.astype(float)))


@backends(NUMPY64, TORCH32)
def test_one_output_is_the_logit_of_class_one(backend):
    """Against the Bernoulli divergence by hand, and against the same classifier with two outputs."""
    rng = np.random.default_rng(3)
    net = mp.MLP(rng.standard_normal((8, 3)), rng.standard_normal(8), rng.standard_normal((1, 8)), None, "tanh")
    poly, x = mp.fit(net, mp.Gaussian.standard(3), 1), rng.standard_normal((400, 3))
    f, p = net(x)[:, 0], poly(x)[:, 0]
    labels = (f + rng.standard_normal(400) > 0).astype(int)
    one, two = 1 / (1 + np.exp(-f)), 1 / (1 + np.exp(-p))
    kl = np.mean(one * np.log(one / two) + (1 - one) * np.log((1 - one) / (1 - two)))
    wanted = (kl, np.mean((f > 0) == (p > 0)), np.mean((p > 0) == labels), np.mean((f > 0) == labels))
    found = mp.compare(in_library(net, backend), in_library(poly, backend), make(x, backend), labels)
    for value, want in zip(list(found.measures().values())[1:], wanted, strict=True):
        assert float(value) == pytest.approx(want, rel=100 * backend.tolerance)
    both = [lambda x, m=model: m(x) * np.array([-0.5, 0.5]) for model in (net, poly)]
    again = mp.compare(*both, x, labels)
    for name in ("kl", "agreement", "accuracy"):
        assert float(getattr(again, name)) == pytest.approx(float(getattr(found, name)), rel=100 * backend.tolerance)
    assert float(accuracy_of_outputs(x[:, :1] * 0, labels)) == np.mean(labels == 0)  # above 0, not at it
    with pytest.raises(ValueError, match=r"labels has -1, .*one output.* are 0 and 1; use \(labels == 1\).astype"):
        accuracy_of_outputs(net(x), 2 * labels - 1)
