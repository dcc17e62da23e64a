"""What polynomials made of neurons have in common: their arrays, values, derivatives, coefficients and arithmetic."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from mlpoly.activations import Activation
from mlpoly.arrays import Array, add_product, cast_like, check_points, constant, eye, namespace, promote
from mlpoly.polynomials.base import Polynomial
from mlpoly.polynomials.fields import check_shapes, store_floats
from mlpoly.records import map_arrays, record, replace, static
from mlpoly.special import clenshaw, in_powers, recurrence
from mlpoly.units import Gate, Series, Units

P = TypeVar("P", bound="NeuronPolynomial")


@record
class Derivatives:
    """Derivatives of neurons N_i(t_i, z_i) with z_i = v_i.x, (..., h) each."""

    along: Array  # first derivative in t_i
    bend: Array  # second derivative in t_i; None if only the first was requested
    factor: Array | None = None  # derivative in z_i, for gated units
    change: Array | None = None  # derivative of `factor` in t_i


def derivative(series: Array) -> Array:
    """Hermite series of the derivative: he_k' = sqrt(k) he_{k-1}."""
    n = series.shape[0] - 1
    if n == 0:
        return series * 0
    return series[1:, ...] * constant([[math.sqrt(k)] for k in range(1, n + 1)], series)


@record
class NeuronPolynomial(Polynomial):
    """A readout of neurons P_i(t_i) + e_i Q_i(t_i), with t_i and e_i the linear forms of `units`."""

    units: Units
    series: Series  # coefficients of the P_i, (degree + 1, h), and of the Q_i, (degree, h)
    readout: Array | None = None  # (o, h); None leaves the neurons as outputs
    bias: Array | None = None  # (o,)
    activation: Activation | None = static(default=None)  # of the network, if known

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = (self.units, Units), (self.series, Series), (getattr(self.units, "gate", None), Gate | None)
        if not all(isinstance(part, kind) for part, kind in parts):
            kinds = ", ".join(type(part).__name__ for part, _ in parts)
            raise TypeError(f"units must be Units, series a Series, and units.gate a Gate or None, got {kinds}.")
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

    @property
    def degree(self) -> int:
        """Total degree; of a bounded polynomial within the bounds."""
        return self.series.degree

    @property
    def dim_out(self) -> int:
        """Number of outputs o."""
        return self.units.size if self.readout is None else int(self.readout.shape[0])

    @property
    def prototype(self) -> Array:
        """The directions, which have the library, dtype and device of the polynomial."""
        return self.units.directions

    # -- values and derivatives ---------------------------------------------------------------------------------------

    def neurons(self, y: Array, z: Array | None = None) -> Array:
        """Values (..., h) of the neurons, given their linear forms w.x and, for gated units, v.x."""
        return self.neuron_values(z is not None)(y, z)

    def neuron_values(self, gated: bool) -> Callable[[Array, Array | None], Array]:
        """The function `neurons`, with what does not depend on the points computed once."""
        plain = recurrence(self.series.at_no_factor(self.units))
        factor = recurrence(self.series.gated) if gated else None
        to_deviations = self.units.standardisation()

        def values(y: Array, z: Array | None = None) -> Array:
            t = to_deviations(y)
            return plain(t) if factor is None else add_product(plain(t), z, factor(t))

        return values

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

    def __call__(self, x: Array) -> Array:
        """Values (..., o) at points x (..., d)."""
        return self.read_out(self.neurons(*self.forms_at(x)))

    def forms_at(self, x: Array) -> tuple[Array, Array | None]:
        """Linear forms w.x and, for gated units, v.x, (..., h) each, at points x (..., d)."""
        x = check_points(x, self.dim_in, polynomial=self.prototype)
        x, directions = promote(x, self.units.directions)
        gate = None if self.series.gated is None else self.units.gate
        return x @ directions.T, None if gate is None else x @ promote(x, gate.directions)[1].T

    def read_out(self, hidden: Array) -> Array:
        """Readout (..., o) of hidden values (..., h), bias included."""
        if self.readout is not None:
            hidden, readout = promote(hidden, self.readout)
            hidden = hidden @ readout.T
        return hidden if self.bias is None else hidden + self.bias

    def gradient(self, x: Array) -> Array:
        """Jacobian (..., o, d) at points x (..., d); at a bound, that of the polynomial."""
        slopes, units = self.derivatives(*self.forms_at(x), second=False), self.units

        def spread(weights: Array, forms: Array) -> Array:
            """Sum over neurons of readout[o, i] weights[..., i] forms[i]: (..., o, d)."""
            if self.readout is None:
                return weights[..., :, None] * forms
            return (weights[..., None, :] * self.readout) @ promote(weights, forms)[1]

        total = spread(slopes.along * units.inverse_scales, units.directions)
        if slopes.factor is None or units.gate is None:
            return total
        return total + spread(slopes.factor, units.gate.directions)

    def hessian(self, x: Array) -> Array:
        """Second derivatives (..., o, d, d) at points x (..., d)."""
        return self._hessian(x, self.readout)

    def hessian_along(self, x: Array, directions: Array) -> Array:
        """Second derivatives (..., a, d, d) of the outputs along directions (..., a, o), at points x (..., d)."""
        if self.readout is not None:
            directions, readout = promote(directions, self.readout)
            directions = directions @ readout
        return self._hessian(x, directions)

    def _hessian(self, x: Array, readout: Array | None) -> Array:
        bends, units = self.derivatives(*self.forms_at(x)), self.units
        xp, inverse = namespace(bend=bends.bend), units.inverse_scales

        def sandwich(weights: Array, left: Array, right: Array) -> Array:
            """Sum over neurons of readout[o, i] weights[..., i] left[i] right[i]': (..., o, d, d)."""
            if readout is None:
                return weights[..., :, None, None] * left[:, :, None] * right[:, None, :]
            rows = [readout[..., i, :] for i in range(readout.shape[-2])]
            forms = [((row * weights)[..., None, :] * left.T) @ promote(weights, right)[1] for row in rows]
            return xp.stack(forms, axis=-3)

        total = sandwich(bends.bend * inverse * inverse, units.directions, units.directions)
        if bends.change is None or units.gate is None:
            return total
        cross = sandwich(bends.change * inverse, units.directions, units.gate.directions)
        return total + cross + xp.matrix_transpose(cross)

    # -- coefficients -------------------------------------------------------------------------------------------------

    def powers(self) -> tuple[list[Array], list[Array]]:
        """Each neuron as A_i(w_i.x) + (v_i.x) B_i(w_i.x): ascending coefficients, (h,) each; no B without a gate."""
        a, units, g = in_powers(self.series.plain), self.units, self.units.gate
        slope, offset = units.inverse_scales, -units.shifts * units.inverse_scales
        b: list[Array] = []
        if g is not None and self.series.gated is not None:
            q = in_powers(self.series.gated)
            # (v.x - shift - slope t) q(t): the part without v.x joins the first polynomial.
            a = [
                a[k] - (g.shifts * q[k] if k < len(q) else 0) - (g.slopes * q[k - 1] if k else 0) for k in range(len(a))
            ]
            b = _substitute(q, slope, offset)
        return _substitute(a, slope, offset), b

    def _tensor(self, k: int) -> Array:
        a, b = self.powers()
        W, gate, o, d = self.units.directions, self.units.gate, self.dim_out, self.dim_in
        xp = namespace(directions=W)
        if k == 0:
            return self.read_out(a[0])
        if W.shape[0] == 0:
            return constant(np.zeros((o, *[d] * k)), W)
        total = self._contract(a[k], [W] * k)
        if gate is not None and k - 1 < len(b):
            once = self._contract(b[k - 1], [gate.directions] + [W] * (k - 1))
            # Symmetrise: v takes each of the k positions with the same weight.
            for place in range(k):
                axes = (0, *range(2, place + 2), 1, *range(place + 2, k + 1))
                total = total + xp.permute_dims(once, axes) / k
        return total

    def _contract(self, weights: Array, forms: list[Array]) -> Array:
        """Sum over neurons of readout[o, i] weights[i] forms_1[i] x ... x forms_k[i], as one matrix product."""
        xp = namespace(weights=weights)
        h, d = self.units.directions.shape
        tail = None
        for form in forms[1:]:
            tail = form if tail is None else xp.reshape(tail[:, :, None] * form[:, None, :], (h, -1))
        tail, first = promote(weights[:, None] if tail is None else weights[:, None] * tail, forms[0])
        if self.readout is None:
            flat = first[:, :, None] * tail[:, None, :]
        else:
            (readout,) = promote(self.readout)
            flat = xp.stack([(first * readout[i, :][:, None]).T @ tail for i in range(self.dim_out)])
        return xp.reshape(flat, (self.dim_out, *[d] * len(forms)))

    def tensor_slices(self, k: int) -> Callable[[tuple[int, ...]], Array]:
        """Return a function of k - 2 indices to the slice (o, d, d) of the tensor of degree k, by o products."""
        a, b = self.powers()
        W, gate = self.units.directions, self.units.gate
        xp, V = namespace(directions=W), None if gate is None or k - 1 >= len(b) else gate.directions
        readout = eye(self.dim_out, W) if self.readout is None else self.readout

        def at(lead: tuple[int, ...]) -> Array:
            along = xp.ones_like(W[:, 0])
            for i in lead:
                along = along * W[:, i]
            slices = []
            for o in range(self.dim_out):
                total = (W * (readout[o, :] * a[k] * along)[:, None]).T @ W
                if V is not None:
                    # v takes each of the k positions with the same weight: one of the lead, or one of the last two.
                    gated = readout[o, :] * b[k - 1] / k
                    mixed = (V * (gated * along)[:, None]).T @ W
                    total = total + mixed + mixed.T
                    for place, i in enumerate(lead):
                        others = gated * V[:, i]
                        for j in lead[:place] + lead[place + 1 :]:
                            others = others * W[:, j]
                        total = total + (W * others[:, None]).T @ W
                slices.append(total)
            return xp.stack(slices)

        return at

    def tensor_numbers(self, k: int) -> int:
        """Number of entries of the tensor, and of the h rank-one terms of one order less that it is computed from."""
        return self.dim_out * self.dim_in**k + self.units.size * self.dim_in ** max(k - 1, 0)

    def quadratic_form(self, direction: Array) -> Callable[[Array], Array]:
        """Return a function that multiplies the quadratic coefficients along outputs (o,) with (d, m) (MATH 6)."""
        a, b = self.powers()
        neurons = direction if self.readout is None else direction @ self.readout
        W = self.units.directions
        square = (neurons * a[2])[:, None]
        if not b or self.units.gate is None:
            return lambda block: W.T @ (square * (W @ block))
        V = self.units.gate.directions
        mixed = (0.5 * neurons * b[1])[:, None]

        def apply(block: Array) -> Array:
            y, z = W @ block, V @ block
            return W.T @ (square * y + mixed * z) + V.T @ (mixed * y)

        return apply

    # -- truncation and arithmetic ------------------------------------------------------------------------------------

    def _truncated(self: P, degree: int) -> P:
        units = self.units if degree else replace(self.units, gate=None)
        return replace(self, units=units, series=self.series.truncate(degree), report=None)

    def _scaled(self: P, factor: Any) -> P:
        bias = None if self.bias is None else self.bias * factor
        if self.readout is not None:
            return replace(self, readout=self.readout * factor, bias=bias)
        # The neurons themselves are scaled, so that the activation no longer describes them.
        return replace(self, series=map_arrays(self.series, lambda a: a * factor), bias=bias, activation=None)

    def _shifted(self: P, by: Any) -> P:
        bias = constant(np.zeros(self.dim_out), self.prototype) if self.bias is None else self.bias
        return replace(self, bias=cast_like(bias + by, bias))

    def _mapped(self: P, matrix: Array) -> P:
        readout = matrix if self.readout is None else matrix @ self.readout
        return replace(self, readout=readout, bias=None if self.bias is None else matrix @ self.bias)

    def _precomposed(self: P, factors: Array, offset: Array) -> P:
        return replace(self, units=self.units.precomposed(factors, offset))

    def _plus(self: P, other: P) -> P:
        """Sum, with the neurons of both side by side."""
        xp = namespace(left=self.prototype, right=other.prototype)
        degree = max(self.degree, other.degree)
        gated = self.series.gated is not None or other.series.gated is not None
        one, two = (p.series.padded(degree, gated) for p in (self, other))
        readouts = [eye(p.dim_out, p.prototype) if p.readout is None else p.readout for p in (self, other)]
        biases = [p.bias for p in (self, other) if p.bias is not None]
        return replace(
            self,
            units=self.units.beside(other.units),
            series=one.beside(two),
            readout=xp.concat(readouts, axis=1),
            bias=sum(biases[1:], start=biases[0]) if biases else None,
            activation=None,
        )


def _substitute(powers: list[Array], slope: Array, offset: Array) -> list[Array]:
    """Coefficients in y of a polynomial in t = slope y + offset, by Horner's rule."""
    out = [powers[-1]]
    for c in reversed(powers[:-1]):
        higher = [(out[j] * offset if j < len(out) else 0) + out[j - 1] * slope for j in range(1, len(out) + 1)]
        out = [out[0] * offset + c, *higher]
    return out
