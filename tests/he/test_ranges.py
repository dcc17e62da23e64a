"""Ranges: probabilities against mpmath and samples, and bounds that no input of the region exceeds."""

import itertools

import mpmath
import numpy as np
import pytest
from support.inputs import gaussian, mixture
from support.networks import chain, network

import mlpoly as mp

D = 4
INPUTS = gaussian(d=D)
DEEP = mp.fit(chain(sizes=(D, 6, 5, 3)), INPUTS, 3, method=mp.methods.Composed(0.03)).to_he()
SKIP = mp.fit(
    mp.Chain([mp.Residual(network(activation="gelu", d=D, o=D)), network("GLU", d=D, seed=1)]),
    INPUTS,
    3,
    method=mp.methods.Composed(0.03),
).to_he()


@pytest.mark.parametrize("inputs", [INPUTS, mixture(D), mp.Gaussian.standard(D)])
def test_probability_of_the_first_layer_is_that_of_its_forms(inputs):
    poly = mp.fit(network("GLU", d=D), INPUTS, 2)
    circuit = poly.to_he(outside=0.2)
    layer, exact = circuit.layers[0], mpmath.mpf(0)
    rows = np.concatenate([layer.forms[0].matrix[:-1], layer.gates[0].matrix[:-1]])
    parts = inputs.to(np.zeros(1))
    for weight, part in zip(parts.weights, parts.components, strict=True):
        for row in rows:
            mean, var = row[:-1] @ part.mean + row[-1], row[:-1] @ part.covariance @ row[:-1]
            inside = mpmath.ncdf(1, mean, mpmath.sqrt(var)) - mpmath.ncdf(-1, mean, mpmath.sqrt(var))
            exact += mpmath.mpf(float(weight)) * (1 - inside)
    found = mp.he.range_report(circuit, inputs)
    assert found.layers[0].probability == pytest.approx(min(float(exact), 1.0), rel=1e-11)
    # The sum over units bounds the probability for any of them; three standard errors of 10 000 samples.
    sd = np.sqrt(found.layers[0].counted * (1 - found.layers[0].counted) / found.samples)
    assert found.layers[0].counted <= found.layers[0].probability + 3 * sd


def test_counts_on_data():
    x = INPUTS.sample(200, seed=5)
    far = INPUTS.mean + 30 * (x - INPUTS.mean)
    found = mp.he.range_report(DEEP, np.concatenate([x, far]))
    inside = [np.abs(u).max(axis=1) <= 1 for u in DEEP.run(far).entries]
    assert found.outside == pytest.approx(np.mean(~np.all(inside, axis=0)) / 2, abs=1e-12) and found.outside > 0.3
    assert found.overflow > 0.3 and found.samples == 400 and found.layers[0].probability is None
    weighted = mp.he.range_report(DEEP, mp.Samples(np.concatenate([x, far]), np.repeat([3.0, 1.0], 200)))
    assert weighted.outside == pytest.approx(found.outside / 2, rel=1e-12)
    assert weighted.overflow == pytest.approx(found.overflow / 2, rel=1e-12)
    assert mp.he.range_report(DEEP, mp.Samples(x)).outside == 0 and "leave a range" in str(found)
    with pytest.raises(ValueError, match="inputs has shape"):
        mp.he.range_report(DEEP, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="inputs is empty"):
        mp.he.range_report(DEEP, np.zeros((0, D)))
    with pytest.raises(ValueError, match="inputs holds 4 NaN"):
        mp.he.range_report(DEEP, np.full((1, D), np.nan))


@pytest.mark.parametrize("circuit", [DEEP, SKIP])
def test_no_point_of_a_box_exceeds_its_bounds(circuit):
    rng = np.random.default_rng(0)
    low, high = INPUTS.mean - 0.7, INPUTS.mean + 1.1
    corners = np.array(list(itertools.product(*zip(low, high, strict=True))))
    x = np.concatenate([corners, rng.uniform(low, high, (3000, D))])
    bounds = mp.he.bound(circuit, low, high, seconds=1)
    sizes = [np.abs(u).max() for u in circuit.run(x).entries]
    assert bounds.sizes[0] == pytest.approx(sizes[0], rel=1e-12)  # a linear form is largest at a corner
    assert all(found <= bound * (1 + 1e-12) for found, bound in zip(sizes, bounds.sizes, strict=True))
    values = circuit(x)
    assert (values <= bounds.high + 1e-9).all() and (values >= bounds.low - 1e-9).all()
    assert bounds.fits and not mp.he.bound(circuit, low - 1e4, high + 1e4, seconds=0).fits


