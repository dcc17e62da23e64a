"""Polynomials of degree up to two with explicit matrices, for optima that have no factored form (MATH 4)."""

from collections.abc import Callable
from typing import Any

from mlpoly.arrays import Array, cast_like, check_points, namespace, promote, widen
from mlpoly.inputs import Gaussian
from mlpoly.moments import Quadratic
from mlpoly.polynomials.base import Polynomial, map_polynomial
from mlpoly.polynomials.fields import Source, check_shapes, store_floats
from mlpoly.records import map_arrays, record, replace
from mlpoly.units import Units


@record
class DensePolynomial(Polynomial):
    """p(x) = constant + linear u + u' quadratic u, with u = x - center, or r linear forms u = directions (x - center).

    Attributes
    ----------
    center : array (d,)
        Point that the coefficients are taken around; near the mean of the inputs they are well scaled.
    constant, linear, quadratic : array (o,), array (o, d) or None, array (o, d, d) or None
        The quadratic part is symmetric in the last two axes.
    directions : array (r, d) or None
        Linear forms that the polynomial depends on, in place of all inputs; r then stands for d in the coefficients.

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

    def expanded(self) -> "DensePolynomial":
        """The same polynomial with coefficients of all inputs instead of some linear forms of them."""
        F = self.directions
        if F is None:
            return self
        linear = None if self.linear is None else self.linear @ F
        quadratic = None if self.quadratic is None else F.T @ self.quadratic @ F
        return replace(self, linear=linear, quadratic=quadratic, directions=None)

    def _truncated(self, degree: int) -> "DensePolynomial":
        linear, directions = (self.linear, self.directions) if degree else (None, None)
        source = Source(self.source.activation)
        return replace(self, linear=linear, quadratic=None, directions=directions, report=None, source=source)

    def averaged(self, noise: Gaussian) -> "DensePolynomial":
        """The polynomial x -> E[p(x + u)] for u of mean zero, in the widest precision."""
        p = map_arrays(replace(self, inputs=None), widen)
        if p.quadratic is None:
            return p
        xp, forms = namespace(center=p.center), p.directions
        cov = widen(noise.covariance) if forms is None else noise.times_covariance(forms) @ forms.T
        return replace(p, constant=p.constant + xp.sum(p.quadratic * cov, axis=(1, 2)))

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
        return namespace(x=x).broadcast_to(promote(self.tensor(2) * 2, x)[0], shape) + 0

    def _tensor(self, k: int) -> Array:
        zero = self.center * 0
        return self(zero) if k == 0 else self.gradient(zero) if k == 1 else self.expanded().quadratic

    def quadratic_form(self, direction: Array) -> Callable[[Array], Array]:
        """Return a function that multiplies the quadratic coefficients along an output direction (o,) with (d, m)."""
        F = self.directions
        if F is None or self.quadratic is None:
            return super().quadratic_form(direction)
        inner = namespace(quadratic=self.quadratic).tensordot(direction, self.quadratic, axes=1)
        return lambda block: F.T @ (inner @ (F @ block))

    # -- second moments -----------------------------------------------------------------------------------------------

    def hermite(self, inputs: Gaussian, near: Units | None = None) -> Quadratic:
        """Expansion under a Gaussian, of which second moments are made."""
        p, wide = map_polynomial(self.expanded(), widen), map_arrays(inputs, widen)
        u, mean, linear = wide.mean - p.center, p.constant, p.linear
        if linear is not None:
            mean = mean + linear @ u
        if p.quadratic is None:
            return Quadratic(wide, mean, linear)
        xp = namespace(center=p.center)
        along, forms = p.quadratic @ u, p.quadratic
        linear = 2 * along if linear is None else linear + 2 * along
        if wide.cov is None or len(wide.cov.shape) == 1:
            variances = u * 0 + (1.0 if wide.cov is None else wide.cov)
            trace = xp.linalg.diagonal(forms) @ variances
        else:
            trace = xp.stack([xp.sum(forms[o, ...] * wide.cov) for o in range(self.dim_out)])
        return Quadratic(wide, mean + along @ u + trace, linear, lambda o: forms[o, ...])

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def _scaled(self, factor: Any) -> "DensePolynomial":
        return self._changed(lambda a: a * factor)

    def _shifted(self, by: Array) -> "DensePolynomial":
        return replace(self, constant=self.constant + by)

    def _mapped(self, matrix: Array) -> "DensePolynomial":
        return self._changed(lambda a: namespace(a=a).tensordot(matrix, a, axes=1))

    def _precomposed(self, factors: Array, offset: Array) -> "DensePolynomial":
        center = cast_like((widen(self.center) - offset) / factors, self.center)
        if self.directions is not None:
            return replace(self, center=center, directions=cast_like(self.directions * factors, self.directions))
        linear, bends = self.linear, self.quadratic
        linear = None if linear is None else cast_like(linear * factors, linear)
        bends = None if bends is None else cast_like(bends * factors * factors[:, None], bends)
        return replace(self, center=center, linear=linear, quadratic=bends)

    def _plus(self, other: Polynomial) -> "DensePolynomial":
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

    def _changed(self, change: Callable[[Array], Array]) -> "DensePolynomial":
        """Apply a linear map to all coefficients."""
        linear = None if self.linear is None else change(self.linear)
        quadratic = None if self.quadratic is None else change(self.quadratic)
        return replace(self, constant=change(self.constant), linear=linear, quadratic=quadratic)


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
