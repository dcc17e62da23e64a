"""What polynomials made of neurons have in common: values, derivatives and coefficients, from those of the neurons."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mlpoly.arrays import Array, check_points, constant, eye, namespace, promote
from mlpoly.polynomials.base import Polynomial
from mlpoly.records import record
from mlpoly.special import in_powers
from mlpoly.units import Series, Units


@record
class Derivatives:
    """Derivatives of neurons N_i(t_i, z_i) with z_i = v_i.x, (..., h) each.

    Attributes
    ----------
    along, bend : array
        First and second derivative in t_i; `bend` is None if only the first was requested.
    factor : array or None
        Derivative in z_i, for gated units.
    change : array or None
        Derivative of `factor` in t_i.
    """

    along: Array
    bend: Array
    factor: Array | None = None
    change: Array | None = None


def derivative(series: Array) -> Array:
    """Hermite series of the derivative: he_k' = sqrt(k) he_{k-1}."""
    n = series.shape[0] - 1
    if n == 0:
        return series * 0
    return series[1:, ...] * constant([[math.sqrt(k)] for k in range(1, n + 1)], series)


class NeuronPolynomial(Polynomial):
    """A readout of neurons, each a function of w_i.x and, for gated units, linear in v_i.x.

    Subclasses have the fields or properties below, and say what a neuron is: `neurons` and `derivatives`. Coefficients
    are those of P_i(t_i) + e_i Q_i(t_i), with the series of P_i and Q_i.
    """

    if TYPE_CHECKING:  # no attributes at run time, where they would be taken for defaults of the fields

        @property
        def units(self) -> Units:
            """The linear forms of the neurons."""

        @property
        def series(self) -> Series:
            """Coefficients of the P_i and the Q_i."""

        @property
        def readout(self) -> Array | None:
            """Weights (o, h) from neurons to outputs; None leaves the neurons as outputs."""

        @property
        def bias(self) -> Array | None:
            """Bias (o,) of the outputs."""

    @abstractmethod
    def neurons(self, y: Array, z: Array | None = None) -> Array:
        """Values (..., h) of the neurons, given their linear forms w.x and, for gated units, v.x."""

    @abstractmethod
    def derivatives(self, y: Array, z: Array | None, second: bool = True) -> Derivatives:
        """First and, on request, second derivatives of the neurons, given their linear forms."""

    @property
    def degree(self) -> int:
        """Total degree; of a bounded polynomial within the bounds."""
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

    # -- values and derivatives ---------------------------------------------------------------------------------------

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
            return (weights[..., None, :] * self.readout) @ forms

        total = spread(slopes.along * units.inverse_scales, units.directions)
        if slopes.factor is None or units.gate is None:
            return total
        return total + spread(slopes.factor, units.gate.directions)

    def hessian(self, x: Array) -> Array:
        """Second derivatives (..., o, d, d) at points x (..., d)."""
        return self._hessian(x, self.readout)

    def hessian_along(self, x: Array, directions: Array) -> Array:
        """Second derivatives (..., a, d, d) of the outputs along directions (..., a, o), at points x (..., d)."""
        return self._hessian(x, directions if self.readout is None else directions @ self.readout)

    def _hessian(self, x: Array, readout: Array | None) -> Array:
        bends, units = self.derivatives(*self.forms_at(x)), self.units
        xp, inverse = namespace(bend=bends.bend), units.inverse_scales

        def sandwich(weights: Array, left: Array, right: Array) -> Array:
            """Sum over neurons of readout[o, i] weights[..., i] left[i] right[i]': (..., o, d, d)."""
            if readout is None:
                return weights[..., :, None, None] * left[:, :, None] * right[:, None, :]
            rows = [readout[..., i, :] for i in range(readout.shape[-2])]
            forms = [((row * weights)[..., None, :] * left.T) @ right for row in rows]
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

    def tensor(self, k: int) -> Array:
        """Symmetric coefficients (o, d, ..., d) of the monomials of degree k; of a bounded one within the bounds."""
        a, b = self.powers()
        W, gate, o, d = self.units.directions, self.units.gate, self.dim_out, self.dim_in
        xp = namespace(directions=W)
        if k == 0:
            return self.read_out(a[0])
        if k > self.degree or W.shape[0] == 0:
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
        """Return a function of k - 2 input indices to the slice (o, d, d) of the tensor of degree k >= 2 there.

        One slice is o matrix products; the tensor itself, of d^k numbers, is never made.
        """
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


def _substitute(powers: list[Array], slope: Array, offset: Array) -> list[Array]:
    """Coefficients in y of a polynomial in t = slope y + offset, by Horner's rule."""
    out = [powers[-1]]
    for c in reversed(powers[:-1]):
        higher = [(out[j] * offset if j < len(out) else 0) + out[j - 1] * slope for j in range(1, len(out) + 1)]
        out = [out[0] * offset + c, *higher]
    return out
