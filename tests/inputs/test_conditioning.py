"""Some inputs known: the distribution of the others, against textbook formulas, Bayes by hand and exact identities."""

import math
import tracemalloc

import mpmath
import numpy as np
import pytest
from scipy.stats import norm
from support.backends import NUMPY32, TORCH32, TORCH64, assert_close, assert_same_kind, backends, in_library, to_numpy
from support.inputs import covariance, gaussian, mixture
from support.mistakes import assert_explained, mistakes

import mlpoly as mp
from mlpoly.inputs.conditioning import Given, posterior

G = gaussian(5, 4, ridge=0.2)
NAMED = mp.Gaussian(G.mean, G.cov, names=("a", "b", "c", "d"))


def by_precision(g, known, values):
    """Mean and covariance of the others from the blocks of the inverse covariance."""
    others = [i for i in range(g.dim) if i not in known]
    P = np.linalg.inv(g.covariance)
    cov = np.linalg.inv(P[np.ix_(others, others)])
    return g.mean[others] - cov @ P[np.ix_(others, known)] @ (values - g.mean[known]), cov


@pytest.mark.parametrize("known", [[0], [3, 1], [0, 1, 2], [2, 3, 0]])
def test_gaussian_against_the_precision_matrix(known):
    values = np.random.default_rng(0).standard_normal(len(known))
    found = G.condition(dict(zip(known, values, strict=True)))
    mean, cov = by_precision(G, known, values)
    assert_close(found.mean, mean, 1e-12)
    assert_close(found.cov, cov, 1e-12)
    mp.Gaussian(found.mean, found.cov)  # a covariance by all checks


@pytest.mark.parametrize("cov", [None, np.array([1.0, 4.0, 0.25])])
def test_independent_inputs_tell_nothing(cov):
    g = mp.Gaussian(np.array([1.0, 2.0, 3.0]), cov)
    found = g.condition({1: -7.0})
    np.testing.assert_array_equal(found.mean, [1.0, 3.0])
    np.testing.assert_allclose(found.covariance, np.diag(np.ones(2) if cov is None else cov[[0, 2]]), rtol=1e-15)
    assert not found.neutral


@pytest.mark.parametrize("rank", [4, 2])
@pytest.mark.parametrize("known", [[1], [3, 0], [0, 1, 2]])
def test_variance_is_explained_or_left(rank, known):
    """Cov = Cov(E[x | x_S]) + E Cov(x | x_S), and nothing is left of the known inputs."""
    g = gaussian(2, 4, rank=rank)
    given = Given(g, np.array(known))
    assert given.factor.shape == (4, min(rank, len(known)))
    # Whitening divides rounding errors by the root of the smallest eigenvalue that is kept; factor and w have it twice.
    # Each number is a sum over four inputs, with about ten roundings for each.
    inner = g.cov[np.ix_(known, known)]
    values = np.linalg.eigvalsh(inner / np.sqrt(np.outer(inner.diagonal(), inner.diagonal())))
    rounding = 40 * np.finfo(float).eps / values[-given.rank]
    assert_close(given.factor @ given.factor.T + given.left, g.cov, rounding)
    assert not given.left[known].any()
    w = np.random.default_rng(1).standard_normal((5, given.factor.shape[1]))
    x = g.mean + w @ given.factor.T
    assert_close(given.coordinates(x[:, known]), w, rounding)  # w is recovered from x_S
    assert_close(given.mean(x[:, known])[:, known], x[:, known], rounding)
    assert given.possible(x[:, known]).all()


def test_singular_covariance_determines_the_others():
    rng = np.random.default_rng(3)
    A, mean = rng.standard_normal((5, 2)), rng.standard_normal(5)
    g, x = mp.Gaussian(mean, A @ A.T), mean + rng.standard_normal((1, 2)) @ A.T
    for known in ([0, 3], [1, 2, 4], [0, 1, 2, 3]):
        others = [i for i in range(5) if i not in known]
        found = g.condition({i: x[0, i] for i in known})
        assert_close(found.mean, x[0, others], 1e-11)
        assert not found.cov.any()
    with pytest.raises(
        ValueError, match="known has values that cannot occur under these inputs: the known inputs determine"
    ):
        g.condition({1: x[0, 1], 2: x[0, 2], 4: x[0, 4] + 0.1})


