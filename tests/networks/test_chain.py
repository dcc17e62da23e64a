"""Deep networks: values, merging of affine maps, and clear errors."""

import copy
import pickle

import jax
import numpy as np
import pytest
import torch
from support.backends import NUMPY64, TORCH32, assert_close, assert_same_kind, backends, in_library, make
from support.inputs import points
from support.networks import chain, network

import mlpoly as mp
from mlpoly.networks import check_layer, check_network

D = 4
X = points(D)


def affine(o, d, seed, bias=True):
    rng = np.random.default_rng(seed)
    return mp.Affine(rng.standard_normal((o, d)), rng.standard_normal(o) if bias else None)


@backends(NUMPY64, TORCH32)
def test_a_chain_is_one_layer_after_the_other(backend):
    net, x = in_library(chain(), backend), X
    for layer in chain().layers[:-1]:
        x = np.maximum(x @ layer.W1.T + layer.b1, 0)
    assert_same_kind(net(make(X, backend)), net.prototype)
    assert_close(net(make(X, backend)), x @ chain().layers[-1].W.T, backend.tolerance)
    assert (net.dim_in, net.dim_out, repr(net)) == (4, 3, "Chain(4 -> 6 -> 5 -> 3)")
    nested = mp.Chain([mp.Chain(net.layers[:1]), mp.Chain([mp.Chain(net.layers[1:])])])
    assert nested.layers == net.layers
    square = network("GLU", d=D, o=D)
    assert_close(mp.Residual(square)(X), X + square(X), 1e-15)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@pytest.mark.parametrize("o", [3, None])
def test_affine_maps_merge_into_the_layer_beside_them(kind, o, bias):
    """Before it, behind it, and two in a row; the function stays, and one layer remains."""
    layer = network(kind, "gelu", d=5, h=6, o=o)
    net = mp.Chain([affine(7, D, 1), affine(5, 7, 2, bias), layer, affine(3, layer.dim_out, 3, bias), affine(2, 3, 4)])
    assert type(check_layer(net)) is type(layer)
    assert_close(check_layer(net)(X), net(X), 1e-13)


def test_merging_keeps_what_cannot_merge():
    net = mp.Chain([affine(D, D, 1), mp.Residual(mp.Chain([network(d=D), affine(D, 3, 2)])), affine(2, D, 3)])
    merged = check_network(net)
    assert [type(part).__name__ for part in merged.layers] == ["Affine", "Residual", "Affine"]
    assert type(merged.layers[1].net) is mp.MLP
    assert_close(merged(X), net(X), 1e-13)


def test_records_work_with_jax_torch_and_pickle():
    net = mp.Chain([mp.Residual(network(d=D, o=D)), network(d=D)])
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert_close(other(X), net(X), 1e-15)
    with jax.enable_x64(True):
        moved = net.to(jax.numpy.zeros(1))
        assert_close(jax.jit(lambda n, x: n(x))(moved, jax.numpy.asarray(X)), net(X), 1e-12)
    moved = net.to(torch.zeros(1, dtype=torch.float64))
    weight = moved.layers[0].net.W1.requires_grad_()
    moved(torch.tensor(X)).sum().backward()
    assert weight.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("make_it", "kind", "message"),
    [
        (lambda: mp.Chain([]), ValueError, "layers is empty"),
        (lambda: mp.Chain(network()), TypeError, "layers must be a list of networks, got MLP"),
        (lambda: mp.Chain([network(), np.eye(3)]), TypeError, r"layers\[1\] must be an mlpoly.MLP.*got ndarray"),
        (lambda: mp.Chain([torch.nn.Linear(2, 2)]), TypeError, r"layers\[0\].*mlpoly.from_torch"),
        (lambda: mp.Chain([network(), network()]), ValueError, r"layers\[1\] takes 4 inputs, but layers\[0\] has 3"),
        (
            lambda: mp.Chain([network(o=4), in_library(network(), TORCH32)]),
            TypeError,
            "layers_0.*layers_1|same library",
        ),
        (lambda: mp.Chain([network(o=4), network().to(np.zeros(1, np.float32))]), TypeError, "float64.*float32"),
        (lambda: mp.Residual(network()), ValueError, "net maps 4 inputs to 3 outputs"),
        (lambda: mp.Residual(None), TypeError, "net must be an mlpoly.MLP"),
        (lambda: mp.degree_spectrum(chain(), mp.Gaussian.standard(4)), TypeError, "one hidden layer here"),
        (lambda: mp.second_moment(chain(), mp.Gaussian.standard(4)), TypeError, "mlpoly.propagate has the moments"),
        (lambda: chain()(np.zeros((2, 3))), ValueError, "4"),
    ],
)
def test_bad_networks(make_it, kind, message):
    with pytest.raises(kind, match=message):
        make_it()


def test_activations_with_commas_in_their_names():
    net = mp.Chain([mp.MLP(np.eye(2), activation=f"hardtanh({low}, 2)") for low in (-1, -3, -1)])
    assert net.activations == ("hardtanh(-1, 2)", "hardtanh(-3, 2)")
    assert mp.Residual(net).activations == net.activations
    assert mp.fit(net, mp.Gaussian.standard(2), 1).source.activation == "hardtanh(-1, 2), hardtanh(-3, 2)"
    assert mp.Chain([affine(2, 2, 0), mp.Residual(affine(2, 2, 1))]).activations == ("identity",)


def test_names_of_inputs_are_those_of_the_first_layer():
    first, last = mp.Affine(np.ones((2, 3)), names=["a", "b", "c"]), mp.MLP(np.ones((2, 2)), names=["u", "v"])
    assert first.names == mp.Chain([first, last]).names == check_network(mp.Chain([first, last])).names
    assert first.names == ("a", "b", "c") and mp.Residual(last).names == last.names == ("u", "v")
    assert mp.GLU(np.ones((2, 3)), None, np.ones((2, 3)), names=first.names).names == first.names
    assert mp.MLP(np.ones((2, 3))).names is mp.Chain([mp.MLP(np.ones((2, 3)))]).names is None
    with pytest.raises(ValueError, match="names has 1 entries, but there are 3 inputs"):
        mp.MLP(np.ones((2, 3)), names=["a"])
    with pytest.raises(
        ValueError, match=r"inputs have 'b' at place 0, but that is input 1 of net.*x\[list\(net\.names"
    ):
        mp.fit(mp.Chain([first, last]), mp.Gaussian(np.zeros(3), names=["b", "a", "c"]), 1)
