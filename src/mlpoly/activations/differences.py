"""First derivatives of a user's function by differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlpoly.arrays import Array, cast_like, namespace, widen


def difference_quotient(function: Callable[[Array], Array], y: Array, kinks: Sequence[float]) -> Array:
    """First derivative, elementwise, from a polynomial of degree 4 through five values that no kink separates from y.

    At a kink it is the derivative from the right. The step balances the error of order four against that of rounding,
    of y as well as of the function.
    """
    xp, like, y = namespace(y=y), y, widen(y)
    reach = 3 * (float(xp.finfo(y.dtype).eps) * xp.clip(xp.abs(y), 1, None)) ** 0.2
    low, high = y - reach, y + reach
    for kink in kinks:
        low = xp.where((y >= kink) & (low < kink), kink, low)
        high = xp.where((y < kink) & (high > kink), kink, high)
    step, center = (high - low) / 6, (high + low) / 2
    one, two, here, four, five = (function(center + j * step) for j in (-2, -1, 0, 1, 2))
    odd, far_odd, even, far_even = four - two, five - one, four + two - 2 * here, five + one - 2 * here
    t = (y - center) / step
    cubic = (far_odd - 2 * odd) / 4 + t * (far_even - 4 * even) / 6
    quotient = (8 * odd - far_odd) / 12 + t * ((16 * even - far_even) / 12 + t * cubic)
    return cast_like(quotient / step, like)
