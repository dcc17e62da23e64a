"""Files of polynomials: what is saved comes back in any library, and what was damaged or crafted is refused."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from support.backends import JAX32, JAX64, NUMPY32, TORCH32, TORCH64, assert_close, assert_same_kind, backends, make
from support.inputs import gaussian, mixture, points
from support.networks import network
from support.polynomials import header_of

import mlpoly as mp

D, OUT = 4, 3
X = points(D, 7)
STANDARD, MIX = mp.Gaussian.standard(D), mixture(D, 2, seed=2)
make_net = partial(network, d=D, seed=1, scale=2.0, up=2.0)
POINT = mp.GaussianMixture(np.ones(1), np.ones((1, D)), np.zeros((1, D)))


def composed(bound=None):
    """A residual connection between a gated and a dense stage, with a guard unless there are bounds."""
    chain = mp.Chain([mp.Residual(network("GLU", "silu", D, 5, D)), network("MLP", "gelu", D, 5, OUT)])
    poly = mp.fit(chain, MIX, 2, method=mp.methods.Composed(0.03))
    return poly if bound is None else poly.bounded(bound)


FITS = {
    "ridge": lambda: mp.fit(make_net(), STANDARD, 3),
    "gated": lambda: mp.fit(make_net("GLU", "silu"), mp.Gaussian(MIX.mean, MIX.covariance), 3),
    "ridge of hidden units": lambda: mp.fit(mp.MLP(make_net().W1), STANDARD, 2),
    "neuronwise": lambda: mp.fit(make_net(), MIX, 4, method="neuronwise"),
    "bounded": lambda: mp.fit(make_net(), STANDARD, 3).bounded(4.0),
    "bounded and gated": lambda: mp.fit(make_net("GLU", "silu"), STANDARD, 3).bounded(2.0),
    "dense constant": lambda: mp.fit(make_net(), MIX, 0),
    "dense linear": lambda: mp.fit(make_net(), MIX, 1),
    "dense": lambda: mp.fit(make_net("GLU", "silu"), MIX, 2),
    "dense by hand": lambda: mp.polynomials.DensePolynomial(X[0], X[0, :OUT], X[:OUT], np.stack([np.eye(D)] * OUT)),
    "dense along directions": lambda: mp.polynomials.DensePolynomial(
        X[0], np.ones(1), np.ones((1, 2)), directions=X[:2]
    ),
    "chaos": lambda: mp.fit(make_net(), MIX, 3),
    "chaos without variance": lambda: mp.fit(make_net(), POINT, 3),
    "chaos of high degree": lambda: mp.polynomials.ChaosPolynomial(
        np.zeros(D), np.eye(2, D), [[40, 2]], np.ones((1, 1))
    ),
    "composed": composed,
    "composed and bounded": lambda: composed(2.0),
}
everything = pytest.mark.parametrize("kind", FITS)


@everything
def test_a_file_holds_the_polynomial(kind, tmp_path):
    poly = FITS[kind]()
    poly.save(tmp_path / "poly")
    again = mp.load(tmp_path / "poly")
    assert type(again) is type(poly)
    assert (again.degree, again.dim_in, again.dim_out) == (poly.degree, D, poly.dim_out)
    np.testing.assert_array_equal(again(X), poly(X))
    assert again.source.method == poly.source.method and again.source.activation == poly.source.activation
    assert again.source.inputs == ("" if poly.inputs is None else poly.inputs.fingerprint)
    assert repr(again.inputs) == repr(poly.inputs)
    if "bounded" in kind or kind == "ridge":  # the activation came along
        np.testing.assert_array_equal(again.bounded(1.0)(X), poly.bounded(1.0)(X))
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "poly").read_bytes()
    assert {f.name for f in tmp_path.iterdir()} == {"poly", "again"}  # no scratch file is left
    header = header_of(tmp_path / "poly")
    assert (header["format"], header["layout"], header["version"]) == ("mlpoly", 6, mp.__version__)


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


def test_of_samples_a_file_holds_the_fingerprint_alone(tmp_path):
    inputs = mp.Samples(points(D, 200))
    poly = mp.fit(make_net(), inputs, 2)
    poly.save(tmp_path / "poly")
    again = mp.load(tmp_path / "poly")
    assert again.inputs is None and again.source.inputs == inputs.fingerprint
    np.testing.assert_array_equal(again(X), poly(X))
    assert (2 * poly - poly).inputs is inputs
    assert poly.to(torch.zeros(1)).inputs.x.shape == (200, D)


def test_an_activation_of_the_user_stays_behind(tmp_path):
    poly = mp.fit(mp.MLP(np.eye(D), activation=np.tanh), STANDARD, 2)
    poly.save(tmp_path / "poly")
    assert mp.load(tmp_path / "poly").activation is None and poly.activation is not None


HALF, UNITS = np.array([0.5, 0.5]), np.eye(2, D)
MIXTURES = {
    "identity": lambda: mp.GaussianMixture(HALF, UNITS),
    "shared": lambda: mp.GaussianMixture(HALF, UNITS, gaussian().cov),
    "shared diagonal": lambda: mp.GaussianMixture(HALF, UNITS, np.arange(1.0, D + 1)),
    "diagonals": lambda: mp.GaussianMixture(HALF, UNITS, np.ones((2, D))),
    "as many as inputs": lambda: mp.GaussianMixture(np.full(D, 1 / D), np.eye(D), np.ones((D, D)), shared=False),
    "of Gaussians": lambda: mp.GaussianMixture.of(
        np.array([0.2, 0.3, 0.5]), [mp.Gaussian(np.zeros(D), np.ones(D)), gaussian(), mp.Gaussian(np.ones(D))]
    ),
    "weights that are rounded": lambda: mp.GaussianMixture(np.full(7, 1 / 7), points(D, 7)),
    "with names": lambda: mp.Gaussian(np.ones(D), np.eye(D), names=list("abcd")),
    "diagonal Gaussian": lambda: mp.Gaussian(np.ones(D), np.arange(D) * 1.0),
    "float32": lambda: mp.Gaussian(np.ones(D, np.float32), np.eye(D, dtype=np.float32)),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_inputs_of_every_shape_come_back_from_a_file(name, tmp_path):
    poly = mp.fit(make_net(), MIXTURES[name](), 1)
    poly.save(tmp_path / "poly")
    again = mp.load(tmp_path / "poly")
    assert type(again.inputs) is type(poly.inputs) and again.names == poly.names
    assert again.inputs.fingerprint == poly.inputs.fingerprint
    np.testing.assert_array_equal(again.inputs.covariance, poly.inputs.covariance)
    np.testing.assert_array_equal(again.inputs.sample(4), poly.inputs.sample(4))


def parts_of(tree):
    """Every dictionary and list in a JSON value, with its keys."""
    items = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)) if isinstance(tree, list) else []
    return [(tree, key) for key, _ in items] + [part for _, value in items for part in parts_of(value)]


def flipped(data, path):
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(content))


def truncated(data, path):
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])


def rewritten(path, header, arrays):
    save_file(arrays, path, metadata={"mlpoly": json.dumps(header)})


def dropped(data, path):
    """Without a tensor, or without a part of the header."""
    header, arrays = header_of(path), load_file(path)
    if data.draw(st.booleans()):
        del arrays[data.draw(st.sampled_from(sorted(arrays)))]
    else:
        where, key = data.draw(st.sampled_from(parts_of(header)))
        del where[key]
    rewritten(path, header, arrays)


OTHER = [None, True, "", "text", 0, -1, 2.5, 10**400, [], {}, ["a"], {"array": "no"}, {"kind": "Source"}, [[]] * 3]
RETYPED = [
    *[lambda a, kind=kind: a.astype(kind) for kind in ("int64", "bool", "complex64", "float16", "float32", "uint8")],
    *[lambda a, k=k: a[..., None] if k else a.ravel() for k in (0, 1)],
    *[lambda a, k=k: a[k:] if a.ndim else a for k in (1, -1)],
    *[lambda a, v=v: np.full_like(a, v) if a.dtype.kind == "f" else a + 10**9 for v in (np.nan, np.inf, -1.0, 1e300)],
    lambda a: np.zeros((0, *a.shape[1:])),
]


def retyped(data, path):
    """With a tensor of another type, shape or size, or something else in the header."""
    header, arrays = header_of(path), load_file(path)
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(arrays)))
        with np.errstate(all="ignore"):
            arrays[name] = np.ascontiguousarray(data.draw(st.sampled_from(RETYPED))(arrays[name]))
    else:
        where, key = data.draw(st.sampled_from(parts_of(header)))
        where[key] = data.draw(st.sampled_from(OTHER))
    rewritten(path, header, arrays)


@pytest.mark.parametrize("damage", [flipped, truncated, dropped, retyped])
@pytest.mark.parametrize("kind", ["gated", "bounded and gated", "dense", "chaos", "composed"])
def test_a_damaged_file_is_refused_or_holds_a_polynomial(kind, damage, tmp_path):
    """Whatever is read can be evaluated and saved again."""
    path, again = tmp_path / "poly", tmp_path / "again"
    poly = FITS[kind]()
    poly.save(path)
    whole, refused, read = path.read_bytes(), [], []

    @settings(max_examples=150)
    @given(st.data())
    def damaged(data):
        path.write_bytes(whole)
        damage(data, path)
        try:
            found = mp.load(path)
        except mp.FileFormatError as error:
            assert str(path) in str(error)
            refused.append(error)
            return
        with np.errstate(all="ignore"):
            assert found(np.zeros((2, found.dim_in))).shape == (2, found.dim_out)
        assert found.degree <= 1000  # so that no recurrence runs away
        found.save(again)
        read.append(found)

    damaged()
    assert len(refused) > (0 if damage is flipped else len(read))  # a flipped bit of a number makes another number
    assert damage is not truncated or not read


# What is wrong -> polynomial, tensors in place of others, and what the error says.
CRAFTED = {
    "no series": ("ridge", {"series.plain": None}, "tensor 'series.plain' is missing"),
    "one tensor more": ("dense", {"surprise": np.zeros(2)}, "'surprise' belongs to nothing"),
    "linear too wide": ("dense", {"linear": np.zeros((OUT, D + 1))}, r"linear has shape .*expected .*outputs, inputs"),
    "not symmetric": ("dense", {"quadratic": np.triu(np.ones((OUT, D, D)))}, "quadratic has forms that are not sym"),
    "an exponent of a billion": ("chaos", {"exponents": np.full((35, D), 10**9)}, "exponents must .*up to 1000000000"),
    "NaN": ("ridge", {"series.plain": np.full((4, 6), np.nan)}, "series.plain holds 24 NaN or infinite"),
    "weights of other sum": ("dense", {"inputs.weights": np.array([0.5, 1.5])}, "weights sum to 2"),
    "negative scales": ("ridge", {"units.scales": np.full(6, -1.0)}, "units.scales has negative"),
    "bound is zero": ("bounded", {"bounds": np.zeros(6)}, "bounds has entries that are not positive"),
    "a guard of another size": ("composed", {"guarded.1.plain": np.zeros((3, 7))}, r"guarded\[1\] must be"),
}  # fmt: skip


@pytest.mark.parametrize("label", CRAFTED)
def test_crafted_files_are_refused_and_the_error_names_what_is_wrong(label, tmp_path):
    kind, tensors, message = CRAFTED[label]
    path = tmp_path / "poly"
    FITS[kind]().save(path)
    mp.load(path)  # as it was, it is fine
    arrays = load_file(path) | tensors
    rewritten(path, header_of(path), {name: a for name, a in arrays.items() if a is not None})
    with pytest.raises(mp.FileFormatError, match=message) as caught:
        mp.load(path)
    assert "poly" in str(caught.value)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"kind": "Polynomial"}, "no part of a polynomial"),
        ({"kind": "os.system", "command": "true"}, "no part of a polynomial"),
        ({"kind": "Source", "activation": "", "method": "", "inputs": ""}, "a Source is not a polynomial"),
        ([[[]]], "a tuple is not a polynomial"),
        (None, "a NoneType is not a polynomial"),
    ],
)
def test_only_polynomials_are_read(tree, message, tmp_path):
    FITS["ridge"]().save(tmp_path / "poly")
    rewritten(tmp_path / "poly", header_of(tmp_path / "poly") | {"polynomial": tree}, {})
    with pytest.raises(mp.FileFormatError, match=message):
        mp.load(tmp_path / "poly")


def test_other_layouts_are_refused(tmp_path):
    FITS["ridge"]().save(tmp_path / "poly")
    rewritten(tmp_path / "poly", header_of(tmp_path / "poly") | {"layout": 3}, load_file(tmp_path / "poly"))
    with pytest.raises(mp.FileFormatError, match=r"layout 3, .*fit and save again"):
        mp.load(tmp_path / "poly")


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"degree": ' + "1" * 5000 + "}", None], ids=["nested", "digits", "stages"]
)
def test_headers_that_cannot_be_read_are_refused(content, tmp_path):
    if content is None:  # as deep as JSON allows
        content = '{"format": "mlpoly", "layout": 6, "polynomial": ' + "[" * 900 + "]" * 900 + "}"
    save_file({"a": np.zeros(1)}, tmp_path / "poly", metadata={"mlpoly": content})
    with pytest.raises(mp.FileFormatError, match="poly"):
        mp.load(tmp_path / "poly")
