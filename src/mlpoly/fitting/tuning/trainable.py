"""Polynomials as parameters of a well-conditioned least-squares problem, for gradient descent (torch).

Each form is rewritten, without changing its values, in coordinates estimated from a sample of the inputs, in which the
features that the parameters multiply have comparable sizes, little correlation and, where possible, mean zero. Gradient
descent needs that: its speed is limited by the ratio of the largest curvature to the smallest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mlpoly.arrays import namespace
from mlpoly.moments.hermite_products import products
from mlpoly.polynomials import BoundedPolynomial, ChaosPolynomial, DensePolynomial, Polynomial, RidgePolynomial
from mlpoly.polynomials.base import map_polynomial
from mlpoly.records import map_arrays, replace
from mlpoly.units import Series

Tensor = Any  # torch.Tensor; the core does not import torch

_FLOOR_FULL, _FLOOR_HALF = 1e-4, 1e-2  # fraction of the mean variance below which a direction is not scaled up further


@dataclass(frozen=True)
class Trainable:
    """A polynomial as a function of parameters."""

    parameters: tuple[Tensor, ...]  # those of the polynomial, one tensor per group of similar features
    coordinates: Callable[[Tensor], Tensor]  # of inputs (n, d), for `evaluate`; independent of the parameters
    evaluate: Callable[[Sequence[Tensor], Tensor], Tensor]  # (parameters, coordinates) -> values (n, o)
    polynomial: Callable[[Sequence[Tensor]], Any]  # parameters -> polynomial of the same form
    # whether each output is linear in parameters of its own, along their first axis: then all have the same curvature
    separate: bool


def trainable(poly: Polynomial, sample: Tensor, batch_size: int) -> Trainable:
    """Parameters of a polynomial for descent on batches of the distribution of `sample`.

    Parameters
    ----------
    poly : RidgePolynomial, DensePolynomial or ChaosPolynomial
        Polynomial over torch tensors; their dtype is that of the training.
    sample : tensor (n, d)
    batch_size : int
        Number of samples in a batch. Fewer features than that are whitened. More are not whitened fully: sampling noise
        would limit the steps in all directions alike, while directions with much variance matter first.
    """
    if isinstance(poly, (RidgePolynomial, BoundedPolynomial)):
        return _neurons(poly, sample)
    if isinstance(poly, DensePolynomial):
        return _dense(poly, sample, batch_size)
    if isinstance(poly, ChaosPolynomial):
        return _chaos(poly, sample, batch_size)
    raise TypeError(
        f"poly must be a RidgePolynomial, a DensePolynomial or a ChaosPolynomial, got {type(poly).__name__}."
    )


# -- dense -------------------------------------------------------------------------------------------------------------


def _dense(poly: DensePolynomial, sample: Tensor, batch_size: int) -> Trainable:
    """Features 1, z and (z z' - E z z') / sqrt 2, with z = T (x - mean): orthonormal for whitened Gaussian inputs."""
    d, degree = poly.dim_in, poly.degree
    dtype = poly.center.dtype
    mean = sample.mean(0)
    cov = _covariance(sample - mean)
    T, inverse = _whitener(cov, math.comb(d + degree, degree) <= batch_size)
    second = T @ cov @ T  # E z z', which is I only if whitened in full
    wide = map_polynomial(poly.expanded(), lambda a: a.double())
    start = [wide(mean)]
    if degree >= 1:
        start.append(wide.gradient(mean) @ inverse)
    if degree == 2:
        # z' B z = <B, z z' - E z z'> + <B, E z z'>: the constant takes up the mean of the quadratic part.
        bend = inverse @ wide.quadratic @ inverse
        start[0] = start[0] + (bend * second).sum((1, 2))
        start.append(0.5 * (bend + bend.mT) * math.sqrt(2))
    mean_, T_, second_ = (a.to(dtype) for a in (mean, T, second))  # training runs in `dtype`, conversion in float64
    origin = mean_ * 0

    def local(theta: Sequence[Tensor], center: Tensor, moment: Tensor) -> DensePolynomial:
        """The polynomial of z at given parameters, around `center`."""
        if degree < 2:
            return DensePolynomial(center, *theta)
        bend = theta[2] * math.sqrt(0.5)
        return DensePolynomial(center, theta[0] - (bend * moment).sum((1, 2)), theta[1], bend)

    def polynomial(theta: Sequence[Tensor]) -> DensePolynomial:
        made = local([p.double() for p in theta], mean, second)
        linear = None if made.linear is None else made.linear @ T
        quadratic = None if made.quadratic is None else T @ made.quadratic @ T
        if quadratic is not None:
            quadratic = 0.5 * (quadratic + quadratic.mT)
        return replace(made, linear=linear, quadratic=quadratic)

    return Trainable(
        tuple(p.to(dtype) for p in start),
        lambda x: (x - mean_) @ T_,
        lambda theta, z: local(theta, origin, second_)(z),
        polynomial,
        True,
    )


# -- chaos -------------------------------------------------------------------------------------------------------------


def _chaos(poly: ChaosPolynomial, sample: Tensor, batch_size: int) -> Trainable:
    """Features he_a(z), scaled to unit mean square, and whitened while a batch outnumbers them."""
    exponents = np.asarray(poly.exponents, dtype=np.int64)
    dtype = poly.center.dtype
    wide = map_polynomial(poly, lambda a: a.double())
    features = products((sample - wide.center) @ wide.whitener.T, exponents).T  # (n, t)
    scale = _positive(features.square().mean(0).sqrt())
    full = exponents.shape[0] <= batch_size
    # The constant is one of the features, so they are not centred.
    T, inverse = _whitener(_covariance(features / scale), True) if full else (None, None)

    def mixed(a: Tensor, matrix: Tensor | None) -> Tensor:
        return a if matrix is None else a @ matrix

    scale_, T_ = scale.to(dtype), None if T is None else T.to(dtype)
    return Trainable(
        (mixed(wide.values * scale, inverse).to(dtype),),
        lambda x: mixed(products((x - poly.center) @ poly.whitener.T, exponents).T / scale_, T_),
        lambda theta, phi: phi @ theta[0].mT,
        lambda theta: replace(wide, values=mixed(theta[0].double(), T) / scale),
        True,
    )


# -- neurons -----------------------------------------------------------------------------------------------------------


class _Scales(NamedTuple):
    """Effect of a change of a neuron's coefficients on the outputs, (h,) each: coefficients times this are trained."""

    plain: Tensor  # size of its readout
    gated: Tensor  # the same times the spread of its second factor


