"""The record of an activation: its function and its Hermite coefficients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlpoly.arrays import Array, cast_like, constant, namespace_of, rounding_error, to_numpy, widen

Projection = Callable[[Array, Array, int], Array]


@dataclass(frozen=True)
class Activation:
    """A scalar function and its expansion under any Gaussian (MATH 1, 3).

    Two activations are equal if their names and parameters are; a user's function equals only itself.

    Attributes
    ----------
    name : str
        Canonical name, with its parameters where they are not the default: ``"leaky_relu(0.2)"``.
    function : callable
        Elementwise function of an array of any supported library.
    projection : callable
        What `project` computes, for arrays in the widest available precision.
    formula : str
    route : str
        ``"closed form"`` or ``"quadrature"``.
    kinks : tuple of float
        Where the function or a derivative jumps.
    pieces : tuple of polynomials or None
        For a piecewise polynomial, one more than there are kinks: coefficients in powers of y, ascending, between them.
    strip : float or None
        Distance of the nearest singularity from the real axis, if the function is analytic between.
    own : callable or None
        The user's function, so that JAX does not confuse two functions of the same name.
    derivative : callable or None
        First derivative, elementwise, from the right at kinks; None for a user's function.
    bends : tuple of float or None
        Points of inflection: between them and the kinks the function is convex or concave. None where they are unknown
        or, for sine and cosine, without end.
    """

    name: str
    function: Callable[[Array], Array] = field(compare=False)
    projection: Projection = field(compare=False)
    formula: str = field(compare=False, default="")
    route: str = field(compare=False, default="closed form")
    kinks: tuple[float, ...] = field(compare=False, default=())
    pieces: tuple[tuple[float, ...], ...] | None = field(compare=False, default=None)
    strip: float | None = field(compare=False, default=None)
    own: Callable[[Array], Array] | None = None
    derivative: Callable[[Array], Array] | None = field(compare=False, default=None)
    bends: tuple[float, ...] | None = field(compare=False, default=None)

    def __call__(self, y: Array) -> Array:
        """Apply the function elementwise."""
        return self.function(y)

    def project(self, mean: Array, std: Array, degree: int) -> Array:
        """Orthonormal coefficients c_k = E[act(mean + std t) he_k(t)], in the widest available precision.

        The result is (degree + 1, *mean.shape), for float arrays of one shape with std >= 0.
        """
        return self.projection(widen(mean), widen(std), degree)

    def slope(self, y: Array) -> Array:
        """First derivative, elementwise, from the right at kinks; at a jump without the jump.

        That of a user's function is a difference quotient of fourth order, which does not reach across declared kinks.
        """
        return difference_quotient(self.function, y, self.kinks) if self.derivative is None else self.derivative(y)

    def jumps(self, like: Array) -> bool:
        """Whether the function is discontinuous at one of its kinks, found with arrays of the library of `like`."""
        if not self.kinks:
            return False
        like, at = widen(like), np.asarray(self.kinks)
        gaps, eps = [], rounding_error(like)
        for distance in (eps**0.5, eps**0.25):  # the gap shrinks with it across a kink, not across a jump
            apart = distance * np.maximum(1.0, np.abs(at))
            left, right = (to_numpy(self(constant(at + side * apart, like))) for side in (-1, 1))
            gaps.append(np.abs(right - left))
        noise = 64 * eps * np.maximum(np.abs(left), np.abs(right))
        return bool(np.any(gaps[0] > 0.5 * gaps[1] + noise))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Activation":
        return self  # immutable

    def __repr__(self) -> str:
        return f"Activation({self.name!r}, {self.route})"


def difference_quotient(function: Callable[[Array], Array], y: Array, kinks: Sequence[float]) -> Array:
    """First derivative, elementwise, from a polynomial of degree 4 through five values that no kink separates from y.

    At a kink it is the derivative from the right. The step balances the error of order four against that of rounding,
    of y as well as of the function.
    """
    xp, like, y = namespace_of(y), y, widen(y)
    reach = 3 * (float(xp.finfo(y.dtype).eps) * xp.clip(xp.abs(y), 1, None)) ** 0.2
    low, high = y - reach, y + reach
    for kink in kinks:
        low = xp.where((y >= kink) & (low < kink), kink, low)
        high = xp.where((y < kink) & (high > kink), kink, high)
    step, center = (high - low) / 6, (high + low) / 2
    f = {j: function(center + j * step) for j in (-2, -1, 0, 1, 2)}
    odd, far_odd, even, far_even = f[1] - f[-1], f[2] - f[-2], f[1] + f[-1] - 2 * f[0], f[2] + f[-2] - 2 * f[0]
    t = (y - center) / step
    cubic = (far_odd - 2 * odd) / 4 + t * (far_even - 4 * even) / 6
    quotient = (8 * odd - far_odd) / 12 + t * ((16 * even - far_even) / 12 + t * cubic)
    return cast_like(quotient / step, like)
