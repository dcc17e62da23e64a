"""Exports: chains of layers that share a polynomial, for Orion, and programs for HEIR, read back and evaluated."""

from __future__ import annotations

import math
import re
from statistics import NormalDist

import numpy as np
import pytest
from support.inputs import gaussian, mixture
from support.networks import chain, network

import mlpoly as mp
from mlpoly.he import shared_polynomials, to_heir, to_orion
from mlpoly.he.heir_program import _Program
from mlpoly.records import map_arrays

D = 4
INPUTS = gaussian(d=D)
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
}
SKIP = mp.Chain([mp.Residual(network(activation="gelu", d=D, o=D)), network(d=D, h=5, o=2, seed=1)])
GATED = mp.Chain([network(d=D, o=D, activation="tanh"), network("GLU", "silu", d=D, seed=3)])
EPS = np.finfo(float).eps


def amplification(exported, x):
    """Sum of the sizes of all products that make an output: what relative errors of them can grow to."""
    return map_arrays(exported, np.abs)(np.abs(x))


# -- one polynomial for each layer -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("activation", "guard"), [("gelu", 0.0), ("tanh", 0.1)])
def test_shared_polynomial_is_closest_to_the_activation_over_all_neurons(activation, guard):
    net = chain(activation, sizes=(D, 6, 5, 3))
    poly = mp.fit(net, INPUTS, 4, method="composed", guard=guard)
    t = np.linspace(-20, 20, 4001)[:, None]  # the trapezoid rule is exact to rounding for such smooth functions
    mass = (1 - guard) * np.exp(-(t**2) / 2) + guard / 2 * np.exp(-(t**2) / 8)
    for q, stage in zip(shared_polynomials(poly), poly.stages, strict=False):
        y = stage.units.means + stage.units.scales * t
        missed = mass * (net.layers[0].activation(y) - q(y))
        for k in range(5):  # what is left is orthogonal to every power
            assert abs(np.sum(missed * y**k)) < 1e-9 * np.sum(np.abs(missed * y**k))


def test_shared_polynomial_of_a_polynomial_activation_is_that_activation():
    net = chain("cube", sizes=(D, 6, 5, 3), gain=0.5)
    poly = mp.fit(net, INPUTS, 3, method="composed", guard=None)
    for q in shared_polynomials(poly):
        low, high = q.domain
        expected = np.polynomial.Polynomial([0, 0, 0, 1]).convert(domain=[low, high], window=[-1, 1]).coef
        np.testing.assert_allclose(q.coef, expected, rtol=0, atol=1e-11 * np.abs(expected).max())
        plain = q.convert().coef
        np.testing.assert_allclose(plain, [0, 0, 0, 1], rtol=0, atol=1e-9)
    x = INPUTS.sample(20, seed=1)
    exported = to_orion(poly, form="shared")
    assert (np.abs(exported(x) - net(x)) / amplification(exported, x)).max() < 1e-11


def test_shared_polynomials_hold_all_but_a_stated_fraction_within_their_domains():
    poly = mp.fit(chain(sizes=(D, 60, 3)), INPUTS, 3, method="composed")
    outside = 0.05
    (q,) = shared_polynomials(poly, outside)
    units, normal = poly.stages[0].units, NormalDist()
    reach = -normal.inv_cdf(outside / 120)  # 60 units with two tails each
    assert q.domain[0] == pytest.approx(np.min(units.means - reach * units.scales))
    assert q.domain[1] == pytest.approx(np.max(units.means + reach * units.scales))
    n = 20_000
    (u,) = to_orion(poly, "shared", outside).intermediates(INPUTS.sample(n, seed=0))
    assert np.mean(np.abs(u).max(axis=1) > 1) < outside + 3 * math.sqrt(outside / n)


def test_a_guard_that_is_no_longer_known_is_asked_for(tmp_path):
    poly = mp.fit(CHAINS["deep"], INPUTS, 3, method="composed", guard=0.1)
    poly.save(tmp_path / "poly.safetensors")
    loaded, x = mp.load(tmp_path / "poly.safetensors"), INPUTS.sample(5, seed=0)
    np.testing.assert_array_equal(to_orion(loaded)(x), to_orion(poly)(x))
    with pytest.raises(ValueError, match=r"guard.*that mlpoly\.fit returned"):
        shared_polynomials(loaded)


def test_neurons_without_spread_leave_a_domain_and_a_finite_polynomial():
    poly = mp.fit(mp.MLP(np.zeros((3, D)), np.ones(3), np.eye(3), activation="gelu"), INPUTS, 3)
    (q,) = shared_polynomials(poly)
    assert q.domain[0] < 1 < q.domain[1]
    x = INPUTS.sample(5, seed=0)
    for form in ("neurons", "shared"):
        np.testing.assert_allclose(to_orion(poly, form)(x), poly(x), rtol=1e-12)


