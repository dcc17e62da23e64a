"""Files of polynomials: what is saved comes back in any library, and what was damaged or crafted is refused."""

from functools import partial

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from support.backends import JAX32, JAX64, NUMPY32, TORCH32, TORCH64, assert_close, assert_same_kind, backends, make
from support.inputs import gaussian, mixture, points
from support.networks import network
from support.polynomials import header_of, rewritten

import mlpoly as mp
from mlpoly.moments.hermite_products import multi_indices

D, OUT = 4, 3
X = points(D, 7)
STANDARD, MIX = mp.Gaussian.standard(D), mixture(D, 2, seed=2)
make_net = partial(network, d=D, seed=1, scale=2.0, up=2.0)
FITS = {
    "ridge": lambda: mp.fit(make_net(), STANDARD, 3),
    "gated": lambda: mp.fit(make_net("GLU", "silu"), mp.Gaussian(MIX.mean, MIX.covariance), 3),
    "ridge of hidden units": lambda: mp.fit(mp.MLP(make_net().W1), STANDARD, 2),
    "neuronwise": lambda: mp.fit(make_net(), MIX, 4, method="neuronwise"),
    "dense constant": lambda: mp.fit(make_net(), MIX, 0),
    "dense linear": lambda: mp.fit(make_net(), MIX, 1),
    "dense": lambda: mp.fit(make_net("GLU", "silu"), MIX, 2),
    "chaos": lambda: mp.fit(make_net(), MIX, 3),
    "chaos without variance": lambda: mp.fit(
        make_net(), mp.GaussianMixture(np.ones(1), np.ones((1, D)), np.zeros((1, D))), 3
    ),
    "dense by hand": lambda: mp.DensePolynomial(X[0], X[0, :OUT], X[:OUT], np.stack([np.eye(D)] * OUT)),
}
everything = pytest.mark.parametrize("kind", FITS)


@everything
def test_a_file_holds_the_polynomial_and_its_header_says_what_it_is(kind, tmp_path):
    poly = FITS[kind]()
    poly.save(tmp_path / "poly")
    again = mp.load(tmp_path / "poly")
    assert type(again) is type(poly)
    assert (again.degree, again.dim_in, again.dim_out) == (poly.degree, D, poly.dim_out)
    np.testing.assert_array_equal(again(X), poly(X))
    assert again.source.method == poly.source.method and again.source.activation == poly.source.activation
    assert again.source.inputs == ("" if poly.inputs is None else poly.inputs.fingerprint)
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "poly").read_bytes()
    assert {f.name for f in tmp_path.iterdir()} == {"poly", "again"}  # no scratch file is left

    header = header_of(tmp_path / "poly")
    assert header["format"] == "mlpoly" and header["layout"] == 3 and header["version"] == mp.__version__
    assert header["kind"] == type(poly).__name__
    assert (header["degree"], header["dim_in"], header["dim_out"]) == (poly.degree, D, poly.dim_out)
    assert (header["activation"], header["method"]) == (poly.source.activation, poly.source.method)


@backends(NUMPY32, TORCH64, TORCH32, JAX64, JAX32)
@pytest.mark.parametrize("kind", ["gated", "dense", "chaos"])
def test_files_load_into_any_library(kind, backend, tmp_path):
    poly = FITS[kind]()
    poly.save(tmp_path / "poly")
    x = make(X, backend)
    again = mp.load(tmp_path / "poly", like=x)
    assert_same_kind(again(x), x)
    assert_close(again(x), poly(X), 1e-12 if backend.dtype == "float64" else 2e-5)
    again.save(tmp_path / "again")
    assert_close(mp.load(tmp_path / "again")(X), again(x), 1e-12 if backend.dtype == "float64" else 2e-5)


def lines():
    """A polynomial of few neurons; with lines, so that its file has a bound."""
    net = mp.MLP(np.eye(3, 2), np.ones(3), np.ones((2, 3)), np.zeros(2), "tanh")
    return mp.fit(net, mp.Gaussian.standard(2), 3).bounded(4.0)


def with_one(a, value, dtype=None):
    """A copy with another first entry."""
    a = np.array(a, dtype=dtype)
    a.reshape(-1)[0] = value
    return a


