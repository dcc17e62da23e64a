"""Coordinates z in which inputs have mean zero and identity covariance, on the range of their covariance (MATH 4).

Every rank in the library is decided here. Inputs are standardised first, so that the units in which they are measured
do not decide what counts as constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlpoly.arrays import Array, namespace, namespace_of, safe_inverse
from mlpoly.arrays.placement import constant_index, rounding_error, scalar, to_numpy, widen
from mlpoly.records import record, replace, static

if TYPE_CHECKING:
    from mlpoly.inputs.interface import Gaussians

_MARGIN = 10.0  # rounding errors that a spread must exceed


def rounding_floor(given: Array, used: Array, count: int, known: float | None = None) -> float:
    """Variance of `count` standardised inputs, or singular value of their samples, that may be rounding alone.

    An error with entries of at most e moves the eigenvalues of a matrix of n rows by at most n e, the Frobenius norm.
    The entries are known to the rounding of the dtype in which they were `given`, and their decomposition adds as much
    again in that of `used`. Where only a part was given with that rounding, `known` is its size in place of n: the
    trace for a part of a covariance matrix, whose entries it bounds.
    """
    eps = float(namespace_of(given).finfo(given.dtype).eps)
    return _MARGIN * (eps * (count if known is None else known) + rounding_error(used) * count)


class Axes(NamedTuple):
    """A covariance as units V diag(values) V' units, without the directions in which nothing varies."""

    values: Array  # (r,), ascending
    vectors: Array  # V (n, r), orthonormal columns
    units: Array  # (n,), standard deviations

    @property
    def forward(self) -> Array:
        """Map (r, n) from deviations to z."""
        root = namespace_of(self.values).sqrt(self.values)
        return (self.vectors / root).T * safe_inverse(self.units)

    @property
    def back(self) -> Array:
        """Map (n, r) from z to deviations."""
        return self.vectors * namespace_of(self.values).sqrt(self.values) * self.units[:, None]


def principal_axes(covariance: Array, given: Array, known: float | None = None, least: float = 0.0) -> Axes:
    """Principal axes of standardised inputs whose variance exceeds rounding, and `least`.

    The covariance (n, n) is in the widest precision, and known in the dtype of `given`; with `known` only that part of
    it, as in `rounding_floor`.
    """
    xp = namespace_of(covariance)
    units = xp.sqrt(xp.clip(xp.linalg.diagonal(covariance), 0, None))
    inverse = safe_inverse(units)
    values, vectors = xp.linalg.eigh(0.5 * (covariance + covariance.T) * inverse * inverse[:, None])
    floor = max(rounding_floor(given, covariance, int(units.shape[0]), known), least)
    index = constant_index(np.flatnonzero(to_numpy(values) > floor), values)
    return Axes(xp.take(values, index), xp.take(vectors, index, axis=1), units)


@record
class Coordinates:
    """z = forward (x - center) and x = center + back z, on the range of the inputs.

    Any rotation of z has the identity covariance as well; `ordered_for` chooses one for a network.
    """

    center: Array  # (d,)
    forward: Array  # (r, d)
    back: Array  # (d, r)
    # least fraction of the variance of a principal axis that lies within components, not between them
    within: float = static(default=1.0)

    @classmethod
    def of(cls, inputs: Gaussians, stored: Array | None = None) -> Coordinates:
        """Standard coordinates of a Gaussian or a mixture.

        With `stored`, directions below the rounding of its dtype are dropped as well: quadratic coefficients stored in
        it would be too large there to cancel.
        """
        weights, parts = widen(inputs.weights), inputs.components
        xp = namespace_of(weights)
        means = xp.stack([widen(g.mean) for g in parts])
        center = weights @ means
        gaps = means - center
        between = (gaps * weights[:, None]).T @ gaps
        within = sum(weights[c] * widen(g.covariance) for c, g in enumerate(parts))
        total = within + between
        # The covariances of the components are known to the precision of their dtype. Their means are too, but the
        # error of a variance between means is that of the means squared.
        d, given = int(center.shape[0]), inputs.prototype
        fractions = xp.linalg.diagonal(within) * safe_inverse(xp.linalg.diagonal(total))
        known = scalar(xp.sum(fractions)) + rounding_error(given) * d
        # x' Q x is rounded by about eps |Q| |x|^2, with |x|^2 the number of inputs, and |Q| one over the variance.
        axes = principal_axes(total, given, known, 0.0 if stored is None else rounding_error(stored) * d)
        forward, back = xp.flip(axes.forward, axis=0), xp.flip(axes.back, axis=1)  # the largest variance first
        inside = to_numpy(xp.vecdot(forward @ within, forward))
        # If the components do not vary at all, nothing can be lost within them.
        return cls(center, forward, back, float(inside[inside > 1e-14].min(initial=1.0)))

    @property
    def kept(self) -> int:
        """Number r of directions with variance."""
        return int(self.back.shape[1])

    @property
    def dropped(self) -> int:
        """Number of directions in which the inputs are constant."""
        return int(self.center.shape[0]) - self.kept

    def ordered_for(self, weights: Array) -> Coordinates:
        """The same coordinates, rotated so that those in which weights (h, d) @ x varies most come first."""
        xp = namespace(weights=weights, center=self.center)
        seen = widen(weights) @ self.back
        _, vectors = xp.linalg.eigh(seen.T @ seen)
        turn = xp.flip(vectors, axis=1)
        return replace(self, forward=turn.T @ self.forward, back=self.back @ turn)

    def gaussian(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Mean (r,) and covariance (r, r) of a component in these coordinates."""
        # Rounding must not make it asymmetric: an asymmetric Gram operator is not a sum of squares and has no minimum.
        inside = self.forward @ widen(cov) @ self.forward.T
        return self.forward @ (widen(mean) - self.center), 0.5 * (inside + inside.T)