# -- Orion -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("name", CHAINS)
def test_powers_have_the_values_of_the_polynomial(name, degree):
    x = INPUTS.sample(50, seed=4)
    poly = mp.fit(CHAINS[name], INPUTS, degree, method="composed", guard=0.03)
    exported = to_orion(poly)
    # Powers at n places are combined by factors from a system whose condition grows with n.
    assert (np.abs(exported(x) - poly(x)) / amplification(exported, x)).max() < 50 * EPS * 4 ** max(degree - 2, 0)
    assert all(list(c) == [1.0] + [0.0] * degree for c in exported.coefficients)
    for u, stage in zip(exported.intermediates(x), exported.weights, strict=False):
        assert u.shape == (50, len(stage))


def test_parabolas_from_bent_to_straight_stay_well_conditioned():
    """The bias makes a ReLU neuron anything from flat to straight, with vertices up to 10^30 ranges off."""
    bias = np.linspace(-12, 12, 41)
    net = mp.MLP(np.tile(np.eye(D)[:1], (41, 1)), bias, activation="relu")
    poly = mp.fit(net, mp.Gaussian.standard(D), 2)
    exported, x = to_orion(poly), mp.Gaussian.standard(D).sample(200, seed=0)
    assert 41 - np.sum(bias < -9) <= exported.weights[0].shape[0] <= 2 * 41
    assert np.abs(exported.intermediates(x)[0]).max() <= 1
    error, size = np.abs(exported(x) - poly(x)), np.abs(poly(x)).max(axis=0)
    # The largest square is at most (1 + v)^2 / 2v times the neuron within its range, for vertices up to v = 16.
    assert (np.abs(exported.weights[1]).sum(axis=1) <= 20 * size).all()
    assert (error <= 20 * 20 * EPS * size).all()


def test_linear_and_constant_neurons_of_degree_two_are_exact():
    poly = mp.fit(mp.MLP(np.diag([1.0, 0.0, 2.0, 3.0]), np.ones(4), activation="identity"), INPUTS, 2)
    exported, x = to_orion(poly), INPUTS.sample(20, seed=2)
    assert (np.abs(exported(x) - poly(x)) <= 50 * EPS * amplification(exported, x)).all()


@pytest.mark.parametrize(
    ("degree", "form", "levels"),
    [
        *((1, "neurons", 1), (2, "neurons", 5), (3, "neurons", 7), (4, "neurons", 7), (5, "neurons", 9)),
        *((8, "neurons", 9), (2, "shared", 7), (3, "shared", 7), (4, "shared", 9), (7, "shared", 9)),
    ],
)
def test_levels_are_those_of_orions_modules(degree, form, levels):
    """Linear 1, Quad 1, Activation ceil(log2(number of coefficients)); two hidden layers, so three matrices."""
    exported = to_orion(mp.fit(CHAINS["deep"], INPUTS, degree, method="composed"), form)
    assert exported.levels == levels
    assert f"{levels} levels" in repr(exported)


def test_export_from_torch_in_single_precision_is_that_of_the_same_numbers():
    torch = pytest.importorskip("torch")
    poly = mp.fit(CHAINS["deep"], INPUTS, 3, method="composed").to(torch.zeros(1, dtype=torch.float32))
    x = INPUTS.sample(10, seed=1)
    exported = to_orion(poly)
    assert all(w.dtype == np.float64 for w in exported.weights)
    wide = poly.to(np.zeros(1))
    assert (np.abs(exported(torch.as_tensor(x)) - wide(x)) / amplification(exported, x)).max() < 200 * EPS


def test_one_layer_under_a_mixture():
    mix = mixture(D)
    poly = mp.fit(network(activation="relu", d=D), mix, 3, method="neuronwise")
    exported, x = to_orion(poly), mix.sample(20, seed=1)
    assert (np.abs(exported(x) - poly(x)) / amplification(exported, x)).max() < 200 * EPS


# -- HEIR --------------------------------------------------------------------------------------------------------------


