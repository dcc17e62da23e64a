"""Gaussian mixtures as inputs: forms, estimation, samples, and what is refused."""

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture as Reference
from support.backends import assert_close, assert_same_kind, make
from support.inputs import covariance, mixture
from support.mistakes import assert_explained, mistakes

import mlpoly as mp
from mlpoly.arrays import widen

C, D = 3, 2
WEIGHTS = np.array([0.5, 0.3, 0.2])
MEANS = np.array([[0.0, 1.0], [-2.0, 0.5], [3.0, -1.0]])


def covariances(rng, c=C):
    return np.stack([covariance(rng, D) for _ in range(c)])


def labelled(rng, counts=(40, 25, 10), d=D):
    """Samples of classes that differ in place and spread, shuffled, and their labels."""
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    spread = 0.5 + np.arange(len(counts))[labels, None]
    return spread * rng.standard_normal((len(labels), d)) + 3 * labels[:, None], labels


@pytest.mark.parametrize("form", ["identity", "full", "diagonal", "shared matrix", "shared diagonal"])
def test_forms_of_the_covariances(form, rng):
    full = covariances(rng)
    diagonals = rng.uniform(0, 2, (C, D))
    covs, matrices = {
        "identity": (None, [np.eye(D)] * C),
        "full": (full, full),
        "diagonal": (diagonals, [np.diag(v) for v in diagonals]),
        "shared matrix": (full[0], [full[0]] * C),
        "shared diagonal": (diagonals[0], [np.diag(diagonals[0])] * C),
    }[form]
    mix = mp.GaussianMixture(WEIGHTS, MEANS, covs)
    assert mix.dim == D and len(mix.components) == C
    assert repr(mix) == "GaussianMixture(components=3, dim=2)"
    for g, mean, matrix in zip(mix.components, MEANS, matrices, strict=True):
        assert_close(g.mean, mean, 0)
        assert_close(g.covariance, matrix, 0)
    centred = MEANS - WEIGHTS @ MEANS
    total = np.einsum("c,cij->ij", WEIGHTS, np.stack(matrices)) + centred.T @ np.diag(WEIGHTS) @ centred
    assert_close(mix.mean, WEIGHTS @ MEANS, 1e-15)
    assert_close(mix.covariance, total, 1e-15)
    assert_close(mix.root @ mix.root, total)


def test_as_many_components_as_inputs_need_a_word(rng):
    """(2, 2) may be one matrix or two diagonals: guessing would be wrong half of the time."""
    covs, weights, means = np.array([[2.0, 0.5], [0.5, 1.0]]), np.full(2, 0.5), MEANS[:2]
    with pytest.raises(ValueError, match=r"^covs .*shared=True or shared=False"):
        mp.GaussianMixture(weights, means, covs)
    one = mp.GaussianMixture(weights, means, covs, shared=True)
    many = mp.GaussianMixture(weights, means, covs, shared=False)
    for i in range(2):
        assert_close(one.components[i].covariance, covs, 0)
        assert_close(many.components[i].covariance, np.diag(covs[i]), 0)
    full = covariances(rng, 2)
    assert_close(mp.GaussianMixture(weights, means, full).components[1].covariance, full[1], 0)
    assert_close(mp.GaussianMixture([1.0], [[0.0]], [[4.0]]).covariance, [[4.0]], 0)  # both are the same


def test_weights_are_normalised_within_their_rounding():
    """What passes as a sum of one is one from then on: a constant network has a constant of exactly that value."""
    mix = mp.GaussianMixture(np.array([0.2, 0.3, 0.500005]), MEANS)
    assert abs(mix.weights.sum() - 1) <= 1e-15
    thirds = np.full(3, 1 / 3, dtype=np.float32)
    assert abs(float(mp.GaussianMixture(thirds, MEANS.astype(np.float32)).weights.sum()) - 1) <= 2e-7


