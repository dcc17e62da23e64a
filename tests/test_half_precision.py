"""Networks in 16 bits: computed in float32 or wider throughout.

Two things are held to float64. A fit is in float32, and that of the float64 network with the same (rounded) weights.
And whatever is computed from it at points in 16 bits is what the float64 polynomial with the same numbers gives, within
float32.
"""

import numpy as np
import pytest
import torch
from support.backends import Backend, assert_close, make
from support.polynomials import own_arrays

import mlpoly as mp
from mlpoly.arrays import to_numpy
from mlpoly.polynomials.base import map_polynomial
from mlpoly.polynomials.neurons import NeuronPolynomial

D, H, OUT, N = 4, 6, 3, 40
KINDS = [
    Backend("numpy", "float16"),
    Backend("torch", "float16"),
    Backend("torch", "bfloat16"),
    Backend("jax", "bfloat16"),
]
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # half the distance of neighbours, relative
SINGLE = 3e-5  # some hundred roundings of float32
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda b: b.name)


def table(row, rows, jax):
    """NumPy and PyTorch with both layers and all rows; JAX, which compiles each shape for seconds, with one."""
    cases = [(kind, layer, r) for kind in KINDS[:3] for layer in ("MLP", "GLU") for r in rows]
    names = {"ids": lambda value: value.name if isinstance(value, Backend) else str(value)}
    return pytest.mark.parametrize(("kind", "layer", row), [*cases, (KINDS[3], "MLP", jax)], **names)


def wide(a):
    """The same numbers in NumPy's float64."""
    return to_numpy(a).astype(np.float64)


def case(kind, layer):
    """A 16-bit network with two distributions and points for it, and the same four in NumPy's float64."""
    rng = np.random.default_rng(11)
    shapes = {"MLP": [(H, D), (H,), (OUT, H), (OUT,)], "GLU": [(H, D), (H,), (H, D), (H,), (OUT, H), (OUT,)]}[layer]
    weights = [make(0.6 * rng.standard_normal(shape), kind) for shape in shapes]
    root = rng.standard_normal((2, D, D)) / 2 + np.eye(D)
    moments = [[0.25, 0.75], rng.standard_normal((2, D)), root @ root.transpose(0, 2, 1)]
    single = [make(a, Backend(kind.library, "float32")) for a in moments]
    x = make(rng.standard_normal((N, D)), kind)

    def built(weights, moments, x):
        smooth = "gelu" if layer == "MLP" else "silu"
        net = getattr(mp, layer)(*weights, activation="relu" if kind.library == "jax" else smooth)
        share, means, covs = moments
        return net, mp.Gaussian(means[0], covs[0]), mp.GaussianMixture(share, means, covs), x

    return built(weights, single, x), built([wide(w) for w in weights], [wide(a) for a in single], wide(x))


def assert_single(got, want):
    """Every number of a polynomial is in float32, and that of the float64 fit within the error of float32."""
    if isinstance(want, mp.polynomials.ChaosPolynomial):
        want = aligned(want, wide(got.whitener))
    got, want = own_arrays(got), own_arrays(want)
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert str(got[name].dtype).endswith("float32"), name
        assert np.all(np.abs(wide(got[name]) - array) <= 1e-4 * np.max(np.abs(array), initial=0.0)), name


def aligned(poly, whitener):
    """The same polynomial with the signs of given whitened coordinates: those of eigenvectors are arbitrary."""
    signs = np.sign(np.sum(poly.whitener * whitener, axis=1))
    values = poly.values * np.prod(signs ** np.asarray(poly.exponents), axis=1)
    return mp.polynomials.ChaosPolynomial(poly.center, signs[:, None] * poly.whitener, poly.exponents, values)


