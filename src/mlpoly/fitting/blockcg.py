"""Block conjugate gradients: all outputs search in one shared Krylov space."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mlpoly.arrays import Array, constant, namespace, scalar, to_numpy

__all__ = ["BlockSolution", "block_cg"]

_WINDOW = 5  # iterations over which the speed of convergence is judged
_FEW = 2  # the same for a start that is nearly there, on which two windows would be wasted
_SLOWEST = 0.9  # share of the decrease of one window that the next one still brings, at most
_NOISE = 20  # roundings that add up in one product


class BlockSolution(NamedTuple):
    """Iterate, misfit after each iteration, estimate of the relative gain left, and whether that met the tolerance.

    `exhausted` tells that rounding ended all progress first, `interrupted` that the user did.
    """

    x: Array
    history: list[float]
    gain_left: float
    converged: bool
    exhausted: bool
    interrupted: bool


def block_cg(
    apply: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    b: Array,
    start: Array | None,
    misfit: float,
    tolerance: float,
    max_iterations: int,
    report: Callable[[int, float], None],
    rounding: float | None = None,
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
    rounding : float, optional
        Relative rounding error of `apply`, by default that of the dtype: residuals and curvatures below it are noise.
    """
    rounding = float(namespace(b=b).finfo(b.dtype).eps) if rounding is None else rounding
    rows = _Rows(tuple(b.shape))
    flat_apply = rows.on(apply)
    flat_precondition = rows.on(precondition)
    r, x = rows.flat(b), rows.flat(b) * 0
    history: list[float] = []
    decreases: list[float] = []
    fresh = flat_precondition(r)
    level = rounding**2 * _dot(r, fresh)
    value, floor = misfit, rounding * misfit
    if start is not None:
        x = rows.flat(start)
        image = flat_apply(x)
        value = misfit - 2 * _dot(r, x) + _dot(image, x)
        r = r - image
        fresh = flat_precondition(r)
    residuals, scale = [_dot(r, fresh)], 0.0
    exhausted = converged = _exhausted(residuals, level)
    gain, direction, interrupted = 0.0 if converged else 1.0, fresh, False
    try:
        for k in range(max_iterations):
            if converged:
                break
            direction = _orthonormal(direction)
            if direction.shape[0] == 0:
                converged, exhausted, gain = True, True, 0.0
                break
            image = flat_apply(direction)
            curvature, slope = _inner(direction, image), _inner(direction, r)
            scale = max(scale, float(curvature.max()))
            step = _solve(curvature, slope, _NOISE * rounding * scale)
            decreases.append(float(np.sum(step * slope)))
            value -= decreases[-1]
            move = constant(step.T.copy(), x)
            x, r = x + move @ direction, r - move @ image
            history.append(value)
            report(k + 1, value)
            fresh = flat_precondition(r)
            residuals.append(_dot(r, fresh))
            gain = _gain_left(decreases, max(value, floor, 1e-300))
            exhausted = gain > tolerance and _exhausted(residuals, level)
            gain = 0.0 if exhausted else gain
            converged = gain <= tolerance
            past = _solve(curvature, _inner(image, fresh), _NOISE * rounding * scale)
            direction = fresh - constant(past.T.copy(), x) @ direction
    except KeyboardInterrupt:
        interrupted = True
        warnings.warn("the mixture fit was interrupted; the polynomial found so far is returned.", stacklevel=2)
    return BlockSolution(rows.shaped(x), history, gain, converged, exhausted, interrupted)


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


def _inner(a: Array, b: Array) -> np.ndarray:
    """Inner products of all rows of a and b, on the host: the small algebra of a block is faster there."""
    return to_numpy(a @ b.T).astype(np.float64)


def _orthonormal(rows: Array) -> Array:
    """Orthonormal basis of the row space; directions of outputs that have converged, or repeat others, drop out."""
    floor = max(1e-12, 100 * float(namespace(rows=rows).finfo(rows.dtype).eps))
    for _ in range(2):  # once leaves errors of the condition number squared, twice none
        gram = _inner(rows, rows)
        size = np.sqrt(np.diagonal(gram))
        size = np.where(size > 0, size, 1.0)
        values, vectors = np.linalg.eigh(gram / size / size[:, None])
        keep = values > floor * max(float(values.max()), 0.0)
        if not gram.any() or not keep.any():
            return rows[:0, ...]
        turn = vectors[:, keep] / np.sqrt(values[keep]) / size[:, None]
        rows = constant(turn.T.copy(), rows) @ rows
        if float(values[keep].min()) > 1e-3:
            break  # well conditioned: once is enough
    return rows


def _solve(matrix: np.ndarray, right: np.ndarray, floor: float) -> np.ndarray:
    """Solution of a small symmetric positive semidefinite system; directions of curvature below `floor` get nothing."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    good = values > floor
    inverse = np.where(good, 1 / np.where(good, values, 1.0), 0.0)
    solved: np.ndarray = vectors @ (inverse[:, None] * (vectors.T @ right))
    return solved


def _exhausted(residuals: list[float], level: float) -> bool:
    """Whether squared residuals are rounding errors, `level`, or so near to these that they grow again."""
    best = min(residuals)
    return residuals[-1] <= 400 * level or (best <= 1e6 * level and residuals[-1] > 10 * best)


def _gain_left(decreases: list[float], misfit: float) -> float:
    """Decrease still to be expected relative to the misfit, by geometric extrapolation of the last two windows.

    From the decreases themselves: differences of misfits are lost in rounding long before the answer has settled.
    """
    if len(decreases) < 2 * _WINDOW:
        # Too few to tell the speed. At the slowest that is believed, only a start close to the answer ends here.
        rate = _SLOWEST ** (_FEW / _WINDOW)
        newer = sum(decreases[-_FEW:])
        return newer * rate / (1 - rate) / misfit if len(decreases) >= 2 * _FEW and newer > 0 else 1.0
    older, newer = sum(decreases[-2 * _WINDOW : -_WINDOW]), sum(decreases[-_WINDOW:])
    if newer <= 0:
        return 0.0
    # Early windows fall faster than later ones, so a rate below one half is not believed.
    rate = min(max(newer / older, 0.5), _SLOWEST) if older > 0 else _SLOWEST
    return newer * rate / (1 - rate) / misfit
