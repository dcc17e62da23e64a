"""Networks and polynomials as graphs of vectors, in float64 of NumPy."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpoly.arrays import to_numpy
from mlpoly.certificates.functions import EPS, Pieces, activations, polynomials
from mlpoly.certificates.graph import Graph
from mlpoly.networks import Affine, Layer, Network, walk
from mlpoly.polynomials import BoundedPolynomial, ChaosPolynomial, ComposedPolynomial, DensePolynomial, Polynomial
from mlpoly.polynomials.neurons import NeuronPolynomial
from mlpoly.special import hermite_in_powers

Numbers = tuple[np.ndarray, np.ndarray]  # values and bounds on their errors


def add(graph: Graph, function: Network | Polynomial, at: int = 0) -> int:
    """Add a network or a polynomial of a vector; return its outputs."""
    if isinstance(function, Network):
        return walk(function, _Layers(graph), at)
    if isinstance(function, NeuronPolynomial):
        return _neurons(graph, function, at)
    if isinstance(function, DensePolynomial):
        return _dense(graph, function, at)
    if isinstance(function, ChaosPolynomial):
        return _chaos(graph, function, at)
    assert isinstance(function, ComposedPolynomial)
    behind = at
    for stage in function.applied:
        behind = add(graph, stage, behind)
    return graph.linear([(behind, None), (at, None)]) if function.skip else behind


def add_difference(graph: Graph, one: Any, two: Any) -> int:
    """Add the difference of two functions of the inputs, unit by unit where both have the same units."""
    if isinstance(two, Layer) and isinstance(one, NeuronPolynomial):
        return graph.linear([(add_difference(graph, two, one), -np.ones(one.dim_out))])
    if isinstance(one, Layer) and isinstance(two, NeuronPolynomial) and _same_units(one, two):
        t, scale = _standardised(graph, two, 0)
        # act(bias + shift + scale t) - P(t)
        u = two.units
        shift = _wide(u.shifts)
        act = activations(one.activation, len(scale), _wide(u.bias) + shift, scale)
        poly = _series(two)[0]
        none = Pieces(0 * poly.coefficients, 0 * poly.errors, poly.breaks, poly.wobble)
        parts = [act.minus(poly)] if isinstance(act, Pieces) else [act, none.minus(poly)]
        bias = [np.zeros(one.dim_out) if b is None else _wide(b) for b in (one.bias, two.bias)]
        units = graph.apply(t, *parts)
        readout = None if one.readout is None else _wide(one.readout)
        return graph.linear([(units, readout)], bias[0] - bias[1], EPS * (np.abs(bias[0]) + np.abs(bias[1])))
    ends = add(graph, one), add(graph, two)
    return graph.linear([(ends[0], None), (ends[1], -np.ones(one.dim_out))])


def _wide(a: Any) -> np.ndarray:
    """Weights in float64."""
    weights = to_numpy(a).astype(np.float64)
    if not np.isfinite(weights).all():
        raise ValueError("a function whose weights are not all finite has no bounds; find where they overflow.")
    return weights


def _same_units(layer: Layer, p: NeuronPolynomial) -> bool:
    """Whether a polynomial has a layer's own linear forms, without a gate or constant unit, and its readout."""
    forms, u = layer.forms, p.units
    if forms.gate_directions is not None or u.gate is not None or bool(np.any(_wide(u.scales) == 0)):
        return False
    bias = np.zeros(u.size) if forms.bias is None else forms.bias
    pairs = [(forms.directions, u.directions), (bias, u.bias)]
    if (layer.readout is None) != (p.readout is None):
        return False
    pairs += [] if layer.readout is None else [(layer.readout, p.readout)]
    return all(a.shape == b.shape and np.array_equal(_wide(a), _wide(b)) for a, b in pairs)


