"""Matrices and coefficients layer by layer: the values of the polynomial, and shared ones that are closest."""

import math

import numpy as np
import pytest
from support.inputs import gaussian
from support.networks import chain, network

import mlpoly as mp
from mlpoly.he import unit_polynomials
from mlpoly.records import map_arrays

D = 4
INPUTS = gaussian(d=D)
X = INPUTS.sample(50, seed=4)
CHAINS = {
    "one layer": network(activation="gelu", d=D),
    "hidden units as outputs": network(activation="relu", d=D, o=None),
    "deep": chain(sizes=(D, 6, 5, 3)),
    "affine maps around": mp.Chain(
        [
            mp.Affine(np.eye(D)[::-1] + 0.5, np.ones(D)),
            network(d=D, o=D),
            mp.Affine(2 * np.eye(D)),
            network(d=D, seed=1),
        ]
    ),
    "affine": mp.Affine(np.arange(8.0).reshape(2, 4), np.ones(2)),
    "units without spread": mp.MLP(np.zeros((3, D)), np.ones(3), np.eye(3), activation="gelu"),
}
EPS = np.finfo(float).eps


def relative_error(layers, x, values):
    """Largest error relative to the sum of the sizes of all products that make an output."""
    return (np.abs(layers(x) - values) / map_arrays(layers, np.abs)(np.abs(x))).max()


@pytest.mark.parametrize("degree", [0, 1, 2, 5])
@pytest.mark.parametrize("name", CHAINS)
def test_values_are_those_of_the_polynomial(name, degree):
    poly = mp.fit(CHAINS[name], INPUTS, degree, method=mp.methods.Composed(0.03))
    layers = unit_polynomials(poly)
    assert relative_error(layers, X, poly(X)) < 50 * EPS
    entering, _ = layers.run(X)
    assert [u.shape for u in entering] == [(50, len(table)) for table in layers.coefficients]
    assert all(table.shape[1] == degree + 1 for table in layers.coefficients)
    assert all(np.abs(u).max() <= 1 for u in entering)


@pytest.mark.parametrize(("activation", "guard"), [("gelu", 0.0), ("tanh", 0.1)])
def test_a_shared_polynomial_is_the_closest_to_the_activation_over_all_units(activation, guard):
    net = chain(activation, sizes=(D, 6, 5, 3))
    poly = mp.fit(net, INPUTS, 4, method=mp.methods.Composed(guard))
    layers = unit_polynomials(poly, shared=True)
    t = np.linspace(-20, 20, 4001)[:, None]  # the trapezoid rule is exact to rounding for such smooth functions
    mass = (1 - guard) * np.exp(-(t**2) / 2) + guard / 2 * np.exp(-(t**2) / 8)
    reach = radius_of(sum(len(table) for table in layers.coefficients))
    for stage, table in zip(poly.stages, layers.coefficients, strict=False):
        means, scales = stage.units.means, stage.units.scales
        low, high = np.min(means - reach * scales), np.max(means + reach * scales)
        y = means + scales * t
        u = (2 * y - low - high) / (high - low)
        assert np.ptp(table, axis=0).max() == 0  # one polynomial for all
        missed = mass * (net.layers[0].activation(y) - np.polynomial.polynomial.polyval(u, table[0]))
        for k in range(5):  # what is left is orthogonal to every power
            assert abs(np.sum(missed * y**k)) < 1e-9 * np.sum(np.abs(missed * y**k))


def radius_of(units, outside=1e-6):
    """Standard deviations that some of a number of units leave once in a million, by bisection of the tail."""
    low, high = 0.0, 40.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if units * math.erfc(middle / math.sqrt(2)) > outside else (low, middle)
    return low


def test_a_shared_polynomial_of_a_polynomial_activation_is_that_activation():
    net = chain("cube", sizes=(D, 6, 5, 3), gain=0.5)
    layers = unit_polynomials(mp.fit(net, INPUTS, 3, method=mp.methods.Composed(None)), shared=True)
    assert relative_error(layers, X, net(X)) < 1e-11


def test_units_leave_their_ranges_as_rarely_as_asked():
    poly = mp.fit(chain(sizes=(D, 60, 3)), INPUTS, 3, method="composed")
    outside, n = 0.05, 20_000
    for shared in (False, True):
        (u,), _ = unit_polynomials(poly, shared, outside).run(INPUTS.sample(n, seed=0))
        assert np.mean(np.abs(u).max(axis=1) > 1) < outside + 3 * math.sqrt(outside / n)


def test_a_guard_that_is_no_longer_known_is_asked_for(tmp_path):
    poly = mp.fit(CHAINS["deep"], INPUTS, 3, method=mp.methods.Composed(0.1))
    poly.save(tmp_path / "poly.safetensors")
    loaded = mp.load(tmp_path / "poly.safetensors")
    np.testing.assert_array_equal(unit_polynomials(loaded)(X), unit_polynomials(poly)(X))
    with pytest.raises(ValueError, match=r"guard.*that mlpoly\.fit returned"):
        unit_polynomials(loaded, shared=True)


def test_polynomials_that_are_no_chain_are_refused_with_the_reason():
    skip = mp.Chain([mp.Residual(network(activation="gelu", d=D, o=D)), network(d=D, h=5, o=2, seed=1)])
    gated = mp.Chain([network(d=D, o=D, activation="tanh"), network("GLU", "silu", d=D, seed=3)])
    for poly, match in (
        (mp.fit(gated, INPUTS, 3, method="composed"), r"gated units \(a GLU\).*to_he"),
        (mp.fit(skip, INPUTS, 3, method="composed"), r"skip connection.*to_he"),
        (mp.fit(CHAINS["deep"], INPUTS, 3, method="composed").bounded(3.0), "comparison"),
        (mp.fit(CHAINS["deep"], INPUTS, 2), r"DensePolynomial of degree 2.*method='composed'"),
        (CHAINS["deep"], "polynomial of this library"),
    ):
        with pytest.raises(TypeError, match=match):
            unit_polynomials(poly)


def test_bad_arguments_are_refused():
    poly = mp.fit(CHAINS["one layer"], INPUTS, 2)
    for outside in (0, 1.0, "1e-6", True):
        with pytest.raises(ValueError, match="outside must be a probability"):
            unit_polynomials(poly, outside=outside)
    with pytest.raises(ValueError, match=r"x has shape \(3, 5\), expected \(3, 4\)"):
        unit_polynomials(poly)(np.ones((3, 5)))
