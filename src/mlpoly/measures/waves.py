"""The exact pair kernel of sine and cosine: products of waves are waves of sums and differences.

Their series is no help for fast waves: at standard deviation s it peaks at degree s^2.
"""

from __future__ import annotations

from mlpoly.activations import Activation
from mlpoly.arrays import Array, namespace
from mlpoly.measures.units import Units

__all__ = ["is_wave", "wave_moments", "wave_unit_moments"]


def is_wave(activation: Activation) -> bool:
    """Whether the activation is the library's sine or cosine."""
    return activation.name in ("sin", "cos") and activation.own is None


def wave_unit_moments(activation: Activation, units: Units) -> Array:
    """E[act(y_i)^2] of plain units, (h,)."""
    xp = namespace(means=units.means)
    double = xp.exp(-2 * units.stds**2) * xp.cos(2 * units.means)
    return (1 - double if activation.name == "sin" else 1 + double) / 2


def wave_moments(activation: Activation, units: Units, rows: slice, columns: slice, rho: Array) -> Array:
    """E[act(y_i) act(y_j)] of two blocks of plain units, (a, b)."""
    xp = namespace(rho=rho)
    mi, mj = units.means[rows][:, None], units.means[columns][None, :]
    si, sj = units.stds[rows][:, None], units.stds[columns][None, :]
    # Variances of y_i - y_j and y_i + y_j, without cancellation at rho = +-1.
    apart = (si - sj) ** 2 + 2 * si * sj * (1 - rho)
    together = (si - sj) ** 2 + 2 * si * sj * (1 + rho)
    slow, fast = xp.exp(-apart / 2) * xp.cos(mi - mj), xp.exp(-together / 2) * xp.cos(mi + mj)
    return (slow - fast if activation.name == "sin" else slow + fast) / 2
