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

import torch

from mlpoly.inputs import Gaussian
from mlpoly.moments.hermite_products import products
from mlpoly.polynomials import BoundedPolynomial, ChaosPolynomial, DensePolynomial, Polynomial, RidgePolynomial
from mlpoly.polynomials.base import map_polynomial
from mlpoly.polynomials.neurons import NeuronPolynomial
from mlpoly.records import map_arrays, replace
from mlpoly.units import Series, Units

Tensor = torch.Tensor

_FLOOR_FULL, _FLOOR_HALF = 1e-4, 1e-2  # fraction of the mean variance below which a direction is not scaled up further


@dataclass(frozen=True)
class Trainable:
    """A polynomial as a function of parameters: one tensor for each group of similar features."""

    parameters: tuple[Tensor, ...]
    build: Callable[[Sequence[Tensor]], Any]  # parameters, in any precision, to a polynomial for inputs in the same
    # whether each output is linear in parameters of its own, along their first axis: then all have the same curvature
    separate: bool

    def polynomial(self, parameters: Sequence[Tensor]) -> Any:
        """The polynomial at given parameters, in float64 and in the form that it had."""
        poly = self.build([p.double() for p in parameters])
        if not isinstance(poly, DensePolynomial) or poly.directions is None:
            return poly
        poly = poly.expanded()
        return poly if poly.quadratic is None else replace(poly, quadratic=0.5 * (poly.quadratic + poly.quadratic.mT))


def trainable(poly: Polynomial, sample: Tensor, batch_size: int) -> Trainable:
    """Parameters of a polynomial over tensors, for descent on batches of the distribution of `sample` (n, d).

    Fewer features than a batch has samples are whitened. More are not whitened fully: sampling noise would limit the
    steps in all directions alike, while directions with much variance matter first.
    """
    dtype: Any = poly.prototype.dtype
    wide: Any = map_polynomial(poly, lambda a: a.double())
    if isinstance(poly, NeuronPolynomial):
        parameters, build = _neurons(wide, sample)
    elif isinstance(poly, DensePolynomial):
        full = math.comb(poly.dim_in + poly.degree, poly.degree) <= batch_size
        parameters, build = _dense(wide.expanded(), sample, full)
    elif isinstance(poly, ChaosPolynomial):
        parameters, build = _chaos(wide, sample, len(poly.exponents) <= batch_size)
    else:
        raise TypeError(
            f"poly must be a RidgePolynomial, a DensePolynomial or a ChaosPolynomial, got {type(poly).__name__}."
        )
    return Trainable(tuple(p.to(dtype) for p in parameters), build, not isinstance(poly, NeuronPolynomial))


Parameters = tuple[list[Tensor], Callable[[Sequence[Tensor]], Any]]


def _dense(poly: Any, sample: Tensor, full: bool) -> Parameters:
    """Features 1, z and (z z' - E z z') / sqrt 2, with z = T (x - mean): orthonormal for whitened Gaussian inputs."""
    mean: Any = sample.mean(0)
    cov = _covariance(sample - mean)
    T, inverse = _whitener(cov, full)
    second = T @ cov @ T  # E z z', which is I only if whitened in full
    start: list[Any] = [poly(mean)]
    if poly.degree >= 1:
        start.append(poly.gradient(mean) @ inverse)
    if poly.degree == 2:
        # z' B z = <B, z z' - E z z'> + <B, E z z'>: the constant takes up the mean of the quadratic part.
        bend = inverse @ poly.quadratic @ inverse
        start[0] = start[0] + (bend * second).sum((1, 2))
        start.append(0.5 * (bend + bend.mT) * math.sqrt(2))

    def build(theta: Sequence[Tensor]) -> DensePolynomial:
        terms: list[Any] = [*theta, None, None]
        constant, linear, bend = terms[:3]
        center, directions, moment = (a.to(theta[0].dtype) for a in (mean, T, second))
        if bend is not None:
            bend = bend * math.sqrt(0.5)
            constant = constant - (bend * moment).sum((1, 2))
        return DensePolynomial(center, constant, linear, bend, directions if linear is not None else None)

    return start, build


