"""What every kind of inputs must do: one suite that all of them inherit."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import pickle

import array_api_compat as compat
import jax
import mpmath
import numpy as np
import pytest
from support.backends import JAX64, NUMPY32, NUMPY64, TORCH32, TORCH64, assert_close, assert_same_kind, make, to_numpy

import mlpoly as mp
from mlpoly.inputs import Gaussians, Inputs, in_library

D = 3
MEAN = np.array([0.5, -1.0, 2.0])
FULL = np.array([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]])
DIAGONAL = np.array([2.0, 0.0, 0.25])
RANK_ONE = np.outer([1.0, -2.0, 0.5], [1.0, -2.0, 0.5])
MEANS = np.array([[0.0, 0.0, 1.0], [3.0, -1.0, 0.5], [-1.0, 2.0, 0.0]])
WEIGHTS = np.array([0.5, 0.3, 0.2])
DIRECTIONS = np.array([[1.0, 0.0, 0.0], [0.3, -1.2, 0.7], [2.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
ROWS = np.random.default_rng(7).gamma(2.0, size=(40, D)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.0, 3.0]])
COUNTS = np.random.default_rng(8).integers(0, 4, 40).astype(float)


@functools.cache
def reference_moments(kind: type, order: int) -> np.ndarray:
    """Moments (order + 1, h) of the projections of one kind of inputs, from 40 digits; once for all libraries."""
    with mpmath.workdps(40):
        return np.array([[float(m) for m in kind()._moments(w, order)] for w in DIRECTIONS]).T


class InputsContract:
    """The tests; a subclass says how to make the inputs, and what they are in NumPy's terms."""

    singular = False  # whether a component has a full covariance of low rank

    def inputs(self, backend) -> Inputs:
        raise NotImplementedError

    def parts(self) -> list[tuple[float, np.ndarray, np.ndarray]]:
        """Weights, means and covariances of the components; a sample is a component without spread."""
        raise NotImplementedError

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        mean = sum(w * m for w, m, _ in self.parts())
        return mean, sum(w * (c + np.outer(m - mean, m - mean)) for w, m, c in self.parts())

    def test_it_is_inputs_of_its_library(self, backend):
        inputs = self.inputs(backend)
        assert isinstance(inputs, Inputs)
        assert inputs.dim == D
        assert_same_kind(inputs.prototype, make(np.zeros(1), backend))

    def test_mean_and_covariance(self, backend):
        inputs = self.inputs(backend)
        mean, covariance = self.moments()
        assert_close(inputs.mean, mean, backend.tolerance)
        assert_close(inputs.covariance, covariance, backend.tolerance)
        for a in (inputs.mean, inputs.covariance):
            assert compat.array_namespace(a) is compat.array_namespace(make(0.0, backend))

    def test_root_squares_to_the_covariance(self, backend):
        root = to_numpy(self.inputs(backend).root)
        root = np.diag(root) if root.ndim == 1 else root
        assert_close(root @ root, self.moments()[1], 10 * backend.tolerance)
        assert_close(root, root.T, backend.tolerance)

    def sample_tolerance(self, backend):
        """The eigenvalues of a singular covariance are zero up to rounding, their square roots up to that of it.

        Rounding is of float64 in every library that has it; which way it goes depends on the kernels of the processor.
        """
        if not self.singular:
            return backend.tolerance
        return 1e-3 if backend.name == "jax-float32" else max(backend.tolerance, 1e-7)

    def test_samples_have_shape_dtype_and_seed(self, backend):
        inputs = self.inputs(backend)
        x = inputs.sample(5, seed=3)
        assert_same_kind(x, make(np.zeros(1), backend))
        assert tuple(x.shape) == (5, D)
        assert_close(inputs.sample(5, seed=3), x, 0)
        assert np.abs(to_numpy(inputs.sample(5, seed=4)) - to_numpy(x)).max() > 0
        assert_close(x, self.inputs(NUMPY64).sample(5, seed=3), self.sample_tolerance(backend))
        with pytest.raises(ValueError, match="n must be at least 1"):
            inputs.sample(0)

    def test_samples_have_the_moments(self):
        n = 40_000
        x = self.inputs(NUMPY64).sample(n, seed=1)
        mean, covariance = self.moments()
        u = x - mean
        assert np.all(np.abs(u.mean(axis=0)) <= 5 * u.std(axis=0) / math.sqrt(n) + 1e-12)
        products = u[:, :, None] * u[:, None, :]
        error = products.std(axis=0) / math.sqrt(n)
        assert np.all(np.abs(products.mean(axis=0) - covariance) <= 5 * error + 1e-12)

    def test_projection_moments_against_many_digits(self, backend):
        order = 6
        found = self.inputs(backend).projection_moments(make(DIRECTIONS, backend), order)
        assert tuple(found.shape) == (order + 1, len(DIRECTIONS))
        expected = reference_moments(type(self), order)
        assert_close(found, expected, 20 * backend.tolerance)
        assert_close(found[1:, 3], [0.0] * order, 0)  # a projection that does not vary

    def _moments(self, direction: np.ndarray, order: int) -> list[mpmath.mpf]:
        """Standardised central moments of w.x, by the binomial formula and double factorials."""
        w = [mpmath.mpf(float(a)) for a in direction]

        def dot(a, b):
            return mpmath.fsum(mpmath.mpf(float(x)) * y for x, y in zip(a, b, strict=True))

        parts = [(mpmath.mpf(float(p)), dot(m, w), dot([dot(row, w) for row in c], w)) for p, m, c in self.parts()]
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

    def test_projection_moments_do_not_depend_on_units(self):
        inputs = self.inputs(NUMPY64)
        one, two = (inputs.projection_moments(scale * DIRECTIONS, 4) for scale in (1.0, 1e-60))
        assert_close(two, one, 1e-12)

    @pytest.mark.parametrize(
        ("directions", "order", "error", "words"),
        [
            (np.ones((2, D + 1)), 2, ValueError, "directions has shape"),
            (np.ones(D), 2, ValueError, "directions has shape"),
            (np.full((1, D), np.nan), 2, ValueError, "directions holds 3 NaN"),
            (np.ones((1, D)), -1, ValueError, "order must be at least 0"),
            (np.ones((1, D)), 1.5, TypeError, "order must be an integer"),
            (make(np.ones((1, D)), TORCH64), 2, TypeError, "different array libraries"),
        ],
    )
    def test_projection_moments_of_bad_arguments(self, directions, order, error, words):
        with pytest.raises(error, match=words):
            self.inputs(NUMPY64).projection_moments(directions, order)

    @pytest.mark.parametrize("target", [NUMPY32, TORCH64, TORCH32, JAX64], ids=lambda b: b.name)
    def test_it_moves(self, target):
        with target.active():
            like = make(np.zeros(1), target)
            there = self.inputs(NUMPY64).to(like)
            assert type(there) is type(self.inputs(NUMPY64))
            assert_same_kind(there.prototype, like)
            assert_close(there.covariance, self.moments()[1], target.tolerance)
            assert_same_kind(there.sample(2), like)
            assert_close(there.sample(4), self.inputs(NUMPY64).sample(4), self.sample_tolerance(target))

    def test_sixteen_bits_become_float32(self):
        import torch

        assert self.inputs(NUMPY64).to(torch.zeros(1, dtype=torch.bfloat16)).prototype.dtype == torch.float32

    def test_only_neutral_inputs_follow_an_array(self):
        inputs = self.inputs(NUMPY64)
        assert in_library(inputs, np.zeros(1)) is inputs

    def test_fingerprints(self, backend):
        inputs = self.inputs(backend)
        assert inputs.fingerprint == self.inputs(backend).fingerprint
        assert len(inputs.fingerprint) == 64
        others = [self.inputs(b).fingerprint for b in (NUMPY64, NUMPY32)]
        if backend.name != "jax-float32":  # which divides weights by their sum in float32
            assert inputs.fingerprint == others[backend.dtype == "float32"]  # of the numbers, whatever the library
        assert others[0] != others[1]

    def test_it_pickles_and_copies(self, backend):
        inputs = self.inputs(backend)
        for again in (pickle.loads(pickle.dumps(inputs)), copy.deepcopy(inputs)):
            assert again.fingerprint == inputs.fingerprint
            assert_close(again.sample(3), inputs.sample(3), 0)

    def test_it_is_a_pytree(self):
        with JAX64.active():
            inputs = self.inputs(JAX64)
            leaves, tree = jax.tree_util.tree_flatten(inputs)
            assert jax.tree_util.tree_unflatten(tree, leaves).fingerprint == inputs.fingerprint
            directions = make(DIRECTIONS[:2], JAX64)
            traced = jax.jit(lambda p: (p.mean, p.covariance, p.projection_moments(directions, 3)))(inputs)
            for a, b in zip(
                traced, (inputs.mean, inputs.covariance, inputs.projection_moments(directions, 3)), strict=True
            ):
                assert_close(a, b, 1e-12)

    def test_its_name_says_how_many_inputs(self):
        assert f"dim={D}" in repr(self.inputs(NUMPY64))


