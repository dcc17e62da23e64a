"""Polynomials as parameters of a well-conditioned least-squares problem, for gradient descent (PyTorch).

Each form is rewritten, without changing its values, in coordinates estimated from a sample of the inputs, in which the
features that the parameters multiply have comparable sizes, little correlation and, where possible, mean zero. Gradient
descent needs that: its speed is limited by the ratio of the largest curvature to the smallest. Training runs in the
dtype of the polynomial, conversion in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mlpoly.moments.hermite_products import products
from mlpoly.polynomials import BoundedPolynomial, ChaosPolynomial, DensePolynomial, Polynomial, RidgePolynomial
from mlpoly.polynomials.base import map_polynomial
from mlpoly.polynomials.neurons import NeuronPolynomial
from mlpoly.records import map_arrays, replace
from mlpoly.units import Series

Tensor = torch.Tensor

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
    """Parameters of a polynomial over tensors, for descent on batches of the distribution of `sample` (n, d).

    Fewer features than a batch has samples are whitened. More are not whitened fully: sampling noise would limit the
    steps in all directions alike, while directions with much variance matter first.
    """
    if isinstance(poly, NeuronPolynomial):
        return _neurons(poly, sample)
    if isinstance(poly, DensePolynomial):
        return _dense(poly, sample, math.comb(poly.dim_in + poly.degree, poly.degree) <= batch_size)
    if isinstance(poly, ChaosPolynomial):
        return _chaos(poly, sample, len(poly.exponents) <= batch_size)
    raise TypeError(
        f"poly must be a RidgePolynomial, a DensePolynomial or a ChaosPolynomial, got {type(poly).__name__}."
    )


def _dense(poly: DensePolynomial, sample: Tensor, full: bool) -> Trainable:
    """Features 1, z and (z z' - E z z') / sqrt 2, with z = T (x - mean): orthonormal for whitened Gaussian inputs."""
    degree, dtype, mean = poly.degree, poly.center.dtype, sample.mean(0)
    cov = _covariance(sample - mean)
    T, inverse = _whitener(cov, full)
    second = T @ cov @ T  # E z z', which is I only if whitened in full
    wide: Any = map_polynomial(poly.expanded(), lambda a: a.double())
    start = [wide(mean)]
    if degree >= 1:
        start.append(wide.gradient(mean) @ inverse)
    if degree == 2:
        # z' B z = <B, z z' - E z z'> + <B, E z z'>: the constant takes up the mean of the quadratic part.
        bend = inverse @ wide.quadratic @ inverse
        start[0] = start[0] + (bend * second).sum((1, 2))
        start.append(0.5 * (bend + bend.mT) * math.sqrt(2))
    mean_, T_, second_ = (a.to(dtype) for a in (mean, T, second))

    def in_z(theta: Sequence[Tensor], center: Tensor, moment: Tensor) -> DensePolynomial:
        """The polynomial of z at given parameters, around `center`."""
        if degree < 2:
            return DensePolynomial(center, theta[0], theta[1] if degree else None)
        bend = theta[2] * math.sqrt(0.5)
        return DensePolynomial(center, theta[0] - (bend * moment).sum((1, 2)), theta[1], bend)

    def polynomial(theta: Sequence[Tensor]) -> DensePolynomial:
        p = in_z([a.double() for a in theta], mean, second)
        quadratic = None if p.quadratic is None else T @ p.quadratic @ T
        return replace(
            p,
            linear=None if p.linear is None else p.linear @ T,
            quadratic=None if quadratic is None else 0.5 * (quadratic + quadratic.mT),
        )

    return Trainable(
        tuple(a.to(dtype) for a in start),
        lambda x: (x - mean_) @ T_,
        lambda theta, z: in_z(theta, mean_ * 0, second_)(z),
        polynomial,
        True,
    )


def _chaos(poly: ChaosPolynomial, sample: Tensor, full: bool) -> Trainable:
    """Features he_a(z), scaled to unit mean square, and whitened while a batch outnumbers them."""
    exponents, dtype = np.asarray(poly.exponents, dtype=np.int64), poly.center.dtype
    wide = map_polynomial(poly, lambda a: a.double())
    features = products((sample - wide.center) @ wide.whitener.T, exponents).T  # (n, t)
    scale = _positive(features.square().mean(0).sqrt())
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


def _neurons(poly: Any, sample: Tensor) -> Trainable:
    """Series in preactivations that are standardised under the sample, and a readout of standardised hidden units.

    Coefficients are trained times the effect that a change of them has on the outputs: the size of the neuron's
    readout, for second factors times their spread. The hidden units are not whitened: they change while their readout
    is trained, and readouts of directions without variance at the start would then blow up. A bounded polynomial is
    not standardised, because its bounds are in multiples of the standard deviations that it has.
    """
    dtype = poly.prototype.dtype
    wide = map_polynomial(poly, lambda a: a.double())
    wide = _balanced(_standardised(wide, sample) if isinstance(wide, RidgePolynomial) else wide, sample)
    gain = torch.ones_like(wide.units.scales) if wide.readout is None else _positive(wide.readout.norm(dim=0))
    y, z = wide.forms_at(sample)
    # Root mean square (h,) of the part of the second factor that the preactivation does not explain.
    rest = None if z is None else wide.units.residual(z, wide.units.standardise(y)).square().mean(0).sqrt()
    gated = gain if rest is None else gain * _positive(rest)
    start: dict[str, Tensor] = {}
    if wide.readout is None:
        start["series"] = wide.series.plain
    else:
        start |= {"bias": wide.bias, "readout": wide.readout}
        if wide.degree:  # without the constants of the series, which would only duplicate the bias
            start["series"] = wide.series.plain[1:] * gain
    if wide.series.gated is not None:
        start["gate"] = wide.series.gated * gated
    if isinstance(wide, BoundedPolynomial) and wide.degree:
        start["slopes"] = wide.slopes * gain
        if wide.gate_slopes is not None:
            start["gate_slopes"] = wide.gate_slopes * gated

    def rebuilt(p: Any, gain: Tensor, gated: Tensor, theta: Sequence[Tensor]) -> Any:
        """The polynomial at given parameters."""
        at = dict(zip(start, theta, strict=True))
        plain = p.series.plain
        if "series" in at:
            plain = at["series"] / gain if p.readout is None else torch.cat([plain[:1], at["series"] / gain])
        series = Series(plain, at["gate"] / gated if "gate" in at else None)
        inner = replace(p, series=series, readout=at.get("readout"), bias=at.get("bias", p.bias))
        if "slopes" not in at:
            return inner
        lines = at["gate_slopes"] / gated if "gate_slopes" in at else p.gate_slopes
        return replace(inner, slopes=at["slopes"] / gain, gate_slopes=lines)

    fixed, gain_, gated_ = map_polynomial(wide, lambda a: a.to(dtype)), gain.to(dtype), gated.to(dtype)
    return Trainable(
        tuple(a.to(dtype) for a in start.values()),
        lambda x: x,
        lambda theta, x: rebuilt(fixed, gain_, gated_, theta)(x),
        lambda theta: rebuilt(wide, gain, gated, [a.double() for a in theta]),
        False,
    )


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
        series = replace(series, plain=torch.cat([series.plain[:1] + p.bias, series.plain[1:]]))
    return replace(p, units=units, series=series, bias=None if p.readout is None else p.bias)


def _balanced(p: Any, sample: Tensor) -> Any:
    """The same polynomial with hidden units of mean zero and unit spread under the sample."""
    if p.readout is None:
        return p
    hidden = p.neurons(*p.forms_at(sample))
    mean, size = hidden.mean(0), _positive(hidden.std(0, correction=0))
    series = replace(p.series, plain=torch.cat([p.series.plain[:1] - mean, p.series.plain[1:]]))
    bias = p.readout @ mean + (0 if p.bias is None else p.bias)
    # The activation no longer describes the rescaled neurons.
    fields = {"readout": p.readout * size, "bias": bias, "activation": None}
    made = replace(p, series=map_arrays(series, lambda a: a / size), **fields)
    if not isinstance(p, BoundedPolynomial):
        return made
    return replace(made, slopes=p.slopes / size, gate_slopes=None if p.gate_slopes is None else p.gate_slopes / size)


def _covariance(rows: Tensor) -> Tensor:
    return rows.T @ rows / rows.shape[0]


def _whitener(cov: Tensor, full: bool) -> tuple[Tensor, Tensor]:
    """Symmetric T with T cov T = I if `full`, else cov^(1/2), and its inverse; small variances are not blown up."""
    values, vectors = torch.linalg.eigh(cov)
    values = values.clip(0) + (_FLOOR_FULL if full else _FLOOR_HALF) * values.clip(0).mean()
    roots = values ** (0.5 if full else 0.25)
    return (vectors / roots) @ vectors.T, (vectors * roots) @ vectors.T


def _positive(a: Tensor) -> Tensor:
    """Sizes to divide by, with one in place of zeros."""
    return a.where(a > 1e-9 * a.max(), torch.ones_like(a))
