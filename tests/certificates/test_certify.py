"""Certified bounds: against exact rational arithmetic, mpmath, grids and search; nothing may exceed them."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from support.backends import in_library
from support.inputs import gaussian, mixture
from support.mistakes import assert_explained, mistakes
from support.networks import chain, network

import mlpoly as mp
from mlpoly.certificates.functions import activations, polynomials
from mlpoly.certificates.interval import enclose
from mlpoly.polynomials import ChaosPolynomial

JUMPS = ("step", "jumprelu", "threshold")
SMOOTH = [name for name in mp.activations.names() if name not in JUMPS]
D = 3
INPUTS = gaussian(d=D)


def exact_affine(W, b, low, high):
    """Largest values of W x + b over a box in rational arithmetic."""
    rows = []
    for w, c in zip(W, b, strict=True):
        sides = [
            max(Fraction(float(a)) * Fraction(float(s)) for s in pair) for a, *pair in zip(w, low, high, strict=True)
        ]
        rows.append(sum(sides, start=Fraction(float(c))))
    return rows


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounds_of_sums_hold_in_rational_arithmetic(dtype):
    rng, naive = np.random.default_rng(0), 0
    for _ in range(20):
        W, b = rng.standard_normal((5, 7)).astype(dtype), rng.standard_normal(5).astype(dtype)
        low = rng.standard_normal(7)
        high = low + rng.random(7)
        found = mp.certify(mp.Affine(W, b), low, high, seconds=0)
        exact = exact_affine(W, b, low, high)
        assert all(Fraction(float(bound)) >= value for bound, value in zip(found.high, exact, strict=True))
        sizes = np.abs(W).astype(float) @ np.maximum(np.abs(low), np.abs(high)) + np.abs(b)
        slack = np.array([float(Fraction(float(h)) - v) for h, v in zip(found.high, exact, strict=True)])
        assert (slack <= 200 * 2.0**-52 * sizes).all()
        wide = W.astype(float)
        plain = wide @ (low + high) / 2 + np.abs(wide) @ (high - low) / 2 + b
        naive += sum(Fraction(float(p)) < value for p, value in zip(plain, exact, strict=True))
    assert naive > 20  # without margins a large part of the bounds would be wrong


def test_bounds_of_piecewise_linear_networks_hold_in_rational_arithmetic():
    """With one input the extrema are at the ends or where a unit turns on: both are rational."""
    rng, naive = np.random.default_rng(1), 0
    for _ in range(40):
        w, b, v = rng.standard_normal((3, 4))
        low, high = -0.3 - rng.random(), 0.3 + rng.random()
        net = mp.MLP(w[:, None], b, v[None], None, "relu")
        F = [[Fraction(float(a)) for a in row] for row in (w, b, v)]
        ends = [Fraction(low), Fraction(high)]
        points = ends + [x for x in (-c / a for a, c in zip(F[0], F[1], strict=True)) if ends[0] <= x <= ends[1]]
        values = [sum(o * max(a * x + c, Fraction(0)) for a, c, o in zip(*F, strict=True)) for x in points]
        found = mp.certify(net, low, high, seconds=0)
        assert Fraction(float(found.high[0])) >= max(values) and Fraction(float(found.low[0])) <= min(values)
        plain = net(np.array([[float(x)] for x in points]))
        naive += (Fraction(float(plain.max())) < max(values)) + (Fraction(float(plain.min())) > min(values))
    assert naive > 10


def test_affine_maps_are_not_rounded_into_one():
    """In float32 the product of two maps is off by 1e-7; the certificate is about the maps themselves."""
    rng = np.random.default_rng(6)
    maps = [mp.Affine(rng.standard_normal((4, 4)).astype("float32")) for _ in range(2)]
    low, high = -rng.random(4), rng.random(4)
    found = mp.certify(mp.Chain(maps), low, high, seconds=0)
    one, two = ([[Fraction(float(a)) for a in row] for row in m.W] for m in maps)
    product = [[sum(b * row[j] for b, row in zip(r, one, strict=True)) for j in range(4)] for r in two]
    sides = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(low, high, strict=True)]
    exact = [sum(max(w * a, w * b) for w, (a, b) in zip(row, sides, strict=True)) for row in product]
    gaps = [float(Fraction(float(bound)) - value) for bound, value in zip(found.high, exact, strict=True)]
    assert all(0 <= gap < 1e-12 for gap in gaps)


ONE = np.ones((1, 1))


@pytest.mark.parametrize(
    ("net", "factors", "power"),
    [
        (mp.MLP(1e-170 * ONE, None, 1e300 * ONE, None, "square"), (1e-170, 1e-170, 1e300), 2),
        (mp.GLU(1e-170 * ONE, None, 1e-170 * ONE, None, ONE, None, "relu"), (1e-170, 1e-170), 2),
        (mp.Affine(5e-324 * ONE), (5e-324,), 1),
    ],
)
def test_bounds_hold_where_products_underflow(net, factors, power):
    found = mp.certify(net, 0.3, 0.4, seconds=0)
    for x in (0.3, 0.4):
        exact = math.prod(map(Fraction, factors)) * Fraction(x) ** power
        assert Fraction(float(found.low[0])) <= exact <= Fraction(float(found.high[0]))


def test_an_ellipsoid_reaches_as_far_along_tiny_weights():
    found = mp.certify(mp.Affine(1e-180 * np.ones((1, 2))), inputs=mp.Gaussian.standard(2), radius=1.0, seconds=0)
    np.testing.assert_allclose(found.high, math.sqrt(2) * 1e-180, rtol=1e-14)


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@pytest.mark.parametrize("activation", ["relu", "cos", "cube"])
def test_a_box_may_be_a_point(kind, activation):
    for seed in range(3):
        net = network(kind, activation, D, 4, 2, seed=seed, bias=seed % 2)
        for x in (np.zeros(D), np.arange(D) - 0.5):
            found = mp.certify(net, x, x, seconds=1)
            np.testing.assert_allclose(found.high, net(x[None])[0], rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(found.low, found.high, rtol=1e-12, atol=1e-12)


def test_a_unit_far_from_its_kink_is_compared_with_its_polynomial():
    """The kink is 1e20 standard deviations away: half of the unit's pieces are on each side of it all the same."""
    W, b, W2 = np.array([[1e-3, -2e-3]]), np.array([-1e17]), np.ones((1, 1))
    net = mp.MLP(W, b, W2, None, "relu")
    for sign in (1.0, -1.0):
        net = mp.MLP(W, sign * b, W2, None, "relu")
        poly = mp.fit(net, mp.Gaussian.standard(2), 3)
        found = mp.certify(net, -1.0, 1.0, against=poly, seconds=0)
        assert found.low[0] <= 0 <= found.high[0] and found.largest < 1e4  # of 1e17, by rounding


