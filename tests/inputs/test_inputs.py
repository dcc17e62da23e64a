"""Gaussians and the streaming accumulator that estimates them."""

import jax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.backends import (
    JAX32,
    JAX64,
    NUMPY32,
    NUMPY64,
    TORCH32,
    Backend,
    assert_close,
    assert_same_kind,
    backends,
    make,
    to_numpy,
)

import mlpoly as mp
from mlpoly.arrays import widen


def test_singular_covariances_are_welcome(rng):
    for rank in range(4):
        a = rng.standard_normal((4, rank))
        assert_close(mp.Gaussian(np.zeros(4), a @ a.T).root, mp.Gaussian(np.zeros(4), a @ a.T).root.T)
    x = rng.standard_normal((3, 40)).astype(np.float32)  # rank 2 in 40 dimensions, rounded to float32
    centred = x - x.mean(axis=0)
    assert mp.Gaussian(x.mean(axis=0), centred.T @ centred / 3).dim == 40


def test_from_samples_is_the_population_covariance(backend, rng):
    x = make(rng.standard_normal((50, 4)) @ rng.standard_normal((4, 4)) + 3, backend)
    gaussian = mp.Gaussian.from_samples(x)
    summed = widen(x)  # float64, but for JAX without it
    assert_same_kind(gaussian.mean, summed)
    assert_same_kind(gaussian.cov, summed)
    single = str(summed.dtype).endswith("float32")
    assert_close(gaussian.mean, to_numpy(x).mean(axis=0), 1e-5 if single else 1e-12)
    assert_close(gaussian.cov, np.cov(to_numpy(x), rowvar=False, bias=True), 1e-5 if single else 1e-12)
    assert_close(gaussian.cov, to_numpy(gaussian.cov).T, 1e-6 if single else 1e-15)
    assert_same_kind(gaussian.sample(3), x)


def test_shrinkage_by_a_number(rng):
    x = rng.standard_normal((20, 3)) @ np.diag([1.0, 2.0, 3.0])
    cov, streamed = np.cov(x, rowvar=False, bias=True), mp.MomentAccumulator(3).update(x[:5]).update(x[5:])
    for share in (0, 0.25, 1, np.float32(0.5)):
        want = (1 - share) * cov + share * np.trace(cov) / 3 * np.eye(3)
        assert_close(mp.Gaussian.from_samples(x, shrinkage=share).cov, want, 1e-15)
        assert_close(streamed.gaussian(shrinkage=share).cov, want, 1e-14)


def oas_share(x):
    """Equation 23 of Chen, Wiesel, Eldar and Hero (2010), written out."""
    n, p = x.shape
    s = np.cov(x, rowvar=False, bias=True)
    up = (1 - 2 / p) * np.trace(s @ s) + np.trace(s) ** 2
    down = (n + 1 - 2 / p) * (np.trace(s @ s) - np.trace(s) ** 2 / p)
    return min(up / down, 1.0)


@backends(NUMPY64, TORCH32, JAX64)
@pytest.mark.parametrize(("n", "d"), [(5, 8), (30, 4), (200, 20), (40, 2)])
def test_oas_is_the_published_formula(backend, n, d, rng):
    x = make(rng.standard_normal((n, d)) * np.arange(1, d + 1), backend)
    share, cov = oas_share(to_numpy(x)), np.cov(to_numpy(x), rowvar=False, bias=True)
    want = (1 - share) * cov + share * np.trace(cov) / d * np.eye(d)
    got = mp.Gaussian.from_samples(x, shrinkage="oas").cov
    assert_same_kind(got, widen(x))
    assert_close(got, want, 3 * backend.tolerance)


def test_oas_of_one_sample_and_of_a_sphere_is_finite():
    assert not np.any(mp.Gaussian.from_samples(np.ones((1, 3)), shrinkage="oas").cov)
    sphere = np.concatenate([np.eye(3), -np.eye(3)])
    assert_close(mp.Gaussian.from_samples(sphere, shrinkage="oas").cov, np.eye(3) / 3)


