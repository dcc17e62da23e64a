"""The degree spectrum and second moments of networks: exact identities, invariances, backends, errors."""

import itertools
import math

import jax
import numpy as np
import pytest
from support.backends import (
    JAX32,
    JAX64,
    NUMPY32,
    NUMPY64,
    TORCH32,
    TORCH64,
    assert_close,
    assert_same_kind,
    in_library,
)
from support.inputs import gaussian
from support.networks import glu, mlp, network

import mlpoly as mp
from mlpoly.inputs import GaussianMixture
from mlpoly.measures import degree_spectrum, fvu, second_moment

D, OUT = 4, 3


NETS = [(mlp, "relu"), (mlp, "hardtanh"), (mlp, "gelu"), (mlp, "silu"), (glu, "silu"), (glu, "relu"), (glu, "gelu")]


@pytest.mark.parametrize(("kind", "activation"), NETS)
def test_sums_to_the_total(kind, activation, rng):
    net, inputs = kind(rng, activation), gaussian(rng)
    s = degree_spectrum(net, inputs, degree=6)
    assert s.variance.shape == (6, OUT)
    np.testing.assert_allclose(s.variance.sum(0) + s.remainder, s.total, rtol=1e-13)
    moments = second_moment(net, inputs)
    np.testing.assert_allclose(s.total, np.diag(moments.cov), rtol=1e-11)
    np.testing.assert_allclose(moments.raw, moments.cov + np.outer(moments.mean, moments.mean), rtol=1e-14)
    assert np.all(s.variance >= 0) and np.all(s.remainder >= 0) and np.all(s.between == 0)
    assert s.overall.shape == (6,)
    np.testing.assert_allclose(s.overall.sum() + s.remainder.sum() / s.total.sum(), 1, rtol=1e-13)


@pytest.mark.parametrize(("kind", "activation"), NETS)
def test_unexplained_is_the_fvu_of_the_best_polynomials(kind, activation, rng):
    net, inputs = kind(rng, activation), gaussian(rng)
    s = degree_spectrum(net, inputs, degree=4)
    for n in range(1, 5):
        closed = fvu(net, mp.fit(net, inputs, degree=n), inputs)
        assert closed.total == pytest.approx(s.unexplained[n - 1], rel=1e-9, abs=1e-13)


@pytest.mark.parametrize(
    ("kind", "activation", "highest"), [(mlp, "identity", 1), (mlp, "cube", 3), (glu, "identity", 2)]
)
def test_a_polynomial_network_has_nothing_above_its_degree(kind, activation, highest, rng):
    net, inputs = kind(rng, activation), gaussian(rng)
    s = degree_spectrum(net, inputs, degree=6)
    assert np.all(s.variance[:highest] > 0)
    assert np.all(s.variance[highest:] <= 1e-24 * s.total)
    assert np.all(s.remainder <= 1e-12 * s.total)
    if highest == 1:
        linear = net.W2 @ net.W1
        np.testing.assert_allclose(s.variance[0], np.diag(linear @ inputs.cov @ linear.T), rtol=1e-12)


def test_one_relu():
    """Half-normal: variance 1/2 - 1/(2 pi), of which 1/4 is linear and 1/(4 pi) quadratic."""
    s = degree_spectrum(mp.MLP(np.eye(1), None, None, None, "relu"), mp.Gaussian.standard(1), degree=3)
    np.testing.assert_allclose(s.total, [0.5 - 0.5 / math.pi], rtol=1e-13)
    np.testing.assert_allclose(s.variance[:, 0], [0.25, 0.25 / math.pi, 0], atol=1e-15)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_units_without_variance_are_constants(activation, rng):
    """Singular inputs and zero rows: such units only shift the mean."""
    cov = np.diag([1.0, 0.5, 0.0, 0.0])
    inputs = mp.Gaussian(rng.standard_normal(D), cov)
    for net in (mlp(rng, activation), glu(rng, activation)):
        weight = net.W1 if isinstance(net, mp.MLP) else net.W_gate
        weight[:2, :2] = 0  # two units that see constant inputs only
        got = second_moment(net, inputs)
        x = inputs.sample(200_000, seed=3)
        f = net(x)
        error = np.sqrt(np.var((f - got.mean) ** 2, axis=0) / len(x))
        assert np.all(np.abs(np.mean((f - got.mean) ** 2, axis=0) - np.diag(got.cov)) < 5 * error)
    alone = mp.MLP(weight[:1], None, None, None, activation)
    assert degree_spectrum(alone, inputs).total.tolist() == [0.0]


