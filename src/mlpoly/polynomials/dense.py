"""Polynomials of degree up to two with explicit matrices, for optima that have no factored form (MATH 4)."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any

from mlpoly.arrays import Array, as_integer, cast_like, namespace, promote
from mlpoly.polynomials.base import Polynomial, at_least_single, check_points, is_number
from mlpoly.polynomials.files import save_polynomial
from mlpoly.polynomials.source import Source
from mlpoly.records import record, replace, static

__all__ = ["DensePolynomial"]


@record
class DensePolynomial(Polynomial):
    """p(x) = constant + linear u + u' quadratic u, with u = x - center.

    Attributes
    ----------
    center : array (d,)
        Where the coefficients are taken; near the mean of the inputs they are well scaled.
    constant : array (o,)
    linear : array (o, d) or None
    quadratic : array (o, d, d) or None
        Symmetric in the last two axes.
    inputs : Gaussian, GaussianMixture or None
        What the polynomial was fitted under, if known.
    report : SolveReport or None
        How an iterative fit went.
    source : Source
        Where it comes from.
    """

    center: Array
    constant: Array
    linear: Array | None = None
    quadratic: Array | None = None
    inputs: Any = None
    report: Any = static(default=None)
    source: Source = static(default=Source())

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
        """The centre, to tell library, dtype and device."""
        return self.center

    def __repr__(self) -> str:
        return f"DensePolynomial(degree={self.degree}, {self.dim_in} -> {self.dim_out}, {self.source})"

    def __call__(self, x: Array) -> Array:
        """Values (..., o) at points x (..., d)."""
        xp, p = namespace(polynomial=self.center), at_least_single(self)
        x = check_points(x, p.center, self.dim_in)
        u, constant_term = promote(x - p.center, p.constant)
        value = u[..., :1] * 0 + constant_term
        if p.linear is not None:
            value = value + u @ promote(u, p.linear)[1].T
        if p.quadratic is not None:
            bends = [xp.vecdot(u @ promote(u, p.quadratic[i, ...])[1], u) for i in range(self.dim_out)]
            value = value + xp.stack(bends, axis=-1)
        return value

    def truncate(self, degree: int) -> DensePolynomial:
        """Drop the terms above `degree` around the centre. Under a mixture this is NOT the optimum of that degree."""
        degree = as_integer("degree", degree, 0)
        if degree >= self.degree:
            return self
        linear = self.linear if degree >= 1 else None
        return replace(self, linear=linear, quadratic=None, report=None, source=Source(self.source.activation))

    def gradient(self, x: Array) -> Array:
        """Jacobian (..., o, d) at points x (..., d)."""
        xp, p = namespace(polynomial=self.center), at_least_single(self)
        u = check_points(x, p.center, self.dim_in) - p.center
        zero = u[..., None, :] * 0 + p.constant[:, None] * 0
        total = zero if p.linear is None else zero + p.linear
        if p.quadratic is None:
            return total
        bends = [u @ promote(u, p.quadratic[i, ...])[1] for i in range(self.dim_out)]
        return total + 2 * xp.stack(bends, axis=-2)

    def hessian(self, x: Array) -> Array:
        """Second derivatives (..., o, d, d) at points x (..., d): the same at every one."""
        x = check_points(x, self.center, self.dim_in)
        shape = (*x.shape[:-1], self.dim_out, self.dim_in, self.dim_in)
        return namespace(x=x).broadcast_to(self.tensor(2) * 2, shape) + 0

    def tensor(self, k: int) -> Array:
        """Symmetric coefficients (o, d, ..., d) of the monomials of degree k at x = 0."""
        if k == 0:
            return self(self.center * 0)
        if k == 1 and self.degree >= 1:
            return self.gradient(self.center * 0)
        if k == 2 and self.quadratic is not None:
            return at_least_single(self).quadratic
        xp = namespace(polynomial=self.center)
        zero = xp.reshape(at_least_single(self).center[:1] * 0, (1,) * (k + 1))
        return xp.broadcast_to(zero, (self.dim_out, *[self.dim_in] * k)) + 0

    def quadratic_form(self, direction: Array) -> Callable[[Array], Array]:
        """Product of the quadratic coefficients along an output direction (o,) with a block (d, m)."""
        xp = namespace(polynomial=self.center)
        form = xp.tensordot(direction, self.tensor(2), axes=1)
        return lambda block: form @ block

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file with a JSON header; `mlpoly.load` reads it."""
        save_polynomial(self, path)

    def __mul__(self, factor: float) -> DensePolynomial:
        if not is_number(factor):
            return NotImplemented
        return at_least_single(self)._map(lambda a: a * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> DensePolynomial:
        return self * (1 / divisor) if is_number(divisor) else NotImplemented

    def __neg__(self) -> DensePolynomial:
        return self * -1.0

    def __add__(self, other: Polynomial | float) -> DensePolynomial:
        """Sum with any polynomial of degree up to 2 on the same inputs and outputs, or with a number."""
        if is_number(other):
            constant = cast_like(self.constant + other, self.constant)
            return DensePolynomial(self.center, constant, self.linear, self.quadratic)
        if not isinstance(other, Polynomial):
            return NotImplemented
        namespace(left=self.center, right=other.prototype)
        if (self.dim_in, self.dim_out) != (other.dim_in, other.dim_out):
            raise ValueError(
                f"polynomials map {self.dim_in} -> {self.dim_out} and {other.dim_in} -> {other.dim_out}; "
                f"a sum needs the same inputs and outputs."
            )
        one = at_least_single(self)
        two = to_dense(at_least_single(other), one.center)
        pairs = ((one.linear, two.linear), (one.quadratic, two.quadratic))
        linear, quadratic = (a if b is None else b if a is None else a + b for a, b in pairs)
        return DensePolynomial(one.center, one.constant + two.constant, linear, quadratic)

    def __sub__(self, other: Polynomial | float) -> DensePolynomial:
        return -(-self + other) if isinstance(other, Polynomial) or is_number(other) else NotImplemented

    __radd__ = __add__

    def __rsub__(self, other: Polynomial | float) -> DensePolynomial:
        return -self + other if isinstance(other, Polynomial) or is_number(other) else NotImplemented

    def _map(self, change: Callable[[Array], Array]) -> DensePolynomial:
        linear = None if self.linear is None else change(self.linear)
        quadratic = None if self.quadratic is None else change(self.quadratic)
        return DensePolynomial(self.center, change(self.constant), linear, quadratic)


def to_dense(poly: Polynomial, center: Array) -> DensePolynomial:
    """Any polynomial of degree up to 2 in dense form around `center`."""
    if poly.degree > 2:
        raise ValueError(f"a polynomial of degree {poly.degree} has no dense form of degree 2; truncate it first.")
    if isinstance(poly, DensePolynomial) and poly.center is center:
        return poly
    quadratic = poly.coefficients().quadratic if poly.degree == 2 else None
    linear = None
    if poly.degree >= 1:
        linear = poly.coefficients().linear
        if quadratic is not None:
            wide, at = promote(quadratic, center)
            linear = linear + 2 * (wide @ at)
    return DensePolynomial(center, poly(center), linear, quadratic)
