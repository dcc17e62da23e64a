"""Networks from the weights of their layers, in both layouts."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from support.mistakes import assert_explained, mistakes

import mlpoly as mp


def weights(*sizes, seed=0, bias=True):
    """Pairs (outputs, inputs) with normal entries."""
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(o, d)), rng.normal(size=o) if bias else None) for d, o in pairwise(sizes)]


def transposed(pairs):
    return [(W.T, b) for W, b in pairs]


def by_hand(pairs, x, *functions):
    for i, (W, b) in enumerate(pairs):
        x = x @ W.T + (0 if b is None else b)
        x = functions[i](x) if i < len(functions) else x
    return x


X = np.random.default_rng(1).normal(size=(20, 4))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("sizes", "shown"),
    [
        ((4, 3), "Affine(4 -> 3)"),
        ((4, 6, 3), "MLP(4 -> 6 -> 3, tanh)"),
        ((4, 6, 5, 3), "Chain(4 -> 6 -> 5 -> 3)"),
        ((4, 4, 4, 4), "Chain(4 -> 4 -> 4 -> 4)"),
    ],
)
def test_both_layouts_give_the_same_network(sizes, shown, bias):
    pairs = weights(*sizes, bias=bias)
    expected = by_hand(pairs, X, *[np.tanh] * (len(sizes) - 2))
    for given, layout in ((pairs, "out_in"), (transposed(pairs), "in_out")):
        net = mp.MLP.from_layers(given, "tanh", layout=layout)
        assert repr(net) == shown
        np.testing.assert_allclose(net(X), expected, rtol=1e-13, atol=1e-13)


def test_an_activation_for_each_layer_and_the_weights_as_they_are():
    each = mp.MLP.from_layers(weights(4, 6, 5, 3), ["tanh", "square"])
    np.testing.assert_allclose(each(X), by_hand(weights(4, 6, 5, 3), X, np.tanh, np.square), rtol=1e-12)
    pairs = [(torch.tensor(W, requires_grad=True), torch.tensor(b)) for W, b in weights(4, 6, 3)]
    net = mp.MLP.from_layers(pairs, "relu")
    assert net.W1 is pairs[0][0]
    net(torch.tensor(X)).sum().backward()
    assert bool((pairs[0][0].grad != 0).any())


def make(pairs, *args, **options):
    return lambda: mp.MLP.from_layers(pairs, *args, **options)


USERS = "'out_in' for PyTorch and Equinox, 'in_out' for scikit-learn, Keras and Flax"


@mistakes(
    [
        ("neither", make([*weights(4, 6), *weights(5, 3)]), ValueError,
         r"layers\[1\] takes 5 inputs, but layers\[0\] has 6 outputs in the layout 'out_in'", USERS),
        ("transposed", make(transposed(weights(4, 6, 3))), ValueError, r"bias of layers\[0\]", "'in_out' for scikit"),
        ("other layout", make(weights(4, 6, 3), layout="in_out"), ValueError, "layers", "pass layout='out_in' for Py"),
        ("other bias", make([(np.ones((4, 3)), np.ones(4))], layout="in_out"), ValueError, r"bias of layers\[0\]"),
        ("unknown layout", make(weights(4, 3), layout="io"), ValueError, "layout must be", USERS),
        ("activations", make(weights(4, 6, 3), ["relu", "relu"]), ValueError, "activation has 2 entries",
         "give one name for all, or a list of 1"),
        ("activation", make(weights(4, 6, 3), "rellu"), mp.errors.UnknownActivationError, "Did you mean 'relu'"),
        ("nothing", make([]), TypeError, "layers must be a list of pairs"),
        ("no pairs", make([np.ones((3, 3))]), TypeError, r"layers\[0\] must be a pair \(weight, bias\)"),
        ("a vector", make([(np.ones(3), None)]), ValueError, r"the weight of layers\[0\]"),
        ("not finite", make([(np.full((3, 2), np.nan), None)]), ValueError, r"the weight of layers\[0\]"),
    ]
)  # fmt: skip
def test_mistakes(act, exception, patterns):
    assert_explained(act, exception, patterns)
