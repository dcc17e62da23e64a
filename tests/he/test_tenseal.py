"""Encrypted evaluation: parameters, the layout in slots simulated exactly, and TenSEAL against the circuit."""

import functools

import numpy as np
import pytest
from support.inputs import gaussian
from support.mistakes import assert_explained, mistakes
from support.networks import chain, network

import mlpoly as mp
from mlpoly.he import CKKS, Circuit, EncryptedLayer, LinearTerm
from mlpoly.he.circuit import Vector, products
from mlpoly.he.ckks import MODULUS_BITS, choose_parameters
from mlpoly.he.packing import pack
from mlpoly.records import map_arrays

D = 6
INPUTS = gaussian(d=D)
SKIP = mp.Chain([mp.Residual(network(activation="gelu", d=D, h=8, o=D)), network("GLU", "silu", d=D, h=8, seed=1)])


@functools.cache
def circuit(name):
    net, degree = {
        "two layers": (chain(sizes=(D, 8, 8, 3)), (2, 3)),
        "skip and gate": (SKIP, 2),
        "gated": (network("GLU", "silu", d=D, h=8), 4),
        "affine": (mp.Affine(np.arange(12.0).reshape(2, D), np.ones(2)), 1),
    }[name]
    return mp.fit(net, INPUTS, degree, method=mp.methods.Composed(0.03)).to_he()


def random_circuit(sizes, degree, seed=0):
    """A circuit with the given numbers of entries, and with each layer fed by all earlier ones."""
    rng = np.random.default_rng(seed)

    def terms(rows, layer):
        below = [Vector(0)] + [Vector(i, k) for i in range(1, layer) for k in range(1, degree + 1)]
        return tuple(LinearTerm(rng.normal(size=(rows, sizes[v.layer])), *v) for v in below)

    layers = [EncryptedLayer(terms(size, i), (), degree) for i, size in enumerate(sizes[1:-1], 1)]
    return Circuit(tuple(layers), terms(sizes[-1], len(sizes) - 1))


@pytest.mark.parametrize("scale_bits", [30, 40, 50])
@pytest.mark.parametrize("levels", [1, 3, 7, 12])
def test_parameters_are_the_smallest_that_the_standard_allows(levels, scale_bits):
    chosen = choose_parameters(levels, scale_bits=scale_bits, headroom_bits=10)
    assert chosen.primes == (scale_bits + 10, *[scale_bits] * levels, 60)
    assert chosen.modulus_bits == sum(chosen.primes) <= MODULUS_BITS[chosen.ring_dimension]
    assert all(chosen.modulus_bits > bits for n, bits in MODULUS_BITS.items() if n < chosen.ring_dimension)
    assert f"N={chosen.ring_dimension}" in repr(chosen)
    assert "128-bit" in repr(chosen)


def test_security_table_is_that_of_seal():
    seal = pytest.importorskip("tenseal.sealapi")
    for n, bits in MODULUS_BITS.items():
        assert seal.CoeffModulus.MaxBitCount(n, seal.SEC_LEVEL_TYPE.TC128) == bits


@pytest.mark.parametrize("ring_dimension", MODULUS_BITS)
def test_there_are_primes_for_the_smallest_scale(ring_dimension):
    seal = pytest.importorskip("tenseal.sealapi")
    room = (MODULUS_BITS[ring_dimension] - 60 - 27) // 25
    most = choose_parameters(max(room, 0), scale_bits=25, headroom_bits=2, ring_dimension=ring_dimension)
    primes = [p.value() for p in seal.CoeffModulus.Create(ring_dimension, list(most.primes))]
    assert len(set(primes)) == room + 2


@mistakes(
    [
        ("levels", lambda: choose_parameters(5, ring_dimension=8192), ValueError, "needs 5 levels.* has 2", "16384"),
        ("too deep", lambda: choose_parameters(40), ValueError, "40 levels", "scale_bits, or lower degrees"),
        ("slots", lambda: choose_parameters(1, 5000, ring_dimension=8192), ValueError, "5000 slots", "16384 does"),
        ("too wide", lambda: choose_parameters(1, 20000), ValueError, "20000 slots", "smaller network"),
        ("ring", lambda: choose_parameters(1, ring_dimension=1000), ValueError, "ring_dimension", "4096, 8192"),
        ("scale", lambda: choose_parameters(1, scale_bits=90), ValueError, "scale_bits", "25 to 58"),
        ("insecure", lambda: CKKS(4096, 20), ValueError, "912 bits is not secure", "parameters"),
        ("none", lambda: choose_parameters(0), ValueError, "112 bits is not secure", "allows 109"),
        ("headroom", lambda: choose_parameters(1, scale_bits=50), ValueError, "headroom_bits", "from 2 to 10"),
    ]
)
def test_parameters_that_do_not_fit_are_explained(act, exception, patterns):
    assert_explained(act, exception, patterns)