def test_from_labels_is_one_gaussian_per_class(backend, rng):
    x, y = labelled(rng)
    mix = mp.GaussianMixture.from_labels(make(x, backend), y)
    assert_close(mix.weights, np.bincount(y) / len(y), backend.tolerance)
    if backend.dtype == "float64":  # law of total covariance: class by class or all at once
        assert_close(mix.mean, x.mean(axis=0), 1e-14)
        assert_close(mix.covariance, np.cov(x, rowvar=False, bias=True), 1e-14)
    for c, g in enumerate(mix.components):
        assert_same_kind(g.cov, widen(make(x, backend)))
        assert_close(g.mean, x[y == c].mean(axis=0), backend.tolerance)
        assert_close(g.covariance, np.cov(x[y == c], rowvar=False, bias=True), backend.tolerance)
    assert_same_kind(mix.sample(3), make(x, backend))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_classes_of_narrow_data_are_those_of_the_same_numbers_in_double_precision(dtype, classes, rng):
    """Moments are not rounded to the data's dtype: neither directions are lost, nor weights refused."""
    x = torch.tensor(rng.standard_normal((700, 8)) @ rng.standard_normal((8, 8))).to(dtype)
    y = np.arange(700) % classes
    mix, twin = (mp.GaussianMixture.from_labels(a, y) for a in (x, x.double()))
    for name in ("weights", "means", "covariance"):
        assert_close(getattr(mix, name), getattr(twin, name), 1e-14)
    assert_same_kind(mix.sample(4), x)
    assert_same_kind(mp.GaussianMixture.from_samples(x, 2).sample(4), x)
    net = mp.MLP(torch.tensor(rng.standard_normal((12, 8)) / 3), None, torch.ones(1, 12).double(), None, "gelu")
    got, want = (mp.fit(net, m, degree=2, method=mp.methods.Exact(tolerance=1e-6)) for m in (mix, twin))
    assert got.report.details["dropped"] == want.report.details["dropped"] == 0
    assert_close(got.quadratic, want.quadratic, 1e-8)


@pytest.mark.parametrize("noise", [1e-3, 1e-5, 1e-6])
def test_directions_that_hardly_vary_do_no_harm(noise, rng):
    """Two directions of four have a share of 1e-8 to 1e-14 of the variance; the optimum is that of the other two."""
    x = 10 * rng.standard_normal((2000, 2)) @ rng.standard_normal((2, 4)) + noise * rng.standard_normal((2000, 4))
    net = mp.MLP(rng.standard_normal((12, 4)) / 10, None, rng.standard_normal((2, 12)), None, "gelu")
    mix = mp.GaussianMixture.from_labels(x, np.arange(2000) % 3)
    tight = mp.methods.Exact(tolerance=1e-6)
    errors = [float(mp.fvu(net, mp.fit(net, mix, degree, method=tight), x).total) for degree in (1, 2, 3)]
    one = float(mp.fvu(net, mp.fit(net, mp.Gaussian.from_samples(x), 2), x).total)
    assert errors[2] <= 1.1 * errors[1] <= 1.2 * one  # the classes are alike, so one Gaussian does as well
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_rounding_of_single_precision_data_is_no_direction_of_their_variance(degree, rng):
    """Far from zero, data of low rank fill all directions with their rounding errors."""
    x = 10 * rng.standard_normal((2000, 3)) @ rng.standard_normal((3, 6)) + 1000 * rng.standard_normal(6)
    x, y = x.astype(np.float32), np.arange(2000) % 3
    W, W2 = rng.standard_normal((12, 6)) / 10, rng.standard_normal((2, 12))

    def error(dtype):
        net = mp.MLP(*(a.astype(dtype) for a in (W, -W @ x.mean(axis=0), W2)), None, "gelu")
        poly = mp.fit(net, mp.GaussianMixture.from_labels(x, y), degree)
        return float(mp.fvu(net, poly, x.astype(np.float64)).total)

    assert error(np.float32) == pytest.approx(error(np.float64), rel=1e-2)


@pytest.mark.parametrize("count", [3, 6, 7, 100])
def test_weights_of_16_bits_sum_to_one_within_their_rounding(count):
    """A third is 0.33398 in bfloat16, and three of them 1.00195."""
    for dtype in (torch.bfloat16, torch.float16):
        weights = torch.full((count,), 1 / count, dtype=torch.float64).to(dtype)
        means = torch.zeros(count, 2, dtype=dtype)
        parts = [mp.Gaussian.standard(2, like=weights)] * count
        for mix in (mp.GaussianMixture(weights, means), mp.GaussianMixture.of(weights, parts)):
            assert abs(float(mix.weights.double().sum()) - 1) <= 2e-7 and mix.weights.dtype == torch.float32
        with pytest.raises(ValueError, match="weights sum to"):
            mp.GaussianMixture(weights * 0.98, means)


