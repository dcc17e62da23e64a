"""The exact pair kernel of sine and cosine: their products are sinusoids of sums and differences.

A Hermite series does not help at high frequency: at standard deviation s it peaks at degree s^2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpoly.activations import Activation
from mlpoly.arrays import Array, namespace
from mlpoly.units import Angles, Units, terms_between

if TYPE_CHECKING:
    from mlpoly.moments.expansion import Expansion


def is_wave(activation: Activation) -> bool:
    """Whether the activation is the library's sine or cosine."""
    return activation.name in ("sin", "cos") and activation.own is None


def remainder(
    one: Expansion, two: Expansion, rows: slice, columns: slice, angles: Angles, degree: int, own: bool
) -> tuple[Array, None]:
    """Covariance of chunks of two families of sines and cosines at all degrees above `degree`; nothing is truncated."""
    assert one.activation is not None and two.activation is not None
    xp, rho, name = namespace(rho=angles.rho), angles.rho, one.activation.name
    left, right = one.series(degree).rows(rows), two.series(degree).columns(columns)
    listed = terms_between(left, right, angles, 0, degree)
    mi, mj = one.units.means[rows][:, None], two.units.means[columns][None, :]
    si, sj = one.units.scales[rows][:, None], two.units.scales[columns][None, :]
    product = rho * si * sj
    # Half the variances of y_i - y_j and y_i + y_j, without cancellation at rho = +-1, and of both if independent.
    apart = (si - sj) ** 2 / 2 + si * sj * (1 - rho)
    together = (si - sj) ** 2 / 2 + si * sj * (1 + rho)
    alone = (si**2 + sj**2) / 2
    # exp(-apart) - exp(-alone) and exp(-together) - exp(-alone): their exponents differ by Cov(y_i, y_j).
    # Not by absolute values, which have no gradient at zero.
    positive = product > 0
    above, below = xp.where(positive, product, 0.0), xp.where(positive, 0.0, product)
    less = xp.where(positive, -xp.expm1(-above), xp.expm1(below))
    slow, fast = xp.exp(-xp.minimum(apart, alone)) * less, -xp.exp(-xp.minimum(together, alone)) * less
    if name == two.activation.name:
        slow, fast = slow * xp.cos(mi - mj), fast * xp.cos(mi + mj)
        return (slow - fast if name == "sin" else slow + fast) / 2 - listed, None
    # sin(a) cos(b) = (sin(a + b) + sin(a - b)) / 2
    difference = xp.sin(mi - mj) if name == "sin" else xp.sin(mj - mi)
    return (slow * difference + fast * xp.sin(mi + mj)) / 2 - listed, None


def wave_variances(activation: Activation, units: Units) -> Array:
    """Variance of act(y_i) of plain units, (h,), without loss of digits where it is small."""
    xp = namespace(means=units.means)
    square = units.scales**2
    double = xp.exp(-square) * xp.cos(2 * units.means)
    return -0.5 * xp.expm1(-square) * (1 + double if activation.name == "sin" else 1 - double)
