"""The native result: a sum of univariate polynomials of linear forms, never a d^n tensor (MATH 1, 2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from mlpoly.arrays import Array, add_product, as_integer, constant, eye, namespace, promote, safe_inverse, widen
from mlpoly.inputs import Gaussian
from mlpoly.polynomials.base import Polynomial, check_points, map_polynomial
from mlpoly.polynomials.calculus import gradient, hessian
from mlpoly.polynomials.hermite_products import Ladder, project_ridge
from mlpoly.polynomials.powers import neuron_powers, ridge_tensor
from mlpoly.polynomials.source import Source
from mlpoly.polynomials.tails import Tails
from mlpoly.records import record, replace, static
from mlpoly.special import clenshaw, hermite, times_line

__all__ = ["Gate", "RidgePolynomial", "check_bound"]


@record
class Gate:
    """The second factor of a gated unit: e_i sum_k series[k, i] he_k(t_i), with e_i uncorrelated with t_i (MATH 2).

    Attributes
    ----------
    directions : array (h, d)
        The linear forms v_i.
    shifts : array (h,)
        Their values at the centre: e_i = v_i.x - shifts_i - slopes_i t_i.
    slopes : array (h,)
        Regression of v_i.x on t_i.
    series : array (n, h)
        Orthonormal Hermite coefficients, ascending.
    """

    directions: Array
    shifts: Array
    slopes: Array
    series: Array


@record
class RidgePolynomial(Polynomial):
    """p(x) = readout [P_i(t_i) + e_i Q_i(t_i)]_i + bias, with t_i = (w_i.x - shift_i) / scale_i.

    P_i and Q_i are series in orthonormal Hermite polynomials, so `truncate` of an optimal polynomial is optimal.
    Everything is of the size of the network's own weights, at any degree.

    Attributes
    ----------
    directions : array (h, d)
        The linear forms w_i.
    shifts, scales : array (h,)
        Centre and spread of w_i.x; a scale of zero marks a neuron that is constant (t_i = 0).
    series : array (degree + 1, h)
        Orthonormal Hermite coefficients of P_i, ascending.
    readout : array (o, h) or None
        None leaves the neurons as outputs.
    bias : array (o,) or None
    gate : Gate or None
        Second factor, for gated units.
    tails : Tails or None
        How the neurons go on beyond a bound; of no account without one.
    inputs : Gaussian or None
        What the polynomial was fitted under, if known.
    source : Source
        Where it comes from: activation, method, fingerprint of the inputs.
    report : FinetuneReport or None
        How a fine-tuning went.
    """

    directions: Array
    shifts: Array
    scales: Array
    series: Array
    readout: Array | None = None
    bias: Array | None = None
    gate: Gate | None = None
    tails: Tails | None = None
    inputs: Any = None
    source: Source = static(default=Source())
    report: Any = static(default=None)

    shapes: ClassVar[dict[str, str]] = {
        "directions": "h d",
        "shifts": "h",
        "scales": "h",
        "series": "m h",
        "readout?": "o h",
        "bias?": "o",
        "gate?.directions": "h d",
        "gate?.shifts": "h",
        "gate?.slopes": "h",
        "gate?.series": "n h",
        "tails?.slopes": "2 h",
        "tails?.gate?": "2 h",
    }
    needs: ClassVar[dict[str, str]] = {"tails.gate": "gate.series"}

    @property
    def degree(self) -> int:
        """Total degree n."""
        return int(self.series.shape[0]) - 1

    @property
    def dim_in(self) -> int:
        """Number of inputs d."""
        return int(self.directions.shape[1])

    @property
    def dim_out(self) -> int:
        """Number of outputs o."""
        return int(self.directions.shape[0] if self.readout is None else self.readout.shape[0])

    def __repr__(self) -> str:
        gated = "" if self.gate is None else ", gated"
        return f"RidgePolynomial(degree={self.degree}, {self.dim_in} -> {self.dim_out}, {self.source}{gated})"

    def __call__(self, x: Array, bound: float | None = None) -> Array:
        """Values (..., o) at points x (..., d), by recurrences in the preactivations.

        With a `bound`, t_i is first held within +-bound, that many standard deviations of w_i.x, and `tails`, if there
        are any, add straight lines for what lies beyond: far from the inputs of the fit the value then does not
        explode. The result is a piecewise polynomial of x. The second factor v_i.x of a gated unit is not held: the
        unit is linear in it.
        """
        return self.read_out(self.neurons(*self.forms_at(x), bound))

    def forms_at(self, x: Array) -> tuple[Array, Array | None]:
        """Linear forms w.x and, for gated units, v.x, (..., h) each, at points x (..., d)."""
        x = check_points(x, self.directions, self.dim_in)
        return _product(x, self.directions), None if self.gate is None else _product(x, self.gate.directions)

    def neurons(self, y: Array, z: Array | None = None, bound: float | None = None) -> Array:
        """Values (..., h) of the neurons, given their linear forms."""
        bound = None if bound is None else check_bound(bound)
        t = self._standard(y)
        held = t if bound is None else namespace(t=t).clip(t, -bound, bound)
        gate = self.gate
        hidden = clenshaw(self.series if gate is None else self._series_at_no_factor(gate), held)
        factor = None if gate is None else clenshaw(gate.series, held)
        if bound is not None and self.tails is not None:
            self.tails.check(bound)
            hidden, factor = self._with_lines(self.tails, hidden, factor, t - held, held)
        return hidden if gate is None else add_product(hidden, z, factor)

    def _with_lines(
        self, tails: Tails, hidden: Array, factor: Array | None, excess: Array, held: Array
    ) -> tuple[Array, Array | None]:
        """What is left of a neuron where v_i.x = 0, and Q_i, with the lines that they go on along beyond the bound."""
        hidden = hidden + tails.value(excess)
        if factor is None or self.gate is None:
            return hidden, None
        line = tails.gate_value(excess)
        hidden = add_product(hidden, line, add_product(self.gate.shifts, self.gate.slopes, held), -1.0)
        return hidden, factor + line

    def _series_at_no_factor(self, gate: Gate) -> Array:
        """Series of P_i - (shift_i + slope_i t) Q_i, what is left of a neuron where v_i.x = 0.

        With it a neuron is that plus v_i.x Q_i, and e_i never fills an array of the size of all neurons.
        """
        series, factor, shifts, slopes = promote(self.series, gate.series, gate.shifts, gate.slopes)
        rows = max(self.degree, int(factor.shape[0])) + 1
        product = times_line(_padded(factor, rows + 1), shifts, slopes)  # it drops the top row
        return _padded(series, rows) - product

    def _standard(self, forms: Array) -> Array:
        inverse = self.inverse_scales
        return add_product(-self.shifts * inverse, forms, inverse)

    # -- the pieces of an evaluation, shared with calculus.py ---------------------------------------------------------

    @property
    def inverse_scales(self) -> Array:
        """1 / scales, and 0 for constant neurons."""
        xp = namespace(scales=self.scales)
        (scales,) = promote(self.scales)
        moving = scales > 0
        return xp.where(moving, 1 / xp.where(moving, scales, 1.0), 0.0)

    def standardise(self, x: Array) -> Array:
        """Standardised preactivations t (..., h)."""
        return self._standard(_product(x, self.directions))

    def gate_residual(self, x: Array, t: Array) -> Array:
        """The part e (..., h) of the second factor that t does not explain."""
        if self.gate is None:
            return t * 0
        return add_product(_product(x, self.gate.directions) - self.gate.shifts, self.gate.slopes, t, -1.0)

    def read_out(self, hidden: Array) -> Array:
        """Readout (..., o) of hidden values (..., h), bias included."""
        if self.readout is not None:
            hidden, readout = promote(hidden, self.readout)
            hidden = hidden @ readout.T
        return hidden if self.bias is None else hidden + self.bias

    # -- other forms --------------------------------------------------------------------------------------------------

    def truncate(self, degree: int) -> RidgePolynomial:
        """Drop everything above `degree`; the truncation of an optimal polynomial is the optimum of that degree."""
        degree = as_integer("degree", degree, 0)
        if degree >= self.degree:
            return self
        gate, tails = self.gate, self.tails
        if gate is not None:
            gate = None if degree == 0 else replace(gate, series=gate.series[:degree, ...])
        if tails is not None and degree < 2:  # a line is of degree 1, and times e of degree 2
            tails = None if degree == 0 else replace(tails, gate=None)
        return replace(self, series=self.series[: degree + 1, ...], gate=gate, tails=tails, report=None)

    def gradient(self, x: Array) -> Array:
        """Jacobian (..., o, d) at points x (..., d)."""
        return gradient(self, check_points(x, self.directions, self.dim_in))

    def hessian(self, x: Array) -> Array:
        """Second derivatives (..., o, d, d) at points x (..., d)."""
        return hessian(self, check_points(x, self.directions, self.dim_in))

    def powers(self) -> tuple[list[Array], list[Array]]:
        """Each neuron's polynomial as A_i(w_i.x) + (v_i.x) B_i(w_i.x): ascending coefficients, (h,) each."""
        return neuron_powers(self)

    def tensor(self, k: int) -> Array:
        """Symmetric coefficients (o, d, ..., d) of the monomials of degree k."""
        return ridge_tensor(self, k)

    def tensor_numbers(self, k: int) -> int:
        """The result, and the h rank-one terms of one order less that it is made from."""
        return self.dim_out * self.dim_in**k + int(self.directions.shape[0]) * self.dim_in ** max(k - 1, 0)

    def quadratic_form(self, direction: Array) -> Callable[[Array], Array]:
        """Product of Q_u = W' diag(.) W, plus the symmetrised W' diag(.) V of a gate, with a block (d, m) (MATH 6)."""
        a, b = self.powers()
        neurons = direction if self.readout is None else direction @ self.readout
        W = self.directions
        square = (neurons * a[2])[:, None]
        if self.gate is None:
            return lambda block: W.T @ (square * (W @ block))
        V = self.gate.directions
        mixed = (0.5 * neurons * b[1])[:, None]

        def apply(block: Array) -> Array:
            y, z = W @ block, V @ block
            return W.T @ (square * y + mixed * z) + V.T @ (mixed * y)

        return apply

    @property
    def prototype(self) -> Array:
        """The directions, to tell library, dtype and device."""
        return self.directions

    def in_products(self, center: Array, back: Array, own: Ladder) -> Array:
        """Coefficients (t, o) in the Hermite products of w (q,), of the polynomial at x = center + back w."""
        return project_ridge(self.rebase(Gaussian._trusted(widen(center), back @ back.T)), back, own)

    def rebase(self, inputs: Gaussian) -> RidgePolynomial:
        """The same polynomial with t_i standard normal under `inputs`, in float64 where the library has it."""
        p = map_polynomial(replace(self, tails=None), widen)
        xp, mean = namespace(directions=p.directions), widen(inputs.mean)
        spread = inputs.times_covariance(p.directions)
        variance = xp.vecdot(spread, p.directions)
        scales = xp.where(variance > 0, xp.sqrt(xp.where(variance > 0, variance, 1.0)), 0.0)
        shifts, inverse = p.directions @ mean, safe_inverse(scales)
        nodes, weights = np.polynomial.hermite_e.hermegauss(p.degree + 1)
        tau = constant(nodes[:, None], scales)
        t = (shifts + scales * tau - p.shifts) * p.inverse_scales
        values, gate = clenshaw(p.series[:, None, :], t), None
        table = np.stack(list(hermite(nodes, p.degree))) * weights / weights.sum()
        if p.gate is not None:
            factor, slopes = clenshaw(p.gate.series[:, None, :], t), xp.vecdot(spread, p.gate.directions) * inverse
            level = p.gate.directions @ mean
            values = values + (level + slopes * tau - p.gate.shifts - p.gate.slopes * t) * factor
            gate = Gate(p.gate.directions, level, slopes, constant(table[: max(p.degree, 1)], scales) @ factor)
        series = constant(table, scales) @ values
        return replace(p, shifts=shifts, scales=scales, series=series, gate=gate, inputs=None)

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def _scaled(self, factor: Any) -> RidgePolynomial:
        bias = None if self.bias is None else self.bias * factor
        if self.readout is not None:
            return replace(self, readout=self.readout * factor, bias=bias)
        gate = None if self.gate is None else replace(self.gate, series=self.gate.series * factor)
        tails = None if self.tails is None else self.tails.scaled(factor)
        return replace(self, series=self.series * factor, bias=bias, gate=gate, tails=tails)

    def _shifted(self, by: Array) -> RidgePolynomial:
        return replace(self, bias=by if self.bias is None else self.bias + by)

    def _mapped(self, matrix: Array) -> RidgePolynomial:
        readout = matrix if self.readout is None else matrix @ self.readout
        return replace(self, readout=readout, bias=None if self.bias is None else matrix @ self.bias)

    def _plus(self, other: RidgePolynomial) -> RidgePolynomial:
        """Neurons side by side."""
        xp = namespace(left=self.directions, right=other.directions)
        degree, parts = max(self.degree, other.degree), (self, other)
        gated = any(p.gate is not None for p in parts)
        biases = [p.bias for p in parts if p.bias is not None]
        return RidgePolynomial(
            directions=xp.concat([p.directions for p in parts]),
            shifts=xp.concat([p.shifts for p in parts]),
            scales=xp.concat([p.scales for p in parts]),
            series=xp.concat([_padded(p.series, degree + 1) for p in parts], axis=1),
            readout=xp.concat([_explicit_readout(p) for p in parts], axis=1),
            bias=sum(biases[1:], start=biases[0]) if biases else None,
            gate=_joined_gate(parts, degree) if gated else None,
            tails=_joined_tails(parts) if any(p.tails is not None for p in parts) else None,
        )


