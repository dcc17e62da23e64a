"""Measures of two arrays of outputs: exact fractions, batch by batch, merged, weighted."""

import math
from fractions import Fraction
from itertools import pairwise

import jax
import numpy as np
import pytest
import torch
from support.backends import (
    JAX32,
    JAX64,
    NUMPY32,
    NUMPY64,
    TORCH32,
    TORCH64,
    Backend,
    assert_same_kind,
    backends,
    make,
    to_numpy,
)

from mlpoly.scores import FVU, ErrorSums, accuracy_of_outputs, agreement_of_outputs, fvu_of_outputs, kl_of_outputs
from mlpoly.scores.classifiers import cross_entropies, divergences

OUT = 3


def outputs(n=60, offset=0.0, drift=0.0, seed=0, out=OUT):
    """Outputs f and p (n, o), about a mean, which may move from the first row to the last, and weights (n,)."""
    rng = np.random.default_rng(seed)
    f = offset + drift * np.linspace(0, 1, n)[:, None] + rng.normal(size=(n, out)) * [1, 2, 0.5][:out]
    p = f + 0.3 * rng.normal(size=(n, out)) + 0.1
    return f, p, rng.exponential(size=n) * (rng.uniform(size=n) > 0.2)


def exact(f, p, weights=None):
    """Total, per output, flattened and squared standard error as exact fractions of the numbers given."""
    f, p = ([[Fraction(float(a)) for a in row] for row in table] for table in (f, p))
    w = [Fraction(1)] * len(f) if weights is None else [Fraction(float(a)) for a in weights]
    columns, weight = range(len(f[0])), sum(w)

    def mean(values):
        return sum(a * b for a, b in zip(w, values, strict=True)) / weight

    means = [mean([row[j] for row in f]) for j in columns]
    variances = [mean([(row[j] - means[j]) ** 2 for row in f]) for j in columns]
    missed = [mean([a[j] - b[j] for a, b in zip(f, p, strict=True)]) for j in columns]
    squares = [mean([(a[j] - b[j]) ** 2 for a, b in zip(f, p, strict=True)]) for j in columns]
    total = sum(squares) / sum(variances)
    o = len(columns)
    middle = sum(means) / o
    spread = sum(variances) / o + sum((m - middle) ** 2 for m in means) / o
    flattened = (sum(squares) / o - (sum(missed) / o) ** 2) / spread
    each = [
        sum((a[j] - b[j]) ** 2 for j in columns) - total * sum((a[j] - means[j]) ** 2 for j in columns)
        for a, b in zip(f, p, strict=True)
    ]
    number = weight**2 / sum(a**2 for a in w)
    error = sum((a * e) ** 2 for a, e in zip(w, each, strict=True)) / (weight * sum(variances)) ** 2
    return total, [a / b for a, b in zip(squares, variances, strict=True)], flattened, error * number / (number - 1)


def assert_fvu(found, expected, tolerance):
    """A record is what exact fractions say, relative to their size."""
    total, per_output, flattened, square = expected
    assert float(found.total) == pytest.approx(float(total), rel=tolerance)
    np.testing.assert_allclose(to_numpy(found.per_output), [float(a) for a in per_output], rtol=tolerance)
    assert float(found.flattened) == pytest.approx(float(flattened), rel=tolerance)
    assert float(found.standard_error) == pytest.approx(math.sqrt(square), rel=10 * tolerance)  # squares of squares


def in_batches(f, p, weights, sizes, **options):
    """Sums of each batch by itself."""
    return [
        ErrorSums(**options).update(f[a:b], p[a:b], None if weights is None else weights[a:b])
        for a, b in pairwise(np.cumsum([0, *sizes]))
    ]


BATCHINGS = {"each": [1] * 60, "uneven": [1, 0, 29, 1, 29]}  # few sizes: JAX compiles for each


