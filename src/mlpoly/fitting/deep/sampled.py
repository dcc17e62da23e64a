"""The closest linear or quadratic map of a deep network under one Gaussian, from its Jacobian at samples (MATH 9).

Stein's identity: with z standard normal and J the Jacobian of the network f in z, the terms of f up to degree 2 are

    mean = E[f],     linear = E[J],     quadratic = E[J z' + z J'] / 4

without any closure, and without second derivatives, which piecewise linear networks do not have. Averages over pairs
(z, -z) of f minus a polynomial p are unbiased corrections of the terms of p, with the less variance the closer p is to
f. So p is the closed form for the first chunk of samples, and the average so far for every later one:

    p_k = p_(k-1) + (mean correction on chunk k) / k

Corrections of different chunks are uncorrelated, so the variance of p_k is the sum of theirs over k^2.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mlpoly.arrays import Array, as_integer, namespace, no_gradients, readable
from mlpoly.arrays.placement import cast_like, constant, eye, rounding_error, scalar, widen
from mlpoly.fitting.mixture.quadratic import check_tolerance
from mlpoly.fitting.report import FitReport
from mlpoly.inputs import Gaussian
from mlpoly.networks import Affine, Chain, Network, check_network, layers_of, value_and_pullback
from mlpoly.polynomials import DensePolynomial, Source, map_polynomial
from mlpoly.progress_bars import progress_bar
from mlpoly.propagation import coordinates, expand
from mlpoly.records import replace

METHOD = "least squares under a Gaussian, from Jacobians at samples"
_NUMBERS = 2**23  # entries of the Jacobians of one chunk, at the widest place of the network
_FEWEST, _MOST = 16, 4096  # pairs of samples in a chunk


@dataclass(frozen=True)
class Sampling:
    """Options of a fit from Jacobians at samples, as in `mlpoly.methods.Sampled`."""

    tolerance: float = 1e-2
    max_samples: int = 2**20
    seed: int = 0

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        as_integer("max_samples", self.max_samples, 2)
        as_integer("seed", self.seed, 0)


def fit_sampled(net: Network, inputs: Gaussian, degree: int, solver: Sampling) -> DensePolynomial:
    """Closest polynomial of degree 0, 1 or 2 of any network with continuous activations, to a given tolerance.

    An interrupt returns what has been found so far. No gradients flow through it.
    """
    if not readable(net.prototype, inputs.mean):
        raise TypeError("sampling stops by value; fit outside jax.jit and torch.compile.")
    like = net.prototype
    for layer in layers_of(net):
        if layer.activation.jumps(like):
            raise ValueError(
                f"activation {layer.activation.name!r} jumps, so the Jacobian does not determine the fit; use the "
                f"closed form, mlpoly.fit(net, inputs, degree, method='expansion')."
            )
    with no_gradients(like):
        wide = net.to(widen(like))
        forward, poly = _begin(wide, inputs, degree)
        average, report = _sample(_of_coordinates(wide, inputs, forward), poly, solver)
        poly = replace(average.poly, center=widen(inputs.mean), directions=forward if degree else None)
    return replace(
        map_polynomial(poly, lambda a: cast_like(a, like)),
        inputs=inputs,
        report=report,
        source=Source(net.activation_names, METHOD),
    )


class Distance(NamedTuple):
    """How far a polynomial is from the optimum, as samples estimate it; squared errors are summed over outputs."""

    variance: float  # of the network
    misfit: float  # error of the optimum
    excess: float  # of the polynomial's error beyond it
    standard_error: float  # of the excess
    doubt: float  # standard error of excess / misfit
    share: float  # of one pair of samples in the squared error, the largest
    exact: bool  # whether the error is mere rounding


def distance_to_optimum(poly: DensePolynomial, net: Network, inputs: Gaussian, pairs: int) -> Distance | None:
    """How far a polynomial is from the optimum: its mean correction from pairs of samples z and -z is the way there.

    The polynomial is around the mean of the inputs, in `directions` that are standard normal. There are `pairs` of
    samples, or fewer if their Jacobians are large. None for a network that jumps, whose Jacobian does not determine the
    optimum.
    """
    if any(layer.activation.jumps(net.prototype) for layer in layers_of(net)):
        return None
    like = net.prototype
    with no_gradients(like):
        net = net.to(widen(like))
        poly = map_polynomial(poly, widen)
        forward = coordinates(net, inputs)[0] if poly.directions is None else poly.directions
        poly = replace(poly, center=forward[:, 0] * 0, directions=None, inputs=None)
        in_z = _of_coordinates(net, inputs, forward)
        shape = (_pairs(in_z, pairs), in_z.dim_in)
        c = _correction(in_z, constant(np.random.default_rng(0).standard_normal(shape), in_z.prototype), poly)
    xp, root = namespace(errors=c.errors), math.sqrt(shape[0])
    largest = scalar(xp.max(c.errors)) / shape[0]
    excess = min(max(sum(_energies(c.step)) - c.variance, 0.0), c.error)
    misfit = c.error - excess
    # The squared distance is the mean of inner products of different pairs' steps, a U-statistic: to first order its
    # error is twice that of the mean inner product of one pair's step with all others, which vanishes near the optimum.
    # The second order, at most that of single inner products, does not.
    first, second = 2 * scalar(xp.std(c.others)) / root, 2 * math.sqrt(scalar(xp.mean(c.nexts**2))) / shape[0]
    slopes = 2 * c.others * c.error - c.errors * excess  # of excess / misfit by what a pair adds, times misfit^2
    doubt = scalar(xp.std(slopes)) / root / misfit**2 if misfit > 0 else math.inf
    share = largest / c.error if c.error > 0 else 0.0
    return Distance(c.spread, misfit, excess, math.hypot(first, second), doubt, share, c.error <= _rounding(poly, like))


def _of_coordinates(net: Network, inputs: Gaussian, forward: Array) -> Network:
    """The same network as a function of z = forward (x - mean); its first layer absorbs the affine map from z to x."""
    back = inputs.times_covariance(forward).T
    return check_network(Chain([Affine(back, widen(inputs.mean)), net]))


def _pairs(net: Network, most: int) -> int:
    """Number of pairs of samples whose Jacobians fit into memory."""
    width = max(max(layer.dim_in, layer.dim_hidden, layer.dim_out) for layer in layers_of(net))
    return min(max(_NUMBERS // (2 * width * net.dim_out), _FEWEST), most)


def _begin(net: Network, inputs: Gaussian, degree: int) -> tuple[Array, DensePolynomial]:
    """Coordinates forward (r, d), z = forward (x - mean), and the polynomial of z to begin with."""
    if degree == 2:
        e, forward = expand(net, inputs)
        trace = 0.0 if e.quadratic is None else namespace(q=e.quadratic).linalg.trace(e.quadratic)
        center = forward[:, 0] * 0
        return forward, DensePolynomial(center, e.state.inputs.mean - trace, e.linear, e.quadratic)
    # No closed form, which would need quadratic terms: a linear one is no help, as pairs (z, -z) cancel it.
    forward = coordinates(net, inputs)[0]
    o, r = net.dim_out, forward.shape[0]
    zeros = [constant(np.zeros(shape), forward) for shape in ((r,), (o,), (o, r))]
    return forward, DensePolynomial(*zeros[: 2 + degree])


@dataclass(frozen=True)
class _Average:
    """Average of a polynomial of standard normal z with the corrections of some chunks, and sums over these."""

    poly: DensePolynomial
    chunks: int = 0
    variances: float = 0.0
    misfits: float = 0.0

    @property
    def excess(self) -> float:
        """Expected squared error beyond that of the optimum."""
        return self.variances / max(self.chunks, 1) ** 2

    @property
    def misfit(self) -> float:
        """Squared error of the optimum."""
        return max(self.misfits / max(self.chunks, 1), 0.0)

    def is_close(self, tolerance: float) -> bool:
        """Whether the excess is small beside the misfit, or mere rounding."""
        return self.chunks > 0 and self.excess <= max(tolerance * self.misfit, _rounding(self.poly, self.poly.constant))

    def corrected(self, c: "_Correction") -> "_Average":
        """With another chunk."""
        k = self.chunks + 1
        # The step estimates the distance to the optimum, which is part of the error; its variance inflates it.
        misfit = c.error - (sum(_energies(c.step)) - c.variance)
        return _Average(self.poly + c.step * (1 / k), k, self.variances + c.variance, self.misfits + misfit)


def _sample(net: Network, poly: DensePolynomial, solver: Sampling) -> tuple[_Average, FitReport]:
    """A polynomial of a network of standard normal inputs, corrected chunk by chunk until it is close enough."""
    chunk, average = 2 * _pairs(net, _MOST), _Average(poly)

    def samples(number: int) -> Array:
        z = np.random.default_rng([solver.seed, number]).standard_normal((chunk // 2, net.dim_in))
        return constant(z, net.prototype)

    try:
        with progress_bar("samples", solver.max_samples) as update:
            if poly.quadratic is None:
                average = _Average(poly + _correction(net, samples(0), poly).step)  # in place of a closed form
            while not average.is_close(solver.tolerance) and (
                not average.chunks or (average.chunks + 1) * chunk <= solver.max_samples
            ):
                c = _correction(net, samples(average.chunks + 1), average.poly)
                if not math.isfinite(c.variance + c.error):
                    raise ValueError("the network overflows at samples of the inputs; scale its weights or the inputs.")
                average = average.corrected(c)
                part = average.excess / average.misfit if average.misfit else 0.0
                update(average.chunks * chunk, f"excess {part:.2%} of the misfit")
    except KeyboardInterrupt:
        if not average.chunks:
            raise
    excess, misfit, converged = average.excess, average.misfit, average.is_close(solver.tolerance)
    if converged:
        # Where an activation is so steep that samples miss its slopes, the values of the network do not agree.
        z = samples(0)
        error = scalar(namespace(z=z).sum((net(z) - average.poly(z)) ** 2)) / z.shape[0]
        expected = misfit + excess + _rounding(average.poly, z)
        if not error <= 2 * expected:
            raise ValueError(
                f"the network's Jacobian at samples does not explain its values (squared error {error:.3g}, expected "
                f"{expected:.3g}): an activation is too steep or the weights too large; use method='expansion'."
            )
    whole = misfit + _energies(average.poly)[1]
    fvu = (misfit + excess) / whole if whole > 0 else 0.0
    drawn = average.chunks * chunk
    summary = f"{'converged' if converged else 'stopped early'} after {drawn} samples"
    details = {"samples": drawn, "chunks": average.chunks}
    return average, FitReport(METHOD, summary, misfit, excess, fvu, converged=converged, details=details)


def _rounding(p: DensePolynomial, like: Array) -> float:
    """Squared error that is mere rounding to a dtype."""
    return (64 * rounding_error(like)) ** 2 * sum(_energies(p))


def _energies(p: DensePolynomial) -> tuple[float, float]:
    """Squared mean and variance of a polynomial of standard normal z, summed over outputs."""
    xp, mean, variance = namespace(p=p.constant), p.constant, 0.0
    if p.linear is not None:
        variance += scalar(xp.sum(p.linear**2))
    if p.quadratic is not None:
        mean = mean + xp.linalg.trace(p.quadratic)
        variance += 2 * scalar(xp.sum(p.quadratic**2))
    return scalar(xp.sum(mean**2)), variance


class _Correction(NamedTuple):
    """Correction of a polynomial of standard normal z, from samples; errors and variances are summed over outputs."""

    step: DensePolynomial
    variance: float  # of the step, summed over coefficients in the orthonormal basis
    error: float  # mean squared error of the polynomial that is corrected
    errors: Array  # the squared error at each pair of samples (n,)
    others: Array  # inner products of the step of each pair with that of all others (n,): their mean is the excess
    nexts: Array  # the same with the step of the next pair alone (n,)
    spread: float  # variance of the network at the samples


def _correction(net: Network, z: Array, p: DensePolynomial) -> _Correction:
    """Correction of a polynomial of a network from samples z (n, r), each of which stands for itself and -z."""
    xp, n = namespace(z=z), z.shape[0]
    values, pull = value_and_pullback(net, xp.concat([z, -z]))
    even, odd = (values[:n, :] + values[n:, :]) / 2 - p.constant, (values[:n, :] - values[n:, :]) / 2
    linear = quadratic = slopes = bends = None
    if p.linear is not None:
        J = pull(eye(net.dim_out, values)[None, :, :])
        odd = odd - z @ p.linear.T
        slopes = (J[:n, ...] + J[n:, ...]) / 2 - p.linear
        linear = xp.mean(slopes, axis=0)
    trace = 0.0
    if p.quadratic is not None:
        half = xp.tensordot(z, p.quadratic, axes=([1], [2]))  # Q z, (n, o, r)
        even = even - xp.vecdot(half, z[:, None, :])
        bends = (J[:n, ...] - J[n:, ...]) / 2 - 2 * half
        quadratic = xp.tensordot(bends, z, axes=([0], [0])) / (4 * n)
        quadratic = quadratic + xp.matrix_transpose(quadratic)
        trace = xp.linalg.trace(quadratic)
    mean = xp.mean(even, axis=0)
    step = DensePolynomial(p.center, mean - trace, linear, quadratic)
    # Every pair gives a step of its own: its squared length, and its inner product with the mean step.
    lengths, along, nexts = xp.sum(even**2, axis=1), even @ mean, xp.vecdot(even, xp.roll(even, 1, axis=0))
    if slopes is not None:
        lengths = lengths + xp.sum(slopes**2, axis=(1, 2))
        along = along + xp.sum(slopes * linear, axis=(1, 2))
        nexts = nexts + xp.sum(slopes * xp.roll(slopes, 1, axis=0), axis=(1, 2))
    if bends is not None:
        # 2 |(u z' + z u') / 4|^2 = (|u|^2 |z|^2 + (u.z)^2) / 4, the 2 from the orthonormal basis
        squares = xp.sum(bends**2, axis=2) * xp.sum(z**2, axis=1)[:, None] + xp.vecdot(bends, z[:, None, :]) ** 2
        lengths = lengths + xp.sum(squares, axis=1) / 4
        along = along + xp.sum(bends * xp.tensordot(z, quadratic, axes=([1], [2])), axis=(1, 2))
        other, y = xp.roll(bends, 1, axis=0), xp.roll(z, 1, axis=0)
        crossed = xp.vecdot(bends, y[:, None, :]) * xp.vecdot(other, z[:, None, :])
        nexts = nexts + xp.sum(xp.vecdot(bends, other) * xp.vecdot(z, y)[:, None] + crossed, axis=1) / 4
    variance = max(scalar(xp.mean(lengths)) - sum(_energies(step)), 0.0) / (n - 1)
    errors, spread = xp.sum(even**2 + odd**2, axis=1), scalar(xp.sum(xp.var(values, axis=0)))
    return _Correction(step, variance, scalar(xp.mean(errors)), errors, (n * along - lengths) / (n - 1), nexts, spread)
