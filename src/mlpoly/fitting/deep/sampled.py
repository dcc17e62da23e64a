"""The closest linear or quadratic map of a deep network under one Gaussian, from its Jacobian at samples (MATH 9).

Stein's identity: with z standard normal and J the Jacobian of the network f in z, the terms of f up to degree 2 are

    mean = E[f],     linear = E[J],     quadratic = E[J z' + z J'] / 4

without any closure, and without second derivatives, which piecewise linear networks do not have. Averages over pairs
(z, -z) of f minus a polynomial p are unbiased corrections of the terms of p, with the less variance the closer p is to
f. So p is the closed form for the first chunk of samples, and the average so far for every later one:

    p_k = p_(k-1) + (mean correction on chunk k) / k

Corrections of different chunks are uncorrelated, so the variance of p_k is the sum of theirs over k^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mlpoly.arrays import (
    Array,
    as_integer,
    cast_like,
    constant,
    eye,
    namespace,
    no_gradients,
    readable,
    rounding_error,
    scalar,
    widen,
)
from mlpoly.fitting.mixture.quadratic import check_tolerance
from mlpoly.fitting.report import FitReport
from mlpoly.inputs import Gaussian
from mlpoly.inputs.interface import digest
from mlpoly.networks import Affine, Chain, Network, check_network, layers_of, value_and_pullback
from mlpoly.polynomials import DensePolynomial, Polynomial, Source
from mlpoly.progress_bars import progress_bar
from mlpoly.propagation import coordinates, expand
from mlpoly.records import arrays_of, map_arrays, record, replace

METHOD = "least squares under a Gaussian, from Jacobians at samples"
_NUMBERS = 2**23  # entries of the Jacobians of one chunk, at the widest place of the network
_FEWEST, _MOST = 16, 4096  # pairs of samples in a chunk


@dataclass(frozen=True)
class Sampling:
    """Options of a fit from Jacobians at samples.

    Parameters
    ----------
    tolerance : float
        Fraction of the misfit; sampling stops when the expected excess of the squared error over that of the optimum
        is below it.
    max_samples : int
        Largest number of samples, those of `start` included; whole chunks are drawn, at least one.
    start : DensePolynomial, optional
        Result of an earlier fit of the same network under the same inputs, which is resumed, with its seed.
    seed : int
        Seed of the samples.
    """

    tolerance: float = 1e-2
    max_samples: int = 2**20
    start: Polynomial | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        as_integer("max_samples", self.max_samples, 2)
        as_integer("seed", self.seed, 0)

    def check_for(self, net: Network, inputs: Gaussian, degree: int) -> DensePolynomial | None:
        """Return the start, or raise if it is not a fit of this kind to such a network under these inputs."""
        start = self.start
        if start is None:
            return None
        if not isinstance(start, DensePolynomial) or start.source.method != METHOD or start.report is None:
            raise TypeError(
                "start must be a result of mlpoly.fit(..., method='sampled') with its report, which files do not keep; "
                "leave it out to begin anew."
            )
        sizes, own = (net.dim_in, net.dim_out, degree), (start.dim_in, start.dim_out, start.degree)
        if own != sizes:
            raise ValueError(
                f"start maps {own[0]} -> {own[1]} with degree {own[2]}, but the fit {sizes[0]} -> {sizes[1]} with "
                f"degree {sizes[2]}; resume it for the network, inputs and degree that it was fitted with."
            )
        if start.inputs is None or start.inputs.fingerprint != inputs.fingerprint:
            raise ValueError("start was fitted under other inputs; resume it under the same, or leave it out.")
        if start.report.details["network"] != _fingerprint(net):
            raise ValueError("start was fitted to another network, or to other weights; leave it out to begin anew.")
        namespace(net=net.prototype, start=start.prototype)
        return start


@record
class _Terms:
    """Orthogonal terms of o polynomials of standard normal z: mean + linear z + (z' quadratic z - trace).

    Attributes
    ----------
    mean : array (o,)
    linear : array (o, r) or None
    quadratic : array (o, r, r) or None
    """

    mean: Array
    linear: Array | None = None
    quadratic: Array | None = None

    @property
    def trace(self) -> Array | float:
        """Traces (o,) of the quadratic terms."""
        return 0.0 if self.quadratic is None else namespace(q=self.quadratic).linalg.trace(self.quadratic)

    def variance(self) -> float:
        """Variance of the polynomials, summed."""
        xp = namespace(mean=self.mean)
        linear = 0.0 if self.linear is None else scalar(xp.sum(self.linear**2))
        return linear if self.quadratic is None else linear + 2 * scalar(xp.sum(self.quadratic**2))

    def norm(self) -> float:
        """Mean square of the polynomials, summed."""
        return scalar(namespace(mean=self.mean).sum(self.mean**2)) + self.variance()

    def error(self, z: Array, values: Array) -> float:
        """Mean squared distance of the polynomials to values (n, o) at points z (n, r), summed."""
        apart = values - self.mean + self.trace
        xp = namespace(z=z)
        if self.linear is not None:
            apart = apart - z @ self.linear.T
        if self.quadratic is not None:
            half = xp.tensordot(z, self.quadratic, axes=([1], [2]))
            apart = apart - xp.vecdot(half, z[:, None, :])
        return scalar(xp.sum(apart**2)) / z.shape[0]

    def plus(self, other: _Terms, factor: float) -> _Terms:
        """Sum with a multiple of other terms of the same degree."""
        pairs = ((self.mean, other.mean), (self.linear, other.linear), (self.quadratic, other.quadratic))
        return _Terms(*(None if a is None or b is None else a + factor * b for a, b in pairs))


def fit_sampled(net: Network, inputs: Gaussian, degree: int, solver: Sampling) -> DensePolynomial:
    """Closest polynomial of degree 0, 1 or 2 of any network with continuous activations, to a given tolerance.

    Parameters
    ----------
    net : network
    inputs : Gaussian
        Inputs in the network's array library and on its device.
    degree : int
        0, 1 or 2.
    solver : Sampling

    Returns
    -------
    DensePolynomial
        In the linear forms that enter the first layer. Its report states the expected excess. An
        interrupt returns what has been found so far. No gradients flow through it.
    """
    if not readable(net.prototype, inputs.mean):
        raise TypeError("sampling stops by value; fit outside jax.jit and torch.compile.")
    given, like, start = net, net.prototype, solver.check_for(net, inputs, degree)
    for layer in layers_of(net):
        if layer.activation.jumps(like):
            raise ValueError(
                f"activation {layer.activation.name!r} jumps, so the Jacobian does not determine the fit; use the "
                f"closed form, mlpoly.fit(net, inputs, degree, method='expansion')."
            )
    with no_gradients(like):
        net, center = net.to(widen(like)), widen(inputs.mean)
        forward, terms = _begin(net, inputs, degree, start)
        in_z = _of_coordinates(net, inputs, forward)
        terms, report = _sample(in_z, terms, solver, None if start is None else start.report)
        terms = replace(terms, mean=terms.mean - terms.trace)
    terms, forward, center = map_arrays((terms, forward, center), lambda a: cast_like(a, like))
    return DensePolynomial(
        center,
        terms.mean,
        terms.linear,
        terms.quadratic,
        directions=forward if degree else None,
        inputs=inputs,
        report=replace(report, details={**report.details, "network": _fingerprint(given)}),
        source=Source(net.activation_names, METHOD),
    )


def distance_to_optimum(
    poly: DensePolynomial, net: Network, inputs: Gaussian, pairs: int
) -> tuple[float, float, float, float] | None:
    """Variance of a network, error of the optimum, and excess of a polynomial's error with its standard error.

    The mean correction of the polynomial's terms estimates its distance to the optimum, inflated by its variance, which
    is known. None for a network that jumps, whose Jacobian does not determine the optimum.

    Parameters
    ----------
    poly : DensePolynomial
        Polynomial around the mean of the inputs, in `directions` that are standard normal.
    net : network
    inputs : Gaussian
    pairs : int
        Number of samples, each of which stands for itself and its mirror image; fewer if their Jacobians are large.
    """
    if any(layer.activation.jumps(net.prototype) for layer in layers_of(net)):
        return None
    with no_gradients(net.prototype):
        net = net.to(widen(net.prototype))
        forward = coordinates(net, inputs)[0] if poly.directions is None else widen(poly.directions)
        terms = map_arrays(_Terms(poly.constant, poly.linear, poly.quadratic), widen)
        in_z = _of_coordinates(net, inputs, forward)
        shape = (_pairs(in_z, pairs), in_z.dim_in)
        z = constant(np.random.default_rng(0).standard_normal(shape), in_z.prototype)
        c = _correction(in_z, z, replace(terms, mean=terms.mean + terms.trace))
    excess = min(max(c.step.norm() - c.variance, 0.0), c.error)
    return c.spread, c.error - excess, excess, c.standard_error


def _of_coordinates(net: Network, inputs: Gaussian, forward: Array) -> Network:
    """The same network as a function of z = forward (x - mean); its first layer absorbs the affine map from z to x."""
    back = inputs.times_covariance(forward).T
    return check_network(Chain([Affine(back, widen(inputs.mean)), net]))


def _pairs(net: Network, most: int) -> int:
    """Number of pairs of samples whose Jacobians fit into memory."""
    width = max(max(layer.dim_in, layer.dim_hidden, layer.dim_out) for layer in layers_of(net))
    return min(max(_NUMBERS // (2 * width * net.dim_out), _FEWEST), most)


def _begin(net: Network, inputs: Gaussian, degree: int, start: DensePolynomial | None) -> tuple[Array, _Terms]:
    """Coordinates forward (r, d), z = forward (x - mean), and the terms to begin with."""
    if start is not None:
        forward = coordinates(net, inputs)[0] if start.directions is None else widen(start.directions)
        terms = map_arrays(_Terms(start.constant, start.linear, start.quadratic), widen)
        return forward, replace(terms, mean=terms.mean + terms.trace)
    if degree == 2:
        e, forward = expand(net, inputs)
        return forward, _Terms(e.state.inputs.mean, e.linear, e.quadratic)
    # No closed form, which would need quadratic terms: a linear one is no help, as pairs (z, -z) cancel it.
    forward = coordinates(net, inputs)[0]
    o, r = net.dim_out, forward.shape[0]
    return forward, _Terms(constant(np.zeros(o), forward), constant(np.zeros((o, r)), forward) if degree else None)


def _sample(net: Network, terms: _Terms, solver: Sampling, before: FitReport | None) -> tuple[_Terms, FitReport]:
    """Terms of a network of standard normal inputs, corrected chunk by chunk until they are close enough."""
    chunk = 2 * _pairs(net, _MOST)
    seed, chunks, variances, misfits = solver.seed, 0, 0.0, 0.0  # sums over chunks
    if before is not None:
        seed, chunk, chunks = (before.details[name] for name in ("seed", "chunk", "chunks"))
        variances, misfits = before.excess * chunks**2, before.misfit * chunks

    def correction(number: int) -> _Correction:
        z = np.random.default_rng([seed, number]).standard_normal((chunk // 2, net.dim_in))
        return _correction(net, constant(z, net.prototype), terms)

    def state() -> tuple[float, float, bool]:
        """Expected excess, misfit, and whether the one is small beside the other or mere rounding."""
        excess, misfit = variances / max(chunks, 1) ** 2, max(misfits / max(chunks, 1), 0.0)
        rounding = (64 * rounding_error(terms.mean)) ** 2 * terms.norm()
        return excess, misfit, chunks > 0 and excess <= max(solver.tolerance * misfit, rounding)

    try:
        with progress_bar("samples", solver.max_samples) as update:
            if not chunks and terms.quadratic is None:
                terms = terms.plus(correction(0).step, 1.0)  # in place of a closed form
            while not state()[2] and (not chunks or (chunks + 1) * chunk <= solver.max_samples):
                step, variance, error, *_ = correction(chunks + 1)
                if not math.isfinite(variance + error):
                    raise ValueError("the network overflows at samples of the inputs; scale its weights or the inputs.")
                # The step estimates the distance to the optimum, which is part of the error; its variance inflates it.
                misfit = error - (step.norm() - variance)
                terms, chunks, variances, misfits = (
                    terms.plus(step, 1 / (chunks + 1)),
                    chunks + 1,
                    variances + variance,
                    misfits + misfit,
                )
                excess, misfit, _ = state()
                update(chunks * chunk, f"excess {excess / misfit if misfit else 0.0:.2%} of the misfit")
    except KeyboardInterrupt:
        if not chunks:
            raise
    excess, misfit, converged = state()
    if converged:
        # Where an activation is so steep that samples miss its slopes, the values of the network tell another story.
        z = constant(np.random.default_rng([seed, 0]).standard_normal((chunk // 2, net.dim_in)), net.prototype)
        found = terms.error(z, net(z))
        expected = misfit + excess + (64 * rounding_error(terms.mean)) ** 2 * terms.norm()
        if not found <= 2 * expected:
            raise ValueError(
                f"the network's Jacobian at samples does not explain its values (squared error {found:.3g}, expected "
                f"{expected:.3g}): an activation is too steep or the weights too large; use method='expansion'."
            )
    whole = misfit + terms.variance()
    fvu = (misfit + excess) / whole if whole > 0 else 0.0
    summary = f"{'converged' if converged else 'stopped early'} after {chunks * chunk} samples"
    details = {"samples": chunks * chunk, "seed": seed, "chunk": chunk, "chunks": chunks}
    return terms, FitReport(METHOD, summary, misfit, excess, fvu, converged=converged, details=details)


def _fingerprint(net: Network) -> str:
    return digest(*arrays_of(net).values())


class _Correction(NamedTuple):
    """Correction of terms, from samples.

    Attributes
    ----------
    step : _Terms
    variance : float
        Variance of the step, summed over coefficients in the orthonormal basis.
    error : float
        Mean squared error of the terms that are corrected, summed over outputs.
    standard_error : float
        Standard error of ``step.norm() - variance``, the estimated squared distance of these terms to the optimum.
    spread : float
        Variance of the network at the samples, summed over outputs.
    """

    step: _Terms
    variance: float
    error: float
    standard_error: float
    spread: float


def _correction(net: Network, z: Array, terms: _Terms) -> _Correction:
    """Correction of terms of a network from samples z (n, r), each of which stands for itself and -z."""
    xp, n = namespace(z=z), z.shape[0]
    values, pull = value_and_pullback(net, xp.concat([z, -z]))
    even, odd = (values[:n, :] + values[n:, :]) / 2 - terms.mean, (values[:n, :] - values[n:, :]) / 2
    linear = quadratic = slopes = bends = None
    if terms.linear is not None:
        J = pull(eye(net.dim_out, values)[None, :, :])
        odd = odd - z @ terms.linear.T
        slopes = (J[:n, ...] + J[n:, ...]) / 2 - terms.linear
        linear = xp.mean(slopes, axis=0)
    if terms.quadratic is not None:
        half = xp.tensordot(z, terms.quadratic, axes=([1], [2]))  # Q z, (n, o, r)
        even = even - xp.vecdot(half, z[:, None, :]) + terms.trace
        bends = (J[:n, ...] - J[n:, ...]) / 2 - 2 * half
        quadratic = xp.tensordot(bends, z, axes=([0], [0])) / (4 * n)
        quadratic = quadratic + xp.matrix_transpose(quadratic)
    step = _Terms(xp.mean(even, axis=0), linear, quadratic)
    # Every pair gives a step of its own: its squared length, and its inner product with the mean step.
    lengths, along = xp.sum(even**2, axis=1), even @ step.mean
    if slopes is not None:
        lengths = lengths + xp.sum(slopes**2, axis=(1, 2))
        along = along + xp.sum(slopes * linear, axis=(1, 2))
    if bends is not None:
        # 2 |(u z' + z u') / 4|^2 = (|u|^2 |z|^2 + (u.z)^2) / 4, the 2 from the orthonormal basis
        squares = xp.sum(bends**2, axis=2) * xp.sum(z**2, axis=1)[:, None] + xp.vecdot(bends, z[:, None, :]) ** 2
        lengths = lengths + xp.sum(squares, axis=1) / 4
        along = along + xp.sum(bends * xp.tensordot(z, quadratic, axes=([1], [2])), axis=(1, 2))
    variance = max(scalar(xp.mean(lengths)) - step.norm(), 0.0) / (n - 1)
    # The squared distance is the mean of inner products of different pairs' steps, a U-statistic: to first order its
    # error is twice that of the mean inner product of one pair's step with all others.
    others = (n * along - lengths) / (n - 1)
    standard_error = 2 * scalar(xp.std(others)) / math.sqrt(n)
    error, spread = scalar(xp.sum(even**2) + xp.sum(odd**2)) / n, scalar(xp.sum(xp.var(values, axis=0)))
    return _Correction(step, variance, error, standard_error, spread)