@table("degree", range(5), jax=2)
def test_fit_is_that_of_the_same_weights_in_single_precision(kind, layer, degree):
    (net, gaussian, mixture, _), (net64, gaussian64, mixture64, _) = case(kind, layer)
    fits = [
        (gaussian, gaussian64, "exact"),
        (mixture, mixture64, "neuronwise"),
        (mixture, mixture64, mp.methods.Exact(tolerance=1e-9)),
    ]
    for inputs, inputs64, method in fits:
        poly = mp.fit(net, inputs, degree, method=method)
        assert_single(poly, mp.fit(net64, inputs64, degree, method=method))
        assert poly.degree == degree and poly.inputs is inputs and poly.source.activation == net.activation.name
    if degree == 2:
        again = mp.fit(net, mixture, 2, method=mp.methods.Exact(start=poly, tolerance=1e-9))
        assert_single(again, mp.fit(net64, mixture64, 2, method=mp.methods.Exact(tolerance=1e-9)))


@kinds
def test_fit_under_inputs_of_16_bits(kind):
    """Gaussians and mixtures of 16-bit numbers are those of the same numbers in float32, also N(0, I)."""
    (net, *_), (net64, *_) = case(kind, "MLP")
    rng = np.random.default_rng(5)
    root = rng.standard_normal((2, D, D)) / 2 + np.eye(D)
    share, means, covs = (make(a, kind) for a in ([0.5, 0.5], rng.standard_normal((2, D)), root @ root.swapaxes(1, 2)))
    given = [
        (mp.Gaussian(means[0], covs[0]), mp.Gaussian(wide(means[0]), wide(covs[0]))),
        (mp.Gaussian(means[0]), mp.Gaussian(wide(means[0]))),
        (mp.Gaussian.standard(D, like=means), mp.Gaussian.standard(D)),
        (mp.Gaussian.standard(D), mp.Gaussian.standard(D)),
        (mp.GaussianMixture(share, means, covs), mp.GaussianMixture(wide(share), wide(means), wide(covs))),
        (mp.GaussianMixture(share, means), mp.GaussianMixture(wide(share), wide(means))),
    ]
    for inputs, inputs64 in given:
        assert_single(mp.fit(net, inputs, 1), mp.fit(net64, inputs64, 1))
        drawn = wide(inputs.sample(20, seed=1))
        assert_close(drawn, inputs64.sample(20, seed=1), 8 * ROUNDING[kind.dtype])  # a sum of D + 1 rounded products


FORMS = {
    "ridge 0": ("gaussian", 0),
    "ridge 2": ("gaussian", 2),
    "ridge 4": ("gaussian", 4),
    "bounded 3": ("gaussian", 3),
    "dense 1": ("mixture", 1),
    "dense 2": ("mixture", 2),
    "chaos 3": ("mixture", 3),
}


def fitted(kind, layer, form):
    """A 16-bit polynomial with network, inputs and points, and the same in float64."""
    (net, gaussian, mixture, x), (net64, gaussian64, mixture64, x64) = case(kind, layer)
    which, degree = FORMS[form]
    inputs, inputs64 = (gaussian, gaussian64) if which == "gaussian" else (mixture, mixture64)
    poly = mp.fit(net, inputs, degree)
    if form.startswith("bounded"):
        poly = poly.bounded(1.0)
    return (poly, net, inputs, x), (map_polynomial(poly, wide), net64, inputs64, x64)


def values_of(poly, x, tmp_path):
    """What a polynomial computes from points in 16 bits."""
    made = {"values": poly(x), "one value": poly(x[0]), "gradient": poly.gradient(x), "hessian": poly.hessian(x[0])}
    poly.save(tmp_path / "poly")
    made["loaded"] = mp.load(tmp_path / "poly", like=x)(x)
    if poly.degree >= 1:
        removed = mp.singular_directions(poly).vectors[:1]
        made["ablated"] = mp.ablate(x, removed)
    if poly.degree <= 2 and not isinstance(poly, mp.polynomials.ChaosPolynomial):
        made["dense"] = (mp.polynomials.DensePolynomial(x[0], poly(x[0])) + poly)(x)
    return made


