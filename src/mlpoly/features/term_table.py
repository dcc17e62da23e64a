"""The terms of a polynomial: the strongest as a table, and all of them as text and SymPy expressions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlpoly.arrays import Array, as_float_array, as_integer, readable, to_numpy, widen
from mlpoly.arrays.checks import check_columns, check_finite, check_names, check_output, check_shape
from mlpoly.extras import library
from mlpoly.features.monomials import check_count, count_monomials, highest_degree, in_order, monomial_spread, strongest
from mlpoly.inputs import Gaussians, Inputs, Samples, inputs_of
from mlpoly.polynomials import Polynomial
from mlpoly.records import map_arrays, replace
from mlpoly.tables import Plottable, Table, Tabular, output_label

_CANCEL = "Terms of x cancel one another far from x = 0; terms(center='mean') are about the mean of the inputs."
_DRAWS = 2**16  # for the variance of polynomials that have no closed form
_MOST = 100_000  # monomials of a SymPy expression
_WRITTEN, _OUTPUTS = 24, 3  # most monomials, and outputs, of a polynomial that is written out


@dataclass(frozen=True)
class Term:
    """One monomial of a polynomial."""

    inputs: tuple[int, ...]  # indices of its factors, ascending and repeated for powers: (0, 0, 3) is x0^2 x3
    name: str
    coefficient: float
    effect: float  # coefficient times the standard deviation of the monomial under the inputs
    fraction: float  # effect^2 over the variance of the polynomial; of correlated terms they need not add up to one

    @property
    def degree(self) -> int:
        """Number of factors."""
        return len(self.inputs)


@dataclass(frozen=True, repr=False)
class Terms(Tabular, Plottable, Sequence[Term]):
    """The strongest terms of one output, by descending magnitude of their effects; a sequence of `Term`.

    Attributes
    ----------
    names, output_name : tuple of str, str
        Names of all d inputs, and of the output in titles; empty for the only one, if it has no name.
    constant, total : float, int
        Value of the polynomial at the center, and number of all monomials beside this one, up to `degree`.
    center : array (d,) or None
        The monomials are those of x - center; None for those of x.
    sampling_error : float
        Relative standard error of the variance that fractions refer to. It is 0 in closed form, and on samples of the
        caller's; that of a composed polynomial is estimated from 65 536 samples of the inputs.
    """

    terms: tuple[Term, ...]
    output: int | None  # None for a direction in output space
    names: tuple[str, ...]
    constant: float
    total: int
    center: np.ndarray | None = None
    output_name: str = ""
    sampling_error: float = 0.0
    interactions: bool = False  # whether only products of different inputs are ranked
    degree: int = 0  # up to which terms are ranked
    whole: int = 0  # degree of the polynomial

    def __getitem__(self, index: Any) -> Any:
        return self.terms[index]

    def __len__(self) -> int:
        return len(self.terms)

    def _table(self) -> Table:
        kind, where = "interactions" if self.interactions else "terms", self.output_name and f" of {self.output_name}"
        about = "" if self.center is None else ", in deviations from the center"
        rows = tuple((t.name, t.degree, t.coefficient, t.effect, t.fraction) for t in self.terms)
        notes = [_CANCEL] if self.center is None and any(t.fraction > 1 for t in self.terms) else []
        if self.degree < self.whole:
            notes.append(f"Terms up to degree {self.degree}, of {self.whole}.")
        if self.sampling_error:
            notes.append(
                f"The variance is from samples of the inputs, with a standard error of {self.sampling_error:.1%}."
            )
        return Table(
            ("term", "degree", "coefficient", "effect", "fraction of variance"),
            rows,
            note=" ".join(notes),
            title=f"The {len(rows)} strongest of {self.total} {kind}{where}{about}; constant {self.constant:.4g}",
        )


def strongest_terms(
    poly: Polynomial,
    output: int | str | Array,
    names: Sequence[str] | None,
    k: int,
    center: Array | str | None,
    inputs: Any,
    interactions: bool,
    degree: int | None,
) -> Terms:
    """Return the k strongest terms; the arguments are those of `Polynomial.terms`."""
    k, limit = as_integer("k", k, 1), highest_degree(poly)
    if degree is not None:
        limit = min(as_integer("degree", degree, 1), poly.degree)
    inputs = inputs_of(poly, inputs)
    under, one = numpy_inputs(inputs), single_output(poly, output)
    labels = input_names(poly, names, inputs)
    origin = _origin(center, under)
    about = one if origin is None else one.in_units(1.0, -origin)
    spread = monomial_spread(under, np.zeros(poly.dim_in) if origin is None else origin)
    total, error = _variance(one, under)

    def weights(lead: tuple[int, ...], degree: int) -> np.ndarray:
        """Standard deviations of monomials; zero for powers of one input where interactions are ranked."""
        kept = spread(lead, degree) * (degree > 1 or not interactions)
        if interactions and degree > 1 and len(set(lead)) < 2:
            places = np.asarray(lead[:1] or range(len(kept)))
            kept[places, places] = 0.0
        return kept

    terms = []
    for effect, factors, coefficient in strongest(about, weights, k, limit):
        fraction = effect**2 / total if total > 0 else float("nan")
        terms.append(Term(factors, monomial_name(factors, labels), coefficient, effect, fraction))
    constant = float(about.coefficients().constant[0])
    index = None if np.ndim(output) else check_output(output, poly.dim_out, poly.output_names)
    count = count_monomials(poly.dim_in, limit) - (poly.dim_in * limit if interactions else 0)
    title = output_label(index, poly.dim_out, poly.output_names)
    return Terms(tuple(terms), index, labels, constant, count, origin, title, error, interactions, limit, poly.degree)


def single_output(poly: Polynomial, output: int | str | Array) -> Polynomial:
    """One output as a polynomial in NumPy's float64; a piecewise one without its bounds, where it is a polynomial."""
    one: Any = poly.output(output)
    one = one.polynomial if one.piecewise else one
    return replace(one, inputs=None).to(np.zeros(1))