def evaluated(text, x):
    """Values of a program in MLIR at rows x, and the products of two values in it; an independent reading of it."""
    number = r"[-+]?[\d.]+(?:e[-+]\d+)?"
    series = {}
    for name, body in re.findall(r"(#\w+) = #polynomial\.typed_float_polynomial<(.*)> : !series", text):
        powers = re.findall(rf"({number})(x?)(?:\*\*(\d+))?(?: \+ |$)", body)
        series[name] = {int(k) if k else int(bool(of)): float(c) for c, of, k in powers}
    values, count = {"%x": x}, 0
    dims = re.search(r"func\.func @\w+\(%x: tensor<1x(\d+)xf64> \{secret\.secret\}\) -> tensor<1x(\d+)xf64>", text)
    assert int(dims[1]) == x.shape[1]
    for name, what in re.findall(r"(%\d+) = (.*)", text):
        if found := re.match(r'arith\.constant dense<"0x([\dA-F]+)"> : tensor<(\d+)x(\d+)xf64>', what):
            values[name] = np.frombuffer(bytes.fromhex(found[1]), "<f8").reshape(int(found[2]), int(found[3]))
        elif found := re.match(r"linalg\.matmul ins\((%\w+), (%\d+) : .*\) outs\((%\d+) : .*\) -> .*", what):
            values[name] = values[found[1]] @ values[found[2]] + values[found[3]]
        elif found := re.match(r"arith\.mulf (%\d+), (%\d+) : ", what):
            values[name], count = values[found[1]] * values[found[2]], count + 1
        elif found := re.match(
            r"polynomial\.eval (#\w+), (%\d+) \{domain_lower = -1\.0 : f64, domain_upper = 1\.0", what
        ):
            values[name] = sum(c * values[found[2]] ** k for k, c in series[found[1]].items())
        else:
            raise AssertionError(what)
    result = re.search(r"return (%\d+) : tensor<1x(\d+)xf64>", text)
    assert result[2] == dims[2]
    return values[result[1]], count


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("net", [*CHAINS.values(), SKIP, GATED], ids=[*CHAINS, "skip", "gated"])
def test_programs_of_neurons_have_the_values_and_products_of_the_circuit(net, degree):
    poly, x = mp.fit(net, INPUTS, degree, method="composed", guard=0.03), INPUTS.sample(20, seed=4)
    circuit = poly.to_he()
    found, count = evaluated(to_heir(poly), x)
    size = map_arrays(circuit, np.abs)(np.abs(x))
    assert (np.abs(found - poly(x)) / size).max() < 50 * EPS
    assert count == circuit.multiplications
    assert to_heir(poly) == to_heir(circuit)


@pytest.mark.parametrize("name", ["one layer", "deep", "affine"])
def test_programs_with_one_polynomial_per_layer_have_the_values_of_the_export(name):
    poly, x = mp.fit(CHAINS[name], INPUTS, 3, method="composed"), INPUTS.sample(20, seed=4)
    exported = to_orion(poly, "shared")
    found, count = evaluated(to_heir(poly, "shared"), x)
    assert (np.abs(found - exported(x)) / amplification(exported, x)).max() < 50 * EPS
    assert count == 0


def test_numbers_of_programs_have_a_point():
    """MLIR reads 1e-05, as Python writes it, as the integer 1 and a name."""
    program = _Program(1)
    coefficients = np.array([1e-5, 1e22, 0.0, 0.1, -3.0])
    program.polynomial("%x", coefficients)
    numbers = re.findall(r"[-+]?\d+[.]\d*(?:e[-+]?\d+)?", program.attributes[0])
    assert [float(number) for number in numbers] == coefficients[::-1].tolist()


def test_programs_name_their_function_and_backend():
    text = to_heir(mp.fit(CHAINS["one layer"], INPUTS, 2), name="digits", backend="lattigo")
    assert "module attributes {backend.lattigo} {" in text
    assert "func.func @digits(" in text


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("export", [to_orion, shared_polynomials, lambda poly: to_heir(poly, "shared")])
def test_polynomials_that_are_no_chain_are_refused_with_the_reason(export):
    gated, skip = (mp.fit(net, INPUTS, 3, method="composed") for net in (GATED, SKIP))
    with pytest.raises(TypeError, match=r"gated units \(a GLU\).*second matrix.*each of the 3 terms.*to_he"):
        export(gated)
    with pytest.raises(TypeError, match=r"skip connection.*to_he"):
        export(skip)
    with pytest.raises(TypeError, match="comparison"):
        export(mp.fit(CHAINS["deep"], INPUTS, 3, method="composed").bounded(3.0))
    with pytest.raises(TypeError, match=r"DensePolynomial of degree 2.*method='composed'"):
        export(mp.fit(CHAINS["deep"], INPUTS, 2))
    with pytest.raises(TypeError, match="polynomial of this library"):
        export(CHAINS["deep"])


def test_bad_arguments_are_refused():
    poly = mp.fit(CHAINS["one layer"], INPUTS, 2)
    for outside in (0, 1.0, "1e-6", True):
        with pytest.raises(ValueError, match="outside must be a probability"):
            to_orion(poly, outside=outside)
    for export in (to_orion, to_heir):
        with pytest.raises(ValueError, match="form must be 'neurons' or 'shared'"):
            export(poly, form="exact")
    with pytest.raises(ValueError, match="backend must be"):
        to_heir(poly, backend="seal")
    for name in ("my network", "größe", 3):
        with pytest.raises(ValueError, match="name must be a name"):
            to_heir(poly, name=name)
    with pytest.raises(TypeError, match="Circuit has a polynomial for each neuron"):
        to_heir(poly.to_he(), "shared")
    with pytest.raises(ValueError, match=r"x has shape \(3, 5\), expected \(3, 4\)"):
        to_orion(poly)(np.ones((3, 5)))
