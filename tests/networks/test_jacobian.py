"""Jacobians in reverse mode against PyTorch and JAX, and the pullback's shapes."""

import jax
import numpy as np
import pytest
import torch
from support.backends import (
    JAX64,
    NUMPY32,
    NUMPY64,
    TORCH32,
    TORCH64,
    assert_close,
    assert_same_kind,
    backends,
    in_library,
    make,
    to_numpy,
)
from support.inputs import points
from support.networks import network

import mlpoly as mp
from mlpoly.networks import jacobian, value_and_pullback

D = 4


def residual(seed, activation="gelu"):
    return mp.Residual(network("MLP", activation, D, 7, D, seed=seed))


NETWORKS = {
    "relu": lambda: network(seed=1),
    "without readout": lambda: network("MLP", "tanh", D, 5, None, seed=2),
    "without biases": lambda: mp.MLP(np.eye(3, D), activation="silu"),
    "GLU": lambda: network("GLU", "silu", seed=3),
    "GLU without readout": lambda: network("GLU", "gelu", D, 5, None, seed=4),
    "affine": lambda: mp.Affine(np.arange(12.0).reshape(3, D), np.ones(3)),
    "residual": lambda: residual(5),
    "nested residuals": lambda: mp.Residual(mp.Chain([residual(6), network("GLU", "silu", D, 6, D, seed=7)])),
    "chain of five": lambda: mp.Chain(
        [
            network("MLP", "gelu", D, 6, None, seed=8),
            network("GLU", "silu", 6, 5, D, seed=9),
            residual(10, "leaky_relu"),
            mp.Affine(np.random.default_rng(11).standard_normal((6, D))),
            network("MLP", "mish", 6, 8, 3, seed=12),
        ]
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_agrees_with_automatic_differentiation(name):
    net = NETWORKS[name]()
    x = points(D, 12)
    given = torch.tensor(x)
    like = in_library(net, TORCH64)
    right = torch.stack([torch.autograd.functional.jacobian(lambda v: like(v[None])[0], row) for row in given])
    assert_close(jacobian(net, x), right)
    found = jacobian(like, given)
    assert_close(found, right)
    assert_same_kind(found, given)


@pytest.mark.parametrize("name", NETWORKS)
def test_values_and_pullback(name):
    net, x = NETWORKS[name](), points(D, 5)
    values, pull = value_and_pullback(net, x)
    assert_close(values, net(x))
    whole = jacobian(net, x)
    assert whole.shape == (5, net.dim_out, D)
    rng = np.random.default_rng(0)
    each, same = rng.standard_normal((5, 2, net.dim_out)), rng.standard_normal((1, 2, net.dim_out))
    assert_close(pull(each), each @ whole)
    assert_close(pull(same), same @ whole)


@backends(NUMPY64, NUMPY32, TORCH64, TORCH32, slow=(JAX64,))
def test_array_libraries(backend):
    net = NETWORKS["chain of five"]()
    x = points(D, 6)
    found, like = jacobian(in_library(net, backend), make(x, backend)), make(x, backend)
    assert_same_kind(found, like)
    assert_close(found, jacobian(net, to_numpy(like)), 10 * backend.tolerance)
    if backend == JAX64:
        there = in_library(net, backend)
        assert_close(found, jax.vmap(jax.jacrev(lambda v: there(v[None])[0]))(like))
        assert_close(jax.jit(lambda v: jacobian(there, v))(like), found)


def test_at_a_kink_it_is_the_derivative_from_the_right():
    net = mp.MLP(np.array([[1.0], [-1.0]]), activation="relu")
    assert jacobian(net, np.zeros((1, 1))).tolist() == [[[1.0], [-1.0]]]


def test_half_precision_weights_and_the_users_own_activation():
    net = mp.MLP(np.eye(2, dtype=np.float16), None, np.ones((1, 2), np.float16), activation=np.tanh)
    found = jacobian(net, np.array([[0.5, -1.0]], dtype=np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, 1 / np.cosh([[[0.5, -1.0]]]) ** 2, rtol=1e-6)


def test_gradients_flow_to_weights():
    W = torch.tensor([[1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    jacobian(mp.MLP(W, activation="square"), torch.tensor([[1.0, 1.0]], dtype=torch.float64)).sum().backward()
    # sum_j 2 (w.x) w_j, so the derivative in w_k is 2 (x_k sum_j w_j + w.x)
    assert W.grad.tolist() == [[12.0, 12.0]]


def test_points_are_checked():
    with pytest.raises(ValueError, match="x has shape"):
        jacobian(network(), np.zeros((3, D + 1)))
