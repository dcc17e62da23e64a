"""Polynomials that continue as straight lines beyond a bound: values, derivatives, arithmetic, moments, fits."""

import itertools

import numpy as np
import pytest
from support.backends import assert_close
from support.inputs import points
from support.networks import network
from support.quadrature import trapezoid

import mlpoly as mp
from mlpoly.polynomials import BoundedPolynomial
from mlpoly.records import arrays_of, replace

BOUND = 2.0
kinds = pytest.mark.parametrize("kind", ["MLP", "GLU"])


def make_net(kind, activation="silu", d=3, h=5, seed=1, o=2):
    return network(kind, activation, d, h, o, seed=seed, scale=d**0.5, up=d**0.5)


def inputs_of(d=3, seed=0, spread=1.0):
    """N(0.3, ...) with correlated inputs."""
    rng = np.random.default_rng(seed)
    root = np.eye(d) + 0.4 * rng.standard_normal((d, d))
    return mp.Gaussian(0.3 * rng.standard_normal(d), spread * root @ root.T)


def polynomial(kind, degree=3, activation="silu", o=2, bound=BOUND):
    return mp.fit(make_net(kind, activation, o=o), inputs_of(), degree).bounded(bound)


X = points(3, 40, seed=2, spread=3.0)


def standardised(poly, x):
    return (x @ poly.units.directions.T - poly.units.shifts) / poly.units.scales


def by_hand(poly, x):
    """The definition: polynomials in powers of t."""
    units = poly.units
    t, b = standardised(poly, x), poly.bounds
    held, low, high = np.clip(t, -b, b), np.minimum(t + b, 0), np.maximum(t - b, 0)
    he = [held**0, held, (held**2 - 1) / 2**0.5, (held**3 - 3 * held) / 6**0.5]

    def series(c, slopes):
        line = 0 if slopes is None else slopes[0] * low + slopes[1] * high
        return sum(a * he[k] for k, a in enumerate(c)) + line

    hidden = series(poly.series.plain, poly.slopes)
    if poly.series.gated is not None:
        gate = units.gate
        e = x @ gate.directions.T - gate.shifts - gate.slopes * held
        hidden = hidden + e * series(poly.series.gated, poly.gate_slopes)
    if poly.readout is not None:
        hidden = hidden @ poly.readout.T
    return hidden if poly.bias is None else hidden + poly.bias


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("o", [2, None])
@kinds
def test_values_are_those_of_the_definition(kind, o, degree):
    poly = polynomial(kind, degree, o=o)
    assert isinstance(poly, BoundedPolynomial)
    assert_close(poly(X), by_hand(poly, X), 1e-12)


@kinds
def test_slopes_are_chords_of_the_activation(kind):
    """Between one and two bounds; for a gated unit times what v.x is at the bound without e."""
    net, poly = make_net(kind), polynomial(kind)
    units = poly.units
    for row, sign in ((0, -1.0), (1, 1.0)):
        near, far = (net.activation(units.means + sign * k * BOUND * units.scales) for k in (1, 2))
        chord = sign * (far - near) / BOUND
        if kind == "GLU":
            assert_close(poly.gate_slopes[row], chord)
            chord = chord * (units.gate.means + sign * BOUND * units.gate.slopes)
        assert_close(poly.slopes[row], chord)


@kinds
def test_within_the_bound_it_is_the_polynomial(kind):
    poly, x = polynomial(kind), X
    plain = mp.fit(make_net(kind), inputs_of(), 3)
    inside = np.abs(standardised(poly, x)).max(1) < BOUND
    assert 0 < inside.sum() < len(x)
    assert_close(poly(x[inside]), plain(x[inside]), 1e-13)
    assert np.abs(poly(x[~inside]) - plain(x[~inside])).max() > 0.1
    assert poly.coefficients().tensor(3).shape == (2, 3, 3, 3)
    for k in range(4):
        assert_close(poly.coefficients().tensor(k), plain.coefficients().tensor(k), 0)


@kinds
def test_the_polynomial_comes_back(kind):
    plain = mp.fit(make_net(kind), inputs_of(), 3)
    poly = plain.bounded(BOUND)
    back = poly.polynomial
    assert (poly.degree, poly.dim_in, poly.dim_out) == (3, 3, 2)
    assert back.inputs is poly.inputs is plain.inputs and back.source == poly.source == plain.source
    assert_close(back(X), plain(X), 0)
    assert_close(back.bounded(1.0)(X), plain.bounded(1.0)(X), 0)
    assert repr(poly) == f"BoundedPolynomial({plain!r}, bound=2)"


