"""Polynomials of degree up to two with explicit matrices, for optima that have no factored form (MATH 4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlpoly.arrays import Array, as_integer, cast_like, check_points, constant, namespace, promote, take_rows, widen
from mlpoly.inputs import Gaussian
from mlpoly.polynomials.base import Polynomial, map_polynomial
from mlpoly.polynomials.hermite_products import Ladder
from mlpoly.polynomials.ridge import RidgePolynomial
from mlpoly.polynomials.shapes import check_shapes, store_floats
from mlpoly.polynomials.source import Source
from mlpoly.records import map_arrays, record, replace, static


@record
class DensePolynomial(Polynomial):
    """p(x) = constant + linear u + u' quadratic u, with u = x - center, or r linear forms u = directions (x - center).

    Attributes
    ----------
    center : array (d,)
        Point that the coefficients are taken around; near the mean of the inputs they are well scaled.
    constant : array (o,)
    linear : array (o, d) or None
        Coefficients of u, (o, r) with `directions`.
    quadratic : array (o, d, d) or None
        Symmetric in the last two axes; (o, r, r) with `directions`.
    directions : array (r, d) or None
        Linear forms of x - center that the polynomial depends on; None for all inputs.
    inputs, report, source
        As in any `Polynomial`.

    Examples
    --------
    >>> import numpy as np
    >>> from mlpoly.polynomials import DensePolynomial
    >>> poly = DensePolynomial(np.zeros(2), np.array([1.0]), linear=np.array([[2.0, 3.0]]))  # 1 + 2 x0 + 3 x1
    >>> poly.degree, poly(np.array([[1.0, 1.0]])).tolist()
    (1, [[6.0]])
    """

    center: Array
    constant: Array
    linear: Array | None = None
    quadratic: Array | None = None
    directions: Array | None = None
    inputs: Any = None
    report: Any = static(default=None)
    source: Source = static(default=Source())

    def __post_init__(self) -> None:
        super().__post_init__()
        store_floats(self, "center", "constant", "linear", "quadratic", "directions")
        sizes: dict[str, int] = {}
        r = "d" if self.directions is None else "r"
        check_shapes(self, sizes, center="d", constant="o", directions="r d", linear=f"o {r}", quadratic=f"o {r} {r}")

    @property
    def degree(self) -> int:
        """Total degree."""
        return 2 if self.quadratic is not None else 1 if self.linear is not None else 0

    @property
    def dim_in(self) -> int:
        """Number of inputs d."""
        return int(self.center.shape[0])

    @property
    def dim_out(self) -> int:
        """Number of outputs o."""
        return int(self.constant.shape[0])

    @property
    def prototype(self) -> Array:
        """The centre."""
        return self.center

    def __repr__(self) -> str:
        return f"DensePolynomial(degree={self.degree}, {self.dim_in} -> {self.dim_out}, {self.source})"

    def __call__(self, x: Array) -> Array:
        """Values (..., o) at points x (..., d)."""
        xp = namespace(polynomial=self.center)
        u, constant_term = promote(self._forms(x), self.constant)
        value = u[..., :1] * 0 + constant_term
        if self.linear is not None:
            value = value + u @ promote(u, self.linear)[1].T
        if self.quadratic is not None:
            bends = [xp.vecdot(u @ promote(u, self.quadratic[i, ...])[1], u) for i in range(self.dim_out)]
            value = value + xp.stack(bends, axis=-1)
        return value

    def _forms(self, x: Array) -> Array:
        """The u (..., d), or (..., r) with directions, at points x (..., d)."""
        u = check_points(x, self.dim_in, polynomial=self.center) - self.center
        if self.directions is None:
            return u
        u, directions = promote(u, self.directions)
        return u @ directions.T

    def expanded(self) -> DensePolynomial:
        """The same polynomial with coefficients of all inputs instead of some linear forms of them."""
        F = self.directions
        if F is None:
            return self
        linear = None if self.linear is None else self.linear @ F
        quadratic = None if self.quadratic is None else F.T @ self.quadratic @ F
        return replace(self, linear=linear, quadratic=quadratic, directions=None)

    def truncate(self, degree: int) -> DensePolynomial:
        """Drop the terms above `degree` around the centre. Under a mixture this is NOT the optimum of that degree."""
        degree = as_integer("degree", degree, 0)
        if degree >= self.degree:
            return self
        linear, directions = (self.linear, self.directions) if degree else (None, None)
        source = Source(self.source.activation)
        return replace(self, linear=linear, quadratic=None, directions=directions, report=None, source=source)

    def gradient(self, x: Array) -> Array:
        """Jacobian (..., o, d) at points x (..., d)."""
        xp, u = namespace(polynomial=self.center), self._forms(x)
        total = u[..., None, :] * 0 + self.constant[:, None] * 0
        if self.linear is not None:
            total = total + self.linear
        if self.quadratic is not None:
            bends = [u @ promote(u, self.quadratic[i, ...])[1] for i in range(self.dim_out)]
            total = total + 2 * xp.stack(bends, axis=-2)
        return total if self.directions is None else total @ promote(total, self.directions)[1]

    def hessian(self, x: Array) -> Array:
        """Second derivatives (..., o, d, d) at points x (..., d): the same at all points."""
        x = check_points(x, self.dim_in, polynomial=self.center)
        shape = (*x.shape[:-1], self.dim_out, self.dim_in, self.dim_in)
        return namespace(x=x).broadcast_to(self.tensor(2) * 2, shape) + 0

    def tensor(self, k: int) -> Array:
        """Symmetric coefficients (o, d, ..., d) of the monomials of degree k at x = 0."""
        if k == 0:
            return self(self.center * 0)
        if k == 1 and self.degree >= 1:
            return self.gradient(self.center * 0)
        if k == 2 and self.quadratic is not None:
            return self.expanded().quadratic
        xp = namespace(polynomial=self.center)
        zero = xp.reshape(self.center[:1] * 0, (1,) * (k + 1))
        return xp.broadcast_to(zero, (self.dim_out, *[self.dim_in] * k)) + 0

    def quadratic_form(self, direction: Array) -> Callable[[Array], Array]:
        """Return a function that multiplies the quadratic coefficients along an output direction (o,) with (d, m)."""
        xp, F = namespace(polynomial=self.center), self.directions
        if F is None or self.quadratic is None:
            form = xp.tensordot(direction, self.tensor(2), axes=1)
            return lambda block: form @ block
        inner = xp.tensordot(direction, self.quadratic, axes=1)
        return lambda block: F.T @ (inner @ (F @ block))

    # -- second moments -----------------------------------------------------------------------------------------------

    def gap(self, best: RidgePolynomial, inputs: Gaussian) -> tuple[Array, Array]:
        """Mean and variance (o,) of best - self under a Gaussian, with `best` in its Hermite basis.

        Around the mean the difference is a + b.u + u'Cu; its linear and quadratic Hermite parts have the variances
        b'Sb and 2 tr(CSCS): two d x d products per output (MATH 4).
        """
        xp = namespace(center=self.center)
        b, p = map_arrays((replace(best, inputs=None), replace(self.expanded(), inputs=None)), widen)
        cov = None if inputs.cov is None else widen(inputs.cov)
        u = widen(inputs.mean) - p.center
        level = p.constant if p.linear is None else p.constant + p.linear @ u
        first = b.series.plain[0, :]
        means, variances = [], []
        for o in range(self.dim_out):
            # Weights of the units in this output; without a readout, output o is unit o.
            row = constant(np.arange(len(first)) == o, first) if b.readout is None else b.readout[o, :]
            mean, variance = level[o], level[o] * 0
            slope = u * 0 if p.linear is None else p.linear[o, :]
            if p.quadratic is not None:
                form = p.quadratic[o, ...]
                diagonal = cov is None or len(cov.shape) == 1
                trace = xp.linalg.diagonal(form) * (1.0 if cov is None else cov) if diagonal else form * cov
                mean = mean + u @ form @ u + xp.sum(trace)
                slope = slope + 2 * (form @ u)
                product = inputs.times_covariance(_quadratic_part(b, row) - form)
                variance = 2 * xp.sum(product * product.T)
            if p.linear is not None:
                apart = _linear_part(b, row) - slope
                variance = variance + xp.sum(apart * inputs.times_covariance(apart[None, :])[0, :])
            means.append(mean)
            variances.append(variance)
        return b.mean() - xp.stack(means), xp.stack(variances)

    def energies(self, inputs: Gaussian) -> Array:
        """E[p_k^2] (n + 1, o) of the part of each degree k = 0, ..., n in the Hermite basis of a Gaussian."""
        xp, (mean, variance) = namespace(center=self.center), self.moments(inputs)
        if self.degree == 0:
            return (mean**2)[None, :]
        # The linear part has the slope at the mean; the rest of the variance is quadratic.
        slope = map_polynomial(self, widen).gradient(widen(inputs.mean))
        linear = xp.sum(slope * widen(inputs.times_covariance(slope)), axis=1)
        return xp.stack([mean**2, linear, xp.clip(variance - linear, 0, None)][: self.degree + 1])

    def in_products(self, center: Array, back: Array, own: Ladder) -> Array:
        """Coefficients (t, o) in the Hermite products of w (q,) of the polynomial at x = center + back w."""
        p = to_dense(map_polynomial(self, widen), widen(center))
        out = own.constant_row(back) * p.constant
        if p.linear is None:
            return out
        place = {tuple(row): i for i, row in enumerate(own.exponents.tolist())}
        steps = np.eye(own.variables, dtype=np.int64)

        def placed(values: Array, exponents: np.ndarray) -> Array:
            """Values (o, m) of products in their rows, (t, o)."""
            where = np.zeros((len(own.exponents), values.shape[1]))
            where[[place[tuple(row)] for row in exponents.tolist()], np.arange(len(exponents))] = 1.0
            return constant(where, back) @ values.T

        out = out + placed(p.linear @ back, steps)
        if p.quadratic is None:
            return out
        # w'Cw = tr C + sum_i C_ii sqrt(2) he_2(w_i) + sum_{i<j} 2 C_ij w_i w_j
        xp, bends = namespace(back=back), back.T @ p.quadratic @ back
        rows, columns = np.triu_indices(own.variables)
        scale = np.where(rows == columns, math.sqrt(2), 2.0)
        flat = xp.reshape(bends, (self.dim_out, own.variables**2))
        pairs = take_rows(flat.T, rows * own.variables + columns).T * constant(scale, back)
        trace = xp.sum(xp.linalg.diagonal(bends), axis=-1)
        return out + placed(pairs, steps[rows] + steps[columns]) + own.constant_row(back) * trace

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def _scaled(self, factor: Any) -> DensePolynomial:
        return self._changed(lambda a: a * factor)

    def _shifted(self, by: Array) -> DensePolynomial:
        return replace(self, constant=self.constant + by)

    def _mapped(self, matrix: Array) -> DensePolynomial:
        return self._changed(lambda a: namespace(a=a).tensordot(matrix, a, axes=1))

    def _precomposed(self, factors: Array, offset: Array) -> DensePolynomial:
        center = cast_like((widen(self.center) - offset) / factors, self.center)
        if self.directions is not None:
            return replace(self, center=center, directions=cast_like(self.directions * factors, self.directions))
        scaled = [None if a is None else a * factors for a in (self.linear, self.quadratic)]
        linear = None if self.linear is None else cast_like(scaled[0], self.linear)
        quadratic = None if self.quadratic is None else cast_like(scaled[1] * factors[:, None], self.quadratic)
        return replace(self, center=center, linear=linear, quadratic=quadratic)

    def _plus(self, other: Polynomial) -> DensePolynomial:
        if isinstance(other, DensePolynomial) and other.center is self.center and other.directions is self.directions:
            one, two = self, other
        else:
            one, two = self.expanded(), to_dense(other, self.center)
        pairs = ((one.linear, two.linear), (one.quadratic, two.quadratic))
        linear, quadratic = (a if b is None else b if a is None else a + b for a, b in pairs)
        return DensePolynomial(one.center, one.constant + two.constant, linear, quadratic, one.directions)

    def _absorbed(self, other: Polynomial) -> Polynomial | None:
        if other.degree <= 2:
            return self._plus(other)
        from mlpoly.polynomials.chaos import sum_in_products  # imports this module

        return sum_in_products(self, other, self.center) if other.closed_form else None

    def _changed(self, change: Callable[[Array], Array]) -> DensePolynomial:
        """Apply a linear map to all coefficients."""
        linear = None if self.linear is None else change(self.linear)
        quadratic = None if self.quadratic is None else change(self.quadratic)
        return replace(self, constant=change(self.constant), linear=linear, quadratic=quadratic)


def _linear_part(best: Any, row: Array) -> Array:
    """Coefficients (d,) of the degree-1 part of a ridge polynomial along an output: P_1 t_i + Q_0 e_i."""
    units, series = best.units, best.series
    direct = series.plain[1, :] * units.inverse_scales
    if series.gated is None or units.gate is None:
        return (row * direct) @ units.directions
    gate = series.gated[0, :]
    direct = direct - gate * units.gate.slopes * units.inverse_scales
    return (row * direct) @ units.directions + (row * gate) @ units.gate.directions


def _quadratic_part(best: Any, row: Array) -> Array:
    """Symmetric coefficients (d, d) of the degree-2 part: P_2 he_2(t_i) + Q_1 t_i e_i."""
    units, series = best.units, best.series
    W, inverse = units.directions, units.inverse_scales
    square = series.plain[2, :] * inverse**2 / math.sqrt(2)
    if series.gated is None or units.gate is None:
        return ((row * square)[:, None] * W).T @ W
    gate = series.gated[1, :] * inverse
    square = square - gate * units.gate.slopes * inverse
    mixed = ((row * gate / 2)[:, None] * W).T @ units.gate.directions
    return ((row * square)[:, None] * W).T @ W + mixed + mixed.T


def to_dense(poly: Polynomial, center: Array) -> DensePolynomial:
    """Any polynomial of degree up to 2 in dense form around `center`."""
    if poly.degree > 2:
        raise ValueError(f"a polynomial of degree {poly.degree} has no dense form of degree 2; truncate it first.")
    if isinstance(poly, DensePolynomial) and poly.center is center:
        return poly.expanded()
    quadratic = poly.coefficients().quadratic if poly.degree == 2 else None
    linear = None
    if poly.degree >= 1:
        linear = poly.coefficients().linear
        if quadratic is not None:
            wide, at = promote(quadratic, center)
            linear = linear + 2 * (wide @ at)
    return DensePolynomial(center, poly(center), linear, quadratic)
