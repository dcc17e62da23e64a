"""Polynomials of truncated power series: coefficients of any degree of polynomials of polynomials.

A power series in x, up to degree k, is a list of k + 1 arrays: the symmetric coefficients of degree j, one row per
value, with the entries of `mlpoly.polynomials.symmetric` in columns.
"""

import math
from typing import Any

import numpy as np

from mlpoly.arrays import Array, constant_index, namespace
from mlpoly.polynomials.dense import DensePolynomial
from mlpoly.polynomials.neurons import NeuronPolynomial, derivative
from mlpoly.polynomials.symmetric import factors
from mlpoly.special import clenshaw


def substituted(poly: Any, inner: list[Array]) -> list[Array]:
    """Power series of poly(inner(x)), up to the degree of `inner`; of a bounded polynomial within its bounds."""
    if isinstance(poly, NeuronPolynomial):
        return _neurons(poly, inner)
    if isinstance(poly, DensePolynomial):
        return _dense(poly, inner)
    outer = inner
    for stage in poly.applied:
        outer = substituted(stage, outer)
    return [a + b for a, b in zip(inner, outer, strict=True)] if poly.skip else outer


def _neurons(p: NeuronPolynomial, inner: list[Array]) -> list[Array]:
    """The neurons' own series around their values at x = 0, then the readout."""
    t = [(p.units.directions @ part) * p.units.inverse_scales[:, None] for part in inner]
    start = p.units.standardise((p.units.directions @ inner[0])[:, 0])
    t[0] = t[0] * 0
    hidden = _around(p.series.plain, start, t)
    gate = p.units.gate
    if gate is not None and p.series.gated is not None:
        e = [gate.directions @ part - gate.slopes[:, None] * along for part, along in zip(inner, t, strict=True)]
        e[0] = p.units.residual((gate.directions @ inner[0])[:, 0], start)[:, None]
        hidden = [a + b for a, b in zip(hidden, _product(e, _around(p.series.gated, start, t)), strict=True)]
    out = hidden if p.readout is None else [p.readout @ part for part in hidden]
    return out if p.bias is None else [out[0] + p.bias[:, None], *out[1:]]


def _around(series: Array, start: Array, t: list[Array]) -> list[Array]:
    """Hermite series (n + 1, h) at start + t, for a power series t without a constant: Taylor's, by Horner's rule."""
    taylor = [clenshaw(series, start)]
    for m in range(1, min(int(series.shape[0]), len(t))):
        series = derivative(series)
        taylor.append(clenshaw(series, start) / math.factorial(m))
    total = [part * 0 for part in t]
    for coefficient in reversed(taylor):
        total = _product(total, t)
        total[0] = total[0] + coefficient[:, None]
    return total


def _dense(p: DensePolynomial, inner: list[Array]) -> list[Array]:
    """Value, gradient and second derivatives where x = 0, times the powers of what moves from there."""
    p, at, xp, rows = p.expanded(), inner[0][:, 0], namespace(inner=inner[0]), list[list[Array]]()
    slope = p.gradient(at)
    out = [p(at)[:, None], *(slope @ part for part in inner[1:])]
    if p.quadratic is None:
        return out
    moved = [inner[0] * 0, *inner[1:]]
    for i in range(p.dim_out):
        bends = _product(moved, [p.quadratic[i, ...] @ part for part in moved])
        rows.append([xp.sum(part, axis=0) for part in bends])
    return [part + xp.stack([row[k] for row in rows]) for k, part in enumerate(out)]


def _product(left: list[Array], right: list[Array]) -> list[Array]:
    """Row by row, up to the same degree: the average over all ways to share the factors."""
    d, out = int(left[1].shape[1]), []
    for k in range(len(left)):
        total: Any = 0.0
        for j in range(k + 1):
            ways = factors(d, j, k - j)
            for one, two in ways:
                total = total + take_columns(left[j], one) * take_columns(right[k - j], two) / len(ways)
        out.append(total)
    return out


def take_columns(a: Array, index: np.ndarray) -> Array:
    """Columns of a matrix at integer positions."""
    return namespace(a=a).take(a, constant_index(index, a), axis=1)
