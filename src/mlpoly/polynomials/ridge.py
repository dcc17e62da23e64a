"""The factored form: a sum of univariate polynomials of linear forms, never a d^n tensor (MATH 1, 2)."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from mlpoly.arrays import Array, cast_like, namespace, widen
from mlpoly.inputs import Gaussian
from mlpoly.moments import Expansion
from mlpoly.polynomials.neurons import NeuronPolynomial, derivative
from mlpoly.records import map_arrays, record, replace, trusted
from mlpoly.units import Series, Units

if TYPE_CHECKING:
    from mlpoly.polynomials.bounded import BoundedPolynomial


@record
class RidgePolynomial(NeuronPolynomial):
    """p(x) = readout [P_i(t_i) + e_i Q_i(t_i)]_i + bias, with t_i and e_i the linear forms of `units`.

    P_i and Q_i are series in orthonormal Hermite polynomials, so `truncate` of an optimal polynomial is optimal.
    Its arrays have the size of the network's own weights, at any degree.

    Attributes
    ----------
    units : Units
        Directions, shifts and scales of the t_i, and for gated units those of the second factors.
    series : Series
        Coefficients of P_i, (degree + 1, h), and of Q_i, (degree, h).
    readout, bias : array (o, h) or None, array (o,) or None
        Without a readout the neurons are the outputs.
    activation : Activation or None
        Activation of the network, if known; the lines of `bounded` follow it.
    """

    def __repr__(self) -> str:
        gated = "" if self.series.gated is None else ", gated"
        return f"RidgePolynomial(degree={self.degree}, {self.dim_in} -> {self.dim_out}, {self.source}{gated})"

    def bounded(self, bound: float) -> BoundedPolynomial:
        """The polynomial with straight lines beyond `bound` standard deviations of each preactivation (MATH 4c).

        Away from the data a polynomial explodes while an activation is almost straight. Every neuron continues from its
        value at the bound with the slope of the network's activation between one and two bounds: not of the tangent at
        the bound, as the activation may still bend there.
        """
        from mlpoly.polynomials.bounded import BoundedPolynomial, check_bound  # imports this module

        bound, units, activation = check_bound(bound), map_arrays(self.units, widen), self.activation
        if activation is None:
            raise ValueError(
                "this polynomial does not know the activation that its lines should follow: its neurons were fitted "
                "together, it was fine-tuned, made by arithmetic, or read from a file whose activation is not "
                "registered. Call bounded() on that of mlpoly.fit, or pass bound= to mlpoly.fit."
            )
        xp, chords = namespace(shifts=units.shifts), []
        for sign in (-1.0, 1.0):
            near, far = (activation(units.means + sign * k * bound * units.scales) for k in (1, 2))
            chords.append((far - near) * (sign / bound))
        slopes, gate_slopes = xp.stack(chords), None
        if units.gate is not None and self.degree > 0:
            # A gated unit is act(y) z with z = mean + slope t + e; in z, t stops at the bound, and P has the slope of
            # act(y) times z without e.
            middle, along = units.gate.means, bound * units.gate.slopes
            gate_slopes, slopes = slopes, slopes * xp.stack([middle - along, middle + along])
        slopes = slopes if self.degree else slopes * 0
        lines = {"bounds": units.scales * 0 + bound, "slopes": slopes}
        lines |= {"gate_slopes": gate_slopes} if self.degree >= 2 and gate_slopes is not None else {}
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return trusted(BoundedPolynomial, **own, **{name: cast_like(a, self.series.plain) for name, a in lines.items()})

    def rebase(self, inputs: Gaussian, near: Units | None = None) -> RidgePolynomial:
        """The same polynomial with t_i standard normal under `inputs`; `near` may be units under these."""
        wide = map_arrays(replace(self, inputs=None), widen)
        same = near is not None and near.sees(wide.units)
        units = near if same and near is not None else Units.under(wide.units, inputs, spreads=True)
        return replace(wide, units=units, series=wide.series.rebase(wide.units, units))

    def averaged(self, noise: Gaussian) -> RidgePolynomial:
        """The polynomial x -> E[p(x + u)] for u of mean zero, in the widest precision.

        With Var t = s^2 and Cov(e, t) = c of the noise, E[P(t) + e Q(t)] is (A P + c A Q') + e A Q, where
        A = exp(s^2/2 d^2/dt^2) averages a function of t.
        """
        wide = map_arrays(replace(self, inputs=None), widen)
        units, own = wide.units, Units.under(wide.units, noise)
        variance = (own.scales * units.inverse_scales) ** 2

        def average(series: Array) -> Array:
            total = term = series
            for j in range(1, (int(series.shape[0]) + 1) // 2):
                term = derivative(derivative(term)) * (variance / (2 * j))
                total = _plus(total, term)
            return total

        plain, gated = average(wide.series.plain), wide.series.gated
        if gated is not None and units.gate is not None and own.gate is not None:
            gated = average(gated)
            shared = own.gate.slopes * own.scales * units.inverse_scales - units.gate.slopes * variance
            plain = _plus(plain, derivative(gated) * shared)
        return replace(wide, series=Series(plain, gated))

    def hermite(self, inputs: Gaussian, near: Units | None = None) -> Expansion:
        """Expansion under a Gaussian, of which second moments are made; `near` as in `rebase`."""
        p = self.rebase(inputs, near)
        return Expansion(p.units, map_arrays(inputs, widen), p.readout, p.bias, series=p.series)


def _plus(series: Array, lower: Array) -> Array:
    """Sum with a series that ends earlier."""
    count = int(lower.shape[0])
    return namespace(series=series).concat([series[:count, ...] + lower, series[count:, ...]])
