"""From a polynomial to a circuit: scales, shifts and coefficients folded into matrices."""

import math
import sys
from statistics import NormalDist
from typing import Any

import numpy as np

from mlpoly.arrays import as_float_array, as_integer, as_number, check_finite, check_shape, to_numpy
from mlpoly.he.bounds import bound
from mlpoly.he.circuit import CAPACITY, Circuit, EncryptedLayer, LinearTerm, Vector
from mlpoly.inputs import Samples
from mlpoly.polynomials import (
    BoundedPolynomial,
    ChaosPolynomial,
    ComposedPolynomial,
    DensePolynomial,
    Polynomial,
    RidgePolynomial,
)
from mlpoly.special import in_powers

_ROUNDING = 1 + 1e-10  # a range is wider by this than its largest sample, which a circuit computes in another order
_DRAWS = 4096  # samples of the inputs on which a new circuit is checked

Sum = dict[Vector, np.ndarray]  # a linear map of encrypted vectors: the matrix for each


def to_circuit(
    poly: Polynomial, outside: float = 1e-6, samples: Any = None, levels: int | None = None, within: Any = None
) -> Circuit:
    """The circuit of a polynomial; `Polynomial.to_he` has the parameters."""
    check_form(poly)
    wide = poly.to(np.zeros(1))
    hidden = _hidden(wide)
    radius = radius_for(outside, sum(p.units.size * (1 if p.series.gated is None else 2) for p in hidden))
    levels = None if levels is None else as_integer("levels", levels, 1)
    points = _points(poly, samples)
    circuit = _lowered(wide, [radius] * len(hidden), points, samples is not None)
    if within is not None:
        if not isinstance(within, tuple | list) or len(within) != 2:
            raise ValueError(f"within must be the two sides of a box, such as (0.0, 1.0), got {within!r:.60}.")
        certified = bound(circuit, *within)
        if not np.all(np.isfinite(certified.sizes)):
            raise ValueError("no finite range is certified within this box; choose a smaller one, or a larger guard.")
        radii = [layer.radius * size for layer, size in zip(circuit.layers, certified.sizes, strict=True)]
        circuit = _lowered(wide, [_ROUNDING * r if r > 0 else radius for r in radii], points, False)
    if levels is not None and circuit.levels > levels:
        parts = [f"{layer.name} of degree {layer.degree}{' (gated)' * bool(layer.gates)}" for layer in circuit.layers]
        raise ValueError(
            f"levels is {levels}, but the polynomial needs {circuit.levels}: 1 for the first matrix, and ceil(log2 "
            f"degree) + 1 for each of {', '.join(parts) or 'no hidden layers'}. Allow as many, or let "
            f"mlpoly.he.plan(net, inputs, levels={levels}) choose the degrees."
        )
    if points is not None:
        check_capacity(circuit, points, "samples of the inputs" if samples is None else "the samples")
    return circuit


def _lowered(p: Any, radii: list[float], points: np.ndarray | None, widen: bool) -> Circuit:
    """The circuit of a polynomial whose layers have ranges of so many standard deviations."""
    lowering = _Lowering(p.dim_in, radii, widen)
    outputs, _ = lowering.stage(p, {Vector(0): np.eye(p.dim_in, p.dim_in + 1)}, points)
    return Circuit(tuple(lowering.layers), _terms(outputs))


def _hidden(p: Any) -> list[RidgePolynomial]:
    """The polynomials of all hidden layers."""
    if isinstance(p, ComposedPolynomial):
        return [part for stage in p.applied for part in _hidden(stage)]
    return [p] if p.degree > 1 else []


def radius_for(outside: float, forms: int) -> float:
    """Standard deviations that some of a number of Gaussian forms exceed with a probability of at most `outside`."""
    outside = as_number("outside", outside, "a probability between 0 and 1 such as 1e-6", 0, 1)
    tail = outside / (2 * max(forms, 1))
    return -NormalDist().inv_cdf(max(tail, sys.float_info.min))


