"""One prediction taken apart: by degree, by monomials, by eigenfeatures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlpoly.arrays import Array, on, to_numpy, widen
from mlpoly.arrays.checks import as_float_array, as_integer, check_columns, check_finite, check_output, check_shape
from mlpoly.features.eigen import eigenfeatures
from mlpoly.features.monomials import strongest
from mlpoly.features.term_table import input_names, monomial_name, numpy_inputs, single_output
from mlpoly.fitting import fit
from mlpoly.inputs import Inputs, checked_inputs, inputs_of
from mlpoly.networks import check_network
from mlpoly.polynomials import Polynomial
from mlpoly.tables import Plottable, Table, Tabular, output_label

_HIGHEST = 12  # degree up to which the parts along a line are computed from values on it with all digits
_ALL = 1024  # inputs up to which all eigenfeatures are computed; above, a few dozen of the largest
_SOME = 64
_DEGREES = ("constant", "linear", "quadratic", "cubic", "quartic", "quintic")


def degree_name(degree: int) -> str:
    """Return "linear", "quadratic", ... or "degree 6"."""
    return _DEGREES[degree] if degree < len(_DEGREES) else f"degree {degree}"


@dataclass(frozen=True)
class Contribution:
    """What one monomial or one eigenfeature adds to a prediction."""

    name: str
    amount: float  # of an eigenfeature: the eigenvalue times the square of the feature's value
    inputs: tuple[int, ...] = ()  # factors of a monomial, ascending and repeated for powers
    eigenvalue: float | None = None
    pattern: np.ndarray | None = None  # (d,), direction of an eigenfeature in input space, one standard deviation long


@dataclass(frozen=True, repr=False)
class Explanation(Tabular, Plottable):
    """One prediction of a polynomial taken apart about the mean m of the inputs, with u = x - m.

    Attributes
    ----------
    point, network, polynomial : array (d,), float or None, float
        The point x and the values there.
    parts : array (n + 1,)
        p(m), the linear part g.u, the quadratic part u'Cu, ...; they add up to `polynomial`.
    terms, features : tuple of Contribution
        The monomials in u, and the eigenfeatures of the quadratic part, that moved the prediction most.
    """

    point: np.ndarray
    output: int | None  # None for a direction in output space
    network: float | None
    polynomial: float
    parts: np.ndarray
    terms: tuple[Contribution, ...]
    features: tuple[Contribution, ...]
    names: tuple[str, ...]  # of the d inputs
    output_name: str = ""  # in titles; empty for the only one, if it has no name

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of the parts: "constant", "linear", "quadratic", ..."""
        return tuple(map(degree_name, range(len(self.parts))))

    @property
    def other_terms(self) -> float:
        """What all monomials that are not listed add up to."""
        return float(np.sum(self.parts[1:]) - sum(term.amount for term in self.terms))

    @property
    def other_features(self) -> float:
        """What all eigenfeatures that are not listed add up to; with the listed ones, that is the quadratic part."""
        return float(np.sum(self.parts[2:3]) - sum(feature.amount for feature in self.features))

    def _table(self) -> Table:
        rows: list[tuple[str, str, float | None]] = [
            ("part", name, float(amount)) for name, amount in zip(self.part_names, self.parts, strict=True)
        ]
        rows += [("term", term.name, term.amount) for term in self.terms]
        rows += [("term", "all others", self.other_terms)]
        rows += [("feature", feature.name, feature.amount) for feature in self.features]
        if self.features and abs(self.other_features) > 1e-9 * abs(self.features[0].amount):  # more than rounding
            rows += [("feature", "all others", self.other_features)]
        rows += [("total", "polynomial", self.polynomial)]
        rows += [] if self.network is None else [("total", "network", self.network)]
        where = self.output_name and f" of {self.output_name}"
        note = "terms and features are about the mean of the inputs; parts add up to the polynomial"
        return Table(("", "what", "amount"), tuple(rows), title=f"A prediction{where} taken apart", note=note)


