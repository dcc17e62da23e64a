"""Degenerate networks and inputs: right, not special."""

from dataclasses import fields
from functools import partial

import numpy as np
import pytest
from support import networks
from support.backends import assert_close
from support.inputs import covariance

import mlpoly as mp
from mlpoly.records import replace
from mlpoly.units import Units

DEGREES = range(5)
ACTIVATIONS = ("relu", "step", "gelu", "silu", "softsign", "sin", "cube", lambda y: y / (1 + y * y))


mlp, glu = (partial(kind, d=3, h=5, o=2) for kind in (networks.mlp, networks.glu))
NETS = pytest.mark.parametrize("build", [mlp, glu])


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_neurons_without_variance_are_constants(activation, degree, rng):
    """Neurons 0 and 1 see only the input that never changes; the others are fitted as if alone."""
    net = mlp(rng, activation=activation)
    W1 = net.W1.copy()
    W1[:2, :2] = 0
    net = mp.MLP(W1, net.b1, net.W2, net.b2, activation=activation)
    gaussian = mp.Gaussian(rng.standard_normal(3), np.array([1.0, 0.5, 0.0]))
    still = mp.MLP(W1[:2], net.b1[:2], net.W2[:, :2], net.b2, activation=activation)
    moving = mp.MLP(W1[2:], net.b1[2:], net.W2[:, 2:], None, activation=activation)
    x = rng.standard_normal((10, 3))
    expected = still(gaussian.mean) + mp.fit(moving, gaussian, degree)(x)
    assert_close(mp.fit(net, gaussian, degree)(x), expected)


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_gate_without_variance_scales_its_partner(activation, degree, rng):
    """act(y) z with constant y is act(m) z: exact from degree 1, its mean at degree 0."""
    net = glu(rng, activation=activation)
    W_gate = np.zeros((5, 3))
    W_gate[:, 2] = net.W_gate[:, 2]
    net = mp.GLU(W_gate, net.b_gate, net.W_up, net.b_up, net.W_down, net.b_down, activation=activation)
    gaussian = mp.Gaussian(rng.standard_normal(3), np.array([1.0, 0.5, 0.0]))
    x = gaussian.sample(10)
    expected = net(x) if degree else np.broadcast_to(net(gaussian.mean), (10, 2))
    assert_close(mp.fit(net, gaussian, degree)(x), expected)


@NETS
@pytest.mark.parametrize("degree", DEGREES)
def test_zero_weights_give_the_constant_network(build, degree, rng):
    net = build(rng)
    zeros = {name: 0 * value for name, value in vars(net).items() if name.startswith("W") and name[1:] not in "2_down"}
    net = replace(net, **zeros)
    x = rng.standard_normal((4, 3))
    poly = mp.fit(net, mp.Gaussian(np.ones(3), covariance(rng, 3)), degree)
    assert_close(poly(x), net(x))
    assert not np.any(poly.gradient(x))


@NETS
@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("rank", [1, 2])
def test_singular_covariance_is_the_fit_inside_its_range(build, rank, degree, rng):
    """x = mean + L z with z in fewer dimensions: the pulled-back network under N(0, I) is the same problem."""
    net, mean = build(rng), rng.standard_normal(3)
    L = rng.standard_normal((3, rank))
    if build is mlp:
        inner = mp.MLP(net.W1 @ L, net.b1 + net.W1 @ mean, net.W2, net.b2, activation="relu")
    else:
        up = net.b_up + net.W_up @ mean
        inner = mp.GLU(net.W_gate @ L, net.b_gate + net.W_gate @ mean, net.W_up @ L, up, net.W_down, net.b_down)
    z = rng.standard_normal((10, rank))
    poly = mp.fit(net, mp.Gaussian(mean, L @ L.T), degree)
    assert_close(poly(mean + z @ L.T), mp.fit(inner, mp.Gaussian.standard(rank), degree)(z))


@NETS
@pytest.mark.parametrize("degree", DEGREES)
def test_neurons_in_the_null_space_up_to_rounding(build, degree, rng):
    """The variance of such a neuron is rounding noise of either sign; on the support the fit is still right."""
    net = build(rng, d=6)
    L = rng.standard_normal((6, 3))
    null = np.linalg.svd(L.T)[2][3:]
    rows = rng.standard_normal((5, 3)) @ null
    first = "W1" if build is mlp else "W_gate"
    net = replace(net, **{first: rows, "activation": mp.activations.get("tanh")})
    gaussian = mp.Gaussian(rng.standard_normal(6), L @ L.T)
    x = gaussian.mean + rng.standard_normal((10, 3)) @ L.T
    expected = net(x) if degree or build is mlp else np.broadcast_to(net(gaussian.mean), (10, 2))
    assert_close(mp.fit(net, gaussian, degree)(x), expected)


