"""Hermite coefficients of any function by quadrature that follows the function's structure.

The integral over t is cut into panels by two sets of edges: a fixed grid in t, which resolves the Gaussian, and the
images (c - m)/s of points c in y, which resolve the activation: its kinks, and a ladder around its bend. Each panel
gets Gauss-Legendre nodes. A bend that looks like a step at s = 1000 is still resolved, a declared kink costs nothing,
and with no data-dependent branch the same code runs under jit and differentiates.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np

from mlpoly.arrays import Array, blocks, constant, namespace, on_cpu, readable, to_numpy
from mlpoly.errors import QuadratureWarning
from mlpoly.special import hermite, in_deviations, normal_pdf

__all__ = ["adaptive_error", "adaptive_projection", "fixed_projection"]

_NODES = 16  # per panel: 3.4^-32 on a panel as wide as the distance of the nearest pole
_BLOCK = 1024  # neurons at a time, so that the nodes of a wide layer do not fill the memory (16 times that on a GPU)
_LEVELS = 7  # panels of a user's function are halved at most this often
_TOLERANCE = 1e-12
_GENERIC_LADDER = (0.0, *(sign * 3.0**j for j in range(-1, 9) for sign in (-1, 1)))

Projection = Callable[[Array, Array, int], Array]


def fixed_projection(function: Callable[[Array], Array], edges: Sequence[float]) -> Projection:
    """Projection by one fixed rule, for functions whose ladder of `edges` (in y) is known to suffice."""

    def project(mean: Array, std: Array, degree: int) -> Array:
        return _in_blocks(lambda m, s: _integrate(function, m, s, degree, edges, 1)[0], mean, std)

    return project


def adaptive_projection(function: Callable[[Array], Array], kinks: Sequence[float], name: str) -> Projection:
    """Projection that halves its panels until two results agree, and warns if they never do.

    Where values cannot be read (under jit) one refinement is used and nothing is checked.
    """
    edges = sorted({*_GENERIC_LADDER, *kinks})

    def project(mean: Array, std: Array, degree: int) -> Array:
        if not readable(mean, std):
            return _in_blocks(lambda m, s: _integrate(function, m, s, degree, edges, 2)[0], mean, std)
        return _in_blocks(lambda m, s: _checked(*_refine(function, m, s, degree, edges), name), mean, std)

    return project


def adaptive_error(function: Callable[[Array], Array], kinks: Sequence[float]) -> Callable[[Array, Array, int], float]:
    """Estimate of the error of `adaptive_projection`, relative to sqrt(E[act^2]): the largest over all neurons."""
    edges = sorted({*_GENERIC_LADDER, *kinks})

    def estimate(mean: Array, std: Array, degree: int) -> float:
        xp = namespace(mean=mean, std=std)
        return _refine(function, xp.reshape(mean, (-1,)), xp.reshape(std, (-1,)), degree, edges)[1]

    return estimate


def _refine(
    function: Callable[[Array], Array], mean: Array, std: Array, degree: int, edges: Sequence[float]
) -> tuple[Array, float]:
    """Coefficients after the refinement at which they stopped changing, and by how much they still changed."""
    xp = namespace(mean=mean, std=std)
    old, _ = _integrate(function, mean, std, degree, edges, 1)
    floor = _floor(mean)
    error = math.inf
    for level in range(1, _LEVELS + 1):
        new, square = _integrate(function, mean, std, degree, edges, 2**level)
        size = np.sqrt(to_numpy(square))
        change = np.max(np.abs(to_numpy(new) - to_numpy(old)), axis=0)
        error = float(np.max(change / np.where(size > 0, size, 1.0), initial=0.0))
        if error <= floor:
            break
        old = new
    return new, max(error, float(xp.finfo(mean.dtype).eps))


def _floor(like: Array) -> float:
    """Change that counts as none."""
    return max(_TOLERANCE, 100 * float(namespace(like=like).finfo(like.dtype).eps))


def _checked(coefficients: Array, error: float, name: str) -> Array:
    if not error <= _floor(coefficients):
        warnings.warn(
            f"the integral of activation {name!r} has not converged: its coefficients changed by {error:.1e} of the "
            f"function's size at the last refinement. If it has kinks or jumps, declare them with kinks=(...).",
            QuadratureWarning,
            stacklevel=2,
        )
    return coefficients


def _in_blocks(integrate: Callable[[Array, Array], Array], mean: Array, std: Array) -> Array:
    """Apply to flat blocks of neurons and restore the shape; neurons without variance are exact."""
    xp = namespace(mean=mean, std=std)
    size = _BLOCK if on_cpu(mean) else 16 * _BLOCK
    flat_mean, flat_std = xp.reshape(mean, (-1,)), xp.reshape(std, (-1,))
    parts = [integrate(flat_mean[b], flat_std[b]) for b in blocks(flat_mean.shape[0], size)]
    whole = xp.concat(parts, axis=1) if len(parts) > 1 else parts[0]
    return xp.reshape(whole, (whole.shape[0], *mean.shape))


def _grid(degree: int) -> np.ndarray:
    """Edges in t: wide enough that what lies beyond is below 1e-13 of the norm, by Cauchy-Schwarz.

    |E[act he_k 1(|t| > T)]| <= sqrt(E[act^2]) sqrt(E[he_k^2 1(|t| > T)]), whatever the activation.
    """
    reach = max(11 + 1.2 * math.sqrt(degree), 7 + 2 * math.sqrt(degree))
    width = 2 * min(1.0, math.sqrt(9 / (degree + 1)))
    return np.linspace(-reach, reach, math.ceil(2 * reach / width) + 1)


def _integrate(
    function: Callable[[Array], Array], mean: Array, std: Array, degree: int, edges: Sequence[float], splits: int
) -> tuple[Array, Array]:
    """Coefficients (degree + 1, h) and E[act^2] (h,) for flat mean and std (h,), every panel cut into `splits`."""
    xp = namespace(mean=mean, std=std)
    moving = std > 0
    t, weight = _nodes(mean, xp.where(moving, std, 1.0), _grid(degree), edges, splits)
    value = function(mean + std * t)
    weighted = value * (weight * normal_pdf(t))
    rows = [xp.sum(he, axis=0) for he in hermite(t, degree, weighted)]
    at_mean = function(mean)
    rows = [xp.where(moving, row, at_mean if k == 0 else 0.0) for k, row in enumerate(rows)]
    return xp.stack(rows), xp.sum(weighted * value, axis=0)


def _nodes(mean: Array, std: Array, grid: np.ndarray, edges: Sequence[float], splits: int) -> tuple[Array, Array]:
    """Nodes and weights in t, (nodes, h), of composite Gauss-Legendre on the merged edges."""
    xp = namespace(mean=mean, std=std)
    fixed = xp.broadcast_to(constant(grid, mean)[:, None], (len(grid), mean.shape[0]))
    if edges:
        images = in_deviations(constant(np.asarray(edges, dtype=float), mean)[:, None] - mean, std)
        images = xp.clip(images, float(grid[0]), float(grid[-1]))
        fixed = xp.sort(xp.concat([fixed, images], axis=0), axis=0)
    left, width = fixed[:-1], (fixed[1:] - fixed[:-1]) / splits
    x, w = np.polynomial.legendre.leggauss(_NODES)
    # Positions of all nodes of all splits inside one panel, in units of a split.
    inside = (np.arange(splits)[:, None] + (x + 1) / 2).reshape(-1)
    position = constant(inside, mean)[None, :, None]
    share = constant(np.tile(w / 2, splits), mean)[None, :, None]
    t = left[:, None, :] + width[:, None, :] * position
    weight = width[:, None, :] * share
    shape = (t.shape[0] * t.shape[1], mean.shape[0])
    return xp.reshape(t, shape), xp.reshape(weight, shape)
