"""Two functions compared: against samples, exact identities, other measures of this library and finite differences."""

import itertools
import math

import numpy as np
import pytest
import torch
from support.backends import NUMPY32, TORCH32, TORCH64, assert_close, assert_same_kind, backends, in_library, to_numpy
from support.inputs import gaussian, mixture, standard_grid
from support.mistakes import assert_explained, mistakes
from support.networks import chain, network

import mlpoly as mp
from mlpoly.networks import Network
from mlpoly.polynomials import Polynomial
from mlpoly.records import arrays_of, map_arrays, replace

G = gaussian(1, 4, ridge=0.05)
MIX = mixture(4, c=2)
INPUTS = pytest.mark.parametrize("inputs", [G, MIX], ids=["gaussian", "mixture"])

PAIRS = [
    (("MLP", "relu"), ("MLP", "gelu")),
    (("MLP", "relu"), ("MLP", "leaky_relu")),
    (("MLP", "tanh"), ("GLU", "silu")),
    (("MLP", "relu"), ("GLU", "gelu")),
    (("GLU", "relu"), ("GLU", "silu")),
    (("MLP", "sin"), ("MLP", "cos")),
    (("MLP", "step"), ("MLP", "relu")),
    (("MLP", "cos"), ("GLU", "tanh")),
]


def two(pair, h=7):
    """Networks with some of their first weights in common, so that they are alike."""
    f, g = (network(kind, name, 4, h, 3, seed=i) for i, (kind, name) in enumerate(pair))
    mixed = 0.8 * f.forms.directions + 0.4 * g.forms.directions
    return f, g.with_parts(replace(g.forms, directions=mixed), g.readout, g.bias)


@INPUTS
@pytest.mark.parametrize("pair", PAIRS[:6], ids=lambda p: "-".join(f"{kind}.{name}" for kind, name in p))
def test_sums_agree(pair, inputs):
    """Outputs and degrees add up to the whole, and both directions agree."""
    f, g = two(pair)
    found, back = mp.similarity(f, g, inputs, degree=3), mp.similarity(g, f, inputs, degree=6)
    assert found.per_output.inner.shape == (3,) and found.by_degree.inner.shape == (5,)
    for part in (found.per_output, found.by_degree):
        for name in ("inner", "first", "second", "distance"):
            assert_close(getattr(part, name).sum(), np.asarray(getattr(found, name)), 1e-12)
    assert found.cosine == pytest.approx(float(found.inner / np.sqrt(found.first * found.second)), rel=1e-14)
    assert_close(back.by_degree.inner[:4], found.by_degree.inner[:4], 1e-11)
    assert_close(back.by_degree.first[:4], found.by_degree.second[:4], 1e-12)
    assert_close(back.inner, found.inner, 1e-12)


@INPUTS
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "sin", "step"])
def test_a_network_with_itself(kind, name, inputs):
    f = network(kind, name)
    found, moments = mp.similarity(f, f, inputs), mp.second_moment(f, inputs)
    assert_close(found.per_output.inner, np.diagonal(moments.raw), 1e-12)
    assert_close(found.per_output.first, np.diagonal(moments.raw), 1e-12)
    assert found.cosine == pytest.approx(1, abs=1e-12)
    assert found.distance <= 1e-12 * found.inner
    centred = mp.similarity(f, f, inputs, centred=True)
    assert_close(centred.per_output.first, np.diagonal(moments.cov), 1e-12)
    assert_close(centred.per_output.inner, np.diagonal(moments.cov), 1e-12)
    if inputs is G:  # degrees are those of the spectrum
        spectrum = mp.degree_spectrum(f, G, 4)
        assert_close(found.by_degree.inner[1:5], spectrum.variance.sum(1), 1e-12)
        assert_close(found.by_degree.inner[0], (moments.mean**2).sum(), 1e-12)


@INPUTS
def test_additions_and_multiples(inputs):
    """Bilinear: multiples and constants of one function, known from its own moments."""
    f, c = network("MLP", "gelu"), np.array([1.0, -2.0, 0.5])
    other = f.with_parts(f.forms, -3 * f.readout, -3 * f.bias + c)
    found, moments = mp.similarity(f, other, inputs), mp.second_moment(f, inputs)
    assert_close(found.per_output.inner, -3 * np.diagonal(moments.raw) + c * moments.mean, 1e-11)
    assert_close(found.per_output.distance, 16 * np.diagonal(moments.raw) - 8 * c * moments.mean + c**2, 1e-11)
    assert mp.similarity(f, other, inputs, centred=True).cosine == pytest.approx(-1, abs=1e-12)


