"""The closest polynomial under inputs that are neither Gaussians nor data: by quadrature, or on points (MATH 18)."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from mlpoly.arrays import Array, chunks, differentiated, namespace, no_gradients, readable, scalar, take_rows
from mlpoly.arrays.placement import cast_like, constant, eye, widen
from mlpoly.errors import TooLargeError
from mlpoly.fitting.report import FitReport
from mlpoly.fitting.samples.exact import fit_samples
from mlpoly.fitting.samples.neuronwise import fit_samples_neuronwise
from mlpoly.inputs import Independent, Inputs
from mlpoly.inputs.independent import SPARE
from mlpoly.moments.hermite_products import check_monomials, exchanged, ladder
from mlpoly.networks import Layer, Network, layers_of
from mlpoly.polynomials import ChaosPolynomial, Polynomial, RidgePolynomial, Source
from mlpoly.records import arrays_of, replace
from mlpoly.scores import ErrorSums

P = TypeVar("P", bound=Polynomial)

METHOD = "least squares under independent inputs"
# Excess of a grid over that before it, which makes another one needless: relative to the variance of the network, so
# that moments are right, and to the error of the polynomial, where that is larger than rounding.
_OF_VARIANCE, _OF_MISFIT, _FLOOR = 1e-8, 1e-5, 1e-12
_NUMBERS = 2**22  # values of hidden units at once
POINTS, _EACH, _TERMS, _FRESH = 2**15, 20, 2000, 2**14


def fit_distribution(net: Network, inputs: Inputs, degree: int) -> ChaosPolynomial | RidgePolynomial:
    """The optimum over all polynomials, on a grid of Gauss nodes for few independent inputs, else on points.

    For more than 2000 monomials the polynomial of one hidden layer is found neuron by neuron.
    """
    if isinstance(inputs, Independent) and (most := inputs.finest(degree)):
        return _by_quadrature(net, inputs, degree, most)
    terms = math.comb(inputs.dim + degree, degree)
    if terms <= _TERMS:
        return on_points(lambda x: fit_samples(net, x, degree), net, inputs, max(POINTS, _EACH * terms))
    if isinstance(net, Layer):
        return on_points(lambda x: fit_samples_neuronwise(net, x, degree), net, inputs)
    raise TooLargeError(
        f"degree {degree} in {inputs.dim} inputs has {terms} monomials, more than {_TERMS}; use method='composed', or "
        f"a lower degree."
    )


def on_points(fit: Callable[[Any], P], net: Network, inputs: Inputs, count: int = POINTS) -> P:
    """A fit to points of the inputs, with its error on others in the report."""
    data, fresh = inputs.points(count), inputs.points(_FRESH, seed=1).x
    poly = fit(data)
    with no_gradients(net.prototype):
        x = cast_like(fresh, net.prototype)
        sums = ErrorSums(standard_error=False).update(net(x), poly(x))
        known = readable(sums.variance) and scalar(namespace(x=x).sum(sums.variance)) > 0
        fvu = scalar(sums.total) if known else None
    report = poly.report or FitReport(poly.source.method, "")
    summary = ", ".join(filter(None, (report.summary, f"on {data.count} points of the inputs")))
    return replace(poly, inputs=inputs, report=replace(report, summary=summary, fvu=fvu))


def _by_quadrature(net: Network, inputs: Independent, degree: int, most: int) -> ChaosPolynomial:
    """Projections on the orthonormal polynomials, on a grid that is fine enough."""
    check_monomials(inputs.dim, degree, "use a lower degree")
    inputs.check_degree(degree)
    own = ladder(inputs.dim, degree)
    arrays = (inputs.center, inputs.scale, *arrays_of(net).values())
    size, report, found = min(most, 2 * (degree + SPARE)), None, None
    if readable(*arrays):
        with no_gradients(net.prototype):
            size, report, found = _fine_enough(net, inputs, degree, most, own.exponents)
    if found is None or any(map(differentiated, arrays)):
        grid = _Grid(inputs, degree, size)
        found = grid.project(grid.values(net), own.exponents)
    in_hermite = exchanged(found, [law.in_hermite(degree) for law in inputs.marginals], own)
    center, scale = widen(inputs.center), widen(inputs.scale)
    center, whitener, values = (
        cast_like(a, net.prototype) for a in (center, eye(inputs.dim, scale) / scale, in_hermite.T)
    )
    source = Source(net.activation_names, METHOD)
    return ChaosPolynomial(center, whitener, own.exponents, values, inputs=inputs, report=report, source=source)


def _fine_enough(
    net: Network, inputs: Independent, degree: int, most: int, exponents: np.ndarray
) -> tuple[int, FitReport, Array]:
    """Number of nodes of each input at which the answers of two grids agree, or the most; how good that is; and it."""
    size, last, excess, close = min(degree + SPARE, most - 2), None, 0.0, False
    while True:
        grid = _Grid(inputs, degree, size)
        values = grid.values(net)
        found, variance = grid.project(values, exponents), grid.variance(values)
        if last is not None:
            excess = scalar(namespace(found=found).sum((found - last) ** 2))
            misfit = grid.mean_square(values - grid.combine(found, exponents))
            close = excess <= max(_FLOOR * variance, min(_OF_VARIANCE * variance, _OF_MISFIT * misfit))
            if close or size == most:
                break
        size, last = min(size * 3 // 2, most), found
    fvu = misfit / variance if variance > 0 else None
    summary = f"{len(exponents)} monomials, on a grid of {size}{f'^{inputs.dim}' if inputs.dim > 1 else ''} nodes"
    details = {"nodes": size**inputs.dim, "terms": len(exponents)}
    return size, FitReport(METHOD, summary, misfit, excess, fvu, converged=close, details=details), found


class _Grid:
    """A grid of quadrature nodes of independent inputs, with `size` nodes of each."""

    def __init__(self, inputs: Independent, degree: int, size: int) -> None:
        self.size, self.dim, self.points = size, inputs.dim, inputs.grid(size, degree)
        rules = {law: law.rule(size, degree) for law in dict.fromkeys(inputs.marginals)}
        self.nodes, self.weights = zip(*(rules[law] for law in inputs.marginals), strict=True)
        self.basis = [law.values(u, degree) for law, u in zip(inputs.marginals, self.nodes, strict=True)]
        # Of rules that integrate no product of two of the polynomials exactly, least squares still returns them.
        roots = [np.sqrt(w)[:, None] for w in self.weights]
        self.inverse = [np.linalg.pinv(r * V) * r.T for r, V in zip(roots, self.basis, strict=True)]

    def values(self, net: Network) -> Array:
        """The network at all nodes, (size, ..., size, o)."""
        points, xp = self.points.x, namespace(x=self.points.x)
        width = max(max(layer.dim_in, layer.dim_hidden) for layer in layers_of(net))
        rows = chunks(self.points.count, max(1, _NUMBERS // width))
        parts = [widen(net(cast_like(points[part, ...], net.prototype))) for part in rows]
        return xp.reshape(xp.concat(parts), (*[self.size] * self.dim, -1))

    def project(self, values: Array, exponents: np.ndarray) -> Array:
        """Coefficients (t, o) of values at the nodes."""
        table = self._contracted(values, self.inverse)
        flat = namespace(table=table).reshape(table, (-1, table.shape[-1]))
        return take_rows(flat, np.ravel_multi_index(exponents.T, table.shape[:-1]))

    def combine(self, found: Array, exponents: np.ndarray) -> Array:
        """Values at the nodes of coefficients (t, o)."""
        shape = [V.shape[1] for V in self.basis]
        place = np.full(int(np.prod(shape)), len(exponents))
        place[np.ravel_multi_index(exponents.T, shape)] = np.arange(len(exponents))
        xp = namespace(found=found)
        table = take_rows(xp.concat([found, found[:1, :] * 0]), place)
        return self._contracted(xp.reshape(table, (*shape, -1)), self.basis)

    def _contracted(self, table: Array, matrices: list[np.ndarray]) -> Array:
        """Every axis but the last multiplied with its matrix."""
        xp = namespace(table=table)
        for matrix in matrices:  # the axis in front goes behind the others
            table = xp.moveaxis(xp.tensordot(constant(matrix, table), table, axes=1), 0, self.dim - 1)
        return table

    def mean_square(self, values: Array) -> float:
        """E|f|^2, of all outputs together."""
        return scalar(self._mean(namespace(values=values).sum(values**2, axis=-1)[..., None])[0])

    def variance(self, values: Array) -> float:
        """Variance of all outputs together."""
        return self.mean_square(values - self._mean(values))

    def _mean(self, values: Array) -> Array:
        mean = self._contracted(values, [w[None, :] for w in self.weights])
        return namespace(mean=mean).reshape(mean, (-1,))
