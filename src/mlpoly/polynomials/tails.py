"""How a neuron goes on beyond the range that its polynomial is used in."""

from __future__ import annotations

import math

from mlpoly.arrays import Array, namespace
from mlpoly.records import record, static

__all__ = ["Tails"]


@record
class Tails:
    """Slopes with which a neuron goes on linearly beyond the bound, in place of its polynomial.

    With a bound b the neuron is P(t) + e Q(t) for |t| <= b. Beyond it P and Q go on as straight lines in t from the
    values that they have there, because a polynomial explodes outside of the data while an activation is all but
    straight. Without a bound they are not used: the polynomial is what it is.

    Attributes
    ----------
    slopes : array (2, h)
        Of P, below -b and above b.
    gate : array (2, h) or None
        Of Q, likewise, for gated units.
    bound : float
        b, in standard deviations of the preactivation: the slopes belong to it.
    """

    slopes: Array
    gate: Array | None = None
    bound: float = static(default=math.inf)

    def value(self, excess: Array) -> Array:
        """What P gains by an excess t - clip(t, -b, b) (..., h)."""
        return _line(self.slopes, excess)

    def gate_value(self, excess: Array) -> Array:
        """What Q gains."""
        return excess * 0 if self.gate is None else _line(self.gate, excess)

    def scaled(self, factor: float) -> Tails:
        """Tails of the neurons times a factor."""
        return Tails(self.slopes * factor, None if self.gate is None else self.gate * factor, self.bound)

    def check(self, bound: float) -> None:
        """Raise unless this is the bound that the slopes are for."""
        if bound != self.bound:
            raise ValueError(
                f"bound is {bound:g}, but the lines of this polynomial begin at {self.bound:g} standard deviations; "
                f"use that, or make others with mlpoly.fitting.tails.with_tails(net, poly, {bound:g})."
            )


def _line(slopes: Array, excess: Array) -> Array:
    xp = namespace(slopes=slopes, excess=excess)
    return excess * xp.where(excess < 0, slopes[0, ...], slopes[1, ...])