def test_known_values():
    """E[x relu(x)] = 1/2, E[relu(x)^2] = 1/2; and sign(x) with relu(x) has E|x| / 2."""
    relu, line, step = (mp.MLP(np.eye(1), None, None, None, name) for name in ("relu", "identity", "step"))
    found = mp.similarity(relu, line, mp.Gaussian.standard(1))
    assert (float(found.inner), float(found.first), float(found.second)) == pytest.approx((0.5, 0.5, 1.0), rel=1e-14)
    assert found.distance == pytest.approx(0.5) and found.cosine == pytest.approx(math.sqrt(0.5))
    found = mp.similarity(step, relu, mp.Gaussian.standard(1))
    assert found.inner == pytest.approx(1 / math.sqrt(2 * math.pi), rel=1e-14)
    zero = mp.similarity(relu, mp.MLP(np.zeros((1, 1)), None, None, None, "relu"), mp.Gaussian.standard(1))
    assert float(zero.cosine) == 0 and zero.distance == pytest.approx(0.5)


@INPUTS
@pytest.mark.parametrize(("kind", "name"), [("MLP", "relu"), ("MLP", "gelu"), ("GLU", "silu")])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_distance_to_a_polynomial_is_its_error(kind, name, degree, inputs):
    """FVU times variance, for a best polynomial and for one of other inputs; of all three forms."""
    net = network(kind, name)
    variance = np.diagonal(mp.second_moment(net, inputs).cov)
    for poly in (mp.fit(net, inputs, degree), mp.fit(net, gaussian(9, 4, ridge=0.1), degree)):
        fvu = mp.fvu(net, poly, inputs)
        found = mp.similarity(net, poly, inputs)
        error = np.abs(found.per_output.distance - fvu.per_output * variance)
        assert np.all(error <= 1e-10 * (found.per_output.first + found.per_output.second))
        back = mp.similarity(poly, net, inputs)
        assert_close(back.per_output.inner, found.per_output.inner, 1e-12)
        assert_close(found.by_degree.second[degree + 1 :], np.zeros(5 - degree), 1e-10)


@pytest.mark.parametrize("degrees", [(1, 1), (2, 2), (2, 1), (3, 3), (3, 2), (0, 2)])
@pytest.mark.parametrize("inputs", [(G, G), (G, MIX), (MIX, MIX)], ids=["ridge", "ridge-other", "other"])
def test_two_polynomials_against_quadrature(degrees, inputs):
    """All forms with one another, under a Gaussian of neither: Gauss-Hermite with enough nodes is exact."""
    at = gaussian(8, 4, ridge=0.1)
    p, q = (mp.fit(network("MLP", "gelu", seed=i), g, n) for i, (g, n) in enumerate(zip(inputs, degrees, strict=True)))
    found = mp.similarity(p, q, at, degree=2)
    z, weights = standard_grid(4, 5)
    points = at.mean + z @ np.linalg.cholesky(at.cov).T
    a, b = p(points), q(points)
    assert_close(found.per_output.inner, weights @ (a * b), 1e-10)
    assert_close(found.per_output.first, weights @ (a * a), 1e-10)
    assert_close(found.per_output.second, weights @ (b * b), 1e-10)
    assert_close(found.by_degree.inner[0], (weights @ a) @ (weights @ b), 1e-10)
    # The linear part, by projecting on the standardised coordinates.
    slopes = [np.einsum("n,no,nd->od", weights, v, z) for v in (a, b)]
    assert abs(found.by_degree.inner[1] - np.sum(slopes[0] * slopes[1])) <= 1e-10 * found.first


def test_on_samples():
    """Plain averages, weighted; any functions, deep networks and bounded polynomials among them."""
    net, deep = network("MLP", "relu"), chain()
    x, w = G.sample(300), np.random.default_rng(0).uniform(size=300)
    for f, g in ((net, deep), (net, mp.fit(net, G, 3).bounded(2.0)), (deep, mp.fit(deep, G, 2, method="composed"))):
        found = mp.similarity(f, g, mp.Samples(x, weights=w))
        p, a, b = w / w.sum(), f(x), g(x)
        assert_close(found.per_output.inner, p @ (a * b), 1e-12)
        assert_close(found.distance, np.sum(p @ (a - b) ** 2), 1e-10)
        centred = mp.similarity(f, g, mp.Samples(x, weights=w), centred=True)
        assert_close(centred.per_output.inner, p @ ((a - p @ a) * (b - p @ b)), 1e-11)
        assert found.by_degree is None and "output 2" in str(found)


