"""Two networks, or polynomials, compared: E[f.g], E|f - g|^2 and their cosine, without sampling (MATH 11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlpoly.arrays import Array, as_integer, cast_result, eye, namespace, readable, scalar, to_numpy, widen
from mlpoly.inputs import Gaussian, InputsLike, Samples, as_inputs, check_order
from mlpoly.kernels import cross_covariance, hidden_of, variance_by_degree
from mlpoly.measures.arguments import check_functions
from mlpoly.measures.second_moments import components
from mlpoly.networks import Layer, Network, check_layer
from mlpoly.plottable import Plottable
from mlpoly.polynomials import Polynomial, RidgePolynomial
from mlpoly.records import map_arrays, record, replace
from mlpoly.tables import Cell, Table, Tabular
from mlpoly.units import Series


@record
class Overlap:
    """Inner products of two functions f and g: numbers, or one for each output or degree.

    Attributes
    ----------
    inner : array
        E[f g].
    first, second : array
        E[f^2] and E[g^2].
    distance : array
        E[(f - g)^2], as the difference of the others: a distance that is far smaller than both has their rounding.
    cosine : array
        E[f g] / sqrt(E[f^2] E[g^2]).
    """

    inner: Array
    first: Array
    second: Array

    @property
    def distance(self) -> Array:
        """E[(f - g)^2]."""
        return namespace(inner=self.inner).clip(self.first + self.second - 2 * self.inner, 0, None)

    @property
    def cosine(self) -> Array:
        """E[f g] / sqrt(E[f^2] E[g^2]); zero where one of the two is zero."""
        xp = namespace(inner=self.inner)
        some = (self.first > 0) & (self.second > 0)
        # The product of both leaves the range of floats long before they do.
        first, second = (xp.sqrt(xp.where(some, a, 1.0)) for a in (self.first, self.second))
        return xp.where(some, self.inner / first / second, 0.0)

    def rows(self, names: Sequence[str]) -> list[tuple[Cell, ...]]:
        """Rows of a table: name, inner product, distance and cosine of each output or degree."""
        numbers = [to_numpy(a).tolist() for a in (self.inner, self.distance, self.cosine)]
        return list(zip(names, *numbers, strict=True))


@record
class Similarity(Overlap, Tabular, Plottable):
    """Two networks or polynomials compared; numbers are sums over the outputs.

    Attributes
    ----------
    inner, first, second, distance, cosine : array ()
        As in `Overlap`, summed over outputs: E[f.g], E|f|^2, E|g|^2, E|f - g|^2, and the cosine of f and g.
    per_output : Overlap
        The same for each output, (o,).
    by_degree : Overlap or None
        The same at degree 0, 1, ..., n and above n, (n + 2,): what constants, linear maps, quadratics, ... have in
        common. For a mixture these are the degrees within its components. None on samples.
    bound : array ()
        Bound on the error of `inner` from truncated series, rounding aside.
    """

    per_output: Overlap = None  # type: ignore[assignment]
    by_degree: Overlap | None = None
    bound: Array = None

    def __repr__(self) -> str:
        if not readable(self.inner):
            return "Similarity(traced)"
        found = {name: scalar(getattr(self, name)) for name in ("inner", "distance", "cosine")}
        return f"Similarity({', '.join(f'{name}={value:.4g}' for name, value in found.items())})"

    def _table(self) -> Table:
        rows: list[tuple[Cell, ...]] = [("all", *(scalar(a) for a in (self.inner, self.distance, self.cosine)))]
        if self.by_degree is not None:
            last = self.by_degree.inner.shape[0] - 2
            names = [*(f"degree {k}" for k in range(last + 1)), f"above {last}"]
            rows += self.by_degree.rows(names)
        rows += self.per_output.rows([f"output {i}" for i in range(self.per_output.inner.shape[0])])
        return Table(("", "E[f.g]", "E|f - g|^2", "cosine"), tuple(rows), title="Two functions compared", limit=30)


def similarity(
    f: Network | Polynomial, g: Network | Polynomial, inputs: InputsLike, centred: bool = False, max_degree: int = 4
) -> Similarity:
    """Inner product, distance and cosine of two networks or polynomials under the same inputs.

    Nothing is sampled under a Gaussian or a mixture: E[f.g] is a sum over pairs of hidden units, exact for two
    piecewise-linear activations, otherwise a series with a bound. It does not change when hidden units are permuted, or
    rescaled where the activation allows that. With PyTorch, and with JAX outside jit, it can be differentiated with
    respect to all weights, so that ``similarity(f, g, inputs).distance`` is a loss without data.

    Parameters
    ----------
    f, g : network with one hidden layer, or Polynomial
        Of the same numbers of inputs and outputs; any activations, gated or not.
    inputs : Gaussian, GaussianMixture, Samples or data (n, d)
    centred : bool
        Compare f - E[f] with g - E[g]; the cosine is then a correlation.
    max_degree : int
        Highest degree that is listed separately.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> relu, line = (mp.MLP(np.eye(1), None, None, None, name) for name in ("relu", "identity"))
    >>> round(float(mp.similarity(relu, line, mp.Gaussian.standard(1)).inner), 6)  # E[x relu(x)]
    0.5
    """
    n = as_integer("max_degree", max_degree, 0)
    check_functions(f, g, ("f", "g"))
    inputs = as_inputs(inputs)
    check_order(inputs, f.names, "f")
    check_order(inputs, g.names, "g")
    if isinstance(inputs, Samples):
        return _on_samples(f, g, inputs, centred)
    one, two = _checked("f", f), _checked("g", g)
    namespace(f=one.prototype, g=two.prototype)
    rows: list[Array] = [0.0, 0.0, 0.0]
    means: list[Array] = [0.0, 0.0]
    bounds: Array = 0.0
    for weight, part in components(one, inputs):
        left, right = _Expansion(one, part, n), _Expansion(two, part, n)
        cross, bound = left.with_other(right, n)
        found = (cross, left.own(n), right.own(n))
        rows = [total + weight * each for total, each in zip(rows, found, strict=True)]
        means = [total + weight * each.mean for total, each in zip(means, (left, right), strict=True)]
        bounds = bounds + weight * bound
    if centred:
        first, second = means
        products = (first * second, first * first, second * second)
        xp = namespace(rows=rows[0])
        rows = [xp.concat([(r[0, :] - p)[None, :], r[1:, :]]) for r, p in zip(rows, products, strict=True)]
    return _summed(rows, namespace(rows=rows[0]).sum(bounds), one.prototype)


def _summed(rows: list[Any], bound: Array, like: Array) -> Similarity:
    """From E[f g], E[f^2] and E[g^2] by degree and output, (n + 2, o) each."""
    xp = namespace(rows=rows[0])
    made = [cast_result(a, like) for r in rows for a in (xp.sum(r), xp.sum(r, axis=0), xp.sum(r, axis=1))]
    total, outputs, degrees = (made[i::3] for i in range(3))
    inner, first, second = total
    return Similarity(inner, first, second, Overlap(*outputs), Overlap(*degrees), cast_result(bound, like))


class _Expansion:
    """A network or polynomial under one Gaussian, degree by degree."""

    def __init__(self, function: Any, inputs: Gaussian, degree: int) -> None:
        self.function, self.inputs = function, map_arrays(inputs, widen)
        self.hidden = None
        if isinstance(function, Layer | RidgePolynomial):
            self.hidden = hidden_of(function, inputs, max(degree, 1))
            self.mean = self.hidden.best(0).mean()
        else:
            self.function = map_arrays(replace(function, inputs=None), widen)
            self.energies = self.function.energies(self.inputs)
            self.mean = self.function.moments(self.inputs)[0]

    def own(self, n: int) -> Array:
        """E[f^2] of every output at degree 0, ..., n and above, (n + 2, o)."""
        xp = namespace(mean=self.mean)
        if self.hidden is not None:
            spread = variance_by_degree(self.hidden, n)
            return xp.concat([(self.mean**2)[None, :], spread.head, spread.tail[None, :]])
        return _padded(self.energies, n)

    def with_other(self, other: _Expansion, n: int) -> tuple[Array, Array]:
        """E[f g] at degree 0, ..., n and above, (n + 2, o), and a bound (o,) on its truncation error."""
        xp = namespace(mean=self.mean)
        level = (self.mean * other.mean)[None, :]
        if self.hidden is not None and other.hidden is not None:
            found = cross_covariance(self.hidden, other.hidden, self.inputs.times_covariance, n)
            return xp.concat([level, found.head, found.tail[None, :]]), found.bound
        if self.hidden is None and other.hidden is None:
            ratio = _ratio(*(xp.sum(each.energies, axis=0) for each in (self, other)))
            apart = _times(self.function, ratio) - other.function
            both = apart.energies(self.inputs)
            one, two = (_padded(e, both.shape[0] - 1)[:-1, :] for e in (self.energies, other.energies))
            return _padded((one * ratio**2 + two - both) / (2 * ratio), n), level[0, :] * 0
        if self.hidden is None:
            return other.with_other(self, n)
        # The part of f at degree k has the inner product with g that it has with g's part at degree k.
        best = self.hidden.best(max(other.function.degree, 1))
        own = xp.sum(other.energies[1:, :], axis=0)
        rows = [level[0, :]]
        for k in range(1, other.function.degree + 1):
            part = replace(best, series=_only(best.series, k))
            variance = part.variance(self.hidden.inputs)
            ratio = _ratio(variance, own)
            gap = other.function.gap(_times(part, ratio), self.hidden.inputs)[1]
            rows.append((variance * ratio**2 + own - gap) / (2 * ratio))
        return _padded(xp.stack(rows), n), level[0, :] * 0


def _ratio(first: Array, second: Array) -> Array:
    """Factors (o,) that bring functions with these mean squares to one size; one where a function is zero.

    E[f g] is a difference of squares, from which the smaller function would be lost beside a much larger one.
    """
    xp = namespace(first=first)
    some = (first > 0) & (second > 0)
    return xp.sqrt(xp.where(some, second, 1.0)) / xp.sqrt(xp.where(some, first, 1.0))


def _times(function: Polynomial, factors: Array) -> Polynomial:
    """A polynomial with each output times a factor."""
    return function._mapped(eye(function.dim_out, factors) * factors)


def _only(series: Series, k: int) -> Series:
    """The terms of degree k alone."""

    def at(a: Array, row: int) -> Array:
        xp = namespace(a=a)
        return xp.concat([a[:row, :] * 0, a[row : row + 1, :], a[row + 1 :, :] * 0])

    return Series(at(series.plain, k), None if series.gated is None else at(series.gated, k - 1))


def _padded(rows: Array, n: int) -> Array:
    """Rows (m + 1, o) of degrees 0, ..., m as rows of degrees 0, ..., n and above, (n + 2, o)."""
    xp = namespace(rows=rows)
    above = xp.sum(rows[n + 1 :, :], axis=0)[None, :]
    missing = [rows[:1, :] * 0] * (n + 1 - rows.shape[0])
    return xp.concat([rows[: n + 1, :], *missing, above])


def _checked(name: str, function: Any) -> Any:
    if isinstance(function, Polynomial):
        if not function.closed_form or function.piecewise:
            raise TypeError(
                f"{name} is a {type(function).__name__}, for which there is no closed form; compare it on data, with "
                f"inputs=Samples(x), or take its .polynomial."
            )
        return function
    return check_layer(function)


def _on_samples(f: Any, g: Any, inputs: Samples, centred: bool) -> Similarity:
    """Averages over samples, which have no degrees."""
    xp = namespace(x=inputs.x)
    one, two, weights = [], [], []
    for x, w in inputs.chunks(2**14):
        one.append(widen(f(x)))
        two.append(widen(g(x)))
        weights.append(w)
    first, second, w = xp.concat(one), xp.concat(two), xp.concat(weights)
    if centred:
        first, second = first - xp.sum(w * first, axis=0), second - xp.sum(w * second, axis=0)
    outputs = [
        cast_result(xp.sum(w * a * b, axis=0), f.prototype)
        for a, b in ((first, second), (first, first), (second, second))
    ]
    inner, first, second = (xp.sum(a) for a in outputs)
    return Similarity(inner, first, second, Overlap(*outputs), None, inner * 0)
