"""A search through random functions, inputs and libraries for measures that disagree with quadrature or themselves.

Every test is one case, which follows from its name and its number. ``MLPOLY_SEARCH=100:500`` runs the cases from 100 to
499 instead of the first ones; ``MLPOLY_SEARCH=17:18`` with ``-k test_fvu -l`` runs one and shows what is in it.
"""

import itertools
import math
import os
import zlib

import mpmath
import numpy as np
import pytest
import torch
from support import random_cases as some
from support.backends import NUMPY64, TORCH64, in_library, make, to_numpy
from support.plane import Cloud, Quadrature, by_quadrature, root_of
from support.quadrature import pair_mean

import mlpoly as mp
from mlpoly.networks import Layer

FIRST, LAST = map(int, os.environ.get("MLPOLY_SEARCH", "0:40").split(":"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("scratch_registry"),
    pytest.mark.filterwarnings("ignore::mlpoly.QuadratureWarning"),
    pytest.mark.parametrize("seed", range(FIRST, LAST)),
]


@pytest.fixture
def rng(seed, request):
    return np.random.default_rng([zlib.crc32(request.function.__name__.encode()), seed])


@pytest.fixture
def place(rng):
    """An array library with a precision."""
    found = some.backend(rng)
    with found.active():
        yield found


def tolerance(place):
    """Error relative to the sizes of what is compared: hundreds of the 1e-12 to which a pair of units is known in
    double precision; roundings of a result to single; or of all that leads to it, where means of preactivations may
    cancel by a factor of a thousand.
    """
    return 1e-10 if place.dtype == "float64" else 1e-3 if place.library == "jax" else 1e-6


def near(what, found, expected, allowed):
    found, expected = to_numpy(found), to_numpy(expected)
    assert found.shape == expected.shape, f"{what} has shape {found.shape}, not {expected.shape}"
    allowed = np.broadcast_to(to_numpy(allowed), expected.shape) + 1e-37  # below what single precision can write
    for at in map(tuple, np.argwhere(~(np.abs(found - expected) <= allowed)).tolist()):
        raise AssertionError(f"{what}{list(at)}: {found[at]} is not {expected[at]} +- {allowed[at]:.1e}")


def function(rng, under, o, place):
    """A network or polynomial in a library, the same for the oracle, and the size of its terms (o,)."""
    if rng.random() < 0.45:
        return some.polynomial(rng, under, o, place, ("ridge", "dense", "chaos", "chaos"))
    net = in_library(some.layer(rng, under, o), place)
    return net, some.in_numpy(net), terms_of(some.in_numpy(net), Quadrature(under, [some.in_numpy(net)], 10))


def terms_of(net, quadrature):
    """Size of the terms of a network (o,), the largest under a component."""
    return np.max([some.size_under(net, c) for c in quadrature.clouds], axis=0)


def test_moments(rng, place):
    """Second moments, spectrum and propagated moments of one layer."""
    under, degree = some.inputs(rng, int(rng.integers(1, 5))), int(rng.integers(1, 9))
    net = in_library(some.layer(rng, under, None if rng.random() < 0.3 else int(rng.integers(1, 4))), place)
    f, own = some.in_numpy(net), in_library(under, place)
    moments, spectrum, behind = mp.second_moment(net, own), mp.degree_spectrum(net, own, degree), mp.propagate(net, own)

    def wanted(q):
        mean, raw = q.mean(f), q.mean(lambda x: f(x)[:, :, None] * f(x)[:, None, :])
        degrees = q.by_degree(f, f, degree)
        return mean, raw - np.outer(mean, mean), degrees[1:-1], degrees[-1], degrees[0] - mean**2, terms_of(f, q)

    (mean, cov, head, rest, between, size), errors = by_quadrature(wanted, under, [f])
    first, squares = tolerance(place) * size, tolerance(place) * np.outer(size, size)
    near("mean", moments.mean, mean, first + errors[0])
    near("covariance", moments.cov, cov, to_numpy(moments.bound) + squares + errors[1])
    near("propagated mean", behind[-1].mean, mean, first + errors[0])
    near("propagated covariance", behind[-1].cov, cov, to_numpy(moments.bound) + squares + errors[1])
    square = np.diagonal(squares)
    near("degrees", spectrum.variance, head, square + errors[2])
    near("remainder", spectrum.remainder, rest, to_numpy(spectrum.bound) + square + errors[3])
    near("between", spectrum.between, between, square + errors[4])
    near("total", spectrum.total, np.diagonal(cov), to_numpy(spectrum.bound) + square + np.diagonal(errors[1]))


def test_similarity(rng, place):
    """Any two functions, in every degree, whichever degrees are listed, and in both directions."""
    o, n = int(rng.integers(1, 3)), int(rng.integers(0, 5))
    under = some.inputs(rng, int(rng.integers(1, 4)))
    (one, f, size), (two, g, other) = function(rng, under, o, place), function(rng, under, o, place)
    own = in_library(under, place)
    found, back = mp.similarity(one, two, own, degree=n), mp.similarity(two, one, own, degree=n + 2)
    centred, itself = mp.similarity(one, two, own, centred=True), mp.similarity(one, one, own)

    def wanted(q):
        return (*(q.by_degree(a, b, n) for a, b in ((f, g), (f, f), (g, g))), q.mean(f), q.mean(g))

    (*products, mean, other_mean), errors = by_quadrature(wanted, under, [f, g])
    bound, exact = to_numpy(found.bound), tolerance(place)
    product = np.where(size * other > 0, size * other, 1e-5 * (size**2 + other**2))  # nothing, to rounding of the other
    sizes = {"inner": product, "first": size**2, "second": other**2}
    for (name, square), value, error in zip(sizes.items(), products, errors, strict=False):
        allowed = error + exact * square + bound
        near(f"{name} by degree", getattr(found.by_degree, name), value.sum(1), allowed.sum(1))
        near(f"{name} by output", getattr(found.per_output, name), value.sum(0), allowed.sum(0))
        near(name, getattr(found, name), value.sum(), allowed.sum())
    slack = 2 * exact * np.sum(product) + bound
    near("the other way round", back.inner, found.inner, slack + to_numpy(back.bound))
    near("centred", centred.inner, np.sum(products[0].sum(0) - mean * other_mean), errors[0].sum() + slack)
    if products[1].sum() > 1e-3 * np.sum(size**2):
        near("cosine with itself", itself.cosine, 1.0, 1e3 * exact + to_numpy(itself.bound) / products[1].sum())


def test_fvu(rng, place):
    """A network and any polynomial, bounded ones too."""
    o, under = int(rng.integers(1, 3)), some.inputs(rng, int(rng.integers(1, 4)))
    net = in_library(some.layer(rng, under, o), place)
    poly, p, other = some.polynomial(rng, under, o, place, ("ridge", "dense", "chaos", "bounded"))
    f = some.in_numpy(net)

    def wanted(q):
        mean, square, miss = q.mean(f), q.mean(lambda x: f(x) ** 2), q.mean(lambda x: (f(x) - p(x)) ** 2)
        return miss, square - mean**2, terms_of(f, q)

    (miss, variance, size), errors = by_quadrature(wanted, under, [f, p])
    if np.any(variance <= 1e-6 * size**2):
        return  # mostly rounding, which may be refused
    found = mp.fvu(net, poly, in_library(under, place))
    fraction, exact = miss / variance, tolerance(place)
    allowed = errors[0] + exact * (size + other) ** 2 + fraction * (errors[1] + exact * size**2)
    allowed = allowed + to_numpy(found.bound) * variance.sum()
    near("FVU by output", found.per_output, fraction, allowed / variance)
    near("FVU", found.total, miss.sum() / variance.sum(), allowed.sum() / variance.sum())


def test_many_inputs(rng, place):
    """Networks on inputs of full rank, by an integral over each pair of units; polynomials, by averages of samples."""
    d, o = int(rng.integers(3, 7)), int(rng.integers(1, 3))
    under = some.gaussian(rng, d, rank=d)
    (one, f), (two, g) = (some.layer_with_varying_units(rng, under, o, place) for _ in range(2))
    own = in_library(under, place)
    found, exact = mp.similarity(one, two, own), tolerance(place)
    inner, size, other = np.zeros(o), np.zeros(o), np.zeros(o)
    for i, j in itertools.product(range(f.dim_hidden), range(g.dim_hidden)):
        left, right, (first, second) = f.readout[:, i], g.readout[:, j], some.pair_of_units(f, g, i, j, under)
        inner = inner + left * right * pair_mean(f.activation, g.activation, first, second)
    mean, other_mean = (to_numpy(mp.second_moment(net, under).mean) for net in (f, g))
    shift, other_shift = (0 if net.bias is None else net.bias for net in (f, g))
    inner = inner + mean * other_shift + shift * other_mean - shift * other_shift
    size, other = (some.units_size(net, under.sample(4000)) for net in (f, g))
    # The panels of `pair_mean` resolve smooth units with a spread of ten to 1e-9, relative to their size.
    near("inner", found.per_output.inner, inner, 100 * exact * size * other + to_numpy(found.bound))
    poly, p, _ = some.polynomial(rng, under, o, place, highest=3)
    x = under.sample(2**17, seed=int(rng.integers(2**30)))
    for a, b, value in ((f, p, mp.similarity(one, poly, own)), (p, p, mp.similarity(poly, poly, own))):
        products = a(x) * b(x)
        error = products.std(axis=0) / math.sqrt(len(x))
        size = np.sqrt(np.mean(a(x) ** 2, axis=0) * np.mean(b(x) ** 2, axis=0))
        unseen = np.where(np.any(products != 0, axis=0), 0.0, math.inf)  # what no sample shows
        allowed = 10 * error + 1e-4 * size + unseen  # the error itself is uncertain where tails are heavy
        near("inner on samples", value.per_output.inner, products.mean(axis=0), allowed)


def test_fit(rng, place):
    """The residual is orthogonal to all polynomials of the degree, and lower degrees are what a lower fit has."""
    under, n = some.gaussian(rng, int(rng.integers(1, 4))), int(rng.integers(0, 9))
    net = in_library(some.layer(rng, under, int(rng.integers(1, 3))), place)
    own, f = in_library(under, place), some.in_numpy(net)
    poly = mp.fit(net, own, n)
    p = some.in_numpy(poly)

    def wanted(q):
        (cloud,) = q.clouds
        basis = np.concatenate(cloud.basis(n), axis=1)
        return (cloud.w * basis.T) @ (f(cloud.x) - p(cloud.x)), q.by_degree(p, p, n), terms_of(f, q)

    (residual, degrees, size), errors = by_quadrature(wanted, under, [f])
    near("residual", residual, 0 * residual, tolerance(place) * size + errors[0])
    found, allowed = mp.degree_spectrum(poly, own, max(n, 1)), tolerance(place) * size**2
    near("degrees", found.variance[:n, :], degrees[1:-1], allowed + errors[1][1:-1])
    near("total", found.total, degrees[1:].sum(0), allowed + errors[1].sum(0))
    near("beyond the degree", degrees[-1], 0 * size, tolerance(place) * size**2 + errors[1][-1])
    x, low = make(some.points(rng, under), place), int(rng.integers(0, n + 1))
    reach = 1 + np.max(np.abs(to_numpy(poly(x))))
    near("truncated", poly.truncate(low)(x), mp.fit(net, own, low)(x), tolerance(place) * (size + reach))


def test_fit_under_a_mixture(rng, place):
    """No polynomial of the degree is closer, to what rounding can tell."""
    under, n = some.mixture(rng, int(rng.integers(1, 3))), int(rng.integers(0, 6))
    net = in_library(some.layer(rng, under, int(rng.integers(1, 3))), place)
    f, p = some.in_numpy(net), some.in_numpy(mp.fit(net, in_library(under, place), n))
    center, back = under.mean, np.linalg.pinv(root_of(under.covariance), rcond=1e-10)

    def wanted(q):
        weights = np.concatenate([share * c.w for share, c in zip(q.weights, q.clouds, strict=True)])
        x = np.concatenate([c.x for c in q.clouds])
        z = (x - center) @ back.T
        powers = [e for e in itertools.product(range(n + 1), repeat=z.shape[1]) if sum(e) <= n]
        columns = np.stack([np.prod(z ** np.array(e), axis=1) for e in powers], axis=1) * np.sqrt(weights)[:, None]
        length = np.linalg.norm(columns, axis=0)
        u, s, _ = np.linalg.svd(columns / np.where(length > 0, length, 1.0), full_matrices=False)
        gain = (u[:, s > 1e-5 * s[0]].T * np.sqrt(weights)) @ (f(x) - p(x))  # what is known well of the monomials
        return np.linalg.norm(gain, axis=0), terms_of(f, q)

    (gain, size), errors = by_quadrature(wanted, under, [f])
    near("gain that is left", gain, 0 * gain, 1e4 * tolerance(place) * size + errors[0])


def test_deep(rng, place):
    """Affine maps around one layer merge with it; the drawn error of smooth deep networks is that of quadrature."""
    d = int(rng.integers(1, 3))
    under = some.inputs(rng, d)
    first = some.layer(rng, under, 2, smooth=True)
    spread = np.sqrt(np.mean(first(under.sample(500)) ** 2)) or 1.0
    second = some.layer(rng, mp.Gaussian(np.zeros(2), np.full(2, spread**2)), 1, smooth=True, h=3)
    merged = mp.Chain([mp.Affine(rng.standard_normal((d, d))), first, mp.Affine(rng.standard_normal((2, 2)))])
    layer = merged.layers[1].preceded_by(merged.layers[0]).followed_by(merged.layers[2])
    merged, layer = in_library(merged, place), in_library(layer, place)
    own, x = in_library(under, place), some.points(rng, under)
    one, two = (to_numpy(mp.fit(net, own, 2)(make(x, place))) for net in (merged, layer))
    size = some.units_size(some.in_numpy(layer), x)
    near("merged", one, two, 1e3 * tolerance(place) * (size + np.max(np.abs(one))))
    chain = mp.Chain([first, second])
    poly = mp.fit(chain, under, int(rng.integers(1, 3)))

    def wanted(q):
        variance = q.mean(lambda x: chain(x) ** 2) - q.mean(chain) ** 2
        return q.mean(lambda x: (chain(x) - poly(x)) ** 2) / variance, variance, q.mean(lambda x: chain(x) ** 2)

    with np.errstate(invalid="ignore", divide="ignore"):
        (miss, variance, square), errors = by_quadrature(wanted, under, [])
    if variance[0] > 1e-3 * square[0]:  # else it may be that of events that no sample shows
        found = mp.fvu(chain, poly, under)
        drawn = 1e-8 if found.standard_error is None else 7 * found.standard_error + 1e-3 * miss[0]
        near("FVU", found.total, miss[0], drawn + errors[0][0] + 1e-20)


def explained(function, under, known, nodes):
    """Var E[f | x[known]] (o,) by quadrature."""
    root = root_of(under.covariance)
    rank = np.linalg.matrix_rank(root[list(known)], tol=1e-9 * np.max(root, initial=1e-300)) if len(known) else 0
    cloud = Cloud(under, [function], nodes, known if 0 < rank < root.shape[1] else None)
    if rank < root.shape[1]:
        return cloud.spread_of_means(function(cloud.x)) if rank else np.zeros(function.dim_out)
    values = function(cloud.x)
    return cloud.w @ (values - cloud.w @ values) ** 2


def shapley_by_orders(worth, count):
    """Average growth of a dict of worths by frozenset over all orders of joining."""
    orders = list(itertools.permutations(range(count)))
    grown = np.zeros((count, *worth[frozenset()].shape))
    for order in orders:
        for place, i in enumerate(order):
            grown[i] += worth[frozenset(order[: place + 1])] - worth[frozenset(order[:place])]
    return grown / len(orders)


def test_sensitivity(rng, place):
    """Every explained fraction and Shapley effect under one Gaussian, with groups of inputs."""
    d, o = int(rng.integers(2, 5)), int(rng.integers(1, 3))
    under = some.gaussian(rng, d)
    one, f, size = function(rng, under, o, place)
    order = rng.permutation(d)
    groups = [[int(i)] for i in order[:-2]] + [[int(i) for i in order[-2:]]] if rng.random() < 0.4 else None
    places = groups or [[i] for i in range(d)]
    sets = [frozenset(s) for k in range(len(places) + 1) for s in itertools.combinations(range(len(places)), k)]
    fine, coarse = (
        {s: explained(f, under, [j for i in s for j in places[i]], nodes) for s in sets} for nodes in (14, 10)
    )
    whole = frozenset(range(len(places)))
    variance = fine[whole]
    if np.any(variance <= 1e-6 * size**2):
        return
    found = mp.sensitivity(one, in_library(under, place), groups, interactions=True)
    worst = np.max([np.abs(fine[s] - coarse[s]) for s in sets], axis=0)
    allowed = 4 * (worst + tolerance(place) * size**2) / variance + 2 * to_numpy(found.bound)
    near("variance", found.variance, variance, allowed * variance)
    near("first", found.first, [fine[frozenset([i])] / variance for i in whole], allowed)
    near("total", found.total, [1 - fine[whole - {i}] / variance for i in whole], allowed)
    near("effects", found.shapley, shapley_by_orders(fine, len(places)) / variance, allowed)
    for i, j in itertools.combinations(range(len(places)), 2):
        beyond = fine[frozenset([i, j])] - fine[frozenset([i])] - fine[frozenset([j])]
        near("pairs", found.pairs[i, j], beyond / variance, allowed)


def conditionals(under, known, values, eps):
    """Posterior weights and conditional Gaussians of the components, given the values of some inputs.

    A component of lower rank in the known inputs has an infinite density where it is possible, to rounding by `eps`.
    """
    parts = []
    for share, g in zip(np.asarray(under.weights), under.components, strict=True):
        root = root_of(g.covariance)
        inner = root[known] * (np.diagonal(g.covariance)[known] > 0)[:, None]
        left, spread, right = np.linalg.svd(inner)
        rank = int(np.sum(spread > 1e-9 * np.max(spread, initial=1e-300)))
        gap = values - np.asarray(g.mean)[known]
        w = (left[:, :rank].T @ gap) / spread[:rank]
        beyond = np.abs(gap - left[:, :rank] @ (left[:, :rank].T @ gap))
        if np.any(beyond > 1e-6 * np.max(np.abs(gap)) + 1e-9 * np.abs(values) + eps * np.sum(np.abs(values))):
            continue
        rest = root @ right[rank:].T
        mean = g.mean + root @ right[:rank].T @ w
        with mpmath.workdps(400):
            square = mpmath.fsum(mpmath.mpf(float(v)) ** 2 for v in w)
            if len(known) == 1 and rank:  # without rounding, as the values may be far out
                square = mpmath.mpf(float(gap[0])) ** 2 / mpmath.mpf(float(g.covariance[known[0], known[0]]))
            log = mpmath.log(float(share)) - square / 2 - sum(math.log(s) for s in spread[:rank])
            parts.append((rank, log - rank * math.log(2 * math.pi) / 2, mean, rest @ rest.T))
    lowest = min(rank for rank, *_ in parts)
    parts = [part for part in parts if part[0] == lowest]
    with mpmath.workdps(400):
        top = max(log for _, log, _, _ in parts)
        weights = np.array([float(mpmath.exp(log - top)) for _, log, _, _ in parts])
    return weights / weights.sum(), [mp.Gaussian(mean, cov) for *_, mean, cov in parts]


def test_conditional_mean(rng, place):
    """Means given some inputs, near the distribution and far from it, and the Shapley values of one prediction."""
    d = int(rng.integers(2, 5))
    under = some.inputs(rng, d, mixtures=0.5)
    net = in_library(some.layer(rng, under, int(rng.integers(1, 3))), place)
    f, own = some.in_numpy(net), in_library(under, place)
    part = under.components[rng.integers(len(under.components))]
    root = root_of(part.covariance)
    point = to_numpy(make(part.mean + root @ rng.standard_normal(root.shape[1]), place))

    def expected(known, values, nodes=14):
        weights, parts = conditionals(under, known, values, np.finfo(place.dtype).eps)
        clouds = [Cloud(g, [f], nodes) for g in parts]
        size = np.max([some.size_under(f, c) for c in clouds], axis=0)
        return sum(w * (c.w @ f(c.x)) for w, c in zip(weights, clouds, strict=True)), size

    known = sorted(int(i) for i in rng.permutation(d)[: rng.integers(1, d)])
    values = point[known]
    if rng.random() < 0.5 and place is NUMPY64:  # as far out as products of units can be written
        known = known[:1]
        spread = math.sqrt(np.mean([g.covariance[known[0], known[0]] for g in under.components]))
        most = {"sin": 3, "cos": 3}.get(f.activation.name, 140 if isinstance(f, mp.GLU) else 190)
        most = 60 if f.activation.name in ("square", "cube", "relu2", "gelu_tanh", "own_smooth") else most
        far = 10.0 ** rng.choice([rng.uniform(0, min(12, most)), rng.uniform(0, most), most])
        values = np.array([point[known[0]] + far * spread * rng.choice([-1, 1])])
        if min(g.covariance[known[0], known[0]] for g in under.components) == 0:
            return  # a value that cannot occur
    (value, size), (coarse, _) = expected(known, values), expected(known, values, 10)
    found = mp.conditional_mean(net, own, known)(make(values[None, :], place))[0, :]
    near("conditional mean", found, value, 1e2 * tolerance(place) * size + np.abs(value - coarse))
    if d < 4:
        sets = [frozenset(s) for k in range(d + 1) for s in itertools.combinations(range(d), k)]
        worth = {s: expected(sorted(s), point[sorted(s)]) for s in sets[1:-1]}
        worth[sets[-1]] = (f(point), np.abs(f(point)))
        worth[sets[0]] = (Quadrature(under, [f], 14).mean(f), size)
        size = np.max([size for _, size in worth.values()], axis=0)
        wanted = shapley_by_orders({s: value for s, (value, _) in worth.items()}, d)
        allowed = 1e3 * tolerance(place) * size + 10 * np.abs(value - coarse)
        near("Shapley values", mp.shapley(net, make(point, place), own).values, wanted, allowed)


def test_principal_forms(rng, place):
    """Variances along the output directions of one degree, under the inputs of the fit and under others."""
    under, o = some.gaussian(rng, int(rng.integers(1, 4))), int(rng.integers(1, 4))
    poly, p, size = some.polynomial(rng, under, o, place, ("ridge",))
    if poly.degree < 1:
        return
    k = int(rng.integers(1, poly.degree + 1))
    found = mp.principal_forms(poly, k, inputs=in_library(under, place))

    def wanted(q):
        (cloud,) = q.clouds
        part = (cloud.w * cloud.basis(k)[k].T) @ p(cloud.x)
        return (part.T @ part,)

    (cov,), (error,) = by_quadrature(wanted, under, [])
    allowed = 10 * tolerance(place) * np.sum(size**2) + error.sum()
    near("variances", found.values, np.linalg.eigvalsh(cov)[::-1], allowed)
    near("total", found.total, np.trace(cov), allowed)
    u = to_numpy(found.outputs)
    near("variance along the directions", np.einsum("mo,op,mp->m", u, cov, u), found.values, allowed)
    if k == 2:
        square = [2 * np.sum(to_numpy(found.features(i).values) ** 2) for i in range(len(u))]
        near("eigenfeatures", square, found.values, 1e2 * allowed)


def test_units(rng, place):
    """A fit in other units of the inputs is the fit of the network in these units; bounds, too, move with it."""
    under, n = some.gaussian(rng, int(rng.integers(1, 4))), int(rng.integers(1, 6))
    net = some.layer(rng, under, int(rng.integers(1, 3)))
    scale, shift = 2.0 ** rng.integers(-6, 7, under.dim), some.exact(rng.standard_normal(under.dim))
    back = mp.Affine(np.diag(1 / scale), -shift / scale)
    moved = net.preceded_by(back)
    own, x = in_library(under, place), some.points(rng, under)
    net, moved = in_library(net, place), in_library(moved, place)
    poly, b = mp.fit(net, own, n), 2.0
    there, bounded = poly.in_units(make(scale, place), make(shift, place)), poly.bounded(b)
    size = some.units_size(some.in_numpy(net), x) + np.max(np.abs(to_numpy(poly(make(x, place)))), axis=0)
    # Sums of the shift and what is small beside it are rounded; each degree multiplies that.
    allowed = 10 * tolerance(place) * 4**n * size * np.max(1 + np.abs(shift / scale))
    y = make(x * scale + shift, place)
    x = make(x, place)
    near("in units", there(y), poly(x), allowed)
    near("fitted there", mp.fit(moved, own.in_units(make(scale, place), make(shift, place)), n)(y), poly(x), allowed)
    near("bounded there", there.bounded(b)(y), bounded(x), allowed)
    near("bounded, then moved", bounded.in_units(make(scale, place), make(shift, place))(y), bounded(x), allowed)
    near("truncated there", there.truncate(n - 1)(y), poly.truncate(n - 1)(x), allowed)


def numbers(f, g, under):
    """Measures of two functions that have no units."""
    two = mp.similarity(f, g, under, degree=3)
    out = {"cosine": two.cosine, "cosines": two.per_output.cosine, "distance": two.distance / (two.first + two.second)}
    if isinstance(f, Layer) and isinstance(g, mp.Polynomial):
        out["FVU"] = mp.fvu(f, g, under).per_output
    if isinstance(f, Layer):
        spectrum = mp.degree_spectrum(f, under, 3)
        out |= {"degrees": spectrum.variance / spectrum.total, "between": spectrum.between / spectrum.total}
    return {name: to_numpy(value) for name, value in out.items()}


def test_invariance(rng, place):
    """Units of inputs and outputs from 1e-100 to 1e100, the order of units, and a component in two do not matter."""
    under, o = some.inputs(rng, int(rng.integers(1, 4)), mixtures=0.5), int(rng.integers(1, 3))
    (_, f, size), (_, g, other) = function(rng, under, o, place), function(rng, under, o, place)
    q = Quadrature(under, [f, g], 10)
    parts = [(f, f, size), (g, g, other)]
    if isinstance(f, Layer):
        mean = q.mean(f)
        parts.append((lambda x: f(x) - mean, lambda x: f(x) - mean, size))
    if any(np.any(q.mean(lambda x, a=a, b=b: a(x) * b(x)) <= 1e-3 * terms**2) for a, b, terms in parts):
        return  # mostly rounding
    most = 330 if place.dtype == "float64" else 40
    up, out = (2.0 ** int(rng.integers(-most, most + 1)) for _ in range(2))
    same = numbers(*(in_library(thing, place) for thing in (f, g, under)))
    # Squares leave the range of single precision where cosines and FVU do not.
    squares, reach = out**2 * np.concatenate([size, other]) ** 2, np.finfo(place.dtype)
    written = np.all((squares > 1e6 * reach.tiny) & (squares < reach.max / 16))
    for what, *case in (
        ("units of the outputs", some.times(f, out), some.times(g, out), under),
        ("units of one", some.times(f, math.sqrt(out)), g, under),
        ("units of the inputs", some.in_units(f, up), some.in_units(g, up), under.in_units(up)),
        ("order of the units", some.shuffled(rng, f), some.shuffled(rng, g), under),
        ("a component in two", f, g, some.split(rng, under)),
    ):
        found = numbers(*(in_library(thing, place) for thing in case))
        for name, value in found.items():
            if what == "units of one" and name in ("distance", "FVU"):
                continue
            if written or "of the outputs" not in what or name in ("cosine", "cosines", "FVU"):
                near(f"{what}, {name}", value, same[name], 1e4 * tolerance(place) * (1 + np.abs(same[name])))


def test_gradients(rng):
    """Gradients of measures by PyTorch against differences, at units without weights and far out too."""
    d, h = 2, 3
    under = some.gaussian(rng, d, rank=int(rng.integers(1, 3)))
    unit = np.sqrt(np.max(under.covariance)) or 1.0
    act, kind = some.activation(rng), str(rng.choice(["MLP", "GLU"]))
    W = [rng.standard_normal((h, d)) / unit for _ in range(2)]
    for w in W:
        w[0] *= rng.random() < 0.8
    b = [rng.standard_normal(h) - w @ under.mean for w in W]
    b[0][1] += rng.choice([0, 0, 30, -30])
    arrays = [W[0], b[0], *([W[1], b[1]] if kind == "GLU" else []), rng.standard_normal((2, h)), rng.standard_normal(2)]
    other = some.layer(rng, under, 2)
    poly, at = mp.fit(other, under, 2), under.mean[:1] + 0.3 * unit
    points = some.points(rng, under, 4)
    measures = {
        "second_moment": lambda net, p: mp.second_moment(net, p(under)).raw,
        "degree_spectrum": lambda net, p: mp.degree_spectrum(net, p(under), 3).variance,
        "similarity": lambda net, p: mp.similarity(net, p(other), p(under)).inner,
        "fvu": lambda net, p: mp.fvu(net, p(poly), p(under)).per_output,
        "propagate": lambda net, p: mp.propagate(net, p(under))[-1].cov,
        "fit": lambda net, p: mp.fit(net, p(under), 2)(p(points)),
        "bounded fit": lambda net, p: mp.fit(net, p(under), 3, bound=2.0)(p(points)),
        "conditional_mean": lambda net, p: mp.conditional_mean(net, p(under), [0])(p(at[None, :])),
    }
    if under.covariance[0, 0] == 0:
        del measures["conditional_mean"]
    if kind == "GLU" and not np.all(np.any(W[1], axis=1)):
        del measures["bounded fit"]  # its basis turns with the direction in which a second factor leaves zero
    name = str(rng.choice(list(measures)))
    net = getattr(mp, kind)(*arrays, activation=act)
    if name == "fvu" and np.any(np.diagonal(mp.second_moment(net, under).cov) < 1e-6):
        return
    directions = [rng.standard_normal(a.shape) * (1 / unit if a.shape == (h, d) else 1.0) for a in arrays]

    def value(t):
        net = getattr(mp, kind)(*(a + t * v for a, v in zip(arrays, directions, strict=True)), activation=act)
        return measures[name](net, lambda thing: thing)

    def slope(step):  # of fourth order
        a, b = ((value(k * step) - value(-k * step)) / (2 * k * step) for k in (1, 2))
        return (4 * a - b) / 3

    size = np.max(np.abs(value(0.0))) + np.max(np.abs(value(0.01)))
    for step in (2e-3, 2e-4, 2e-5):
        coarsest, coarse, expected = (slope(step * part) for part in (1, 0.5, 0.25))
        # The error is a sixteenth with half the step; at a jump or a kink it stays or grows.
        if np.all(np.abs(expected - coarse) <= np.abs(coarse - coarsest) / 4 + 1e-6 * (np.abs(expected) + size)):
            break
    else:
        pytest.skip("the differences do not converge: something is not smooth within a step")
    parts = [make(a, TORCH64).requires_grad_() for a in arrays]

    def placed(thing):
        return make(thing, TORCH64) if isinstance(thing, np.ndarray) else in_library(thing, TORCH64)

    values = measures[name](getattr(mp, kind)(*parts, activation=act), placed)
    weights = rng.standard_normal(values.shape)
    gradients = torch.autograd.grad((values * make(weights, TORCH64)).sum(), parts, allow_unused=True)
    found = sum(np.sum(to_numpy(g) * v) for g, v in zip(gradients, directions, strict=True) if g is not None)
    allowed = 1e-6 * (np.sum(np.abs(weights * expected)) + size) + np.sum(np.abs(weights * (expected - coarse)))
    near(f"gradient of {name}", found, np.sum(weights * expected), allowed)
