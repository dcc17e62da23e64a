"""Measures under jax.jit: one route for every value, the same numbers as outside, and right gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.backends import JAX32, JAX64

import mlpoly as mp
from mlpoly.records import map_arrays, replace

D, H, OUT = 4, 6, 2


def network(name, seed=0):
    rng = np.random.default_rng(seed)
    W, V = rng.normal(size=(2, H, D)) / np.sqrt(D)
    b, c = 0.5 * rng.normal(size=(2, H))
    readout, bias = rng.normal(size=(OUT, H)) / np.sqrt(H), rng.normal(size=OUT)
    if name.startswith("glu "):
        return mp.GLU(W, b, V, c, readout, bias, activation=name[4:])
    return mp.MLP(W, b, readout, bias, activation=(lambda y: y / (1 + y * y)) if name == "callable" else name)


def inputs():
    rng = np.random.default_rng(9)
    root = rng.normal(size=(D, D)) / np.sqrt(D)
    return mp.Gaussian(rng.normal(size=D), root @ root.T + 0.1 * np.eye(D))


MEASURES = {
    "fvu": lambda net, gaussian: mp.fvu(net, mp.fit(net, gaussian, 2), gaussian),
    "similarity": lambda net, gaussian: mp.similarity(net, mp.fit(net, gaussian, 2), gaussian),
    "second moment": mp.second_moment,
    "degree spectrum": functools.partial(mp.degree_spectrum, degree=3),
}
NUMBERS = {"fvu": "total", "similarity": "first", "second moment": "cov", "degree spectrum": "remainder"}
CASES = [("second moment", name) for name in ("relu", "hardtanh", "gelu", "tanh", "sin", "glu relu", "callable")]
CASES += [("fvu", "relu"), ("fvu", "glu silu"), ("similarity", "glu relu"), ("degree spectrum", "gelu")]


@pytest.mark.parametrize(("measure", "name"), CASES)
def test_jit_gives_the_value_without_it(measure, name):
    """In float64, up to the bound that comes with it, and the rounding of sums of the size of the second moment."""
    net, gaussian = network(name), inputs()
    want = MEASURES[measure](net, gaussian)
    with JAX64.active():
        got = jax.jit(MEASURES[measure])(net.to(jnp.zeros(1)), gaussian.to(jnp.zeros(1)))
    number = NUMBERS[measure]
    rounding = 1e-12 * float(np.max(np.abs(mp.second_moment(net, gaussian).raw)))
    error = np.abs(np.asarray(getattr(got, number)) - getattr(want, number))
    assert np.all(error <= np.asarray(got.bound) + rounding)
    assert np.all(np.asarray(got.bound) < 1e-4)


@pytest.mark.parametrize("name", ["relu", "gelu", "glu silu"])
def test_gradients_are_those_of_finite_differences(name):
    """Of the FVU of the closest quadratic, with respect to all weights, the mean and the covariance, at once."""

    def loss(net, gaussian):
        return mp.fvu(net, mp.fit(net, gaussian, 2), gaussian).total

    pair, rng = (network(name), inputs()), np.random.default_rng(1)
    along = map_arrays(pair, lambda a: rng.normal(size=a.shape))
    along = (along[0], replace(along[1], cov=along[1].cov + along[1].cov.T))
    step = 1e-4  # differences of order four: an error of about step^4, and rounding over the step

    def at(t):
        moved = jax.tree.map(lambda a, b: a + t * step * b, pair, along)
        return float(loss(*moved))

    want = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
    with JAX64.active():
        there = [a.to(jnp.zeros(1)) for a in pair]
        gradients = jax.jit(jax.grad(loss, argnums=(0, 1)))(*there)
    got = sum(float(np.sum(np.asarray(a) * b)) for a, b in zip(*map(jax.tree.leaves, (gradients, along)), strict=True))
    assert got == pytest.approx(want, rel=1e-7)


@pytest.mark.parametrize("name", ["relu", "gelu", "glu silu"])
def test_single_precision(name):
    """The polynomial is an argument too, so that what it shares with the network cancels only after squaring."""
    net, gaussian = network(name), inputs()
    poly = mp.fit(net, gaussian, 2)
    want = mp.fvu(net, poly, gaussian).total
    with JAX32.active():
        there = [a.to(jnp.zeros(1, jnp.float32)) for a in (net, poly, gaussian)]
        got = jax.jit(mp.fvu)(*there)
    assert got.total.dtype == jnp.float32
    assert float(got.total) == pytest.approx(want, rel=1e-4)


def test_identical_units_have_their_bound():
    """Two equal units are not told apart from others: what the series of both leaves out is in the bound."""
    W = np.array([[1.0, 0.5], [1.0, 0.5]])
    net, gaussian = mp.GLU(W, None, W[::-1] + 1.0, None, np.ones((1, 2)), None, "relu"), mp.Gaussian.standard(2)
    want = mp.second_moment(net, gaussian)
    with JAX64.active():
        got = jax.jit(mp.second_moment)(net.to(jnp.zeros(1)), gaussian.to(jnp.zeros(1)))
    gap, bound = abs(float(got.cov[0, 0]) - want.cov[0, 0]), float(got.bound[0, 0])
    assert 1e-10 < gap <= bound + 1e-13 < 1e-2


def test_measures_that_go_by_values_are_refused():
    with JAX64.active():
        net, gaussian = network("relu").to(jnp.zeros(1)), inputs().to(jnp.zeros(1))
        with pytest.raises(TypeError, match=r"outside jax\.jit"):
            jax.jit(lambda net: mp.sensitivity(net, gaussian).first)(net)
