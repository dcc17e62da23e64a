"""Circuits: the values of the polynomial, the levels and products they cost, files, and what is refused."""

import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.inputs import gaussian, mixture, points
from support.mistakes import assert_explained, mistakes
from support.networks import chain, network

import mlpoly as mp
from mlpoly.errors import FileFormatError
from mlpoly.files import read_tensors, write_tensors
from mlpoly.he import load_circuit, save_circuit
from mlpoly.he.circuit import Vector, depth_of_power, products
from mlpoly.records import map_arrays

D = 4
INPUTS = gaussian(d=D)
NETWORKS = {
    "one layer": network(activation="gelu", d=D),
    "hidden units as outputs": network(activation="relu", d=D, o=None),
    "deep": chain(sizes=(D, 6, 5, 3)),
    "skip": mp.Chain([mp.Residual(network(activation="gelu", d=D, o=D)), network(d=D, h=5, o=2, seed=1)]),
    "skip within skip": mp.Residual(mp.Chain([mp.Residual(network(d=D, o=D)), network(d=D, h=3, o=D, seed=2)])),
    "skip of the input": mp.Residual(network(d=D, o=D, activation="tanh")),
    "gated": network("GLU", "silu", d=D),
    "gated behind a layer": mp.Chain([network(d=D, o=D, activation="tanh"), network("GLU", "silu", d=D, seed=3)]),
    "affine": mp.Affine(np.arange(8.0).reshape(2, 4), np.ones(2)),
}


def amplification(circuit, x):
    """Sum of the sizes of all products that make an output: what relative errors of them can grow to."""
    return map_arrays(circuit, np.abs)(np.abs(x))


@pytest.mark.parametrize("degree", [0, 1, 2, 5])
@pytest.mark.parametrize("name", NETWORKS)
def test_circuit_has_the_values_of_the_polynomial(name, degree):
    x = INPUTS.sample(50, seed=4)
    poly = mp.fit(NETWORKS[name], INPUTS, degree, method=mp.methods.Composed(0.03))
    circuit = poly.to_he()
    # Each layer rounds a few times per unit; the polynomial itself, in Hermite recurrences, does too.
    error = np.abs(circuit(x) - poly(x)) / amplification(circuit, x)
    assert error.max() < 50 * np.finfo(float).eps
    assert (circuit.dim_in, circuit.dim_out) == (poly.dim_in, poly.dim_out)


def test_one_layer_under_a_mixture_and_in_torch_gives_the_same_circuit():
    net, mix = network(activation="relu", d=D), mixture(D)
    poly = mp.fit(net, mix, 4, method="neuronwise")
    circuit, x = poly.to_he(), mix.sample(20, seed=1)
    assert np.abs(circuit(x) - poly(x)).max() < 1e-12 * amplification(circuit, x).max()
    again = poly.to(torch.zeros(1, dtype=torch.float64)).to_he()
    np.testing.assert_array_equal(circuit.outputs[0].matrix, again.outputs[0].matrix)
    np.testing.assert_allclose(again(torch.as_tensor(x)), circuit(x), rtol=0, atol=0)


def test_the_guarded_series_are_the_ones_that_are_encrypted():
    net, x = chain(sizes=(D, 6, 5, 3)), points(D)
    guarded, plain = (mp.fit(net, INPUTS, 3, method=mp.methods.Composed(g)) for g in (0.1, None))
    circuit = guarded.to_he()
    assert np.abs(circuit(x) - guarded(x)).max() < 1e-9 < np.abs(circuit(x) - plain(x)).max()