EXPONENTS = multi_indices(D, 3)
INNER = lines().inner

# What is wrong -> polynomial, how its file is changed, and what the error says.
CRAFTED = {
    "no constant": ("dense", {"without": ["constant"]}, "poly"),
    "linear too wide": ("dense", {"linear": np.zeros((OUT, D + 1))}, "poly"),
    "quadratic not square": ("dense", {"quadratic": np.zeros((OUT, D, D + 1))}, "poly"),
    "other inputs": ("dense", {"header": {"dim_in": D + 1}}, "poly"),
    "dense as chaos": ("dense", {"header": {"kind": "ChaosPolynomial"}}, "poly"),
    "one tensor more": ("dense", {"surprise": np.zeros(2)}, "poly"),
    "no exponents": ("chaos", {"without": ["exponents"]}, "poly"),
    "too few exponents": ("chaos", {"exponents": np.zeros((2, D), dtype=np.int64)}, "poly"),
    "exponents of other directions": ("chaos", {"exponents": np.zeros((35, D + 1), dtype=np.int64)}, "poly"),
    "negative exponents": ("chaos", {"exponents": np.full((35, D), -1, dtype=np.int64)}, "poly"),
    "fractional exponents": ("chaos", {"exponents": np.zeros((35, D))}, "poly"),
    "other outputs": ("chaos", {"header": {"dim_out": OUT + 1}}, "poly"),
    "chaos as dense": ("chaos", {"header": {"kind": "DensePolynomial"}}, "poly"),
    "inputs, no distribution": ("dense", {"header": {"distribution": None}}, "inputs None"),
    "inputs, unknown distribution": ("dense", {"header": {"distribution": {"kind": "Samples"}}}, "not a distribution"),
    "inputs, distribution is a list": ("dense", {"header": {"distribution": ["Gaussian"]}}, "not a distribution"),
    "inputs, shared is text": ("dense", {"header": {"distribution": {"kind": "GaussianMixture", "shared": "no"}}},
     "not a distribution"),
    "inputs, one more": ("dense", {"inputs.more": np.zeros(2)}, "'more' is unknown"),
    "inputs, negative weights": ("dense", {"inputs.weights": np.array([-0.5, 1.5])}, "negative weights"),
    "inputs, other dimensions": ("dense", {"inputs.means": np.zeros((2, D + 1))}, "'means' is"),
    "inputs, other components": ("dense", {"inputs.means": np.zeros((3, D))}, "missing or misshapen"),
    "inputs, NaN": ("dense", {"inputs.means": np.full((2, D), np.nan)},
     "NaN or infinite numbers in 'means', among its inputs"),
    "inputs, integers": ("dense", {"inputs.means": np.zeros((2, D), dtype=np.int64)}, "type int64 in 'means'"),
    "inputs, not symmetric": ("dense", {"inputs.covs": np.triu(np.ones((2, D, D)))},
     "matrix in 'covs' that is not a covariance"),
    "inputs, negative variance": ("dense", {"inputs.covs": -np.stack([np.eye(D)] * 2)},
     "matrix in 'covs' that is not a covariance"),
    "degree is text": ("ridge", {"header": {"degree": "3"}}, "degree '3' in its header"),
    "degree is null": ("chaos", {"header": {"degree": None}}, "degree None in its header"),
    "degree is a list": ("ridge", {"header": {"degree": [3]}}, r"degree \[3\] in its header"),
    "degree is a truth": ("dense", {"header": {"degree": True}}, "degree True in its header"),
    "degree is huge": ("ridge", {"header": {"degree": 10**400}}, r"series.plain' is \(4, 3\), expected \(1000"),
    "degree of the ridge form": ("ridge", {"header": {"degree": 2}}, r"series.plain' is \(4, 3\), expected \(3, 3\)"),
    "degree of the dense form": ("dense", {"header": {"degree": 1}}, "degree 1 .*terms of degree 2"),
    "degree of the chaos form": ("chaos", {"header": {"degree": 2}}, "degree 2 .*terms of degree 3"),
    "inputs are a fraction": ("chaos", {"header": {"dim_in": 2.5}}, "dim_in 2.5 in its header"),
    "outputs are negative": ("chaos", {"header": {"dim_out": -1}}, "dim_out -1 in its header"),
    "bound is NaN": ("ridge", {"bounds": np.full(3, np.nan)}, "NaN or infinite numbers in 'bounds'"),
    "bound is negative": ("ridge", {"bounds": np.array([4.0, -1.0, 4.0])}, "negative bounds"),
    "bound is zero": ("ridge", {"bounds": np.array([4.0, 0.0, 4.0])}, "a bound of zero"),
    "bound is not there": ("ridge", {"without": ["bounds"]}, "'bounds' is not there"),
    "bound is minus infinity": ("ridge", {"bounds": np.full(3, -np.inf)}, "NaN or infinite numbers in 'bounds'"),
    "no slopes": ("ridge", {"without": ["slopes"]}, "'slopes' is not there"),
    "slopes of a gate that is missing": ("ridge", {"gate_slopes": np.ones((2, 3))}, "is not there"),
    "half a gate": ("gated", {"without": ["units.gate.slopes"]}, "'units.gate.slopes' is not there"),
    "a gate without its series": ("gated", {"without": ["series.gated"]}, "'series.gated' is not there"),
    "a series without its gate": ("gated",
     {"without": [f"units.gate.{name}" for name in ("directions", "shifts", "slopes", "bias")]},
     "'units.gate.directions' is not there"),
    "layout is negative": ("ridge", {"header": {"layout": -1}}, "no mlpoly polynomial"),
    "layout is zero": ("ridge", {"header": {"layout": 0}}, "impossible file layout 0"),
    "layout is a truth": ("ridge", {"header": {"layout": True}}, "no mlpoly polynomial"),
    "kind is a list": ("ridge", {"header": {"kind": ["RidgePolynomial"]}}, "no mlpoly polynomial"),
    "NaN": ("ridge", {"inner.series.plain": with_one(INNER.series.plain, np.nan)}, "NaN or infinite .*series.plain'"),
    "infinity": ("ridge", {"inner.readout": with_one(INNER.readout, np.inf)}, "NaN or infinite .*readout'"),
    "negative scales": ("ridge", {"inner.units.scales": with_one(INNER.units.scales, -1.0)}, "negative scales"),
    "NaN scales": ("ridge", {"inner.units.scales": with_one(INNER.units.scales, np.nan)}, "NaN or infinite .*scales'"),
    "integers": ("ridge", {"inner.units.directions": np.eye(3, 2, dtype=np.int64)}, "type int64 in .*directions'"),
    "truths": ("ridge", {"inner.units.directions": np.eye(3, 2, dtype=bool)}, "type bool in .*directions'"),
    "complex numbers": ("ridge", {"inner.units.directions": np.eye(3, 2, dtype=np.complex64)},
     "type complex64 in .*directions'"),
    "unsigned exponents": ("chaos", {"exponents": EXPONENTS.astype(np.uint8)}, "type uint8 in 'exponents'"),
    "no readout, but two outputs of three neurons": ("ridge", {"without": ["inner.readout"]}, "missing or misshapen"),
    "no terms": ("chaos", {"exponents": np.zeros((0, D), dtype=np.int64), "values": np.zeros((OUT, 0))},
     "has no terms"),
    "not symmetric": ("dense", {"quadratic": np.triu(np.ones((OUT, D, D)))}, "quadratic form that is not symmetric"),
    "an exponent of a billion": ("chaos", {"exponents": with_one(EXPONENTS, 10**9)}, "an exponent of 1000000000"),
    "an exponent that is one too high": ("chaos", {"exponents": with_one(EXPONENTS, 4)}, "degree 3 .*degree 4"),
    "an exponent of a billion, and the header with it": ("chaos",
     {"exponents": with_one(EXPONENTS, 10**9), "header": {"degree": 10**9}}, "an exponent of 1000000000"),
}  # fmt: skip