@given(
    n=st.integers(1, 60),
    d=st.integers(1, 5),
    cuts=st.lists(st.integers(0, 60)),
    offset=st.sampled_from([0.0, 1.0, 1e6]),
)
def test_any_batching_equals_one_shot(n, d, cuts, offset):
    x = np.random.default_rng([n, d]).standard_normal((n, d)) + offset
    acc = mp.MomentAccumulator(d)
    assert acc.update(np.zeros((0, 2, d))).count == 0  # leading axes are samples
    for batch in np.split(x, sorted(min(c, n) for c in cuts)):  # empty ones too
        assert acc.update(batch) is acc
    assert acc.count == n
    got = acc.gaussian()
    assert_close(got.mean, x.mean(axis=0), 1e-14)
    exact = x - offset  # subtracting the offset is exact enough that this is the covariance to all digits
    want = np.cov(exact, rowvar=False, bias=True).reshape(d, d)
    # A mean of 1e6 is known to 1e-10; the covariance feels its square, and the rounding of x itself once.
    assert_close(got.cov, want, 1e-12 if offset < 1e6 else 1e-9)


@given(sizes=st.lists(st.integers(0, 20), min_size=1, max_size=6), order=st.randoms(use_true_random=False))
def test_any_merging_equals_one_shot(sizes, order):
    batches = [np.random.default_rng(i).standard_normal((n, 3)) + i for i, n in enumerate(sizes)]
    parts = [mp.MomentAccumulator(3).update(b) for b in batches]
    order.shuffle(parts)
    before = [(part.count, part.gaussian().fingerprint if part.count else "") for part in parts]
    total = mp.MomentAccumulator(3)
    for part in parts:
        assert total.merge(part) is total
    x = np.concatenate(batches)
    assert total.count == len(x)
    if len(x):
        assert_close(total.gaussian().mean, x.mean(axis=0))
        assert_close(total.gaussian().cov, np.cov(x, rowvar=False, bias=True))
    assert before == [(part.count, part.gaussian().fingerprint if part.count else "") for part in parts]


@backends(NUMPY32, TORCH32, JAX64, JAX32)
def test_a_large_mean_costs_no_digits(backend, rng):
    """Batches of float32 with mean 1e4 and unit variance: squares of 1e8 would leave one digit of the variance."""
    x = make(rng.standard_normal((4000, 3)) @ np.array([[1, 0.5, 0], [0, 1, -0.5], [0, 0, 1]]) + 1e4, backend)
    exact = to_numpy(x)
    acc = mp.MomentAccumulator(3)
    for start in range(0, 4000, 250):
        acc.update(x[start : start + 250])
    got = acc.gaussian()
    assert_same_kind(got.cov, widen(x))
    assert_close(got.mean, exact.mean(axis=0), 1e-6 if backend is JAX32 else 1e-12)
    # Sums in float64 know the mean to 1e-12. JAX without x64 has none: a mean of 1e4 is then known to 1e-3, and the
    # square of that is what the covariance feels.
    assert_close(got.cov, np.cov(exact, rowvar=False, bias=True), 1e-4 if backend is JAX32 else 1e-11)


def test_the_first_batch_decides_the_dtype_of_samples(rng):
    acc = mp.MomentAccumulator(2).update(rng.standard_normal((4, 2)).astype(np.float32))
    merged = mp.MomentAccumulator(2).merge(acc)
    for gaussian in (acc.update(rng.standard_normal((4, 2))).gaussian(), merged.gaussian()):
        assert gaussian.mean.dtype == gaussian.cov.dtype == np.float64
        assert gaussian.sample(2).dtype == np.float32


def test_estimated_gaussians_pass_through_jit_with_the_dtype_of_their_samples(rng):
    x = rng.standard_normal((6, 2))
    with JAX64.active():
        gaussian = jax.jit(mp.Gaussian.from_samples)(make(x, JAX32))
        assert (gaussian.cov.dtype, gaussian.sample(2).dtype) == (np.float64, np.float32)
        assert jax.jit(lambda g: g.sample(2))(gaussian).dtype == np.float32


def test_an_accumulator_continues_from_moments(backend, rng):
    rows = rng.normal(size=(50, 3)) + 4
    first = mp.MomentAccumulator(3).update(make(rows[:20], backend))
    again = mp.MomentAccumulator.from_moments(first.count, first.mean, first.scatter)
    merged = again.update(make(rows[20:], backend)).gaussian()
    assert_close(merged.mean, rows.mean(0), backend.tolerance)
    assert_close(merged.cov, np.cov(rows, rowvar=False, bias=True), backend.tolerance)
    with pytest.raises(ValueError, match="scatter has shape"):
        mp.MomentAccumulator.from_moments(2, first.mean, first.mean)
    with pytest.raises(ValueError, match="count must be at least 1"):
        mp.MomentAccumulator.from_moments(0, first.mean, first.scatter)


