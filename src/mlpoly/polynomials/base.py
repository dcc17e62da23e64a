"""The contract of all forms of polynomials."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from mlpoly.arrays import Array, as_float_array, as_integer, check_output, constant, eye, namespace, on, promote, widen
from mlpoly.inputs import Gaussian, in_library
from mlpoly.inputs.interface import Inputs, unit_arrays
from mlpoly.moments import AnyExpansion, Products, inner
from mlpoly.moments.hermite_products import Ladder
from mlpoly.polynomials.arithmetic import Arithmetic, result_of
from mlpoly.polynomials.coefficients import Coefficients
from mlpoly.polynomials.fields import Source
from mlpoly.records import map_arrays, record, replace, static, trusted

if TYPE_CHECKING:
    from mlpoly.features.term_table import Terms
    from mlpoly.he.circuit import Circuit
    from mlpoly.units import Units

P = TypeVar("P", bound="Polynomial")


@record
class Polynomial(Arithmetic):
    """A polynomial map from d inputs to o outputs; subclasses differ in how they store it.

    A form is a record with the fields `inputs`, `source`, `report` and arrays of its own, which its constructor checks.

    Attributes
    ----------
    inputs : Inputs or None
        Inputs that it was fitted under, if known. Multiples, shifts and maps of the outputs keep them, and so do sums
        of polynomials with the same inputs.
    output_names : tuple of str or None
        Names of the outputs, if the network has some; outputs may be asked for by them, ``output="cat"``.
    source, report : Source, FitReport or None
        Provenance, empty for a result of arithmetic, and how the fit went.
    closed_form : bool
        Whether second moments under a distribution need no samples: the form has `hermite`.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.array([[1.0, 2.0]]), None, np.ones((1, 1)), None, "square")  # (x0 + 2 x1)^2
    >>> poly = mp.fit(net, mp.Gaussian.standard(2), degree=2)
    >>> poly.degree, poly(np.array([[1.0, 1.0]])).round(6).tolist()
    (2, [[9.0]])
    >>> poly.truncate(1)(np.array([[1.0, 1.0]])).round(6).tolist()  # the best linear fit is the mean
    [[5.0]]
    """

    inputs: Any = field(default=None, kw_only=True)
    output_names: tuple[str, ...] | None = static(default=None, kw_only=True)
    source: Source = static(default=Source(), kw_only=True)
    report: Any = static(default=None, kw_only=True)

    closed_form: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check what all forms have; each form then checks its arrays."""
        if self.inputs is not None and not isinstance(self.inputs, Inputs):
            raise TypeError(f"inputs must be a distribution or None, got {type(self.inputs).__name__}.")
        if not isinstance(self.source, Source):
            raise TypeError(f"source must be a Source, got {type(self.source).__name__}.")

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the inputs, if those it was fitted under have some."""
        return None if self.inputs is None else self.inputs.names

    @abstractmethod
    def __call__(self, x: Array) -> Array:
        """Values (..., o) at points x (..., d)."""

    def truncate(self: P, degree: int) -> P:
        """Drop everything above `degree`: of the optimum under one Gaussian that leaves the optimum of that degree.

        Not so of dense and chaos forms, whose terms are around the mean of a mixture.
        """
        degree = as_integer("degree", degree, 0)
        return self if degree >= self.degree else self._truncated(degree)

    @abstractmethod
    def _truncated(self: P, degree: int) -> P:
        """The polynomial without its parts above a degree lower than its own."""

    @abstractmethod
    def gradient(self, x: Array) -> Array:
        """Jacobian (..., o, d) at points x (..., d)."""

    @abstractmethod
    def hessian(self, x: Array) -> Array:
        """Second derivatives (..., o, d, d) at points x (..., d)."""

    def hessian_along(self, x: Array, directions: Array) -> Array:
        """Second derivatives (..., a, d, d) of the outputs along directions (..., a, o), at points x (..., d)."""
        bends = self.hessian(x)
        xp, shape = namespace(x=bends), tuple(bends.shape)
        directions, flat = promote(directions, xp.reshape(bends, (*shape[:-2], shape[-1] ** 2)))
        flat = directions @ flat
        return xp.reshape(flat, (*flat.shape[:-1], *shape[-2:]))

    @abstractmethod
    def _tensor(self, k: int) -> Array:
        """The coefficients of a degree k that is not above that of the polynomial."""

    def tensor(self, k: int) -> Array:
        """Symmetric coefficients (o, d, ..., d) of the monomials of degree k at x = 0."""
        if k > self.degree:
            return constant(np.zeros((self.dim_out, *[self.dim_in] * k)), self.prototype)
        return self._tensor(k)

    def quadratic_form(self, direction: Array) -> Callable[[Array], Array]:
        """Return a function that multiplies the quadratic coefficients along an output direction (o,) with (d, m)."""
        form = self.output(direction).coefficients().quadratic[0, ...]
        return lambda block: form @ block

    def tensor_slices(self, k: int) -> Callable[[tuple[int, ...]], Array]:
        """Return a function of k - 2 input indices to the slice (o, d, d) of the tensor of degree k >= 2 there."""
        whole = self.coefficients().tensor(k)
        return lambda lead: whole[(slice(None), *lead, ...)]

    def tensor_numbers(self, k: int) -> int:
        """Number of entries of `tensor(k)` and of the arrays that it is computed from."""
        return self.dim_out * self.dim_in**k

    def coefficients(self, max_bytes: int = 4 * 2**30) -> Coefficients:
        """Dense coefficients in the monomials of x, each tensor computed when it is first read.

        One of more than `max_bytes` is refused, with a `TooLargeError` that states its size.
        """
        return Coefficients(self, max_bytes)

    def terms(
        self,
        output: int | str | Array = 0,
        names: Sequence[str] | None = None,
        k: int = 20,
        center: Array | str | None = None,
        inputs: Any = None,
        interactions: bool = False,
        degree: int | None = None,
    ) -> Terms:
        """The strongest monomials of one output: coefficient, effect and fraction of the variance.

        The effect of a monomial is its coefficient times its standard deviation under the inputs, in closed form for a
        Gaussian or a mixture. No tensor of d^n numbers is made.

        Parameters
        ----------
        output : int, str or array (o,)
            Index or name of the output, or a direction in output space, such as a difference of two logits.
        names, inputs : sequence of d str, and Gaussian, GaussianMixture or Samples, optional
            By default those that it was fitted under; names are then x0, x1, ... where these have none.
        k : int
            Number of terms.
        center : array (d,) or "mean", optional
            The monomials are those of x - center; by default of x, which nearly cancel one another far from zero.
        interactions : bool
            Only products of different inputs.
        degree : int, optional
            Highest degree of the terms. By default all; of a composed polynomial, which has very many, up to the
            highest degree of which twice has no more than 400 000 moments: 7 for nine inputs.

        Examples
        --------
        >>> import numpy as np, mlpoly as mp
        >>> net = mp.MLP(np.array([[1.0, 2.0]]), None, np.ones((1, 1)), None, "square")
        >>> poly = mp.fit(net, mp.Gaussian.standard(2), 2)
        >>> [(term.name, round(term.coefficient, 6)) for term in poly.terms(names=["a", "b"])]
        [('b^2', 4.0), ('a · b', 4.0), ('a^2', 1.0)]
        """
        from mlpoly.features.term_table import strongest_terms  # further up the import graph: imported on demand

        return strongest_terms(self, output, names, k, center, inputs, interactions, degree)

    def to_sympy(
        self, output: int | str | Array = 0, names: Sequence[str] | None = None, digits: int | None = None
    ) -> Any:
        """One output as an expanded SymPy expression; the arguments are those of `terms`.

        Coefficients have all digits, or the given number of them, for reading.

        Examples
        --------
        >>> import numpy as np, mlpoly as mp
        >>> net = mp.MLP(np.array([[1.0, 2.0]]), None, np.ones((1, 1)), None, "square")
        >>> formula = mp.fit(net, mp.Gaussian.standard(2), 2).to_sympy(names=["a", "b"])
        >>> round(float(formula.subs({"a": 1, "b": 3})), 6)
        49.0
        """
        from mlpoly.features.term_table import sympy_expression  # further up the import graph: imported on demand

        return sympy_expression(self, output, names, digits)

    def __str__(self) -> str:
        from mlpoly.features.term_table import text_formula

        return text_formula(self)

    def bounded(self, bound: float) -> Polynomial:
        """The polynomial with straight lines beyond `bound` standard deviations; only for forms made of neurons."""
        remedy = "fit under one Gaussian or with method='neuronwise'"
        raise TypeError(f"a {type(self).__name__} has no neurons that could continue as straight lines; {remedy}.")

    # -- second moments -----------------------------------------------------------------------------------------------

    def hermite(self, inputs: Gaussian, near: Units | None = None) -> AnyExpansion:
        """The polynomial expanded under a Gaussian, of which all second moments are made (`mlpoly.moments.inner`).

        `near` may be hidden units under these inputs, which polynomials that are made of the same ones then take.
        """
        kind = type(self).__name__
        raise TypeError(f"there is no closed form for a {kind}; measure it on data, with inputs=Samples(x).")

    def moments(self, inputs: Gaussian) -> tuple[Array, Array]:
        """Mean and variance (o,) under a Gaussian, in float64 where the library has it."""
        expansion = self.hermite(inputs)
        return expansion.mean, inner(expansion, expansion).total

    def averaged(self: P, noise: Gaussian) -> P:
        """The polynomial x -> E[p(x + u)] for u of mean zero, in the widest precision (MATH 10)."""
        raise TypeError(f"there is no closed form for a {type(self).__name__}; average its values.")

    def in_products(self, center: Array, back: Array, own: Ladder) -> Array:
        """Coefficients (t, o) in the Hermite products `own` of w (q,) of the polynomial at x = center + back w.

        The products go up to the polynomial's degree at least.
        """
        expansion = self.hermite(trusted(Gaussian, mean=widen(center), cov=back @ back.T))
        assert not isinstance(expansion, Products)  # that form has its own way
        return expansion.in_products(back, own)

    # -- other places and forms ---------------------------------------------------------------------------------------

    def to(self: P, like: Array) -> P:
        """The same polynomial in the array library, dtype and device of `like`; 16 bits give float32.

        The inputs that it was fitted under move with it, in float64 where the library has it.
        """
        (like,) = promote(as_float_array("like", like))
        moved = map_polynomial(self, lambda a: on(a, like))
        if self.inputs is None:
            return moved
        return replace(moved, inputs=self.inputs.to(widen(constant(0.0, like))))

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file with a JSON header; `mlpoly.load` reads it.

        A Gaussian or a mixture that it was fitted under is saved too, of other inputs only the fingerprint.
        """
        from mlpoly.polynomials.saving import save_polynomial  # imports all forms, which import this module

        save_polynomial(self, path)

    def to_torch(self) -> Any:
        """The polynomial as a torch.nn.Module that replaces the block it was fitted to.

        Forms made of neurons multiply inputs of 16 bits in 16 bits, as the block itself does.
        """
        from mlpoly.importers.torch import PolynomialModule  # a leaf of the import graph: imported on demand

        return PolynomialModule(self)

    def to_he(
        self, outside: float = 1e-6, samples: Any = None, levels: int | None = None, within: Any = None
    ) -> Circuit:
        """The polynomial as a circuit for encrypted inference: matrix products and products of encrypted vectors.

        Not for a bounded polynomial, nor for forms without hidden units.

        Parameters
        ----------
        outside : float
            Probability that some hidden unit of an input leaves the range of its layer, under Gaussians with the
            moments of the fit. The ranges are chosen for it, the same number of standard deviations for every unit.
        samples : Samples or array (n, d), optional
            Data whose units stay within the ranges too. It is an error if numbers on them, or on samples of the inputs
            of the fit, become too large to be encrypted.
        levels : int, optional
            Levels that the encryption has; a polynomial that needs more is refused.
        within : pair of float or array (d,), optional
            Sides (low, high) of a box of inputs. The ranges are then those that `mlpoly.he.bound` certifies for it,
            and no input of the box leaves them.

        Examples
        --------
        >>> import numpy as np, mlpoly as mp
        >>> net = mp.MLP(np.eye(3), None, np.ones((2, 3)), None, "gelu")
        >>> poly = mp.fit(net, mp.Gaussian.standard(3), degree=4)
        >>> circuit = poly.to_he()
        >>> circuit.levels, np.allclose(circuit(np.eye(3)), poly(np.eye(3)))
        (4, True)
        """
        from mlpoly.he.lowering import to_circuit  # further up the import graph: imported on demand

        return to_circuit(self, outside, samples, levels, within)

    def in_units(self: P, scale: Any, shift: Any = 0.0) -> P:
        """The polynomial in other units of its inputs: q(x) = p(z) with x = shift + scale z, for floats or arrays (d,).

        Undoes a ``StandardScaler``: ``poly.in_units(scaler.scale_, scaler.mean_)`` takes the original data. The inputs
        of the fit change with it.

        Examples
        --------
        >>> import numpy as np, mlpoly as mp
        >>> net = mp.MLP(np.array([[1.0, 2.0]]), None, np.ones((1, 1)), None, "square")  # (z0 + 2 z1)^2
        >>> poly = mp.fit(net, mp.Gaussian.standard(2), 2).in_units(10.0, shift=5.0)  # z = (x - 5) / 10
        >>> poly(np.array([[15.0, 15.0]])).round(6).tolist()
        [[9.0]]
        """
        scale, shift = unit_arrays(scale, shift, self.dim_in, self.prototype)
        inputs = None if self.inputs is None else in_library(self.inputs, self.prototype).in_units(scale, shift)
        made = self._precomposed(1 / scale, -shift / scale)
        return replace(made, inputs=inputs, source=replace(self.source, inputs=""), report=self.report)

    def output(self: P, output: int | str | Array) -> P:
        """The polynomial of one output, by its index or name, or along a direction (o,) in output space.

        Examples
        --------
        >>> import numpy as np, mlpoly as mp
        >>> net = mp.MLP(np.eye(2), None, np.array([[1.0, 0.0], [0.0, 3.0]]), None, "square")  # x0^2 and 3 x1^2
        >>> poly = mp.fit(net, mp.Gaussian.standard(2), 2)
        >>> [p(np.array([[1.0, 2.0]])).round(6).tolist() for p in (poly.output(1), poly.output(np.array([-1.0, 1.0])))]
        [[[12.0]], [[11.0]]]
        """
        if len(getattr(output, "shape", ())) == 1:
            return self.__rmatmul__(output)
        index = check_output(output, self.dim_out, self.output_names)
        one = self._mapped(eye(self.dim_out, self.prototype)[index, :][None, :])
        return result_of(one, self.inputs, self.output_names and self.output_names[index : index + 1])


def map_polynomial(poly: P, change: Callable[[Array], Array]) -> P:
    """Apply a function to the arrays of a polynomial, but not to the inputs that it was fitted under."""
    return replace(map_arrays(replace(poly, inputs=None), change), inputs=poly.inputs)