def explain(
    net_or_poly: Any,
    x: Array,
    inputs: Any = None,
    *,
    output: int | str | Array = 0,
    degree: int = 2,
    k: int = 10,
    names: Sequence[str] | None = None,
) -> Explanation:
    """Take one prediction apart: constant, linear, quadratic, ... parts that add up, and what moved it most.

    Everything is about the mean m of the inputs: the constant is p(m), and the other parts say why this point differs
    from the mean one.

    Parameters
    ----------
    net_or_poly : network or Polynomial
        To a network the polynomial of the given `degree` is fitted first.
    x : array (d,)
    inputs : Gaussian, GaussianMixture, Samples or data (n, d), optional
        Inputs whose mean the point is compared with; by default those that a polynomial was fitted under.
    output : int, str or array (o,)
        Index or name of the output, or a direction in output space, such as a difference of two logits.
    k : int
        Number of terms and of eigenfeatures that are listed.
    names : sequence of d str, optional
        Names of the inputs; by default those that `inputs` has.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.array([[1.0, 2.0]]), None, np.ones((1, 1)), None, "square")  # (x0 + 2 x1)^2
    >>> taken_apart = mp.explain(net, np.array([1.0, 1.0]), mp.Gaussian.standard(2))
    >>> [(term.name, round(term.amount, 6)) for term in taken_apart.terms]
    [('x0 · x1', 4.0), ('x1^2', 4.0), ('x0^2', 1.0)]
    """
    k = as_integer("k", k, 1)
    network = None
    if isinstance(net_or_poly, Polynomial):
        poly, inputs = net_or_poly, inputs_of(net_or_poly, inputs)
    else:
        net = check_network(net_or_poly)
        if inputs is None:
            raise ValueError("inputs is None; a network needs them, for example Gaussian.from_samples(x).")
        inputs = checked_inputs(net, inputs)
        poly = fit(net, inputs, degree)
    one, under = single_output(poly, output), numpy_inputs(inputs)
    index = None if np.ndim(output) else check_output(output, poly.dim_out, poly.output_names)
    if one.degree > _HIGHEST:
        remedy = f"explain one of at most {_HIGHEST}, such as mlpoly.fit(net, inputs, 2)"
        raise ValueError(f"the polynomial has degree {one.degree}; {remedy}.")
    labels = input_names(poly, names, inputs)
    check_columns("x", x, inputs.names)
    point = as_float_array("x", x, integers=True)
    check_shape("x", point, (poly.dim_in,), "one point, as many numbers as there are inputs")
    check_finite("x", point)
    if not isinstance(net_or_poly, Polynomial):
        values = net(on(point, net.prototype))
        network = float(to_numpy(values @ on(output, values) if index is None else values[index]))
    here = to_numpy(widen(point)).astype(np.float64)
    mean = np.asarray(under.mean, dtype=np.float64)
    u, about = here - mean, one.in_units(1.0, -mean)

    def moved(lead: tuple[int, ...], degree: int) -> np.ndarray:
        """Values of the monomials of a slice at u."""
        return u if degree == 1 else np.prod(u[list(lead)]) * u[:, None] * u

    terms = tuple(
        Contribution(monomial_name(factors, labels), amount, factors)
        for amount, factors, _ in strongest(about, moved, k)
    )
    # The coefficients of p(s u) as a polynomial in s. At Chebyshev points a polynomial of degree n is determined best;
    # the change to powers of s costs few digits, and drops zeros at the end.
    along = np.polynomial.chebyshev.chebinterpolate(lambda s: about(s[:, None] * u)[:, 0], about.degree)
    parts = np.polynomial.chebyshev.cheb2poly(along)
    return Explanation(
        point=here,
        output=index,
        network=network,
        polynomial=float(one(here)[0]),
        parts=np.pad(parts, (0, about.degree + 1 - len(parts))),
        terms=terms,
        features=_features(about, under, u, k) if about.degree >= 2 else (),
        names=labels,
        output_name=output_label(index, poly.dim_out, poly.output_names),
    )


def _features(about: Polynomial, inputs: Inputs, u: np.ndarray, k: int) -> tuple[Contribution, ...]:
    """The eigenfeatures of the quadratic part with the largest amounts value_j (v_j.z)^2, where u = S^(1/2) z."""
    inverse = np.asarray(inputs.inverse_root)
    z = inverse * u if inverse.ndim == 1 else inverse @ u
    count = about.dim_in if about.dim_in <= _ALL else _SOME
    pairs = eigenfeatures(about, output=0, k=count, metric="whitened", inputs=inputs)
    amounts = pairs.values * (pairs.vectors @ z) ** 2
    top = np.argsort(-np.abs(amounts), kind="stable")[:k]
    return tuple(
        Contribution(f"feature {j + 1}", float(amounts[j]), (), float(pairs.values[j]), np.asarray(pairs.directions[j]))
        for j in top.tolist()
    )
