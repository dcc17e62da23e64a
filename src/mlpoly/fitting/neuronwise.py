"""Each neuron's own best polynomial under a mixture: a ridge form, in closed form, for any degree and size (MATH 4b).

The one-dimensional problem has the form of the whole one, with a matrix B per component as small as the degree, which
re-expands the pooled Hermite basis in the component's own.
"""

from __future__ import annotations

import math
from typing import Any

from mlpoly.activations import project
from mlpoly.arrays import Array, cast_like, namespace, promote, rounding_error, safe_inverse, widen
from mlpoly.fitting.least_squares import LeastSquares
from mlpoly.fitting.preactivations import Preactivations, preactivations, regression
from mlpoly.inputs import GaussianMixture
from mlpoly.networks import Layer
from mlpoly.polynomials import Gate, RidgePolynomial, Source
from mlpoly.special import times_line

__all__ = ["fit_neuronwise"]

METHOD = "least squares neuron by neuron under a Gaussian mixture"


def fit_neuronwise(net: Layer, inputs: GaussianMixture, degree: int) -> RidgePolynomial:
    """Ridge polynomial whose neurons are each optimal under their own marginal of the mixture."""
    return _fit_mlp(net, inputs, degree) if net.forms.gate_directions is None else _fit_glu(net, inputs, degree)


def _fit_mlp(net: Any, inputs: GaussianMixture, degree: int) -> RidgePolynomial:
    parts = [preactivations(g, net.forms.directions) for g in inputs.components]
    centre, scale = _pooled(inputs.weights, [p.centres for p in parts], [p.stds for p in parts])
    bias = 0 if net.forms.bias is None else widen(net.forms.bias)
    systems = []
    for p in parts:
        basis = _basis(p.centres - centre, p.stds, scale, degree)
        systems.append((basis, project(net.activation, p.centres + bias, p.stds, degree)))
    like = net.forms.directions
    series = _solve(inputs.weights, systems, like)
    return RidgePolynomial(
        directions=net.forms.directions,
        shifts=cast_like(centre, like),
        scales=cast_like(scale, like),
        series=cast_like(series, like),
        readout=net.readout,
        bias=net.bias,
        inputs=inputs,
        source=Source(net.activation.name, METHOD),
    )


def _fit_glu(net: Any, inputs: GaussianMixture, degree: int) -> RidgePolynomial:
    weights = widen(inputs.weights)
    parts = [preactivations(g, net.forms.directions, net.forms.gate_directions) for g in inputs.components]
    ups = [preactivations(g, net.forms.gate_directions) for g in inputs.components]
    centre, scale = _pooled(weights, [p.centres for p in parts], [p.stds for p in parts])
    up_centre, up_scale = _pooled(weights, [u.centres for u in ups], [u.stds for u in ups])
    cross = sum(
        (
            weights[c] * (p.cross + (p.centres - centre) * (u.centres - up_centre))
            for c, (p, u) in enumerate(zip(parts, ups, strict=True))
        ),
        start=0.0,
    )
    slope = regression(cross, scale)
    # Standard deviation of the part of z that t does not explain; below the floor it is what rounding leaves of none.
    variance = up_scale**2 - slope**2
    floor = 100 * rounding_error(promote(net.forms.directions, inputs.means)[0]) * up_scale**2
    spread = _root(namespace(v=variance).where(variance > floor, variance, 0.0))
    systems = [
        _glu_system(net, p, u, (centre, scale, up_centre, slope, spread), degree)
        for p, u in zip(parts, ups, strict=True)
    ]
    like = net.forms.directions
    solved = _solve(weights, systems, like)
    gate = Gate(
        directions=net.forms.gate_directions,
        shifts=cast_like(up_centre, like),
        slopes=cast_like(slope, like),
        series=cast_like(solved[degree + 1 :, ...] * safe_inverse(spread), like),
    )
    return RidgePolynomial(
        directions=net.forms.directions,
        shifts=cast_like(centre, like),
        scales=cast_like(scale, like),
        series=cast_like(solved[: degree + 1, ...], like),
        readout=net.readout,
        bias=net.bias,
        gate=gate if degree else None,
        inputs=inputs,
        source=Source(net.activation.name, METHOD),
    )


