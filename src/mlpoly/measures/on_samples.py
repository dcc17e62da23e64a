"""Moments and degree spectrum of a network on samples, instead of under a distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlpoly.arrays import Array, cast_result, check_finite, namespace, no_gradients, safe_inverse, scalar
from mlpoly.errors import TooLargeError
from mlpoly.fitting.samples.exact import regression
from mlpoly.inputs import Samples, checked_inputs
from mlpoly.measures.outputs import outputs_of
from mlpoly.moments.hermite_products import MOST_MONOMIALS, multi_indices
from mlpoly.networks import Network, check_network
from mlpoly.polynomials import Polynomial


def moments_on_samples(net: Network | Polynomial, inputs: Samples) -> tuple[Array, ...]:
    """Fields of a `SecondMoment`: mean (o,), raw and central moments (o, o), and zeros (o, o): nothing is truncated."""
    checked_inputs(net if isinstance(net, Polynomial) else check_network(net), inputs)
    f = outputs_of("net", net, inputs.x)
    check_finite("net(x)", f)
    outputs = Samples(f, inputs.weights)
    mean, cov = outputs.mean, outputs.covariance
    return tuple(cast_result(a, net.prototype) for a in (mean, cov + mean[:, None] * mean, cov, cov * 0))


def degrees_on_samples(net: Any, inputs: Samples, degree: int) -> tuple[Array, ...]:
    """Fields of a `DegreeSpectrum`: the variance that least squares of degree k explains beyond degree k - 1.

    One decomposition serves all degrees: the component of the columns of degree k that is orthogonal to all lower
    degrees spans a space, and the outputs' part in that space is the variance at degree k.
    """
    checked_inputs(check_network(net), inputs)
    with no_gradients(net.prototype):
        rows = regression(net, inputs, degree)
        if rows is None:
            raise TooLargeError(
                f"polynomials of degree {degree} on these samples have more than {MOST_MONOMIALS} monomials; lower "
                f"degree, or use inputs=mlpoly.Gaussian.from_samples(x), which is closed form at any degree."
            )
        sizes = np.bincount(multi_indices(int(rows.forward.shape[0]), degree).sum(axis=1), minlength=degree + 1)
        terms, factor = int(sizes.sum()), rows.problem.factor
        xp = namespace(factor=factor)
        basis, rest = factor[:, :terms], factor[:, terms:]
        basis = basis * safe_inverse(xp.sqrt(xp.sum(basis * basis, axis=0)))
        floor = 10 * terms * float(xp.finfo(basis.dtype).eps)  # as in the solution for the coefficients
        explained = []
        for size in sizes.tolist():
            new, triangle = xp.linalg.qr(basis[:, :size])
            if size and scalar(xp.min(xp.abs(xp.linalg.diagonal(triangle)))) < 1e-4:  # some columns may be dependent
                left, values, _ = xp.linalg.svd(basis[:, :size], full_matrices=False)
                new = left * xp.astype(values > floor, left.dtype)
            along = new.T @ rest
            explained.append(xp.sum(along * along, axis=0))
            rest = rest - new @ along
            basis = basis[:, size:] - new @ (new.T @ basis[:, size:])
        head = xp.stack(explained[1:])
        remainder = xp.sum(rest * rest, axis=0)
        fields = (head, xp.sum(head, axis=0) + remainder, remainder, remainder * 0, remainder * 0)
    return tuple(cast_result(a, net.prototype) for a in fields)
