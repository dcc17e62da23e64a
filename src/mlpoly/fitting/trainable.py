"""Polynomials as parameters of a well-conditioned least-squares problem, for gradient descent (torch).

Each form is rewritten, without changing a value, in coordinates taken from a sample of the inputs: the features that the
parameters multiply then have mean zero where they can, comparable sizes, and little correlation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np

from mlpoly.polynomials import ChaosPolynomial, DensePolynomial, Gate, Polynomial, RidgePolynomial
from mlpoly.polynomials.base import replace_fields
from mlpoly.polynomials.chaos import _features
from mlpoly.special import clenshaw, hermite

__all__ = ["Tensor", "Trainable", "moved", "trainable"]

Tensor = Any  # torch.Tensor; the core does not import torch

_FLOOR_FULL, _FLOOR_HALF = 1e-4, 1e-2  # of the mean variance: below it a direction is not scaled up any further


class Trainable(NamedTuple):
    """A polynomial as a function of parameters.

    Attributes
    ----------
    parameters : tuple of torch tensors
        Their values for the polynomial as it is, one tensor per group of like features.
    coordinates : callable
        From inputs (n, d) to what `evaluate` takes; it does not depend on the parameters.
    evaluate : callable
        (parameters, coordinates) -> values (n, o).
    polynomial : callable
        parameters -> polynomial of the same form.
    separate : bool
        Whether each output has parameters of its own, along their first axis: the curvature of one is that of all.
    """

    parameters: tuple[Tensor, ...]
    coordinates: Callable[[Tensor], Tensor]
    evaluate: Callable[[Sequence[Tensor], Tensor], Tensor]
    polynomial: Callable[[Sequence[Tensor]], Any]
    separate: bool


def trainable(poly: Polynomial, sample: Tensor, batch_size: int) -> Trainable:
    """Parameters of a polynomial for descent on batches of the distribution of `sample`.

    Parameters
    ----------
    poly : RidgePolynomial, DensePolynomial or ChaosPolynomial
        Over torch tensors; their dtype is that of the training.
    sample : tensor (n, d)
    batch_size : int
        Features that a batch outnumbers are whitened. More features than samples in a batch are not: steps would be
        limited by sampling noise in all directions alike, and those with much variance matter first.
    """
    if isinstance(poly, RidgePolynomial):
        return _ridge(poly, sample, batch_size)
    if isinstance(poly, DensePolynomial):
        return _dense(poly, sample, batch_size)
    if isinstance(poly, ChaosPolynomial):
        return _chaos(poly, sample, batch_size)
    raise TypeError(
        f"poly must be a RidgePolynomial, a DensePolynomial or a ChaosPolynomial, got {type(poly).__name__}."
    )


def moved(value: Any, change: Callable[[Any], Any]) -> Any:
    """A polynomial with every array changed (its inputs left out)."""
    changes: dict[str, Any] = {}
    for f in fields(value):
        part = getattr(value, f.name)
        if f.name == "inputs":
            changes[f.name] = None
        elif part is not None and not f.metadata.get("static"):
            changes[f.name] = moved(part, change) if is_dataclass(part) else change(part)
    return replace_fields(value, **changes)


# -- dense -------------------------------------------------------------------------------------------------------------


def _dense(poly: DensePolynomial, sample: Tensor, batch_size: int) -> Trainable:
    """Features 1, z and (z z' - E z z') / sqrt 2, with z = T (x - mean): orthonormal for whitened Gaussian inputs."""
    d, degree = poly.dim_in, poly.degree
    dtype = poly.center.dtype
    mean = sample.mean(0)
    cov = _covariance(sample - mean)
    T, inverse = _whitener(cov, math.comb(d + degree, degree) <= batch_size)
    second = T @ cov @ T
    wide = moved(poly, lambda a: a.double())
    start = [wide(mean)]
    if degree >= 1:
        start.append(wide.gradient(mean) @ inverse)
    if degree == 2:
        bend = inverse @ wide.quadratic @ inverse
        start[0] = start[0] + (bend * second).sum((1, 2))
        start.append(0.5 * (bend + bend.mT) * math.sqrt(2))
    mean_, T_, second_ = (a.to(dtype) for a in (mean, T, second))
    origin = mean_ * 0

    def local(theta: Sequence[Tensor], center: Tensor, moment: Tensor) -> DensePolynomial:
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
        return replace_fields(made, linear=linear, quadratic=quadratic)  # type: ignore[no-any-return]

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
    wide = moved(poly, lambda a: a.double())
    features = _features((sample - wide.center) @ wide.whitener.T, exponents).T  # (n, t)
    scale = _positive(features.square().mean(0).sqrt())
    full = exponents.shape[0] <= batch_size
    # The constant is one of the features, so this is not centred.
    T, inverse = _whitener(_covariance(features / scale), True) if full else (None, None)

    def mixed(a: Tensor, matrix: Tensor | None) -> Tensor:
        return a if matrix is None else a @ matrix

    scale_, T_ = scale.to(dtype), None if T is None else T.to(dtype)
    return Trainable(
        (mixed(wide.values * scale, inverse).to(dtype),),
        lambda x: mixed(_features((x - poly.center) @ poly.whitener.T, exponents).T / scale_, T_),
        lambda theta, phi: phi @ theta[0].mT,
        lambda theta: replace_fields(wide, values=mixed(theta[0].double(), T) / scale),
        True,
    )


# -- ridge -------------------------------------------------------------------------------------------------------------


def _ridge(poly: RidgePolynomial, sample: Tensor, batch_size: int) -> Trainable:
    """Series in the neurons' preactivations, standardised under the sample; readout of whitened hidden units."""
    dtype = poly.directions.dtype
    wide = _standardised(moved(poly, lambda a: a.double()), sample)
    if wide.readout is None:
        return _hidden(wide, sample, dtype)
    wide, T, inverse = _balanced(wide, sample, batch_size)
    gain = _positive(wide.readout.norm(dim=0))
    spread = _spread(wide, sample)
    first = wide.series[:1]  # the constants are left to the bias, which they would only repeat
    start = {"readout": wide.readout @ inverse, "bias": wide.bias}
    if wide.degree:
        start["series"] = wide.series[1:] * gain
    if wide.gate is not None:
        start["gate"] = wide.gate.series * spread * gain
    names = tuple(start)

    def build(theta: Sequence[Tensor]) -> RidgePolynomial:
        like = theta[0]
        at = dict(zip(names, theta, strict=True))
        p = moved(wide, lambda a: a.to(like.dtype))
        series, gate = first.to(like.dtype), p.gate
        if "series" in at:
            series = like.new_tensor(0).__class__.cat(series, at["series"])
        return replace_fields(p, series=series, gate=gate)  # type: ignore[no-any-return]

    raise NotImplementedError(build)