def _glu_system(
    net: Any, p: Preactivations, u: Preactivations, pooled: tuple[Array, Array, Array, Array, Array], degree: int
) -> tuple[Array, Array]:
    """Pooled basis he_k(t), he_k(t) e / spread, and the gated unit, both in a component's own he_j(w1), he_j(w1) w2."""
    centre, scale, up_centre, slope, spread = pooled
    xp = namespace(centre=centre)
    own_slope = regression(p.cross, p.stds)
    own_spread = _root(u.stds**2 - own_slope**2)
    basis = _basis(p.centres - centre, p.stds, scale, degree)
    bias = 0 if net.forms.bias is None else widen(net.forms.bias)
    up_bias = 0 if net.forms.gate_bias is None else widen(net.forms.gate_bias)
    c = project(net.activation, p.centres + bias, p.stds, degree + 1)
    target = times_line(c, u.centres + up_bias, own_slope)
    if degree == 0:
        return basis, target
    # e = e0 + e1 w1 + own_spread w2 in the component's coordinates
    inverse, narrow = safe_inverse(scale), safe_inverse(spread)
    e0 = u.centres - up_centre - slope * (p.centres - centre) * inverse
    e1 = own_slope - slope * p.stds * inverse
    lower = basis[: degree + 1, :degree, ...]
    padded = xp.concat([lower, lower[:1, ...] * 0])
    gated = times_line(padded, e0, e1) * narrow
    across = basis[:degree, :degree, ...] * (own_spread * narrow)
    top = xp.concat([basis, gated], axis=1)
    bottom = xp.concat([basis[:degree, ...] * 0, across], axis=1)
    return xp.concat([top, bottom]), xp.concat([target, c[:degree, ...] * own_spread])


def _pooled(weights: Array, centres: list[Array], stds: list[Array]) -> tuple[Array, Array]:
    """Mean and standard deviation of each neuron over the mixture, (h,) each."""
    weights = widen(weights)
    mean = sum((weights[c] * m for c, m in enumerate(centres)), start=0.0)
    variance = sum(
        (weights[c] * (s * s + (m - mean) ** 2) for c, (m, s) in enumerate(zip(centres, stds, strict=True))), start=0.0
    )
    return mean, _root(variance)


def _root(variance: Array) -> Array:
    """Square root that is zero, with a zero gradient, where rounding left nothing."""
    xp = namespace(variance=variance)
    positive = variance > 0
    return xp.where(positive, xp.sqrt(xp.where(positive, variance, 1.0)), 0.0)


def _basis(gap: Array, std: Array, scale: Array, degree: int) -> Array:
    """B (degree + 1, degree + 1, h): column k is he_k(t) in the component's he_j(w), for t = (gap + std w) / scale."""
    xp = namespace(gap=gap)
    offset, slope = gap * safe_inverse(scale), std * safe_inverse(scale)
    zero = gap * 0
    columns = [xp.stack([zero + 1] + [zero] * degree)]
    before = columns[0] * 0
    for k in range(degree):
        raised = times_line(xp.concat([columns[-1], columns[-1][:1, ...] * 0]), offset, slope)
        columns.append((raised - math.sqrt(k) * before) / math.sqrt(k + 1))
        before = columns[-2]
    # A neuron that is constant under the whole mixture has a constant as its only basis function.
    moving = xp.where(scale > 0, 1.0, 0.0)
    return xp.stack([columns[0], *[c * moving for c in columns[1:]]], axis=1)


def _solve(weights: Array, systems: list[tuple[Array, Array]], like: Array) -> Array:
    """Coefficients (basis, h), stored like `like`, from basis (rows, basis, h) and target (rows, h) by component."""
    xp = namespace(weights=weights)
    weights = widen(weights)
    # A basis function that overflows on some component could not be evaluated there either: it gets no coefficient.
    usable = systems[0][0][:1, ...] == systems[0][0][:1, ...]
    for basis, _ in systems:
        usable = usable & xp.all(xp.isfinite(basis), axis=0, keepdims=True)
    problem = LeastSquares()
    for c, (basis, target) in enumerate(systems):
        rows = xp.permute_dims(xp.where(usable, basis, 0.0), (2, 0, 1))
        problem.add(weights[c], rows, target.T[..., None])
    return problem.solve(rounding_error(like))[..., 0].T
