"""Covariances between two layers: against nested quadrature of single pairs of units, and identities."""

import numpy as np
import pytest
from support.backends import assert_close
from support.inputs import gaussian
from support.networks import network
from support.quadrature import pair_mean

import mlpoly as mp
from mlpoly import activations
from mlpoly.moments import Expansion, inner
from mlpoly.moments.kernels import piecewise_linear
from mlpoly.moments.kernels.conditional import smoothed, unit_moments
from mlpoly.moments.kernels.piecewise_linear import beyond_linear, breaks_of, cancellation
from mlpoly.polynomials import Polynomial
from mlpoly.records import replace
from mlpoly.units import Units

G = gaussian(3, 3, ridge=0.1)
ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "leaky_relu", "step", "sin", "cos")


def shared_part(inputs, known):
    """Covariance of x and a copy x' that has the known inputs in common with it and is otherwise drawn anew."""
    cov = inputs.covariance
    return cov[:, known] @ np.linalg.solve(cov[np.ix_(known, known)], cov[known])


def covariance_of(f, g, inputs, between, degree=0):
    one, two = (h.hermite(inputs) if isinstance(h, Polynomial) else Expansion.of(h, inputs) for h in (f, g))
    return inner(one, two, lambda rows: rows @ between, degree)


def unit_covariances(f, g, inputs, between):
    """Cov(F_i(x), G_j(x')) (h, k) of all hidden units, by quadrature."""
    one, two = f.forms, g.forms
    out = np.zeros((f.dim_hidden, g.dim_hidden))
    flat = np.zeros(inputs.dim)

    def rows(forms, i):
        v = flat if forms.gate_directions is None else forms.gate_directions[i]
        return np.stack([forms.directions[i], v]), [forms.bias[i], 1.0 if v is flat else forms.gate_bias[i]]

    for i, j in np.ndindex(*out.shape):
        (a, shift), (b, other) = rows(one, i), rows(two, j)
        forms = np.zeros((4, 2 * inputs.dim))
        forms[:2, : inputs.dim], forms[2:, inputs.dim :] = a, b
        means = [*(a @ inputs.mean + shift), *(b @ inputs.mean + other)]

        def mean(between, forms=forms, means=means):
            joint = np.block([[inputs.covariance, between], [between.T, inputs.covariance]])
            return pair_mean(f.activation, g.activation, forms @ joint @ forms.T, means)

        out[i, j] = mean(between) - mean(between * 0)  # independent copies: the product of the means
    return out


@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        (("MLP", "MLP"), ("relu", "gelu")),
        (("MLP", "MLP"), ("relu", "leaky_relu")),
        (("MLP", "MLP"), ("step", "relu")),
        (("MLP", "MLP"), ("hardtanh", "tanh")),
        (("MLP", "MLP"), ("sin", "cos")),
        (("MLP", "MLP"), ("cos", "sin")),
        (("MLP", "MLP"), ("sin", "silu")),
        (("MLP", "GLU"), ("relu", "silu")),
        (("MLP", "GLU"), ("gelu", "relu")),
        (("GLU", "GLU"), ("silu", "gelu")),
        (("GLU", "GLU"), ("relu", "tanh")),
        (("GLU", "GLU"), ("gelu", "gelu")),
    ],
)
@pytest.mark.parametrize("known", [[0], [0, 2], [0, 1, 2]])
def test_two_layers_against_quadrature(kinds, names, known):
    """Pairs of all signs and sizes of correlation, with the whole of x in common and with a part."""
    f, g = (
        network(kind, name, 3, 3, 2, seed=i, bias=0.5) for i, (kind, name) in enumerate(zip(kinds, names, strict=True))
    )
    between = shared_part(G, known)
    expected = np.einsum("oi,ij,oj->o", f.readout, unit_covariances(f, g, G, between), g.readout)
    found = covariance_of(f, g, G, between)
    size = np.sqrt(np.diagonal(mp.second_moment(f, G).cov) * np.diagonal(mp.second_moment(g, G).cov))
    assert np.all(np.abs(found.tail - expected) <= 1e-11 * size + found.bound)
    assert np.all(found.bound <= 1e-11 * size)
    back = covariance_of(g, f, G, between)  # the other way round
    assert_close(back.tail, found.tail, 1e-11)


@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        (("MLP", "MLP"), ("relu", "gelu")),
        (("MLP", "MLP"), ("tanh", "silu")),
        (("MLP", "GLU"), ("relu", "silu")),
        (("GLU", "GLU"), ("relu", "gelu")),
        (("GLU", "GLU"), ("tanh", "silu")),
    ],
)
def test_almost_equal_preactivations(kinds, names):
    """Pairs that no series serves: units of either family have the larger standard deviation, of both signs."""
    f, g = (
        network(kind, name, 3, 4, 2, seed=i, bias=0.5) for i, (kind, name) in enumerate(zip(kinds, names, strict=True))
    )
    factors = np.array([2.0, 0.5, -1.0, 1.01])[:, None]
    noise = 0.002 * np.random.default_rng(2).standard_normal(f.forms.directions.shape)
    g = g.with_parts(replace(g.forms, directions=factors * f.forms.directions + noise), g.readout, g.bias)
    one, two = Expansion.of(f, G), Expansion.of(g, G)
    rho = (f.forms.directions @ G.covariance @ g.forms.directions.T) / np.outer(one.units.scales, two.units.scales)
    assert np.all(np.abs(np.diagonal(rho)) > 0.99) and not np.any(np.abs(rho) == 1)
    expected = np.einsum("oi,ij,oj->o", f.readout, unit_covariances(f, g, G, G.covariance), g.readout)
    size = np.sqrt(np.diagonal(mp.second_moment(f, G).cov) * np.diagonal(mp.second_moment(g, G).cov))
    for found in (inner(one, two), inner(two, one)):
        assert np.all(np.abs(found.tail - expected) <= 1e-11 * size)


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_layer_with_itself_has_its_variance(kind, name):
    """The units of one family are found again in the other, at correlation one, by another route."""
    f = network(kind, name, 3, 5, 2)
    found = covariance_of(f, f, G, G.covariance, 3)
    same = Expansion.of(f, G)
    assert_close(found.head, inner(same, same, degree=3).head, 1e-12)
    assert_close(found.total, np.diagonal(inner(same, same, full=True).tail), 1e-12)


