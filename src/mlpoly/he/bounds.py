"""Bounds on every number of a circuit, for all inputs in a region."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from mlpoly.arrays import as_float_array, check_finite, check_shape, to_numpy
from mlpoly.he.circuit import Circuit, LinearTerm
from mlpoly.he.lowering import CAPACITY
from mlpoly.he.ranges import forms_under
from mlpoly.inputs import Gaussian, GaussianMixture, Inputs
from mlpoly.tables import Table, Tabular

Interval = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Bounds(Tabular):
    """Bounds that hold for every input in a region.

    Attributes
    ----------
    names : tuple of str
        Names of the layers.
    sizes : tuple of float
        Bound on |u|, and on |e| of a gated layer, in multiples of its range.
    powers : tuple of float
        Bound on the powers of u that the layer needs, and on their products with e.
    low, high : ndarray (o,)
        Bounds on the outputs.
    """

    names: tuple[str, ...]
    sizes: tuple[float, ...]
    powers: tuple[float, ...]
    low: np.ndarray
    high: np.ndarray

    @property
    def fits(self) -> bool:
        """Whether no input in the region makes a number above 2^19, too large for 20 bits before the point.

        Outputs must fit into the `headroom_bits` of the encryption too, which may be fewer.
        """
        largest = float(np.max(np.maximum(np.abs(self.low), np.abs(self.high)), initial=0.0))
        return all(power <= CAPACITY for power in (*self.powers, largest))

    def __repr__(self) -> str:
        low, high = float(self.low.min()), float(self.high.max())
        return f"Bounds(outputs in [{low:.4g}, {high:.4g}], fits={self.fits})"

    def _table(self) -> Table:
        rows = tuple(zip(self.names, self.sizes, self.powers, strict=True))
        return Table(("layer", "largest |u|", "largest power"), rows, repr(self))


def bound(
    circuit: Circuit, low: Any = None, high: Any = None, *, inputs: Inputs | None = None, radius: float | None = None
) -> Bounds:
    """Bounds on every intermediate value and on the outputs, for all inputs in a box or in an ellipsoid.

    Exact for each form of the first layer; behind it by interval arithmetic, with each unit's polynomial bounded by
    the sizes of its coefficients in Chebyshev polynomials of the unit's interval.

    Parameters
    ----------
    circuit : Circuit
    low, high : float or array (d,), optional
        Box of the inputs, such as 0 and 1 for pixels.
    inputs : Gaussian or GaussianMixture, optional
    radius : float, optional
        With `inputs`, the ellipsoid (x - mean)' cov^-1 (x - mean) <= radius^2, or one for each component.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> circuit = mp.fit(mp.MLP(np.eye(3), activation="gelu"), mp.Gaussian.standard(3), degree=4).to_he()
    >>> mp.he.bound(circuit, -1, 1).fits
    True
    """
    linear = _linear_over(circuit.dim_in, low, high, inputs, radius)
    forms: list[Interval] = []
    gates: list[Interval] = []

    def total(terms: tuple[LinearTerm, ...]) -> Interval:
        lows: Any = 0.0
        highs: Any = 0.0
        for layer in dict.fromkeys(term.layer for term in terms):
            here = [term for term in terms if term.layer == layer]
            if layer == 0:
                parts = [linear(here[0].matrix)]
            else:
                u, plain, gated = forms[layer - 1], [t for t in here if not t.gated], [t for t in here if t.gated]
                parts = [_summed(_polynomial_range(plain, u))] if plain else []
                if gated:
                    parts.append(_summed(_product(_polynomial_range(gated, u), gates[layer - 1])))
            for one, two in parts:
                lows, highs = lows + one, highs + two
        return lows, highs

    with np.errstate(over="ignore", invalid="ignore"):
        for layer in circuit.layers:
            forms.append(total(layer.forms))
            gates.append(total(layer.gates) if layer.gates else (np.zeros(1), np.zeros(1)))
        outputs = total(circuit.outputs)
        rows = []
        for layer, u, e in zip(circuit.layers, forms, gates, strict=True):
            size, second = (np.max(np.abs(interval), initial=0.0) for interval in (np.stack(u)[:, :-1], np.stack(e)))
            top = np.maximum(size, 1.0)  # the entry that is always one
            power = np.maximum(top**layer.degree, second * top ** (layer.degree - 1))
            rows.append((float(np.maximum(size, second)), float(power)))
    names = tuple(layer.name for layer in circuit.layers)
    return Bounds(names, tuple(row[0] for row in rows), tuple(row[1] for row in rows), *outputs)


def _linear_over(dim: int, low: Any, high: Any, inputs: Any, radius: Any) -> Callable[[np.ndarray], Interval]:
    """Return a function to the exact range of each row of matrix @ (x, 1) over the region."""
    if (low is None) != (high is None) or (inputs is None) != (radius is None) or (low is None) == (inputs is None):
        raise ValueError(
            "a region is needed: a box, bound(low, high), or an ellipsoid, bound(inputs=gaussian, radius=5.0)."
        )
    if low is not None:
        below, above = _side("low", low, dim), _side("high", high, dim)
        if not np.all(below <= above):
            raise ValueError("low must not be above high.")
        center, half = (below + above) / 2, (above - below) / 2

        def over_box(matrix: np.ndarray) -> Interval:
            middle, reach = matrix[:, :-1] @ center + matrix[:, -1], np.abs(matrix[:, :-1]) @ half
            return middle - reach, middle + reach

        return over_box
    if not isinstance(inputs, Gaussian | GaussianMixture):
        raise TypeError(f"inputs must be a Gaussian or a GaussianMixture, got {type(inputs).__name__}.")
    if inputs.dim != dim:
        raise ValueError(f"inputs have {inputs.dim} dimensions, but the circuit has {dim} inputs.")
    if isinstance(radius, bool) or not isinstance(radius, float | int) or not 0 < radius < math.inf:
        raise ValueError(f"radius must be a positive number of standard deviations, got {radius!r}.")

    def over_ellipsoid(matrix: np.ndarray) -> Interval:
        parts = forms_under(inputs, matrix)
        return (
            np.min([mean - radius * spread for _, mean, spread in parts], axis=0),
            np.max([mean + radius * spread for _, mean, spread in parts], axis=0),
        )

    return over_ellipsoid


def _side(name: str, value: Any, dim: int) -> np.ndarray:
    """One side of a box, (d,), in float64: in float32 the center would be rounded."""
    side = to_numpy(as_float_array(name, value, integers=True)).astype(np.float64)
    if side.ndim:
        check_shape(name, side, (dim,), "one number for each input, or one for all")
    check_finite(name, side)
    return np.broadcast_to(side, (dim,))


def _polynomial_range(terms: Iterable[LinearTerm], u: Interval) -> Interval:
    """Bounds (rows, columns) on sum_k matrix_k[r, c] u_c^k over the intervals of u.

    With the polynomial in Chebyshev polynomials of the interval, which stay within [-1, 1], the sum of the sizes of
    the coefficients is a bound; it is exact for lines.
    """
    terms = list(terms)
    middle, half = (u[0] + u[1]) / 2, (u[1] - u[0]) / 2
    shape = (max(t.power for t in terms) + 1, *terms[0].matrix.shape)
    monomials = np.zeros(shape)
    for term in terms:
        monomials[term.power] += term.matrix
    shifted = monomials[-1:]  # in powers of s = (u - middle) / half, by Horner's rule
    for coefficients in monomials[-2::-1]:
        zero = np.zeros_like(shifted[:1])
        shifted = np.concatenate([shifted * middle, zero]) + np.concatenate([zero, shifted * half])
        shifted[0] += coefficients
    table = np.stack(
        [np.pad(chebyshev.poly2cheb(row), (0, shape[0] - len(chebyshev.poly2cheb(row)))) for row in np.eye(shape[0])]
    )
    level, *waves = np.tensordot(table.T, shifted, axes=1)
    reach = sum((np.abs(wave) for wave in waves), start=np.zeros(shape[1:]))
    return level - reach, level + reach


def _product(one: Interval, two: Interval) -> Interval:
    corners = np.stack([a * b for a in one for b in two])
    return corners.min(axis=0), corners.max(axis=0)


def _summed(each: Interval) -> Interval:
    return each[0].sum(axis=1), each[1].sum(axis=1)