def test_values_are_attained_within_the_box():
    rng = np.random.default_rng(5)
    for seed in range(30):
        low = rng.standard_normal(D)
        high = low + rng.random(D)
        found = mp.certify(network("GLU", "relu2", D, 4, 2, seed=seed), low, high, seconds=0)
        for x in (*found.highest_at, *found.lowest_at):
            assert (x >= low).all() and (x <= high).all()


def test_networks_without_hidden_units():
    net = mp.MLP(np.zeros((0, 3)), np.zeros(0), np.zeros((2, 0)), np.array([1.0, -2.0]))
    found = mp.certify(net, -1, 1, seconds=0)
    np.testing.assert_allclose(found.high, [1.0, -2.0], rtol=1e-14)


@pytest.mark.parametrize("degree", [2, 3, 4, 7])
def test_ranges_of_polynomials_of_one_variable_are_exact_to_rounding(degree):
    rng = np.random.default_rng(degree)
    table = rng.standard_normal((degree + 1, 30))
    low, high = -1.5 * rng.random(30), 2 * rng.random(30)
    found = enclose(polynomials(table, 0 * table), low, high)
    for i in range(30):
        exact = [Fraction(float(c)) for c in table[:, i]]
        roots = np.roots(np.polyder(table[::-1, i]))
        real = [float(r.real) for r in roots if abs(r.imag) < 1e-9 and low[i] <= r.real <= high[i]]
        points = [Fraction(x) for x in [low[i], high[i], *real]]
        values = [sum(c * x**k for k, c in enumerate(exact)) for x in points]
        assert Fraction(float(found.high[i])) >= max(values) and Fraction(float(found.low[i])) <= min(values)
        size = float(sum(abs(c) * 2**k for k, c in enumerate(exact)))
        assert float(Fraction(float(found.high[i])) - max(values)) < 1e-13 * size
        assert float(min(values) - Fraction(float(found.low[i]))) < 1e-13 * size


