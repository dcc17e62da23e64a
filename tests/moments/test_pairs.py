"""Second moments of pairs of hidden units: against closed forms, mpmath and independent quadrature."""

import math
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest

import mlpoly as mp
from mlpoly import activations
from mlpoly.activations.quadrature import fixed_projection
from mlpoly.measures import second_moment
from mlpoly.moments import Expansion, expansion
from mlpoly.moments.inner import remainder_of
from mlpoly.moments.kernels import hermite_sums, piecewise_linear
from mlpoly.moments.kernels.conditional import Pairs, unit_moments
from mlpoly.moments.kernels.conditional import pair_moments as pairs_of_families
from mlpoly.moments.kernels.piecewise_linear import is_affine
from mlpoly.records import replace
from mlpoly.units import Angles, Gate, Units, inner_products

RHO = np.array([-1, -0.999999, -0.9, -0.5, 0, 0.3, 0.9, 0.99, 0.999999, 1])
PIECEWISE_LINEAR = ["relu", "leaky_relu", "abs", "step", "jumprelu", "threshold(0.5, -1)", "hardtanh", "relu6"]


def pair_moments(act, units, i, j, inner, centres=None, limits=None):
    """Of pairs within one family of units."""
    centres = units.means * 0 if centres is None else centres
    family = SimpleNamespace(activation=act, units=units, centres=centres)
    return pairs_of_families(Pairs(family, family, i, j, inner, limits))


def plain_units(means, stds):
    means, stds = np.asarray(means, dtype=float), np.asarray(stds, dtype=float)
    return Units(np.zeros((len(means), 1)), means, stds)


def expanded(activation, units):
    return Expansion(units, mp.Gaussian.standard(1), activation=activation)


def beyond(f, rows, columns, angles, degree=0):
    """Covariances of two chunks of units above a degree, and the bound, by the kernel that the library chooses."""
    return remainder_of(f, f)(f, f, rows, columns, angles, degree, True)


def moments(activation, means, stds, rho, kernel=None):
    """E[act_i act_j] (h, h) of all pairs at one correlation, and their natural sizes sqrt(E[act_i^2] E[act_j^2]).

    The units are listed twice, so that even a unit and its own copy count as a pair of different units.
    """
    act = activations.get(activation)
    h = len(means)
    both = plain_units([*means, *means], [*stds, *stds])
    f = expanded(act, both)
    angles = Angles(np.full((h, h), float(rho)))
    matrix, _ = (kernel or remainder_of(f, f))(f, f, slice(0, h), slice(h, 2 * h), angles, 0, True)
    total = matrix + np.outer(f.centres[:h], f.centres[h:])
    size = np.sqrt(f.variances[:h] + f.centres[:h] ** 2)
    return total, np.outer(size, size)


def test_arc_cosine_kernels():
    """Centred units: Cho and Saul's kernels of order 0 and 1, and |y|."""
    for rho in np.linspace(-1, 1, 41):
        angle, side = math.acos(rho), math.sqrt(1 - rho * rho)
        step = (math.pi - angle) / (2 * math.pi)
        ramp = (side + rho * (math.pi - angle)) / (2 * math.pi)
        assert moments("step", [0.0], [3.0], rho)[0][0, 0] == pytest.approx(step, abs=1e-13)
        assert moments("relu", [0.0], [3.0], rho)[0][0, 0] == pytest.approx(9 * ramp, abs=1e-12)
        absolute = 2 / math.pi * (side + rho * math.asin(rho))
        assert moments("abs", [0.0], [1.0], rho)[0][0, 0] == pytest.approx(absolute, abs=1e-13)


@pytest.mark.parametrize("rho", RHO)
def test_polynomials_are_exact(rho):
    m, s = np.array([0.3, -2.0]), np.array([1.5, 0.2])
    cov = rho * np.outer(s, s)
    np.testing.assert_allclose(moments("identity", m, s, rho)[0], cov + np.outer(m, m), rtol=1e-13)
    square = np.outer(m**2 + s**2, m**2 + s**2) + 2 * cov**2 + 4 * np.outer(m, m) * cov
    np.testing.assert_allclose(moments("square", m, s, rho)[0], square, rtol=1e-12)