@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("offset", [0.0, 1e6], ids=["centred", "large mean"])
def test_sums_are_exact_fractions(backend, offset, weighted, batching):
    f, p, weights = outputs(offset=offset)
    # Rows of weight zero are left out, so that every batch would have a size of its own; other tests have them.
    f, p, weights = make(f, backend), make(p, backend), make(weights + 0.1, backend) if weighted else None
    expected = exact(to_numpy(f), to_numpy(p), None if weights is None else to_numpy(weights))
    once = fvu_of_outputs(f, p, weights)
    parts = in_batches(f, p, weights, BATCHINGS[batching])
    streamed, merged = ErrorSums(), ErrorSums()
    edges = np.cumsum([0, *BATCHINGS[batching]])
    for a, b in pairwise(edges):
        assert streamed.update(f[a:b], p[a:b], None if weights is None else weights[a:b]) is streamed
    for part in reversed(parts):
        assert merged.merge(part) is merged
    for found in (once, streamed.fvu(), merged.fvu()):
        assert isinstance(found, FVU) and found.bound is None
        for a in (found.total, found.per_output, found.flattened, found.standard_error):
            assert_same_kind(a, f)
        # In single precision JAX has no wider sums.
        assert_fvu(found, expected, 10 * backend.tolerance)


def test_other_sums_are_left_alone_and_may_be_empty():
    f, p, _ = outputs()
    first, second = in_batches(f, p, None, [20, 40])
    before = second.fvu()
    first.merge(second).update(f, p)
    assert second.fvu().total == before.total and second.fvu().standard_error == before.standard_error
    both = first.fvu()
    assert first.merge(ErrorSums()).update(f[:0], p[:0]).fvu().total == both.total
    copied = ErrorSums().merge(second)
    copied.update(f, p)
    assert second.fvu().total == before.total


def test_standard_errors_are_optional():
    f, p, _ = outputs()
    lean = ErrorSums(standard_error=False).update(f[:9], p[:9])
    assert lean.merge(ErrorSums().update(f[9:], p[9:])).fvu().standard_error is None
    assert lean.fvu().total == pytest.approx(float(fvu_of_outputs(f, p)), rel=1e-13)
    assert ErrorSums(standard_error=False).merge(ErrorSums().update(f, p)).update(f, p).fvu().standard_error is None
    with pytest.raises(ValueError, match="other was made with standard_error=False"):
        ErrorSums().merge(lean)


def measures(f, p, labels, weights=None):
    return (
        fvu_of_outputs(f, p, weights),
        ErrorSums().update(f, p, weights).fvu(),
        kl_of_outputs(f, p, weights),
        agreement_of_outputs(f, p, weights),
        accuracy_of_outputs(p, labels, weights),
    )


@backends(NUMPY64, TORCH64, JAX64)
def test_whole_weights_are_repeated_rows(backend):
    f, p, _ = outputs()
    counts = np.random.default_rng(1).integers(0, 4, len(f))
    labels = np.random.default_rng(2).integers(0, OUT, len(f))
    wide = [make(np.repeat(a, counts, axis=0), backend) for a in (f, p)]
    weighted = measures(make(f, backend), make(p, backend), labels, make(counts, backend))
    for found, again in zip(weighted, measures(*wide, np.repeat(labels, counts)), strict=True):
        assert float(found) == pytest.approx(float(again), rel=1e-13)
        if isinstance(found, FVU):
            np.testing.assert_allclose(to_numpy(found.per_output), to_numpy(again.per_output), rtol=1e-13)
            assert float(found.flattened) == pytest.approx(float(again.flattened), rel=1e-13)
        # Rows that were counted twice are no independent samples.
        assert float(found.standard_error) > float(again.standard_error)


def test_rows_of_weight_zero_may_hold_anything():
    f, p, weights = outputs()
    nothing = weights == 0
    assert nothing[1:].any() and not nothing.all()
    spoilt = np.where(nothing[:, None], [[np.nan, np.inf, 1e300]], f)
    for measure in (fvu_of_outputs, kl_of_outputs, agreement_of_outputs):
        assert float(measure(spoilt, p, weights)) == float(measure(f, p, weights))
    assert ErrorSums().update(spoilt, p, weights).fvu().total == ErrorSums().update(f, p, weights).fvu().total


