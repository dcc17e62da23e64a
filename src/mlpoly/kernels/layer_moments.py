"""Moments of the outputs of one layer under one Gaussian, from the kernel of its hidden units (MATH 5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mlpoly.arrays import Array, eye, namespace, widen
from mlpoly.inputs import Gaussian
from mlpoly.kernels.pairs import Kernel, PolynomialKernel, Tail, kernel_of
from mlpoly.networks import Layer
from mlpoly.polynomials import RidgePolynomial
from mlpoly.progress_bars import progress_bar
from mlpoly.records import map_arrays, record
from mlpoly.units import Angles, OutputSum, Units, angle_count, angles, energies, terms


@dataclass(frozen=True, eq=False)
class Hidden:
    """Hidden units and readout of a layer under one Gaussian, in float64 where the library has it."""

    kernel: Kernel  # covariances of the hidden units
    net: Any  # a Layer, or a RidgePolynomial
    inputs: Gaussian

    @property
    def readout(self) -> Array:
        """Weights (o, h) from units to outputs."""
        return eye(self.kernel.units.size, self.kernel.variances) if self.net.readout is None else self.net.readout

    def best(self, degree: int) -> RidgePolynomial:
        """The layer's own best polynomial of a degree, with zeros beyond that of a polynomial."""
        units, series = self.kernel.units, self.kernel.series
        if degree > series.degree:
            polynomial = isinstance(self.kernel, PolynomialKernel)
            gated = series.gated is not None
            series = series.padded(degree, gated) if polynomial else units.expand(self.kernel.activation, degree)
        return RidgePolynomial(units, series.truncate(degree), readout=self.net.readout, bias=self.net.bias)

    def chunks(self) -> Iterator[tuple[slice, slice, Angles]]:
        """Inner products of all hidden units, chunk by chunk."""
        units = self.kernel.units
        with progress_bar("pairs of hidden units", angle_count(units)) as update:
            for done, chunk in enumerate(angles(units, self.inputs)):
                update(done, "")
                yield chunk


@record
class Variance:
    """Mean of the outputs (o,), their variance by degree (n, o) and above n (o,), and its truncation error (o,)."""

    mean: Array
    head: Array
    tail: Array
    bound: Array


def hidden_of(net: Layer | RidgePolynomial, inputs: Gaussian, degree: int) -> Hidden:
    """Hidden units of a layer, or of a polynomial, under one Gaussian, with series up to `degree` at least."""
    if isinstance(net, RidgePolynomial):
        poly = net.rebase(inputs)
        series = poly.series.padded(max(degree, poly.degree), poly.series.gated is not None)
        return Hidden(PolynomialKernel(poly.units, series), poly, map_arrays(inputs, widen))
    net, inputs = map_arrays((net, inputs), widen)
    units = Units.under(net, inputs, spreads=True)
    return Hidden(kernel_of(net.activation, units, degree), net, inputs)


def output_moments(hidden: Hidden) -> tuple[Array, Array, Array]:
    """Mean (o,) and covariance (o, o) of the outputs, and a bound (o, o) on the truncation error of the covariance."""
    readout = hidden.readout
    total, cut = OutputSum(readout, full=True), OutputSum(namespace(w=readout).abs(readout), full=True)
    for rows, columns, inner in hidden.chunks():
        _add_tail(total, cut, rows, columns, hidden.kernel.tail(rows, columns, inner, 0))
    return hidden.best(0).mean(), total.value, cut.value if cut.used else total.value * 0


def variance_by_degree(hidden: Hidden, degree: int) -> Variance:
    """Variance of every output at degree 1, ..., `degree` and above; never an (o, o) array."""
    kernel, readout = hidden.kernel, hidden.net.readout
    xp = namespace(variances=kernel.variances)
    if readout is None:  # the units are the outputs: no pair is needed
        energy = energies(kernel.series, kernel.units)[1 : degree + 1, ...]
        rest = xp.clip(kernel.variances - xp.sum(energy, axis=0), 0, None)
        return Variance(hidden.best(0).mean(), energy, rest, rest * 0)
    head = [OutputSum(readout, full=False) for _ in range(degree)]
    tail, bound = OutputSum(readout, full=False), OutputSum(xp.abs(readout), full=False)
    for rows, columns, inner in hidden.chunks():
        left, right = kernel.series.rows(rows), kernel.series.columns(columns)
        for total, term in zip(head, terms(left, right, inner, degree), strict=True):
            total.add(rows, columns, term)
        _add_tail(tail, bound, rows, columns, kernel.tail(rows, columns, inner, degree))
    zero = tail.value * 0
    stacked = xp.stack([h.value for h in head]) if head else zero[None, :][:0, :]
    return Variance(hidden.best(0).mean(), stacked, xp.clip(tail.value, 0, None), bound.value if bound.used else zero)


def _add_tail(total: OutputSum, bound: OutputSum, rows: slice, columns: slice, tail: Tail) -> None:
    """Add the covariance of two chunks of units, and the bound on its truncation error."""
    total.add(rows, columns, tail.matrix)
    if tail.bound is not None:
        bound.add(rows, columns, tail.bound)