@pytest.mark.parametrize("degree", [1, 2, 5, 8])
@pytest.mark.parametrize("name", NETWORKS)
def test_levels_and_products(name, degree):
    net = NETWORKS[name]
    circuit = mp.fit(net, INPUTS, degree, method=mp.methods.Composed(0.1)).to_he()
    hidden = len(circuit.layers)
    assert circuit.levels == 1 + hidden * (math.ceil(math.log2(degree)) + 1)
    gated = sum(bool(layer.gates) for layer in circuit.layers)
    assert circuit.multiplications == hidden * (degree - 1) + gated * (degree - 1)
    two = name in ("deep", "skip", "skip within skip", "gated behind a layer")
    assert hidden == (0 if degree == 1 or name == "affine" else 1 + two)


@pytest.mark.parametrize("power", range(1, 20))
def test_powers_by_a_square_tree(power):
    u, e = np.array([0.7, -1.3]), np.array([2.0, 0.5])
    for vector in (Vector(1, power), Vector(1, power - 1, True)):
        values, depths = {Vector(1): u, Vector(1, 0, True): e}, {Vector(1): 0, Vector(1, 0, True): 0}
        for made, (one, two) in products([vector]).items():
            values[made], depths[made] = values[one] * values[two], 1 + max(depths[one], depths[two])
        np.testing.assert_allclose(values[vector], u**vector.power * (e if vector.gated else 1), rtol=1e-14)
        assert depths[vector] == depth_of_power(power) == math.ceil(math.log2(power))


def test_radius_follows_the_probability_and_the_samples():
    poly = mp.fit(NETWORKS["deep"], INPUTS, 2, method="composed")
    for outside in (1e-2, 1e-6, 1e-12):
        radius = poly.to_he(outside).layers[0].radius
        assert 11 * math.erfc(radius / math.sqrt(2)) == pytest.approx(outside, rel=1e-6)
    far = INPUTS.mean + 20 * (INPUTS.sample(5, seed=0) - INPUTS.mean)
    wider = poly.to_he(samples=far)
    largest = [np.abs(u).max() for u in wider.run(far).entries]
    assert max(largest) <= 1 + 1e-12 and wider.layers[0].radius > poly.to_he().layers[0].radius
    np.testing.assert_allclose(wider(far), poly(far), rtol=1e-9)
    assert poly.to_he(samples=mp.Samples(far)).layers[0].radius == wider.layers[0].radius


@pytest.mark.parametrize("name", ["deep", "skip", "gated", "gated behind a layer"])
def test_samples_are_within_the_ranges_made_for_them(name):
    poly = mp.fit(NETWORKS[name], INPUTS, 2, method="composed")
    for seed in range(10):
        x = INPUTS.mean + 3 + 6 * (INPUTS.sample(1 + seed, seed=seed) - INPUTS.mean)
        circuit = poly.to_he(samples=x)
        assert max(np.abs(u).max() for u in circuit.run(x).entries) <= 1
        near = INPUTS.sample(20, seed=1)
        assert (np.abs(circuit(near) - poly(near)) / amplification(circuit, near)).max() < 50 * np.finfo(float).eps


def test_file(tmp_path):
    for name in NETWORKS:
        circuit = mp.fit(NETWORKS[name], INPUTS, 3, method="composed").to_he()
        save_circuit(circuit, tmp_path / "circuit.safetensors")
        again, x = load_circuit(tmp_path / "circuit.safetensors"), points(D)
        np.testing.assert_array_equal(again(x), circuit(x))
        assert repr(again) == repr(circuit) and str(again) == str(circuit)


def test_files_of_other_kinds_are_refused(tmp_path):
    path = tmp_path / "circuit.safetensors"
    with pytest.raises(FileNotFoundError, match="to_he"):
        load_circuit(path)
    mp.fit(NETWORKS["skip"], INPUTS, 2, method="composed").save(path)
    with pytest.raises(FileFormatError, match="not a circuit"):
        load_circuit(path)


@settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_refused(tmp_path, data):
    """One entry of the header or one array is replaced, cut, poisoned or dropped."""
    path = tmp_path / "circuit.safetensors"
    save_circuit(mp.fit(NETWORKS["skip"], INPUTS, 2, method="composed").to_he(), path)
    header, arrays = read_tensors(path)
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(arrays)))
        array = arrays.pop(name)
        cut, poisoned = array[:, 1:], np.where(np.arange(array.shape[1]) == 0, np.nan, array)
        spoilt = data.draw(st.sampled_from([None, cut, array[:-1], poisoned, array.astype(np.float32)]))
        arrays |= {} if spoilt is None else {name: spoilt}
    else:
        places = [(header, "outputs"), *((layer, key) for layer in header["layers"] for key in layer)]
        entries, key = data.draw(st.sampled_from(places))
        refused = [None, True, -1, 10**9, math.nan, ["a"], [[7, 1, False]], [[0, 2, False]], [[0, 1, False]] * 2,
                   [[1, 0, True]]]  # fmt: skip
        entries[key] = data.draw(st.sampled_from(refused if key != "name" else [None, 3, ["a"]]))
    write_tensors(path, arrays, header)
    with pytest.raises(FileFormatError, match="damaged"):
        load_circuit(path)


def test_the_entry_that_is_always_one_is_checked(tmp_path):
    path = tmp_path / "circuit.safetensors"
    save_circuit(mp.fit(NETWORKS["skip"], INPUTS, 2, method="composed").to_he(), path)
    header, arrays = read_tensors(path)
    write_tensors(path, {name: 1.5 * a for name, a in arrays.items()}, header)
    with pytest.raises(FileFormatError, match="last entry"):
        load_circuit(path)


def refuse(name, degree=2, bound=None, inputs=INPUTS, method="auto", **options):
    def act():
        poly = mp.fit(NETWORKS[name], inputs, degree, method=method)
        (poly if bound is None else poly.bounded(bound)).to_he(**options)

    return act


@mistakes(
    [
        ("bounded", refuse("one layer", bound=3.0), TypeError, "comparison"),
        ("mixture", refuse("one layer", inputs=mixture(D)), TypeError, "neuronwise"),
        ("flat", refuse("deep"), TypeError, "method='composed'"),
        ("outside", refuse("one layer", outside=0), ValueError, "outside must be a probability"),
        ("columns", refuse("one layer", samples=np.zeros((3, 5))), ValueError, r"samples has shape .*\(any, 4\)"),
        ("levels", refuse("one layer", levels="7"), TypeError, "levels must be an integer"),
        ("too few", refuse("gated behind a layer", 4, method="composed", levels=5), ValueError,
         "levels is 5, but the polynomial needs 7", r"layer 2 .*\(gated\).*mlpoly\.he\.plan"),
        ("points", lambda: mp.fit(NETWORKS["one layer"], INPUTS, 2).to_he()(np.zeros((3, 5))), ValueError,
         r"x has shape .*\(\.\.\., 4\)"),
    ]
)  # fmt: skip
def test_mistakes(act, exception, patterns):
    assert_explained(act, exception, patterns)


def test_an_explosion_is_refused_with_the_name_of_the_layer():
    deep = chain(sizes=(D, 16, 16, 16, 3), gain=4.0)
    with pytest.raises(ValueError, match=r"layer [23] \(16 units\) has numbers up to .*explodes.*guard"):
        mp.fit(deep, INPUTS, 9, method=mp.methods.Composed(None)).to_he()
    with pytest.raises(ValueError, match=r"the output has numbers up to .* on the samples.*explodes"):
        mp.fit(deep, INPUTS, 9, method=mp.methods.Composed(None)).to_he(samples=1e3 * points(D))
    gated = mp.polynomials.RidgePolynomial(
        *[getattr(mp.fit(NETWORKS["gated"], INPUTS, 2), n) for n in ("units", "series", "readout")]
    )
    with pytest.raises(ValueError, match="pass samples"):
        gated.to_he()
    x = INPUTS.sample(100)
    np.testing.assert_allclose(gated.to_he(samples=x)(x), gated(x), rtol=1e-9)