def test_almost_singular_covariances_stay_covariances():
    """Correlations of 1 - 1e-9 and scales of 1e-6 to 1e6; against the precision matrix in exact arithmetic."""
    scale = np.array([1e-6, 1.0, 1e6])
    rho = np.array([[1, 1 - 1e-9, 0.5], [1 - 1e-9, 1, 0.5], [0.5, 0.5, 1]])
    g = mp.Gaussian(np.zeros(3), rho * scale * scale[:, None])
    found = g.condition({0: 1e-6})
    # 1 - rho^2 for the second, whose rounding is that of the correlation itself
    assert found.cov[0, 0] == pytest.approx(1 - (1 - 1e-9) ** 2, abs=1e-15)
    assert found.cov[1, 1] == pytest.approx(0.75e12, rel=1e-13)
    assert_close(found.mean / scale[1:], np.array([1 - 1e-9, 0.5]), 1e-14)


def test_inputs_without_variance():
    cov = np.zeros((3, 3))
    cov[1:, 1:] = covariance(np.random.default_rng(0), 2)
    g = mp.Gaussian(np.array([2.5, 0.0, 1.0]), cov)
    found, without = g.condition({0: 2.5, 1: 1.0}), mp.Gaussian(g.mean[1:], cov[1:, 1:]).condition({0: 1.0})
    assert_close(found.mean, without.mean, 1e-14)
    assert_close(found.cov, without.cov, 1e-14)
    for known in ({0: 2.6}, {1: 1.0, 0: 0.0}):
        with pytest.raises(ValueError, match=r"input 0 does not vary; its only value is 2\.5"):
            g.condition(known)


def test_names_stay_with_their_inputs():
    found = NAMED.condition({"c": 0.5, 0: 1.0})
    assert found.names == ("b", "d")
    assert_close(found.mean, G.condition({2: 0.5, 0: 1.0}).mean, 1e-15)
    assert_close(found.mean, G.condition({-2: 0.5, -4: 1.0}).mean, 1e-15)
    mix = mixture(3)
    mix = mp.GaussianMixture(mix.weights, mix.means, mix.covs, names=("a", "b", "c"))
    assert mix.condition({"b": 0.0}).names == ("a", "c")


def density(g, known, x):
    cov = g.covariance[np.ix_(known, known)]
    u = x - g.mean[known]
    return math.exp(-0.5 * u @ np.linalg.solve(cov, u)) / math.sqrt(np.linalg.det(2 * np.pi * cov))


@pytest.mark.parametrize("known", [[0], [2, 1], [0, 1, 3]])
def test_mixture_against_bayes(known):
    mix, values = mixture(4), np.array([0.4, -0.9, 1.3])[: len(known)]
    found = mix.condition(dict(zip(known, values, strict=True)))
    parts = [w * density(g, known, values) for w, g in zip(mix.weights, mix.components, strict=True)]
    assert_close(found.weights, np.array(parts) / sum(parts), 1e-12)
    for mine, whole in zip(found.components, mix.components, strict=True):
        mean, cov = by_precision(whole, known, values)
        assert_close(mine.mean, mean, 1e-12)
        assert_close(mine.covariance, cov, 1e-12)


def test_components_of_different_rank():
    """A component in which x_0 is fixed has an infinite density there, and none elsewhere."""
    covs = np.stack([np.eye(2), np.diag([0.0, 4.0])])
    mix = mp.GaussianMixture(np.array([0.9, 0.1]), np.array([[0.0, 0.0], [1.5, 7.0]]), covs)
    on, off = mix.condition({0: 1.5}), mix.condition({0: 1.4})
    assert len(on.components) == len(off.components) == 1
    assert (on.mean[0], on.covariance[0, 0]) == (7.0, 4.0)
    assert (off.mean[0], off.covariance[0, 0]) == (0.0, 1.0)
    given = [Given(g, np.array([0])) for g in mix.components]
    np.testing.assert_array_equal(
        posterior(mix.weights, given, np.array([[1.5], [1.4], [0.0]])), [[0, 1], [1, 0], [1, 0]]
    )


def test_components_in_the_same_line():
    """Two of rank one along the same line are weighed by their densities on it."""
    along = np.array([1.0, 2.0, -3.0])
    covs = np.stack([np.outer(along, along) * s**2 for s in (1.0, 3.0)])
    mix = mp.GaussianMixture(np.array([0.3, 0.7]), np.zeros((2, 3)), covs)
    weights = np.array([0.3, 0.7]) * np.exp(-0.5 / np.array([1.0, 9.0])) / np.array([1.0, 3.0])
    for known in ({1: 2.0}, {0: 1.0, 1: 2.0}, {2: -3.0, 0: 1.0}):
        found = mix.condition(known)
        assert_close(found.weights, weights / weights.sum(), 1e-13)
        assert_close(found.means, np.tile([v for i, v in enumerate(along) if i not in known], (2, 1)), 1e-13)
    with pytest.raises(ValueError, match="no component of the mixture can have"):
        mp.GaussianMixture(np.array([0.5, 0.5]), np.array([[0.0, 0], [1, 0]]), np.zeros((2, 2, 2))).condition({0: 0.5})


