"""Outputs for rows with gaps: against the exact moments under the conditional distribution of every row."""

import numpy as np
import pytest
from support.backends import JAX64, NUMPY32, TORCH64, assert_close, assert_same_kind, backends, in_library, make
from support.inputs import gaussian, mixture
from support.mistakes import assert_explained, mistakes
from support.networks import chain, network

import mlpoly as mp

G, MIX = gaussian(3, 4, ridge=0.3), mixture(4, c=2)
INPUTS = pytest.mark.parametrize("inputs", [G, MIX], ids=["gaussian", "mixture"])


def rows_with_gaps(inputs, n=24, seed=0):
    x = inputs.sample(n, seed).copy()
    x[np.random.default_rng(seed).random(x.shape) < 0.4] = np.nan
    x[:3] = inputs.sample(3, 1)
    x[3] = np.nan
    return x


def by_row(net, inputs, row):
    """Mean and variance under the distribution of the missing inputs given the others, by other code."""
    gaps = np.isnan(row)
    if not gaps.any():
        return net(row), np.zeros(net.dim_out)
    left = inputs if gaps.all() else inputs.condition({i: float(row[i]) for i in np.flatnonzero(~gaps)})
    forms, known = net.forms, np.where(gaps, 0.0, row)
    bias = forms.directions @ known + (0 if forms.bias is None else forms.bias)
    if forms.gate_directions is None:
        rest = mp.MLP(forms.directions[:, gaps], bias, net.readout, net.bias, net.activation)
    else:
        gate = forms.gate_directions @ known + forms.gate_bias
        parts = forms.directions[:, gaps], bias, forms.gate_directions[:, gaps], gate, net.readout, net.bias
        rest = mp.GLU(*parts, net.activation)
    moments = mp.second_moment(rest, left)
    return moments.mean, np.diag(moments.cov)


@INPUTS
@pytest.mark.parametrize(
    ("kind", "name", "tolerance"),
    [("MLP", "gelu", 1e-4), ("MLP", "tanh", 1e-4), ("MLP", "relu", 3e-3), ("GLU", "silu", 1e-4), ("GLU", "relu", 3e-3)],
)
def test_every_row(kind, name, tolerance, inputs):
    """Means are exact. Of ReLUs, degrees above 64 hold up to 1e-3 of the variance where one input is missing."""
    net, x = network(kind, name, 4, 7, 2), rows_with_gaps(inputs)
    found = mp.conditional(net, inputs, x)
    for row in range(len(x)):
        mean, variance = by_row(net, inputs, x[row])
        assert_close(found.mean[row], mean, 1e-10)
        assert_close(found.std[row] ** 2, variance, tolerance) if variance.any() else np.all(found.std[row] == 0)
    assert found.missing.tolist() == np.isnan(x).sum(axis=1).tolist()


@INPUTS
def test_polynomial_units_are_exact(inputs):
    """Squares have two degrees, so that nothing is left out."""
    net, x = network("MLP", "square", 4, 6, 3), rows_with_gaps(inputs)
    found = mp.conditional(net, inputs, x)
    for row in range(len(x)):
        mean, variance = by_row(net, inputs, x[row])
        assert_close(found.mean[row], mean, 1e-11)
        assert_close(found.std[row] ** 2, variance, 1e-10)


def test_given_nothing_and_everything():
    """The moments of the network, and its values."""
    net, x = network("MLP", "gelu", 4, 6, 2), G.sample(3, 1)
    moments = mp.second_moment(net, G)
    found = mp.conditional(net, G, np.full((2, 4), np.nan))
    assert_close(found.mean[0], moments.mean, 1e-12)
    assert_close(found.std[1] ** 2, np.diag(moments.cov), 1e-4)
    found = mp.conditional(net, G, x)
    assert_close(found.mean, net(x), 1e-14)
    assert not found.std.any()


def test_many_units_and_hidden_outputs():
    """More units than one chunk holds; and a network whose outputs are its units."""
    net, x = network("MLP", "gelu", 4, 600, 1), np.array([[0.3, np.nan, 1.0, np.nan]])
    found, (mean, variance) = mp.conditional(net, G, x), by_row(net, G, x[0])
    assert_close(found.mean[0], mean, 1e-10)
    assert_close(found.std[0] ** 2, variance, 1e-4)
    hidden = network("MLP", "gelu", 4, 5, None)
    assert_close(mp.conditional(hidden, G, x).std[0] ** 2, by_row(hidden, G, x[0])[1], 1e-4)


@backends(NUMPY32, TORCH64, JAX64)
@INPUTS
def test_backends(backend, inputs):
    net, x = network("GLU", "relu", 4, 6, 2), rows_with_gaps(inputs)
    expected = mp.conditional(net, inputs, x)
    with backend.active():
        rows = make(x, backend)
        found = mp.conditional(in_library(net, backend), in_library(inputs, backend), rows)
        assert_same_kind(found.mean, rows)
        assert_close(found.mean, expected.mean, 100 * backend.tolerance)
        assert_close(found.std, expected.std, 1000 * backend.tolerance)


NET = network("MLP", "relu", 4, 6, 2)


@mistakes(
    [
        ("infinite", lambda: mp.conditional(NET, G, np.array([[np.inf, 0, 0, 0]])), ValueError, "infinite", "NaN"),
        ("columns", lambda: mp.conditional(NET, G, np.zeros((2, 3))), ValueError, "x has shape",
         "one column per input"),
        ("no rows", lambda: mp.conditional(NET, G, np.zeros((0, 4))), ValueError, "no rows"),
        ("data", lambda: mp.conditional(NET, np.zeros((5, 4)), np.zeros((1, 4))), TypeError, "inputs", "from_samples"),
        ("deep", lambda: mp.conditional(chain(), G, np.zeros((1, 4))), TypeError, "one hidden layer"),
    ]
)  # fmt: skip
def test_mistakes(act, exception, patterns):
    assert_explained(act, exception, patterns)