class OfGaussians(InputsContract):
    def test_weights_and_components(self, backend):
        inputs = self.inputs(backend)
        assert isinstance(inputs, Gaussians)
        assert_close(inputs.weights, [w for w, _, _ in self.parts()], backend.tolerance)
        for g, (_, mean, covariance) in zip(inputs.components, self.parts(), strict=True):
            assert isinstance(g, mp.Gaussian)
            assert_close(g.mean, mean, 0 if backend.dtype == "float64" else backend.tolerance)
            assert_close(g.covariance, covariance, backend.tolerance)


class TestIdentity(OfGaussians):
    def inputs(self, backend):
        return mp.Gaussian(make(MEAN, backend))

    def parts(self):
        return [(1.0, MEAN, np.eye(D))]


class TestDiagonal(OfGaussians):
    def inputs(self, backend):
        return mp.Gaussian(make(MEAN, backend), make(DIAGONAL, backend))

    def parts(self):
        return [(1.0, MEAN, np.diag(DIAGONAL))]


class TestFull(OfGaussians):
    def inputs(self, backend):
        return mp.Gaussian(make(MEAN, backend), make(FULL, backend))

    def parts(self):
        return [(1.0, MEAN, FULL)]


class TestSingular(OfGaussians):
    singular = True

    def inputs(self, backend):
        return mp.Gaussian(make(MEAN, backend), make(RANK_ONE, backend))

    def parts(self):
        return [(1.0, MEAN, RANK_ONE)]


