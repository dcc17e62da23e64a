"""Coordinates in which a mixture has mean zero and identity covariance, on the range of its covariance (MATH 4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlpoly.arrays import Array, constant_index, namespace, to_numpy, widen
from mlpoly.inputs import GaussianMixture

__all__ = ["Whitening", "whiten"]


class Whitening(NamedTuple):
    """z = forward (x - center) and x = center + back z, on the range of the mixture; largest variance first."""

    center: Array  # (d,)
    forward: Array  # (r, d)
    back: Array  # (d, r)

    @property
    def kept(self) -> int:
        """Number r of directions with variance."""
        return int(self.back.shape[1])

    @property
    def dropped(self) -> int:
        """Number of directions in which the inputs are constant."""
        return int(self.center.shape[0]) - self.kept

    def gaussian(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Mean (r,) and covariance (r, r) of a component in these coordinates."""
        # Rounding must not make it asymmetric: an asymmetric Gram operator is no sum of squares, and has no minimum.
        inside = self.forward @ widen(cov) @ self.forward.T
        return self.forward @ (widen(mean) - self.center), 0.5 * (inside + inside.T)


def whiten(inputs: GaussianMixture, stored: Array | None = None) -> Whitening:
    """Whitening by the total covariance; directions below rounding level of the largest variance are dropped.

    With `stored`, so are those below the rounding of its dtype: coefficients of x that are kept in it would be too
    large there to cancel.
    """
    xp = namespace(means=inputs.means)
    cov = widen(inputs.covariance)
    values, vectors = xp.linalg.eigh(0.5 * (cov + cov.T))
    # The covariance itself is known only to the precision of the caller's dtype.
    floor = float(xp.finfo(inputs.means.dtype).eps) * cov.shape[0]
    floor = floor if stored is None else max(floor, float(xp.finfo(stored.dtype).eps))
    spectrum = to_numpy(values)
    keep = np.flatnonzero(spectrum > floor * max(float(spectrum.max(initial=0.0)), 0.0))
    index = constant_index(keep[::-1].copy(), cov)  # largest variance first
    values, vectors = xp.take(values, index), xp.take(vectors, index, axis=1)
    scale = xp.sqrt(values)
    return Whitening(widen(inputs.mean), (vectors / scale).T, vectors * scale)