@NETS
@pytest.mark.parametrize("degree", DEGREES)
def test_identity_diagonal_and_full_covariance_agree(build, degree, rng):
    net, mean, variances = build(rng), rng.standard_normal(3), np.array([0.5, 2.0, 1.0])
    x = rng.standard_normal((10, 3))
    full = mp.fit(net, mp.Gaussian(mean, np.diag(variances)), degree)(x)
    assert_close(mp.fit(net, mp.Gaussian(mean, variances), degree)(x), full)
    identity = mp.fit(net, mp.Gaussian(mean, np.eye(3)), degree)(x)
    assert_close(mp.fit(net, mp.Gaussian(mean), degree)(x), identity)
    assert_close(mp.fit(net, mp.Gaussian(mean, np.ones(3)), degree)(x), identity)


@NETS
@pytest.mark.parametrize(("d", "h", "o"), [(1, 1, 1), (1, 4, 2), (4, 1, 2), (3, 7, 1), (7, 3, 4)])
@pytest.mark.parametrize("degree", DEGREES)
def test_any_sizes(build, d, h, o, degree, rng):
    net = build(rng, d=d, h=h, o=o, activation="cube")
    assert (net.dim_in, net.dim_hidden, net.dim_out) == (d, h, o)
    gaussian = mp.Gaussian(rng.standard_normal(d), covariance(rng, d) + np.eye(d))
    poly = mp.fit(net, gaussian, degree)
    assert (poly.degree, poly.dim_in, poly.dim_out) == (degree, d, o)
    assert poly(rng.standard_normal((2, 5, d))).shape == (2, 5, o)
    assert poly(rng.standard_normal(d)).shape == (o,)
    exact = mp.fit(net, gaussian, 4)
    x = gaussian.sample(3)
    assert_close(exact(x), net(x))
    assert_close(poly(x), exact.truncate(degree)(x))


@NETS
def test_high_degree_stays_finite(build, rng):
    net, gaussian = build(rng), mp.Gaussian(rng.standard_normal(3), covariance(rng, 3))
    poly = mp.fit(net, gaussian, degree=60)
    x = gaussian.sample(50)
    assert np.all(np.isfinite(poly(x)))
    assert_close(poly.truncate(3)(x), mp.fit(net, gaussian, degree=3)(x))


@pytest.mark.parametrize("degree", DEGREES)
def test_a_missing_readout_is_the_identity_and_missing_biases_are_zeros(degree, rng):
    gaussian, x = mp.Gaussian(rng.standard_normal(3), covariance(rng, 3)), rng.standard_normal((6, 3))
    a, b, bias, zero, eye = mlp(rng), glu(rng), rng.standard_normal(5), np.zeros(5), np.eye(5)
    first, both = (a.W1, a.b1), (b.W_gate, b.b_gate, b.W_up, b.b_up)
    for short, explicit in (
        (mp.MLP(*first), mp.MLP(*first, eye)),
        (mp.MLP(*first, None, bias), mp.MLP(*first, eye, bias)),
        (mp.GLU(*both), mp.GLU(*both, eye)),
        (mp.GLU(*both, None, bias), mp.GLU(*both, eye, bias)),
        (mp.MLP(a.W1, None, a.W2), mp.MLP(a.W1, zero, a.W2, zero[:2])),
        (mp.GLU(b.W_gate, None, b.W_up, None, b.W_down), mp.GLU(b.W_gate, zero, b.W_up, zero, b.W_down, zero[:2])),
    ):
        assert_close(short(x), explicit(x), 1e-15)
        got, want = mp.fit(short, gaussian, degree), mp.fit(explicit, gaussian, degree)
        assert_close(got(x), want(x), 1e-15)
        assert_close(got.gradient(x), want.gradient(x), 1e-14)
        assert_close(got.hessian(x[0]), want.hessian(x[0]), 1e-14)
        for k in range(degree + 1):
            assert_close(got.coefficients().tensor(k), want.coefficients().tensor(k), 1e-14)


def scaled(net, factor, dtype):
    """The network with its first weights and biases, or only those of the gate, times a factor."""
    made = {f.name: getattr(net, f.name) for f in fields(net)}
    for name in ("W1", "b1", "W_gate", "b_gate"):
        if name in made:
            made[name] = made[name] * factor
    return type(net)(**{name: a.astype(dtype) if isinstance(a, np.ndarray) else a for name, a in made.items()})