class _Layers:
    """A walk through a network that adds every layer."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def layer(self, layer: Layer, at: int) -> int:
        forms, bias = layer.forms, 0.0 if layer.bias is None else _wide(layer.bias)
        graph = self.graph
        if isinstance(layer, Affine):
            return graph.linear([(at, _wide(forms.directions))], bias)
        y = graph.linear([(at, _wide(forms.directions))], 0.0 if forms.bias is None else _wide(forms.bias))
        units = graph.apply(y, activations(layer.activation, layer.dim_hidden))
        if forms.gate_directions is not None:
            offset = 0.0 if forms.gate_bias is None else _wide(forms.gate_bias)
            units = graph.product(units, graph.linear([(at, _wide(forms.gate_directions))], offset))
        return graph.linear([(units, None if layer.readout is None else _wide(layer.readout))], bias)

    def enter(self, at: int) -> int:
        return at

    def join(self, before: int, branch: int) -> int:
        return self.graph.linear([(before, None), (branch, None)])


# -- ridge polynomials and those with lines beyond a bound ------------------------------------------------------------


def _standardised(graph: Graph, p: NeuronPolynomial, at: int) -> tuple[int, np.ndarray]:
    """The t of the units, and their scales."""
    scale, shift = _wide(p.units.scales), _wide(p.units.shifts)
    inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1.0), 0.0)
    return graph.linear([(at, inverse[:, None] * _wide(p.units.directions))], -shift * inverse), scale


def _neurons(graph: Graph, p: NeuronPolynomial, at: int) -> int:
    t, _ = _standardised(graph, p, at)
    first, second = _series(p)
    units, gate = graph.apply(t, first), p.units.gate
    terms: list[tuple[int, Any]] = [(units, None if p.readout is None else _wide(p.readout))]
    if second is not None and gate is not None:
        z = graph.linear([(at, _wide(gate.directions))], -_wide(gate.shifts))
        e = graph.linear([(z, None), (t, -_wide(gate.slopes))])
        terms.append((graph.product(e, graph.apply(t, second)), terms[0][1]))
    return graph.linear(terms, 0.0 if p.bias is None else _wide(p.bias))


def _powers(series: Any) -> Numbers:
    """Coefficients (n + 1, h) in powers of t of Hermite series."""
    series = _wide(series)
    table = np.asarray(hermite_in_powers(len(series) - 1))
    return table.T @ series, (6 * len(series) + 8) * EPS * (np.abs(table).T @ np.abs(series))


def _series(p: NeuronPolynomial) -> tuple[Pieces, Pieces | None]:
    """A_i(t) and B_i(t) of the neurons A_i + e_i B_i, where e_i is what t does not explain of the second factor."""
    a, gate = _powers(p.series.plain), p.units.gate
    b = None if p.series.gated is None or gate is None else _powers(p.series.gated)
    if not isinstance(p, BoundedPolynomial):
        return polynomials(*a), None if b is None else polynomials(*b)
    bound, lines = to_numpy(p.bounds).astype(np.float64), _wide(p.slopes)
    steep = np.zeros_like(lines) if p.gate_slopes is None else _wide(p.gate_slopes)
    slope = np.zeros(len(bound)) if gate is None else _wide(gate.slopes)
    if b is None:
        return _with_lines(a, bound, [(s, 0 * s, 0 * s) for s in lines]), None
    # At t = held + excess, P(held) + s excess + (e + slope excess) (Q(held) + g excess).
    ends = [_at_bound(b, sign * bound) for sign in (-1.0, 1.0)]
    outer = [
        (s + slope * q, slope * g, np.abs(slope) * error + 4 * EPS * (np.abs(s) + np.abs(slope * q)))
        for s, (q, error), g in zip(lines, ends, steep, strict=True)
    ]
    return _with_lines(a, bound, outer), _with_lines(b, bound, [(g, 0 * g, 0 * g) for g in steep])


def _at_bound(a: Numbers, t: np.ndarray) -> Numbers:
    t = np.where(np.isfinite(t), t, 0.0)
    powers = t ** np.arange(len(a[0]))[:, None]
    size = np.sum((a[1] + 4 * len(powers) * EPS * np.abs(a[0])) * np.abs(powers), axis=0)
    return np.sum(a[0] * powers, axis=0), size


def _with_lines(a: Numbers, bound: np.ndarray, outer: Sequence[tuple[np.ndarray, ...]]) -> Pieces:
    """A polynomial within bounds (h,), and value + s excess + c excess^2 beyond: s, c, error of s for both sides."""
    n = max(len(a[0]), 3)
    inner = [np.concatenate([part, np.zeros((n - len(part), len(bound)))]) for part in a]
    tables, errors = [], []
    for sign, (s, c, off) in zip((-1.0, 1.0), outer, strict=True):
        at = np.where(np.isfinite(bound), sign * bound, 0.0)
        value, error = _at_bound(a, sign * bound)
        table, radius = np.zeros_like(inner[0]), np.zeros_like(inner[0])
        table[:3] = value - s * at + c * at**2, s - 2 * c * at, c
        radius[:3] = error + np.abs(s * at) + np.abs(c * at**2), np.abs(s) + np.abs(2 * c * at), np.abs(c)
        radius[0] = error + 8 * EPS * (radius[0] - error + np.abs(value))
        radius[1:3] *= 16 * EPS * n
        radius[:2] += np.abs(off * at), off
        free = ~np.isfinite(bound)
        tables.append(np.where(free, inner[0], table))
        errors.append(np.where(free, inner[1], radius))
    far = np.where(np.isfinite(bound), bound, 1e300)
    table, radius = (np.stack([ends[0], part, ends[1]]) for ends, part in zip((tables, errors), inner, strict=True))
    return Pieces(table, radius, np.stack([-far, far]), np.zeros((2, len(bound))))


# -- dense and chaos polynomials --------------------------------------------------------------------------------------


def _dense(graph: Graph, p: DensePolynomial, at: int) -> int:
    """Squares of the eigenvectors of each output's form; what rounding leaves of the form widens the squares."""
    center, o = _wide(p.center), p.dim_out
    u = graph.linear([(at, None)], -center)
    if p.directions is not None:
        u = graph.linear([(u, _wide(p.directions))])
    r = graph.sizes[u]
    terms: list[tuple[int, Any]] = [(u, np.zeros((o, r)) if p.linear is None else _wide(p.linear))]
    if p.quadratic is not None:
        forms = _wide(p.quadratic)
        forms, skew = (forms + forms.transpose(0, 2, 1)) / 2, EPS * np.abs(forms).sum(axis=(1, 2))
        values, vectors = np.linalg.eigh(forms)
        left = forms - (vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1)
        size = np.linalg.norm(left, axis=(1, 2)) + skew + (r + 8) * EPS * np.linalg.norm(forms, axis=(1, 2)) * r
        s = graph.linear([(u, vectors.transpose(0, 2, 1).reshape(o * r, r))])
        zero = np.zeros(o * r)
        squares = polynomials([zero, zero, values.ravel()], [zero, zero, 1.001 * np.repeat(size, r)])
        terms.append((graph.apply(s, squares), np.repeat(np.eye(o), r, axis=1)))
    return graph.linear(terms, _wide(p.constant))