def _neurons(poly: RidgePolynomial | BoundedPolynomial, sample: Tensor) -> Trainable:
    """Series in preactivations that are standardised under the sample, and a readout of standardised hidden units.

    The hidden units are not whitened: they change while their readout is trained, and readouts of directions without
    variance at the start would then blow up. A bounded polynomial is not standardised, because its bounds are in
    multiples of the standard deviations that it has.
    """
    dtype = poly.prototype.dtype
    wide = map_polynomial(poly, lambda a: a.double())
    wide = _balanced(_standardised(wide, sample) if isinstance(wide, RidgePolynomial) else wide, sample)
    gain = wide.units.scales * 0 + 1 if wide.readout is None else _positive(wide.readout.norm(dim=0))
    y, z = wide.forms_at(sample)
    # Root mean square (h,) of the part of the second factor that the preactivation does not explain.
    rest = None if z is None else wide.units.residual(z, wide.units.standardise(y)).square().mean(0).sqrt()
    scales = _Scales(gain, gain if rest is None else gain * _positive(rest))
    p = wide.inner if isinstance(wide, BoundedPolynomial) else wide
    start: dict[str, Tensor] = {}
    if p.readout is None:
        start["series"] = p.series.plain
    else:
        start |= {"bias": p.bias, "readout": p.readout}
        if p.degree:  # without the constants of the series, which would only duplicate the bias
            start["series"] = p.series.plain[1:] * scales.plain
    if p.series.gated is not None:
        start["gate"] = p.series.gated * scales.gated
    if isinstance(wide, BoundedPolynomial) and p.degree:
        start["slopes"] = wide.slopes * scales.plain
        if wide.gate_slopes is not None:
            start["gate_slopes"] = wide.gate_slopes * scales.gated
    names = tuple(start)
    fixed, narrow = map_polynomial(wide, lambda a: a.to(dtype)), _Scales(*(a.to(dtype) for a in scales))
    return Trainable(
        tuple(p.to(dtype) for p in start.values()),
        lambda x: x,
        lambda theta, x: _rebuilt(fixed, narrow, dict(zip(names, theta, strict=True)))(x),
        lambda theta: _rebuilt(wide, scales, dict(zip(names, [p.double() for p in theta], strict=True))),
        False,
    )


