"""Block conjugate gradients: all right-hand sides search in one shared Krylov space.

One right-hand side after the other would need as many iterations each as the worst of them alone. Together, every
iteration searches along one direction per right-hand side, and each solution takes its best step along all of them: o
right-hand sides see a Krylov space of dimension o times the iterations, and the operator works on a large block at
a time, which is what matrix units are good at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlpoly.arrays import Array, accumulate_product, constant, namespace, on_cpu, scalar, start_copy, to_numpy

__all__ = ["BlockSolution", "block_cg"]

_WINDOW = 5  # iterations over which the speed of convergence is judged
_FEW = 2  # the same for a start that is nearly there, on which two windows would be wasted
_SLOWEST = 0.9  # largest fraction of the decrease of one window that the next one is expected to bring
# Smallest eigenvalue of the inner products of directions of length one. Below the first, curvatures turned to an
# orthonormal basis on the host have lost too many digits; above the second, that is unlikely in the next iteration.
_DEPENDENT, _INDEPENDENT = 1e-4, 1e-2
_NOISE = 20  # rounding errors that add up in one product


@dataclass(frozen=True)
class BlockSolution:
    """What the iterations found."""

    x: Array  # (o, ...), last iterate
    history: tuple[float, ...]  # misfit after each iteration
    gain_left: float  # estimate of the decrease of the misfit still possible, relative to the misfit
    converged: bool  # whether that met the tolerance, or rounding ended all progress
    exhausted: bool  # whether it was rounding
    interrupted: bool  # whether the user ended it


def block_cg(
    apply: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    b: Array,
    *,
    misfit: float,
    tolerance: float,
    max_iterations: int,
    start: Array | None = None,
    rounding: float | None = None,
    report: Callable[[int, float], None] = lambda iteration, value: None,
) -> BlockSolution:
    """Minimise misfit - 2 <b, x> + <x, A x> over blocks x of o vectors.

    Stops when the decrease of the misfit still to be expected is below `tolerance` times the misfit, or when rounding
    ends all progress. A KeyboardInterrupt ends it with the current iterate.

    Parameters
    ----------
    apply, precondition : callable
        Symmetric positive (semi)definite operators on blocks of the shape of `b`. They return new arrays.
    b : array (o, ...)
        Right-hand sides.
    misfit : float
        Value at x = 0.
    tolerance : float
    max_iterations : int
    start : array (o, ...), optional
        First iterate, zero by default.
    rounding : float, optional
        Relative rounding error of `apply`, by default that of the dtype: residuals and curvatures below it are noise.
    report : callable, optional
        Called with the number of iterations made and the misfit after each of them.
    """
    xp = namespace(b=b)
    rounding = float(xp.finfo(b.dtype).eps) if rounding is None else rounding

    def rows(block: Array) -> Array:
        return xp.reshape(block, (block.shape[0], -1))

    def on_rows(operator: Callable[[Array], Array]) -> Callable[[Array], Array]:
        return lambda flat: rows(operator(xp.reshape(flat, (flat.shape[0], *b.shape[1:]))))

    def next_search(r: Array, step: _BestStep | None = None) -> _Search:
        """Along the preconditioned residuals, less what is not conjugate to the step before."""
        fresh = precondition(r)
        residual = _dot(fresh, r)
        if step is None:
            return _Search(fresh, residual)
        past = (fresh @ step.images.T) @ step.inverse
        # The new directions take the place of `fresh` in memory.
        return _Search(accumulate_product(fresh, past, step.directions, -1.0), residual, step.independent, step.largest)

    apply, precondition = on_rows(apply), on_rows(precondition)
    # The loop adds to x and r = b - A x in place, so they must not be the caller's.
    x, r = rows(b) * 0, rows(b) + 0
    search = next_search(r)
    noise = rounding**2 * scalar(search.residual)  # what rounding alone makes of the squared residual
    value, floor = misfit, rounding * misfit
    if start is not None:
        image = apply(rows(start))
        there = misfit + scalar(_dot(image - 2 * r, rows(start)))
        # A start worse than none is ignored. It is far away, and the solution would be left with rounding errors of
        # the start's size instead of b's.
        if there < misfit:
            x, r, value = rows(start) + 0, r - image, there
            search = next_search(r)
        del image
    history: list[float] = []
    gain, converged, exhausted, interrupted = 1.0, False, False, False
    before = math.inf
    try:
        while not converged:
            # Here r is the true residual. It decides whether rounding has ended all progress: it is at the level of
            # noise, or searching from the last true residual has hardly reduced it.
            residual = scalar(search.residual)
            if residual <= 400 * noise or residual > 0.25 * before:
                converged, exhausted, gain = True, True, 0.0
            if converged or len(history) >= max_iterations:
                break
            before = residual
            residuals, decreases = list[float](), list[float]()
            while len(history) < max_iterations:
                step = _best_step(search, r, apply, rounding)
                if step is None:
                    break
                residuals.append(step.residual)
                if _is_noise(residuals, noise):
                    break
                r = accumulate_product(r, step.coefficients, step.images, -1.0)
                x = accumulate_product(x, step.coefficients, step.directions)
                decreases.append(step.decrease)
                value -= step.decrease
                history.append(value)
                report(len(history), value)
                gain = _gain_left(decreases, max(value, floor, 1e-300))
                converged = gain <= tolerance
                if converged:
                    break
                search = next_search(r, step)
                del step  # so that its large arrays make room for the next images
            if not converged:
                # The residual of the recurrence drifts away from the true one by a rounding error per step. Where it
                # says that nothing is left to do, or the directions have run out, the true one may know better.
                r = rows(b) - apply(x)
                search = next_search(r)
    except KeyboardInterrupt:
        interrupted = True
    return BlockSolution(xp.reshape(x, b.shape), tuple(history), gain, converged, exhausted, interrupted)


@dataclass(frozen=True)
class _Search:
    """Where the next step is looked for."""

    directions: Array  # (k, size), conjugate to all that were searched before
    residual: Array  # (), squared size of the residuals in the metric of the preconditioner
    # whether the last directions were so far from dependent that these need not be made orthonormal
    independent: bool = False  # of the first ones nothing is known
    largest: float = 0.0  # largest curvature so far, in an orthonormal basis


@dataclass(frozen=True)
class _BestStep:
    """The best step along k directions, for all o residuals at once."""

    directions: Array  # (k, size), what was searched along
    images: Array  # (k, size), what the operator makes of it
    coefficients: Array  # (o, k), of the directions, for each residual
    inverse: Array  # (k, k), of the curvature, which is the inner products of directions and images
    decrease: float  # of the misfit
    residual: float  # squared size of the residuals before the step, on the host
    independent: bool  # this and the next as for the search that follows
    largest: float


def _best_step(search: _Search, r: Array, apply: Callable[[Array], Array], rounding: float) -> _BestStep | None:
    """The step that minimises the misfit along the directions of a search, for residuals r; None if none is left.

    Directions must be independent, or their curvature cannot be inverted. The obvious way is to make them orthonormal
    in every iteration, and on a processor that is done. A GPU would have to wait for the host twice then: for the
    orthonormal basis, and for the inverse of the curvature. So there the directions stay as they are unless they are
    nearly dependent. The basis that would make them orthonormal is worked out on the host, from their inner products,
    while the GPU makes their images, and only the small curvature matrix is turned to it. That leaves one wait, and
    after it the GPU has work until the next images.
    """
    directions, independent = search.directions, search.independent
    if independent:
        images, gram, slopes, residual = _images_and_products(directions, search.residual, r, apply)
        basis, smallest = _orthonormal_basis(gram, 0.0)
        independent = smallest > _DEPENDENT
    if not independent:
        # The images must be made again. To leave out the dependent directions would save them, but lose conjugacy.
        directions, smallest = _orthonormal(directions)
        if directions.shape[0] == 0:
            return None
        images, _, slopes, residual = _images_and_products(directions, search.residual, r, apply)
        basis = np.eye(directions.shape[0])
        independent = not on_cpu(directions) and smallest > _INDEPENDENT
    curvature = basis.T @ to_numpy(directions @ images.T).astype(np.float64) @ basis
    largest = max(search.largest, float(curvature.max()))
    # Along directions whose curvature is a rounding error there is no step, for it could have any length.
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    good = values > _NOISE * rounding * largest
    turned = (vectors * np.where(good, 1 / np.where(good, values, 1.0), 0.0)) @ vectors.T
    inverse = basis @ turned @ basis.T
    coefficients = inverse @ slopes
    there = constant(np.concatenate([coefficients.T, inverse]), r)  # in one transfer
    o = r.shape[0]
    decrease = float(np.sum(coefficients * slopes))
    return _BestStep(directions, images, there[:o, :], there[o:, :], decrease, residual, independent, largest)


def _images_and_products(
    directions: Array, residual: Array, r: Array, apply: Callable[[Array], Array]
) -> tuple[Array, np.ndarray, np.ndarray, float]:
    """Images (k, size); on the host, inner products of directions (k, k) and with r (k, o), and the residual's size.

    The small arrays set out for the host, in one transfer, before the operator begins.
    """
    xp = namespace(r=r)
    small = directions @ directions.T, directions @ r.T, residual
    wait = start_copy(xp.concat([xp.reshape(a, (-1,)) for a in small]))
    images = apply(directions)
    numbers, k = wait().astype(np.float64), directions.shape[0]
    return images, numbers[: k * k].reshape(k, k), numbers[k * k : -1].reshape(k, -1), float(numbers[-1])


def _dot(a: Array, b: Array) -> Array:
    """Sum of all products, where the arrays are."""
    xp = namespace(a=a)
    return xp.reshape(a, (-1,)) @ xp.reshape(b, (-1,))


def _orthonormal(rows: Array) -> tuple[Array, float]:
    """Orthonormal basis of the row space, and the smallest eigenvalue of the rows' scaled inner products.

    Directions of right-hand sides that have converged, or repeat others, drop out; the eigenvalue is zero then.
    """
    floor = max(1e-12, 100 * float(namespace(rows=rows).finfo(rows.dtype).eps))
    first = math.inf
    for _ in range(2):  # once leaves errors of the condition number squared, twice none
        basis, smallest = _orthonormal_basis(to_numpy(rows @ rows.T).astype(np.float64), floor)
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


def _is_noise(residuals: list[float], noise: float) -> bool:
    """Whether squared residuals are rounding errors, `noise`, or so near to these that they grow again.

    Residuals of conjugate gradients may grow for a while in between, most of all after a good start. So the first ones
    do not count, and the farther the best one is from rounding, the more they must have grown.
    """
    if residuals[-1] <= 400 * noise:
        return True
    best = min(residuals[_WINDOW:], default=math.inf)
    near = max(1e6 * noise, 1e-300)  # of a right-hand side of zeros no rounding is known
    return residuals[-1] > 10 * best * max(1.0, best / near)


def _gain_left(decreases: list[float], misfit: float) -> float:
    """Decrease still to be expected relative to the misfit, extrapolated from the last two windows of iterations.

    If each window brings `rate` times the decrease of the one before, all that are still to come bring
    newer (rate + rate^2 + ...) = newer rate / (1 - rate). The decreases are those of the steps themselves: differences
    of misfits are lost in rounding long before the answer has settled.
    """
    if len(decreases) < 2 * _WINDOW:
        # Too few iterations to measure a rate, so the slowest is assumed: only a start close to the answer ends here.
        rate = _SLOWEST ** (_FEW / _WINDOW)
        newer = sum(decreases[-_FEW:])
        return newer * rate / (1 - rate) / misfit if len(decreases) >= 2 * _FEW and newer > 0 else 1.0
    older, newer = sum(decreases[-2 * _WINDOW : -_WINDOW]), sum(decreases[-_WINDOW:])
    if newer <= 0:
        return 0.0
    # Early windows fall faster than later ones, so a rate below one half is not believed.
    rate = min(max(newer / older, 0.5), _SLOWEST) if older > 0 else _SLOWEST
    return newer * rate / (1 - rate) / misfit
