"""Block conjugate gradients: all outputs search in one shared Krylov space."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mlpoly.arrays import Array, accumulate_product, constant, namespace, on_cpu, scalar, start_copy, to_numpy

__all__ = ["BlockSolution", "block_cg"]

_WINDOW = 5  # iterations over which the speed of convergence is judged
_FEW = 2  # the same for a start that is nearly there, on which two windows would be wasted
_SLOWEST = 0.9  # share of the decrease of one window that the next one still brings, at most
# Smallest eigenvalue of scaled inner products of the directions. Below the first, curvatures that the host turns into
# an orthonormal basis have lost too many digits; above the second, that will hardly happen in the next iteration.
_DEPENDENT, _INDEPENDENT = 1e-4, 1e-2
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
        Symmetric positive (semi)definite operators on blocks of the shape of `b`, (o, ...). They return new arrays.
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
    fresh = flat_precondition(r)
    level = rounding**2 * scalar(_dot(r, fresh))
    value, floor = misfit, rounding * misfit
    if start is not None:
        image = flat_apply(rows.flat(start))
        there = misfit + scalar(_dot(image - 2 * r, rows.flat(start)))
        # A start worse than none is far away: what it leaves over is rounding errors of its own size, not of b's.
        if there < misfit:
            x, value, r = rows.flat(start) + 0, there, r - image
            fresh = flat_precondition(r)
    history: list[float] = []
    gain, converged, exhausted, interrupted = 1.0, False, False, False
    before = math.inf  # squared residual at the last look
    try:
        while not converged:
            search = _Search(fresh, r, rounding)
            residuals, decreases = [scalar(search.residual)], list[float]()
            if _exhausted(residuals, level) or residuals[0] > 0.25 * before:
                converged, exhausted, gain = True, True, 0.0
            if converged or len(history) >= max_iterations:
                break
            before = residuals[0]
            while len(history) < max_iterations:
                step, residual = search.along(flat_apply, r)
                residuals.append(residual)
                if search.empty or _exhausted(residuals[1:], level):
                    break
                decreases.append(float(np.sum(step * search.slope)))
                value -= decreases[-1]
                x, r = search.move(step, x, r)
                history.append(value)
                report(len(history), value)
                gain = _gain_left(decreases, max(value, floor, 1e-300))
                converged = gain <= tolerance
                if converged:
                    break
                search.turn_to(flat_precondition(r), r)
            # The residual of the recurrence drifts away from the true one. Where it says that rounding ends all
            # progress, look at the true one, and search again as long as that helps.
            if not converged:
                r = rows.flat(b) - flat_apply(x)
                fresh = flat_precondition(r)
    except KeyboardInterrupt:
        interrupted = True
        warnings.warn("the mixture fit was interrupted; the polynomial found so far is returned.", stacklevel=2)
    return BlockSolution(rows.shaped(x), history, gain, converged, exhausted, interrupted)


class _Search:
    """The directions of one iteration, their images under the operator, and the inverse of their curvature.

    A GPU waits for the host once in an iteration, until the curvature of the directions has been inverted. Inner
    products and slopes are looked at before, while it makes the images, and after that it works on until the next
    images by itself. For that the directions are not made orthonormal, unless they are nearly dependent: the small
    problem is solved in an orthonormal basis of their span, which the host knows from their inner products. Where there
    is nobody to wait they are made orthonormal every time.

    An iteration is `along`, `move` and `turn_to`, in this order.
    """

    images: Array  # of the directions under the operator
    slope: np.ndarray  # (k, o): inner products of directions and residuals
    inverse: np.ndarray  # (k, k): of the curvature
    inverse_there: Array  # the same where the arrays are

    def __init__(self, fresh: Array, r: Array, rounding: float) -> None:
        self.directions, self.rounding, self.waits = fresh, rounding, not on_cpu(fresh)
        self.residual = _dot(fresh, r)  # squared, in the metric of the preconditioner
        self.independent = False  # whether the last directions were; the first ones are not known
        self.scale = 0.0  # largest curvature seen

    @property
    def empty(self) -> bool:
        """Whether nothing is left to search along."""
        return int(self.directions.shape[0]) == 0

    def along(self, apply: Callable[[Array], Array], r: Array) -> tuple[np.ndarray, float]:
        """Coefficients (k, o) of the best step along the directions for each residual r, and the size of these."""
        if self.independent:
            gram, residual = self._look(apply, r)
            basis, smallest = _orthonormal_basis(gram, 0.0)
            if smallest > _DEPENDENT:
                return self._step(basis), residual
        # Made orthonormal, they need new images. To leave out what is dependent would save these, but lose conjugacy.
        self.directions, smallest = _orthonormal(self.directions)
        self.independent = self.waits and smallest > _INDEPENDENT
        if self.empty:
            return np.zeros((0, r.shape[0])), 0.0
        gram, residual = self._look(apply, r)
        return self._step(np.eye(gram.shape[0])), residual

    def move(self, step: np.ndarray, x: Array, r: Array) -> tuple[Array, Array]:
        """Iterate and residuals after a step."""
        both = constant(np.concatenate([step.T, self.inverse]), x)
        change, self.inverse_there = both[: x.shape[0], :], both[x.shape[0] :, :]
        r = accumulate_product(r, change, self.images, -1.0)
        return accumulate_product(x, change, self.directions), r

    def turn_to(self, fresh: Array, r: Array) -> None:
        """New directions: the preconditioned residuals less what is not conjugate to the old ones.

        They take the place of `fresh` in memory.
        """
        self.residual = _dot(fresh, r)
        past = (fresh @ self.images.T) @ self.inverse_there
        self.directions = accumulate_product(fresh, past, self.directions, -1.0)

    def _look(self, apply: Callable[[Array], Array], r: Array) -> tuple[np.ndarray, float]:
        """Start to make the images of the directions; inner products of these, and the size of the residuals."""
        d = self.directions
        known = _Small(d @ d.T, d @ r.T, self.residual)
        self.images = apply(d)
        gram, self.slope, residual = known.arrays()
        return gram, float(residual)

    def _step(self, basis: np.ndarray) -> np.ndarray:
        curvature = to_numpy(self.directions @ self.images.T).astype(np.float64)
        turned = basis.T @ curvature @ basis
        self.scale = max(self.scale, float(turned.max()))
        self.inverse = basis @ _inverse(turned, _NOISE * self.rounding * self.scale) @ basis.T
        step: np.ndarray = self.inverse @ self.slope
        return step


class _Small:
    """Small arrays on their way to the host, where their algebra is faster, in one transfer."""

    def __init__(self, *small: Array) -> None:
        xp = namespace(small=small[0])
        self.shapes = [tuple(a.shape) for a in small]
        self.wait = start_copy(xp.concat([xp.reshape(a, (-1,)) for a in small]))

    def arrays(self) -> list[np.ndarray]:
        """The same as NumPy arrays."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        parts = np.split(self.wait().astype(np.float64), ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]


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