def _product(x: Array, directions: Array) -> Array:
    x, directions = promote(x, directions)
    return x @ directions.T


def check_bound(bound: Any) -> float:
    """A positive number of standard deviations."""
    if isinstance(bound, bool) or not isinstance(bound, Real) or not 0 < float(bound) < math.inf:
        raise ValueError(f"bound must be a positive number of standard deviations, such as 4.0, got {bound!r}.")
    return float(bound)


def _padded(series: Array, rows: int) -> Array:
    """Add rows of zeros up to `rows`."""
    missing = rows - series.shape[0]
    return series if missing == 0 else namespace(series=series).concat([series, *[series[:1, ...] * 0] * missing])


def _explicit_readout(p: RidgePolynomial) -> Array:
    if p.readout is not None:
        return p.readout
    return eye(p.dim_out, p.directions)


def _joined_gate(parts: tuple[RidgePolynomial, RidgePolynomial], degree: int) -> Gate:
    """Gates side by side; a polynomial without one gets a gate of zeros."""
    xp = namespace(left=parts[0].directions)
    gates = [
        p.gate
        if p.gate is not None
        else Gate(p.directions * 0, p.shifts * 0, p.shifts * 0, _padded(p.series[:1, ...] * 0, max(degree, 1)))
        for p in parts
    ]
    return Gate(
        directions=xp.concat([g.directions for g in gates]),
        shifts=xp.concat([g.shifts for g in gates]),
        slopes=xp.concat([g.slopes for g in gates]),
        series=xp.concat([_padded(g.series, max(degree, 1)) for g in gates], axis=1),
    )


def _joined_tails(parts: tuple[RidgePolynomial, RidgePolynomial]) -> Tails:
    """Tails side by side; a polynomial without them is held at the bound, as by slopes of zero."""
    xp = namespace(left=parts[0].directions)
    zeros = [xp.stack([p.shifts * 0, p.shifts * 0]) for p in parts]
    bounds = {p.tails.bound for p in parts if p.tails is not None}
    if len(bounds) > 1:
        raise ValueError(
            f"the lines of the two polynomials begin at different bounds, {sorted(bounds)}; make them anew at one "
            f"bound with mlpoly.fitting.tails.with_tails."
        )
    tails = [p.tails if p.tails is not None else Tails(z) for p, z in zip(parts, zeros, strict=True)]
    gates = [z if t.gate is None else t.gate for t, z in zip(tails, zeros, strict=True)]
    gated = any(t.gate is not None for t in tails)
    slopes = xp.concat([t.slopes for t in tails], axis=1)
    return Tails(slopes, xp.concat(gates, axis=1) if gated else None, bounds.pop())