SIZES = [(np.float64, 2.0**-664), (np.float32, 2.0**83), (np.float32, 2.0**-83)]


def test_preactivations_of_any_size_are_scaled(rng):
    W, V, cov = rng.standard_normal((5, 3)), rng.standard_normal((5, 3)), covariance(rng, 3)
    for inputs in (mp.Gaussian(np.ones(3), cov), mp.Gaussian(np.ones(3), np.diagonal(cov)), mp.Gaussian.standard(3)):
        reference = Units.under(mp.GLU(W, None, V), inputs)
        for factor in (2.0**664, 2.0**-664):
            found = Units.under(mp.GLU(W * factor, None, V), inputs)
            for name in ("shifts", "scales"):
                np.testing.assert_array_equal(getattr(found, name) / factor, getattr(reference, name))
            for name in ("shifts", "slopes"):  # the second factor, and its slope in t, know no size of W
                np.testing.assert_array_equal(getattr(found.gate, name), getattr(reference.gate, name))


@pytest.mark.parametrize(("dtype", "factor"), SIZES, ids=["1e-200", "float32 1e25", "float32 1e-25"])
@pytest.mark.parametrize("build", [lambda rng: mlp(rng), lambda rng: glu(rng, activation="relu")], ids=["mlp", "glu"])
def test_relu_networks_of_any_size_have_scaled_fits(build, dtype, factor, rng):
    """A network of relu units is homogeneous in its first weights, and so is its fit, which is known at size one."""
    net = scaled(build(rng), 1.0, dtype)
    cov = covariance(rng, 3)
    cov = ((cov + cov.T) / 2).astype(dtype)
    for inputs in (mp.Gaussian(np.ones(3, dtype), cov), mp.Gaussian.standard(3)):
        reference = mp.fit(net, inputs, 2)
        poly = mp.fit(scaled(net, factor, dtype), inputs, 2)
        # Powers of two change no digit; the few roundings that differ come from the constants inside the coefficients.
        tolerance = 100 * np.finfo(dtype).eps
        assert_close(poly.units.scales / factor, reference.units.scales, tolerance)
        assert_close(poly.series.plain / factor, reference.series.plain, tolerance)
        x = rng.standard_normal((20, 3)).astype(dtype)
        values, expected = (replace(p, bias=None)(x) for p in (poly, reference))
        assert_close(values / factor, expected, 10 * tolerance)


@pytest.mark.parametrize("form", ["diagonal", "full"])
@pytest.mark.parametrize("size", [2.0**60, 2.0**-60, 1.0])
def test_covariances_of_any_size_have_scaled_spreads(size, form, rng):
    """In float32, where squares of 2^60 times weights of 2^10 are out of range."""
    W = (1024 * rng.standard_normal((5, 3))).astype(np.float32)
    cov = np.diag(rng.uniform(1, 2, 3)) if form == "diagonal" else covariance(rng, 3) + np.eye(3)
    cov = ((cov + cov.T) / 2).astype(np.float32)
    expected = size * np.sqrt(np.einsum("hi,ij,hj->h", W.astype(float), cov.astype(float), W.astype(float)))
    given = np.diagonal(cov) if form == "diagonal" else cov
    inputs = mp.Gaussian(np.zeros(3, np.float32), given * np.float32(size) ** 2)
    assert_close(mp.fit(mp.MLP(W), inputs, 1).units.scales, expected, 1e-6)


def test_preactivations_out_of_range_are_refused():
    for W, mean in ((1e200, 1e200), (1e200, 0.0)):
        inputs = mp.Gaussian(np.full(2, mean), np.full(2, 1e250))
        with pytest.raises(ValueError, match=r"too large for float64; scale the first weights or the inputs down"):
            mp.fit(mp.MLP(W * np.eye(2)), inputs, 1)
    wide = mp.Gaussian(np.zeros(2), np.full(2, 1e80))
    with pytest.raises(ValueError, match="too large for float32"):
        mp.fit(mp.MLP(np.float32(1e20) * np.eye(2, dtype=np.float32)), wide, 1)


def test_spreads_too_small_for_their_inverse_are_none():
    """Dead units of trained networks have such weights."""
    for dtype, small in ((np.float32, 1e-42), (np.float64, 1e-312)):
        W = np.array([[small, 0], [1, 1]], dtype)
        poly = mp.fit(mp.MLP(W, None, np.ones((1, 2), dtype)), mp.Gaussian.standard(2), 3)
        assert poly.units.scales[0] == 0 < poly.units.scales[1]
        assert np.isfinite(poly(np.ones((3, 2), dtype))).all()