def test_standard_errors_with_weights_are_the_spread_of_repeated_draws():
    """Importance weights that go with the error: a formula that is linear in the weights would be far off."""
    rng = np.random.default_rng(5)
    n, repeats = 300, 600
    found, divergence = [], []
    for _ in range(repeats):
        x = 1.5 * rng.normal(size=(n, 1))
        w = 1.5 * np.exp(-(x[:, 0] ** 2) / 2 * (1 - 1 / 1.5**2))  # from N(0, 1.5^2) to N(0, 1)
        f, p = np.hstack([x, x**2]), np.hstack([x, 0.3 * x**2 + 0.2])
        found.append(fvu_of_outputs(f, p, w))
        divergence.append(kl_of_outputs(f, p, w))
    for measures in (found, divergence):
        values = np.array([float(m) for m in measures])
        errors = np.array([float(m.standard_error) for m in measures])
        # The spread of 600 draws is known to 3 %; the delta method is right to first order in 1 / n.
        assert np.sqrt(np.mean(errors**2)) == pytest.approx(values.std(), rel=0.12)
    # Under N(0, 1): E (0.7 x^2 - 0.2)^2 / (1 + 2)
    assert np.mean([float(m) for m in found]) == pytest.approx((0.49 * 3 - 0.28 + 0.04) / 3, rel=0.02)


def test_constant_outputs():
    f, p, _ = outputs()
    f = f.copy()
    f[:, 1] = 0.1
    sums = ErrorSums().update(f[:7], p[:7]).update(f[7:], p[7:])
    for call in (sums.fvu, lambda: fvu_of_outputs(f, p)):
        with pytest.raises(ValueError, match="FVU is undefined: output 1 of the network has no variance"):
            call()
    # All outputs together still vary.
    assert float(sums.total) == pytest.approx(((f - p) ** 2).sum() / ((f - f.mean(0)) ** 2).sum(), rel=1e-12)
    np.testing.assert_allclose(sums.variance, f.var(0) * [1, 0, 1], rtol=1e-12)
    # Rounding alone is no variance, however it comes in.
    with pytest.raises(ValueError, match="has no variance"):
        ErrorSums().update(f[:1] + 0, p[:1]).update(f[:1] * (1 + 1e-16), p[:1]).fvu()


@backends(NUMPY64, NUMPY32, TORCH64, TORCH32, JAX64, JAX32)
def test_divergence_and_entropy_against_plain_numpy(backend, monkeypatch):
    import mlpoly.scores.classifiers as module

    f, p, weights = outputs()
    labels = np.arange(len(f)) % OUT
    given_f, given_p, w = make(f, backend), make(p, backend), make(weights, backend)
    f, p, weights = to_numpy(given_f), to_numpy(given_p), to_numpy(w)
    q, r = (np.exp(a) / np.exp(a).sum(1, keepdims=True) for a in (f, p))
    each = (q * np.log(q / r)).sum(1)
    found = kl_of_outputs(given_f, given_p, w)
    assert_same_kind(found.mean, given_f)
    assert float(found) == pytest.approx(np.average(each, weights=weights), rel=10 * backend.tolerance)
    whole = to_numpy(divergences(given_f, given_p))
    entropies = to_numpy(cross_entropies(given_f, labels))
    np.testing.assert_allclose(whole, each, rtol=0, atol=backend.tolerance)
    np.testing.assert_allclose(entropies, -np.log(q[np.arange(len(f)), labels]), rtol=0, atol=backend.tolerance)
    monkeypatch.setattr(module, "_ENTRIES", 20)
    np.testing.assert_array_equal(to_numpy(divergences(given_f, given_p)), whole)
    np.testing.assert_array_equal(to_numpy(cross_entropies(given_f, labels)), entropies)
    expected = np.average(f.argmax(1) == labels, weights=weights)
    assert float(accuracy_of_outputs(given_f, labels, w)) == pytest.approx(expected, rel=backend.tolerance)
    expected = np.average(f.argmax(1) == p.argmax(1), weights=weights)
    assert float(agreement_of_outputs(given_f, given_p, w)) == pytest.approx(expected, rel=backend.tolerance)


