"""A function under one Gaussian as hidden units, their Hermite series and a readout (MATH 1, 2, 5)."""

import sys
from copy import copy
from functools import cached_property

from mlpoly.activations import Activation
from mlpoly.arrays import Array, decidable, eye, interchangeable, namespace, safe_root, widen
from mlpoly.inputs import Gaussian
from mlpoly.moments.hermite_products import Ladder, project_units
from mlpoly.moments.kernels.conditional import unit_moments
from mlpoly.moments.kernels.hermite_sums import TRACED
from mlpoly.moments.kernels.piecewise_linear import Break, breaks_of, cancellation, is_affine
from mlpoly.moments.kernels.sinusoids import is_wave, wave_variances
from mlpoly.networks import Layer
from mlpoly.records import map_arrays, replace
from mlpoly.units import Gate, Series, Units, energies

ENDLESS = sys.maxsize  # degree of a function that is no polynomial
_SHORTEST = 16  # degree of the first series of a unit whose moments are sums over it
_LONGEST, _LONG = 1024, 256  # degrees up to which series grow by themselves; the lower one where coefficients cost much
_TOLERANCE = 64.0  # truncation error of one pair, in roundings of the product of the standard deviations of both units
_ROUNDING = 32.0  # rounding errors in the value of a unit, which make its variance uncertain by as much
_CANCELLATION = 100.0  # how much larger terms may be than the unit that they add up to


