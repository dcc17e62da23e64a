"""The factored form: a sum of univariate polynomials of linear forms, never a d^n tensor (MATH 1, 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpoly.activations import Activation
from mlpoly.arrays import (
    Array,
    add_product,
    as_integer,
    cast_like,
    check_points,
    constant,
    eye,
    namespace,
    promote,
    widen,
)
from mlpoly.inputs import Gaussian
from mlpoly.polynomials.base import Polynomial
from mlpoly.polynomials.calculus import Derivatives, derivative, gradient, hessian
from mlpoly.polynomials.hermite_products import Ladder, project_ridge
from mlpoly.polynomials.powers import neuron_powers, ridge_slices, ridge_tensor
from mlpoly.polynomials.shapes import check_shapes, store_floats
from mlpoly.polynomials.source import Source
from mlpoly.records import map_arrays, record, replace, static
from mlpoly.special import clenshaw
from mlpoly.units import Gate, OutputSum, Series, Units, angles, energies, terms, terms_between

if TYPE_CHECKING:
    from mlpoly.polynomials.bounded import BoundedPolynomial


@record
class RidgePolynomial(Polynomial):
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

    @property
    def degree(self) -> int:
        """Total degree n."""
        return self.series.degree

    @property
    def dim_in(self) -> int:
        """Number of inputs d."""
        return int(self.units.directions.shape[1])

    @property
    def dim_out(self) -> int:
        """Number of outputs o."""
        return self.units.size if self.readout is None else int(self.readout.shape[0])

    @property
    def prototype(self) -> Array:
        """The directions, which have the library, dtype and device of the polynomial."""
        return self.units.directions

    def __repr__(self) -> str:
        gated = "" if self.series.gated is None else ", gated"
        return f"RidgePolynomial(degree={self.degree}, {self.dim_in} -> {self.dim_out}, {self.source}{gated})"

    # -- values and derivatives ---------------------------------------------------------------------------------------

    def __call__(self, x: Array) -> Array:
        """Values (..., o) at points x (..., d), by recurrences in the preactivations."""
        return self.read_out(self.neurons(*self.forms_at(x)))

    def forms_at(self, x: Array) -> tuple[Array, Array | None]:
        """Linear forms w.x and, for gated units, v.x, (..., h) each, at points x (..., d)."""
        x = check_points(x, self.dim_in, polynomial=self.prototype)
        x, directions = promote(x, self.units.directions)
        gate = None if self.series.gated is None else self.units.gate
        return x @ directions.T, None if gate is None else x @ promote(x, gate.directions)[1].T

    def neurons(self, y: Array, z: Array | None = None) -> Array:
        """Values (..., h) of the neurons, given their linear forms."""
        t = self.units.standardise(y)
        hidden = clenshaw(self.series.at_no_factor(self.units), t)
        return hidden if z is None else add_product(hidden, z, clenshaw(self.series.gated, t))

    def read_out(self, hidden: Array) -> Array:
        """Readout (..., o) of hidden values (..., h), bias included."""
        if self.readout is not None:
            hidden, readout = promote(hidden, self.readout)
            hidden = hidden @ readout.T
        return hidden if self.bias is None else hidden + self.bias

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

    def gradient(self, x: Array) -> Array:
        """Jacobian (..., o, d) at points x (..., d)."""
        return gradient(self, x)

    def hessian(self, x: Array) -> Array:
        """Second derivatives (..., o, d, d) at points x (..., d)."""
        return hessian(self, x)

    def hessian_along(self, x: Array, directions: Array) -> Array:
        """Second derivatives (..., a, d, d) of the outputs along directions (..., a, o), at points x (..., d)."""
        return hessian(self, x, directions)

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

    def rebase(self, inputs: Gaussian) -> RidgePolynomial:
        """The same polynomial with t_i standard normal under `inputs`, in float64 where the library has it."""
        wide = map_arrays(replace(self, inputs=None), widen)
        units = Units.under(wide.units, inputs, spreads=True)
        return replace(wide, units=units, series=wide.series.rebase(wide.units, units))

    def in_products(self, center: Array, back: Array, own: Ladder) -> Array:
        """Coefficients (t, o) in the Hermite products of w (q,) of the polynomial at x = center + back w."""
        return project_ridge(self.rebase(Gaussian.unchecked(widen(center), back @ back.T)), back, own)

    def powers(self) -> tuple[list[Array], list[Array]]:
        """Each neuron's polynomial as A_i(w_i.x) + (v_i.x) B_i(w_i.x): ascending coefficients, (h,) each."""
        return neuron_powers(self)

    def tensor(self, k: int) -> Array:
        """Symmetric coefficients (o, d, ..., d) of the monomials of degree k."""
        return ridge_tensor(self, k)

    def tensor_slices(self, k: int) -> Callable[[tuple[int, ...]], Array]:
        """Return a function of k - 2 input indices to the slice (o, d, d) of the tensor of degree k there."""
        return ridge_slices(self, k)

    def tensor_numbers(self, k: int) -> int:
        """Number of entries of the tensor, and of the h rank-one terms of one order less that it is computed from."""
        return self.dim_out * self.dim_in**k + self.units.size * self.dim_in ** max(k - 1, 0)

    def quadratic_form(self, direction: Array) -> Callable[[Array], Array]:
        """Return a function that multiplies the quadratic coefficients along an output direction (o,) with (d, m).

        They are W' diag(.) W, plus the symmetrised W' diag(.) V of a gate (MATH 6).
        """
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

    # -- second moments -----------------------------------------------------------------------------------------------

    def mean(self) -> Array:
        """E[p] (o,) under the Gaussian of the `units`."""
        return self.read_out(self.series.plain[0, :])

    def variance(self, inputs: Gaussian) -> Array:
        """Variance (o,) of each output under `inputs`, which `units` must belong to: a sum over degrees (MATH 5)."""
        xp = namespace(series=self.series.plain)
        if self.readout is None:
            return xp.sum(energies(self.series, self.units)[1:, ...], axis=0)
        total = OutputSum(self.readout, full=False)
        for rows, columns, inner in angles(self.units, inputs):
            left, right = self.series.rows(rows), self.series.columns(columns)
            total.add(rows, columns, terms_between(left, right, inner, 0, self.degree))
        return total.value

    def energies(self, inputs: Gaussian) -> Array:
        """E[p_k^2] (n + 1, o) of the part of each degree k = 0, ..., n in the Hermite basis of a Gaussian."""
        p = self.rebase(inputs)
        xp = namespace(series=p.series.plain)
        rows = [p.mean() ** 2]
        if p.readout is None:
            return xp.concat([rows[0][None, :], energies(p.series, p.units)[1:, ...]])
        totals = [OutputSum(p.readout, full=False) for _ in range(p.degree)]
        for rows_, columns, inner in angles(p.units, inputs):
            left, right = p.series.rows(rows_), p.series.columns(columns)
            for total, term in zip(totals, terms(left, right, inner, p.degree), strict=True):
                total.add(rows_, columns, term)
        return xp.stack([*rows, *(total.value for total in totals)])

    def gap(self, best: RidgePolynomial, inputs: Gaussian) -> tuple[Array, Array]:
        """Mean and variance (o,) of best - self under a Gaussian, with `best` in its Hermite basis."""
        mine = self.rebase(inputs)
        same = [(best.readout, mine.readout), (best.units.directions, mine.units.directions)]
        if best.units.gate is not None and mine.units.gate is not None:
            same.append((best.units.gate.directions, mine.units.gate.directions))
        if all(
            a is b or (a is not None and b is not None and a.shape == b.shape and bool((a == b).all())) for a, b in same
        ):
            # Unit by unit: common parts cancel before they are squared.
            degree = max(best.degree, mine.degree)
            gated = best.series.gated is not None or mine.series.gated is not None
            one, two = best.series.padded(degree, gated), mine.series.padded(degree, gated)
            second = None if one.gated is None else one.gated - two.gated
            units = best.units if best.units.gate is not None else mine.units
            b, c = best.bias, mine.bias
            bias = b if c is None else -c if b is None else b - c
            apart = RidgePolynomial(units, Series(one.plain - two.plain, second), best.readout, bias)
        else:
            apart = best._plus(mine._scaled(-1.0))
        return apart.mean(), apart.variance(inputs)

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
        parts = (self, other)

        def joined(arrays: list[Array | None], axis: int = 0) -> Array | None:
            """Concatenate; if only one of the two exists, the other is zero."""
            if all(a is None for a in arrays):
                return None
            whole = [p.units.shifts * 0 if a is None else a for a, p in zip(arrays, parts, strict=True)]
            return xp.concat(whole, axis=axis)

        units, gates = [p.units for p in parts], []
        for u in units:  # units without a second factor get one of zeros
            flat = u.shifts * 0
            gates.append(Gate(u.directions * 0, flat, flat, None, flat) if u.gate is None else u.gate)
        series = [p.series.padded(degree, gated) for p in parts]
        readouts = [eye(p.dim_out, p.prototype) if p.readout is None else p.readout for p in parts]
        biases = [p.bias for p in parts if p.bias is not None]

        def joined_fields(records: list[Any], names: str) -> dict[str, Any]:
            return {name: joined([getattr(r, name) for r in records]) for name in names.split()}

        gate = Gate(**joined_fields(gates, "directions shifts slopes bias spreads")) if gated else None
        return RidgePolynomial(
            Units(**joined_fields(units, "directions shifts scales bias"), gate=gate),
            Series(joined([a.plain for a in series], 1), joined([a.gated for a in series], 1)),
            readout=joined(readouts, 1),
            bias=sum(biases[1:], start=biases[0]) if biases else None,
        )


def zero_polynomial(like: Polynomial, inputs: Gaussian) -> RidgePolynomial:
    """Zero as a ridge polynomial with the sizes and the degree of another, in the Hermite basis of a Gaussian."""
    one = widen(like.prototype[:1, ...] if len(like.prototype.shape) > 1 else like.prototype[None, :]) * 0
    units = Units.under(Units(one, one[:, 0], one[:, 0]), inputs)
    series = constant(np.zeros((like.degree + 1, 1)), one)
    return RidgePolynomial(units, Series(series), constant(np.zeros((like.dim_out, 1)), one))
