"""Covariances between the outputs of two layers, or of one layer at inputs that share only a part (MATH 10, 11).

E[f(x) g(x')] needs the pair kernels of hidden units with the inner products of x and x': x' = x compares two networks,
and x' that has some inputs in common with x and is otherwise drawn anew gives the variance of E[f | these inputs].
"""

from __future__ import annotations

from collections.abc import Callable

from mlpoly.arrays import Array, namespace
from mlpoly.kernels.layer_moments import Hidden
from mlpoly.kernels.pairs import (
    AffineKernel,
    Kernel,
    PolynomialKernel,
    SeriesKernel,
    Tail,
    WaveKernel,
    affine_tail,
    series_tail,
    wave_tail,
)
from mlpoly.records import record, replace
from mlpoly.units import Angles, Gate, Units, angles_between, terms


@record
class CrossCovariance:
    """Covariance of every output of one layer with the same output of another, by degree.

    Attributes
    ----------
    head : array (n, o)
        At degree 1, ..., n.
    tail : array (o,)
        Above degree n.
    bound : array (o,)
        Bound on the error of `tail` from truncated series.
    """

    head: Array
    tail: Array
    bound: Array


def cross_covariance(
    one: Hidden, two: Hidden, times: Callable[[Array], Array], degree: int = 0, symmetric: bool = False
) -> CrossCovariance:
    """Covariance of the outputs of two layers with the same number of outputs, output by output.

    Parameters
    ----------
    one, two : Hidden
        Layers with their units under the inputs x and x', with series up to `degree` at least.
    times : callable
        Product of rows (m, d) with the covariance of x and x'.
    degree : int
        Degrees that are listed one by one.
    symmetric : bool
        Whether both layers are the same, and the covariance of x and x' is symmetric: pairs are then needed once.
    """
    kernel = _Cross(one.kernel, two.kernel, degree)
    left, right = one.readout, two.readout
    xp = namespace(left=left)
    zero = left[:, 0] * 0
    head, tail, bound = [zero] * degree, zero, zero

    def added(rows: slice, columns: slice, chunk: Array, absolute: bool = False) -> Array:
        """Diagonal of W M V' for a chunk M of the covariances of the units."""
        W, V = left[:, rows], right[:, columns]
        return xp.vecdot(xp.abs(W) @ chunk, xp.abs(V)) if absolute else xp.vecdot(W @ chunk, V)

    for rows, columns, inner in angles_between(kernel.one.units, kernel.two.units, times):
        series = kernel.one.series.rows(rows), kernel.two.series.columns(columns)
        head = [h + added(rows, columns, t) for h, t in zip(head, terms(*series, inner, degree), strict=True)]
        found = kernel.tail(rows, columns, inner, degree, symmetric and rows == columns)
        tail = tail + added(rows, columns, found.matrix)
        if found.bound is not None:
            bound = bound + added(rows, columns, found.bound, absolute=True)
    stacked = xp.stack(head) if head else zero[None, :][:0, :]
    return CrossCovariance(stacked, tail, bound)


class _Cross:
    """The pair kernel of two families of units: exact where both have an exact one of the same kind, else a series."""

    def __init__(self, one: Kernel, two: Kernel, degree: int) -> None:
        self.one, self.two = one, two
        self.exact = any(isinstance(one, kind) and isinstance(two, kind) for kind in (AffineKernel, WaveKernel))
        if not self.exact:
            gated = one.units.gate is not None or two.units.gate is not None
            self.one, self.two = (_as_series(kernel, gated, degree) for kernel in (one, two))

    def tail(self, rows: slice, columns: slice, angles: Angles, degree: int, symmetric: bool) -> Tail:
        """Covariance of two chunks of units at all degrees above `degree`."""
        one, two = self.one, self.two
        if isinstance(one, AffineKernel) and isinstance(two, AffineKernel):
            return affine_tail(one, two, rows, columns, angles, degree, symmetric)
        if isinstance(one, WaveKernel) and isinstance(two, WaveKernel):
            return wave_tail(one, two, rows, columns, angles, degree)
        assert isinstance(one, SeriesKernel) and isinstance(two, SeriesKernel)
        return series_tail(one, two, rows, columns, angles, degree, own=False)


def _as_series(kernel: Kernel, gated: bool, degree: int) -> SeriesKernel:
    """The kernel as a series; with `gated`, plain units get a second factor that is always one."""
    units = kernel.units
    if gated and units.gate is None:
        units = replace(units, gate=_constant_factor(units))
        if isinstance(kernel, PolynomialKernel):
            return PolynomialKernel(units, kernel.series.padded(kernel.series.degree, gated=True))
    elif isinstance(kernel, SeriesKernel):
        return kernel
    return SeriesKernel(kernel.activation, units, kernel.variances, degree)


def _constant_factor(units: Units) -> Gate:
    flat = units.shifts * 0
    return Gate(units.directions * 0, flat, flat, flat + 1, flat)