@pytest.mark.parametrize("asked", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_moments_from_elsewhere_come_in_the_dtype_asked_for_but_never_in_16_bits(asked):
    mean, scatter = torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    gaussian = mp.MomentAccumulator.from_moments(3, mean, scatter, asked).gaussian()
    assert gaussian.cov.dtype == torch.promote_types(asked, torch.float32)
    large = mp.MomentAccumulator.from_moments(1, mean, 1e60 * scatter, asked)
    if asked == torch.float64:
        assert float(large.gaussian().cov[0, 0]) == 1e60
    else:
        with pytest.raises(ValueError, match=r"too large: their squares overflow torch\.float32"):
            large.gaussian()


@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(300.0, torch.float16), (1e-4, torch.float16), (1e30, torch.bfloat16), (1e20, torch.float32)],
    ids=str,
)
def test_moments_of_narrow_data_neither_overflow_nor_vanish(scale, dtype, rng):
    """Squares leave the range of the data's dtype long before the data do."""
    x = torch.tensor(scale * rng.standard_normal((1000, 2))).to(dtype)
    wide = x.double().numpy()
    gaussian = mp.Gaussian.from_samples(x)
    assert_close(gaussian.cov, np.cov(wide, rowvar=False, bias=True))
    assert_same_kind(gaussian.sample(5), x)
    assert torch.all(torch.isfinite(gaussian.sample(5)))
    net = mp.MLP(torch.eye(2).to(dtype) / scale, activation="gelu")
    poly = mp.fit(net, gaussian, degree=2)
    assert poly.series.plain.dtype == torch.float32
    assert mp.fvu(net, poly, x).total < 0.05  # of gelu at unit variance: 0.02


def test_samples_whose_squares_overflow_float64_are_refused():
    large = 1e160 * np.eye(2)
    with pytest.raises(ValueError, match=r"too large: their squares overflow float64\. Divide them"):
        mp.Gaussian.from_samples(large)
    with pytest.raises(ValueError, match="too large"):
        mp.GaussianMixture.from_labels(large, [0, 0])
    with JAX32.active(), pytest.raises(ValueError, match="overflow float32"):
        mp.Gaussian.from_samples(make(1e30 * np.eye(2), JAX32))
    acc = mp.MomentAccumulator(2).update(np.eye(2))
    with pytest.raises(ValueError, match="too large"):
        acc.update(large)
    assert acc.count == 2  # as before


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_moments_of_single_precision_data_keep_small_variances(library, rng):
    """One direction is 10^4 times as wide as the seven that the network reads."""
    x = rng.standard_normal((5000, 1)) * 1000 + rng.standard_normal((5000, 8)) * 0.1
    W = 5 * rng.standard_normal((16, 8))
    W -= W.mean(axis=1, keepdims=True)
    W2 = rng.standard_normal((3, 16))

    def error(dtype):
        kind = Backend(library, dtype)
        net, data = mp.MLP(make(W, kind), None, make(W2, kind), None, "gelu"), make(x, kind)
        poly = mp.fit(net, mp.Gaussian.from_samples(data), degree=3)
        assert_same_kind(poly.series.plain, net.W1)
        return float(mp.fvu(net, poly, data).total)

    assert error("float32") == pytest.approx(error("float64"), rel=1e-3)  # the data, at 1000, are rounded by 3e-5


def test_gradients_flow_through_the_accumulator():
    x = torch.randn(10, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)

    def moments(x):
        gaussian = mp.MomentAccumulator(3).update(x[:4]).update(x[4:]).gaussian(shrinkage="oas")
        return gaussian.mean, gaussian.cov

    assert torch.autograd.gradcheck(moments, x, fast_mode=True)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_integers_are_data(library, rng):
    whole = rng.integers(0, 255, (30, 3))
    x = whole.astype(np.uint8) if library == "numpy" else torch.tensor(whole)
    found = mp.Gaussian.from_samples(x)
    assert str(found.mean.dtype).endswith("float64")
    assert_close(found.mean, whole.mean(axis=0), 1e-14)
    assert_close(found.cov, np.cov(whole.T, bias=True), 1e-13)
    net = mp.MLP(np.eye(3)) if library == "numpy" else mp.MLP(torch.eye(3).double())
    assert_close(net(x), whole.astype(float), 0.0)
    poly = mp.fit(net, mp.Gaussian.standard(3), 1)
    assert_close(poly(x), poly(found.mean * 0 + x), 0)