def test_lines_along_a_bilinear_unit_are_exact():
    """A bilinear unit is its own quadratic, and lines along it are exact, wherever they begin."""
    net = mp.GLU(np.eye(2), None, np.array([[1.0, 0.5], [0.0, 2.0]]), np.ones(2), np.eye(2), None, "linear")
    plain = mp.fit(net, mp.Gaussian(np.array([0.5, -1.0]), np.array([[1.0, 0.3], [0.3, 2.0]])), 2)
    x = 5 * np.random.default_rng(0).standard_normal((30, 2))
    for bound in (0.5, 1.0, 4.0):
        assert_close(plain.bounded(bound)(x), net(x), 1e-13)


def test_a_constant_unit_has_no_lines_to_follow():
    net = mp.MLP(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([0.7, 0.0]), np.eye(2), None, "silu")
    poly, x = mp.fit(net, mp.Gaussian.standard(2), 3).bounded(BOUND), points(2, 20, seed=2, spread=3.0)
    assert_close(poly(x)[:, 0], net(x)[:, 0], 1e-13)
    assert_close(poly.gradient(x)[:, 0], np.zeros((20, 2)), 0)


NAMES = ["MLP", "GLU", "MLP units", "GLU units"]


def named(name, bound, degree=3, seed=1):
    kind, *rest = name.split()
    net = make_net(kind, "silu" if kind == "GLU" else "tanh", h=2 if rest else 5, seed=seed, o=None if rest else 2)
    return mp.fit(net, inputs_of(seed=seed), degree).bounded(bound)


@pytest.mark.parametrize(("one", "two"), list(itertools.product(NAMES, NAMES)))
def test_sums_are_those_of_the_values(one, two):
    """Of different bounds, degrees, distributions and kinds of units."""
    x = X
    for low, high in ((1, 3), (2, 2), (3, 0)):
        p, q = named(one, 1.0, low), named(two, 2.5, high, seed=4)
        size = np.abs(p(x)).max() + np.abs(q(x)).max()
        for made, want in ((p + q, p(x) + q(x)), (p - q, p(x) - q(x)), (2 * p + q / 4, 2 * p(x) + q(x) / 4)):
            assert isinstance(made, BoundedPolynomial)
            assert np.abs(made(x) - want).max() < 1e-13 * size
        assert_close((p + q).gradient(x), p.gradient(x) + q.gradient(x), 1e-12)
        assert_close((p + q).hessian(x), p.hessian(x) + q.hessian(x), 1e-12)
        assert_close((p + q).truncate(1)(x), p.truncate(1)(x) + q.truncate(1)(x), 1e-12)


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 5])
@kinds
def test_truncation_drops_lines_with_their_degree(kind, degree):
    """The truncated fit with bounds is the bounded fit of the lower degree."""
    net, x = make_net(kind), X
    made, want = polynomial(kind, 3).truncate(degree), mp.fit(net, inputs_of(), min(degree, 3)).bounded(BOUND)
    assert made.degree == min(degree, 3)
    assert arrays_of(made).keys() == arrays_of(want).keys()
    assert_close(made(x), want(x), 1e-13)
    assert_close(made(x), by_hand(made, x), 1e-12)
    if degree == 0:
        # One product for all rows may sum the five units in another order than that of a single row.
        assert_close(made(x), np.broadcast_to(made(x[:1]), (len(x), 2)), 10 * 5 * np.finfo(float).eps)
    if degree < 2:
        assert made.gate_slopes is None


def grid(inputs):
    """Points and weights in one or two dimensions: a trapezoidal rule fine enough for kinks, component by component."""
    x, w = [], []
    for share, g in zip(inputs.weights, inputs.components, strict=True):
        z, mass = trapezoid(g.dim, 3.2e-4 if g.dim == 1 else 0.04)
        x.append(g.mean + z @ np.linalg.cholesky(g.cov).T)
        w.append(share * mass)
    return np.concatenate(x), np.concatenate(w)


def true_fvu(net, poly, inputs):
    x, w = grid(inputs)
    f, p = net(x), poly(x)
    return float(np.sum(w @ (f - p) ** 2) / np.sum(w @ (f - w @ f) ** 2))


def mixture_of(d):
    parts = [inputs_of(d, 5), inputs_of(d, 6, 0.5)]
    return mp.GaussianMixture.of(np.array([0.3, 0.7]), parts)