EXACT = {
    "silu": lambda y: y / (1 + mpmath.exp(-y)),
    "gelu": lambda y: y * mpmath.ncdf(y),
    "tanh": mpmath.tanh,
    "mish": lambda y: y * mpmath.tanh(mpmath.log1p(mpmath.exp(y))),
    "softplus": lambda y: mpmath.log1p(mpmath.exp(y)),
    "elu": lambda y: y if y > 0 else mpmath.expm1(y),
    "erf": mpmath.erf,
    "gaussian": lambda y: mpmath.exp(-y * y / 2),
    "softsign": lambda y: y / (1 + abs(y)),
    "sin": mpmath.sin,
}


@pytest.mark.parametrize("name", EXACT)
def test_enclosures_hold_in_forty_digits(name):
    """Ranges, and the polygon of upper and lower points minus lines, against the exact function on fine grids."""
    rng, g = np.random.default_rng(2), EXACT[name]
    low = np.array([-9.0, -3.0, -0.5, 0.0, 1.0, -1e-3, 2.0])
    high = np.array([-2.0, 4.0, 0.25, 30.0, 1.0, 1e-3, 2.5])
    found = enclose(activations(mp.activations.get(name), 7), low, high)
    with mpmath.workdps(40):
        for i in range(7):
            t = np.linspace(low[i], high[i], 400)
            values = [g(mpmath.mpf(float(x))) for x in t]
            assert max(values) <= found.high[i] and min(values) >= found.low[i]
            # What the grid misses is 1e-6; only of sine, which bends everywhere, the panels leave 1/(8 32^2).
            room = (1.3e-4 if name == "sin" else 1e-6) * (high[i] - low[i]) ** 2 + 1e-13
            assert found.high[i] - float(max(values)) <= room
            for slope in rng.standard_normal(5):
                one, two = (
                    sign * found.highest(*np.full((2, 1, 7), [[[sign]], [[sign * slope]]]))[0][0, i] for sign in (1, -1)
                )
                assert all(v - mpmath.mpf(slope) * mpmath.mpf(float(x)) <= one for v, x in zip(values, t, strict=True))
                assert all(v - mpmath.mpf(slope) * mpmath.mpf(float(x)) >= two for v, x in zip(values, t, strict=True))


@pytest.mark.parametrize("name", SMOOTH)
def test_activations_are_convex_or_concave_between_their_points_of_inflection(name):
    act = mp.activations.get(name)
    if act.pieces is not None or act.bends is None:
        return
    ends = [-30.0, *sorted({*act.kinks, *act.bends}), 30.0]
    for one, two in itertools.pairwise(ends):
        slopes = act.slope(np.linspace(one, two, 20_001)[1:-1])
        change = np.diff(slopes)
        assert (change >= -1e-15).all() or (change <= 1e-15).all()