def in_slots(circuit, x, slots, junk):
    """Evaluate a circuit by rotations and products of slots; `junk` stands wherever nothing was encrypted."""
    packing = pack(circuit)
    block = packing.block
    start = np.zeros(packing.period)
    start[: circuit.dim_in], start[circuit.dim_in] = x, 1.0
    values = {Vector(0): np.full(slots, junk)}
    values[Vector(0)][:block] = start[np.arange(block) % packing.period]
    rotations = 0

    def rotated(v, distance):
        nonlocal rotations
        assert distance in packing.steps
        rotations += 1
        return np.roll(v, -distance)

    def total(packed):
        result = np.zeros(slots)
        for product in packed:
            found = np.zeros(slots)
            copies = [[values[term.vector]] for term in product.terms]
            for turned in copies:
                while len(turned) < product.baby:
                    turned.append(rotated(turned[-1], 1))
            for giant in reversed(product.giants):
                if giant < product.giants[-1]:
                    found = rotated(found, product.baby)
                for k, turned in enumerate(copies):
                    for baby in product.babies(giant):
                        found[:block] += turned[baby][:block] * product.diagonal(k, giant, baby, block)
            for fold in range(product.folds):
                found = found + rotated(found, product.diagonals << fold)
            result = result + found
        return result

    for i in range(1, len(circuit.layers) + 1):
        values[Vector(i)] = total(packing.sums[i, False])
        for made, (one, two) in products(circuit.powers(i)).items():
            values[made] = values[one] * values[two]
    outputs = total(packing.sums[len(circuit.layers) + 1, False])[: circuit.dim_out]
    return outputs, rotations, packing.rotations


@pytest.mark.parametrize(
    "sizes", [(7, 5, 3), (17, 129, 2), (3, 40, 1), (100, 9, 9, 10), (33, 8, 16, 4), (4, 2), (200, 24, 6)]
)
@pytest.mark.parametrize("degree", [1, 3])
def test_rotations_give_matrix_products(sizes, degree):
    made = random_circuit(sizes, degree)
    x = np.random.default_rng(1).normal(size=made.dim_in)
    found, rotations, counted = in_slots(made, x, slots=1024, junk=1e3)
    assert rotations == counted
    # What sums of products can round to; junk, were any of it to count, is far above.
    size = map_arrays(made, np.abs)(np.abs(x))
    assert np.abs(found - made(x)).max() < 1e-13 * size.max()


def session(name, scale_bits=40):
    pytest.importorskip("tenseal")
    return _session(name, scale_bits)


@functools.cache
def _session(name, scale_bits):
    return mp.he.session(circuit(name), scale_bits)


@pytest.mark.parametrize(
    ("name", "scale_bits"), [("two layers", 40), ("skip and gate", 40), ("gated", 28), ("affine", 40)]
)
def test_encrypted_outputs_are_those_of_the_circuit(name, scale_bits):
    it = session(name, scale_bits)
    x = INPUTS.sample(min(it.rows, 200), seed=3)
    found = it.decrypt(it.evaluate(it.encrypt(x, check=False)))
    error, noise = np.abs(found - it.circuit(x)), it.noise(x)
    assert np.all(error < 16 * noise)
    # The noise is predicted, from above for most slots, and neither of them vanishes.
    assert 0.4 < np.sqrt(np.mean(error**2) / np.mean(noise**2)) < 1.5
    # A scale of 2^40 leaves six digits.
    assert scale_bits < 40 or noise.max() < 1e-6 * np.abs(it.circuit(x)).max()


def test_predict_takes_any_number_of_rows():
    it = session("affine")
    x = INPUTS.sample(it.rows + 3, seed=5)
    found = it.predict(x)
    assert found.shape == (it.rows + 3, 2)
    assert np.all(np.abs(found - it.circuit(x)) < 16 * it.noise(x))
    assert it.predict(x[:0]).shape == (0, 2)
    assert it.predict(x[0]).shape == (1, 2)


def test_matrices_of_zeros():
    pytest.importorskip("tenseal")
    zero = LinearTerm(np.zeros((2, D + 1)), 0)
    it = mp.he.session(Circuit((), (zero,)))
    assert np.abs(it.predict(np.ones((1, D)))).max() < 1e-6


def unevaluated(it):
    it.decrypt(it.encrypt(INPUTS.mean))


def again(session):
    session.evaluate(session.evaluate(session.encrypt(INPUTS.mean)))


@mistakes(
    [
        ("range", lambda: session("two layers").encrypt(INPUTS.mean + 90.0), ValueError, "row 0 .*range of", "samples"),
        ("shape", lambda: session("affine").encrypt(np.ones((3, D + 1))), ValueError, r"x has shape \(3, 7\)", "row"),
        ("finite", lambda: session("affine").encrypt(np.full(D, np.nan)), ValueError, "x", "NaN|finite"),
        ("rows", lambda: session("affine").encrypt(np.ones((5000, D))), ValueError, "5000 rows", r"predict\(x\)"),
        ("large", lambda: session("affine").encrypt(np.full(D, 1e3)), ValueError, "output", "headroom_bits"),
        ("again", lambda: again(session("affine")), ValueError, "evaluated already", "encrypt"),
        ("early", lambda: unevaluated(session("affine")), ValueError, "not been evaluated", "evaluate"),
        ("levels", lambda: mp.he.session(circuit("two layers"), ring_dimension=8192), ValueError, "6 levels", "16384"),
    ]
)
def test_bad_input_is_explained(act, exception, patterns):
    pytest.importorskip("tenseal")
    assert_explained(act, exception, patterns)
