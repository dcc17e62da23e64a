"""Block conjugate gradients: all right-hand sides search in one common Krylov space.

Solved one by one, each right-hand side would need its own iterations. Together, every iteration searches along one
direction per right-hand side, and each solution takes the best step along all of them: o right-hand sides search a
space of dimension o times the iterations, and the operator works on a large block of vectors at a time, which is what
matrix units are good at.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlpoly.arrays import Array, accumulate_product, constant, namespace, on_cpu, scalar, start_copy, to_numpy

_WINDOW = 5  # iterations over which the rate of convergence is measured
_FEW = 2  # the same for a start close to the answer, on which two full windows would be wasted
_SLOWEST = 0.9  # largest fraction of the decrease of one window that the next one is expected to bring
# Smallest eigenvalue of the inner products of directions of length one. Below the first, the curvature matrix loses too
# many digits when it is transformed to an orthonormal basis; above the second, that is unlikely in the next iteration.
_DEPENDENT, _INDEPENDENT = 1e-4, 1e-2
_NOISE = 20  # rounding errors that add up in one product


@dataclass(frozen=True)
class BlockSolution:
    """Result of the iterations."""

    x: Array  # (o, ...), last iterate
    history: tuple[float, ...]  # misfit after each iteration
    gain_left: float  # estimate of the decrease of the misfit still possible, relative to the misfit
    converged: bool  # whether that met the tolerance, or rounding ended all progress
    exhausted: bool  # whether it was rounding
    interrupted: bool  # whether the user interrupted it


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

    Stops when the expected further decrease of the misfit is below `tolerance` times the misfit, when rounding ends all
    progress, or with the current iterate at a KeyboardInterrupt. `apply` and `precondition` are symmetric positive
    (semi)definite operators on blocks of the shape of b, (o, ...), and return new arrays; `misfit` is the value at
    x = 0. Residuals and curvatures below the relative `rounding` error of `apply` are noise. `report` is called with
    the number of iterations and the misfit after each of them.
    """
    xp = namespace(b=b)
    rounding = float(xp.finfo(b.dtype).eps) if rounding is None else rounding

    def rows(block: Array) -> Array:
        return xp.reshape(block, (block.shape[0], -1))

    def on_rows(operator: Callable[[Array], Array]) -> Callable[[Array], Array]:
        return lambda flat: rows(operator(xp.reshape(flat, (flat.shape[0], *b.shape[1:]))))

    def next_search(r: Array, step: _BestStep | None = None) -> _Search:
        """Search along the preconditioned residuals, made conjugate to the step before."""
        fresh = precondition(r)
        residual = _dot(fresh, r)
        if step is None:
            return _Search(fresh, residual)
        past = (fresh @ step.images.T) @ step.inverse
        # The new directions take the place of `fresh` in memory.
        return _Search(accumulate_product(fresh, past, step.directions, -1.0), residual, step.independent, step.largest)

    apply, precondition = on_rows(apply), on_rows(precondition)
    # The loop adds to x and r = b - A x in place, so they must not be the caller's arrays.
    x, r = rows(b) * 0, rows(b) + 0
    search = next_search(r)
    noise = rounding**2 * scalar(search.residual)  # squared residual that rounding alone can cause
    value, floor = misfit, rounding * misfit
    if start is not None:
        image = apply(rows(start))
        there = misfit + scalar(_dot(image - 2 * r, rows(start)))
        # A start worse than zero is ignored: it is far from the answer, and the solution would inherit rounding errors
        # of the start's size instead of b's.
        if there < misfit:
            x, r, value = rows(start) + 0, r - image, there
            search = next_search(r)
        del image
    history: list[float] = []
    gain, converged, exhausted, interrupted = 1.0, False, False, False
    before = math.inf
    try:
        while not converged:
            # Here r is the true residual. Rounding has ended all progress if it is at the level of noise, or has hardly
            # shrunk since the last true residual, unless the limit on iterations is why.
            residual, stopped = scalar(search.residual), len(history) >= max_iterations
            if residual <= 400 * noise or (residual > 0.25 * before and not stopped):
                converged, exhausted, gain = True, True, 0.0
            if converged or stopped:
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
                # The residual of the recurrence drifts from the true one by a rounding error per step. So if it is at
                # the level of noise, or no direction is left, recompute the true residual and search again from there.
                r = rows(b) - apply(x)
                search = next_search(r)
    except KeyboardInterrupt:
        interrupted = True
    return BlockSolution(xp.reshape(x, b.shape), tuple(history), gain, converged, exhausted, interrupted)


@dataclass(frozen=True)
class _Search:
    """Directions for the next step."""

    directions: Array  # (k, size), conjugate to all earlier ones
    residual: Array  # (), squared size of the residuals in the metric of the preconditioner
    # whether the last directions were so far from dependent that these need not be made orthonormal; unknown at first
    independent: bool = False
    largest: float = 0.0  # largest curvature so far, in an orthonormal basis


@dataclass(frozen=True)
class _BestStep:
    """The best step along k directions, for all o residuals at once."""

    directions: Array  # (k, size), the directions of the search
    images: Array  # (k, size), products of the operator with them
    coefficients: Array  # (o, k), of the directions, for each residual
    inverse: Array  # (k, k), inverse of the curvature, the inner products of directions and images
    decrease: float  # of the misfit
    residual: float  # squared size of the residuals before the step, on the host
    independent: bool  # this and the next are for the search that follows
    largest: float


