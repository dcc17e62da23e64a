"""Ranges of a circuit: how likely an input leaves them, and bounds on everything for all inputs in a region."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from mlpoly.arrays import as_float_array, check_finite, check_shape, to_numpy
from mlpoly.he.circuit import Circuit, LinearTerm
from mlpoly.he.lowering import CAPACITY, sizes
from mlpoly.inputs import Gaussian, GaussianMixture, Inputs, Samples
from mlpoly.tables import Table, Tabular

_DRAWS = 10_000  # samples of a distribution that are counted

Interval = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class LayerRange:
    """How often a layer is outside its range.

    Attributes
    ----------
    name : str
    radius : float
        Half the width of the range, in standard deviations of each form.
    expected : float
        Bound on the probability if the forms are Gaussian with the moments that propagate to them in the fit.
    probability : float or None
        Bound on the probability under the given inputs in closed form: the sum over units. Only for the first layer,
        whose forms are linear in the inputs, and only for a distribution.
    counted : float
        Fraction of the samples with some unit outside, by their weights if they have any.
    largest : float
        Largest multiple of the range on the samples.
    """

    name: str
    radius: float
    expected: float
    probability: float | None
    counted: float
    largest: float


@dataclass(frozen=True)
class RangeReport(Tabular):
    """How often inputs leave the ranges of a circuit.

    Attributes
    ----------
    layers : tuple of LayerRange
    outside : float
        Fraction of the samples with some unit of any layer outside its range.
    samples : int
        Number of samples.
    overflow : float
        Fraction of the samples with a number above 2^19, too large for 20 bits before the point.
    """

    layers: tuple[LayerRange, ...]
    outside: float
    samples: int
    overflow: float

    def __repr__(self) -> str:
        return f"RangeReport(outside={self.outside:.3g}, overflow={self.overflow:.3g}, {self.samples} samples)"

    def _table(self) -> Table:
        known = any(r.probability is not None for r in self.layers)
        rows = [
            {
                "layer": r.name,
                "range (sd)": r.radius,
                "P if Gaussian": r.expected,
                **({"P under inputs": r.probability} if known else {}),
                "counted": r.counted,
                "largest/range": r.largest,
            }
            for r in self.layers
        ]
        note = f"{self.outside:.3g} of {self.samples} samples leave a range, {self.overflow:.3g} overflow"
        return Table.of(rows, title="Ranges", note=note)


def range_report(circuit: Circuit, inputs: Any) -> RangeReport:
    """How often inputs leave the ranges of a circuit; `Circuit.outside` has the parameters."""
    if isinstance(inputs, Samples):
        x = inputs.x
    elif isinstance(inputs, Inputs):
        x = inputs.sample(_DRAWS, seed=1)
    else:
        x = as_float_array("inputs", inputs, integers=True)
    check_shape("inputs", x, (None, circuit.dim_in), "one row for each sample")
    check_finite("inputs", x)
    if not len(x):
        raise ValueError("inputs is empty; pass at least one row.")
    weights = to_numpy(inputs.weights) if isinstance(inputs, Samples) and inputs.weights is not None else None

    def fraction(rows: np.ndarray) -> float:
        return float(np.average(rows, weights=weights))

    known = isinstance(inputs, Gaussian | GaussianMixture)
    too_large = ~np.all([size <= CAPACITY for size in sizes(circuit, x)], axis=0)  # NaN is too large as well
    anywhere = np.zeros(len(too_large), dtype=bool)
    rows = []
    for i, (layer, values) in enumerate(zip(circuit.layers, circuit.intermediates(x), strict=True)):
        size = np.max(np.abs(values), axis=-1, initial=0.0)
        left = ~(size <= 1)
        anywhere = anywhere | left
        expected = values.shape[-1] * math.erfc(layer.radius / math.sqrt(2))
        exact = _tails((*layer.forms, *layer.gates), inputs) if known and i == 0 else None
        found = min(expected, 1.0), exact, fraction(left), float(np.max(size))
        rows.append(LayerRange(layer.name, layer.radius, *found))
    return RangeReport(tuple(rows), fraction(anywhere), len(anywhere), fraction(too_large))


def _tails(forms: Iterable[LinearTerm], inputs: Gaussian | GaussianMixture) -> float:
    """Sum over forms of the first layer of the probability that they are outside [-1, 1], at most one."""
    total = 0.0
    for weight, mean, spread in _forms_under(inputs, np.concatenate([form.matrix[:-1, :] for form in forms])):
        for m, s in zip(mean, spread, strict=True):
            if s > 0:
                total += (
                    weight * (math.erfc((1 - m) / (s * math.sqrt(2))) + math.erfc((1 + m) / (s * math.sqrt(2)))) / 2
                )
            else:
                total += weight * (abs(m) > 1)
    return min(float(total), 1.0)


def _forms_under(inputs: Gaussian | GaussianMixture, matrix: np.ndarray) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Weight of each component, and the means and standard deviations (rows,) of matrix @ (x, 1) under it."""
    found = []
    wide: Any = inputs.like(np.zeros(1)).to(np.zeros(1))
    for weight, part in zip(wide.weights, wide.components, strict=True):
        slopes = matrix[:, :-1]
        variance = np.sum(part.times_covariance(slopes) * slopes, axis=1)
        found.append((float(weight), slopes @ part.mean + matrix[:, -1], np.sqrt(np.clip(variance, 0, None))))
    return found


# -- bounds ------------------------------------------------------------------------------------------------------------


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


def bounds_over(circuit: Circuit, low: Any, high: Any, inputs: Any, radius: Any) -> Bounds:
    """Bounds for all inputs in a box or ellipsoid; `Circuit.bound` has the parameters."""
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
        parts = _forms_under(inputs, matrix)
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
