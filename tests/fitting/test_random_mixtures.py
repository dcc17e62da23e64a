"""Random mixtures as far out as users may come: tiny weights, large distances, odd units, low ranks, every degree.

Three properties can fail: the error is that of the best polynomial as far as numbers of that precision can hold it; it
does not rise with the degree; and it does not depend on the units of the inputs.
"""

import math
from dataclasses import dataclass, replace

import mpmath
import numpy as np
import pytest
from support.backends import JAX32, NUMPY32, NUMPY64, TORCH32, backends, in_library, make, to_numpy
from support.inputs import grid, monomials
from support.networks import network

import mlpoly as mp
from mlpoly.fitting.samples.neuronwise import SampleFit

# None that oscillates: far out, the rounding of the mean decides on its phase.
ACTIVATIONS = ("relu", "gelu", "tanh", "silu", "sigmoid", "erf", "square", "softplus")
# Relative error of a term of the polynomial, in roundings. The fit reckons with 4 for each, and leaves out what its own
# linear algebra cannot tell from nothing, which is up to 10 roundings of a sum of 13 terms.
ROUNDINGS = 200


def random_mixture(rng, d):
    """Weights (c,), means (c, d) and covariances (c, d, d)."""
    c = int(rng.integers(1, 5))
    weights = 10.0 ** rng.uniform(-8, 0, c)
    weights /= weights.sum()
    distance = 10.0 ** rng.uniform(-1, 4)
    means = distance * rng.standard_normal((c, d))
    covs = []
    for _ in range(c):
        rank = int(rng.integers(0, d + 1)) if rng.random() < 0.3 else d
        factor = rng.standard_normal((d, rank)) * 10.0 ** rng.uniform(-1, 1)
        covs.append(factor @ factor.T)
    return weights, means, np.stack(covs)


def fifth_power(y):
    return y * y * y * y * y


def random_net(rng, kind, d, h):
    # Polynomials of higher degree than those fitted at first, so that quadrature on the grid is exact.
    activation = ("square", "cube", fifth_power)[rng.integers(3)]
    return network(kind, activation, d, h, 1, seed=rng, scale=math.sqrt(d), up=math.sqrt(d))


def placed(net, mixture, backend):
    """Network and mixture in an array library and precision."""
    weights, means, covs = mixture
    weights = np.asarray(weights, dtype=backend.dtype).astype(float)
    parts = (weights / weights.sum(), means, covs)
    return in_library(net, backend), mp.GaussianMixture(*(make(a, backend) for a in parts))


@dataclass
class Line:
    """A network of one neuron on one input, and the components of its preactivation, in mpmath."""

    weights: list
    means: list
    stds: list
    targets: list  # Hermite coefficients of the activation under each component, high degrees too

    @classmethod
    def of(cls, net, inputs, degree):
        w = mpmath.mpf(float(to_numpy(net.W1)[0, 0]))
        means = [w * float(m) for m in to_numpy(inputs.means)[:, 0]]
        stds = [abs(w) * mpmath.sqrt(float(s)) for s in to_numpy(inputs.covs)[:, 0, 0]]
        series = mp.activations.hermite_coefficients(
            net.activation, np.array(means, float), np.array(stds, float), degree
        )
        targets = [
            [mpmath.mpf(float(v)) * mpmath.sqrt(mpmath.factorial(k)) for k, v in enumerate(column)]
            for column in series.T
        ]
        return cls([mpmath.mpf(float(v)) for v in to_numpy(inputs.weights)], means, stds, targets)

    def columns(self, centre, scale, degree):
        """he_k((y - centre) / scale), k = 0..degree, in the components' own orthonormal polynomials, stacked."""
        blocks = []
        for mean, std, weight in zip(self.means, self.stds, self.weights, strict=True):
            offset, slope = (mean - centre) / scale, std / scale
            made, before = [[mpmath.mpf(1)] + [mpmath.mpf(0)] * degree], [mpmath.mpf(0)] * (degree + 1)
            for k in range(degree):
                last = made[-1]
                new = []
                for j in range(degree + 1):
                    down = mpmath.sqrt(j) * last[j - 1] if j else 0
                    up = mpmath.sqrt(j + 1) * last[j + 1] if j < degree else 0
                    new.append(
                        (offset * last[j] + slope * (down + up) - mpmath.sqrt(k) * before[j]) / mpmath.sqrt(k + 1)
                    )
                before = last
                made.append(new)
            blocks.append((mpmath.sqrt(weight), made))
        return blocks

    def problem(self, centre, scale, degree):
        """Matrix and right-hand side of least squares over the components."""
        blocks = self.columns(centre, scale, degree)
        rows = len(blocks) * (degree + 1)
        A, f = mpmath.matrix(rows, degree + 1), mpmath.matrix(rows, 1)
        for c, (root, made) in enumerate(blocks):
            for j in range(degree + 1):
                f[c * (degree + 1) + j] = root * self.targets[c][j]
                for k in range(degree + 1):
                    A[c * (degree + 1) + j, k] = root * made[k][j]
        return A, f