def conditional_mean(act, mean, std):
    """E[act(mean + std w)] of a piecewise-linear activation, gelu or erf, in mpmath."""
    if act.name == "erf":
        return mpmath.erf(mean / mpmath.sqrt(1 + 2 * std**2))
    if act.name == "gelu":
        v = mpmath.sqrt(1 + std**2)
        return mean * mpmath.ncdf(mean / v) + std**2 / v * mpmath.npdf(mean / v)
    if std == 0:
        piece = act.pieces[sum(mean > b for b in act.kinks)]
        return sum(mpmath.mpf(c) * mean**k for k, c in enumerate(piece))
    edges = [-mpmath.inf, *[(mpmath.mpf(b) - mean) / std for b in act.kinks], mpmath.inf]
    total = mpmath.mpf(0)
    for low, high, piece in zip(edges[:-1], edges[1:], act.pieces, strict=True):
        # Tails are differenced on the side where they are small.
        share = mpmath.ncdf(high) - mpmath.ncdf(low) if low < 0 else mpmath.ncdf(-low) - mpmath.ncdf(-high)
        line = [mpmath.mpf(c) for c in (*piece, 0)[:2]]
        total += (line[0] + line[1] * mean) * share + line[1] * std * (mpmath.npdf(low) - mpmath.npdf(high))
    return total


def by_mpmath(act, mi, si, mj, sj, rho):
    """E[act_i act_j] by conditioning on t_i, 40 digits."""
    with mpmath.workdps(40):
        mi, si, mj, sj, rho = (mpmath.mpf(float(a)) for a in (mi, si, mj, sj, rho))
        side = mpmath.sqrt((1 - rho) * (1 + rho))
        bends = [mpmath.mpf(b) for b in act.kinks or (0.0, -3.0, 3.0, -9.0, 9.0)]
        cuts = [mpmath.mpf(t) for t in range(-24, 25, 3)] + [(b - mi) / si for b in bends]
        if rho != 0:
            width = side / abs(rho)
            cuts += [(b - mj) / (sj * rho) + k * width for b in bends for k in (-8, -3, 0, 3, 8)]
        cuts = sorted({c for c in cuts if abs(c) <= 24})

        def value(t):
            return (
                mpmath.npdf(t)
                * conditional_mean(act, mi + si * t, 0)
                * conditional_mean(act, mj + sj * rho * t, sj * side)
            )

        return float(mpmath.quad(value, cuts, maxdegree=5))


def check_against_mpmath(name, cases, tolerance=1e-10):
    act = activations.get(name)
    for mi, si, mj, sj, rho in cases:
        got, size = moments(name, [mi, mj], [si, sj], rho)
        error = abs(got[0, 1] - by_mpmath(act, mi, si, mj, sj, rho)) / max(size[0, 1], 1e-290)
        assert error <= tolerance, f"{name} {(mi, si, mj, sj, rho)}: {error:.1e}"


# Means in standard deviations up to 10, scales up to 1e4 apart, correlations up to both ends.
CASES = [
    (0.3, 1.0, -0.7, 2.0, 0.5),
    (0.3, 1.0, 0.32, 1.0, 0.999999),
    (-10.0, 1.0, -10.02, 1.0, 0.9999),
    (-10.0, 1.0, 1e-3, 1e-4, -0.9),
    (1e3, 1e2, -0.1, 1e-2, -0.999999),
    (-5.0, 1.0, -20.0, 2.0, 1.0),
]


@pytest.mark.parametrize("name", ["relu", "step", "jumprelu", "gelu"])
def test_against_mpmath(name):
    check_against_mpmath(name, CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PIECEWISE_LINEAR, "hardsigmoid", "gelu", "erf"])
def test_against_mpmath_everywhere(name):
    scales = [(1.0, 1.0), (1e-2, 1e2), (30.0, 3e-3)]
    means = [(0.0, 0.0), (-10.0, -9.9), (10.0, -10.0), (0.5, 0.5), (-1.0, 3.0), (-6.0, 0.01)]
    places = [(*pair, rho) for pair in means for rho in RHO]
    cases = []
    for place, (a, b, rho) in enumerate(places):  # every place with one of the scales, in turn
        s, r = scales[place % 3]
        cases.append((a * s, s, b * r, r, rho))
    check_against_mpmath(name, cases)


