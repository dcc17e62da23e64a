"""Hermite coefficients of any function by quadrature that follows the function's structure.

The integral over t is cut into panels by two sets of edges: a fixed grid in t, which resolves the Gaussian, and the
images (c - m)/s of points c in y, which resolve the activation: its kinks, and a ladder around its bend. A bend that
looks like a step at s = 1000 is still resolved, a declared kink costs nothing, and with no data-dependent branch the
same code runs under jit and differentiates.

A function that is analytic in a strip around the real axis needs no panels: the trapezoidal rule converges
geometrically on nodes t that all neurons share, so that the sums over nodes are one matrix product.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from mlpoly.arrays import Array, chunks, constant, namespace, namespace_of, on_cpu, readable, scalar, to_numpy
from mlpoly.errors import QuadratureWarning
from mlpoly.special import LADDER, WIDEST, bell, hermite, images, normal_pdf, panels, reach_of

_NODES = 16  # per panel: 3.4^-32 on a panel as wide as the distance of the nearest pole
_CHUNK = 1024  # neurons that are refined together (16 times that on a GPU)
_NUMBERS = 2**19  # nodes of all neurons at a time: arrays of 4 MB, of which about ten exist (16 times that on a GPU)
_SHARED = 2**14  # most nodes that neurons share; beyond, panels need fewer
_LEVELS = 7  # panels of a user's function are halved at most this often
_TOLERANCE = 1e-12

Projection = Callable[[Array, Array, int], Array]


def fixed_projection(
    function: Callable[[Array], Array], edges: Sequence[float], strip: float | None = None
) -> Projection:
    """Projection by one rule, for functions whose ladder of `edges` (in y) suffices, or analytic in a `strip`."""

    def project(mean: Array, std: Array, degree: int) -> Array:
        if strip is not None and readable(mean, std):
            return _in_chunks(lambda m, s: _on_shared_nodes(function, m, s, degree, edges, strip), mean, std)
        return _in_chunks(lambda m, s: _integrate(function, m, s, degree, edges, 1, reach_of(degree)), mean, std)

    return project


def _on_shared_nodes(
    function: Callable[[Array], Array], mean: Array, std: Array, degree: int, edges: Sequence[float], strip: float
) -> Array:
    """Coefficients (degree + 1, h) of an analytic function, by the trapezoidal rule while its nodes are few.

    Shifted by i r into the complex plane the integrand grows at most as exp(r sqrt(degree) + r^2/2), which leaves an
    error of exp(r sqrt(degree) + r^2/2 - 2 pi r / step). At `digits` it is below rounding. The best r for a function
    without singularities is sqrt(2 digits); the step is a power of two, so that few different shapes occur.
    """
    xp = namespace(mean=mean, std=std)
    digits, reach = 40.0, min(reach_of(degree), WIDEST)
    widest = scalar(xp.max(std)) if std.shape[0] else 0.0
    r = min(math.sqrt(2 * digits), 0.9 * strip / widest) if widest > 0 else math.sqrt(2 * digits)
    step = 2.0 ** math.floor(math.log2(2 * math.pi / (math.sqrt(degree) + r / 2 + digits / r)))
    count = 2 * math.ceil(reach / step) + 1
    if count > _SHARED:
        return _integrate(function, mean, std, degree, edges, 1, reach_of(degree))
    t = constant(step * np.arange(-(count // 2), count // 2 + 1), mean)
    functions = hermite(t, degree, step * normal_pdf(t))
    parts = chunks(mean.shape[0], _at_once(count, mean))
    moving = [functions @ function(mean[part] + std[part] * t[:, None]) for part in parts]
    still = xp.stack([function(mean), *[xp.zeros_like(mean)] * degree])
    return xp.where(std > 0, xp.concat(moving, axis=1), still)


def _at_once(nodes: int, like: Array) -> int:
    """Number of neurons whose nodes are handled together."""
    return max(1, (_NUMBERS if on_cpu(like) else 16 * _NUMBERS) // nodes)


def adaptive_projection(function: Callable[[Array], Array], kinks: Sequence[float], name: str) -> Projection:
    """Projection that halves its panels until two results agree, and warns if they never do.

    It also reaches farther out for functions that grow fast. A feature much narrower than the panels, a third of the
    distance from zero wide, is seen only if it is declared. Under jit one refinement is used and nothing is checked.
    """
    edges = sorted({*LADDER, *kinks})

    def project(mean: Array, std: Array, degree: int) -> Array:
        if not readable(mean, std):
            return _in_chunks(lambda m, s: _integrate(function, m, s, degree, edges, 2, reach_of(degree)), mean, std)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported by the warning below
            return _in_chunks(lambda m, s: checked(*_refine(function, m, s, degree, edges)), mean, std)

    def checked(coefficients: Array, error: float, outside: float) -> Array:
        problem, floor = "", _floor(coefficients)
        if outside > floor:
            problem = (
                f"a fraction of {outside:.1e} of it lies beyond the reach of the quadrature: the function grows too "
                f"fast for this Gaussian. Use inputs of a smaller standard deviation."
            )
        elif not error <= floor:
            problem = (
                f"its coefficients changed by {error:.1e} of the function's size at the last refinement. If it has "
                f"kinks or jumps, declare them with kinks=(...)."
            )
        if problem:
            text = f"the integral of activation {name!r} has not converged: {problem}"
            warnings.warn(text, QuadratureWarning, stacklevel=2)
        return coefficients

    return project


def _refine(
    function: Callable[[Array], Array], mean: Array, std: Array, degree: int, edges: Sequence[float]
) -> tuple[Array, float, float]:
    """Coefficients once they have settled, their last change, and the fraction at the outer ends."""
    xp = namespace(mean=mean, std=std)
    floor = _floor(mean)
    reach = reach_of(degree)

    def integrals(splits: int, reach: float) -> tuple[Array, Array]:
        """Coefficients, and E|act| and E[act^2] (2, h)."""
        rows = _integrate(function, mean, std, degree, edges, splits, reach, sizes=True)
        return rows[: degree + 1, :], rows[degree + 1 :, :]

    old, sizes = integrals(1, reach)
    outside = _outside(function, mean, std, reach, old, sizes)
    while not outside <= floor and reach < WIDEST:
        farther = min(1.5 * reach, WIDEST)
        wider, sizes = integrals(1, farther)
        if not bool(xp.all(xp.isfinite(wider))):
            break  # the function overflows there: keep the last result, with a warning
        old, reach = wider, farther
        outside = _outside(function, mean, std, reach, old, sizes)
    error = math.inf
    for level in range(1, _LEVELS + 1):
        new, sizes = integrals(2**level, reach)
        absolute, square = to_numpy(sizes)
        size = np.where(np.isfinite(square), np.sqrt(square), absolute)
        change = np.max(np.abs(to_numpy(new) - to_numpy(old)), axis=0)
        error = float(np.max(change / np.where(size > 0, size, 1.0), initial=0.0))
        if error <= floor:
            break
        old = new
    return new, max(error, float(xp.finfo(mean.dtype).eps)), outside


def _floor(like: Array) -> float:
    """Relative change below which the coefficients have settled."""
    return max(_TOLERANCE, 100 * float(namespace_of(like).finfo(like.dtype).eps))


def _in_chunks(integrate: Callable[[Array, Array], Array], mean: Array, std: Array) -> Array:
    """Apply to flat chunks of neurons and restore the shape; neurons without variance are exact."""
    xp = namespace(mean=mean, std=std)
    size = _CHUNK if on_cpu(mean) else 16 * _CHUNK
    flat_mean, flat_std = xp.reshape(mean, (-1,)), xp.reshape(std, (-1,))
    parts = [integrate(flat_mean[b], flat_std[b]) for b in chunks(flat_mean.shape[0], size)]
    whole = xp.concat(parts, axis=1) if len(parts) > 1 else parts[0]
    return xp.reshape(whole, (whole.shape[0], *mean.shape))


def _integrate(
    function: Callable[[Array], Array],
    mean: Array,
    std: Array,
    degree: int,
    edges: Sequence[float],
    splits: int,
    reach: float,
    sizes: bool = False,
) -> Array:
    """Coefficients (degree + 1, h) for flat mean and std (h,); with `sizes` two more rows, E|act| and E[act^2]."""
    xp = namespace(mean=mean, std=std)
    # Edges in t that resolve the Gaussian and he_k, merged with the images of those in y.
    width = 2 * min(1.0, math.sqrt(9 / (degree + 1)))
    grid = np.linspace(-reach, reach, math.ceil(2 * reach / width) + 1)

    def integrals(mean: Array, std: Array) -> Array:
        """The same for some of the neurons."""
        moving = std > 0
        t, weight = panels(grid, [images(edges, mean, xp.where(moving, std, 1.0))], _NODES, splits)
        value = function(mean + std * t)
        weighted = value * weight
        if t.dtype == xp.float64:
            rows = hermite(t, degree, weighted, read=partial(xp.sum, axis=0))
        else:
            # he_k(t) alone leaves the range of float32, in gradients too, and takes the root of the density with it.
            # Where the square of the root underflows, so does the density.
            half = bell(t * math.sqrt(0.5))
            rest = weighted / xp.clip(half, 2 * math.sqrt(float(xp.finfo(t.dtype).smallest_normal)), None)
            rows = hermite(t, degree, half, read=lambda now: xp.sum(now * rest, axis=0))
        still = xp.stack([function(mean), *[mean * 0] * degree])
        rows = xp.where(moving, rows, still)
        if sizes:
            rows = xp.concat([rows, xp.stack([xp.sum(xp.abs(weighted), axis=0), xp.sum(weighted * value, axis=0)])])
        return rows

    nodes = (len(grid) - 1 + len(edges)) * _NODES * splits
    parts = chunks(mean.shape[0], _at_once(nodes, mean))
    return xp.concat([integrals(mean[part], std[part]) for part in parts], axis=1)


def _outside(
    function: Callable[[Array], Array], mean: Array, std: Array, reach: float, coefficients: Array, sizes: Array
) -> float:
    """Fraction of the integrals in the outermost standard deviation: the largest over all neurons."""
    xp = namespace_of(mean)
    x, w = np.polynomial.legendre.leggauss(_NODES)
    at = reach - (x + 1) / 2
    t = constant(np.concatenate([-at, at])[:, None], mean)
    weight = constant(np.concatenate([w, w])[:, None] / 2, mean)
    last = hermite(t, coefficients.shape[0] - 1, normal_pdf(t) * weight)[-1, ...]  # the largest, out there
    outer = to_numpy(xp.sum(xp.abs(last * function(mean + std * t)), axis=0))
    outer = np.where(outer < 1e-250, 0.0, outer)  # a unit that lives 36 standard deviations out counts as zero
    size = np.maximum(to_numpy(sizes[0, :]), np.max(np.abs(to_numpy(coefficients)), axis=0))
    return float(np.max(outer / np.where(size > 0, size, 1.0), initial=0.0))