@backends(NUMPY32, TORCH32, TORCH64)
@INPUTS
def test_libraries_and_precisions(backend, inputs):
    f, g = two(PAIRS[2])
    expected = mp.similarity(f, g, inputs)
    there = [in_library(a, backend) for a in (f, g, inputs)]
    found = mp.similarity(*there)
    for name in ("inner", "first", "second", "distance", "cosine", "bound"):
        assert_same_kind(getattr(found, name), there[0].prototype)
    assert_close(found.inner, expected.inner, 100 * backend.tolerance)
    assert_close(found.by_degree.inner, expected.by_degree.inner, 100 * backend.tolerance)
    assert_close(found.per_output.distance, expected.per_output.distance, 100 * backend.tolerance)
    assert to_numpy(mp.similarity(there[0], there[1], mp.Gaussian.standard(4)).inner) == pytest.approx(
        float(mp.similarity(f, g, mp.Gaussian.standard(4)).inner), rel=100 * backend.tolerance
    )


@pytest.mark.parametrize(
    ("pair", "inputs", "what"),
    [
        (PAIRS[0], mixture(4, c=2), "cosine"),
        (PAIRS[1], mixture(4, c=2), "distance"),
        (PAIRS[2], G, "cosine"),
        (PAIRS[3], G, "distance"),
        (PAIRS[4], G, "distance"),
    ],
)
def test_gradients_in_torch(pair, inputs, what):
    """To all weights of both, against finite differences."""
    f, g = two(pair, h=3)
    arrays = [torch.tensor(a) for net in (f, g) for a in arrays_of(net).values()]
    count, there = len(arrays_of(f)), in_library(inputs, TORCH64)

    def measure(*values):
        parts = ((f, values[:count]), (g, values[count:]))
        one, other = (type(net)(*part, activation=net.activation.name) for net, part in parts)
        return getattr(mp.similarity(one, other, there), what)

    leaves = [a.requires_grad_() for a in arrays]
    assert torch.autograd.gradcheck(measure, leaves, eps=1e-5, atol=1e-7, rtol=1e-6, fast_mode=True)


NET = network("MLP", "relu")
DEEP = chain(sizes=(4, 5, 4, 3))
COMPOSED = mp.fit(DEEP, mp.Gaussian.standard(4), 2, method="composed")


@mistakes(
    [
        ("outputs", lambda: mp.similarity(NET, network(o=2), G), ValueError, "but g maps 4 -> 2", "outputs"),
        ("inputs", lambda: mp.similarity(NET, network(d=3), G), ValueError, "but g maps 3 -> 3", "inputs"),
        ("distribution", lambda: mp.similarity(NET, NET, gaussian(1, 3)), ValueError, "inputs"),
        ("deep", lambda: mp.similarity(NET, DEEP, G), TypeError, "hidden layer"),
        ("deep first", lambda: mp.similarity(DEEP, NET, G), TypeError, "hidden layer"),
        ("composed", lambda: mp.similarity(COMPOSED, NET, G), TypeError, "ComposedPolynomial.*Samples"),
        ("degree", lambda: mp.similarity(NET, NET, G, degree=-1), ValueError, "degree"),
        ("function", lambda: mp.similarity(NET, lambda x: x, G), TypeError, "g must be a network or polynomial"),
        ("libraries", lambda: mp.similarity(NET, in_library(NET, TORCH64), G), TypeError, "f|g"),
    ]
)  # fmt: skip
def test_mistakes(act, exception, patterns):
    assert_explained(act, exception, patterns)


def kinds_of_functions():
    """Functions of two inputs of every kind, and inputs that all of them take."""
    d, inputs, rng = 2, gaussian(d=2), np.random.default_rng(5)
    x = inputs.sample(2000, seed=3)
    named = itertools.product(("MLP", "GLU"), ("relu", "gelu", "sin"))
    made = {f"{kind} {name}": network(kind, name, d, 6, 2, seed=i) for i, (kind, name) in enumerate(named)}
    net = network("MLP", "tanh", d, 5, 2, seed=8)
    made["ridge 3"] = mp.fit(net, inputs, 3)
    made["gated ridge 2"] = mp.fit(made["GLU gelu"], inputs, 2)
    made["dense 2"] = mp.fit(net, mixture(d, c=2), 2)
    made["chaos 6"] = mp.fit(net, mp.Samples(x), 6)
    made["bounded 3"] = mp.fit(net, inputs, 3).bounded(1.5)
    made["gated bounded 4"] = mp.fit(made["GLU gelu"], inputs, 4).bounded(2.0)
    made["affine"] = mp.Affine(rng.normal(size=(2, d)), rng.normal(size=2))
    return made, inputs