def error_and_optimum(line, poly, degree, rounding):
    """Squared errors that degree <= n can influence: the polynomial's, the least one with rounding reckoned in, what
    rounding may do to the polynomial, and that of no polynomial at all.
    """
    centre, scale = (mpmath.mpf(float(to_numpy(a)[0])) for a in (poly.units.shifts, poly.units.scales))
    A, f = line.problem(centre, scale or mpmath.mpf(1), degree)
    x = mpmath.matrix([mpmath.mpf(float(v)) for v in to_numpy(poly.series.plain)[:, 0]])
    lengths = [mpmath.norm(A[:, k]) for k in range(degree + 1)]
    unit = mpmath.matrix(A.rows, degree + 1)
    for k in range(degree + 1):
        for i in range(A.rows):
            unit[i, k] = A[i, k] / lengths[k] if lengths[k] else 0
    # 60 digits outlast the square of a condition number of at most 1 / rounding.
    cost = (ROUNDINGS * mpmath.mpf(rounding)) ** 2
    y = mpmath.cholesky_solve(unit.T * unit + cost * mpmath.eye(degree + 1), unit.T * f)
    optimum = mpmath.norm(unit * y - f) ** 2 + cost * mpmath.norm(y) ** 2
    price = cost * sum((lengths[k] * x[k]) ** 2 for k in range(degree + 1))
    return mpmath.norm(A * x - f) ** 2, optimum, price, mpmath.norm(f) ** 2


def one_input(rng, backend):
    """One neuron without readout, so that the polynomial's series is all there is to judge, in any units."""
    units = 10.0 ** rng.uniform(-6, 6)
    weights, means, covs = random_mixture(rng, 1)
    net = mp.MLP(rng.choice([-1.0, 1.0], (1, 1)) / units, None, None, None, str(rng.choice(ACTIVATIONS)))
    return placed(net, (weights, means * units, covs * units**2), backend)


def check_line(seed, backend):
    """Every degree up to 12: as good as the best that these numbers can hold, to 1 %, and no worse than a lower one."""
    rng = np.random.default_rng(seed)
    net, inputs = one_input(rng, backend)
    rounding = float(np.finfo(backend.dtype).eps)
    top = 12
    with mpmath.workdps(60):
        line = Line.of(net, inputs, top)
        before = mpmath.inf
        for degree in range(top + 1):
            poly = mp.fit(net, inputs, degree, method="neuronwise")
            error, optimum, price, size = error_and_optimum(line, poly, degree, rounding)
            # Moments and coefficients of the activation come with a few roundings of their own, and may underflow.
            noise = (300 * rounding) ** 2 * size + float(np.finfo(backend.dtype).tiny)
            assert error <= 1.01 * optimum + noise, f"degree {degree}: {float(error)} against {float(optimum)}"
            # What a degree adds to the components' own optima counts as error of the lower degrees.
            whole = error + sum(
                (w * t**2 for w, ts in zip(line.weights, line.targets, strict=True) for t in ts[degree + 1 :]),
                mpmath.mpf(0),
            )
            assert whole <= 1.01 * before + noise, f"degree {degree} is worse than {degree - 1}"
            before = min(before, whole + price)


@pytest.mark.parametrize("seed", range(6))
@backends(NUMPY64, TORCH32)
def test_one_input(seed, backend):
    check_line(seed, backend)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_one_input_at_length(block, backend):
    for seed in range(100 + 4 * block, 104 + 4 * block):
        check_line(seed, backend)


