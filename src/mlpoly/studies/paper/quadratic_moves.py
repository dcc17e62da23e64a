"""A quadratic polynomial on moved images, from one evaluation and few coefficients.

It is evaluated on all images once; what one change of all images does to it is then known exactly:

    p(x + a B) = p(x) + a (B grad p(x)) + a (B Q B') a'        directions B (k, d), coordinates a (k,)

so that curves over many directions, draws and strengths cost little more than one evaluation, and are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mlpoly.arrays import Array, constant, namespace, promote, widen
from mlpoly.polynomials import Polynomial

__all__ = ["Line", "Span", "noise_lines", "span", "unit", "universal_lines"]


class Span(NamedTuple):
    """How a quadratic polynomial changes at each image within the span of k directions."""

    slopes: Array  # (n, o, k), along each direction
    bends: Array  # (k, o, k)

    def change(self, moves: Array) -> Array:
        """Change (n, o) of the polynomial when images move by `moves` (n, k) along the directions."""
        xp = namespace(moves=moves)
        return xp.sum((self.slopes + xp.tensordot(moves, self.bends, axes=1)) * moves[:, None, :], axis=-1)


def span(poly: Polynomial, images: Array, rows: Array) -> Span:
    """A quadratic at images (n, d) along directions (k, d)."""
    xp, wide = namespace(images=images), widen(images)
    centre = xp.mean(wide, axis=0)
    forms, rows = promote(poly.coefficients().quadratic, widen(rows))
    turned = forms @ rows.T  # (o, d, k)
    # The gradient at the centre along the directions: the odd part of a quadratic about it.
    at_centre = (poly(centre + rows) - poly(centre - rows)) / 2  # (k, o)
    slopes = 2 * xp.tensordot(wide - centre, turned, axes=([1], [1])) + at_centre.T
    return Span(slopes, xp.tensordot(rows, turned, axes=([1], [1])))


class Line(NamedTuple):
    """Images moved along a line, and how the quadratic changes: slope t + bend t^2 at images + t move."""

    move: Array  # (d,) or (n, d)
    slope: Array  # (n, o)
    bend: Array  # (o,) or (n, o)


def universal_lines(poly: Polynomial, images: Array, moves: np.ndarray) -> Iterator[Line]:
    """One line for each row of `moves` (k, d), the same for all images."""
    rows = constant(moves, images)
    within = span(poly, images, rows)
    for j in range(moves.shape[0]):
        yield Line(rows[j, :], within.slopes[:, :, j], within.bends[j, :, j])


def noise_lines(
    poly: Polynomial, images: Array, base: Array, length: float, rng: np.random.Generator, draws: int
) -> Iterator[Line]:
    """Every image has a line of its own, a Gaussian vector scaled to `length`; `base` (n, o) is poly(images)."""
    for _ in range(draws):
        move = constant(length * unit(rng.standard_normal(tuple(images.shape))), images)
        # Three points on a line determine the quadratic there.
        up, down = (widen(poly(images + sign * move)) for sign in (1, -1))
        yield Line(move, (up - down) / 2, (up + down) / 2 - base)


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows scaled to length one."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