def check_capacity(circuit: Circuit, x: Any, where: str) -> None:
    """Raise ValueError with the layer's name if a number at points x (n, d) is too large to be encrypted."""
    names = [*(layer.name for layer in circuit.layers), "the output"]
    for name, size in zip(names, circuit.run(x).sizes, strict=True):
        largest = float(np.max(size, initial=0.0))
        if not largest <= CAPACITY:  # NaN is refused too
            raise ValueError(
                f"{name} has numbers up to {largest:.3g} on {where}, above 2^{math.log2(CAPACITY):.0f}, the most that "
                f"an encryption holds. If the polynomial explodes there, fit it with a larger guard "
                f"(mlpoly.fit(net, inputs, degree, method=mlpoly.methods.Composed(0.1))) or a lower degree; if the "
                f"network's own outputs are as large, divide them by a constant."
            )


def check_form(poly: Any) -> None:
    """Raise unless a polynomial is made of units and affine maps."""
    if isinstance(poly, BoundedPolynomial) or (isinstance(poly, Polynomial) and poly.piecewise):
        raise TypeError(
            "a bounded polynomial continues as straight lines, and where they begin is a comparison, which encrypted "
            "numbers do not have; use the polynomial without lines, fitted with method='composed' and a guard."
        )
    if isinstance(poly, ComposedPolynomial):
        for stage in poly.stages:
            check_form(stage)
    elif isinstance(poly, ChaosPolynomial) or (isinstance(poly, DensePolynomial) and poly.degree > 1):
        raise TypeError(
            f"a {type(poly).__name__} of degree {poly.degree} has no units whose powers could be computed one by one; "
            f"fit with method='neuronwise' for one hidden layer, or method='composed'."
        )
    elif not isinstance(poly, RidgePolynomial | DensePolynomial):
        raise TypeError(f"poly must be a polynomial of this library, got {type(poly).__name__}.")


def _points(poly: Polynomial, samples: Any) -> np.ndarray | None:
    """Points (n, d) on which the circuit is checked: those given, or samples of the inputs if they are known."""
    if samples is not None:
        samples = samples.x if isinstance(samples, Samples) else as_float_array("samples", samples, integers=True)
        check_shape("samples", samples, (None, poly.dim_in), "one row for each sample")
        check_finite("samples", samples)
        if not len(samples):
            raise ValueError("samples is empty; pass at least one row, or None.")
        return to_numpy(samples).astype(np.float64)
    return None if poly.inputs is None else to_numpy(poly.inputs.sample(_DRAWS, seed=0)).astype(np.float64)


def _terms(total: Sum) -> tuple[LinearTerm, ...]:
    kept = {v: matrix for v, matrix in total.items() if matrix.any()} or dict(list(total.items())[:1])
    return tuple(LinearTerm(matrix, *v) for v, matrix in kept.items())


