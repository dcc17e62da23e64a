"""Bounds on every number of a circuit, for all inputs in a region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from mlpoly.arrays import as_float_array, as_number, check_finite, check_shape, to_numpy
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
    sizes, powers : tuple of float
        For each layer bounds on |u| and |e| in multiples of its range, and on the powers of u that it needs, with e.
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
        """Whether no input in the region makes a number above 2^19; `headroom_bits` may allow outputs less."""
        return all(size <= CAPACITY for size in (*self.powers, *np.abs(self.low), *np.abs(self.high)))

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
    inputs, radius : Gaussian or GaussianMixture, float, optional
        The ellipsoid (x - mean)' cov^-1 (x - mean) <= radius^2, or one for each component.

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
        for layer, gated in dict.fromkeys((term.layer, term.gated) for term in terms):
            here = [term for term in terms if (term.layer, term.gated) == (layer, gated)]
            if layer == 0:
                one, two = linear(here[0].matrix)
            else:
                each = _polynomial_range(here, forms[layer - 1])
                one, two = (part.sum(axis=1) for part in (_product(each, gates[layer - 1]) if gated else each))
            lows, highs = lows + one, highs + two
        return lows, highs

    names, sizes, powers = [], [], []
    with np.errstate(over="ignore", invalid="ignore"):
        for layer in circuit.layers:
            forms.append(total(layer.forms))
            gates.append(total(layer.gates) if layer.gates else (np.zeros(1), np.zeros(1)))
            u, e = np.max(np.abs(np.stack(forms[-1])[:, :-1]), initial=0.0), np.max(np.abs(gates[-1]))
            top = np.maximum(u, 1.0)  # the entry that is always one
            names.append(layer.name)
            sizes.append(float(np.maximum(u, e)))
            powers.append(float(np.maximum(top**layer.degree, e * top ** (layer.degree - 1))))
        outputs = total(circuit.outputs)
    return Bounds(tuple(names), tuple(sizes), tuple(powers), *outputs)


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
    radius = as_number("radius", radius, "a positive number of standard deviations", 0)

    def over_ellipsoid(matrix: np.ndarray) -> Interval:
        _, means, spreads = (np.array(part) for part in zip(*forms_under(inputs, matrix), strict=True))
        return np.min(means - radius * spreads, axis=0), np.max(means + radius * spreads, axis=0)

    return over_ellipsoid


def _side(name: str, value: Any, dim: int) -> np.ndarray:
    """One side of a box, (d,), in float64: in float32 the center would be rounded."""
    side = to_numpy(as_float_array(name, value, integers=True)).astype(np.float64)
    if side.ndim:
        check_shape(name, side, (dim,), "one number for each input, or one for all")
    check_finite(name, side)
    return np.broadcast_to(side, (dim,))


def _polynomial_range(terms: Sequence[LinearTerm], u: Interval) -> Interval:
    """Bounds (rows, columns) on sum_k matrix_k[r, c] u_c^k over the intervals of u.

    With the polynomial in Chebyshev polynomials of the interval, which stay within [-1, 1], the sum of the sizes of
    the coefficients is a bound; it is exact for lines.
    """
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
    table = np.eye(shape[0])  # row k becomes s^k in Chebyshev polynomials
    for k, row in enumerate(table):
        row[: k + 1] = chebyshev.poly2cheb(row[: k + 1])
    level, *waves = np.tensordot(table.T, shifted, axes=1)
    reach = sum((np.abs(wave) for wave in waves), start=np.zeros(shape[1:]))
    return level - reach, level + reach


def _product(one: Interval, two: Interval) -> Interval:
    corners = np.stack([a * b for a in one for b in two])
    return corners.min(axis=0), corners.max(axis=0)