def test_narrow_breaks_do_not_cancel():
    """At s = 1e4 hard-tanh is a step, while its two ramps are 1e4 times larger than it."""
    means, stds = [1e3, -2e3], [1e4, 5e3]
    act = activations.get("hardtanh")
    assert expanded(act, plain_units(means, stds)).breaks is None
    check_against_mpmath("hardtanh", [(1e3, 1e4, -2e3, 5e3, rho) for rho in (0.2, 0.97, -1.0)], 1e-11)


@pytest.mark.parametrize("name", [*PIECEWISE_LINEAR, "hardsigmoid"])
def test_exact_kernel_against_conditioning_and_series(name):
    act = activations.get(name)
    assert is_affine(act)
    means = np.array([-30.0, -9.9, -2.0, -0.5, 0.0, 0.4, 1.0, 5.0])
    stds = np.array([3.0, 1.0, 0.5, 1.0, 2.0, 1.0, 0.4, 0.5])
    i, j = (a.reshape(-1) for a in np.meshgrid(range(8), range(8), indexing="ij"))
    for rho in RHO:
        got, size = moments(name, means, stds, rho, piecewise_linear.remainder)
        want = pair_moments(act, plain_units(means, stds), i, j, Angles(np.full(64, rho))).reshape(8, 8)
        assert np.max(np.abs(got - want) / size) < 1e-11
        series, _ = moments(name, means, stds, rho, hermite_sums.remainder)
        assert np.max(np.abs(series - want) / size) < 1e-11


def trapezoid(function, mi, si, mj, sj, rho, step=0.04, reach=9.5):
    """E[act_i act_j] by the trapezoidal rule in two dimensions, which converges geometrically for smooth functions."""
    t = np.arange(-reach, reach + step / 2, step)
    weight = np.exp(-t * t / 2) * step / math.sqrt(2 * math.pi)
    second = function(mj + sj * (rho * t[:, None] + math.sqrt(1 - rho * rho) * t[None, :])) @ weight
    return float(np.sum(weight * function(mi + si * t) * second))


@pytest.mark.parametrize("name", ["silu", "tanh", "softplus", "mish", "sin", "gelu_tanh", "gaussian"])
def test_smooth_activations_against_trapezoid(name):
    function = activations.get(name).function
    means, stds = [0.5, -1.0, -3.0], [1.0, 2.0, 0.3]
    for rho in (-1.0, -0.97, -0.4, 0.0, 0.8, 0.99, 1.0):
        got, size = moments(name, means, stds, rho)
        both = list(zip(means, stds, strict=True))
        want = [[trapezoid(function, *one, *two, rho) for two in both] for one in both]
        assert np.max(np.abs(got - want) / size) < 1e-11


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_fast_waves(name):
    """At s = 30 the series peaks at degree 900; plain and gated waves against each other and the trapezoidal rule."""
    means, stds = [0.5, -1.0], [30.0, 29.5]
    function = activations.get(name).function
    for rho in (-1.0, 0.3, 0.9999, 1.0):
        got, _ = moments(name, means, stds, rho)
        want = trapezoid(function, 0.5, 30.0, -1.0, 29.5, rho, step=0.01, reach=9.0)
        assert got[0, 1] == pytest.approx(want, abs=1e-12)
        i, j = np.array([0]), np.array([1])
        found = pair_moments(activations.get(name), plain_units(means, stds), i, j, Angles(np.array([rho])))
        assert found[0] == pytest.approx(want, abs=1e-12)
    f = expanded(activations.get(name), plain_units(means, stds))
    want = unit_moments(activations.get(name), plain_units(means, stds), f.centres)
    np.testing.assert_allclose(f.variances, want, rtol=1e-12)