def _dot(a: Array, b: Array) -> Array:
    """Sum of all products, where the arrays are."""
    xp = namespace(a=a)
    return xp.reshape(a, (-1,)) @ xp.reshape(b, (-1,))


def _orthonormal(rows: Array) -> tuple[Array, float]:
    """Orthonormal basis of the row space, and the smallest eigenvalue of the rows' scaled inner products.

    Directions of outputs that have converged, or repeat others, drop out; the eigenvalue is zero then.
    """
    floor = max(1e-12, 100 * float(namespace(rows=rows).finfo(rows.dtype).eps))
    first = math.inf
    for _ in range(2):  # once leaves errors of the condition number squared, twice none
        (gram,) = _Small(rows @ rows.T).arrays()
        basis, smallest = _orthonormal_basis(gram, floor)
        if not basis.shape[1]:
            return rows[:0, ...], 0.0
        first = min(first, smallest if basis.shape[0] == basis.shape[1] else 0.0)
        rows = constant(basis.T.copy(), rows) @ rows
        if smallest > 1e-3:
            break  # well conditioned: once is enough
    return rows, first


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

    Residuals of conjugate gradients may grow for a while in between, most of all after a good start. So the first ones
    do not count, and the farther the best one is from rounding, the more they must have grown.
    """
    if residuals[-1] <= 400 * level:
        return True
    best = min(residuals[_WINDOW:], default=math.inf)
    near = max(1e6 * level, 1e-300)  # of a right-hand side of zeros no rounding is known
    return residuals[-1] > 10 * best * max(1.0, best / near)


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