@pytest.mark.parametrize("label", CRAFTED)
def test_crafted_files_are_refused_and_the_error_names_what_is_wrong(label, tmp_path):
    kind, damage, message = CRAFTED[label]
    (lines() if kind == "ridge" else FITS[kind]()).save(tmp_path / "poly")
    mp.load(tmp_path / "poly")  # as it was, it is fine
    with pytest.raises(mp.FileFormatError, match=message) as caught:
        mp.load(rewritten(tmp_path / "poly", **damage))
    assert "poly" in str(caught.value)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"degree": ' + "1" * 5000 + "}"], ids=["nested", "digits"])
def test_headers_that_json_cannot_read_are_refused(content, tmp_path):
    save_file({"a": np.zeros(1)}, tmp_path / "poly", metadata={"mlpoly": content})
    with pytest.raises(mp.FileFormatError, match="poly"):
        mp.load(tmp_path / "poly")


def test_flipped_bits_in_exponents_never_make_evaluation_run_away(tmp_path):
    """The file is refused, or the polynomial is of the degree that it had."""
    path = tmp_path / "poly"
    FITS["chaos"]().save(path)
    content = path.read_bytes()
    start = content.index(EXPONENTS.tobytes())
    for place in range(start, start + EXPONENTS.nbytes, 7):  # all eight bytes of an exponent come in turn
        for bit in range(8):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            path.write_bytes(bytes(damaged))
            try:
                found = mp.load(path)
            except mp.FileFormatError:
                continue
            assert found.degree == 3