@pytest.mark.parametrize("name", ["elu", "softsign", "relu2", "hardswish", "selu"])
def test_kinked_activations_are_symmetric_under_conditioning(name):
    """Conditioning on either unit integrates different functions; the two must agree."""
    act = activations.get(name)
    u = plain_units([0.2, -1.0, 4.0], [1.0, 3.0, 0.5])
    i, j = (a.reshape(-1) for a in np.meshgrid(range(3), range(3), indexing="ij"))
    size = np.sqrt(np.outer(unit_moments(act, u), unit_moments(act, u)))
    for rho in (-1.0, -0.9, 0.5, 0.999):
        got = pair_moments(act, u, i, j, Angles(np.full(9, rho))).reshape(3, 3)
        assert np.max(np.abs(got - got.T) / size) < 1e-12
        series, _ = moments(name, u.means, u.scales, rho)
        assert np.max(np.abs(series - got) / size) < 2e-12


def test_unit_moments_against_mpmath():
    act = activations.get("relu")
    for m, s in [(0.0, 1.0), (-10.0, 1.0), (-35.0, 1.0), (1e4, 1.0), (1e-3, 1e4)]:
        with mpmath.workdps(40):
            u = mpmath.mpf(m) / mpmath.mpf(s)
            want = float(mpmath.mpf(s) ** 2 * ((1 + u * u) * mpmath.ncdf(u) + u * mpmath.npdf(u)))
        assert unit_moments(act, plain_units([m], [s]))[0] == pytest.approx(want, rel=1e-11)


@pytest.mark.parametrize("gated", [False, True])
def test_the_bound_covers_what_was_cut(gated, monkeypatch):
    """Cut the series far too early on purpose: the error appears, and the stated bound covers it."""
    rng = np.random.default_rng(5)
    W, b, V = rng.standard_normal((12, 4)), rng.standard_normal(12), rng.standard_normal((12, 4))
    net = mp.GLU(W, b, V, b, None, None, "relu") if gated else mp.MLP(W, b, None, None, "relu2")
    inputs = mp.Gaussian.standard(4)
    exact = second_moment(net, inputs)
    monkeypatch.setattr(hermite_sums, "_CUTS", (3,))
    monkeypatch.setattr(expansion, "_TOLERANCE", 2.0**52)
    cut = second_moment(net, inputs)
    error = np.abs(cut.cov - exact.cov)
    off = ~np.eye(12, dtype=bool)
    assert np.max(error[off] / np.sqrt(np.outer(np.diag(exact.raw), np.diag(exact.raw)))[off]) > 1e-3
    assert np.all(error <= cut.bound + 1e-12)
    assert np.max(exact.bound) < 1e-11 * np.max(exact.raw)


@pytest.mark.parametrize("name", ["silu", "gelu", "elu"])
def test_few_pairs_get_long_series(name):
    """One chunk: most pairs need few terms, some need hundreds, and some are integrated; all against integration."""
    rng = np.random.default_rng(3)
    h, act = 24, activations.get(name)
    u = plain_units(rng.normal(0, 1, 2 * h), rng.uniform(0.5, 6, 2 * h))
    rho = rng.uniform(-0.3, 0.3, (h, h))
    rho[:, 0] = np.repeat([0.7, -0.9, 0.97, -0.99, 0.995, 0.99999], 4)
    f = expanded(act, u)
    f.series(0)
    assert f._series.degree <= 32
    matrix, bound = beyond(f, slice(0, h), slice(h, 2 * h), Angles(rho), 2)
    assert f._series.degree >= 256
    i, j = (a.reshape(-1) for a in np.meshgrid(np.arange(h), np.arange(h, 2 * h), indexing="ij"))
    want = pair_moments(act, u, i, j, Angles(rho.reshape(-1)), f.centres).reshape(h, h)
    for k in (1, 2):
        want = want - np.outer(f.series(k).plain[k, :h], f.series(k).plain[k, h:]) * rho**k
    size = np.sqrt(np.outer(f.variances[:h], f.variances[h:]))
    assert np.max(np.abs(matrix - want) / size) < 1e-11
    assert np.max(bound / size) < 1.1e-13


