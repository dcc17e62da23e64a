"""Arithmetic of polynomials: sums, multiples, constants and linear maps of the outputs."""

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import numpy as np

from mlpoly.arrays import Array, as_float_array, cast_like, check_shape, constant, namespace, readable, scalar
from mlpoly.polynomials.fields import Source
from mlpoly.records import arrays_of, replace

P = TypeVar("P", bound="Arithmetic")


class Arithmetic(ABC):
    """The operators of polynomials, from the hooks of each form."""

    inputs: Any
    output_names: tuple[str, ...] | None
    source: Source
    report: Any

    __array_ufunc__ = None  # makes NumPy defer array + polynomial and matrix @ polynomial to the polynomial

    @property
    @abstractmethod
    def degree(self) -> int:
        """Total degree."""

    @property
    def dim_in(self) -> int:
        """Number of inputs d."""
        return int(self.prototype.shape[-1])

    @property
    @abstractmethod
    def dim_out(self) -> int:
        """Number of outputs o."""

    @property
    @abstractmethod
    def prototype(self) -> Array:
        """A stored array (..., d), which has the library, dtype and device of the polynomial."""

    @property
    def piecewise(self) -> bool:
        """Whether it is only piecewise polynomial, so that it adds to few other forms."""
        return False

    # -- hooks: each form says how its arrays change -------------------------------------------------------------------

    @abstractmethod
    def _scaled(self: P, factor: Any) -> P:
        """The polynomial times a number."""

    @abstractmethod
    def _shifted(self: P, by: Array) -> P:
        """The polynomial plus a constant (o,)."""

    @abstractmethod
    def _mapped(self: P, matrix: Array) -> P:
        """Outputs matrix @ p(x), for a matrix (m, o)."""

    @abstractmethod
    def _precomposed(self: P, factors: Array, offset: Array) -> P:
        """The polynomial p(factors * x + offset), for arrays (d,) in the widest precision."""

    @abstractmethod
    def _plus(self: P, other: P) -> P:
        """Sum with a polynomial of the same form and the same numbers of inputs and outputs."""

    def _absorbed(self, other: Any) -> Any:
        """Sum with a polynomial of another form, or None if this form cannot represent it."""
        return None

    # -- operators ----------------------------------------------------------------------------------------------------

    def __mul__(self: P, factor: Any) -> P:
        if not _is_number(factor):
            return NotImplemented
        return result_of(self._scaled(_number(factor, self.prototype)), self.inputs, self.output_names)

    __rmul__ = __mul__

    def __truediv__(self: P, divisor: Any) -> P:
        return self * (1 / divisor) if _is_number(divisor) else NotImplemented

    def __neg__(self: P) -> P:
        return self * -1.0

    def __add__(self: P, other: P | float) -> P:
        """Sum with a polynomial on the same inputs and outputs, a number, or a constant (o,)."""
        if isinstance(other, Arithmetic):
            return _sum(self, other)
        if _is_number(other):
            zeros = constant(np.zeros(self.dim_out), self.prototype)
            return result_of(self._shifted(zeros + _number(other, self.prototype)), self.inputs, self.output_names)
        if not hasattr(other, "shape"):
            return NotImplemented
        namespace(constant=other, polynomial=self.prototype)
        check_shape("the constant", other, (self.dim_out,), "one number per output")
        return result_of(self._shifted(cast_like(other, self.prototype)), self.inputs, self.output_names)

    __radd__ = __add__

    def __sub__(self: P, other: P | float) -> P:
        return self + (-other) if _is_term(other) else NotImplemented

    def __rsub__(self: P, other: Any) -> P:
        return -self + other if _is_term(other) else NotImplemented

    def __rmatmul__(self: P, matrix: Array) -> P:
        """Linear map of the outputs: a matrix (m, o) gives m outputs, a vector (o,) one."""
        matrix = as_float_array("the matrix", matrix, integers=True)
        namespace(matrix=matrix, polynomial=self.prototype)
        rows = matrix[None, :] if len(matrix.shape) == 1 else matrix
        check_shape("the matrix", rows, (None, self.dim_out), "as many columns as the polynomial has outputs")
        return result_of(self._mapped(cast_like(rows, self.prototype)), self.inputs)

    def __matmul__(self, matrix: Any) -> Any:
        raise TypeError("a matrix maps the outputs of a polynomial from the left; use matrix @ poly.")


def _sum(one: Arithmetic, two: Arithmetic) -> Any:
    namespace(left=one.prototype, right=two.prototype)
    if (one.dim_in, one.dim_out) != (two.dim_in, two.dim_out):
        maps = f"{one.dim_in} -> {one.dim_out} and {two.dim_in} -> {two.dim_out}"
        raise ValueError(f"polynomials map {maps}; a sum needs the same inputs and outputs.")
    same = one.inputs is two.inputs
    if not (same or one.inputs is None or two.inputs is None):
        known = readable(*arrays_of(one.inputs).values(), *arrays_of(two.inputs).values())
        same = known and one.inputs.fingerprint == two.inputs.fingerprint
    inputs = one.inputs if same else None
    names = one.output_names if one.output_names == two.output_names else None
    if type(one) is type(two):
        return result_of(one._plus(two), inputs, names)
    # Beyond its bounds a piecewise polynomial is another one: only its own form can represent the sum.
    asked = [pair for pair in ((one, two), (two, one)) if pair[0].piecewise or not pair[1].piecewise]
    for form, other in asked:
        if (found := form._absorbed(other)) is not None:
            return result_of(found, inputs, names)
    remedy = "add their values, lambda x: p(x) + q(x)"
    remedy += ", or use .polynomial, without the bounds" if one.piecewise or two.piecewise else ""
    raise TypeError(f"a {type(one).__name__} and a {type(two).__name__} have no common form; {remedy}.")


def result_of(poly: P, inputs: Any, output_names: tuple[str, ...] | None = None) -> P:
    """Result of arithmetic, which has no source and no report."""
    return replace(poly, inputs=inputs, output_names=output_names, source=Source(), report=None)


def _is_number(value: Any) -> bool:
    """Whether a value is a number or an array without axes, by which a polynomial may be multiplied or shifted."""
    return isinstance(value, (int, float)) or getattr(value, "shape", None) == ()


def _is_term(value: Any) -> bool:
    return isinstance(value, (Arithmetic, int, float)) or hasattr(value, "shape")


def _number(value: Any, like: Array) -> Any:
    """A number that does not change the dtype of `like` in arithmetic."""
    if isinstance(value, (int, float)):
        return float(value)
    try:
        namespace(value=value, like=like)
    except TypeError:  # of another library or on another device: only its value counts
        return scalar(value)
    return cast_like(value, like)
