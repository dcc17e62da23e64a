"""Block conjugate gradients: all outputs search in one shared Krylov space."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mlpoly.arrays import Array, constant_index, namespace, scalar, to_numpy

__all__ = ["BlockSolution", "block_cg"]

_WINDOW = 5  # iterations over which the speed of convergence is judged


class BlockSolution(NamedTuple):
    """Iterate, misfit after each iteration, estimate of the relative gain left, and whether that met the tolerance."""

    x: Array
    history: list[float]
    gain_left: float
    converged: bool


def block_cg(
    apply: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    b: Array,
    start: Array | None,
    misfit: float,
    tolerance: float,
    max_iterations: int,
    report: Callable[[int, float], None],
) -> BlockSolution:
    """Minimise misfit - 2 <b, x> + <x, A x> over blocks x of o vectors (MATH 4).

    Stops when the decrease of the misfit still to be expected, extrapolated from the last two windows of iterations, is
    below `tolerance` times the misfit, or when rounding ends all progress. An interrupt keeps the current iterate.

    Parameters
    ----------
    apply, precondition : callable
        Symmetric positive (semi)definite operators on blocks of the shape of `b`, (o, ...).
    misfit : float
        Value at x = 0.
    """
    rows = _Rows(tuple(b.shape))
    flat_apply = rows.on(apply)
    flat_precondition = rows.on(precondition)
    r, x = rows.flat(b), rows.flat(b) * 0
    history: list[float] = []
    if start is not None:
        x = rows.flat(start)
        image = flat_apply(x)
        misfit = misfit - 2 * _dot(r, x) + _dot(image, x)
        r = r - image
    value, gain, converged = misfit, 1.0, misfit <= 0
    direction = flat_precondition(r)
    try:
        for k in range(max_iterations):
            if converged:
                break
            direction = _orthonormal(direction)
            if direction.shape[0] == 0:
                converged, gain = True, 0.0
                break
            image = flat_apply(direction)
            curvature = direction @ image.T
            slope = direction @ r.T
            step = _solve(curvature, slope)
            decrease = scalar(namespace(a=step).sum(step * slope))
            x, r = x + step.T @ direction, r - step.T @ image
            value -= decrease
            history.append(value)
            gain = _gain_left(history, misfit)
            converged = gain <= tolerance or decrease <= 1e-15 * abs(misfit)
            report(k + 1, value)
            fresh = flat_precondition(r)
            direction = fresh - _solve(curvature, image @ fresh.T).T @ direction
    except KeyboardInterrupt:
        warnings.warn("the mixture fit was interrupted; the polynomial found so far is returned.", stacklevel=2)
    return BlockSolution(rows.shaped(x), history, gain, converged)


class _Rows:
    """Blocks (o, ...) as matrices (o, size) and back."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def flat(self, block: Array) -> Array:
        return namespace(block=block).reshape(block, (block.shape[0], -1))

    def shaped(self, rows: Array) -> Array:
        return namespace(rows=rows).reshape(rows, (rows.shape[0], *self.shape[1:]))

    def on(self, operator: Callable[[Array], Array]) -> Callable[[Array], Array]:
        return lambda rows: self.flat(operator(self.shaped(rows)))


def _dot(a: Array, b: Array) -> float:
    return scalar(namespace(a=a).sum(a * b))


def _orthonormal(rows: Array) -> Array:
    """Orthonormal basis of the row space; directions of outputs that have converged, or repeat others, drop out."""
    xp = namespace(rows=rows)
    size = xp.sqrt(xp.sum(rows * rows, axis=1))
    if scalar(xp.max(size)) == 0:
        return rows[:0, ...]
    rows = rows / xp.where(size > 0, size, 1.0)[:, None]
    for _ in range(2):  # once leaves errors of the condition number squared, twice none
        values, vectors = xp.linalg.eigh(rows @ rows.T)
        spectrum = to_numpy(values)
        keep = np.flatnonzero(spectrum > 1e-12 * spectrum.max())
        index = constant_index(keep, rows)
        rows = (xp.take(vectors, index, axis=1) / xp.sqrt(xp.take(values, index))).T @ rows
    return rows


def _solve(matrix: Array, right: Array) -> Array:
    """Solution of a small symmetric positive semidefinite system; null directions get nothing."""
    xp = namespace(matrix=matrix)
    values, vectors = xp.linalg.eigh(0.5 * (matrix + matrix.T))
    good = values > 1e-14 * xp.max(values)
    inverse = xp.where(good, 1 / xp.where(good, values, 1.0), 0.0)
    return vectors @ (inverse[:, None] * (vectors.T @ right))


def _gain_left(history: list[float], misfit: float) -> float:
    """Decrease still to be expected relative to the misfit, by geometric extrapolation of the last two windows."""
    if len(history) < 2 * _WINDOW:
        return 1.0
    before = history[-2 * _WINDOW - 1] if len(history) > 2 * _WINDOW else misfit
    older, newer = before - history[-_WINDOW - 1], history[-_WINDOW - 1] - history[-1]
    if newer <= 0:
        return 0.0
    rate = min(newer / older, 0.9) if older > 0 else 0.9
    return newer * rate / (1 - rate) / max(history[-1], 1e-300)
