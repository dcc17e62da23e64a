"""Polynomials of neurons that continue as straight lines beyond a bound (MATH 4c)."""

import math
from collections.abc import Callable
from dataclasses import field, fields
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from mlpoly.arrays import Array, add_product, namespace, readable, scalar, widen
from mlpoly.inputs import Gaussian
from mlpoly.moments import Expansion
from mlpoly.polynomials.fields import check_shapes, store_floats
from mlpoly.polynomials.neurons import Derivatives, NeuronPolynomial
from mlpoly.polynomials.ridge import RidgePolynomial
from mlpoly.records import map_arrays, record, replace, trusted
from mlpoly.special import hermite, panels, recurrence
from mlpoly.units import Series, Units, energies

_DEGREE = 64  # of the polynomial that replaces the piecewise one in closed-form measures; the difference is bounded
_NODES = 24  # Gauss-Legendre nodes on each panel
_REACH = 12.0  # standard deviations beyond which a polynomial times the normal density is negligible
_PANELS = 12  # panels between -reach and reach, besides those that end at the bounds


@record
class BoundedPolynomial(NeuronPolynomial):
    """A ridge polynomial whose neurons are straight lines beyond a bound, so that none explodes far from the data.

    While |t_i| <= b_i, a neuron is P_i + e_i Q_i as in the polynomial. Beyond the bound P_i and Q_i continue as lines
    in t_i from their values there. So the function is piecewise polynomial; its coefficients are those of the
    polynomial within the bounds. The second factor v_i.x of a gated unit is not bounded: the unit is linear in it.

    Attributes
    ----------
    units, series, readout, bias, activation
        Those of the polynomial within the bounds, as in `RidgePolynomial`.
    bounds : array (h,)
        The b_i, in standard deviations of w_i.x; infinite for a neuron without a bound.
    slopes, gate_slopes : array (2, h), and array (2, h) or None
        Slopes in t_i of P_i and, for gated units, of Q_i, below -b_i and above b_i.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> poly = mp.fit(mp.MLP(np.eye(1), activation="relu"), mp.Gaussian.standard(1), degree=4)
    >>> far = np.array([[100.0]])  # where the network is 100
    >>> bool(poly(far)[0, 0] < -1e6), round(float(poly.bounded(3.0)(far)[0, 0]), 1)
    (True, 100.0)
    """

    bounds: Array = field(kw_only=True)
    slopes: Array = field(kw_only=True)
    gate_slopes: Array | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        store_floats(self, "bounds", "slopes", "gate_slopes")
        namespace(units=self.prototype, bounds=self.bounds)
        check_shapes(self, {"sides": 2, "h": self.units.size}, bounds="h", slopes="sides h", gate_slopes="sides h")
        if self.gate_slopes is not None and self.series.gated is None:
            raise ValueError("gate_slopes need units with a gate; this polynomial has none.")

    @property
    def polynomial(self) -> RidgePolynomial:
        """The polynomial without bounds."""
        return trusted(RidgePolynomial, **{f.name: getattr(self, f.name) for f in fields(RidgePolynomial)})

    @property
    def piecewise(self) -> bool:
        """True: beyond the bounds it is another polynomial."""
        return True

    def __repr__(self) -> str:
        shown = self.bounds.shape[0] and readable(self.bounds)  # not on the meta device
        bound = f", bound={scalar(namespace(bounds=self.bounds).min(self.bounds)):g}" if shown else ""
        return f"BoundedPolynomial({self.polynomial!r}{bound})"

    # -- values and derivatives ---------------------------------------------------------------------------------------

    def neuron_values(self, gated: bool) -> Callable[[Array, Array | None], Array]:
        """The function `neurons`, with what does not depend on the points computed once."""
        plain, gate, lines = recurrence(self.series.at_no_factor(self.units)), self.units.gate, self.gate_slopes
        factor = recurrence(self.series.gated) if gated and gate is not None else None
        to_deviations = self.units.standardisation()

        def values(y: Array, z: Array | None = None) -> Array:
            t = to_deviations(y)
            held = namespace(t=t).clip(t, -self.bounds, self.bounds)
            excess = t - held
            hidden = plain(held) + _line(self.slopes, excess)
            if factor is None or gate is None:
                return hidden
            second = factor(held)
            if lines is not None:
                # In v.x = shift + slope t + e, too, t stops at the bound: the rest of v.x becomes part of e.
                line = _line(lines, excess)
                hidden = add_product(hidden, line, add_product(gate.shifts, gate.slopes, held), -1.0)
                second = second + line
            return add_product(hidden, z, second)

        return values

    def derivatives(self, y: Array, z: Array | None, second: bool = True) -> Derivatives:
        """First and, on request, second derivatives of the neurons, given their linear forms."""
        units, t = self.units, self.units.standardise(y)
        xp = namespace(t=t)
        held = xp.clip(t, -self.bounds, self.bounds)
        inside, excess = t == held, t - held
        within = super().derivatives(units.shifts + units.scales * held, z, second)
        lines = xp.where(excess < 0, self.slopes[0, ...], self.slopes[1, ...])
        factor, change = within.factor, within.change
        if z is not None and factor is not None:
            bends = self.gate_slopes
            steep = lines * 0 if bends is None else xp.where(excess < 0, bends[0, ...], bends[1, ...])
            lines = lines + units.residual(z, held) * steep
            factor, change = factor + steep * excess, xp.where(inside, change, steep)
        bend = xp.where(inside, within.bend, 0.0) if second else None
        return Derivatives(xp.where(inside, within.along, lines), bend, factor, change)

    # -- other forms --------------------------------------------------------------------------------------------------

    def _truncated(self, degree: int) -> "BoundedPolynomial":
        # Lines have degree 1, and degree 2 when multiplied by e.
        slopes, steep = self.slopes if degree else self.slopes * 0, self.gate_slopes if degree >= 2 else None
        return replace(super()._truncated(degree), slopes=slopes, gate_slopes=steep)

    def bounded(self, bound: float) -> "BoundedPolynomial":
        """The same polynomial with lines beyond another bound."""
        return self.polynomial.bounded(bound)

    # -- second moments -----------------------------------------------------------------------------------------------

    def hermite(self, inputs: Gaussian, near: Units | None = None) -> Expansion:
        """Expansion under a Gaussian, by one-dimensional integrals on panels that end at the bounds."""
        wide = map_arrays(replace(self, inputs=None), widen)
        old, n = wide.units, max(_DEGREE, self.degree)
        units = near if near is not None and near.sees(old) else Units.under(old, inputs, spreads=True)
        xp, inverse = namespace(scales=units.scales), old.inverse_scales
        # Positions of the bounds in the new t', and panels between them and a fixed grid, (m, h).
        shift, scale = (units.shifts - old.shifts) * inverse, units.scales * inverse
        moving = scale > 0
        edges = [(sign * wide.bounds - shift) / xp.where(moving, scale, 1.0) for sign in (-1.0, 1.0)]
        t, weight = panels(np.linspace(-_REACH, _REACH, _PANELS + 1), [xp.stack(edges)], _NODES)
        # At v.x = level + slope t' + e the neuron is N(t, level + slope t') + e dN/dz.
        y = units.shifts + units.scales * t
        if units.gate is None:
            values, factor = wide.neurons(y), None
        else:
            values = wide.neurons(y, units.gate.shifts + units.gate.slopes * t)
            factor = wide.derivatives(y, units.gate.shifts + units.gate.slopes * t, False).factor

        def series(at_nodes: Array, degree: int) -> Array:
            return hermite(t, degree, at_nodes * weight, read=partial(xp.sum, axis=0))

        projected = Series(series(values, n), None if factor is None else series(factor, n - 1))
        # Centred: a mean would swamp the remainder.
        whole = xp.sum((values - projected.plain[0, :]) ** 2 * weight, axis=0)
        if factor is not None and units.gate is not None:
            whole = whole + units.gate.spreads**2 * xp.sum(factor**2 * weight, axis=0)
        rest = xp.sqrt(xp.clip(whole - xp.sum(energies(projected, units)[1:, ...], axis=0), 0, None))
        return Expansion(units, map_arrays(inputs, widen), wide.readout, wide.bias, series=projected, beyond=rest)

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def _scaled(self, factor: Any) -> "BoundedPolynomial":
        scaled = super()._scaled(factor)
        if self.readout is not None:
            return scaled
        lines = None if self.gate_slopes is None else self.gate_slopes * factor
        return replace(scaled, slopes=self.slopes * factor, gate_slopes=lines)

    def _plus(self, other: "BoundedPolynomial") -> "BoundedPolynomial":
        """Sum, with the neurons of both side by side."""
        xp = namespace(left=self.bounds, right=other.bounds)
        lines = [p.slopes * 0 if p.gate_slopes is None else p.gate_slopes for p in (self, other)]
        gated = self.gate_slopes is not None or other.gate_slopes is not None
        return replace(
            super()._plus(other),
            bounds=xp.concat([self.bounds, other.bounds]),
            slopes=xp.concat([self.slopes, other.slopes], axis=1),
            gate_slopes=xp.concat(lines, axis=1) if gated else None,
        )

    def _absorbed(self, other: Any) -> "BoundedPolynomial | None":
        """Sum with a ridge polynomial, whose neurons have no bounds."""
        if not isinstance(other, RidgePolynomial):
            return None
        flat = other.units.shifts * 0
        own = {f.name: getattr(other, f.name) for f in fields(other)}
        slopes = namespace(flat=flat).stack([flat, flat])
        return self._plus(trusted(BoundedPolynomial, **own, bounds=flat + math.inf, slopes=slopes))


def check_bound(bound: Any) -> float:
    """Return the bound, or raise unless it is a positive number of standard deviations."""
    if isinstance(bound, bool) or not isinstance(bound, Real) or not 0 < float(bound) < math.inf:
        raise ValueError(f"bound must be a positive number of standard deviations, such as 4.0, got {bound!r}.")
    return float(bound)


def _line(slopes: Array, excess: Array) -> Array:
    """Change of P or Q along its line for an excess t - clip(t, -b, b) (..., h)."""
    return excess * namespace(slopes=slopes, excess=excess).where(excess < 0, slopes[0, ...], slopes[1, ...])