class _Lowering:
    """Follows the stages of a polynomial, with its values as sums of matrices times encrypted vectors."""

    def __init__(self, dim: int, radii: list[float], widen: bool) -> None:
        self.layers: list[EncryptedLayer] = []
        self.sizes = [dim + 1]
        self.radii, self.widen = radii, widen  # whether samples may make a range wider

    def stage(self, p: Any, values: Sum, x: np.ndarray | None) -> tuple[Sum, np.ndarray | None]:
        """Values behind a stage as a sum and, if points are given, as numbers."""
        if isinstance(p, ComposedPolynomial):
            total, points = values, x
            for stage in p.applied:
                total, points = self.stage(stage, total, points)
            if not p.skip:
                return total, points
            both = total | {v: total[v] + matrix if v in total else matrix for v, matrix in values.items()}
            return both, None if x is None else points + x
        with np.errstate(over="ignore", invalid="ignore"):  # an explosion is reported once the circuit is complete
            behind = None if x is None else p(x)
            if p.degree > 1:
                return self.hidden(p, values, x), behind
        slope = p.tensor(1) if p.degree else np.zeros((p.dim_out, p.dim_in))
        return self.affine(values, slope, p.tensor(0)), behind

    def affine(self, values: Sum, slope: np.ndarray, offset: np.ndarray) -> Sum:
        """A linear map of values, plus a constant by way of the entry that is one."""
        total = {v: slope @ matrix for v, matrix in values.items()}
        one = Vector(len(self.layers))
        total[one] = total.get(one, np.zeros((len(offset), self.sizes[-1]))).copy()
        total[one][:, -1] += offset
        return total

    def hidden(self, p: RidgePolynomial, values: Sum, x: np.ndarray | None) -> Sum:
        """Add a hidden layer; return the outputs of the stage as a sum over the layer's powers."""
        units, gate, series = p.units, p.units.gate, p.series
        inverse, radius = units.inverse_scales, self.radii[len(self.layers)]
        if self.widen and x is not None:
            radius = max(radius, float(_ROUNDING * np.max(_sizes(units.standardise(p.forms_at(x)[0])))))
        scale = inverse / radius
        forms = self.affine(values, scale[:, None] * units.directions, -scale * units.shifts)
        gates: Sum = {}
        if gate is not None and series.gated is not None:
            spread = radius * self.spreads(p, x, radius)
            within = 1 / spread
            # e = v.x - shift - slope t, with t = (w.x - shift) / scale
            directions = gate.directions - (gate.slopes * inverse)[:, None] * units.directions
            shifts = gate.shifts - gate.slopes * inverse * units.shifts
            gates = self.affine(values, within[:, None] * directions, -within * shifts)
        one = np.zeros((1, self.sizes[-1]))
        one[0, -1] = 1.0
        carrier = Vector(len(self.layers))
        forms = {v: np.concatenate([m, one if v == carrier else 0 * m[:1]]) for v, m in forms.items()}
        gates = {v: np.concatenate([m, 0 * m[:1]]) for v, m in gates.items()}
        name = f"layer {len(self.layers) + 1} ({units.size} units)"
        terms = _terms(gates) if gates else ()
        self.layers.append(EncryptedLayer(_terms(forms), terms, p.degree, radius, name))
        self.sizes.append(units.size + 1)
        # P(t) + e Q(t) in powers of u = t / radius
        readout = np.eye(units.size) if p.readout is None else p.readout
        level, *powers = in_powers(series.plain)
        here, wide = len(self.layers), np.float64(radius)  # whose powers overflow to infinity, without an error

        def column(coefficients: np.ndarray) -> np.ndarray:
            return np.concatenate([readout * coefficients, np.zeros((len(readout), 1))], axis=1)

        total = {Vector(here, k): column(a * wide**k) for k, a in enumerate(powers, 1)}
        if gates:
            gated = enumerate(in_powers(series.gated))
            total |= {Vector(here, k, True): column(q * spread * wide**k) for k, q in gated}
        total[Vector(here)][:, -1] = readout @ level + (0.0 if p.bias is None else p.bias)
        return total

    def spreads(self, p: RidgePolynomial, x: np.ndarray | None, radius: float) -> np.ndarray:
        """Standard deviations of the second factors' residuals, whose mean is zero: of the fit, or of the points.

        They are larger where samples need it, and one where all points have a residual of zero: others may not.
        """
        gate = p.units.gate
        assert gate is not None
        if x is None and gate.spreads is None:
            raise ValueError(
                "a gated polynomial without inputs has no known range of its second factors; pass samples of the "
                "inputs, to_he(samples=x)."
            )
        spreads = gate.spreads
        if x is not None:
            y, z = p.forms_at(x)
            e = _sizes(p.units.residual(z, p.units.standardise(y)))
            spreads = np.sqrt(np.mean(e**2, axis=0)) if spreads is None else spreads
            if self.widen:
                spreads = np.maximum(spreads, _ROUNDING * np.max(e, axis=0) / radius)
        return np.where(spreads > 0, spreads, 1.0)


def _sizes(values: np.ndarray) -> np.ndarray:
    """Sizes of values, zero where they are not finite: an explosion is reported once the circuit is complete."""
    return np.where(np.isfinite(values), np.abs(values), 0.0)