def test_every_kind_and_pair_of_kinds_against_a_grid():
    """Similarity, whatever degrees are listed, error, moments and sensitivity."""
    functions, inputs = kinds_of_functions()
    step, reach = 0.08, 10.0  # a kink costs the rule less than step^2 / 12 of its jump; the density ends at 1e-22
    z = np.arange(-reach, reach + step / 2, step)
    weights = np.exp(-z * z / 2) * step / math.sqrt(2 * math.pi)
    root, tolerance = np.linalg.cholesky(inputs.covariance), step**2 / 4
    values = {name: [] for name in functions}
    for first in z:  # of x[0] alone, which is mean + root[0, 0] first
        x = inputs.mean + np.stack([first + 0 * z, z], axis=1) @ root.T
        for name, function in functions.items():
            values[name].append(function(x))
    values = {name: np.stack(rows) for name, rows in values.items()}  # (n, n, o)

    def mean(a):
        return np.einsum("i,j,ij...->...", weights, weights, a)

    sizes, means = ({name: mean(v**power) for name, v in values.items()} for power in (2, 1))
    for f, g in itertools.combinations_with_replacement(functions, 2):
        inner, size = mean(values[f] * values[g]), np.sqrt(sizes[f] * sizes[g])
        for degree in (0, 4, 8):
            found = mp.similarity(functions[f], functions[g], inputs, degree=degree)
            slack = tolerance * size + float(found.bound)
            assert np.all(np.abs(found.per_output.inner - inner) <= slack), (f, g, degree)
            assert_close(found.by_degree.inner.sum(), found.inner, 1e-11)
        if isinstance(functions[f], Network) and isinstance(functions[g], Polynomial):
            error, variance = mean((values[f] - values[g]) ** 2), sizes[f] - means[f] ** 2
            found = mp.fvu(functions[f], functions[g], inputs)
            slack = tolerance * (sizes[f] + sizes[g]) / variance + 2 * float(found.bound)
            assert np.all(np.abs(found.per_output - error / variance) <= slack), (f, g)
    for name, f in functions.items():
        products = values[name][..., :, None] * values[name][..., None, :]
        assert_close(mp.second_moment(f, inputs).raw, mean(products), tolerance)
        given = np.einsum("j,ij...->i...", weights, values[name])  # E[f | x[0]]
        explained = weights @ given**2 - means[name] ** 2
        found = mp.sensitivity(f, inputs)
        assert np.all(np.abs(found.first[0] * found.variance - explained) <= tolerance * sizes[name]), name
        assert_close(found.total[1], 1 - found.first[0], 1e-12)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # squares leave the range, cosines do not
@pytest.mark.parametrize(
    ("dtype", "scales"), [("float64", (1e-140, 1e-85, 1e80, 1e140)), ("float32", (1e-25, 1e-15, 1e15, 1e25))]
)
def test_the_cosine_does_not_depend_on_the_scale(dtype, scales):
    net = map_arrays(network("MLP", "gelu", 4, 7, 3), lambda a: a.astype(dtype))
    other = map_arrays(network("MLP", "relu", 4, 7, 3, seed=1), lambda a: a.astype(dtype))
    inputs = map_arrays(G, lambda a: a.astype(dtype))
    there = mp.similarity(net, other, inputs).cosine
    for scale in scales:
        scaled = net.with_parts(net.forms, net.readout * np.asarray(scale, dtype), net.bias * np.asarray(scale, dtype))
        rounding = 20 * np.finfo(dtype).eps  # of a few products, roots and quotients
        assert abs(mp.similarity(scaled, scaled, inputs).cosine - 1) <= rounding
        assert abs(mp.similarity(scaled, other, inputs).cosine - there) <= rounding


@pytest.mark.parametrize("factor", [2.0**-40, 2.0**40])
def test_forms_of_very_different_size(factor):
    """The inner product with a polynomial without hidden units keeps its digits beside a much larger function."""
    f, near = network(d=2, o=2, activation="tanh"), mixture(2, c=2)
    cubic, plane = mp.fit(f, near, 3), mp.fit(network(d=2, o=2, seed=1), near, 2)
    g = gaussian(3, 2, ridge=0.1)
    for one, two in ((cubic, plane), (plane, cubic), (f, cubic), (f, plane)):
        found = mp.similarity(one, two * factor, g)
        assert_close(found.by_degree.inner / factor, mp.similarity(one, two, g).by_degree.inner, 1e-11)