@backends(NUMPY32, TORCH32, TORCH64)
@pytest.mark.parametrize("inputs", [G, mixture(4)], ids=["gaussian", "mixture"])
def test_libraries_and_precisions(inputs, backend):
    there = in_library(inputs, backend)
    found, expected = there.condition({1: 0.5, 3: -0.25}), inputs.condition({1: 0.5, 3: -0.25})
    assert_same_kind(found.mean, there.mean)
    assert_same_kind(found.sample(3), there.sample(3))
    assert_close(found.mean, expected.mean, 20 * backend.tolerance)
    assert_close(found.covariance, expected.covariance, 20 * backend.tolerance)
    assert_close(found.weights, expected.weights, 20 * backend.tolerance)


def test_singular_in_single_precision():
    """What is singular in float64 is so in float32, where rounding makes eigenvalues of 1e-8."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((4, 2)).astype(np.float32)
    g, x = mp.Gaussian(np.zeros(4, dtype=np.float32), A @ A.T), A @ rng.standard_normal(2).astype(np.float32)
    found = g.condition({0: x[0], 1: x[1], 2: x[2]})
    assert found.mean.dtype == np.float32
    assert to_numpy(found.mean)[0] == pytest.approx(float(x[3]), abs=1e-4)
    assert float(found.cov[0, 0]) <= 1e-5


def test_gradients_flow_to_the_covariance():
    torch = pytest.importorskip("torch")

    def moments(mean, root):
        found = mp.Gaussian(mean, root @ root.T).condition({1: 2.0})
        return found.mean, found.cov

    leaves = [torch.tensor(a, requires_grad=True) for a in (G.mean, np.linalg.cholesky(G.cov))]
    assert torch.autograd.gradcheck(moments, leaves, eps=1e-5, atol=1e-7, rtol=1e-6, fast_mode=True)


@mistakes(
    [
        ("nothing", lambda: G.condition({}), TypeError, "known must be a mapping", r"such as \{0: 1.5\}"),
        ("a list", lambda: G.condition([0, 1]), TypeError, "known must be a mapping"),
        ("all", lambda: G.condition(dict.fromkeys(range(4), 0.0)), ValueError, "all 4 inputs", "leave some out"),
        ("index", lambda: G.condition({4: 0.0}), ValueError, "known has the index 4", "from 0 to 3"),
        ("low index", lambda: G.condition({-5: 0.0}), ValueError, "known has the index -5", "from 0 to 3"),
        ("twice", lambda: G.condition({1: 0.0, -3: 0.0}), ValueError, "known has input 1 more than once"),
        ("name and index", lambda: NAMED.condition({1: 0.0, "b": 0.0}), ValueError, "input 1 more than once"),
        ("unknown name", lambda: NAMED.condition({"x": 0.0}), ValueError, "known has 'x'", "names are a, b, c, d"),
        ("no names", lambda: G.condition({"a": 0.0}), ValueError, "which have no names", "use indices"),
        ("a number", lambda: G.condition({0.5: 0.0}), TypeError, "indices or names of inputs, got 0.5"),
        ("true", lambda: G.condition({True: 0.0}), TypeError, "indices or names of inputs, got True"),
        ("NaN", lambda: G.condition({0: math.nan}), ValueError, "NaN or infinite", "leave these inputs out"),
        ("vector", lambda: G.condition({0: np.zeros(3)}), TypeError, "known"),
        ("text", lambda: G.condition({0: "a"}), TypeError, "known"),
    ]
)  # fmt: skip
def test_mistakes(act, exception, patterns):
    assert_explained(act, exception, patterns)


@pytest.mark.parametrize("far", [1e3, 1e9, 1e12, 1e100, 1e155, 1e200, 1e300])
@pytest.mark.parametrize("sign", [-1, 1])
def test_weights_of_a_mixture_far_out(far, sign):
    """Against Bayes' rule in 700 digits: the widest component wins, of equally wide ones that with the nearest mean.

    The third and fourth components have one covariance of the known input, and means 1e-9 apart: their ratio is
    determined even where all squares of the known value are the same float.
    """
    means = np.array([[0.0, 1.0], [-1.0, 2.0], [0.5, 3.0], [0.5 + 2**-30, -4.0]])
    covs = np.stack([[[v, 0.3], [0.3, 1.0]] for v in (1.0, 1.5, 4.0, 4.0)])
    covs[3, 1, 1] = 2.0
    mix = mp.GaussianMixture(np.array([0.5, 0.2, 0.1, 0.2]), means, covs)
    x = sign * far
    with mpmath.workdps(700):
        logs = [
            mpmath.log(w) - mpmath.log(v) / 2 - (mpmath.mpf(x) - mpmath.mpf(m)) ** 2 / (2 * mpmath.mpf(v))
            for w, m, v in zip(mix.weights, means[:, 0], covs[:, 0, 0], strict=True)
        ]
        parts = [mpmath.exp(a - max(logs)) for a in logs]
        exact = np.array([float(a / sum(parts)) for a in parts])
    found = mix.condition({0: x})
    kept = exact > 0
    # The exponent of the ratio, up to about 1e9 * 2^-30 / 4 before one weight is nothing, has relative rounding 1e-15.
    assert_close(found.weights, exact[kept], 1e-12)
    want = sum(w * (m[1] + 0.3 / v[0, 0] * (x - m[0])) for w, m, v in zip(exact, means, covs, strict=True))
    net = mp.MLP(np.eye(2), None, np.array([[0.0, 1.0]]), None, "identity")
    np.testing.assert_allclose(mp.conditional_mean(net, mix, 0)(np.array([[x]]))[0, 0], want, rtol=1e-12)


def test_a_diagonal_covariance_stays_diagonal():
    """With 20 000 inputs a matrix would have 3.2 GB; the largest arrays here are those of the network."""
    d, rng = 20_000, np.random.default_rng(0)
    variances = rng.uniform(0.5, 2, (2, d))
    variances[:, 7] = 0.0
    mix = mp.GaussianMixture(np.array([0.4, 0.6]), np.zeros((2, d)), variances, shared=False)
    net = mp.MLP(rng.standard_normal((3, d)) / d**0.5, rng.standard_normal(3), np.eye(3), None, "relu")
    x = rng.standard_normal((2, 3))
    tracemalloc.start()
    found = [inputs.condition({1: 0.5, 3: -1.0}) for inputs in (mix.components[0], mix)]
    means = [mp.conditional_mean(net, inputs, [1, 3, 9])(x) for inputs in (mix.components[0], mix)]
    mp.sensitivity(net, mix.components[0], groups={"some": [1, 3, 9]})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * 8 * d
    np.testing.assert_array_equal(found[0].cov, np.delete(variances[0], [1, 3]))
    assert all(g.cov.shape == (d - 2,) for g in found[1].components)
    with pytest.raises(ValueError, match="input 7 does not vary"):
        mix.components[0].condition({7: 1.0})
    # The same without all but the first twenty inputs, whose covariance may be a matrix.
    few = mp.MLP(net.W1[:, :20], net.b1, np.eye(3), None, "relu")
    small = [
        mp.GaussianMixture(mix.weights, np.zeros((2, 20)), c)
        for c in (np.stack([np.diag(v[:20]) for v in variances]), variances[:, :20])
    ]
    for inputs in small:
        assert_close(mp.conditional_mean(few, inputs, [1, 3, 9])(x), _by_units(few, mix, x), 1e-12)
        assert_close(inputs.condition({1: 0.5, 3: -1.0}).weights, found[1].weights, 1e-12)
    assert means[1].shape == (2, 3)
    few = mp.MLP(30 * few.W1, net.b1, np.eye(3), None, "relu")  # units that are sometimes on
    shares = [mp.sensitivity(few, inputs.components[0], groups={"some": [1, 3]}) for inputs in small]
    assert_close(shares[1].first, shares[0].first, 1e-12)
    assert_close(shares[1].total, shares[0].total, 1e-12)


def _by_units(net, mix, x):
    """E[relu(y)] of units that are normal given inputs 1, 3 and 9, by hand."""
    known, free = [1, 3, 9], np.setdiff1d(np.arange(net.dim_in), [1, 3, 9])
    variances = [g.cov[: net.dim_in] for g in mix.components]
    weights = np.stack(
        [w * np.prod(norm.pdf(x, 0, np.sqrt(v[known])), axis=1) for w, v in zip(mix.weights, variances, strict=True)]
    )
    total = 0.0
    for w, v in zip(weights / weights.sum(0), variances, strict=True):
        mean = x @ net.W1[:, known].T + net.b1
        spread = np.sqrt(net.W1[:, free] ** 2 @ v[free])
        total = total + w[:, None] * (mean * norm.cdf(mean / spread) + spread * norm.pdf(mean / spread))
    return total
