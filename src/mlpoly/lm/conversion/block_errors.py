"""Errors of a polynomial in place of a block: in closed form, and on the activations of a model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mlpoly.measures import fvu
from mlpoly.networks import Layer
from mlpoly.polynomials import BoundedPolynomial, Polynomial
from mlpoly.scores import ErrorSums


@dataclass(frozen=True)
class BlockErrors:
    """Errors of the polynomial of one block; None where an error was not measured, or is not finite."""

    block: str
    degree: int
    # Fraction of the block's variance left unexplained: by the best polynomial of this degree, without lines, under the
    # Gaussian or mixture of the fit; by the polynomial with its lines on the block's inputs in the intact model, on
    # held-out text; and there by the best polynomial without lines.
    closed_form: float | None = None
    held_out: float | None = None
    held_out_unbounded: float | None = None
    # Median over held-out tokens of |f - p|^2 / |f|^2, with the bound. In some blocks a few tokens with massive
    # activations are nearly all of the variance; this is the error of the others.
    typical: float | None = None
    beyond: float | None = None  # fraction of the preactivations of held-out tokens that lie beyond the bound
    seconds: float = 0.0  # for the fit, without the pass over the data


def closed_form_error(net: Layer, poly: Polynomial) -> float | None:
    """Return the fraction of variance unexplained under the inputs of the fit; None if an output is constant."""
    try:
        return _finite(fvu(net, poly).total)
    except ValueError:
        return None


class HeldOutErrors:
    """Errors over a stream of inputs: of all tokens, of each relative to its output, and how many pass the bound."""

    def __init__(self, net: Layer, poly: Polynomial, plain: Polynomial) -> None:
        self._net, self._poly, self._without = net, poly, plain
        self._bounded, self._plain = ErrorSums(standard_error=False), ErrorSums(standard_error=False)
        self._beyond: Any = 0.0
        self._relative: list[Tensor] = []

    def add(self, x: Tensor) -> None:
        """Take inputs (n, d)."""
        x, poly = x.to(self._net.prototype.dtype), self._poly
        f = self._net(x).double()
        plain = p = self._without(x).double()
        if isinstance(poly, BoundedPolynomial):
            p = poly(x).double()
            t = poly.units.standardise(poly.forms_at(x)[0])
            self._beyond = self._beyond + (t.abs() > poly.bounds).double().mean(1).sum()
        self._bounded.update(f, p)
        self._plain.update(f, plain)
        self._relative.append(((f - p) ** 2).sum(1) / (f**2).sum(1))

    def result(self) -> dict[str, float | None]:
        """Return the fields of `BlockErrors` that were measured; none for an expert that got no token."""
        if not self._relative:
            return {}
        relative = torch.cat(self._relative)
        return {
            "held_out": _finite(self._bounded.total),
            "held_out_unbounded": _finite(self._plain.total),
            "typical": _finite(relative.median()),
            "beyond": float(self._beyond) / len(relative) if isinstance(self._poly, BoundedPolynomial) else None,
        }


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