def _best_step(search: _Search, r: Array, apply: Callable[[Array], Array], rounding: float) -> _BestStep | None:
    """Step that minimises the misfit along the directions of a search, for residuals r; None without any direction.

    Directions must be independent, or their curvature cannot be inverted. On a CPU they are made orthonormal in every
    iteration. A GPU would then have to wait for the host twice. So there they are left alone unless they are nearly
    dependent: the host computes the basis that would make them orthonormal while the GPU computes their images, and
    only the small curvature matrix is transformed to it.
    """
    directions, independent = search.directions, search.independent
    if independent:
        images, gram, slopes, residual = _images_and_products(directions, search.residual, r, apply)
        basis, smallest = _orthonormal_basis(gram, 0.0)
        independent = smallest > _DEPENDENT
    if not independent:
        # The images must be computed again. Dropping the dependent directions would avoid that, but lose conjugacy.
        directions, smallest = _orthonormal(directions)
        if directions.shape[0] == 0:
            return None
        images, _, slopes, residual = _images_and_products(directions, search.residual, r, apply)
        basis = np.eye(directions.shape[0])
        independent = not on_cpu(directions) and smallest > _INDEPENDENT
    curvature = basis.T @ to_numpy(directions @ images.T).astype(np.float64) @ basis
    largest = max(search.largest, float(curvature.max()))
    # No step along directions whose curvature is a rounding error: it could have any length.
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    good = values > _NOISE * rounding * largest
    turned = (vectors * np.where(good, 1 / np.where(good, values, 1.0), 0.0)) @ vectors.T
    inverse = basis @ turned @ basis.T
    coefficients = inverse @ slopes
    moved = constant(np.concatenate([coefficients.T, inverse]), r)  # to the device in one transfer
    o = r.shape[0]
    decrease = float(np.sum(coefficients * slopes))
    return _BestStep(directions, images, moved[:o, :], moved[o:, :], decrease, residual, independent, largest)


def _images_and_products(
    directions: Array, residual: Array, r: Array, apply: Callable[[Array], Array]
) -> tuple[Array, np.ndarray, np.ndarray, float]:
    """Images (k, size); on the host, inner products of directions (k, k) and with r (k, o), and the residual."""
    xp = namespace(r=r)
    small = directions @ directions.T, directions @ r.T, residual
    wait = start_copy(xp.concat([xp.reshape(a, (-1,)) for a in small]))  # in one transfer, while the operator works
    images = apply(directions)
    numbers, k = wait().astype(np.float64), directions.shape[0]
    return images, numbers[: k * k].reshape(k, k), numbers[k * k : -1].reshape(k, -1), float(numbers[-1])


def _dot(a: Array, b: Array) -> Array:
    """Sum of all products, on the arrays' device."""
    xp = namespace(a=a)
    return xp.reshape(a, (-1,)) @ xp.reshape(b, (-1,))


def _orthonormal(rows: Array) -> tuple[Array, float]:
    """Orthonormal basis of the row space, and the smallest eigenvalue of the rows' scaled inner products, or zero."""
    floor = max(1e-12, 100 * float(namespace(rows=rows).finfo(rows.dtype).eps))
    first = math.inf
    for _ in range(2):  # once leaves errors of the squared condition number, twice none
        basis, smallest = _orthonormal_basis(to_numpy(rows @ rows.T).astype(np.float64), floor)
        if not basis.shape[1]:
            return rows[:0, ...], 0.0
        first = min(first, smallest if basis.shape[0] == basis.shape[1] else 0.0)
        rows = constant(basis.T.copy(), rows) @ rows
        if smallest > 1e-3:
            break  # well conditioned: once is enough
    return rows, first


def _orthonormal_basis(gram: np.ndarray, floor: float) -> tuple[np.ndarray, float]:
    """Columns that make vectors with this Gram matrix orthonormal, without eigenvalues below `floor`; the smallest."""
    size = np.sqrt(np.diagonal(gram))
    size = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(gram / size / size[:, None])
    keep = values > floor * max(float(values.max()), 0.0)
    if not keep.any():
        return gram[:, :0], 0.0
    return vectors[:, keep] / np.sqrt(values[keep]) / size[:, None], float(values[keep].min())


def _is_noise(residuals: list[float], noise: float) -> bool:
    """Whether squared residuals have reached the rounding error `noise`, or grow again close to it."""
    if residuals[-1] <= 400 * noise:
        return True
    # Residuals may also grow for a while on the way, most of all after a good start. So the first ones are ignored, and
    # the farther the best one is from rounding, the more they must have grown.
    best = min(residuals[_WINDOW:], default=math.inf)
    near = max(1e6 * noise, 1e-300)  # the noise of a right-hand side of zeros is zero
    return residuals[-1] > 10 * best * max(1.0, best / near)


def _gain_left(decreases: list[float], misfit: float) -> float:
    """Expected further decrease relative to the misfit: a geometric series with the rate of the last two windows."""
    if len(decreases) < 2 * _WINDOW:
        # Too few iterations to measure a rate, so the slowest is assumed: only a start close to the answer ends here.
        rate = _SLOWEST ** (_FEW / _WINDOW)
        newer = sum(decreases[-_FEW:])
        return newer * rate / (1 - rate) / misfit if len(decreases) >= 2 * _FEW and newer > 0 else 1.0
    older, newer = sum(decreases[-2 * _WINDOW : -_WINDOW]), sum(decreases[-_WINDOW:])
    if newer <= 0:
        return 0.0
    # Convergence slows down after the first windows, so a rate below one half is not trusted.
    rate = min(max(newer / older, 0.5), _SLOWEST) if older > 0 else _SLOWEST
    return newer * rate / (1 - rate) / misfit