def functions(rng, activation, dtype="float64"):
    """A layer, a GLU, a chain and a residual connection, and polynomials of every form, of D inputs."""
    kinds = [network("MLP", activation, D, 5, 2, seed=rng), network("GLU", activation, D, 4, 2, seed=rng)]
    deep = mp.Chain(
        [mp.Residual(network("MLP", activation, D, 4, D, seed=rng)), network("MLP", activation, D, 4, 2, seed=rng)]
    )
    nets = [*kinds, deep]
    polys = [mp.fit(net, INPUTS, 3) for net in kinds] + [mp.fit(net, INPUTS, 2).bounded(1.5) for net in kinds]
    polys.append(mp.fit(deep, INPUTS, 2, method="composed"))
    polys.append(mp.fit(kinds[0], mixture(D), 2))
    exponents = np.array([[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 1, 0], [2, 1, 1], [0, 3, 0], [0, 0, 1]])
    polys.append(
        ChaosPolynomial(rng.standard_normal(D), rng.standard_normal((3, D)), exponents, rng.standard_normal((2, 7)))
    )
    like = np.zeros(1, dtype=dtype)
    return [f.to(like) for f in (*nets, *polys)]


def assert_bounds_hold(f, against, region, x, seconds=0.0, **options):
    found = mp.certify(f, against=against, seconds=seconds, **region, **options)
    values = f.to(np.zeros(1))(x)
    if against is not None:
        values = values - against.to(np.zeros(1))(x)
    room = 1e-12 * (1 + np.abs(values).max(axis=0))  # of evaluating them
    assert (values <= found.high + room).all() and (values >= found.low - room).all()
    assert (found.highest <= found.high + room).all() and (found.lowest >= found.low - room).all()
    assert (found.highest >= values.max(axis=0) - 0.3 * np.ptp(values, axis=0) - room).all()
    return found


def box_points(rng, low, high, count=3000):
    x = rng.uniform(low, high, (count, len(low)))
    corners = np.array(list(itertools.product(*zip(low, high, strict=True))))
    return np.concatenate([x, corners])


@pytest.mark.parametrize("activation", SMOOTH)
def test_nothing_exceeds_the_bounds(activation):
    rng = np.random.default_rng(len(activation))
    low = INPUTS.mean - rng.random(D)
    high = low + 2 * rng.random(D)
    x, region = box_points(rng, low, high), {"low": low, "high": high}
    found = functions(rng, activation, "float32" if len(activation) % 2 else "float64")
    for f in found:
        assert_bounds_hold(f, None, region, x)
    for one, two in ((0, 3), (0, 5), (1, 6), (2, 7), (3, 9)):
        assert_bounds_hold(found[one], found[two], region, x)


@pytest.mark.parametrize("inputs", [INPUTS, mixture(D)])
def test_nothing_exceeds_the_bounds_over_ellipsoids(inputs):
    rng = np.random.default_rng(3)
    points = []
    for part in inputs.components:
        z = rng.standard_normal((1000, D))
        z = z / np.linalg.norm(z, axis=1, keepdims=True) * rng.random((1000, 1)) ** (1 / D)
        points.append(part.mean + 1.7 * z @ np.linalg.cholesky(part.covariance).T)
    for f in functions(rng, "gelu"):
        assert_bounds_hold(f, None, {"inputs": inputs, "radius": 1.7}, np.concatenate(points))


@pytest.mark.parametrize("seed", range(4))
def test_splitting_closes_the_gap(seed):
    """In one and two dimensions the bounds of networks and of errors are within a percent of a dense grid."""
    rng = np.random.default_rng(seed)
    d = 1 + seed % 2
    net = network("MLP", ("relu", "silu", "tanh", "abs")[seed], d, 6, 2, seed=rng)
    poly = mp.fit(net, mp.Gaussian.standard(d), 3)
    grid = np.stack(np.meshgrid(*[np.linspace(-2, 2, 4001 if d == 1 else 401)] * d), axis=-1).reshape(-1, d)
    error = net(grid) - poly(grid)
    found = mp.certify(net, -2, 2, against=poly, seconds=60, tolerance=5e-3)
    width = np.ptp(error, axis=0)
    assert (found.high >= error.max(axis=0)).all() and (found.low <= error.min(axis=0)).all()
    assert (found.high - error.max(axis=0) <= 0.01 * width).all()
    assert (error.min(axis=0) - found.low <= 0.01 * width).all()