class Expansion:
    """f(x) = readout [P_i(t_i) + e_i Q_i(t_i)]_i + bias for Gaussian x; in float64 where the library has it.

    The series P_i, Q_i of a layer's units have no end and grow on demand. Those of a polynomial end; then `activation`
    is None. Of a layer's expansion, `layer` is that layer.
    """

    layer: Layer

    def __init__(
        self,
        units: Units,  # under the inputs, with the spreads of their gates
        inputs: Gaussian,
        readout: Array | None = None,  # (o, h); None leaves the units as outputs
        bias: Array | None = None,  # (o,)
        activation: Activation | None = None,
        series: Series | None = None,
        beyond: Array | None = None,  # (h,), root of each unit's energy beyond a series that ends before the function
    ) -> None:
        assert (activation is None) != (series is None)
        self.units, self.inputs, self.readout, self.bias = units, inputs, readout, bias
        self.activation, self.beyond = activation, beyond
        self._series = series
        self._rests: tuple[int, Array] = (-1, None)

    @classmethod
    def of(cls, layer: Layer, inputs: Gaussian) -> "Expansion":
        """Expansion of a network with one hidden layer."""
        layer, inputs = map_arrays((layer, inputs), widen)
        units = Units.under(layer, inputs, spreads=True)
        made = cls(units, inputs, layer.readout, layer.bias, layer.activation)
        made.layer = layer
        return made

    # -- the units ----------------------------------------------------------------------------------------------------

    @property
    def degree(self) -> int:
        """Degree at which the series end."""
        return self._series.degree if self.activation is None and self._series is not None else ENDLESS

    @cached_property
    def longest(self) -> int:
        """Degree up to which series may grow to serve a sum over all degrees."""
        if self.activation is None:
            return self.degree
        return _LONGEST if self.activation.route == "closed form" or self.activation.strip is not None else _LONG

    def series(self, degree: int) -> Series:
        """Hermite series of the units up to a degree, zeros beyond the end of those that end."""
        known = self._series
        if self.activation is None:
            assert known is not None
            return known.padded(max(degree, known.degree), self.units.gate is not None).truncate(degree)
        if known is None or known.degree < degree:
            doubled = 0 if known is None else min(2 * known.degree, self.longest)
            exact = self.wave or (self.units.gate is None and is_affine(self.activation))
            shortest = _SHORTEST if decidable(self.units.scales) else min(TRACED, self.longest)
            known = self.units.expand(self.activation, max(degree, doubled, 0 if exact else shortest))
            self._series = known
        return known.truncate(degree)

    @property
    def centres(self) -> Array:
        """Mean (h,) of every unit."""
        return self.series(0).plain[0, :]

    @cached_property
    def variances(self) -> Array:
        """Variance (h,) of every unit."""
        if self.activation is None:
            assert self._series is not None
            energy = energies(self._series, self.units)[1:, ...]
            total = namespace(energy=energy).sum(energy, axis=0)
            return total if self.beyond is None else total + self.beyond**2
        if self.wave:
            return wave_variances(self.activation, self.units)
        return unit_moments(self.activation, self.units, self.centres)

    @cached_property
    def tolerance(self) -> float:
        """Truncation error that a pair of units may have, relative to the product of their `spreads`."""
        eps = float(namespace(scales=self.units.scales).finfo(self.units.scales.dtype).eps)
        return 0.0 if self.activation is None else _TOLERANCE * eps

    @cached_property
    def spreads(self) -> Array:
        """Standard deviation (h,) of every unit; one that is constant up to rounding is not known better than that."""
        if self.activation is None:
            return safe_root(self.variances)
        eps = float(namespace(variances=self.variances).finfo(self.variances.dtype).eps)
        return safe_root(self.variances + (_ROUNDING * eps) ** 2 / self.tolerance * self.centres**2)

    def rests(self, degree: int) -> Array:
        """Root (h,) of the energy of every unit beyond a degree; of a series without end, rounding counts as energy."""
        self.series(degree if self.activation is not None else 0)
        known = self._series
        assert known is not None
        if self._rests[0] != known.degree:
            xp, energy = namespace(plain=known.plain), energies(known, self.units)[1:, ...]
            if self.activation is None:
                left = known.plain[0, :] * 0 if self.beyond is None else self.beyond**2
            else:
                eps = float(xp.finfo(energy.dtype).eps)
                left = xp.maximum(self.variances - xp.sum(energy, axis=0), 8 * eps * self.variances)
            upwards = xp.flip(xp.concat([energy, left[None, :]]), axis=0)
            self._rests = known.degree, safe_root(xp.flip(xp.cumulative_sum(upwards, axis=0), axis=0))
        return self._rests[1][min(degree, known.degree), :]

    @property
    def wave(self) -> bool:
        """Whether the units are plain sines or cosines."""
        return self.activation is not None and self.units.gate is None and is_wave(self.activation)

    @cached_property
    def breaks(self) -> list[Break] | None:
        """Breaks of plain piecewise-linear units; None for others, and where the terms at several breaks cancel."""
        act = self.activation
        if act is None or self.units.gate is not None or not is_affine(act):
            return None
        breaks = breaks_of(act, self.units)
        if len(act.kinks) < 2:
            return breaks
        excess = cancellation(breaks, self.variances + self.centres**2)
        return breaks if not decidable(excess) or bool(namespace(excess=excess).all(excess <= _CANCELLATION)) else None

    # -- the outputs --------------------------------------------------------------------------------------------------

    @property
    def weights(self) -> Array:
        """Weights (o, h) from units to outputs."""
        return eye(self.units.size, self.units.scales) if self.readout is None else self.readout

    @property
    def mean(self) -> Array:
        """E[f] (o,)."""
        mean = self.centres if self.readout is None else self.readout @ self.centres
        return mean if self.bias is None else mean + self.bias

    def slopes(self) -> Array:
        """E[Jacobian] (o, d): the linear part is that times x - mean."""
        units, series = self.units, self.series(1)
        along = series.plain[1, :] * units.inverse_scales
        if series.gated is None or units.gate is None:
            return (self.weights * along) @ units.directions
        along = along - series.gated[0, :] * units.gate.slopes * units.inverse_scales
        return (self.weights * along) @ units.directions + (self.weights * series.gated[0, :]) @ units.gate.directions

    def in_products(self, back: Array, own: Ladder) -> Array:
        """Coefficients (t, o) in the Hermite products of w, for x = mean + back w."""
        series = self.series(int(own.degrees.max(initial=0)))
        out = project_units(self.units, series, back, own) @ self.weights.T
        return out if self.bias is None else out + own.constant_row(back) * self.bias

    # -- other expansions ---------------------------------------------------------------------------------------------

    def with_series(self, series: Series) -> "Expansion":
        """The same units with series that end."""
        return Expansion(self.units, self.inputs, self.readout, self.bias, series=series)

    def best(self, degree: int) -> "Expansion":
        """The closest polynomial of a degree: the series up to it."""
        return self.with_series(self.series(degree))

    def part(self, degree: int) -> "Expansion":
        """The part of exactly one degree, at least 1."""
        series = self.series(degree)
        plain, xp = series.plain, namespace(plain=series.plain)
        gated = None if series.gated is None else xp.concat([series.gated[:-1, :] * 0, series.gated[-1:, :]])
        return self.with_series(Series(xp.concat([plain[:-1, :] * 0, plain[-1:, :]]), gated))

    def minus(self, other: "Expansion") -> "Expansion":
        """Difference of the series of two functions that end, under the same inputs."""
        degree = max(self.longest, other.longest)
        one, two = self.series(degree), other.series(degree)
        biases = [b for b in (self.bias, None if other.bias is None else -other.bias) if b is not None]
        bias = sum(biases[1:], start=biases[0]) if biases else None
        if other.units is self.units and interchangeable(self.readout, other.readout):
            # Unit by unit: common parts cancel before they are squared.
            gated = None if one.gated is None else one.gated - two.gated
            return Expansion(self.units, self.inputs, self.readout, bias, series=Series(one.plain - two.plain, gated))
        gates = self.units.gate is not None or other.units.gate is not None
        xp = namespace(plain=one.plain)
        readout = xp.concat([self.weights, -other.weights], axis=1)
        units = self.units.beside(other.units)
        one, two = (a.padded(degree, gates) for a in (one, two))
        return Expansion(units, self.inputs, readout, bias, series=one.beside(two))

    def with_gate(self) -> "Expansion":
        """The same function with gated units; plain ones get a second factor that is always one."""
        if self.units.gate is not None:
            return self
        flat = self.units.shifts * 0
        gated = copy(self)
        gated.units = replace(self.units, gate=Gate(self.units.directions * 0, flat, flat, flat + 1, flat))
        if self.activation is not None:
            gated._series, gated._rests = None, (-1, None)
        return gated

    def hidden(self) -> "Expansion":
        """The units themselves as outputs."""
        made = copy(self)
        made.readout = made.bias = None
        return made
