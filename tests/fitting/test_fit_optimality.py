"""The fitted polynomial is the least-squares one: independent routes, optimality conditions, exact cases."""

import math
from functools import cache, partial

import numpy as np
import pytest
from support.backends import assert_close
from support.inputs import exponents, gaussian, grid, monomials
from support.networks import network

import mlpoly as mp

NODES = {1: 60, 2: 40, 3: 24, 4: 16}  # per axis; the smooth networks below are then integrated to 2e-11 or better


def monomial_coefficients(poly):
    """Coefficients (number of monomials, o): each entry of a symmetric tensor stands for its permutations."""
    c = poly.coefficients()
    rows = []
    for index in exponents(poly.dim_in, poly.degree):
        counts = [index.count(i) for i in set(index)]
        copies = math.factorial(len(index)) // math.prod(map(math.factorial, counts))
        rows.append(copies * c.tensor(len(index))[(slice(None), *index)])
    return np.stack(rows)


@cache
def factored_design(d, degree):
    """QR factors of the monomials on the grid of make_gaussian(d), in rows weighted by the root of their weight."""
    x, w = grid(make_gaussian(d), NODES)
    return np.linalg.qr(np.sqrt(w)[:, None] * monomials(x, degree))


def least_squares(function, d, degree):
    """Coefficients (number of monomials, o) of the weighted least-squares fit on the grid of make_gaussian(d)."""
    x, w = grid(make_gaussian(d), NODES)
    q, r = factored_design(d, degree)
    return np.linalg.solve(r, q.T @ (np.sqrt(w)[:, None] * function(x)))


def make_gaussian(d, seed=1):
    return gaussian(seed, d, shift=0.5, ridge=0.3)


make_net = partial(network, h=5, o=2, scale=0.3, bias=0.5)

KINDS = ("MLP", "GLU")
SMOOTH = {"tanh": 0.3, "gelu": 0.5, "silu": 0.5, "sin": 1.0, "cube": 1.0}  # with the scale of their weights
KINKED = ("relu", "leaky_relu(0.2)", "hardtanh", "step", "jumprelu(0.5)", "hardswish", "elu")


@pytest.mark.parametrize("degree", range(6))
@pytest.mark.parametrize("d", [3, 4])
@pytest.mark.parametrize("activation", SMOOTH)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_least_squares_on_a_grid(kind, activation, d, degree):
    net = make_net(kind, activation, d, scale=SMOOTH[activation])
    poly = mp.fit(net, make_gaussian(d), degree=degree)
    # 1e-10: what 16 nodes per axis leave of tanh and gelu, amplified by the monomials' condition number of up to 650.
    assert_close(monomial_coefficients(poly), least_squares(net, d, degree), 1e-10)


def test_bilinear_layer_has_its_own_coefficients():
    g = make_net("GLU", "identity", 4)
    c = mp.fit(g, make_gaussian(4), degree=2).coefficients()
    product = np.einsum("oh,hi,hj->oij", g.W_down, g.W_gate, g.W_up)
    assert_close(c.quadratic, (product + product.transpose(0, 2, 1)) / 2)
    assert_close(c.linear, g.W_down @ (g.b_up[:, None] * g.W_gate + g.b_gate[:, None] * g.W_up))
    assert_close(c.constant, g.W_down @ (g.b_gate * g.b_up) + g.b_down)


def test_quadratic_layer_has_its_own_coefficients():
    net = make_net("MLP", "square", 4)
    c = mp.fit(net, make_gaussian(4), degree=3).coefficients()
    assert_close(c.quadratic, np.einsum("oh,hi,hj->oij", net.W2, net.W1, net.W1))
    assert_close(c.linear, 2 * net.W2 @ (net.b1[:, None] * net.W1))
    assert_close(c.constant, net.W2 @ net.b1**2 + net.b2)
    assert np.max(np.abs(c.tensor(3))) <= 1e-14


@cache
def legendre(n):
    return np.polynomial.legendre.leggauss(n)


def cut_line(cuts):
    """Nodes and weights under N(0, 1) on unit panels that also end at the cuts."""
    ends = np.unique(np.clip([*range(-13, 14), *cuts], -13, 13))
    x, w = legendre(24)
    t = (ends[:-1, None] + np.diff(ends)[:, None] * (x + 1) / 2).reshape(-1)
    weight = (np.diff(ends)[:, None] * w / 2).reshape(-1)
    return t, weight * np.exp(-t * t / 2) / math.sqrt(2 * math.pi)


def neuron_grid(inputs, w, b, kinks):
    """Points and weights under a Gaussian in 1 or 2 dimensions that are exact for functions of w.x + b with kinks."""
    root = np.linalg.cholesky(inputs.cov)
    along = root.T @ w
    s = np.linalg.norm(along)
    t, weight = cut_line([(c - b - w @ inputs.mean) / s for c in kinks])
    if inputs.dim == 1:
        return inputs.mean + t[:, None] * along / s @ root.T, weight
    z, zw = np.polynomial.hermite_e.hermegauss(12)
    first, second = np.meshgrid(t, z, indexing="ij")
    frame = np.stack([along / s, np.array([-along[1], along[0]]) / s])
    nodes = np.stack([first.reshape(-1), second.reshape(-1)], axis=1) @ frame
    return inputs.mean + nodes @ root.T, (weight[:, None] * (zw / zw.sum())).reshape(-1)


def projected(net, inputs, degree):
    """Solve the normal equations; the right-hand side is summed over neurons, each with its own grid."""
    x, w = grid(inputs, NODES)
    v = monomials(x, degree)
    gram = (v * w[:, None]).T @ v
    gated = isinstance(net, mp.GLU)
    weights, biases = (net.W_gate, net.b_gate) if gated else (net.W1, net.b1)
    readout, bias = (net.W_down, net.b_down) if gated else (net.W2, net.b2)
    right = gram[:, :1] * bias
    for i in range(net.dim_hidden):
        xi, wi = neuron_grid(inputs, weights[i], biases[i], net.activation.kinks)
        hidden = net.activation(xi @ weights[i] + biases[i])
        if gated:
            hidden = hidden * (xi @ net.W_up[i] + net.b_up[i])
        right = right + (monomials(xi, degree).T @ (wi * hidden))[:, None] * readout[:, i]
    return np.linalg.solve(gram, right)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("activation", KINKED)
@pytest.mark.parametrize("kind", KINDS)
def test_kinked_networks_equal_piecewise_quadrature(kind, activation, d):
    net, inputs = make_net(kind, activation, d, scale=1.5), make_gaussian(d)
    for degree in range(6):
        poly = mp.fit(net, inputs, degree=degree)
        # 1e-11: the Gram matrix of raw monomials of degree 5 has a condition number of about 1e5.
        assert_close(monomial_coefficients(poly), projected(net, inputs, degree), 1e-11)
