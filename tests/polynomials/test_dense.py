"""Polynomials with explicit matrices, and the files of every kind of polynomial."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from support.backends import JAX32, JAX64, NUMPY32, TORCH32, TORCH64, assert_close, assert_same_kind, make, to_numpy

import mlpoly as mp
from mlpoly.fitting.mixture_dense import fit_dense
from mlpoly.polynomials import to_dense
from mlpoly.polynomials.hermite_products import multi_indices

D, OUT = 4, 3
degrees = pytest.mark.parametrize("degree", [0, 1, 2])


def dense(degree=2, seed=0, build=np.asarray, d=D, o=OUT):
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((o, d, d))
    parts = [rng.standard_normal(d), rng.standard_normal(o), rng.standard_normal((o, d)), q + q.transpose(0, 2, 1)]
    return mp.DensePolynomial(*(build(a) for a in parts[: degree + 2]))


def net(d=D, o=OUT, h=6, kind="MLP", activation="relu", seed=1):
    rng = np.random.default_rng(seed)

    def w(*shape):
        return rng.standard_normal(shape)

    if kind == "MLP":
        return mp.MLP(w(h, d), w(h), w(o, h), w(o), activation)
    return mp.GLU(w(h, d), w(h), w(h, d), w(h), w(o, h), w(o), activation)


def mixture(d=D, c=2, seed=2):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((c, d, d))
    return mp.GaussianMixture(np.full(c, 1 / c), rng.standard_normal((c, d)), a @ a.transpose(0, 2, 1) / d)


def points(n=7, d=D, seed=3):
    return np.random.default_rng(seed).standard_normal((n, d))


# ---------------------------------------------------------------------------------------------------------------------
# Values, coefficients, derivatives
# ---------------------------------------------------------------------------------------------------------------------


@degrees
def test_values_are_the_formula(degree):
    p, x = dense(degree), points()
    u = x - p.center
    want = np.broadcast_to(p.constant, (7, OUT)).copy()
    if degree >= 1:
        want += u @ p.linear.T
    if degree == 2:
        want += np.einsum("ni,oij,nj->no", u, p.quadratic, u)
    assert (p.degree, p.dim_in, p.dim_out) == (degree, D, OUT)
    assert_close(p(x), want, 1e-14)
    assert_close(p(x[0]), want[0], 1e-14)
    assert_close(p(x.reshape(7, 1, D)), want[:, None], 1e-14)
    assert p(x[:0]).shape == (0, OUT)
    assert repr(p) == f"DensePolynomial(degree={degree}, 4 -> 3, of unknown source)"


@degrees
def test_values_are_those_of_the_coefficients(degree):
    """Coefficients are those of the monomials of x, wherever the centre is; there are none above the degree."""
    p, x = dense(degree), points()
    c = p.coefficients()
    want = c.constant + x @ c.linear.T + np.einsum("ni,oij,nj->no", x, c.quadratic, x)
    assert_close(p(x), want, 1e-13)
    assert_close(c.quadratic, c.quadratic.transpose(0, 2, 1), 0)
    assert c.tensor(3).shape == (OUT, D, D, D) and not c.tensor(3).any()
    for k in range(degree + 1, 3):
        assert c.tensor(k).shape == (OUT, *[D] * k) and not c.tensor(k).any()


@degrees
def test_derivatives_are_those_of_autograd(degree):
    p, x = dense(degree, build=torch.tensor), torch.tensor(points())
    slopes = torch.stack([torch.autograd.functional.jacobian(p, v) for v in x])
    assert_close(p.gradient(x), slopes, 1e-13)
    assert_close(p.gradient(x[0]), slopes[0], 1e-13)
    bends = torch.stack([torch.autograd.functional.hessian(lambda v, i=i: p(v)[i], x[0]) for i in range(OUT)])
    assert_close(p.hessian(x[0]), bends, 1e-13)


@degrees
def test_moving_the_centre_changes_nothing(degree):
    p, center = dense(degree), points(1)[0]
    moved = to_dense(p, center)
    assert moved.center is center and moved.degree == degree
    assert_close(moved(points()), p(points()), 1e-13)
    assert to_dense(p, p.center) is p


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_other_forms_become_dense(kind, degree):
    n, center = net(kind=kind), points(1)[0]
    for poly in (mp.fit(n, mp.Gaussian.standard(D), degree), fit_dense(n, mixture(), degree)):
        made = to_dense(poly, center)
        assert made.degree == degree
        assert_close(made(points()), poly(points()), 1e-12)
    with pytest.raises(ValueError, match=r"degree 3 .*truncate"):
        to_dense(mp.fit(n, mp.Gaussian.standard(D), 3), center)


# ---------------------------------------------------------------------------------------------------------------------
# Truncation and arithmetic
# ---------------------------------------------------------------------------------------------------------------------


def test_truncation_is_around_the_centre():
    p = mp.fit(net(), mixture(), 2)
    for degree in (0, 1):
        cut = p.truncate(degree)
        assert cut.degree == degree and cut.report is None
        # a truncated optimum of a mixture is no optimum: it must not claim to be one
        assert cut.source.method == "" and cut.source.activation == "relu"
        assert_close(cut(p.center), p(p.center), 1e-15)
    assert_close(p.truncate(1).gradient(points()), np.broadcast_to(p.gradient(p.center), (7, OUT, D)), 1e-15)
    assert p.truncate(2) is p and p.truncate(9) is p
    with pytest.raises(ValueError, match=r"^degree .*at least 0"):
        p.truncate(-1)


def test_arithmetic_is_that_of_the_values():
    x = points()
    for a in range(3):
        for b in range(3):
            p, q = dense(a, seed=4), dense(b, seed=5)
            assert_close((p + q)(x), p(x) + q(x), 1e-13)
            assert_close((p - q)(x), p(x) - q(x), 1e-13)
            assert (p + q).degree == (p - q).degree == max(a, b)
        for factor in (2, -0.5, np.float64(3.0), np.array(0.25)):
            assert_close((factor * p)(x), factor * p(x), 1e-14)
            assert_close((p * factor)(x), factor * p(x), 1e-14)
        assert_close((-p)(x), -p(x), 0)


def test_arithmetic_with_numbers_is_that_of_the_values(backend):
    x = make(points(), backend)
    for degree in range(3):
        p = dense(degree, build=lambda a: make(a, backend))
        value, number = p(x), make(2.5, backend)
        pairs = [(p / 4, value / 4), (p / number, value / number), (p + 1, value + 1), (1 + p, value + 1)]
        pairs += [(p - number, value - number), (1.5 - p, 1.5 - value)]
        for got, want in pairs:
            assert isinstance(got, mp.DensePolynomial)
            assert_same_kind(got(x), value)
            assert_close(got(x), want, backend.tolerance)


@degrees
def test_hessians_of_a_batch_are_those_of_its_points(degree):
    p, x = dense(degree), points()
    assert_close(p.hessian(x), np.stack([p.hessian(v) for v in x]), 0.0)
    assert p.hessian(x[:, None]).shape == (7, 1, OUT, D, D)


def test_arithmetic_with_other_forms():
    """A sum with a ridge or chaos polynomial of degree up to 2, from either side, is dense."""
    p, x, n = mp.fit(net(), mixture(), 2), points(), net(seed=9)
    for other in (mp.fit(n, mp.Gaussian.standard(D), 2), fit_dense(n, mixture(), 2), mp.fit(n, mixture(), 1)):
        assert_close((p + other)(x), p(x) + other(x), 1e-12)
        assert_close((p - other)(x), p(x) - other(x), 1e-12)
        assert_close((other + p)(x), p(x) + other(x), 1e-12)
        assert_close((other - p)(x), other(x) - p(x), 1e-12)
        assert type(p - other) is mp.DensePolynomial
    assert (p - p).source.method == ""


# label, what the user does, exception, what names the argument, what hints at the remedy
TABLE = [
    ("a text added", lambda: dense() + "1", TypeError, "DensePolynomial", "unsupported operand"),
    ("a number divided", lambda: 1 / dense(), TypeError, "DensePolynomial", "unsupported operand"),
    ("an array times", lambda: np.eye(3) * dense(), TypeError, "DensePolynomial", "unsupported operand"),
    ("a product of two", lambda: dense() * dense(), TypeError, "DensePolynomial", "unsupported operand"),
    ("other outputs", lambda: dense() + dense(o=2), ValueError, "4 -> 3 and 4 -> 2", "same inputs and outputs"),
    ("other inputs", lambda: dense() - dense(d=5), ValueError, "4 -> 3 and 5 -> 3", "same inputs and outputs"),
    (
        "a cubic added",
        lambda: dense() + mp.fit(net(), mp.Gaussian.standard(D), 3),
        ValueError,
        "degree 3",
        "truncate it first",
    ),
    (
        "another library",
        lambda: dense() + dense(build=torch.tensor),
        TypeError,
        "left is numpy, right is torch",
        "convert",
    ),
    ("points of another library", lambda: dense()(torch.zeros(4)), TypeError, "x is torch", "convert"),
    ("points too wide", lambda: dense()(np.zeros((2, 5))), ValueError, r"^x .*\(2, 5\)", r"\(\.\.\., 4\)"),
    ("gradient too wide", lambda: dense().gradient(np.zeros(5)), ValueError, r"^x .*\(5,\)", r"\(\.\.\., 4\)"),
    ("points of truth values", lambda: dense()(np.zeros(4, dtype=bool)), TypeError, "^x .*bool", "astype"),
    (
        "coefficients too large",
        lambda: dense().coefficients(max_bytes=8).quadratic,
        mp.TooLargeError,
        "degree 2",
        "max_bytes",
    ),
]


@pytest.mark.parametrize(
    ("act", "exception", "names", "remedy"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_mistakes_are_explained(act, exception, names, remedy):
    with pytest.raises(exception, match=names) as caught:
        act()
    assert caught.match(remedy)


# ---------------------------------------------------------------------------------------------------------------------
# Features
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["input", "whitened"])
def test_eigenfeatures_are_those_of_the_matrix(metric):
    mix = mixture()
    p = mp.fit(net(), mix, 2)
    form = p.quadratic[1]
    if metric == "whitened":
        values, vectors = np.linalg.eigh(mix.covariance)
        root = (vectors * np.sqrt(values)) @ vectors.T
        form = root @ form @ root
    values, vectors = np.linalg.eigh(form)
    order = np.argsort(-np.abs(values))
    found = mp.eigenfeatures(p, output=1, k=D, metric=metric)
    assert_close(found.values, values[order], 1e-12)
    assert_close(np.abs(np.sum(found.vectors * vectors[:, order].T, axis=1)), np.ones(D), 1e-10)
    both = mp.eigenfeatures(p, direction=np.array([1.0, 0.0, -1.0]), k=2)
    gap = np.linalg.eigvalsh(p.quadratic[0] - p.quadratic[2])
    assert_close(both.values, gap[np.argsort(-np.abs(gap))[:2]], 1e-12)


def test_singular_directions_are_those_of_the_matrix():
    p = mp.fit(net(), mixture(), 1)
    found = mp.singular_directions(p)
    assert_close(found.values, np.linalg.svd(p.linear, compute_uv=False), 1e-13)
    assert_close(found.outputs.T @ np.diag(found.values) @ found.vectors, p.linear, 1e-13)


# ---------------------------------------------------------------------------------------------------------------------
# Array libraries
# ---------------------------------------------------------------------------------------------------------------------


@degrees
def test_every_library_gives_the_same_numbers(degree, backend):
    p, twin = dense(degree, build=lambda a: make(a, backend)), dense(degree)
    x = make(points(), backend)
    for got, want in [
        (p(x), twin(points())),
        (p.gradient(x), twin.gradient(points())),
        (p.hessian(x[0]), twin.hessian(points()[0])),
        (p.coefficients().constant, twin.coefficients().constant),
        (p.coefficients().linear, twin.coefficients().linear),
        ((2.0 * p - p.truncate(1))(x), (2.0 * twin - twin.truncate(1))(points())),
    ]:
        assert_same_kind(got, x)
        assert_close(got, want, backend.tolerance)


@pytest.mark.parametrize("narrow", [NUMPY32, TORCH32], ids=lambda b: b.name)
def test_points_of_higher_precision_are_taken(narrow):
    wide = TORCH64 if narrow is TORCH32 else None
    p = dense(build=lambda a: make(a, narrow))
    x = points() if wide is None else make(points(), wide)
    for got in (p(x), p.gradient(x)):
        assert "float64" in str(got.dtype)
    assert_close(p(x), dense()(points()), 1e-5)
    assert_close(p.gradient(x), dense().gradient(points()), 1e-5)


def test_jax_looks_through_a_polynomial():
    with JAX64.active():
        p, x = dense(build=lambda a: make(a, JAX64)), make(points(), JAX64)
        assert_close(jax.jit(lambda q, v: q(v))(p, x), dense()(points()), 1e-13)
        assert_close(jax.jit(jax.vmap(p))(x), dense()(points()), 1e-13)
        assert_close(jax.jit(jax.jacfwd(p))(x[0]), dense().gradient(points()[0]), 1e-13)
        doubled = jax.tree_util.tree_map(
            lambda a: 2 * a, mp.DensePolynomial(x[0] * 0, p.constant, p.linear, p.quadratic)
        )
        assert_close(doubled(x), 2 * mp.DensePolynomial(x[0] * 0, p.constant, p.linear, p.quadratic)(x), 1e-13)


# ---------------------------------------------------------------------------------------------------------------------
# Files of every kind
# ---------------------------------------------------------------------------------------------------------------------

STANDARD, MIX = mp.Gaussian.standard(D), mixture()
FITS = {
    "ridge": lambda: mp.fit(net(), STANDARD, 3),
    "ridge of a GLU": lambda: mp.fit(net(kind="GLU", activation="silu"), mp.Gaussian(MIX.mean, MIX.covariance), 3),
    "ridge of hidden units": lambda: mp.fit(mp.MLP(net().W1), STANDARD, 2),
    "neuronwise": lambda: mp.fit(net(), MIX, 4, method="neuronwise"),
    "dense constant": lambda: mp.fit(net(), MIX, 0),
    "dense linear": lambda: mp.fit(net(), MIX, 1),
    "dense quadratic": lambda: mp.fit(net(kind="GLU", activation="silu"), MIX, 2),
    "chaos": lambda: mp.fit(net(), MIX, 3),
    "chaos without variance": lambda: mp.fit(
        net(), mp.GaussianMixture(np.ones(1), np.ones((1, D)), np.zeros((1, D))), 3
    ),
    "dense by hand": dense,
}
everything = pytest.mark.parametrize("kind", FITS)


@everything
def test_a_file_holds_the_polynomial(kind, tmp_path):
    poly = FITS[kind]()
    poly.save(tmp_path / "poly")
    again = mp.load(tmp_path / "poly")
    assert type(again) is type(poly)
    assert (again.degree, again.dim_in, again.dim_out) == (poly.degree, D, poly.dim_out)
    np.testing.assert_array_equal(again(points()), poly(points()))
    assert again.source.method == poly.source.method and again.source.activation == poly.source.activation
    assert again.source.inputs == ("" if poly.inputs is None else poly.inputs.fingerprint)
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "poly").read_bytes()
    assert {f.name for f in tmp_path.iterdir()} == {"poly", "again"}  # no scratch file is left


@everything
def test_the_header_tells_what_it_is(kind, tmp_path):
    poly = FITS[kind]()
    poly.save(tmp_path / "poly")
    with safe_open(tmp_path / "poly", framework="numpy") as file:
        header = json.loads(file.metadata()["mlpoly"])
    assert header["format"] == "mlpoly" and header["layout"] == 3 and header["version"] == mp.__version__
    assert header["kind"] == type(poly).__name__
    assert (header["degree"], header["dim_in"], header["dim_out"]) == (poly.degree, D, poly.dim_out)
    assert (header["activation"], header["method"]) == (poly.source.activation, poly.source.method)


@pytest.mark.parametrize("backend", [NUMPY32, TORCH64, TORCH32, JAX64, JAX32], ids=lambda b: b.name)
@pytest.mark.parametrize("kind", ["ridge of a GLU", "dense quadratic", "chaos"])
def test_files_load_into_any_library(kind, backend, tmp_path):
    poly = FITS[kind]()
    poly.save(tmp_path / "poly")
    with backend.active():
        x = make(points(), backend)
        again = mp.load(tmp_path / "poly", like=x)
        assert_same_kind(again(x), x)
        assert_close(again(x), poly(points()), 1e-12 if backend.dtype == "float64" else 2e-5)
        again.save(tmp_path / "again")
        values = to_numpy(again(x))
    assert_close(mp.load(tmp_path / "again")(points()), values, 1e-12 if backend.dtype == "float64" else 2e-5)


def rewritten(path, header=None, without=(), **tensors):
    """The file at `path` with other entries in its header and other tensors."""
    with safe_open(path, framework="numpy") as file:
        old = json.loads(file.metadata()["mlpoly"])
    arrays = {k: v for k, v in load_file(path).items() if k not in without} | tensors
    save_file(arrays, path, metadata={"mlpoly": json.dumps(old | (header or {}))})
    return path


DAMAGE = {
    "no constant": ("dense quadratic", {"without": ["constant"]}),
    "linear too wide": ("dense quadratic", {"linear": np.zeros((OUT, D + 1))}),
    "quadratic not square": ("dense quadratic", {"quadratic": np.zeros((OUT, D, D + 1))}),
    "other inputs": ("dense quadratic", {"header": {"dim_in": D + 1}}),
    "dense as chaos": ("dense quadratic", {"header": {"kind": "ChaosPolynomial"}}),
    "one tensor more": ("dense quadratic", {"surprise": np.zeros(2)}),
    "no exponents": ("chaos", {"without": ["exponents"]}),
    "too few exponents": ("chaos", {"exponents": np.zeros((2, D), dtype=np.int64)}),
    "exponents of other directions": ("chaos", {"exponents": np.zeros((35, D + 1), dtype=np.int64)}),
    "negative exponents": ("chaos", {"exponents": np.full((35, D), -1, dtype=np.int64)}),
    "fractional exponents": ("chaos", {"exponents": np.zeros((35, D))}),
    "other outputs": ("chaos", {"header": {"dim_out": OUT + 1}}),
    "chaos as dense": ("chaos", {"header": {"kind": "DensePolynomial"}}),
}


@pytest.mark.parametrize("label", DAMAGE)
def test_damaged_files_are_refused(label, tmp_path):
    kind, damage = DAMAGE[label]
    FITS[kind]().save(tmp_path / "poly")
    with pytest.raises(mp.FileFormatError, match="poly"):
        mp.load(rewritten(tmp_path / "poly", **damage))


def ridge():
    """A polynomial of few neurons; with lines, so that its file has a bound."""
    net = mp.MLP(np.eye(3, 2), np.ones(3), np.ones((2, 3)), np.zeros(2), "tanh")
    return mp.fit(net, mp.Gaussian.standard(2), 3).bounded(4.0)


def with_one(a, value, dtype=None):
    """A copy with another first entry."""
    a = np.array(a, dtype=dtype)
    a.reshape(-1)[0] = value
    return a


EXPONENTS = multi_indices(D, 3)
INNER = ridge().inner

# What is wrong -> polynomial, how its file is changed, and what the error says.
CRAFTED = {
    "degree is text": ("ridge", {"header": {"degree": "3"}}, "degree '3' in its header"),
    "degree is null": ("chaos", {"header": {"degree": None}}, "degree None in its header"),
    "degree is a list": ("ridge", {"header": {"degree": [3]}}, r"degree \[3\] in its header"),
    "degree is a truth": ("dense quadratic", {"header": {"degree": True}}, "degree True in its header"),
    "degree is huge": ("ridge", {"header": {"degree": 10**400}}, r"series.plain' is \(4, 3\), expected \(1000"),
    "degree of the ridge form": ("ridge", {"header": {"degree": 2}}, r"series.plain' is \(4, 3\), expected \(3, 3\)"),
    "degree of the dense form": ("dense quadratic", {"header": {"degree": 1}}, "degree 1 .*terms of degree 2"),
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
    "half a gate": ("ridge of a GLU", {"without": ["units.gate.slopes"]}, "'units.gate.slopes' is not there"),
    "a gate without its series": ("ridge of a GLU", {"without": ["series.gated"]}, "'series.gated' is not there"),
    "a series without its gate": (
        "ridge of a GLU",
        {"without": [f"units.gate.{name}" for name in ("directions", "shifts", "slopes", "bias")]},
        "'units.gate.directions' is not there",
    ),
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
    "complex numbers": (
        "ridge",
        {"inner.units.directions": np.eye(3, 2, dtype=np.complex64)},
        "type complex64 in .*directions'",
    ),
    "unsigned exponents": ("chaos", {"exponents": EXPONENTS.astype(np.uint8)}, "type uint8 in 'exponents'"),
    "no readout, but two outputs of three neurons": ("ridge", {"without": ["inner.readout"]}, "missing or misshapen"),
    "no terms": (
        "chaos",
        {"exponents": np.zeros((0, D), dtype=np.int64), "values": np.zeros((OUT, 0))},
        "has no terms",
    ),
    "not symmetric": (
        "dense quadratic",
        {"quadratic": np.triu(np.ones((OUT, D, D)))},
        "quadratic form that is not symmetric",
    ),
    "an exponent of a billion": ("chaos", {"exponents": with_one(EXPONENTS, 10**9)}, "an exponent of 1000000000"),
    "an exponent that is one too high": ("chaos", {"exponents": with_one(EXPONENTS, 4)}, "degree 3 .*degree 4"),
    "an exponent of a billion, and the header with it": (
        "chaos",
        {"exponents": with_one(EXPONENTS, 10**9), "header": {"degree": 10**9}},
        "an exponent of 1000000000",
    ),
}


@pytest.mark.parametrize("label", CRAFTED)
def test_crafted_files_are_refused_and_the_error_names_what_is_wrong(label, tmp_path):
    kind, damage, message = CRAFTED[label]
    (ridge() if kind == "ridge" else FITS[kind]()).save(tmp_path / "poly")
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


# Straight lines of version 0.1, whose bound stands in the header.
OLD = Path(__file__).parents[1] / "reference" / "polynomials_0.1" / "lines.safetensors"


@pytest.mark.parametrize("bound", [10**400, float("nan"), -1.0, 0, True, "4", None])
def test_old_lines_of_an_odd_bound_are_refused(bound, tmp_path):
    path = tmp_path / "poly"
    path.write_bytes(OLD.read_bytes())
    with pytest.raises(mp.FileFormatError, match=f"the bound {repr(bound)[:4]}.*not a positive number"):
        mp.load(rewritten(path, header={"bound": bound}))


def test_old_lines_without_a_bound_of_their_own_are_still_read(tmp_path):
    path = tmp_path / "poly"
    path.write_bytes(OLD.read_bytes())
    found = mp.load(rewritten(path, header={"bound": float("inf")}))
    assert (found.bounds == np.inf).all()
    x = np.full((1, found.dim_in), 1e3)
    assert_close(found(x), found.polynomial(x))