class TestMixture(OfGaussians):
    singular = True
    covariances = np.stack([FULL, RANK_ONE, np.zeros((D, D))])  # singular ones too, and a point

    def inputs(self, backend):
        return mp.GaussianMixture(*[make(a, backend) for a in (WEIGHTS, MEANS, self.covariances)])

    def parts(self):
        return list(zip(WEIGHTS, MEANS, self.covariances, strict=True))


class TestMixtureOfKinds(OfGaussians):
    """Components of different forms, none of which is a matrix."""

    def inputs(self, backend):
        forms = (None, DIAGONAL, FULL)
        parts = [mp.Gaussian(make(m, backend), make(c, backend)) for m, c in zip(MEANS, forms, strict=True)]
        return mp.GaussianMixture.of(make(WEIGHTS, backend), parts)

    def parts(self):
        return list(zip(WEIGHTS, MEANS, (np.eye(D), np.diag(DIAGONAL), FULL), strict=True))


class TestSharedMixture(OfGaussians):
    def inputs(self, backend):
        return mp.GaussianMixture(*[make(a, backend) for a in (WEIGHTS, MEANS, FULL)], shared=True)

    def parts(self):
        return list(zip(WEIGHTS, MEANS, itertools.repeat(FULL, 3), strict=True))


class TestSamples(InputsContract):
    def inputs(self, backend):
        return mp.Samples(make(ROWS, backend))

    def parts(self):
        return [(1 / len(ROWS), row, np.zeros((D, D))) for row in ROWS]


class TestWeightedSamples(InputsContract):
    def inputs(self, backend):
        return mp.Samples(make(ROWS, backend), make(COUNTS, backend))

    def parts(self):
        return [(w, row, np.zeros((D, D))) for w, row in zip(COUNTS / COUNTS.sum(), ROWS, strict=True)]


def test_the_neutral_gaussian_follows_any_array(backend):
    like = make(np.zeros(1), backend)
    bound = in_library(mp.Gaussian.standard(D), like)
    assert_same_kind(bound.mean, like)
    assert not bound.neutral and not mp.Gaussian.standard(D).to(like).neutral


def test_fingerprints_stay_what_they_were():
    """They are in files: of polynomials that were saved by earlier versions."""
    assert mp.Gaussian(MEAN, FULL).fingerprint.startswith("4a686582a09abff4")
    mixture = mp.GaussianMixture(WEIGHTS, MEANS, np.stack([FULL] * 3))
    assert mixture.fingerprint.startswith("9686c35a37772383")
