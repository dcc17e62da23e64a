"""Exact least squares on samples over all monomials of a degree, if they are few enough.

The rows are products of Hermite polynomials of whitened inputs, ordered by degree. They are gathered by orthogonal
transformations, chunk by chunk: normal equations would square the condition number.
"""

import math
import warnings
from typing import Any

import numpy as np

from mlpoly.arrays import Array, namespace, no_gradients, readable, safe_inverse
from mlpoly.arrays.placement import astype, rounding_error, scalar, take_rows, to_numpy, widen
from mlpoly.errors import TooLargeError
from mlpoly.fitting.report import FitReport
from mlpoly.fitting.samples.joint import fit_joint
from mlpoly.inputs import Samples
from mlpoly.inputs.accumulator import check_overflow
from mlpoly.inputs.coordinates import rounding_floor
from mlpoly.linalg.least_squares import LeastSquares
from mlpoly.moments.hermite_products import MOST_MONOMIALS, multi_indices, products
from mlpoly.networks import Layer, Network
from mlpoly.polynomials import ChaosPolynomial, RidgePolynomial, Source

METHOD = "least squares on samples"
_NUMBERS = 2**24  # values of monomials held at once
_FEW, _MOST_LEFT_OUT = 10, 2000  # samples for each monomial, and monomials, for which samples are left out
_NOISE = 10  # rounding errors that may add up to a standard deviation which should be zero


def fit_samples(net: Network, inputs: Samples, degree: int) -> ChaosPolynomial | RidgePolynomial:
    """Optimal polynomial on samples for up to 10^4 monomials, else all neurons together; without gradients.

    The answer stays in whitened coordinates at every degree. Dense coefficients of x would be slightly faster to
    evaluate at degree 2, but if some inputs nearly duplicate others they are large and cancel.
    """
    with no_gradients(net.prototype):
        rows = regression(net, inputs, degree, warn=True)
        if rows is None:
            if not isinstance(net, Layer):
                raise TooLargeError(
                    f"polynomials of degree {degree} have more than {MOST_MONOMIALS} monomials on these samples, too "
                    f"many for least squares; for a deep network use method='composed', or degree 1 or 2 under "
                    f"mlpoly.Gaussian.from_samples(x)."
                )
            together: Any = fit_joint(net, inputs, degree)
            return together
        problem, forward = rows
        exponents = multi_indices(int(forward.shape[0]), degree)
        terms, used = len(exponents), _used(inputs)
        values = problem.solve(rounding_error(net.prototype), noise=_NOISE * terms)
        misfit, gradient = problem.certificate(values)
        factor, missed = problem.factor, None
        xp, targets = namespace(factor=factor), factor[:, terms:]
        apart = targets - factor[:, :1] @ (factor[:, :1].T @ targets) / xp.sum(factor[:, :1] ** 2)
        variance = scalar(xp.sum(apart * apart))
        if terms < used < _FEW * terms and terms <= _MOST_LEFT_OUT and variance > 0:
            missed = _left_out(net, inputs, rows, exponents, values) / variance
            if used < 2 * terms and missed > max(4 * misfit / variance, 1e-3):
                warnings.warn(
                    f"{used} samples are few for the {terms} monomials of degree {degree}: the polynomial leaves "
                    f"{misfit / variance:.2g} of the variance on them, but {missed:.2g} where each sample is left out "
                    f"of its fit (report.fvu). Use more samples or a lower degree.",
                    stacklevel=5,
                )
    kept = int(forward.shape[0])
    determined = "all determined" if problem.rank == terms else f"of which {problem.rank} determined"
    counts = {"samples": used, "terms": terms, "rank": problem.rank, "kept": kept, "dropped": inputs.dim - kept}
    summary = f"{terms} monomials, {determined}"
    report = FitReport(METHOD, summary, misfit, fvu=missed, gradient=gradient, details=counts)
    center, forward, values = (astype(a, net.prototype.dtype) for a in (inputs.mean, forward, values.T))
    source = Source(net.activation_names, METHOD)
    return ChaosPolynomial(center, forward, exponents, values, inputs=inputs, report=report, source=source)


