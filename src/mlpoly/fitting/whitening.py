"""Coordinates in which a mixture has mean zero and identity covariance, on the range of its covariance (MATH 4)."""

from __future__ import annotations

import numpy as np

from mlpoly.arrays import Array, constant_index, namespace, safe_inverse, scalar, to_numpy, widen
from mlpoly.inputs import GaussianMixture
from mlpoly.records import record, replace, static


@record
class Whitening:
    """z = forward (x - center) and x = center + back z, on the range of the mixture.

    Any rotation of z whitens as well; `ordered_for` chooses one for a network.
    """

    center: Array  # (d,)
    forward: Array  # (r, d)
    back: Array  # (d, r)
    # least fraction of the variance of a principal axis that lies within components, not between them
    within: float = static()

    @property
    def kept(self) -> int:
        """Number r of directions with variance."""
        return int(self.back.shape[1])

    @property
    def dropped(self) -> int:
        """Number of directions in which the inputs are constant."""
        return int(self.center.shape[0]) - self.kept

    def ordered_for(self, weights: Array) -> Whitening:
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


def whiten(inputs: GaussianMixture, stored: Array | None = None) -> Whitening:
    """Whitening by the total covariance; directions whose variance is a rounding error are dropped.

    The inputs are standardised first, so that the units in which they are measured do not decide what is dropped. With
    `stored`, directions below the rounding of its dtype are dropped as well: quadratic coefficients stored in it would
    be too large there to cancel.
    """
    xp = namespace(means=inputs.means)
    weights, means = widen(inputs.weights), widen(inputs.means)
    center = weights @ means
    gaps = means - center
    between = (gaps * weights[:, None]).T @ gaps
    within = between * 0
    for c, g in enumerate(inputs.components):
        within = within + weights[c] * widen(g.covariance)
    units = xp.sqrt(xp.linalg.diagonal(within + between))
    inverse = safe_inverse(units)
    total = (0.5 * (within + within.T) + between) * inverse * inverse[:, None]
    values, vectors = xp.linalg.eigh(total)
    # The covariances of the components are known only to the precision of the caller's dtype. Their means are too, but
    # the error of a variance between means is that of the means squared.
    given, used = (float(xp.finfo(a.dtype).eps) for a in (inputs.means, total))
    known = given * scalar(xp.sum(xp.linalg.diagonal(within) * inverse * inverse))
    spectrum = to_numpy(values)
    floor = 20 * (known + (used + given**2) * total.shape[0])
    if stored is not None:
        # x' Q x is rounded by about eps |Q| |x|^2, with |x|^2 the number of inputs, and |Q| one over the variance.
        floor = max(floor, float(xp.finfo(stored.dtype).eps) * total.shape[0])
    keep = np.flatnonzero(spectrum > floor)
    index = constant_index(keep[::-1].copy(), total)  # largest variance first
    scale = xp.sqrt(xp.take(values, index))
    vectors = xp.take(vectors, index, axis=1)
    forward = (vectors / scale).T * inverse
    inside = to_numpy(xp.vecdot(forward @ within, forward))
    # If the components do not vary at all, nothing can be lost within them.
    least = float(inside[inside > 1e-14].min(initial=1.0))
    return Whitening(center, forward, vectors * scale * units[:, None], least)