def test_under_jit():
    f, p, weights = (jax.numpy.asarray(a) for a in outputs())
    for measure, w in ((fvu_of_outputs, None), (fvu_of_outputs, weights), (kl_of_outputs, weights)):
        assert float(jax.jit(measure)(f, p, w)) == pytest.approx(float(measure(f, p, w)), rel=1e-5)

    def in_two(f, p, w):
        return ErrorSums().update(f[:20], p[:20], w[:20]).update(f[20:], p[20:], w[20:]).fvu()

    assert float(jax.jit(in_two)(f, p, weights)) == pytest.approx(float(in_two(f, p, weights)), rel=1e-5)


def test_gradients():
    f, p, weights = (torch.tensor(a) for a in outputs())
    f.requires_grad_()
    fvu_of_outputs(f, p, weights).total.backward()
    assert bool(torch.isfinite(f.grad).all()) and bool((f.grad[weights > 0] != 0).all())
    assert not bool(f.grad[weights == 0].any())


@backends(Backend("torch", "bfloat16"), Backend("numpy", "float16"))
def test_16_bits_are_summed_in_more(backend):
    f, p, _ = outputs()
    f, p = make(f, backend), make(p, backend)
    expected = exact(*(to_numpy(a.float() if backend.library == "torch" else a) for a in (f, p)))
    found = ErrorSums().update(f[:30], p[:30]).update(f[30:], p[30:]).fvu()
    assert "float32" in str(found.total.dtype)
    assert_fvu(found, expected, 1e-6)


F, P, W = outputs()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((F, P[:-1]), ValueError, r"^p has shape \(59, 3\), expected \(60, 3\)"),
        ((F[:, 0], P[:, 0]), ValueError, r"^f has shape \(60,\), expected \(any, any\)"),
        ((F, P, W[:-1]), ValueError, r"^weights has shape \(59,\), expected \(60,\): one weight per sample"),
        ((F, P, W - 0.5), ValueError, "^weights must not be negative, but the smallest is -0.5"),
        ((F, P, W * np.nan), ValueError, "^weights holds 60 NaN"),
        ((F, P, W > 0), TypeError, "^weights must hold real floating-point numbers"),
        ((F, P, torch.tensor(W)), TypeError, "different array libraries"),
        ((F, "p"), TypeError, "^p must be an array"),
        ((F, P, 0 * W), ValueError, "no samples .of positive weight"),
    ],
)
def test_mistakes_are_explained(arguments, error, message):
    for measure in (fvu_of_outputs, kl_of_outputs, agreement_of_outputs, lambda *a: ErrorSums().update(*a).fvu()):
        with pytest.raises(error, match=message):
            measure(*arguments)


def test_mistakes_of_sums_are_explained():
    sums = ErrorSums().update(F, P)
    with pytest.raises(ValueError, match="no samples"):
        ErrorSums().fvu()
    with pytest.raises(TypeError, match="other must be ErrorSums, got FVU"):
        sums.merge(sums.fvu())
    with pytest.raises(ValueError, match=r"other has shape \(2,\), expected \(3,\)"):
        sums.update(F[:, :2], P[:, :2])
    with pytest.raises(TypeError, match="different array libraries"):
        sums.merge(ErrorSums().update(torch.tensor(F), torch.tensor(P)))
    with pytest.raises(ValueError, match="no variance"):
        ErrorSums().update(F[:1], P[:1]).fvu()