def _left_out(
    net: Network, inputs: Samples, rows: tuple[LeastSquares, Array], exponents: np.ndarray, values: Array
) -> float:
    """Mean squared error on samples left out of the fit one at a time: residuals over one less the leverage."""
    problem, forward = rows
    xp = namespace(values=values)
    _, sizes, right = xp.linalg.svd(problem.factor[:, : len(exponents)], full_matrices=False)
    kept = sizes > 10 * len(exponents) * float(xp.finfo(sizes.dtype).eps) * xp.max(sizes)
    root = right.T * xp.where(kept, 1 / xp.where(kept, sizes, 1.0), 0.0)
    total = 0.0
    for x, weights in inputs.chunks(max(1, _NUMBERS // len(exponents))):
        features = products((widen(x) - inputs.mean) @ forward.T, exponents).T
        leverage = weights * xp.sum((features @ root) ** 2, axis=1, keepdims=True)
        missed = (widen(net(x)) - features @ values) / xp.clip(1 - leverage, 1e-6, None)
        total += scalar(xp.sum(weights * missed**2))
    return total


def _used(inputs: Samples) -> int:
    """Number of samples that have a weight."""
    return inputs.count if inputs.weights is None else int(np.count_nonzero(to_numpy(inputs.weights)))


def regression(net: Network, inputs: Samples, degree: int, warn: bool = False) -> tuple[LeastSquares, Array] | None:
    """Network beside the products he_a(z), ordered by degree, of z = forward (x - mean), and `forward` (r, d).

    None where there are more than 10^4 products. With `warn`, samples that are too few for the products are reported
    before the work begins.
    """
    if not readable(net.prototype, inputs.prototype):
        raise TypeError("least squares on samples finds its rank by value; call it outside jax.jit and torch.compile.")
    directions = 0  # at most this many, or there are too many monomials
    while directions < inputs.dim and math.comb(directions + 1 + degree, degree) <= MOST_MONOMIALS:
        directions += 1
    forward = _whitener(inputs, directions)
    if forward is None:
        return None
    exponents = multi_indices(int(forward.shape[0]), degree)
    if warn and _used(inputs) < len(exponents):
        warnings.warn(
            f"{_used(inputs)} samples cannot determine the {len(exponents)} monomials of degree {degree} in "
            f"{forward.shape[0]} directions: the answer will be the one of least norm among those that fit equally "
            f"well, and may be far off elsewhere. Use more samples, a lower degree, or method='neuronwise'.",
            stacklevel=6,
        )
    width = len(exponents) + net.dim_out
    problem = LeastSquares()
    # With fewer rows than columns per chunk, most of the work would go into rows that are already factored.
    for x, weights in inputs.chunks(max(width, _NUMBERS // width)):
        z = (widen(x) - inputs.mean) @ forward.T
        problem.add(weights, products(z, exponents).T, widen(net(x)))
    xp = namespace(factor=problem.factor)
    if not bool(xp.all(xp.isfinite(problem.factor))):
        raise OverflowError(
            f"the network or a monomial of degree {degree} overflows on some sample; lower the degree, drop samples "
            f"far from the others, or compute in float64."
        )
    return problem, forward


def _whitener(inputs: Samples, most: int) -> Array | None:
    """Matrix (r, d) that whitens x - mean; None if the samples vary in more than `most` directions.

    From the samples themselves, because their covariance loses directions of a relative size below 10^-8.
    """
    xp = namespace(x=inputs.x)
    few = 4 * (most + 1)
    if inputs.dim > most and inputs.count > few:  # a few samples may suffice to show that there are too many
        rows = np.arange(inputs.count) if inputs.weights is None else np.flatnonzero(to_numpy(inputs.weights))
        rows = rows[np.linspace(0, len(rows) - 1, min(few, len(rows))).astype(int)]
        if _whitener(Samples(take_rows(inputs.x, rows)), most) is None:
            return None
    size = max(inputs.dim, _NUMBERS // inputs.dim)
    spread = sum(xp.sum(w * (widen(x) - inputs.mean) ** 2, axis=0) for x, w in inputs.chunks(size))
    check_overflow(spread)
    inverse = safe_inverse(xp.sqrt(spread))
    scaled = LeastSquares()
    for x, weights in inputs.chunks(size):
        u = (widen(x) - inputs.mean) * inverse
        scaled.add(weights, u, u[:, :0])
    _, values, vectors = xp.linalg.svd(scaled.factor, full_matrices=False)
    # Inputs that are sums of others are so up to the rounding of the samples, relative to x and not to x - mean.
    sizes = xp.where(inverse > 0, 1 + xp.abs(inputs.mean) * inverse, 0.0)
    floor = rounding_floor(inputs.x, values, inputs.dim, scalar(xp.linalg.vector_norm(sizes)))
    keep = np.flatnonzero(to_numpy(values) > floor)
    if len(keep) > most:
        return None
    return take_rows(vectors, keep) / take_rows(values, keep)[:, None] * inverse
