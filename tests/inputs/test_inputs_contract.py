"""What every kind of inputs must do: one suite for all of them."""

import copy
import functools
import math
import pickle

import array_api_compat as compat
import jax
import mpmath
import numpy as np
import pytest
import torch
from scipy import stats
from support.backends import (
    JAX32,
    JAX64,
    NUMPY32,
    NUMPY64,
    TORCH32,
    TORCH64,
    assert_close,
    assert_same_kind,
    backends,
    make,
    to_numpy,
)

import mlpoly as mp
from mlpoly.inputs import Gaussians, Inputs, in_library

D = 3
MEAN = np.array([0.5, -1.0, 2.0])
FULL = np.array([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]])
DIAGONAL = np.array([2.0, 0.0, 0.25])
RANK_ONE = np.outer([1.0, -2.0, 0.5], [1.0, -2.0, 0.5])
MEANS = np.array([[0.0, 0.0, 1.0], [3.0, -1.0, 0.5], [-1.0, 2.0, 0.0]])
WEIGHTS = np.array([0.5, 0.3, 0.2])
COVARIANCES = np.stack([FULL, RANK_ONE, np.zeros((D, D))])  # a singular one too, and a point
DIRECTIONS = np.array([[1.0, 0.0, 0.0], [0.3, -1.2, 0.7], [2.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
ROWS = np.random.default_rng(7).gamma(2.0, size=(40, D)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.0, 3.0]])
COUNTS = np.random.default_rng(8).integers(0, 4, 40).astype(float)
POINTS = np.zeros((40, D, D))  # the covariances of samples as components


def of_kinds(a):
    """Components of different forms, none of which is a matrix."""
    forms = zip(MEANS, (None, DIAGONAL, FULL), strict=True)
    return mp.GaussianMixture.of(a(WEIGHTS), [mp.Gaussian(a(m), None if c is None else a(c)) for m, c in forms])


MARGINALS = stats.norm(1.0, 2.0), stats.expon(-1.0, 0.5), stats.uniform(-3.0, 4.0)


def of_marginals(a):
    return mp.Independent(MARGINALS).to(a(np.zeros(1)))


# How each kind is made, with `a` for arrays of a library, and its weights, means and covariances in NumPy's terms.
KINDS = {
    "identity": (lambda a: mp.Gaussian(a(MEAN)), [1.0], [MEAN], [np.eye(D)]),
    "diagonal": (lambda a: mp.Gaussian(a(MEAN), a(DIAGONAL)), [1.0], [MEAN], [np.diag(DIAGONAL)]),
    "full": (lambda a: mp.Gaussian(a(MEAN), a(FULL)), [1.0], [MEAN], [FULL]),
    "singular": (lambda a: mp.Gaussian(a(MEAN), a(RANK_ONE)), [1.0], [MEAN], [RANK_ONE]),
    "mixture": (lambda a: mp.GaussianMixture(a(WEIGHTS), a(MEANS), a(COVARIANCES)), WEIGHTS, MEANS, COVARIANCES),
    "mixture of kinds": (of_kinds, WEIGHTS, MEANS, [np.eye(D), np.diag(DIAGONAL), FULL]),
    "shared": (lambda a: mp.GaussianMixture(a(WEIGHTS), a(MEANS), a(FULL), True), WEIGHTS, MEANS, [FULL] * 3),
    "samples": (lambda a: mp.Samples(a(ROWS)), np.full(40, 1 / 40), ROWS, POINTS),
    "independent": (of_marginals, None, [m.mean() for m in MARGINALS], np.diag([m.var() for m in MARGINALS])),
    "weighted": (lambda a: mp.Samples(a(ROWS), a(COUNTS)), COUNTS / COUNTS.sum(), ROWS, POINTS),
}
kinds = pytest.mark.parametrize("kind", KINDS)
# Rounding is of float64 in every library that has it: one of the others, and JAX with its own ways, suffice.
libraries = backends(NUMPY64, NUMPY32, TORCH32, JAX64, slow=(JAX32,))


def inputs_of(kind, backend=NUMPY64):
    return KINDS[kind][0](lambda values: make(values, backend))


def moments(kind):
    """Mean and covariance by the law of total covariance."""
    _, weights, means, covariances = KINDS[kind]
    if weights is None:  # no Gaussians
        return np.asarray(means), covariances
    mean = weights @ np.asarray(means)
    pairs = zip(weights, means, covariances, strict=True)
    return mean, sum(w * (c + np.outer(m - mean, m - mean)) for w, m, c in pairs)


def sample_tolerance(kind, backend):
    """The eigenvalues of a singular covariance are zero up to rounding, their square roots up to that of it.

    Which way the rounding goes depends on the kernels of the processor.
    """
    if kind not in ("singular", "mixture"):
        return backend.tolerance
    return 1e-3 if backend == JAX32 else max(backend.tolerance, 1e-7)


@kinds
@libraries
def test_moments_and_their_library(kind, backend):
    inputs, (mean, covariance) = inputs_of(kind, backend), moments(kind)
    assert isinstance(inputs, Inputs)
    assert inputs.dim == D and f"dim={D}" in repr(inputs)
    assert_same_kind(inputs.prototype, make(np.zeros(1), backend))
    for a, wanted in ((inputs.mean, mean), (inputs.covariance, covariance)):
        assert_close(a, wanted, backend.tolerance)
        assert compat.array_namespace(a) is compat.array_namespace(inputs.prototype)
    root = to_numpy(inputs.root)
    root = np.diag(root) if root.ndim == 1 else root
    assert_close(root @ root, covariance, 10 * backend.tolerance)
    assert_close(root, root.T, backend.tolerance)
    if isinstance(inputs, Gaussians):
        _, weights, means, covariances = KINDS[kind]
        assert_close(inputs.weights, weights, backend.tolerance)
        for g, m, c in zip(inputs.components, means, covariances, strict=True):
            assert_close(g.mean, m, 0 if backend.dtype == "float64" else backend.tolerance)
            assert_close(g.covariance, c, backend.tolerance)


@kinds
@libraries
def test_samples_have_shape_dtype_and_seed(kind, backend):
    inputs = inputs_of(kind, backend)
    x = inputs.sample(5, seed=3)
    assert_same_kind(x, make(np.zeros(1), backend))
    assert tuple(x.shape) == (5, D)
    assert_close(inputs.sample(5, seed=3), x, 0)
    assert np.abs(to_numpy(inputs.sample(5, seed=4)) - to_numpy(x)).max() > 0
    assert_close(x, inputs_of(kind).sample(5, seed=3), sample_tolerance(kind, backend))
    with pytest.raises(ValueError, match="n must be at least 1"):
        inputs.sample(0)


@kinds
def test_samples_have_the_moments(kind):
    n, (mean, covariance) = 40_000, moments(kind)
    u = inputs_of(kind).sample(n, seed=1) - mean
    assert np.all(np.abs(u.mean(axis=0)) <= 5 * u.std(axis=0) / math.sqrt(n) + 1e-12)
    products = u[:, :, None] * u[:, None, :]
    assert np.all(np.abs(products.mean(axis=0) - covariance) <= 5 * products.std(axis=0) / math.sqrt(n) + 1e-12)


@functools.cache
def reference_moments(kind, order):
    """Moments (order + 1, h) of the projections in 40 digits, by the binomial formula and double factorials."""
    with mpmath.workdps(40):
        return np.array([[float(m) for m in projected_moments(kind, w, order)] for w in DIRECTIONS]).T


def projected_moments(kind, direction, order):
    w = [mpmath.mpf(float(a)) for a in direction]
    if kind == "independent":
        return moments_of_sums(w, order)

    def dot(a, b):
        return mpmath.fsum(mpmath.mpf(float(x)) * y for x, y in zip(a, b, strict=True))

    pieces = zip(*KINDS[kind][1:], strict=True)
    parts = [(mpmath.mpf(float(p)), dot(m, w), dot([dot(row, w) for row in c], w)) for p, m, c in pieces]
    total = mpmath.fsum(p for p, _, _ in parts)
    mean = mpmath.fsum(p * m for p, m, _ in parts) / total

    def central(k):
        return mpmath.fsum(
            p / total * mpmath.binomial(k, j) * (m - mean) ** (k - j) * v ** (j // 2) * mpmath.fac2(j - 1)
            for p, m, v in parts
            for j in range(0, k + 1, 2)
        )

    variance = central(2)
    if variance < mpmath.mpf(10) ** -30:
        return [mpmath.mpf(1)] + [mpmath.mpf(0)] * order
    return [central(k) / mpmath.sqrt(variance) ** k for k in range(order + 1)]


def moments_of_sums(w, order):
    """Of standardised sums of the marginals, from their cumulants: of normal, exponential and uniform laws."""
    scales = 2, mpmath.mpf(1) / 2, 4
    laws = (
        lambda n: mpmath.mpf(n == 2),
        lambda n: mpmath.factorial(n - 1),
        lambda n: mpmath.bernoulli(n) / n,
    )
    cumulants = [0, 0] + [
        mpmath.fsum(law(n) * (a * s) ** n for a, s, law in zip(w, scales, laws, strict=True))
        for n in range(2, order + 1)
    ]
    found = [mpmath.mpf(1)]
    for n in range(1, order + 1):
        found.append(mpmath.fsum(mpmath.binomial(n - 1, j) * cumulants[j + 1] * found[n - 1 - j] for j in range(n)))
    if not found[2]:
        return found
    return [m / mpmath.sqrt(found[2]) ** k for k, m in enumerate(found)]


@kinds
@libraries
def test_projection_moments_against_many_digits(kind, backend):
    order = 6
    found = inputs_of(kind, backend).projection_moments(make(DIRECTIONS, backend), order)
    assert tuple(found.shape) == (order + 1, len(DIRECTIONS))
    assert_close(found, reference_moments(kind, order), 20 * backend.tolerance)
    assert_close(found[1:, 3], [0.0] * order, 0)  # a projection that does not vary
    if backend == NUMPY64:
        assert_close(inputs_of(kind).projection_moments(1e-60 * DIRECTIONS, order), found, 1e-12)


@pytest.mark.parametrize(
    ("directions", "order", "error", "words"),
    [
        (np.ones((2, D + 1)), 2, ValueError, "directions has shape"),
        (np.ones(D), 2, ValueError, "directions has shape"),
        (np.full((1, D), np.nan), 2, ValueError, "directions holds 3 NaN"),
        (np.ones((1, D)), -1, ValueError, "order must be at least 0"),
        (make(np.ones((1, D)), TORCH64), 2, TypeError, "different array libraries"),
    ],
)
def test_projection_moments_of_bad_arguments(directions, order, error, words):
    for kind in ("full", "samples"):
        with pytest.raises(error, match=words):
            inputs_of(kind).projection_moments(directions, order)


@kinds
@backends(NUMPY32, TORCH64, TORCH32, JAX64)
def test_they_move(kind, backend):
    like, here = make(np.zeros(1), backend), inputs_of(kind)
    there = here.to(like)
    assert type(there) is type(here)
    assert_same_kind(there.prototype, like)
    assert_close(there.covariance, moments(kind)[1], backend.tolerance)
    assert_same_kind(there.sample(2), like)
    assert_close(there.sample(4), here.sample(4), sample_tolerance(kind, backend))
    assert here.to(torch.zeros(1, dtype=torch.bfloat16)).prototype.dtype == torch.float32
    assert in_library(here, like) is here  # only neutral inputs follow an array


@kinds
@libraries
def test_fingerprints_pickles_and_copies(kind, backend):
    inputs = inputs_of(kind, backend)
    assert len(inputs.fingerprint) == 64
    double, single = (inputs_of(kind, b).fingerprint for b in (NUMPY64, NUMPY32))
    assert double != single
    if backend != JAX32:  # which divides weights by their sum in float32
        assert inputs.fingerprint == (double if backend.dtype == "float64" else single)  # whatever the library
    for again in (pickle.loads(pickle.dumps(inputs)), copy.deepcopy(inputs)):
        assert again.fingerprint == inputs.fingerprint
        assert_close(again.sample(3), inputs.sample(3), 0)


@kinds
@backends(JAX64)
def test_they_are_pytrees(kind, backend):
    inputs = inputs_of(kind, backend)
    leaves, tree = jax.tree_util.tree_flatten(inputs)
    assert jax.tree_util.tree_unflatten(tree, leaves).fingerprint == inputs.fingerprint
    directions = make(DIRECTIONS[:2], backend)
    traced = jax.jit(lambda p: (p.mean, p.covariance, p.projection_moments(directions, 3)))(inputs)
    plain = (inputs.mean, inputs.covariance, inputs.projection_moments(directions, 3))
    for a, b in zip(traced, plain, strict=True):
        assert_close(a, b, 1e-12)


def test_the_neutral_gaussian_follows_any_array(backend):
    like = make(np.zeros(1), backend)
    bound = in_library(mp.Gaussian.standard(D), like)
    assert_same_kind(bound.mean, like)
    assert not bound.neutral and not mp.Gaussian.standard(D).to(like).neutral
    bound = mp.Gaussian.standard(D, like=like)
    assert not bound.neutral and in_library(bound, like) is bound
