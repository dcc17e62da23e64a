"""Ranges of a circuit: how likely an input is to leave them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import erfc

from mlpoly.arrays import as_float_array, check_finite, check_shape, to_numpy
from mlpoly.he.bounds import bound
from mlpoly.he.circuit import CAPACITY, Circuit, LinearTerm
from mlpoly.inputs import Gaussian, GaussianMixture, Inputs, Samples
from mlpoly.tables import Table, Tabular

_DRAWS = 10_000  # samples of a distribution that are counted


@dataclass(frozen=True)
class LayerRange:
    """How often a layer is outside its range.

    Attributes
    ----------
    name, radius
        Name of the layer, and half the width of its range, in standard deviations of each form.
    expected : float
        Bound on the probability if the forms are Gaussian with the moments that propagate to them in the fit.
    probability : float or None
        Bound under the given distribution in closed form, for the first layer, whose forms are linear in the inputs.
    counted, largest : float
        Fraction of the samples with some unit outside, by their weights, and the largest multiple of the range on them.
    certified : float or None
        Multiple of the range that no input of a box exceeds, where one was given.
    """

    name: str
    radius: float
    expected: float
    probability: float | None
    counted: float
    largest: float
    certified: float | None = None


@dataclass(frozen=True)
class RangeReport(Tabular):
    """How often inputs leave the ranges of a circuit.

    Attributes
    ----------
    layers : tuple of LayerRange
    outside, overflow : float
        Fractions of the samples with some unit of any layer outside its range, and with a number above 2^19, which is
        too large for 20 bits before the point.
    samples : int
        Number of samples.
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
                **({"certified/range": r.certified} if r.certified is not None else {}),
            }
            for r in self.layers
        ]
        note = f"{self.outside:.3g} of {self.samples} samples leave a range, {self.overflow:.3g} overflow"
        return Table.of(rows, title="Ranges", note=note)


def range_report(
    circuit: Circuit, inputs: Any, within: tuple[Any, Any] | None = None, seconds: float = 10.0
) -> RangeReport:
    """How often inputs leave the ranges of a circuit, in closed form and counted.

    Parameters
    ----------
    circuit : Circuit
    inputs : Gaussian, GaussianMixture, Samples or array (n, d)
        Of a distribution, 10 000 samples are counted.
    within : pair of float or array (d,), optional
        Lowest and highest inputs of a box, over which ranges are certified too, as by `bound` in so many `seconds`.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> inputs = mp.Gaussian.standard(3)
    >>> circuit = mp.fit(mp.MLP(np.eye(3), activation="gelu"), inputs, degree=4).to_he()
    >>> mp.he.range_report(circuit, inputs).outside < 1e-3
    True
    """
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

    certified = [None] * len(circuit.layers) if within is None else bound(circuit, *within, seconds=seconds).sizes
    run = circuit.run(x)
    too_large = ~np.all([size <= CAPACITY for size in run.sizes], axis=0)  # NaN is too large as well
    anywhere = np.zeros(len(too_large), dtype=bool)
    rows = []
    for i, (layer, values) in enumerate(zip(circuit.layers, run.entries, strict=True)):
        size = np.max(np.abs(values), axis=-1, initial=0.0)
        left = ~(size <= 1)
        anywhere = anywhere | left
        expected = min(values.shape[-1] * math.erfc(layer.radius / math.sqrt(2)), 1.0)
        exact = None
        if i == 0 and isinstance(inputs, Gaussian | GaussianMixture):
            exact = _tails((*layer.forms, *layer.gates), inputs)
        counted = fraction(left), float(np.max(size))
        rows.append(LayerRange(layer.name, layer.radius, expected, exact, *counted, certified[i]))
    return RangeReport(tuple(rows), fraction(anywhere), len(anywhere), fraction(too_large))


def _tails(forms: Iterable[LinearTerm], inputs: Gaussian | GaussianMixture) -> float:
    """Sum over forms of the first layer of the probability that they are outside [-1, 1], at most one."""
    matrix, total, wide = np.concatenate([form.matrix[:-1] for form in forms]), 0.0, inputs.to(np.zeros(1))
    slopes = matrix[:, :-1]
    for weight, part in zip(wide.weights, wide.components, strict=True):
        mean = slopes @ part.mean + matrix[:, -1]
        spread = np.sqrt(np.clip(np.sum(part.times_covariance(slopes) * slopes, axis=1), 0, None))
        room = np.where(spread > 0, spread, 1.0) * math.sqrt(2)
        tails = (erfc((1 - mean) / room) + erfc((1 + mean) / room)) / 2
        total += float(weight * np.sum(np.where(spread > 0, tails, np.abs(mean) > 1)))
    return min(total, 1.0)