def test_a_layer_and_its_polynomial_are_compared_unit_by_unit():
    net = network("MLP", "relu", 4, 8, 2)
    poly = mp.fit(net, mp.Gaussian.standard(4), 3)
    joint = mp.certify(net, -1, 1, against=poly, seconds=0)
    apart = mp.certify(net, -1, 1, against=poly._scaled(1.0), seconds=0)  # the same function, as another object
    np.testing.assert_allclose(joint.high, apart.high, rtol=1e-9)
    other = network("MLP", "relu", 4, 8, 2, seed=5)
    exact = network("MLP", "cube", 4, 8, 2)
    assert mp.certify(exact, -1, 1, against=mp.fit(exact, mp.Gaussian.standard(4), 3), seconds=0).largest < 1e-9
    assert joint.largest < 0.5 * mp.certify(other, -1, 1, against=poly, seconds=0).largest


def test_other_libraries_are_converted(backend):
    with backend.active():
        net = in_library(network("MLP", "silu", D, 4, 2), backend)
        found = mp.certify(net, -1.0, 1.0, seconds=0)
        wide = mp.certify(net.to(np.zeros(1)), -1.0, 1.0, seconds=0)
    np.testing.assert_array_equal(found.high, wide.high)
    assert isinstance(found.high, np.ndarray) and "certified high" in str(found)


def test_overflow_is_an_infinite_bound():
    poly = mp.fit(network("MLP", "relu", 2, 3, 1), mp.Gaussian.standard(2), 4)
    found = mp.certify(poly, -1e200, 1e200, seconds=0)
    assert np.isinf(found.high).all() and np.isinf(found.low).all()


SEEDS = {1: 5, 3: 1}  # of networks that are not of one class, and polynomials of which some differ
NET = network("MLP", "relu", 2, 3, 1)


def narrow():
    with np.errstate(over="ignore"):
        net = mp.Affine(1e99 * np.eye(2)).to(np.zeros(1, "float32"))
    mp.certify(net, 0, 1)


@mistakes(
    [
        ("no region", lambda: mp.certify(NET), ValueError, "a region is needed"),
        ("half a box", lambda: mp.certify(NET, 0.0), ValueError, "a region is needed"),
        ("inverted", lambda: mp.certify(NET, 1.0, [2.0, 0.0]), ValueError, "low must not be above high", "input 1"),
        ("infinite", lambda: mp.certify(NET, -np.inf, 1.0), ValueError, "low must be finite", "range of inputs"),
        ("size", lambda: mp.certify(NET, np.zeros(3), 1.0), ValueError, r"low has shape \(3,\)"),
        ("radius", lambda: mp.certify(NET, inputs=mp.Gaussian.standard(2), radius=0.0), ValueError, "radius"),
        ("dims", lambda: mp.certify(NET, inputs=INPUTS, radius=1.0), ValueError, "3 dimensions"),
        ("samples", lambda: mp.certify(NET, inputs=mp.Samples(np.eye(2)), radius=1.0), TypeError, "inputs must be a"),
        ("seconds", lambda: mp.certify(NET, 0, 1, seconds=-1), ValueError, "seconds"),
        ("callable", lambda: mp.certify(abs, 0, 1), TypeError, "f must be a network or polynomial"),
        ("other size", lambda: mp.certify(NET, 0, 1, against=network(d=3)), ValueError, "f maps 2 -> 1"),
        ("jump", lambda: mp.certify(network("MLP", "step", 2), 0, 1), ValueError, "'step' jumps", "continuous"),
        ("weights", narrow, ValueError, "not all finite"),
        ("own", lambda: mp.certify(mp.MLP(np.eye(2), activation=np.sinh), 0, 1), ValueError, "user's activation"),
    ]
)
def test_mistakes_are_explained(act, exception, patterns):
    assert_explained(act, exception, patterns)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_same_class_is_true_false_or_open(outputs):
    """True is checked on a grid, false at the input it names; every answer comes up for some box."""
    rng, answers = np.random.default_rng(4), []
    net = network("MLP", "tanh", 2, 6, outputs, seed=SEEDS[outputs])
    poly = mp.fit(net, mp.Gaussian.standard(2), 3)

    def classes(f, x):
        values = f(x)
        return (values[:, 0] > 0).astype(int) if outputs == 1 else values.argmax(axis=1)

    for _ in range(20):
        low = rng.uniform(-2, 1.5, 2)
        high = low + rng.uniform(0.02, 0.5, 2)
        found = mp.same_class(net, poly, low, high, seconds=10)
        answers.append(found.answer)
        grid = np.stack(np.meshgrid(*[np.linspace(a, b, 60) for a, b in zip(low, high, strict=True)]), -1).reshape(
            -1, 2
        )
        same = classes(net, grid) == classes(poly, grid)
        if found:
            assert same.all()
        elif found.answer == "false":
            assert (found.x >= low).all() and (found.x <= high).all()
            assert (int(classes(net, found.x[None])[0]), int(classes(poly, found.x[None])[0])) == found.classes
            assert found.classes[0] != found.classes[1] and "false" in str(found)
    assert {"true", "false"} <= set(answers)
    both = mp.same_class(net, net, -2, 2, seconds=0)  # no box is certified where the class changes
    assert both.answer == "open" and both.left == 1 and not both