def test_blocks_do_not_change_the_result(monkeypatch, rng):
    W, b, V = rng.standard_normal((11, 3)), rng.standard_normal(11), rng.standard_normal((11, 3))
    W[7] = W[2]  # a strongly correlated pair across blocks
    nets = [mp.MLP(W, b, rng.standard_normal((2, 11)), None, a) for a in ("relu", "silu")]
    nets.append(mp.GLU(W, b, V, None, rng.standard_normal((2, 11)), None, "relu"))
    whole = [second_moment(net, mp.Gaussian.standard(3)) for net in nets]
    monkeypatch.setattr(inner_products, "_SMALL", 4)
    for net, want in zip(nets, whole, strict=True):
        np.testing.assert_allclose(second_moment(net, mp.Gaussian.standard(3)).raw, want.raw, rtol=1e-11)


def close_pairs(gated, seed=0):
    """Pairs of units from nearly collinear to moderately correlated, of either sign, with noise from 1e-4 to 6."""
    rng = np.random.default_rng(seed)
    sides = np.repeat([1e-6, 1e-3, 1e-2, 0.05, 0.3], 4)
    rho = np.sqrt(1 - sides**2) * np.tile([1.0, -1.0], 10)
    h = 2 * len(rho)
    u = plain_units(rng.normal(0, 3, h), rng.uniform(3, 25, h))
    inner = Angles(rho)
    if gated:
        spreads = rng.uniform(0.5, 2, h)
        u = replace(u, gate=Gate(np.zeros((h, 1)), rng.normal(0, 1, h), rng.normal(0, 2, h), None, spreads))
        shares = rng.uniform(-0.6, 0.6, (3, len(rho)))
        right, left = shares[0] * sides * spreads[1::2], shares[1] * sides * spreads[::2]
        inner = Angles(rho, right, left, shares[2] * spreads[::2] * spreads[1::2])
    return u, np.arange(0, h, 2), np.arange(1, h, 2), inner


def rational(y):
    return y / np.sqrt(1 + y * y)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("name", ["silu", "tanh", "mish", "elu", "selu", "softsign", "celu(0.1)", rational])
def test_few_noise_nodes_are_as_good_as_conditioning_in_full(name, gated):
    act = activations.get(name)
    u, i, j, inner = close_pairs(gated)
    centres = u.expand(act, 0).plain[0]
    size = np.sqrt(unit_moments(act, u, centres))
    limits = 1e-12 * size[i] * size[j]
    fast = pair_moments(act, u, i, j, inner, centres, limits)
    full = pair_moments(act, u, i, j, inner)
    assert (
        np.max(
            np.abs(fast + centres[i] * centres[j] - full) / np.sqrt(unit_moments(act, u)[i] * unit_moments(act, u)[j])
        )
        < 2e-11
    )
    turned = Angles(inner.rho, inner.left, inner.right, inner.gates)
    np.testing.assert_allclose(pair_moments(act, u, j, i, turned, centres, limits), fast, atol=4 * limits.max(), rtol=0)


@pytest.mark.parametrize(("name", "most"), [("silu", 4e4), ("tanh", 4e4), ("elu", 1e5)])
def test_a_strongly_correlated_pair_costs_little(name, most, rng):
    """Evaluations of the activation per pair: half a million if every inner step is an integral on panels."""
    model = activations.get(name)
    evaluations = 0

    def counted(y):
        nonlocal evaluations
        evaluations += np.size(y)
        return model.function(y)

    edges = {"silu": (-30, -14, -6, -2, 2, 6, 14, 30), "tanh": (-15, -7, -3, -1, 1, 3, 7, 15), "elu": (-28, -12, -4, 0)}
    record = activations.Activation(
        "counted", counted, fixed_projection(counted, edges[name]), "", "quadrature", model.kinks
    )
    inputs = mp.Gaussian(np.zeros(20), 100 * np.ones((20, 20)) + 0.01 * np.eye(20))
    W, b = rng.standard_normal((16, 20)), rng.standard_normal(16)
    cov = second_moment(mp.MLP(W, b, None, None, record), inputs).cov
    alone = evaluations
    evaluations = 0
    for row, shift in zip(W, b, strict=True):  # what the units cost by themselves
        second_moment(mp.MLP(row[None, :], shift[None], None, None, record), inputs)
    assert (alone - evaluations) / 120 < most
    np.testing.assert_allclose(
        np.diag(cov), np.diag(second_moment(mp.MLP(W, b, None, None, name), inputs).cov), rtol=1e-9
    )


