"""Polynomials as parameters of a well-conditioned least-squares problem, for gradient descent (PyTorch).

Each form is rewritten, without changing its values, in coordinates estimated from a sample of the inputs, in which the
features that the parameters multiply have comparable sizes, little correlation and, where possible, mean zero: the
speed of gradient descent is limited by the ratio of the largest curvature to the smallest. Training runs in the dtype
of the polynomial, conversion in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mlpoly.moments.hermite_products import products
from mlpoly.polynomials import ChaosPolynomial, DensePolynomial, map_polynomial
from mlpoly.records import replace

Tensor = torch.Tensor
Build = Callable[[Sequence[Tensor]], Any]  # from parameters, in any precision, to a polynomial for inputs in the same

_FLOOR_FULL, _FLOOR_HALF = 1e-4, 1e-2  # fraction of the mean variance below which a direction is not scaled up further


@dataclass(frozen=True)
class Trainable:
    """A polynomial as a linear function of parameters: one tensor (o, ...) for each group of similar features."""

    parameters: list[Tensor]
    build: Build

    def polynomial(self, parameters: Sequence[Tensor]) -> Any:
        """The polynomial at given parameters, in float64 and in the form that it had."""
        poly = self.build([p.double() for p in parameters])
        if not isinstance(poly, DensePolynomial) or poly.directions is None:
            return poly
        poly = poly.expanded()
        return poly if poly.quadratic is None else replace(poly, quadratic=0.5 * (poly.quadratic + poly.quadratic.mT))


def trainable(poly: DensePolynomial | ChaosPolynomial, sample: Tensor, batch_size: int) -> Trainable:
    """Parameters of a polynomial over tensors, for descent on batches of the distribution of `sample` (n, d).

    Fewer features than a batch has samples are whitened. More are not whitened fully: sampling noise would limit the
    steps in all directions alike, while directions with much variance matter first.
    """
    dtype: Any = poly.prototype.dtype
    wide: Any = map_polynomial(poly, lambda a: a.double())
    if isinstance(poly, DensePolynomial):
        full = math.comb(poly.dim_in + poly.degree, poly.degree) <= batch_size
        parameters, build = _dense(wide.expanded(), sample, full)
    else:
        parameters, build = _chaos(wide, sample, len(poly.exponents) <= batch_size)
    return Trainable([p.to(dtype) for p in parameters], build)


def _dense(poly: Any, sample: Tensor, full: bool) -> tuple[list[Tensor], Build]:
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


def _chaos(poly: ChaosPolynomial, sample: Tensor, full: bool) -> tuple[list[Tensor], Build]:
    """Features he_a(z), scaled to unit mean square, and whitened while a batch outnumbers them."""
    features = products((sample - poly.center) @ poly.whitener.T, poly.table).T  # (n, t)
    scale = features.square().mean(0).sqrt()
    scale = scale.where(scale > 1e-9 * scale.max(), torch.ones_like(scale))  # features that vanish stay as they are
    T = inverse = torch.eye(len(scale)).to(scale)
    if full:  # The constant is one of the features, so they are not centred.
        T, inverse = _whitener(_covariance(features / scale), True)

    def build(theta: Sequence[Tensor]) -> ChaosPolynomial:
        base = map_polynomial(poly, lambda a: a.to(theta[0].dtype))
        return replace(base, values=theta[0] @ (T / scale).to(theta[0].dtype))

    return [poly.values * scale @ inverse], build


def _covariance(rows: Tensor) -> Tensor:
    return rows.T @ rows / rows.shape[0]


def _whitener(cov: Tensor, full: bool) -> tuple[Tensor, Tensor]:
    """Symmetric T with T cov T = I if `full`, else cov^(1/2), and its inverse; small variances are not blown up."""
    values, vectors = torch.linalg.eigh(cov)
    values = values.clip(0) + (_FLOOR_FULL if full else _FLOOR_HALF) * values.clip(0).mean()
    roots = values ** (0.5 if full else 0.25)
    return (vectors / roots) @ vectors.T, (vectors * roots) @ vectors.T
