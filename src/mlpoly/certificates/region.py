"""Regions of inputs, boxes and ellipsoids: the largest value of a linear function, and where it is."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlpoly.arrays import as_float_array, as_number, check_shape, to_numpy
from mlpoly.certificates.functions import EPS
from mlpoly.inputs import Gaussian, GaussianMixture

_ROUNDS = 30  # of the search for a diagonal matrix above a quadratic form


@dataclass(frozen=True)
class Box:
    """All x with low <= x <= high."""

    low: np.ndarray  # (d,)
    high: np.ndarray  # (d,)

    def largest(self, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds (m,) on slopes @ x, and the corners (m, d) where they are attained up to rounding."""
        at = np.where(slopes >= 0, self.high, self.low)
        terms = slopes * at
        return terms.sum(axis=1) + (len(self.low) + 4) * EPS * np.abs(terms).sum(axis=1), at

    def largest_squares(self, forms: np.ndarray, weights: np.ndarray) -> float:
        """Upper bound on the sum of weights (h,) times the squares of forms (h, d) @ (x - middle).

        With x - middle = half s and s in [-1, 1]^d, for every diagonal matrix D above the form it is at most trace(D).
        D is the largest eigenvalue in units of a diagonal E, times E; E follows the leading eigenvectors. Without
        negative weights the best D is within pi / 2 of the exact maximum (Nesterov).
        """
        half = (self.high - self.low) / 2
        rows = np.sqrt(weights)[:, None] * forms * half
        unit, best, last = np.sqrt(np.sum(rows**2, axis=0)) + 1e-300, np.inf, np.inf
        for step in range(_ROUNDS):
            unit = unit / unit.sum()
            scaled = rows / np.sqrt(unit)
            if not np.isfinite(np.sum(scaled**2)):
                break
            values, vectors = _leading(scaled)
            best = min(best, float(values[-1]))
            if step % 5 == 4:
                if best > 0.999 * last:
                    break
                last = best
            share = np.exp(8 * (step + 5) * (values / values[-1] - 1)) if values[-1] > 0 else np.ones_like(values)
            mass = (share / share.sum()) @ vectors**2
            unit = unit * np.sqrt(np.maximum(mass / unit, 1e-3))
        return best

    @property
    def middle(self) -> np.ndarray:
        """The centre (d,)."""
        return (self.low + self.high) / 2

    def sample(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Points (count, d): half of them within, half of them corners, all if they are so few; first the middle."""
        d, half = len(self.low), count // 2
        x = rng.uniform(self.low, self.high, (count, d))
        upper = rng.random((half, d)) < 0.5
        if d < 60 and 2**d <= half:
            upper[: 2**d] = np.arange(2**d)[:, None] >> np.arange(d) & 1
        x[1 : half + 1] = np.where(upper, self.high, self.low)[: count - 1]
        x[0] = self.middle
        return np.clip(x, self.low, self.high)

    def between(self, one: np.ndarray, two: np.ndarray, fraction: Any) -> np.ndarray:
        """Points a fraction of the way from points of the region to others: no rounding leads out of it."""
        return np.clip(one + fraction * (two - one), self.low, self.high)

    def halves(self, axis: int) -> "tuple[Box, Box]":
        """The two halves along an input."""
        low, high = self.low.copy(), self.high.copy()
        low[axis] = high[axis] = self.low[axis] + (self.high[axis] - self.low[axis]) / 2
        return Box(self.low, high), Box(low, self.high)


@dataclass(frozen=True)
class Ellipsoid:
    """All x with (x - mean)' cov^-1 (x - mean) <= radius^2."""

    mean: np.ndarray  # (d,)
    cov: np.ndarray  # (d, d)
    radius: float

    def largest(self, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds (m,) on slopes @ x, and the points (m, d) where they are attained up to rounding."""
        d, scale = len(self.mean), np.max(np.abs(slopes), axis=1, initial=0.0)
        unit = slopes / np.where(scale > 0, scale, 1.0)[:, None]  # the square of a tiny slope would be none
        spread, size = unit @ self.cov, np.abs(unit)
        slack = 2 * (d + 4) * EPS * np.sum((size @ np.abs(self.cov)) * size, axis=1)
        deviation = np.sqrt(np.maximum(np.sum(spread * unit, axis=1), 0) + slack)
        step = spread / np.where(deviation > 0, deviation, 1.0)[:, None]
        level = slopes @ self.mean + (d + 4) * EPS * np.abs(slopes) @ np.abs(self.mean)
        return level + (1 + 8 * EPS) * self.radius * scale * deviation, self.mean + self.radius * step

    def largest_squares(self, forms: np.ndarray, weights: np.ndarray) -> float:
        """Upper bound on the sum of weights (h,) times the squares of forms (h, d) @ (x - middle)."""
        rows = np.sqrt(weights)[:, None] * forms
        grown = rows @ self.cov @ rows.T
        if not np.isfinite(grown).all():
            return np.inf
        slack = 8 * (len(self.mean) + len(rows)) * EPS * np.sum(np.abs(rows) @ np.abs(self.cov) * np.abs(rows))
        return self.radius**2 * (float(np.linalg.eigvalsh(grown)[-1]) + slack)

    @property
    def middle(self) -> np.ndarray:
        """The centre (d,)."""
        return self.mean

    def sample(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Points (count, d) on the surface; the first is the centre."""
        x = self.largest(rng.standard_normal((count, len(self.mean))))[1]
        x[0] = self.mean
        return x

    def between(self, one: np.ndarray, two: np.ndarray, fraction: Any) -> np.ndarray:
        """Points a fraction of the way from points of the region to others."""
        return one + fraction * (two - one)


Region = Box | Ellipsoid


def _leading(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (r,) of rows' rows, ascending, and unit eigenvectors (r, d); the last value is a bound on all."""
    wide = len(rows) <= rows.shape[1]
    values, vectors = np.linalg.eigh(rows @ rows.T if wide else rows.T @ rows)
    if wide:
        root = np.sqrt(np.maximum(values, 1e-300))
        vectors = (vectors.T @ rows) / root[:, None]
        vectors = np.where(values[:, None] > 1e-12 * values[-1], vectors, 0.0)
    else:
        vectors = vectors.T
    # Of forming the matrix and of the eigenvalues; the trace bounds the norm.
    values = values + 8 * sum(rows.shape) * EPS * np.sum(rows**2)
    return values, vectors


def regions(dim: int, low: Any, high: Any, inputs: Any, radius: Any) -> tuple[Region, ...]:
    """The checked region of a function of `dim` inputs: a box or an ellipsoid, or one for each component."""
    if (low is None) != (high is None) or (inputs is None) != (radius is None) or (low is None) == (inputs is None):
        raise ValueError("a region is needed: a box, low=0.0, high=1.0, or an ellipsoid, inputs=gaussian, radius=5.0.")
    if low is not None:
        below, above = _side("low", low, dim), _side("high", high, dim)
        if not np.all(below <= above):
            i = int(np.argmax(below > above))
            raise ValueError(f"low must not be above high, but for input {i} they are {below[i]:g} and {above[i]:g}.")
        return (Box(below, above),)
    if not isinstance(inputs, Gaussian | GaussianMixture):
        raise TypeError(f"inputs must be a Gaussian or a GaussianMixture, got {type(inputs).__name__}.")
    if inputs.dim != dim:
        raise ValueError(f"inputs have {inputs.dim} dimensions, but the function has {dim} inputs.")
    radius = as_number("radius", radius, "a positive number of standard deviations", 0)
    parts = inputs.to(np.zeros(1)).components
    return tuple(Ellipsoid(np.asarray(g.mean), np.asarray(g.covariance), radius) for g in parts)


def _side(name: str, value: Any, dim: int) -> np.ndarray:
    """One side of a box, (d,), in float64."""
    side = to_numpy(as_float_array(name, value, integers=True)).astype(np.float64)
    if side.ndim:
        check_shape(name, side, (dim,), "one number for each input, or one for all")
    if not np.isfinite(side).all():
        raise ValueError(
            f"{name} must be finite: over an infinite side a bound says nothing. Give the range of inputs."
        )
    return np.broadcast_to(side, (dim,)).copy()