@table("form", FORMS, jax="ridge 2")
def test_a_polynomial_computes_in_single_precision(kind, layer, form, tmp_path):
    (poly, *_, x), (poly64, *_, x64) = fitted(kind, layer, form)
    got, want = values_of(poly, x, tmp_path), values_of(poly64, x64, tmp_path)
    for name in want:
        assert str(got[name].dtype).endswith("float32"), name
        assert_close(wide(got[name]), want[name], SINGLE)
    module = poly.to_torch()
    points = torch.tensor(x64, dtype=getattr(torch, kind.dtype))
    # Neurons multiply in 16 bits: both forms are rounded, of which powers are taken, then hidden units and outputs.
    roundings = poly.degree + 3 if isinstance(poly, NeuronPolynomial) else 1
    assert_close(wide(module(points)), want["values"], roundings * ROUNDING[kind.dtype] + SINGLE)
    assert_close(wide(module(points.float())), want["values"], SINGLE)


def measures_of(poly, net, inputs, x):
    """Everything that is measured, by name."""
    labels = np.arange(N) % OUT
    together = mp.compare(net, poly, x, labels)
    moment, spectrum = mp.second_moment(net, inputs), mp.degree_spectrum(net, inputs, degree=3)
    made = {
        "fvu on samples": mp.fvu(net, poly, x).per_output,
        "its error": mp.fvu(net, poly, x).standard_error,
        "kl": mp.kl(net, poly, x).mean,
        "compare agreement": together.agreement.mean,
        "compare": together.fvu.total,
        "compare kl": together.kl.mean,
        "compare accuracy": together.accuracy.mean,
        "mean": moment.mean,
        "raw": moment.raw,
        "cov": moment.cov,
        "spectrum": spectrum.variance,
        "total": spectrum.total,
        "overall": spectrum.overall,
        "outputs": net(x),
    }
    if not isinstance(poly, mp.polynomials.ChaosPolynomial):
        found = mp.fvu(net, poly, inputs)
        made |= {"fvu": found.total, "per output": found.per_output, "flattened": found.flattened}
    if poly.degree >= 2:
        made["whitened"] = mp.eigenfeatures(poly, output=1, k=2, metric="whitened", inputs=inputs).values
    return made


@table("form", ["ridge 2", "bounded 3", "dense 2", "chaos 3"], jax="ridge 2")
def test_measures_are_those_of_the_same_numbers_in_double_precision(kind, layer, form):
    got, want = (measures_of(*part) for part in fitted(kind, layer, form))
    # JAX without float64 computes these in float32, with differences of nearly equal moments.
    tolerance = 1e-3 if kind.library == "jax" else SINGLE
    for name in want:
        assert str(got[name].dtype).endswith("float32"), name
        assert_close(wide(got[name]), want[name], tolerance)


@kinds
def test_hermite_coefficients_and_moments_of_16_bits(kind):
    mean, std = make([-1.0, 0.0, 0.5], kind), make([0.5, 1.0, 2.0], kind)
    for name in ("relu",) if kind.library == "jax" else ("relu", "gelu", "silu"):
        got, want = (
            mp.activations.hermite_coefficients(name, *pair, 3) for pair in ((mean, std), (wide(mean), wide(std)))
        )
        assert str(got.dtype).endswith("float32")
        assert_close(wide(got), want, 1e-6)
        one = mp.activations.hermite_coefficients(name, mean, 1.0, 3)
        assert str(one.dtype).endswith("float32")
        assert_close(wide(one), mp.activations.hermite_coefficients(name, wide(mean), 1.0, 3), 1e-6)
    x = make(np.random.default_rng(0).standard_normal((30, D)), kind)
    for got, want in (
        (mp.Gaussian.from_samples(x), mp.Gaussian.from_samples(wide(x))),
        (mp.Gaussian.from_samples(x, "oas"), mp.Gaussian.from_samples(wide(x), "oas")),
    ):
        assert_close(wide(got.cov), want.cov, SINGLE if kind.library == "jax" else 1e-12)
