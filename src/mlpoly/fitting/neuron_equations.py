"""Least squares for every neuron by itself: its normal equations, on points of its own preactivations (MATH 4b, 4c).

The points may be samples, or the nodes of a quadrature under a distribution: a fit to data and a fit to moments differ
in nothing else.
"""

from typing import Any, Generic, TypeVar

from mlpoly.arrays import Array, cast_like, chunks, eye, namespace, rounding_error, safe_inverse, scalar, widen
from mlpoly.polynomials import BoundedPolynomial, RidgePolynomial, Source
from mlpoly.records import replace
from mlpoly.special import hermite
from mlpoly.units import Gate, Series

P = TypeVar("P", bound=RidgePolynomial | BoundedPolynomial)

_NUMBERS = 2**24  # values of basis functions held at once


class NeuronEquations(Generic[P]):
    """Normal equations of every neuron of a polynomial by itself, in the functions of x whose sum the neuron is.

    They are he_k(t), and he_k(t) e / spread for gated units, which are orthonormal under a Gaussian. With a bound, t is
    clipped to it, and the excesses of t below and above the bound follow, alone and times e / spread. `known` are the
    coefficients (basis, h) of the closed form `start`, which is the prior, and `spreads` (h,) those of the second
    factors given the preactivations, zero where there is none but rounding.
    """

    def __init__(self, start: P, gate: Gate | None) -> None:
        series, bounded = start.series, isinstance(start, BoundedPolynomial) and start.degree > 0
        self.start, self.spreads = start, None
        if series.gated is not None and gate is not None:
            along, xp = widen(gate.slopes), namespace(slopes=gate.slopes)
            real = gate.spreads**2 > 1e-6 * (gate.spreads**2 + along**2)  # below that it is rounding
            # Beyond a bound, where t stops, the residual grows by the part of the factor that t explained.
            self.spreads = xp.where(real, gate.spreads, xp.abs(along) if bounded else along * 0)
        # Series, lines, and the same times the second factor: in this order everywhere, where there are any.
        self._bounded: Any = start if bounded else None
        slopes, gate_slopes = (getattr(start, name) if bounded else None for name in ("slopes", "gate_slopes"))
        self._blocks = (series.plain, slopes, series.gated, None if series.gated is None else gate_slopes)
        rows = [widen(b) if i < 2 else widen(b) * self.spreads for i, b in enumerate(self._blocks) if b is not None]
        self.known = namespace(start=series.plain).concat(rows)
        self._gram: Array = 0.0  # (h, basis, basis)
        self._right: Array = 0.0  # (h, basis, 1)
        self._square: Array = 0.0  # (h,), of the values that are fitted

    def values(self, y: Array, z: Array | None) -> Array:
        """The functions (basis, n, h) at n points with linear forms y = w.x and z = v.x, (n, h) each."""
        start, bounded, units = self.start, self._bounded, self.start.units
        xp, t = namespace(y=y), units.standardise(y)
        held = t if bounded is None else xp.clip(t, -bounded.bounds, bounded.bounds)
        functions = hermite(held, start.degree)
        lines = [] if bounded is None else [xp.clip(t - held, None, 0.0), xp.clip(t - held, 0.0, None)]
        if z is None or start.series.gated is None:
            return xp.stack([*functions, *lines])
        e = units.residual(z, held) * cast_like(safe_inverse(self.spreads), t)
        with_gate = [*functions[: start.degree], *(lines if self._blocks[3] is not None else [])]
        return xp.stack([*functions, *lines, *(f * e for f in with_gate)])

    def add(self, y: Array, z: Array | None, target: Array, weights: Array | None = None) -> None:
        """Add n points of every neuron: y = w.x, z = v.x, the network's units, (n, h) each, and weights (n, 1 or h)."""
        xp, (size, h) = namespace(y=y), self.known.shape
        for part in chunks(y.shape[0], max(1, _NUMBERS // (size * h + 1))):
            # Sums of float32 products would be too inaccurate for a solution that depends on small differences.
            values = widen(self.values(y[part, ...], None if z is None else z[part, ...]))  # (basis, n, h)
            weighted = values if weights is None else values * widen(weights[part, ...])
            left, basis = xp.permute_dims(weighted, (2, 0, 1)), xp.permute_dims(values, (2, 1, 0))
            wanted = widen(target[part, ...])
            square = wanted**2 if weights is None else widen(weights[part, ...]) * wanted**2
            self._square = self._square + xp.sum(square, axis=0)
            self._gram = self._gram + left @ basis
            self._right = self._right + left @ wanted.T[..., None]

    def polynomial(self, prior: float, method: str) -> P:
        """The polynomial of all points so far; the prior, above 0, is the weight of the closed form beside theirs."""
        coefficients, parts, first = self._solved(prior), [], 0
        for i, block in enumerate(self._blocks):
            rows = coefficients[first : first + (0 if block is None else int(block.shape[0])), ...]
            first += int(rows.shape[0])
            rows = rows if i < 2 or block is None else rows * safe_inverse(self.spreads)
            parts.append(None if block is None else cast_like(rows, block))
        plain, slopes, gated, gate_slopes = parts
        source = Source(self.start.source.activation, method)
        poly = replace(self.start, series=Series(plain, gated), source=source)
        return poly if slopes is None else replace(poly, slopes=slopes, gate_slopes=gate_slopes)

    def misfit(self, prior: float) -> float:
        """Squared errors of what the neurons of `polynomial` add to the outputs, summed over points and neurons."""
        c, readout = self._solved(prior).T[..., None], self.start.readout
        xp = namespace(c=c)
        own = self._square + xp.sum(c * (self._gram @ c - 2 * self._right), axis=(1, 2))
        return scalar(xp.sum(own if readout is None else own * xp.sum(widen(readout) ** 2, axis=0)))

    def _solved(self, prior: float) -> Array:
        known, xp = self.known, namespace(start=self.known)
        # Under the Gaussian the Hermite basis is orthonormal: its Gram matrix is the identity, its right-hand side the
        # closed form. For the lines, the prior acts like that many samples one standard deviation beyond the bound.
        gram = self._gram + prior * eye(known.shape[0], self._gram)
        right = self._right + prior * known.T[..., None]
        # Massive activations make some functions thousands of times larger than others, so all are scaled to length
        # one. They may then be dependent up to the rounding errors of the sums, or of the stored coefficients. So
        # coefficients are penalised by as much as these errors: a higher degree can then do no harm.
        lengths = xp.sqrt(xp.linalg.diagonal(gram))[..., None]
        noise = float(xp.finfo(gram.dtype).eps)
        cost = max((4 * rounding_error(self.start.series.plain)) ** 2, 10 * known.shape[0] * noise)
        unit = gram / lengths / xp.matrix_transpose(lengths) + cost * eye(known.shape[0], gram)
        return (xp.linalg.solve(unit, right / lengths) / lengths)[..., 0].T  # (basis, h)