@pytest.mark.parametrize("circuit", [DEEP, SKIP])
def test_no_point_of_an_ellipsoid_exceeds_its_bounds(circuit):
    rng = np.random.default_rng(1)
    z = rng.standard_normal((3000, D))
    factor = np.linalg.cholesky(INPUTS.covariance)
    x = INPUTS.mean + 2.0 * (z / np.linalg.norm(z, axis=1, keepdims=True)) @ factor.T
    bounds = mp.he.bound(circuit, inputs=INPUTS, radius=2.0, seconds=1)
    values = circuit(x)
    assert (values <= bounds.high).all() and (values >= bounds.low).all()
    # Under the Gaussian of the fit each form of a plain first layer has one standard deviation per radius.
    assert bounds.sizes[0] == pytest.approx(2.0 / circuit.layers[0].radius, rel=1e-12)
    twice = mp.GaussianMixture.of(np.array([0.5, 0.5]), [INPUTS, INPUTS])
    one, two = (mp.he.bound(circuit, inputs=g, radius=2.0, seconds=0) for g in (INPUTS, twice))
    np.testing.assert_array_equal(two.high, one.high)


def test_outputs_of_products_alone_have_bounds():
    """The product of two independent coordinates is e u, without a power of u alone."""
    one, two = np.eye(2)[:1], np.eye(2)[1:]
    poly = mp.fit(mp.GLU(one, None, two, None, np.ones((1, 1)), activation="identity"), mp.Gaussian.standard(2), 2)
    circuit = poly.to_he()
    assert [term.gated for term in circuit.outputs] == [True]
    bounds = mp.he.bound(circuit, [-1.0, -3.0], [2.0, 1.0])
    np.testing.assert_allclose([bounds.low, bounds.high], [[-6.0], [3.0]], rtol=1e-12)


def test_a_box_in_single_precision_is_not_rounded():
    low, high = np.full(D, 0.1, dtype=np.float32), np.full(D, 100.0, dtype=np.float32)
    single, double = (
        mp.he.bound(DEEP, *sides, seconds=0) for sides in ((low, high), (low.astype(float), high.astype(float)))
    )
    np.testing.assert_array_equal([single.low, single.high], [double.low, double.high])


def test_a_circuit_says_which_layer_exceeds_its_budget():
    bounds = mp.he.bound(DEEP, INPUTS.mean - 200, INPUTS.mean + 200, seconds=1)
    assert not bounds.fits and DEEP.layers[1].name in bounds.excess
    assert all(times > 1 for times in bounds.excess.values())
    assert f"{DEEP.layers[1].name} may exceed 2^19" in str(bounds)
    assert max(bounds.found) <= max(bounds.sizes)


def test_a_report_certifies_the_ranges_over_a_box_too():
    circuit = mp.fit(network(d=3, h=5, o=2), mp.Gaussian.standard(3), 3).to_he()
    x = np.random.default_rng(0).uniform(-2, 2, size=(500, 3))
    report = mp.he.range_report(circuit, x, within=(-2.0, 2.0), seconds=1.0)
    (layer,) = report.layers
    assert layer.largest <= layer.certified < 2 * layer.largest
    assert "certified/range" in str(report) and "certified" not in str(mp.he.range_report(circuit, x))


def test_ranges_chosen_from_a_box_hold_everywhere_in_it():
    rng = np.random.default_rng(3)
    low, high = INPUTS.mean - 2.0, INPUTS.mean + 3.0
    for chosen in (
        mp.fit(network("GLU", d=D), INPUTS, 2),
        mp.fit(chain(sizes=(D, 6, 5, 3)), INPUTS, 3, method="composed"),
    ):
        circuit = chosen.to_he(within=(low, high))
        x = np.concatenate([rng.uniform(low, high, (2000, D)), np.where(rng.random((2000, D)) < 0.5, low, high)])
        sizes = [np.abs(u).max() for u in circuit.run(x).entries]
        assert all(0.05 < size <= 1 for size in sizes)
        np.testing.assert_allclose(circuit(x), chosen(x), atol=1e-9 * np.abs(chosen(x)).max())
        assert all(size <= 1 + 1e-9 for size in mp.he.bound(circuit, low, high, seconds=1).sizes)
    with pytest.raises(ValueError, match="within must be the two sides of a box"):
        chosen.to_he(within=3.0)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({}, ValueError, "a region is needed"),
        ({"low": 0.0, "high": 1.0, "inputs": INPUTS, "radius": 1.0}, ValueError, "a region is needed"),
        ({"low": 1.0, "high": 0.0}, ValueError, "low must not be above high"),
        ({"inputs": mp.Samples(np.zeros((3, D))), "radius": 2.0}, TypeError, "inputs must be a Gaussian"),
        ({"inputs": INPUTS, "radius": -1.0}, ValueError, "radius must be a positive number"),
        ({"inputs": mp.Gaussian.standard(3), "radius": 2.0}, ValueError, "3 dimensions, but the function has 4 inputs"),
        ({"low": np.zeros(3), "high": 1.0}, ValueError, r"low has shape \(3,\), expected \(4,\)"),
        ({"low": -np.inf, "high": np.inf}, ValueError, "low must be finite"),
    ],
)
def test_bad_regions(arguments, error, match):
    with pytest.raises(error, match=match):
        mp.he.bound(DEEP, **arguments)
