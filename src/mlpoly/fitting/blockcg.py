"""Block conjugate gradients: all outputs search in one shared Krylov space."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mlpoly.arrays import Array, accumulate_product, constant, namespace, scalar, to_numpy

__all__ = ["BlockSolution", "block_cg"]

_WINDOW = 5  # iterations over which the speed of convergence is judged
_FEW = 2  # the same for a start that is nearly there, on which two windows would be wasted
_SLOWEST = 0.9  # share of the decrease of one window that the next one still brings, at most
_DEPENDENT = 1e-4  # smallest eigenvalue of scaled inner products of directions that are far from dependent
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
    # The loop adds to these in place, so they must not be the caller's.
    r, x = rows.flat(b) + 0, rows.flat(b) * 0
    history: list[float] = []
    decreases: list[float] = []
    fresh = flat_precondition(r)
    level = rounding**2 * _dot(r, fresh)
    value, floor = misfit, rounding * misfit
    if start is not None:
        x = rows.flat(start) + 0
        image = flat_apply(x)
        value = misfit - 2 * _dot(r, x) + _dot(image, x)
        r = r - image
        fresh = flat_precondition(r)
    residuals = [_dot(r, fresh)]
    exhausted = converged = _exhausted(residuals, level)
    gain, search, interrupted = 0.0 if converged else 1.0, _Search(fresh, rounding), False
    try:
        for k in range(max_iterations):
            if converged:
                break
            step = search.along(flat_apply, r)
            if search.empty:
                converged, exhausted, gain = True, True, 0.0
                break
            decreases.append(float(np.sum(step * search.slope)))
            value -= decreases[-1]
            move = constant(step.T.copy(), x)
            x = accumulate_product(x, move, search.directions)
            r = accumulate_product(r, move, search.images, -1.0)
            history.append(value)
            report(k + 1, value)
            fresh = flat_precondition(r)
            residual, overlap = _inner((r, fresh), (search.images, fresh))
            residuals.append(float(np.trace(residual)))
            gain = _gain_left(decreases, max(value, floor, 1e-300))
            exhausted = gain > tolerance and _exhausted(residuals, level)
            gain = 0.0 if exhausted else gain
            converged = gain <= tolerance
            search.turn_to(fresh, overlap)
    except KeyboardInterrupt:
        interrupted = True
        warnings.warn("the mixture fit was interrupted; the polynomial found so far is returned.", stacklevel=2)
    return BlockSolution(rows.shaped(x), history, gain, converged, exhausted, interrupted)


class _Search:
    """The directions of one iteration, their images under the operator, and the inverse of their curvature.

    They are not made orthonormal unless they are nearly dependent: the small problem is solved in an orthonormal basis
    of their span, which the host knows from their inner products. So one wait for the device tells all that a step
    needs, inner products, curvature and slope.
    """

    def __init__(self, directions: Array, rounding: float) -> None:
        self.directions, self.rounding = directions, rounding
        self.independent = False  # whether the last directions were; the first ones are not known
        self.scale = 0.0  # largest curvature seen

    @property
    def empty(self) -> bool:
        """Whether nothing is left to search along."""
        return int(self.directions.shape[0]) == 0

    def along(self, apply: Callable[[Array], Array], r: Array) -> np.ndarray:
        """Coefficients (k, o) of the best step along the directions for each residual."""
        if self.independent:
            self.images = apply(self.directions)
            gram, curvature, self.slope = self._products(r)
            basis, smallest = _orthonormal_basis(gram, 0.0)
            if smallest > _DEPENDENT:
                return self._step(curvature, basis)
        self.directions, self.independent = _orthonormal(self.directions)
        if self.empty:
            return np.zeros((0, r.shape[0]))
        self.images = apply(self.directions)
        _, curvature, self.slope = self._products(r)
        return self._step(curvature, np.eye(curvature.shape[0]))

    def turn_to(self, fresh: Array, overlap: np.ndarray) -> None:
        """New directions: the preconditioned residuals less what is not conjugate to the old ones."""
        past = self.inverse @ overlap
        self.directions = accumulate_product(fresh, constant(past.T.copy(), fresh), self.directions, -1.0)

    def _products(self, r: Array) -> list[np.ndarray]:
        d = self.directions
        return _inner((d, d), (d, self.images), (d, r))

    def _step(self, curvature: np.ndarray, basis: np.ndarray) -> np.ndarray:
        turned = basis.T @ curvature @ basis
        self.scale = max(self.scale, float(turned.max()))
        self.inverse = basis @ _inverse(turned, _NOISE * self.rounding * self.scale) @ basis.T
        step: np.ndarray = self.inverse @ self.slope
        return step


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


def _inner(*pairs: tuple[Array, Array]) -> list[np.ndarray]:
    """Inner products of all rows of pairs of arrays, on the host, where the small algebra of a block is faster.

    All of them in one transfer, because the device idles until the host has answered.
    """
    made = [a @ b.T for a, b in pairs]
    xp = namespace(a=made[0])
    flat = to_numpy(xp.concat([xp.reshape(m, (-1,)) for m in made])).astype(np.float64)
    ends = np.cumsum([m.shape[0] * m.shape[1] for m in made])
    return [part.reshape(m.shape) for part, m in zip(np.split(flat, ends[:-1]), made, strict=True)]


def _orthonormal(rows: Array) -> tuple[Array, bool]:
    """Orthonormal basis of the row space, and whether the rows were far from dependent.

    Directions of outputs that have converged, or repeat others, drop out.
    """
    floor = max(1e-12, 100 * float(namespace(rows=rows).finfo(rows.dtype).eps))
    independent = True
    for _ in range(2):  # once leaves errors of the condition number squared, twice none
        (gram,) = _inner((rows, rows))
        basis, smallest = _orthonormal_basis(gram, floor)
        if not basis.shape[1]:
            return rows[:0, ...], False
        independent = independent and smallest > _DEPENDENT and basis.shape[0] == basis.shape[1]
        rows = constant(basis.T.copy(), rows) @ rows
        if smallest > _DEPENDENT:
            break  # well conditioned: once is enough
    return rows, independent


def _orthonormal_basis(gram: np.ndarray, floor: float) -> tuple[np.ndarray, float]:
    """Columns that make vectors with this Gram matrix orthonormal, and the smallest eigenvalue among them.

    Eigenvalues are those of vectors scaled to length one; combinations below `floor` times the largest are left out.
    """
    size = np.sqrt(np.diagonal(gram))
    size = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(gram / size / size[:, None])
    keep = values > floor * max(float(values.max()), 0.0)
    if not keep.any():
        return gram[:, :0], 0.0
    return vectors[:, keep] / np.sqrt(values[keep]) / size[:, None], float(values[keep].min())


def _inverse(matrix: np.ndarray, floor: float) -> np.ndarray:
    """Inverse of a small symmetric positive semidefinite matrix; directions of curvature below `floor` get nothing."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    good = values > floor
    inverse: np.ndarray = (vectors * np.where(good, 1 / np.where(good, values, 1.0), 0.0)) @ vectors.T
    return inverse


def _exhausted(residuals: list[float], level: float) -> bool:
    """Whether squared residuals are rounding errors, `level`, or so near to these that they grow again.

    Residuals of conjugate gradients may grow for a while in between, so the farther the best one is from rounding, the
    more they must have grown.
    """
    best, near = min(residuals), 1e6 * level
    return residuals[-1] <= 400 * level or residuals[-1] > 10 * best * max(1.0, best / max(near, 1e-300))


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