def _rebuilt(poly: Any, scales: _Scales, at: dict[str, Tensor]) -> Any:
    """The polynomial at given parameters."""
    p = poly.inner if isinstance(poly, BoundedPolynomial) else poly
    plain = p.series.plain
    if "series" in at:
        plain = at["series"] / scales.plain
        if p.readout is not None:
            plain = namespace(plain=plain).concat([p.series.plain[:1], plain])
    series = Series(plain, at["gate"] / scales.gated if "gate" in at else None)
    made = replace(p, series=series, readout=at.get("readout"), bias=at.get("bias"))
    if made.readout is None and p.bias is not None:
        made = replace(made, bias=p.bias)
    if p is poly:
        return made
    slopes = at["slopes"] / scales.plain if "slopes" in at else poly.slopes
    lines = at["gate_slopes"] / scales.gated if "gate_slopes" in at else poly.gate_slopes
    return replace(poly, inner=made, slopes=slopes, gate_slopes=lines)


def _standardised(p: RidgePolynomial, sample: Tensor) -> RidgePolynomial:
    """The same polynomial with the shifts, scales and slopes of the sample; constant neurons keep theirs."""
    y = sample @ p.units.directions.T
    spread = y.std(0, correction=0)
    moving = spread > 1e-9 * spread.max()
    shifts, scales = y.mean(0).where(moving, p.units.shifts), spread.where(moving, p.units.scales)
    units, gate = replace(p.units, shifts=shifts, scales=scales), p.units.gate
    if gate is not None:
        t, z = units.standardise(y), sample @ gate.directions.T
        slopes = (t * (z - z.mean(0))).mean(0)
        units = replace(units, gate=replace(gate, shifts=z.mean(0) - slopes * t.mean(0), slopes=slopes, spreads=None))
    series = p.series.rebase(p.units, units)
    if p.readout is None and p.bias is not None:  # the neurons are the outputs: their constants take up the bias
        plain = namespace(series=series.plain).concat([series.plain[:1] + p.bias, series.plain[1:]])
        series = replace(series, plain=plain)
    return replace(p, units=units, series=series, bias=None if p.readout is None else p.bias)


def _balanced(poly: Any, sample: Tensor) -> Any:
    """The same polynomial with hidden units of mean zero and unit spread under the sample."""
    p = poly.inner if isinstance(poly, BoundedPolynomial) else poly
    if p.readout is None:
        return poly
    hidden = poly.neurons(*poly.forms_at(sample))
    mean, size = hidden.mean(0), _positive(hidden.std(0, correction=0))
    plain = namespace(series=p.series.plain).concat([p.series.plain[:1] - mean, p.series.plain[1:]])
    series = map_arrays(replace(p.series, plain=plain), lambda a: a / size)
    bias = p.readout @ mean + (0 if p.bias is None else p.bias)
    # The activation no longer describes the rescaled neurons.
    made = replace(p, series=series, readout=p.readout * size, bias=bias, activation=None)
    if p is poly:
        return made
    lines = None if poly.gate_slopes is None else poly.gate_slopes / size
    return replace(poly, inner=made, slopes=poly.slopes / size, gate_slopes=lines)


# -- common helpers ----------------------------------------------------------------------------------------------------


def _covariance(rows: Tensor) -> Tensor:
    return rows.T @ rows / rows.shape[0]


def _whitener(cov: Tensor, full: bool) -> tuple[Tensor, Tensor]:
    """Symmetric T with T cov T = I if `full`, else cov^(1/2), and its inverse; small variances are not blown up."""
    values, vectors = namespace(cov=cov).linalg.eigh(cov)
    values = values.clip(0) + (_FLOOR_FULL if full else _FLOOR_HALF) * values.clip(0).mean()
    roots = values ** (0.5 if full else 0.25)
    return (vectors / roots) @ vectors.T, (vectors * roots) @ vectors.T


def _positive(a: Tensor) -> Tensor:
    """Sizes to divide by, with one in place of zeros."""
    return a.where(a > 1e-9 * a.max(), a * 0 + 1)
