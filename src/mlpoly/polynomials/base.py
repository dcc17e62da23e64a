"""What every polynomial offers, whatever its form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from os import PathLike
from typing import Any, TypeVar

from mlpoly.arrays import Array, as_float_array, is_low_precision, namespace, promote
from mlpoly.inputs import Gaussian
from mlpoly.polynomials.coefficients import Coefficients
from mlpoly.polynomials.source import Source
from mlpoly.records import map_arrays, replace

__all__ = ["Polynomial", "at_least_single", "check_points", "is_number", "map_polynomial"]


P = TypeVar("P", bound="Polynomial")


class Polynomial(ABC):
    """A polynomial map from d inputs to o outputs; subclasses differ in how they store it."""

    inputs: Any
    report: Any
    source: Source
    __array_ufunc__ = None  # so that NumPy leaves array * polynomial to the polynomial, which refuses it

    @property
    @abstractmethod
    def degree(self) -> int:
        """Total degree."""

    @property
    @abstractmethod
    def dim_in(self) -> int:
        """Number of inputs d."""

    @property
    @abstractmethod
    def dim_out(self) -> int:
        """Number of outputs o."""

    @abstractmethod
    def __call__(self, x: Array) -> Array:
        """Values (..., o) at points x (..., d)."""

    @abstractmethod
    def truncate(self, degree: int) -> Polynomial:
        """Drop everything above `degree`."""

    @abstractmethod
    def gradient(self, x: Array) -> Array:
        """Jacobian (..., o, d) at points x (..., d)."""

    @abstractmethod
    def hessian(self, x: Array) -> Array:
        """Second derivatives (..., o, d, d) at points x (..., d)."""

    @property
    @abstractmethod
    def prototype(self) -> Array:
        """One of the stored arrays, to tell library, dtype and device."""

    @abstractmethod
    def tensor(self, k: int) -> Array:
        """Symmetric coefficients (o, d, ..., d) of the monomials of degree k at x = 0."""

    @abstractmethod
    def quadratic_form(self, direction: Array) -> Callable[[Array], Array]:
        """Product of the quadratic coefficients along an output direction (o,) with a block (d, m)."""

    def tensor_numbers(self, k: int) -> int:
        """How many numbers `tensor(k)` holds, together with what it is made from."""
        return self.dim_out * self.dim_in**k

    def coefficients(self, max_bytes: int = 4 * 2**30) -> Coefficients:
        """Dense coefficients in the monomials of x; a tensor is made when it is asked for.

        Parameters
        ----------
        max_bytes : int
            Largest tensor that may be made; beyond it a `TooLargeError` names the size.
        """
        return Coefficients(self, max_bytes)

    @abstractmethod
    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file with a JSON header; `mlpoly.load` reads it."""

    def projected(self, inputs: Gaussian) -> tuple[Polynomial, Array | None]:
        """A polynomial that stands for this one under a Gaussian, and the variance (o,) of what it lacks at most.

        Only piecewise polynomials lack anything.
        """
        return self, None

    def _scaled(self, factor: Any) -> Any:
        raise NotImplementedError

    def _shifted(self, by: Any) -> Any:
        raise NotImplementedError

    def _plus(self, other: Any) -> Any:
        raise NotImplementedError

    def __mul__(self, factor: Any) -> Any:
        if not is_number(factor):
            return NotImplemented
        return replace(at_least_single(self)._scaled(factor), source=Source(), report=None)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Any:
        return self * (1 / divisor) if is_number(divisor) else NotImplemented

    def __neg__(self) -> Any:
        return self * -1.0

    def __add__(self, other: Any) -> Any:
        if is_number(other):
            return replace(self._shifted(other), source=Source(), report=None)
        if type(other) is not type(self):
            return NotImplemented
        if (self.dim_in, self.dim_out) != (other.dim_in, other.dim_out):
            raise ValueError(
                f"polynomials map {self.dim_in} -> {self.dim_out} and {other.dim_in} -> {other.dim_out}; "
                f"a sum needs the same inputs and outputs."
            )
        return at_least_single(self)._plus(at_least_single(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + (-other) if isinstance(other, type(self)) or is_number(other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other if is_number(other) else NotImplemented

    def to_torch(self, bound: float | None = None, fast: bool = False) -> Any:
        """The polynomial as a torch.nn.Module, to put in the place of the block that it was fitted to.

        Parameters
        ----------
        bound : float, optional
            For the ridge form: hold every preactivation within this many standard deviations of its mean under the
            inputs of the fit, or go on along the polynomial's `tails`. The module is then a piecewise polynomial, and
            its neurons grow no faster than linearly (times the other factor of a gated unit) where the data leave the
            region that the polynomial was fitted on.
        fast : bool
            For the ridge form and inputs in 16 bits: multiply matrices in 16 bits, as the block itself does, instead
            of in float32.
        """
        from mlpoly.integrations.torch import PolynomialModule  # a leaf: imported on request only

        return PolynomialModule(self, bound, fast)


def is_number(value: Any) -> bool:
    """Whether a polynomial may be multiplied by a value or shifted by it: a number, or an array without axes."""
    return isinstance(value, (int, float)) or getattr(value, "shape", None) == ()


def check_points(x: Any, like: Array, dim: int) -> Array:
    """Points (..., d) in the library and on the device of a polynomial."""
    x = as_float_array("x", x, integers=True)
    namespace(x=x, polynomial=like)
    if len(x.shape) < 1 or x.shape[-1] != dim:
        raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., {dim}): the last axis holds the inputs.")
    return x


def map_polynomial(poly: P, change: Callable[[Array], Array]) -> P:
    """A polynomial with a function applied to its arrays; the inputs that it was fitted under stay as they are."""
    return replace(map_arrays(replace(poly, inputs=None), change), inputs=poly.inputs)


def at_least_single(poly: P) -> P:
    """A polynomial whose arrays are to be computed with: those of 16 bits in float32, any other as it is."""
    if not is_low_precision(poly.prototype.dtype):
        return poly
    return map_polynomial(poly, lambda a: promote(a)[0])
