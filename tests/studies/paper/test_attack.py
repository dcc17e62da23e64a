"""Attacks against plain evaluation of network and polynomials on the changed images, and cases with known outcome."""

from dataclasses import astuple

import numpy as np
import pytest
from support.backends import NUMPY64, TORCH32, TORCH64, assert_close, make

import mlpoly as mp
from mlpoly.scores import accuracy_of_outputs
from mlpoly.studies.paper import attack
from mlpoly.studies.paper.attack import AttackCase, ablation_curve, ablation_pictures

D, H, OUT, N = 20, 24, 4, 300


def data(backend=NUMPY64, kind="mlp"):
    """A classifier with random hidden units, its linear and quadratic polynomial under a mixture, images, labels."""
    rng = np.random.default_rng(7)
    labels = np.arange(N) % OUT
    x = 1 + 1.5 * rng.normal(size=(OUT, D))[labels] + rng.normal(size=(N, D))
    weights = [rng.normal(size=(H, D)) / 3, rng.normal(size=H), rng.normal(size=(H, D)) / 3, rng.normal(size=H)]

    def layer(parts, down, shift):
        if kind == "mlp":
            return mp.MLP(parts[0], parts[1], down, shift, "relu")
        return mp.GLU(*parts, down, shift, "silu")

    # A least-squares readout makes a classifier of the random units; the rest gives their logits full rank.
    units = np.column_stack([layer(weights, None, None)(x), np.ones(N)])
    readout = 5 * np.linalg.lstsq(units, np.eye(OUT)[labels], rcond=None)[0].T + rng.normal(size=(OUT, H + 1)) / 20
    net = layer(*([make(w, backend) for w in weights], make(readout[:, :-1], backend), make(readout[:, -1], backend)))
    x = make(x, backend)
    inputs = mp.GaussianMixture.from_labels(x, labels, shrinkage=0.1)
    return net, mp.fit(net, inputs, 1), mp.fit(net, inputs, 2), x, labels


def shares(models, images, labels):
    return [float(accuracy_of_outputs(m(images), labels)) for m in models]


@pytest.mark.parametrize("kind", ["mlp", "glu"])
def test_every_accuracy_is_that_of_plain_evaluation(monkeypatch, kind):
    net, linear, quadratic, x, labels = data(kind=kind)
    bases, ablated = [], attack._ablated
    monkeypatch.setattr(attack, "_ablated", lambda case, basis: bases.append(basis) or ablated(case, basis))
    cov = mp.Gaussian.from_samples(x).cov
    found = ablation_curve(AttackCase(net, linear, quadratic, x, labels), cov, seed=3, draws=2, step=16)
    kinds = {"singular": bases[:1], "random": bases[1:3], "pca": bases[3:]}
    assert len(bases) == 4
    assert [(a.seed, a.directions, a.k) for a in found] == [(3, name, k) for name in kinds for k in range(OUT + 1)]
    assert {a.step for a in found} == {16}
    for a in found:
        each = [shares((net, linear, quadratic), mp.ablate(x, basis[: a.k]), labels) for basis in kinds[a.directions]]
        assert_close([a.network, a.linear, a.quadratic], np.mean(each, axis=0))
    for basis in bases:
        assert_close(basis @ basis.T, np.eye(OUT), 1e-12)


def test_directions_are_what_they_are_called(rng, monkeypatch):
    case, bases, ablated = AttackCase(*data()), [], attack._ablated
    monkeypatch.setattr(attack, "_ablated", lambda case, basis: bases.append(basis) or ablated(case, basis))
    scales = np.arange(1.0, D + 1)
    frame = np.linalg.qr(rng.normal(size=(D, D)))[0]
    ablation_curve(case, (frame * scales) @ frame.T, seed=0, draws=1)
    assert_close(bases[0], mp.singular_directions(case.linear).vectors)
    last = frame[:, ::-1][:, :OUT]  # the largest variances
    assert_close(np.abs(bases[2] @ last), np.eye(OUT), 1e-12)


def test_a_silenced_linear_map_says_its_constant():
    case = AttackCase(*data())
    found = ablation_curve(case, np.eye(D), seed=0)
    last, control = (next(a for a in found if (a.directions, a.k) == (name, OUT)) for name in ("singular", "random"))
    said = int(case.linear.coefficients().constant.argmax())
    assert last.linear == pytest.approx(np.mean(case.labels == said), abs=1e-12)
    # Negative control: as many random directions leave it better than that.
    assert control.linear > last.linear + 0.1
    assert control.network > last.network + 0.1


def test_pictures():
    net, linear, quadratic, x, labels = data()
    found = ablation_pictures(AttackCase(net, linear, quadratic, x, labels), label=2)
    choices = net(x).argmax(axis=1)
    first = {c: np.flatnonzero((labels == c) & (choices == c))[0] for c in range(OUT)}
    basis = mp.singular_directions(linear).vectors
    expected = [mp.ablate(x[first[2]], basis[:k]) for k in range(OUT + 1)]
    assert_close(found.ladder, expected, 1e-6)  # float32 pictures
    assert found.ladder_label == 2
    assert found.ladder_choices == tuple(net(np.array(expected)).argmax(axis=1))
    assert found.ladder_choices[0] == 2
    assert found.labels == (0, 1, 2, 3)
    digits = x[list(first.values())]
    assert_close(found.digits, digits, 1e-6)
    assert_close(found.ablated, mp.ablate(digits, basis), 1e-6)
    assert found.choices == tuple(net(mp.ablate(digits, basis)).argmax(axis=1))
    assert found.ladder.dtype == found.digits.dtype == found.ablated.dtype == np.float32
    assert all(type(c) is int for c in (*found.labels, *found.choices, *found.ladder_choices))


@pytest.mark.parametrize("backend", [TORCH64, TORCH32], ids=lambda b: b.name)
def test_torch_gives_what_numpy_gives(backend):
    def curves(given):
        case = AttackCase(*given)
        table = [astuple(a)[3:] for a in ablation_curve(case, mp.Gaussian.from_samples(case.images).cov, seed=1)]
        return np.array(table), ablation_pictures(case, label=0)

    table, pictures = curves(data(backend))
    exact_table, exact_pictures = curves(data())
    # In float32 the mixture fit itself differs, and an image on an edge may fall to the other side.
    edge = 1e-12 if backend is TORCH64 else 2.5 / N
    assert np.abs(table - exact_table).max() <= edge
    assert_close(pictures.ladder, exact_pictures.ladder, 1e-6 if backend is TORCH64 else 1e-4)
    assert pictures.labels == exact_pictures.labels
