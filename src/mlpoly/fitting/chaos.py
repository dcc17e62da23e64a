"""Mixtures at any degree in few inputs: least squares in a basis of polynomial chaos (MATH 4).

A component's matrix B re-expands the products of Hermite polynomials of the mixture's coordinates in the component's
own, by recurrence: no moment is ever enumerated.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mlpoly.arrays import (
    Array,
    astype,
    constant,
    eye,
    namespace,
    rounding_error,
    safe_inverse,
    scalar,
    take_rows,
    to_numpy,
    widen,
)
from mlpoly.errors import TooLargeError
from mlpoly.fitting.gaussian import fit_gaussian
from mlpoly.fitting.least_squares import LeastSquares
from mlpoly.fitting.report import SolveReport
from mlpoly.fitting.whitening import Whitening, whiten
from mlpoly.inputs import Gaussian, GaussianMixture
from mlpoly.networks import Layer
from mlpoly.polynomials import ChaosPolynomial, RidgePolynomial, Source
from mlpoly.polynomials.chaos import multi_indices

__all__ = ["fit_mixture_chaos", "solve_directly"]

METHOD = "least squares under a Gaussian mixture"
MOST_MONOMIALS = 10_000


def fit_mixture_chaos(net: Layer, inputs: GaussianMixture, degree: int) -> ChaosPolynomial:
    """Optimal polynomial of any degree, while it has at most about 10^4 monomials."""
    whitening = whiten(inputs)
    values, report = solve_directly(net, inputs, degree, whitening)
    dtype = net.prototype.dtype
    return ChaosPolynomial(
        astype(whitening.center, dtype),
        astype(whitening.forward, dtype),
        multi_indices(whitening.kept, degree),
        astype(values.T, dtype),
        inputs=inputs,
        report=report,
        source=Source(net.activation.name, METHOD),
    )


def solve_directly(net: Layer, inputs: GaussianMixture, degree: int, whitening: Whitening) -> tuple[Array, SolveReport]:
    """Coefficients (t, o) of the optimum in the Hermite products of whitened inputs, and how that went."""
    terms = math.comb(whitening.kept + degree, degree)
    if terms > MOST_MONOMIALS:
        raise TooLargeError(
            f"degree {degree} in {whitening.kept} directions has {terms} monomials, more than {MOST_MONOMIALS}; use "
            f"method='neuronwise' (any degree and size), degree=2, or one Gaussian instead of the mixture."
        )
    xp = namespace(means=inputs.means)
    weights = widen(inputs.weights)
    basis = _ladder(whitening.kept, degree)
    problem = LeastSquares()
    for c, g in enumerate(inputs.components):
        place, factor = _coordinates(g, whitening)
        own = basis if factor.shape[1] == whitening.kept else _ladder(int(factor.shape[1]), degree)
        B = _change_of_basis(place, factor, basis, own)
        problem.add(weights[c], B, _project_ridge(fit_gaussian(net, g, degree), whitening.back @ factor, own))
    if not bool(xp.all(xp.isfinite(problem.factor))):
        raise OverflowError(
            f"degree {degree} overflows {problem.factor.dtype} on a component this far from the others; lower the "
            f"degree, use method='neuronwise', or compute in float64."
        )
    values = problem.solve(rounding_error(net.prototype))
    reached, targets = problem.factor[:, :terms], problem.factor[:, terms:]
    residual = reached @ values - targets
    report = SolveReport(
        "orthogonal transformations",
        0,
        True,
        scalar(xp.linalg.vector_norm(reached.T @ residual))
        / max(scalar(xp.linalg.vector_norm(reached.T @ targets)), 1e-300),
        scalar(xp.sum(residual * residual)),
        0.0,
        whitening.kept,
        whitening.dropped,
    )
    return values, report


class _Ladder(NamedTuple):
    """All multi-indices up to a degree, and for each variable the rows one step down and up (t where there is none)."""

    exponents: np.ndarray  # (t, r)
    down: np.ndarray  # (r, t)
    up: np.ndarray  # (r, t)

    @property
    def degrees(self) -> np.ndarray:
        return self.exponents.sum(axis=1)


def _ladder(variables: int, degree: int) -> _Ladder:
    exponents = multi_indices(variables, degree)
    t = len(exponents)
    where = {row.tobytes(): i for i, row in enumerate(exponents)}
    steps = np.eye(variables, dtype=np.int64)
    down = np.array([[where.get((row - s).tobytes(), t) for row in exponents] for s in steps]).reshape(variables, t)
    up = np.array([[where.get((row + s).tobytes(), t) for row in exponents] for s in steps]).reshape(variables, t)
    return _Ladder(exponents, down, up)


def _coordinates(g: Gaussian, whitening: Whitening) -> tuple[Array, Array]:
    """Mean (r,) and factor L (r, q) of a component in whitened coordinates, z = mean + L w with w standard normal."""
    xp = namespace(mean=g.mean)
    cov = widen(g.covariance)
    units = xp.sqrt(xp.linalg.diagonal(cov))
    inverse = safe_inverse(units)
    values, vectors = xp.linalg.eigh(0.5 * (cov + cov.T) * inverse * inverse[:, None])
    spectrum = to_numpy(values)
    # The covariance itself is known only to the precision of the caller's dtype. The floor is below that of `whiten`: a
    # direction that it keeps must not be missing here, or the component would be taken for singular.
    floor = 10 * float(xp.finfo(g.mean.dtype).eps) * len(spectrum)
    keep = np.flatnonzero(spectrum > floor)
    factor = take_rows(vectors.T, keep).T * xp.sqrt(take_rows(values, keep)) * units[:, None]
    return whitening.forward @ (widen(g.mean) - whitening.center), whitening.forward @ factor


def _raise(rows: Array, ladder: _Ladder, j: int) -> Array:
    """The part of w_j p that goes one degree up: coefficients (t, m) in the orthonormal products."""
    xp = namespace(rows=rows)
    padded = xp.concat([rows, rows[:1, ...] * 0])
    root = constant(np.sqrt(ladder.exponents[:, j])[:, None], rows)
    return root * take_rows(padded, ladder.down[j])


def _lower(rows: Array, ladder: _Ladder, j: int) -> Array:
    """The part of w_j p that goes one degree down."""
    xp = namespace(rows=rows)
    padded = xp.concat([rows, rows[:1, ...] * 0])
    root = constant(np.sqrt(ladder.exponents[:, j] + 1.0)[:, None], rows)
    return root * take_rows(padded, ladder.up[j])


def _change_of_basis(place: Array, factor: Array, basis: _Ladder, own: _Ladder) -> Array:
    """B (own terms, terms): column a holds prod he_{a_i}(z_i), z = place + factor w, in the products he_b(w).

    Column by column from sqrt(a_i) he_{a_i} = z_i he_{a_i - 1} - sqrt(a_i - 1) he_{a_i - 2}, one degree at a time.
    """
    xp = namespace(place=place)
    first = np.zeros((len(own.exponents), 1))
    first[0] = 1.0
    columns = constant(first, place)
    zero = columns * 0
    for k in range(1, int(basis.degrees.max(initial=0)) + 1):
        new = np.flatnonzero(basis.degrees == k)
        variable = np.argmax(basis.exponents[new] > 0, axis=1)
        count = basis.exponents[new, variable]
        parent = basis.down[variable, new]
        grand = basis.down[variable, parent]
        parents = take_rows(columns.T, parent).T
        slopes = take_rows(factor, variable)  # (m, q)
        total = parents * take_rows(place, variable)
        for j in range(own.exponents.shape[1]):
            total = total + slopes[:, j] * (_raise(parents, own, j) + _lower(parents, own, j))
        # Where there is no grandparent its weight is zero; any column will do.
        earlier = take_rows(columns.T, np.where(grand < columns.shape[1], grand, 0)).T
        total = total - earlier * constant(np.sqrt(count - 1.0), place)
        columns = xp.concat([columns, total / constant(np.sqrt(count), place)], axis=1)
    return columns if columns.shape[1] else zero


def _project_ridge(p: RidgePolynomial, back: Array, own: _Ladder) -> Array:
    """Coefficients (t, o) of a component's own optimum in the products he_b(w), x = mean + back w.

    For a unit vector a, he_k(a.w) = sum over |b| = k of sqrt(k!/b!) a^b he_b(w); e = q.w with q orthogonal to a
    multiplies it by the raising part alone.
    """
    xp = namespace(back=back)
    readout = eye(p.dim_out, back) if p.readout is None else widen(p.readout)
    t = (widen(p.directions) @ back) * widen(p.inverse_scales)[:, None]
    powers = _powers(t, own)  # (t, h)
    degrees = own.degrees
    series = take_rows(widen(p.series), degrees)
    hidden = powers * series
    if p.gate is not None:
        q = widen(p.gate.directions) @ back - widen(p.gate.slopes)[:, None] * t
        gated = widen(p.gate.series)
        mixed = powers * 0
        for j in range(own.exponents.shape[1]):
            mixed = mixed + q[:, j] * _raise(powers, own, j)
        shifted = take_rows(xp.concat([gated[:1, ...] * 0, gated]), degrees)
        hidden = hidden + mixed * shifted
    out = hidden @ readout.T
    if p.bias is None:
        return out
    corner = np.zeros((len(degrees), 1))
    corner[0] = 1.0
    return out + constant(corner, back) * widen(p.bias)


def _powers(t: Array, own: _Ladder) -> Array:
    """Rows sqrt(k!/b!) a^b for every multi-index b and every neuron, (t, h), degree by degree."""
    xp = namespace(t=t)
    rows = t[:, 0][None, :] * 0 + 1 if t.shape[1] else xp.ones_like(t.T)[:0, ...]
    if not t.shape[1]:
        return constant(np.ones((1, t.shape[0])), t)
    for k in range(1, int(own.degrees.max(initial=0)) + 1):
        new = np.flatnonzero(own.degrees == k)
        variable = np.argmax(own.exponents[new] > 0, axis=1)
        parents = take_rows(rows, own.down[variable, new])
        scale = np.sqrt(k / own.exponents[new, variable])[:, None]
        rows = xp.concat([rows, parents * take_rows(t.T, variable) * constant(scale, t)])
    return rows
