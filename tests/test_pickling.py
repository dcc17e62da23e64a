"""Records are kept by pickle and copied by copy.deepcopy, whatever their activation and array library."""

import copy
import pickle
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support.backends import NUMPY64, TORCH64, assert_close, assert_same_kind, in_library, make, to_numpy
from support.inputs import points
from support.networks import network

import mlpoly as mp
from mlpoly.activations import get, register_activation

pytestmark = pytest.mark.usefixtures("scratch_registry")

NAMES = [
    *mp.activations.names(),
    "leaky_relu(0.2)",
    "elu(0.3)",
    "celu(2.5)",
    "softplus(1e-05)",
    "hardtanh(-0.1, 1.7320508075688772)",
    "threshold(-1, 0.5)",
    "jumprelu(0.25)",
]
D, H, OUT = 3, 4, 2
X = points(D, 5)


def again(value):
    return pickle.loads(pickle.dumps(value))


def networks(activation, backend=NUMPY64):
    return [in_library(network(kind, activation, D, H, OUT), backend) for kind in ("MLP", "GLU")]


def bump(y):
    return y * y / (1 + y * y)


class Owner:
    @staticmethod
    def inside(y):
        return y * y


@pytest.mark.parametrize("name", NAMES)
def test_networks_of_every_activation_pickle(name):
    for net in networks(name):
        back = again(net)
        assert back.activation == net.activation and back.activation.name == net.activation.name
        np.testing.assert_array_equal(back(X), net(X))
        series = [mp.fit(n, mp.Gaussian.standard(D), 3).series.plain for n in (net, back)]
        np.testing.assert_array_equal(*series)


def test_networks_of_every_library_pickle_and_copy(backend):
    for net in networks("gelu", backend):
        for back in (again(net), copy.deepcopy(net)):
            assert_same_kind(back(make(X, backend)), net(make(X, backend)))
            np.testing.assert_array_equal(to_numpy(back(make(X, backend))), to_numpy(net(make(X, backend))))


@jax.jit
def jitted(y):
    return y * y


@pytest.mark.parametrize("function", [bump, Owner.inside, np.tanh, partial(np.power, 2.0)])
def test_functions_of_the_user_pickle_by_reference(function):
    made = get(function)
    back = again(networks(made)[0])
    assert back.activation.own is function or isinstance(function, partial)
    assert back.activation.name == made.name
    np.testing.assert_array_equal(back(X), networks(made)[0](X))
    for other in (jnp.tanh, jax.nn.gelu, jitted, torch.tanh, torch.nn.functional.gelu):
        assert again(get(other)).own is other


def test_functions_that_pickle_cannot_find_are_refused_and_copied():
    poly = mp.fit(networks(register_activation("nowhere", lambda y: y))[0], mp.Gaussian.standard(D), 1)
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(poly)
    for copied in (copy.copy(poly), copy.deepcopy(poly)):
        assert copied.activation is poly.activation


@pytest.mark.parametrize("bounded", [False, True])
def test_polynomials_pickle(bounded):
    for function in (bump, "gelu"):
        poly = mp.fit(networks(get(function))[1], mp.Gaussian.standard(D), 3)
        poly = poly.bounded(2.0) if bounded else poly
        assert_close(again(poly.to_torch())(make(X, TORCH64)), poly(X), 1e-13)
        np.testing.assert_array_equal(again(poly)(X), poly(X))
        np.testing.assert_array_equal(again(poly).bounded(1.0)(X), poly.bounded(1.0)(X))


def test_a_built_in_activation_comes_back_though_its_name_was_taken():
    kept = pickle.dumps(get("softsign"))
    register_activation("softsign", bump, overwrite=True)
    assert pickle.loads(kept).own is None
    assert again(get("softsign")).own is bump


def trainable():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(D, H), torch.nn.GELU(), torch.nn.Linear(H, OUT)).double()
    return mp.from_torch(module)


def test_polynomials_of_trainable_modules_copy():
    net = trainable()
    inputs = mp.Gaussian(net.W1.sum(0) * 0.1, torch.eye(D, dtype=torch.float64) * (1 + net.W1[0, 0] ** 2))
    for poly in (mp.fit(net, inputs, 3), mp.fit(net, inputs, 3).truncate(1) * 2):
        x = make(X, TORCH64)
        copied = copy.deepcopy(poly)
        assert_close(copied(x), poly(x), 0.0)
        assert copied.series.plain.grad_fn is None and copied.series.plain is not poly.series.plain
        assert copied.inputs.cov is not poly.inputs.cov
