"""Neurons that go on as straight lines beyond a bound: against the formula, in files, modules and sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import Backend, assert_close, make
from mlpoly.fitting.tails import with_tails

import mlpoly as mp
from mlpoly.fitting.samples import SampleFit
from mlpoly.polynomials import Tails

BOUND = 2.0


def network(kind: str, activation: str = "silu", d: int = 3, h: int = 5) -> Any:
    w = np.random.default_rng(1).standard_normal
    if kind == "MLP":
        return mp.MLP(w((h, d)), w(h), w((2, h)), w(2), activation=activation)
    return mp.GLU(w((h, d)), w(h), w((h, d)), w(h), w((2, h)), w(2), activation=activation)


def polynomial(kind: str, degree: int = 3, activation: str = "silu") -> Any:
    net = network(kind, activation)
    inputs = mp.Gaussian(np.array([0.3, -0.5, 1.0]), np.diag([1.0, 0.5, 2.0]))
    return with_tails(net, mp.fit(net, inputs, degree), BOUND)


def points(n: int = 40) -> np.ndarray:
    return 3 * np.random.default_rng(2).standard_normal((n, 3))


def by_hand(poly: Any, x: np.ndarray) -> np.ndarray:
    """The definition, neuron by neuron: polynomials in powers of t."""
    hidden = np.zeros((x.shape[0], poly.directions.shape[0]))
    he = [lambda t: t**0, lambda t: t, lambda t: (t**2 - 1) / 2**0.5, lambda t: (t**3 - 3 * t) / 6**0.5]
    for i in range(hidden.shape[1]):
        t = (x @ poly.directions[i] - poly.shifts[i]) / poly.scales[i]
        held, low, high = np.clip(t, -BOUND, BOUND), np.minimum(t + BOUND, 0), np.maximum(t - BOUND, 0)

        def series(
            c: np.ndarray, slopes: np.ndarray | None, i: int = i, held: Any = held, low: Any = low, high: Any = high
        ) -> Any:
            line = 0 if slopes is None else slopes[0, i] * low + slopes[1, i] * high
            return sum(a * he[k](held) for k, a in enumerate(c[:, i])) + line

        hidden[:, i] = series(poly.series, poly.tails.slopes)
        if poly.gate is not None:
            e = x @ poly.gate.directions[i] - poly.gate.shifts[i] - poly.gate.slopes[i] * held
            hidden[:, i] += e * series(poly.gate.series, poly.tails.gate)
    return hidden @ poly.readout.T + poly.bias


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_values_are_those_of_the_definition(kind: str, degree: int, backend: Backend) -> None:
    poly, x = polynomial(kind, degree), points()
    moved = mp.records.replace(
        poly,
        inputs=None,
        **{name: make(getattr(poly, name), backend) for name in ("directions", "shifts", "scales", "series")},
        readout=make(poly.readout, backend),
        bias=make(poly.bias, backend),
        gate=None if poly.gate is None else type(poly.gate)(*(make(a, backend) for a in vars(poly.gate).values())),
        tails=Tails(*(a if a is None else make(a, backend) for a in (poly.tails.slopes, poly.tails.gate)), BOUND),
    )
    assert_close(moved(make(x, backend), bound=BOUND), by_hand(poly, x), 1e-4 if backend.dtype == "float32" else 1e-12)


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_within_the_bound_it_is_the_polynomial(kind: str) -> None:
    poly, x = polynomial(kind), points()
    t = (x @ poly.directions.T - poly.shifts) / poly.scales
    inside = np.abs(t).max(1) < BOUND
    assert 0 < inside.sum() < len(x)
    assert_close(poly(x[inside], bound=BOUND), poly(x[inside]), 1e-13)
    plain = mp.records.replace(poly, tails=None)
    assert_close(poly(x), plain(x), 0)  # and without a bound everywhere


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_slopes_of_relu_are_exact_far_away(kind: str) -> None:
    """ReLU is straight beyond any bound that leaves its kink inside: far away only the value at the bound is off."""
    net = network(kind, "relu")
    inputs = mp.Gaussian(np.zeros(3), 9 * np.eye(3))
    poly = with_tails(net, mp.fit(net, inputs, 4), BOUND)
    x = 1e6 * np.array([[1.0, 0.5, -0.3], [-0.7, 0.2, 1.0]])
    error = np.abs(poly(x, bound=BOUND) - net(x)) / np.abs(net(x))
    # The value at the bound is off by a constant; a gated unit multiplies it by the other factor, which is as large
    # as x, so that it is off by a factor of 1e-6 too, relative to x^2.
    assert error.max() < 1e-5
    assert np.abs(poly(x) / net(x)).min() > 1e6  # the polynomial itself explodes


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_truncation_sums_and_products_keep_the_lines(kind: str) -> None:
    poly, x = polynomial(kind), points()
    assert_close((poly + poly)(x, bound=BOUND), 2 * poly(x, bound=BOUND), 1e-13)
    assert_close((-3.0 * poly)(x, bound=BOUND), -3 * poly(x, bound=BOUND), 1e-13)
    hidden = mp.records.replace(poly, readout=None, bias=None)
    assert_close((2.0 * hidden)(x, bound=BOUND), 2 * hidden(x, bound=BOUND), 1e-13)
    held = mp.records.replace(poly, tails=None)
    assert_close((poly + held)(x, bound=BOUND), poly(x, bound=BOUND) + held(x, bound=BOUND), 1e-13)
    assert poly.truncate(0).tails is None
    assert poly.truncate(1).tails.gate is None
    assert_close(poly.truncate(2)(x, bound=BOUND), by_hand(poly.truncate(2), x), 1e-12)


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_files_hold_the_lines(kind: str, tmp_path: Any) -> None:
    poly, x = polynomial(kind), points()
    poly.save(tmp_path / "p.safetensors")
    assert_close(mp.load(tmp_path / "p.safetensors")(x, bound=BOUND), poly(x, bound=BOUND), 0)


def test_a_file_with_half_of_the_lines_is_refused(tmp_path: Any) -> None:
    from mlpoly.files import read_tensors, write_tensors

    polynomial("GLU").save(tmp_path / "p.safetensors")
    header, arrays = read_tensors(tmp_path / "p.safetensors")
    del arrays["tails.slopes"]
    assert header is not None
    write_tensors(tmp_path / "q.safetensors", arrays, header)
    with pytest.raises(mp.errors.FileFormatError, match="missing or misshapen"):
        mp.load(tmp_path / "q.safetensors")


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_the_module_has_the_lines_among_its_buffers(kind: str) -> None:
    torch = pytest.importorskip("torch")
    poly, x = polynomial(kind), points()
    module = poly.to_torch(bound=BOUND)
    assert_close(module(torch.tensor(x)), poly(x, bound=BOUND), 1e-13)
    assert "tails_slopes" in module.state_dict()
    fresh = polynomial(kind, activation="relu").to_torch(bound=BOUND)
    fresh.load_state_dict(module.state_dict())
    assert_close(fresh(torch.tensor(x)), poly(x, bound=BOUND), 1e-13)
    assert_close(module.polynomial(torch.tensor(x), bound=BOUND), poly(x, bound=BOUND), 1e-13)


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_the_module_compiles_and_gradients_flow_beyond_the_bound(kind: str) -> None:
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    module = polynomial(kind).to_torch(bound=BOUND)
    x = torch.tensor(points(), requires_grad=True)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    assert_close(compiled(x).detach(), module(x).detach(), 1e-13)
    far = torch.tensor(1e3 * np.eye(3), requires_grad=True)
    (gradient,) = torch.autograd.grad(module(far).sum(), far)
    step = 1e-3
    shifted = [module(far.detach() + step * s * torch.eye(3)[0]).sum(1) for s in (1.0, -1.0)]
    # Linear, or quadratic for a gated unit, that far out: a difference quotient is exact but for rounding.
    assert_close(gradient[:, 0], (shifted[0] - shifted[1]) / (2 * step), 1e-6)


def test_slopes_are_for_one_bound() -> None:
    """A bilinear unit is its own quadratic, and lines along it are exact, if they begin where they were made for."""
    net = mp.GLU(np.eye(2), None, np.array([[1.0, 0.5], [0.0, 2.0]]), np.ones(2), np.eye(2), None, "linear")
    inputs = mp.Gaussian(np.array([0.5, -1.0]), np.array([[1.0, 0.3], [0.3, 2.0]]))
    plain = mp.fit(net, inputs, 2)
    x = 5 * np.random.default_rng(0).standard_normal((30, 2))
    for bound in (0.5, 1.0, 4.0):
        assert_close(with_tails(net, plain, bound)(x, bound=bound), net(x), 1e-13)
    poly = with_tails(net, plain, 1.0)
    with pytest.raises(ValueError, match="begin at 1 standard deviations"):
        poly(x, bound=2.0)
    with pytest.raises(ValueError, match="different bounds"):
        poly + with_tails(net, plain, 2.0)
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match="with_tails"):
        poly.to_torch(bound=2.0)
    assert poly.to_torch().bound is None


def test_what_has_no_such_neurons_is_refused() -> None:
    net, other = network("GLU"), network("MLP")
    poly = mp.fit(net, mp.Gaussian.standard(3), 2)
    for wrong, given in ((other, poly), (network("GLU", h=4), poly), (net, poly + poly)):
        with pytest.raises(ValueError, match="fitted to"):
            with_tails(wrong, given, 2.0)
    with pytest.raises(TypeError, match="must be a RidgePolynomial"):
        with_tails(net, mp.polynomials.to_dense(poly, np.zeros(3)), 2.0)
    with pytest.raises(ValueError, match="bound must be a positive number"):
        with_tails(net, poly, 0.0)
    assert with_tails(net, poly, np.float32(2.0)).tails.bound == 2.0


def test_the_fit_to_samples_keeps_a_gate_that_only_lives_beyond_the_bound() -> None:
    """With one input the other factor is explained by the preactivation, but no longer where that is held."""
    rng = np.random.default_rng(3)
    net = mp.GLU(np.array([[1.3]]), np.zeros(1), np.array([[0.8]]), np.array([0.2]), np.eye(1), None, "silu")
    x = rng.standard_t(2, (4000, 1))
    inputs = mp.Gaussian.from_samples(x)
    closed, fitted = with_tails(net, mp.fit(net, inputs, 3), 2.0), SampleFit(net, inputs, 3, 2.0).update(x).polynomial()
    miss = [float(np.mean((p(x, bound=2.0) - net(x)) ** 2)) for p in (closed, fitted)]
    assert miss[1] < miss[0]