INPUTS = {"same": lambda d: inputs_of(d), "other": lambda d: inputs_of(d, 7, 2.0), "mixture": mixture_of}


@pytest.mark.parametrize("where", INPUTS)
@pytest.mark.parametrize("activation", ["relu", "silu", "tanh"])
@pytest.mark.parametrize("d", [1, 2])
@kinds
def test_fvu_is_that_of_quadrature(kind, d, activation, where):
    net, inputs = make_net(kind, activation, d), INPUTS[where](d)
    plain = mp.fit(net, inputs_of(d), 3)
    for bound in (1.5, 3.0):
        poly = plain.bounded(bound)
        found = mp.fvu(net, poly, inputs)
        want = true_fvu(net, poly, inputs)
        # A trapezoidal rule with kinks on a grid of 0.04 knows a relative 1e-5 of it in two dimensions.
        assert abs(float(found.total) - want) <= float(found.bound) + (1e-9 if d == 1 else 1e-5) * want
        assert 0 <= float(found.bound) < 1e-3


def test_a_large_mean_costs_the_error_no_digits():
    """What is missing is a difference of second moments, which a mean must not swamp."""
    net = mp.MLP(np.eye(2), np.array([1e5, 1e5 - 1]), np.array([[1.0, -1.0]]), None, "silu")
    poly = mp.fit(net, mp.Gaussian.standard(2), 2).bounded(3.0)
    found = mp.fvu(net, poly)
    assert float(found.total) < 1e-9 and float(found.bound) < 1e-6


@kinds
def test_units_as_outputs_and_sums_have_an_error_too(kind):
    d = 2
    net = make_net(kind, d=d, h=2, o=None)
    poly = mp.fit(net, inputs_of(d), 3).bounded(1.5)
    other = 0.5 * poly + 0.25 * mp.fit(net, inputs_of(d, 4), 2).bounded(2.5)
    for p in (poly, other):
        found, want = mp.fvu(net, p, inputs_of(d)), true_fvu(net, p, inputs_of(d))
        assert abs(float(found.total) - want) <= float(found.bound) + 1e-5 * want
        assert float(found.bound) < 1e-3


def test_neurons_that_do_not_continue_along_the_activation_are_refused():
    """Their lines would have the wrong slope; the message says what to bound instead."""
    net, units = make_net("MLP"), make_net("MLP", o=None)
    poly, hidden = (mp.fit(n, inputs_of(), 3) for n in (net, units))
    gated = mp.fit(make_net("GLU"), inputs_of(), 3)
    for wrong in (replace(poly, activation=None), poly + poly, poly + gated, 2 * hidden, -hidden):
        with pytest.raises(ValueError, match=r"does not know the activation .* Call bounded\(\) on that of mlpoly.fit"):
            wrong.bounded(3.0)
    # What only changes the readout leaves the neurons as they are.
    x = X
    for fine, want in (
        (2 * poly, 2 * poly.bounded(3.0)(x)),
        (poly + 1, poly.bounded(3.0)(x) + 1),
        (poly.output(0), poly.bounded(3.0)(x)[:, :1]),
        (hidden.output(1), hidden.bounded(3.0)(x)[:, 1:2]),
    ):
        assert_close(fine.bounded(3.0)(x), want, 1e-13)


@pytest.mark.parametrize("bound", [0, -1.0, float("inf"), float("nan"), True, "3", None, np.ones(2)])
def test_a_bound_is_a_positive_number(bound):
    poly = mp.fit(make_net("MLP"), inputs_of(), 2)
    with pytest.raises(ValueError, match="bound must be a positive number of standard deviations"):
        poly.bounded(bound)
    assert_close(poly.bounded(np.float32(2.0))(X), poly.bounded(2)(X), 0)  # type: ignore[arg-type]


@kinds
@pytest.mark.parametrize("bias", [True, False])
def test_a_change_of_units_commutes_with_bounds(kind, bias):
    net = make_net(kind)
    if not bias:
        net = net.with_parts(replace(net.forms, bias=None, gate_bias=None), net.readout, net.bias)
    poly, scale, mean = mp.fit(net, inputs_of(), 3), np.array([2.0, 3.0, 0.5]), np.array([0.5, -1.0, 4.0])
    here = poly.bounded(BOUND)(X)
    x = mean + scale * X
    assert_close(poly.bounded(BOUND).in_units(scale, mean)(x), here, 1e-12)
    assert_close(poly.in_units(scale, mean).bounded(BOUND)(x), here, 1e-12)