def test_units_far_out_have_moments():
    """A unit 200 standard deviations out is constant; the other is centred, and its variance has a closed form."""
    inputs = mp.Gaussian.standard(2)
    for name, variance in (("erf", 2 / math.pi * math.asin(5000 / 5001)), ("gaussian", 5001**-0.5 - 1 / 2501)):
        net = mp.MLP(np.array([[50.0, 0.0], [1.0, 1.0]]), np.array([0.0, 300.0]), np.ones((1, 2)), None, name)
        assert second_moment(net, inputs).cov[0, 0] == pytest.approx(variance, rel=1e-11)
        assert mp.degree_spectrum(net, inputs).total[0] == pytest.approx(variance, rel=1e-11)
        assert 0 < mp.fvu(net, mp.fit(net, inputs, degree=2)).total < 1


@pytest.mark.parametrize("rho", [0.3, 0.99995, -0.99995])
@pytest.mark.parametrize("name", ["elu", "softplus", "mish"])
def test_large_means_cost_no_digits(name, rho):
    """Far right these are the identity; the rounding of a mean of 1e6 is 1e-10."""
    W = np.array([[2.0, 0.0], [rho, math.sqrt(1 - rho * rho)]])
    net = mp.MLP(W, np.full(2, 1e6), None, None, name)
    got = second_moment(net, mp.Gaussian.standard(2)).cov
    np.testing.assert_allclose(got, [[4.0, 2 * rho], [2 * rho, 1.0]], atol=1e-8)


@pytest.mark.parametrize("rho", [0.3, 0.99995])
def test_large_means_of_gated_units(rho):
    """Far right elu is the identity, and such a unit is the product of two correlated normals."""
    W = np.array([[2.0, 0.0, 0.5], [rho, math.sqrt(1 - rho * rho), 0.0]])
    V = np.array([[0.3, 1.0, 0.0], [0.2, 0.9, 0.1]])
    nets = [mp.GLU(W, np.full(2, 1e4), V, np.full(2, 30.0), None, None, name) for name in ("elu", "identity")]
    got, want = (second_moment(net, mp.Gaussian.standard(3)).cov for net in nets)
    np.testing.assert_allclose(got, want, rtol=1e-9)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_slow_waves_keep_their_variance(name):
    """At s = 1e-6 the variance is 1e-12 of the square: (1 - q) (1 +- q cos 2m) / 2 with q = exp(-s^2)."""
    with mpmath.workdps(40):
        q = mpmath.exp(-(mpmath.mpf(1e-6) ** 2))
        sign = 1 if name == "sin" else -1
        want = [float((1 - q) * (1 + sign * q * mpmath.cos(2 * mpmath.mpf(m))) / 2) for m in (0.3, -1.0)]
    f = expanded(activations.get(name), plain_units([0.3, -1.0], [1e-6, 1e-6]))
    np.testing.assert_allclose(f.variances, want, rtol=1e-13)
    matrix, _ = beyond(f, slice(0, 2), slice(0, 2), Angles(np.ones((2, 2))))
    np.testing.assert_allclose(np.diag(matrix), want, rtol=1e-13)


def has_long_series(name):
    act = activations.get(name)
    return act.route == "closed form" or act.strip is not None


@pytest.mark.parametrize("name", [name for name in activations.names() if has_long_series(name)])
def test_long_series_have_no_more_energy_than_the_unit(name):
    """Bessel's inequality for the longest series that pairs may need, also where all breaks are close together."""
    act = activations.get(name)
    u = plain_units([0.0, 0.3, -0.5, 25.0], [0.3, 1.05, 3.1, 80.0])
    series = u.expand(act, 1024).plain
    variances = unit_moments(act, u, series[0])
    assert np.all(np.isfinite(series))
    assert np.all((series[1:] ** 2).sum(0) <= variances * (1 + 1e-11) + 1e-13 * series[0] ** 2)