def test_a_sparse_polynomial_of_high_degree_is_still_read(tmp_path):
    poly = mp.polynomials.ChaosPolynomial(np.zeros(2), np.eye(2), np.array([[40, 2]]), np.ones((1, 1)))
    poly.save(tmp_path / "poly")
    assert mp.load(tmp_path / "poly").degree == 42


def test_of_samples_a_file_holds_the_fingerprint_alone(tmp_path):
    inputs = mp.Samples(points(D, 200))
    poly = mp.fit(make_net(), inputs, 2)
    poly.save(tmp_path / "poly")
    again = mp.load(tmp_path / "poly")
    assert again.inputs is None and again.source.inputs == inputs.fingerprint
    np.testing.assert_array_equal(again(X), poly(X))
    assert (2 * poly - poly).inputs is inputs
    assert poly.to(torch.zeros(1)).inputs.x.shape == (200, D)


MIXTURES = {
    "identity": lambda: mp.GaussianMixture(np.array([0.5, 0.5]), np.eye(2, D)),
    "shared": lambda: mp.GaussianMixture(np.array([0.5, 0.5]), np.eye(2, D), gaussian().cov),
    "shared diagonal": lambda: mp.GaussianMixture(np.array([0.5, 0.5]), np.eye(2, D), np.arange(1.0, D + 1)),
    "diagonals": lambda: mp.GaussianMixture(np.array([0.5, 0.5]), np.eye(2, D), np.ones((2, D))),
    "as many as inputs": lambda: mp.GaussianMixture(np.full(D, 1 / D), np.eye(D), np.ones((D, D)), shared=False),
    "of Gaussians": lambda: mp.GaussianMixture.of(
        np.array([0.2, 0.3, 0.5]),
        [mp.Gaussian(np.zeros(D), np.ones(D)), gaussian(), mp.Gaussian(np.ones(D))],
    ),
    "Gaussian": lambda: gaussian(),
    "diagonal Gaussian": lambda: mp.Gaussian(np.ones(D), np.arange(D) * 1.0),
    "standard": lambda: mp.Gaussian.standard(D),
    "float32": lambda: mp.Gaussian(np.ones(D, np.float32), np.eye(D, dtype=np.float32)),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_inputs_of_every_shape_come_back_from_a_file(name, tmp_path):
    poly = mp.fit(make_net(), MIXTURES[name](), 1)
    poly.save(tmp_path / "poly")
    again = mp.load(tmp_path / "poly")
    assert type(again.inputs) is type(poly.inputs)
    assert again.inputs.fingerprint == poly.inputs.fingerprint
    np.testing.assert_array_equal(again.inputs.covariance, poly.inputs.covariance)
    np.testing.assert_array_equal(again.inputs.sample(4), poly.inputs.sample(4))
