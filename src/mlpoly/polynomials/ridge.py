"""The factored form: a sum of univariate polynomials of linear forms, never a d^n tensor (MATH 1, 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mlpoly.activations import Activation
from mlpoly.arrays import (
    Array,
    add_product,
    as_integer,
    cast_like,
    constant,
    eye,
    namespace,
    widen,
)
from mlpoly.inputs import Gaussian
from mlpoly.moments import Expansion
from mlpoly.polynomials.neurons import Derivatives, NeuronPolynomial, derivative
from mlpoly.polynomials.shapes import check_shapes, store_floats
from mlpoly.polynomials.source import Source
from mlpoly.records import map_arrays, record, replace, static
from mlpoly.special import clenshaw
from mlpoly.units import Gate, Series, Units

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
    readout : array (o, h) or None
        None leaves the neurons as outputs.
    bias : array (o,) or None
    activation : Activation or None
        Activation of the network, if known; the lines of `bounded` follow it.
    inputs, source, report
        As in any `Polynomial`.
    """

    units: Units
    series: Series
    readout: Array | None = None
    bias: Array | None = None
    activation: Activation | None = static(default=None)
    inputs: Any = None
    source: Source = static(default=Source())
    report: Any = static(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = (self.units, Units), (self.series, Series), (getattr(self.units, "gate", None), Gate | None)
        if not all(isinstance(part, kind) for part, kind in parts):
            found = ", ".join(type(part).__name__ for part, _ in parts)
            raise TypeError(f"units must be Units, series a Series, and units.gate a Gate or None, got {found}.")
        store_floats(self, "units", "series", "readout", "bias")
        sizes: dict[str, int] = {}
        gate, series = self.units.gate, self.series
        check_shapes(self.units, sizes, "units", directions="h d", shifts="h", scales="h", bias="h")
        check_shapes(series, sizes, "series", plain="k h")
        if gate is not None:
            check_shapes(gate, sizes, "units.gate", directions="h d", shifts="h", slopes="h", bias="h", spreads="h")
        if self.degree < 0 or (series.gated is None) != (gate is None or self.degree == 0):
            raise ValueError("series needs a constant, and series.gated from degree 1 on where units have a gate.")
        check_shapes(series, sizes | {"k": self.degree}, "series", gated="k h")
        check_shapes(self, sizes if self.readout is not None else sizes | {"o": sizes["h"]}, readout="o h", bias="o")

    def __repr__(self) -> str:
        gated = "" if self.series.gated is None else ", gated"
        return f"RidgePolynomial(degree={self.degree}, {self.dim_in} -> {self.dim_out}, {self.source}{gated})"

    # -- values and derivatives ---------------------------------------------------------------------------------------

    def neurons(self, y: Array, z: Array | None = None) -> Array:
        """Values (..., h) of the neurons, given their linear forms."""
        t = self.units.standardise(y)
        hidden = clenshaw(self.series.at_no_factor(self.units), t)
        return hidden if z is None else add_product(hidden, z, clenshaw(self.series.gated, t))

    def derivatives(self, y: Array, z: Array | None, second: bool = True) -> Derivatives:
        """First and, on request, second derivatives of the neurons, given their linear forms."""
        t, first = self.units.standardise(y), derivative(self.series.plain)
        along, bend = clenshaw(first, t), clenshaw(derivative(first), t) if second else None
        gate = self.units.gate
        if z is None or gate is None or self.series.gated is None:
            return Derivatives(along, bend)
        e, slope = self.units.residual(z, t), derivative(self.series.gated)
        factor, change = clenshaw(self.series.gated, t), clenshaw(slope, t)
        along = along + e * change - gate.slopes * factor
        if second:
            bend = bend + e * clenshaw(derivative(slope), t) - 2 * gate.slopes * change
        return Derivatives(along, bend, factor, change)

    # -- other forms --------------------------------------------------------------------------------------------------

    def truncate(self, degree: int) -> RidgePolynomial:
        """Drop everything above `degree`; the truncation of an optimal polynomial is the optimum of that degree."""
        degree = as_integer("degree", degree, 0)
        if degree >= self.degree:
            return self
        units = self.units if degree else replace(self.units, gate=None)
        return replace(self, units=units, series=self.series.truncate(degree), report=None)

    def bounded(self, bound: float) -> BoundedPolynomial:
        """The polynomial with straight lines beyond `bound` standard deviations of each preactivation (MATH 4c).

        Away from the data a polynomial explodes while an activation is almost straight. Beyond the bound every neuron
        continues from its value there with the slope of the network's activation between one and two bounds.
        """
        from mlpoly.polynomials.bounded import BoundedPolynomial, chords  # imports this module

        inner, about = replace(self, inputs=None, report=None), (self.inputs, self.source, self.report)
        return BoundedPolynomial(inner, *chords(self, bound), *about)

    def rebase(self, inputs: Gaussian, near: Units | None = None) -> RidgePolynomial:
        """The same polynomial with t_i standard normal under `inputs`, in float64 where the library has it.

        `near` are units under these inputs, which are taken where they have the same linear forms.
        """
        wide = map_arrays(replace(self, inputs=None), widen)
        same = near is not None and near.sees(wide.units)
        units = near if same and near is not None else Units.under(wide.units, inputs, spreads=True)
        return replace(wide, units=units, series=wide.series.rebase(wide.units, units))

    def hermite(self, inputs: Gaussian, near: Units | None = None) -> Expansion:
        """Expansion under a Gaussian, of which second moments are made; `near` as in `rebase`."""
        p = self.rebase(inputs, near)
        return Expansion(p.units, map_arrays(inputs, widen), p.readout, p.bias, series=p.series)

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def _scaled(self, factor: Any) -> RidgePolynomial:
        bias = None if self.bias is None else self.bias * factor
        if self.readout is not None:
            return replace(self, readout=self.readout * factor, bias=bias)
        # The neurons themselves are scaled, so that the activation no longer describes them.
        return replace(self, series=map_arrays(self.series, lambda a: a * factor), bias=bias, activation=None)

    def _shifted(self, by: Any) -> RidgePolynomial:
        bias = constant(np.zeros(self.dim_out), self.prototype) if self.bias is None else self.bias
        return replace(self, bias=cast_like(bias + by, bias))

    def _mapped(self, matrix: Array) -> RidgePolynomial:
        readout = matrix if self.readout is None else matrix @ self.readout
        return replace(self, readout=readout, bias=None if self.bias is None else matrix @ self.bias)

    def _precomposed(self, factors: Array, offset: Array) -> RidgePolynomial:
        return replace(self, units=self.units.precomposed(factors, offset))

    def _plus(self, other: RidgePolynomial) -> RidgePolynomial:
        """Sum, with the neurons of both side by side."""
        xp = namespace(left=self.prototype, right=other.prototype)
        degree = max(self.degree, other.degree)
        gated = self.series.gated is not None or other.series.gated is not None
        one, two = (p.series.padded(degree, gated) for p in (self, other))
        readouts = [eye(p.dim_out, p.prototype) if p.readout is None else p.readout for p in (self, other)]
        biases = [p.bias for p in (self, other) if p.bias is not None]
        return RidgePolynomial(
            self.units.beside(other.units),
            one.beside(two),
            readout=xp.concat(readouts, axis=1),
            bias=sum(biases[1:], start=biases[0]) if biases else None,
        )
