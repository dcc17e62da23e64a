"""What is fitted when all neurons are fitted together: functions of x, and their weights at the start (MATH 13).

The features are the neurons' own polynomials ("readout"), or every function that these are made of ("free").
"""

from typing import Any, Literal, NamedTuple

import numpy as np

from mlpoly.arrays import Array, cast_like, constant, eye, namespace, widen
from mlpoly.errors import TooLargeError
from mlpoly.linalg.shrinkage import ShrunkLeastSquares
from mlpoly.polynomials import BoundedPolynomial, Source
from mlpoly.records import map_arrays, replace
from mlpoly.units import Series

Coefficients = Literal["auto", "readout", "free"]

FREE = 4096  # features up to which free coefficients are the default: decomposing their Gram matrix takes seconds
MOST = 2**14  # features on request: a Gram matrix of 2 GiB


class Features(NamedTuple):
    """A polynomial as the sum of m features, read out with weights."""

    kind: Coefficients
    each: Any  # ridge or bounded polynomial with the features as its outputs
    readout: Array  # (o, m)
    bias: Array  # (o,)

    def changed(self, change: Array, bias: Array, method: str) -> Any:
        """The polynomial with `change` (m, o) more of every feature, and another bias (o,)."""
        like, source = self.each.prototype, Source(self.each.source.activation, f"{method}, {self.kind}")
        readout = cast_like(self.readout + change.T, like)
        # Lines along the activation would not continue single powers, nor what is small and was given a large weight.
        return replace(self.each, readout=readout, bias=cast_like(bias, like), source=source, activation=None)

    def details(self, problem: ShrunkLeastSquares, shrinkage: float) -> dict[str, Any]:
        """Numbers for the report."""
        return {
            "kind": self.kind,
            "coefficients": self.each.dim_out,
            "rank": problem.rank,
            "effective": problem.effective(shrinkage),
            "shrinkage": shrinkage,
        }


def features_of(start: Any, coefficients: Coefficients, real: Array | float = 1.0) -> list[Features]:
    """What may be fitted, starting from a ridge or bounded polynomial: one kind, or with "auto" both if few.

    `real` (h,) is zero for gated units whose second factor has no spread of its own.
    """
    series = start.series
    plain = widen(series.plain)
    readout = eye(plain.shape[1], plain) if start.readout is None else widen(start.readout)
    bias = readout[:, 0] * 0 if start.bias is None else widen(start.bias)
    neurons = Features("readout", replace(start, readout=None, bias=None), readout, bias)
    lines = (start.slopes, start.gate_slopes) if isinstance(start, BoundedPolynomial) else (None, None)
    blocks = (series.plain[1:, ...], lines[0], series.gated, lines[1])
    copies, h = sum(0 if block is None else int(block.shape[0]) for block in blocks), int(plain.shape[1])
    if coefficients == "readout" or not start.degree or (coefficients == "auto" and copies * h > FREE):
        return [neurons]
    if copies * h > MOST:
        raise TooLargeError(
            f"free coefficients of degree {start.degree} have {copies * h} features, whose Gram matrix takes "
            f"{8 * (copies * h) ** 2 / 2**30:.0f} GiB; the limit is {MOST}. Use coefficients='readout'."
        )
    xp = namespace(plain=plain)

    def repeated(a: Array) -> Array:
        return xp.concat([a] * copies)

    # One copy of the neurons for each coefficient of a neuron, with a one in its place and zeros elsewhere.
    ones, first = np.kron(np.eye(copies), np.ones((1, h))), 0
    parts: list[Any] = []
    for block in blocks:
        rows = 0 if block is None else int(block.shape[0])
        parts.append(None if block is None else constant(ones[first : first + rows], block))
        first += rows
    linear, slopes, gated, gate_slopes = parts
    mask = repeated(cast_like(plain[0, :] * 0 + real, series.plain))
    gated, gate_slopes = (None if part is None else part * mask for part in (gated, gate_slopes))
    each = replace(
        neurons.each,
        units=map_arrays(start.units, repeated),
        series=Series(xp.concat([linear[:1, :] * 0, linear]), gated),
    )
    if isinstance(start, BoundedPolynomial):
        each = replace(each, bounds=repeated(start.bounds), slopes=slopes, gate_slopes=gate_slopes)
    weights = [readout * widen(row) for block in blocks if block is not None for row in block]
    free = Features("free", each, xp.concat(weights, axis=1), bias + readout @ plain[0, :])
    return [free] if coefficients == "free" else [neurons, free]