def numpy_inputs(inputs: Inputs) -> Inputs:
    """Inputs in NumPy's float64."""
    if isinstance(inputs.prototype, np.ndarray) and inputs.prototype.dtype == np.float64:
        return inputs  # as it is, with the roots that it has computed
    return map_arrays(inputs, lambda a: to_numpy(widen(a)).astype(np.float64))


def input_names(poly: Polynomial, names: Sequence[str] | None, inputs: Inputs | None = None) -> tuple[str, ...]:
    """Names of the inputs: those given, those of the inputs, or x0, x1, ..."""
    known = inputs if inputs is not None else poly.inputs
    if names is None and known is not None:
        names = known.names
    return check_names(names, poly.dim_in) or tuple(f"x{i}" for i in range(poly.dim_in))


def monomial_name(factors: Sequence[int], names: Sequence[str]) -> str:
    """A product of powers, "x0^2 · x3"."""
    powers = [(names[i], list(factors).count(i)) for i in dict.fromkeys(factors)]
    return " · ".join(name if power == 1 else f"{name}^{power}" for name, power in powers)


def _origin(center: Array | str | None, inputs: Inputs) -> np.ndarray | None:
    """The point about which to expand, (d,), or None for zero."""
    if center is None:
        return None
    if isinstance(center, str):
        if center != "mean":
            raise ValueError(f"center must be an array (d,), 'mean' or None, got {center!r}.")
        return np.asarray(inputs.mean, dtype=np.float64)
    check_columns("center", center, inputs.names)
    point = as_float_array("center", center, integers=True)
    check_shape("center", point, (inputs.dim,), "one number per input")
    check_finite("center", point)
    return to_numpy(widen(point)).astype(np.float64)


def _variance(one: Polynomial, inputs: Any) -> tuple[float, float]:
    """Variance of a polynomial of one output, and its relative standard error: 0 unless samples are drawn for it."""
    if isinstance(inputs, Samples):
        values = one(inputs.x)[:, 0]
        mean = np.average(values, weights=inputs.weights)
        return float(np.average((values - mean) ** 2, weights=inputs.weights)), 0.0
    if not one.closed_form or not isinstance(inputs, Gaussians):
        values = one(inputs.sample(_DRAWS))[:, 0]
        squares = (values - values.mean()) ** 2
        variance = float(squares.mean())
        return variance, float(squares.std()) / _DRAWS**0.5 / variance if variance > 0 else 0.0
    means, variances = np.array([one.moments(g) for g in inputs.components])[..., 0].T
    weights = np.asarray(inputs.weights, dtype=np.float64)
    return float(weights @ (variances + (means - weights @ means) ** 2)), 0.0


def sympy_expression(
    poly: Polynomial, output: int | str | Array, names: Sequence[str] | None, digits: int | None = None
) -> Any:
    """Return the SymPy expression; the arguments are those of `Polynomial.to_sympy`."""
    sympy = library("sympy", "sympy", "to_sympy")
    labels = input_names(poly, names)
    check_count(poly, _MOST, "poly.terms(k=...) lists the strongest, poly.truncate(2) has fewer")
    symbols, one = [sympy.Symbol(name) for name in labels], single_output(poly, output)
    precision = 15 if digits is None else as_integer("digits", digits, 1)
    constant = sympy.Float(float(one.coefficients().constant[0]), precision)
    products = (
        sympy.Mul(sympy.Float(c, precision), *(symbols[i] for i in factors)) for c, factors in in_order(one) if c
    )
    return sympy.Add(constant, *products)


def text_formula(poly: Polynomial) -> str:
    """One line for each output if the polynomial is small and its values can be read, otherwise its repr."""
    small = count_monomials(poly.dim_in, poly.degree) <= _WRITTEN and poly.dim_out <= _OUTPUTS
    if not small or not readable(poly.prototype):
        return repr(poly)
    names, lines = input_names(poly, None), []
    for i in range(poly.dim_out):
        one = single_output(poly, i)
        constant = (float(one.coefficients().constant[0]), ())
        written = _sum([constant, *(term for term in in_order(one) if term[0])], names)
        lines.append(f"{'p' if poly.dim_out == 1 else f'p{i}'} = {written}")
    return "\n".join(lines)


def _sum(terms: Sequence[tuple[float, tuple[int, ...]]], names: Sequence[str]) -> str:
    """Terms with their signs between them; coefficients of four digits."""
    minus, written = "\N{MINUS SIGN}", ""
    for i, (coefficient, factors) in enumerate(terms):
        sign = minus if coefficient < 0 else "+" if i else ""
        number = f"{abs(coefficient):.4g}".replace("-", minus)
        written += (f" {sign} " if i else sign) + f"{number} {monomial_name(factors, names)}".rstrip()
    return written