@pytest.mark.parametrize("names", [("relu", "abs"), ("relu", "gelu"), ("silu", "tanh"), ("sin", "cos")])
def test_degrees_add_up(names):
    f, g = (network("MLP", name, 3, 5, 2, seed=i) for i, name in enumerate(names))
    whole = covariance_of(f, g, G, G.covariance).tail
    for degree in (1, 2, 5):
        found = covariance_of(f, g, G, G.covariance, degree)
        assert found.head.shape == (degree, 2)
        assert_close(np.sum(found.head, axis=0) + found.tail, whole, 1e-12)
        for k in range(1, degree + 1):  # a degree of one is that of its polynomials of consecutive degrees
            high, low = (covariance_of(f, mp.fit(g, G, n), G, G.covariance).tail for n in (k, k - 1))
            assert_close(found.head[k - 1], high - low, 1e-11)


@pytest.mark.parametrize("name", ["silu", "tanh", "mish", "softplus", "hardswish", "relu"])
def test_smoothed_is_the_projection(name):
    """By rules of increasing order, at any noise, as by the quadrature that serves single units."""
    act = activations.get(name)
    mean, std = (a.ravel() for a in np.meshgrid(np.linspace(-20, 20, 41), [0, 1e-4, 0.03, 0.5, 2.0, 9.0, 40.0]))
    expected = act.project(mean, std, 2)
    size = np.sqrt((expected**2).sum(0)) + 1e-300
    for degree in (0, 1, 2):
        found = np.stack(smoothed(act, mean, std, degree))
        assert found.shape == (degree + 1, len(mean))
        assert np.max(np.abs(found - expected[: degree + 1]) / size) <= 1e-12


@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_units_without_variance_and_copies(name):
    """A unit that does not see x adds nothing; a copy of a unit counts as often as it occurs."""
    f, g = network("MLP", name, 3, 4, 2), network("MLP", name, 3, 4, 2, seed=1)
    still = mp.MLP(f.W1 * np.array([1, 1, 0, 1.0])[:, None], f.b1, f.W2, f.b2, name)
    fewer = mp.MLP(f.W1[[0, 1, 3]], f.b1[[0, 1, 3]], f.W2[:, [0, 1, 3]], f.b2, name)
    assert_close(covariance_of(still, g, G, G.covariance).tail, covariance_of(fewer, g, G, G.covariance).tail, 1e-13)
    W2 = f.W2[:, [0, 1, 2, 3, 3]] * np.array([1, 1, 1, 0.25, 0.75])
    twice = mp.MLP(f.W1[[0, 1, 2, 3, 3]], f.b1[[0, 1, 2, 3, 3]], W2, f.b2, name)
    assert_close(covariance_of(twice, f, G, G.covariance).tail, covariance_of(f, f, G, G.covariance).tail, 1e-12)


@pytest.mark.parametrize("name", ["relu", "abs", "hardtanh", "relu6", "step", "jumprelu", "threshold(0.5, -1)"])
def test_few_nodes_suffice_away_from_collinear_units(monkeypatch, name):
    """Rules for weak correlations against the one for all, which the tests of pairs hold against mpmath."""
    rng = np.random.default_rng(0)
    means, scales = 3 * rng.standard_normal(40), np.exp(rng.standard_normal(40))
    units = Units(np.zeros((40, 1)), means, scales)
    activation, part = activations.get(name), slice(0, 40)
    breaks = breaks_of(activation, units)
    moments = unit_moments(activation, units)
    spread = np.sqrt(moments * np.maximum(1, cancellation(breaks, moments)))
    for most in (0.05, 0.3, 0.6, 0.9, 0.97, 0.999):
        rho = rng.uniform(-most, most, (40, 40))
        rho[0], rho[1] = most, -most
        few, all_of_them = [], []
        for count, found in ((1, few), (10**9, all_of_them)):
            monkeypatch.setattr(piecewise_linear, "_FEW", count)
            found.append(beyond_linear(breaks, breaks, part, part, rho))
        assert np.all(np.abs(few[0] - all_of_them[0]) <= 1e-13 * np.outer(spread, spread))
        both = (rho + rho.T) / 2
        monkeypatch.setattr(piecewise_linear, "_FEW", 512)
        half = beyond_linear(breaks, breaks, part, part, both, symmetric=True)
        whole = beyond_linear(breaks, breaks, part, part, both)
        assert np.all(np.abs(half - whole) <= 1e-13 * np.outer(spread, spread))
        np.testing.assert_array_equal(half, half.T)