def test_rounding_does_not_make_classes_differ():
    """Both outputs of both networks are 0.6 x, summed in different orders."""
    W = np.ones((3, 1))
    one, two = (
        mp.MLP(W, None, np.array(rows), None, "identity")
        for rows in ([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]], [[0.2, 0.3, 0.1], [0.3, 0.1, 0.2]])
    )
    x = np.linspace(0.5, 1.5, 200)[:, None]
    assert (one(x).argmax(axis=1) != two(x).argmax(axis=1)).any()
    assert mp.same_class(one, two, 0.5, 1.5, seconds=0.1).answer == "open"


def test_classes_over_ellipsoids():
    net = network("MLP", "tanh", 2, 6, 3, seed=1)
    poly = mp.fit(net, mp.Gaussian.standard(2), 3)
    near = mp.Gaussian(np.array([1.0, -1.0]), 1e-4 * np.eye(2))
    assert mp.same_class(net, poly, inputs=near, radius=1.0).answer == "true"
    assert mp.same_class(net, poly, inputs=mp.Gaussian.standard(2), radius=5.0).answer == "false"


@pytest.mark.slow
@pytest.mark.parametrize("case", range(24))
def test_thousands_of_random_functions(case):
    """Random networks and polynomials, boxes and precisions, with every activation: no violation."""
    rng = np.random.default_rng([7, case])
    for activation in SMOOTH:
        dtype = ("float32", "float64")[int(rng.integers(2))]
        low = INPUTS.mean + rng.standard_normal(D)
        high = low + 3 * rng.random(D) ** 2
        x, region = box_points(rng, low, high, 4000), {"low": low, "high": high}
        found = functions(rng, activation, dtype)
        for f in found:
            assert_bounds_hold(f, None, region, x, seed=case)
        for one, two in ((0, 3), (0, 5), (1, 4), (2, 7)):
            assert_bounds_hold(found[one], found[two], region, x, seed=case)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh"])
def test_no_search_in_many_dimensions_exceeds_the_bounds(activation):
    rng = np.random.default_rng(11)
    for d, h in ((10, 20), (30, 40), (100, 50)):
        net = chain(activation, (d, h, h // 2, 3), seed=int(rng.integers(1000)))
        for radius in (0.05, 0.5, 2.0):
            found = mp.certify(net, -radius, radius, seconds=3)
            assert (found.highest <= found.high).all() and (found.lowest >= found.low).all()
            more = mp.certify(net, -radius, radius, seconds=1, seed=9)
            assert (more.highest <= found.high).all() and (more.lowest >= found.low).all()