TEXT = np.array(["setosa", "virginica", "versicolor"])
LABELS = {
    "list": list,
    "torch": torch.tensor,
    **{kind: lambda y, kind=kind: y.astype(kind) for kind in ("int8", "uint64")},
    "gaps": lambda y: np.array([-3, 10, 4000])[y],
    "text": lambda y: np.sort(TEXT)[y],
    "list of text": lambda y: np.sort(TEXT)[y].tolist(),
    "objects": lambda y: np.sort(TEXT)[y].astype(object),
    "bytes": lambda y: np.sort(TEXT)[y].astype("S"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_are_integers_or_text_of_any_kind(kind, rng):
    """Components come in the order of np.unique; numbers may have gaps and be negative."""
    x, y = labelled(rng)
    one, two = (mp.GaussianMixture.from_labels(x, labels) for labels in (y, LABELS[kind](y)))
    assert one.fingerprint == two.fingerprint


def test_a_class_of_one_sample_is_a_point(rng):
    x, y = labelled(rng, counts=(20, 1))
    mix = mp.GaussianMixture.from_labels(x, y)
    assert_close(mix.components[1].mean, x[y == 1][0], 0)
    assert not mix.components[1].covariance.any()
    drawn, labels = mix.sample(300, return_labels=True)
    np.testing.assert_array_equal(drawn[labels == 1], np.broadcast_to(x[y == 1], drawn[labels == 1].shape))


@pytest.mark.parametrize("shrinkage", [0.25, 1.0, "oas"])
def test_shrinkage_is_per_class(shrinkage, rng):
    x, y = labelled(rng)
    mix = mp.GaussianMixture.from_labels(x, y, shrinkage=shrinkage)
    for c, g in enumerate(mix.components):
        assert_close(g.covariance, mp.Gaussian.from_samples(x[y == c], shrinkage=shrinkage).covariance, 1e-14)


def test_streaming_equals_all_at_once(backend, rng):
    """One accumulator per class, in batches of two sizes, as JAX compiles for each; a class never seen drops out."""
    x, y = labelled(rng, counts=(42, 21, 21))
    groups = {c: mp.MomentAccumulator(D) for c in range(4)}
    for start, stop in ((0, 1), (1, 21), (21, 22), (22, 42)):
        for c in range(3):
            if len(rows := x[y == c][start:stop]):
                groups[c].update(make(rows, backend))
    streamed = mp.GaussianMixture.from_accumulators(groups)
    whole = mp.GaussianMixture.from_labels(make(x, backend), y)
    assert len(streamed.components) == 3
    assert_same_kind(streamed.means, whole.means)
    assert_close(streamed.weights, whole.weights, backend.tolerance)
    for a, b in zip(streamed.components, whole.components, strict=True):
        assert_close(a.mean, b.mean, backend.tolerance)
        assert_close(a.covariance, b.covariance, backend.tolerance)
    shrunk = mp.GaussianMixture.from_accumulators(groups, shrinkage=0.5)
    assert_close(
        shrunk.covariance, mp.GaussianMixture.from_labels(make(x, backend), y, 0.5).covariance, backend.tolerance
    )


@pytest.mark.parametrize("kind", ["full", "diag", "tied"])
def test_from_samples_is_scikit_learns(kind, rng):
    x, _ = labelled(rng, counts=(60, 40, 30))
    mix = mp.GaussianMixture.from_samples(x, components=2, seed=4, covariance_type=kind)
    model = Reference(2, covariance_type=kind, random_state=4).fit(x)
    matrices = {
        "full": lambda i: model.covariances_[i],
        "diag": lambda i: np.diag(model.covariances_[i]),
        "tied": lambda i: model.covariances_,
    }[kind]
    assert_close(mix.weights, model.weights_)
    assert_close(mix.means, model.means_, 0)
    for i, g in enumerate(mix.components):
        assert_close(g.covariance, matrices(i), 0)


def test_samples_have_the_moments_of_their_components(rng):
    mix, n = mixture(3, seed=rng, gap=2.0), 40_000
    x, labels = mix.sample(n, seed=1, return_labels=True)
    np.testing.assert_array_equal(labels, mix.sample(n, seed=1, return_labels=True)[1])
    assert np.count_nonzero(np.diff(labels)) > n / 4  # in random order
    shares = np.bincount(labels, minlength=C) / n
    assert np.all(np.abs(shares - mix.weights) <= 5 * np.sqrt(mix.weights * (1 - mix.weights) / n))
    for c, g in enumerate(mix.components):
        own = x[labels == c]
        variances = np.diag(g.covariance)
        assert np.all(np.abs(own.mean(axis=0) - g.mean) <= 5 * np.sqrt(variances / len(own)))
        # Var of a sample covariance of normals: (S_ii S_jj + S_ij^2) / n
        error = np.sqrt((np.outer(variances, variances) + g.covariance**2) / len(own))
        assert np.all(np.abs(np.cov(own, rowvar=False, bias=True) - g.covariance) <= 5 * error)


def test_a_component_without_weight_is_never_drawn(rng):
    mix = mp.GaussianMixture(np.array([0.6, 0.0, 0.4]), MEANS, covariances(rng))
    _, labels = mix.sample(1000, return_labels=True)
    assert set(labels.tolist()) == {0, 2}
    assert mix.sample(1).shape == (1, D)


def mix_with(weights=WEIGHTS, means=MEANS, covs=None, shared=None):
    return mp.GaussianMixture(weights, means, covs, shared)


def negative_second(sign=-1.0):
    covs = np.stack([np.eye(D)] * C)
    covs[1] *= sign
    return covs


X, Y = np.zeros((4, D)), np.array([0, 1, 1, 0])
FULL = np.stack([np.eye(D)] * C)

TABLE = [
    ("negative weight", lambda: mix_with(np.array([0.7, -0.2, 0.5])), ValueError, "^weights .*negative", r"-0\.2"),
    ("counts for weights", lambda: mix_with(np.array([5.0, 3, 2])), ValueError, "^weights sum to 10", "divide"),
    ("NaN weight", lambda: mix_with(np.array([np.nan, 0.5, 0.5])), ValueError, "^weights ", "clean or drop"),
    ("means are a vector", lambda: mix_with(means=MEANS[0]), ValueError, "^means ", "one row per weight"),
    ("covs of fewer components", lambda: mix_with(covs=FULL[:2]), ValueError, r"^covs .*\(2, 2, 2\)", r"\(c, d, d\)"),
    ("covs are not square", lambda: mix_with(covs=np.ones((3, 2, 3))), ValueError, r"^covs .*\(3, 2, 3\)",
     r"\(c, d, d\)"),
    ("shared covs per component", lambda: mix_with(covs=FULL, shared=True), ValueError, "^covs, component 0", "shape"),
    ("second component is not definite", lambda: mix_with(covs=negative_second()), ValueError,
     "^covs, component 1: cov is not positive semidefinite", "clip"),
    ("negative variance in the third", lambda: mix_with(covs=np.array([[1.0, 1], [1, 1], [1, -1]])), ValueError,
     "^covs, component 2: cov has a negative", ">= 0"),
    ("torch covs, NumPy means", lambda: mix_with(covs=torch.tensor(FULL)), TypeError, "means is numpy, covs is torch",
     "convert them to one"),
    ("float labels", lambda: mp.GaussianMixture.from_labels(X, Y * 1.0), TypeError, "^labels .*float64",
     r"astype\(int\)"),
    ("too few labels", lambda: mp.GaussianMixture.from_labels(X, Y[:3]), ValueError, r"^labels .*\(3,\).*\(4,\)",
     "per sample"),
    ("labels are one-hot", lambda: mp.GaussianMixture.from_labels(X, np.eye(4, dtype=int)), ValueError, "^labels ",
     "one label"),
    ("NaN in samples", lambda: mp.GaussianMixture.from_labels(X + np.nan, Y), ValueError, "NaN", "clean or drop"),
    ("no samples", lambda: mp.GaussianMixture.from_labels(X[:0], Y[:0]), ValueError, "no samples", r"update\(batch\)"),
    ("empty accumulators", lambda: mp.GaussianMixture.from_accumulators({0: mp.MomentAccumulator(2)}), ValueError,
     "^accumulators ", r"update\(batch\)"),
    ("more components than samples", lambda: mp.GaussianMixture.from_samples(X, 5), ValueError, "^components is 5",
     "only 4"),
    ("spherical covariances",
     lambda: mp.GaussianMixture.from_samples(np.eye(2).repeat(9, 0), 1, covariance_type="spherical"), ValueError,
     "^covariance_type .*'spherical'", "full"),
    ("weights of other components", lambda: mp.GaussianMixture.of(WEIGHTS, [mp.Gaussian(np.zeros(2))]), ValueError,
     r"^weights .*\(3,\)", "one weight per component"),
    ("components of two libraries",
     lambda: mp.GaussianMixture.of(np.full(2, 0.5), [mp.Gaussian(np.zeros(2)), mp.Gaussian(torch.zeros(2))]), TypeError,
     "component_1 is torch", "convert them to one"),
]  # fmt: skip


@mistakes(TABLE)
def test_mistakes_are_explained(act, exception, patterns):
    assert_explained(act, exception, patterns)