def check_plane(seed, backend, method, d, kind):
    """Error on the grid: not above that of plain least squares there, not rising with the degree, free of units."""
    rng = np.random.default_rng(seed)
    net, mixture = random_net(rng, kind, d, h=3), random_mixture(rng, d)
    units = 10.0 ** rng.uniform(-6, 6, d)
    weights, means, covs = mixture
    first = {"W1": net.W1 / units} if kind == "MLP" else {"W_gate": net.W_gate / units, "W_up": net.W_up / units}
    moved = placed(replace(net, **first), (weights, means * units, covs * np.outer(units, units)), backend)
    plain = placed(net, mixture, backend)
    x, w = grid(mp.GaussianMixture(*mixture), 12)
    truth = to_numpy(net(x))
    size = float(np.sum(w * truth[:, 0] ** 2))
    single = backend.dtype == "float32"
    # Samples, moments and coefficients have a few roundings each, and a polynomial of distant components is a sum of
    # large terms; the squares of these errors are below this part of the network's own square.
    noise = (3e-4 if single else 1e-9) ** 2 * size
    before = math.inf
    for degree in range(0, 7 if d == 2 else 5):
        errors = []
        for (the_net, inputs), scale in ((plain, 1.0), (moved, units)):
            poly = mp.fit(the_net, inputs, degree, method=mp.methods.Exact(0, 300) if method == "exact" else method)
            values = to_numpy(poly(make(x * scale, backend)))
            errors.append(float(np.sum(w * (values - truth)[:, 0] ** 2)))
        assert max(errors) <= 1.05 * min(errors) + noise, f"degree {degree}: units matter, {errors}"
        assert max(errors) <= 1.01 * before + noise, f"degree {degree}: {errors} after {before}"
        if method == "exact":
            best = least_squares_error(x, w, truth, degree)
            assert max(errors) <= 1.01 * best + noise, f"degree {degree}: {errors} against {best}"
            before = min(before, *errors)


def least_squares_error(x, w, truth, degree):
    """Expected squared error of plain least squares on standardised monomials; conditioning may spoil it."""
    mean = w @ x
    z = (x - mean) / np.sqrt(w @ (x - mean) ** 2 + 1e-300)
    A = monomials(z, degree) * np.sqrt(w)[:, None]
    lengths = np.linalg.norm(A, axis=0)
    lengths = np.where(lengths > 0, lengths, 1.0)
    solved = np.linalg.lstsq(A / lengths, truth[:, 0] * np.sqrt(w), rcond=1e-15)[0]
    return float(np.sum((A / lengths @ solved - truth[:, 0] * np.sqrt(w)) ** 2))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", ["exact", "neuronwise"])
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_several_inputs(seed, method, kind):
    check_plane(seed, NUMPY64, method, 2, kind)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["exact", "neuronwise"])
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@backends(NUMPY64, NUMPY32, TORCH32, JAX32)
def test_several_inputs_at_length(backend, kind, method):
    for seed in range(100, 108 if backend.library == "jax" else 130):
        check_plane(seed, backend, method, 2 + seed % 2, kind)


@pytest.mark.parametrize("outlier", [10.0, 300.0, 3000.0])
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@backends(NUMPY64, NUMPY32, TORCH32)
def test_a_fit_to_samples_is_no_worse_with_a_higher_degree(backend, kind, outlier):
    """A few samples far out, as massive activations are: the functions that are fitted differ by many orders there."""
    rng = np.random.default_rng(0)
    W, V = rng.standard_normal((2, 6, 3))
    x = rng.standard_normal((2000, 3))
    x[:8] *= outlier
    weights, x = [make(a, backend) for a in (W, V)], make(x, backend)
    if kind == "MLP":
        net = mp.MLP(weights[0], None, None, None, "gelu")
    else:
        net = mp.GLU(weights[0], None, weights[1], None, None, None, "silu")
    inputs, truth = mp.Gaussian.from_samples(x), to_numpy(net(x))
    size = np.mean(truth**2, axis=0)
    # The closed form counts as a thousandth of the samples, which a higher degree may have to make room for; sums of
    # squares, and values far out in single precision, are rounded by this part of the mean square.
    prior, noise = 1e-3 * size, (1e-8 if backend.dtype == "float64" else 1e-5) * size
    before = np.full(6, np.inf)
    for degree in range(13):
        poly = SampleFit(net, mp.fit(net, inputs, degree)).update(x).polynomial()
        error = np.mean((to_numpy(poly(x)) - truth) ** 2, axis=0)
        assert (error <= before + prior + noise).all(), f"degree {degree}: {error / size} after {before / size}"
        before = np.minimum(before, error)