def _chaos(graph: Graph, p: ChaosPolynomial, at: int) -> int:
    """For each output one polynomial of every coordinate; products of several coordinates factor by factor."""
    z = graph.linear([(graph.linear([(at, None)], -_wide(p.center)), _wide(p.whitener))])
    table, values, o, r = p.table, _wide(p.values), p.dim_out, graph.sizes[z]
    n = int(table.max(initial=0))
    several = np.count_nonzero(table, axis=1) > 1
    series = np.zeros((n + 1, o, r))  # a constant term has no coordinate
    for row, column in zip(table[~several], values[:, ~several].T, strict=True):
        if row.any():
            series[row.max(), :, int(np.argmax(row))] += column
    constants = values[:, ~table.any(axis=1)]
    terms = []
    if r:
        each = graph.linear([(z, np.tile(np.eye(r), (o, 1)))])
        own = graph.apply(each, polynomials(*_powers(series.reshape(n + 1, o * r))))
        terms.append((own, np.repeat(np.eye(o), r, axis=1)))
    else:
        terms.append((at, np.zeros((o, graph.sizes[at]))))
    if several.any():
        terms.append((_products(graph, z, table[several]), values[:, several]))
    return graph.linear(terms, constants.sum(axis=1), len(table) * EPS * np.abs(constants).sum(axis=1))


def _products(graph: Graph, z: int, table: np.ndarray) -> int:
    """Products of he_k(z_i) for each row of exponents, all of which have two factors at least."""
    factors = sorted({(i, k) for row in table.tolist() for i, k in enumerate(row) if k})
    place = {factor: j for j, factor in enumerate(factors)}
    series = np.zeros((max(k for _, k in factors) + 1, len(factors)))
    series[[k for _, k in factors], np.arange(len(factors))] = 1.0
    picked = np.eye(graph.sizes[z])[[i for i, _ in factors]]
    units = graph.apply(graph.linear([(z, picked)]), polynomials(*_powers(series)))
    listed = [[place[i, k] for i, k in enumerate(row) if k] for row in table.tolist()]
    most, one = max(map(len, listed)), np.eye(len(factors))
    steps = [[row[j] if j < len(row) else -1 for row in listed] for j in range(most)]
    total = graph.linear([(units, one[steps[0]])])
    for step in steps[1:]:  # a row without a further factor is multiplied by one
        done = np.asarray(step) < 0
        total = graph.product(
            total, graph.linear([(units, np.where(done[:, None], 0.0, one[step]))], done.astype(float))
        )
    return total
