"""First terms of a deep network's expansion: against quadrature for polynomial networks of two inputs."""

import numpy as np
import pytest
from support.backends import assert_close
from support.inputs import standard_grid
from support.networks import chain

import mlpoly as mp
from mlpoly.propagation import expand


def polynomial_network(kind, spread, seed=0):
    """A network that is a polynomial of two inputs, which move its first preactivations by `spread`."""
    rng = np.random.default_rng(seed)

    def mlp(activation, n, h, o, scale=1.0):
        w = rng.standard_normal
        return mp.MLP(scale * w((h, n)) / np.sqrt(n), np.ones(h), None if o is None else w((o, h)) / np.sqrt(h),
                      activation=activation)  # fmt: skip

    def glu(n, h, o, scale=1.0):
        one, two = mlp("square", n, h, o, scale), mlp("square", n, h, None, scale)
        return mp.GLU(one.W1, one.b1, two.W1, two.b1, one.W2, activation="square")

    if kind == "two layers":
        return mp.Chain([mlp("cube", 2, 4, None, spread), mlp("square", 4, 3, 2)])
    if kind == "three layers":
        return mp.Chain([mlp("cube", 2, 4, None, spread), mlp("square", 4, 4, None), mlp("square", 4, 3, 2)])
    if kind == "gated":
        return mp.Chain([glu(2, 4, None, spread), glu(4, 3, 2)])
    branches = [mlp(activation, 2, 4, 2, spread) for activation in ("cube", "square")]
    return mp.Chain([mp.Residual(branches[0]), mp.Residual(branches[1]), mlp("square", 2, 3, 2, spread)])


def by_quadrature(net):
    """E[f z] and E[f (z z' - I)] / 2, exact for polynomials up to degree 37."""
    z, weight = standard_grid(2, 20)
    f = net(z)
    second = np.einsum("n,no,na,nb->oab", weight, f, z, z) - (weight @ f)[:, None, None] * np.eye(2)
    return np.einsum("n,no,na->oa", weight, f, z), 0.5 * second


def relative_errors(net):
    linear, quadratic = by_quadrature(net)
    e, forward = expand(net, mp.Gaussian.standard(2))
    found = np.einsum("oab,ai,bj->oij", e.quadratic, forward, forward)
    size = np.linalg.norm
    return np.array([size(e.linear @ forward - linear) / size(linear), size(found - quadratic) / size(quadratic)])


@pytest.mark.parametrize("kind", ["two layers", "three layers", "gated", "residual"])
def test_errors_are_of_fourth_order_in_the_spread(kind):
    """Half the spread, a sixteenth of the error; without the cubic parts it would be a quarter."""
    wide, narrow = (relative_errors(polynomial_network(kind, spread)) for spread in (0.06, 0.03))
    assert np.all(wide < 2e-3)
    assert np.all(narrow < wide / 12)


def test_cubic_parts_of_one_layer_are_exact():
    """E[f (z z z - ...)] / 6 of a layer with a readout, here of cubes: T = sum_j w_j a_j a_j a_j."""
    net = polynomial_network("two layers", 0.3).layers[0]
    e, forward = expand(net, mp.Gaussian.standard(2))
    ((a, bend),) = e.cubic[0].factors
    rows = net.W1
    assert_close(np.einsum("ja,jbc,ad,be,cf->jdef", a, bend, forward, forward, forward),
                 np.einsum("ja,jb,jc->jabc", rows, rows, rows))  # fmt: skip


def test_relu_network_against_samples():
    """Coefficients E[f z] and E[f (z z' - I)] / 2 from two halves of the samples, so that their errors cancel."""
    net, d = chain("relu", (8, 32, 32, 3)), 8
    rng, halves = np.random.default_rng(2), []
    for _ in range(2):
        z = rng.standard_normal((150_000, d))
        one, two = net(z), net(-z)
        even = 0.5 * (one + two) - np.mean(0.5 * (one + two), axis=0)
        quadratic = 0.5 * np.einsum("no,na,nb->oab", even, z, z, optimize=True) / len(z)
        halves.append(np.concatenate([0.5 * (one - two).T @ z / len(z), np.sqrt(2) * quadratic.reshape(3, -1)], axis=1))
    variance = np.sum(np.var(np.concatenate([one, two]), axis=0))
    e, forward = expand(net, mp.Gaussian.standard(d))
    found = np.einsum("oab,ai,bj->oij", e.quadratic, forward, forward, optimize=True)
    found = np.concatenate([e.linear @ forward, np.sqrt(2) * found.reshape(3, -1)], axis=1)
    left = 1 - np.sum(halves[0] * halves[1]) / variance
    excess = np.sum((found - halves[0]) * (found - halves[1])) / variance
    noise = np.sum((halves[0] - halves[1]) ** 2) / variance
    assert noise < 0.05 * left
    assert excess < 0.06 * left