def _chaos(poly: ChaosPolynomial, sample: Tensor, full: bool) -> Parameters:
    """Features he_a(z), scaled to unit mean square, and whitened while a batch outnumbers them."""
    features = products((sample - poly.center) @ poly.whitener.T, poly.table).T  # (n, t)
    scale = _positive(features.square().mean(0).sqrt())
    # The constant is one of the features, so they are not centred.
    T, inverse = _whitener(_covariance(features / scale), True) if full else (None, None)

    def build(theta: Sequence[Tensor]) -> ChaosPolynomial:
        values = theta[0] if T is None else theta[0] @ T.to(theta[0].dtype)
        base = map_polynomial(poly, lambda a: a.to(values.dtype))
        return replace(base, values=values / scale.to(values.dtype))

    return [poly.values * scale if inverse is None else poly.values * scale @ inverse], build


def _neurons(poly: Any, sample: Tensor) -> Parameters:
    """Series in preactivations that are standardised under the sample, and a readout of standardised hidden units.

    Coefficients are trained times the effect that a change of them has on the outputs: the size of the neuron's
    readout, for second factors times their spread. The hidden units are not whitened: they change while their readout
    is trained, and readouts of directions without variance at the start would then blow up. A bounded polynomial is
    not standardised, because its bounds are in multiples of the standard deviations that it has.
    """
    poly = _balanced(_standardised(poly, sample) if isinstance(poly, RidgePolynomial) else poly, sample)
    gain = torch.ones_like(poly.units.scales) if poly.readout is None else _positive(poly.readout.norm(dim=0))
    gated = gain
    y, z = poly.forms_at(sample)
    if z is not None:  # times the root mean square (h,) of the part that the preactivation does not explain
        gated = gain * _positive(poly.units.residual(z, poly.units.standardise(y)).square().mean(0).sqrt())
    lines = isinstance(poly, BoundedPolynomial) and poly.degree
    # The constants of the series would only duplicate the bias, if there is a readout.
    coefficients = {
        "plain": poly.series.plain[0 if poly.readout is None else 1 :],
        "gated": poly.series.gated,
        "slopes": poly.slopes if lines else None,
        "gate_slopes": poly.gate_slopes if lines else None,
    }
    factors = {"plain": gain, "gated": gated, "slopes": gain, "gate_slopes": gated}
    start = {} if poly.readout is None else {"bias": poly.bias, "readout": poly.readout}
    start |= {name: a * factors[name] for name, a in coefficients.items() if a is not None and len(a)}

    def build(theta: Sequence[Tensor]) -> Any:
        dtype = theta[0].dtype
        at = {n: a / factors[n].to(dtype) if n in factors else a for n, a in zip(start, theta, strict=True)}
        base = map_polynomial(poly, lambda a: a.to(dtype))
        plain = base.series.plain
        if "plain" in at:
            plain = at["plain"] if base.readout is None else torch.cat([plain[:1], at["plain"]])
        series = Series(plain, at.get("gated", base.series.gated))
        base = replace(base, series=series, readout=at.get("readout"), bias=at.get("bias", base.bias))
        return replace(base, **{name: at[name] for name in ("slopes", "gate_slopes") if name in at})

    return list(start.values()), build


def _standardised(p: RidgePolynomial, sample: Tensor) -> RidgePolynomial:
    """The same polynomial with the shifts, scales and slopes of the sample; constant neurons keep theirs."""
    units = Units.under(p.units, Gaussian.from_samples(sample))
    moving = units.scales > 1e-9 * units.scales.max()
    shifts, scales = (
        new.where(moving, old) for new, old in ((units.shifts, p.units.shifts), (units.scales, p.units.scales))
    )
    units = replace(units, shifts=shifts, scales=scales)
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
    series = map_arrays(series, lambda a: a / size)
    scaled = replace(p, series=series, readout=p.readout * size, bias=bias, activation=None)
    if not isinstance(p, BoundedPolynomial):
        return scaled
    slopes, gate_slopes = map_arrays((p.slopes, p.gate_slopes), lambda a: a / size)
    return replace(scaled, slopes=slopes, gate_slopes=gate_slopes)


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