def test_mixture_is_within_plus_between(rng):
    net = mlp(rng)
    parts, weights = [gaussian(rng), gaussian(rng)], np.array([0.3, 0.7])
    mixture = GaussianMixture.of(weights, parts)
    each = [second_moment(net, g) for g in parts]
    got = second_moment(net, mixture)
    np.testing.assert_allclose(got.raw, sum(w * m.raw for w, m in zip(weights, each, strict=True)), rtol=1e-12)
    s = degree_spectrum(net, mixture, degree=3)
    np.testing.assert_allclose(s.total, np.diag(got.cov), rtol=1e-12)
    np.testing.assert_allclose(s.variance.sum(0) + s.remainder + s.between, s.total, rtol=1e-12)
    assert np.all(s.between > 0)
    one = GaussianMixture.of(np.array([1.0]), parts[:1])
    np.testing.assert_allclose(degree_spectrum(net, one).variance, degree_spectrum(net, parts[0]).variance, rtol=1e-12)


QUICK = itertools.product([mlp, glu], [NUMPY32, TORCH64, TORCH32])
SLOW = [(mlp, JAX32), (mlp, JAX64), (glu, JAX32), (glu, JAX64)]  # JAX compiles many small steps
CASES = [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]


@pytest.mark.parametrize(("kind", "backend"), CASES, indirect=["backend"])
def test_backends(kind, backend, rng):
    """One code path for all libraries; a float32 network is measured in float64 and rounded at the end."""
    net = kind(rng, "relu", d=2, h=3, o=2)
    moved = in_library(net, backend)
    got = degree_spectrum(moved, mp.Gaussian.standard(2), degree=2)
    assert_same_kind(got.variance, moved.prototype)
    rounded = in_library(moved, NUMPY64)
    want = degree_spectrum(rounded, mp.Gaussian.standard(2), degree=2)
    tolerance = 1e-4 if backend.name == "jax-float32" else max(backend.tolerance, 1e-11)
    assert_close(got.variance, want.variance, tolerance)
    assert_close(got.remainder, want.remainder, tolerance * 10)


@pytest.mark.parametrize("activation", ["step", "jumprelu", "threshold(0.5, -1)"])
def test_jumps_in_jax_float32(activation):
    """The nodes of the kernel of jumps crowd so near to zero that their squares vanish in float32."""
    W, V = np.array([[1.0, 0.5], [1.0, 0.5], [-0.3, 2.0]], dtype=np.float32), np.ones((1, 3), dtype=np.float32)
    want = second_moment(mp.MLP(W, None, V, None, activation), mp.Gaussian.standard(2)).cov
    moved = mp.MLP(jax.numpy.asarray(W), None, jax.numpy.asarray(V), None, activation)
    assert_close(second_moment(moved, mp.Gaussian.standard(2)).cov, want, 1e-5)
    assert_close(degree_spectrum(moved, mp.Gaussian.standard(2), degree=1).total, want[0], 1e-5)


@pytest.fixture
def pyplot(monkeypatch):
    """Pyplot without a display and without figures."""
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    yield pyplot
    pyplot.close("all")


@pytest.mark.parametrize(("backend", "still_open"), [("inline", False), ("agg", True)])
def test_plot_is_shown_once_in_a_notebook(rng, pyplot, monkeypatch, backend, still_open):
    """What a cell has drawn as its value, pyplot no longer has when the notebook asks it at the end of the cell."""
    figure = degree_spectrum(mlp(rng), gaussian(rng), degree=4).plot()
    monkeypatch.setattr("matplotlib.get_backend", lambda: backend)
    with pytest.raises(NotImplementedError):  # IPython then draws it like any other figure
        figure._ipython_display_()
    assert pyplot.fignum_exists(figure.number) is still_open


def test_bad_input(rng):
    net = mlp(rng)
    with pytest.raises(ValueError, match="dimension 3, but the network takes 4"):
        degree_spectrum(net, mp.Gaussian.standard(3))
    with pytest.raises(ValueError, match=r"inputs has shape \(4,\), expected \(any, any\): data"):
        second_moment(net, np.zeros(4))
    with pytest.raises(TypeError, match="net must be"):
        second_moment(np.sin, mp.Gaussian.standard(4))
    with pytest.raises(ValueError, match="at least 1"):
        degree_spectrum(net, mp.Gaussian.standard(4), degree=0)
    still = degree_spectrum(net, mp.Gaussian(np.zeros(4), np.zeros(4)))
    assert still.total.tolist() == [0.0] * 3
    with pytest.raises(ValueError, match="no variance"):
        _ = still.overall


def test_spectrum_of_a_polynomial_on_samples():
    """All of a cubic is at degrees up to 3, as much as of its own values."""
    g = mp.Gaussian.standard(3)
    poly, x = mp.fit(network("MLP", "tanh", 3, 5, 2), g, 3), g.sample(500)
    found = mp.degree_spectrum(poly, x, 4)
    assert_close(found.variance[:3].sum(0), np.var(poly(x), axis=0), 1e-12)
    np.testing.assert_allclose(found.variance[3], 0, atol=1e-20)
