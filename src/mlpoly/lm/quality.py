"""How well polynomials do in the place of blocks: in closed form, and on the activations of a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.fitting.preactivations import first_weight
from mlpoly.integrations.blocks import Block
from mlpoly.layers import GLU, MLP
from mlpoly.lm.visit import visit
from mlpoly.measures import fvu
from mlpoly.polynomials import Polynomial, RidgePolynomial

__all__ = ["closed_form_error", "held_out_errors"]

Errors = tuple[float | None, float | None]


def closed_form_error(block: Block, poly: Polynomial) -> float | None:
    """Fraction of variance unexplained under what the polynomial was fitted under; None if an output is constant."""
    try:
        return _finite(float(fvu(block.net(), poly).total))
    except ValueError:
        return None


def held_out_errors(
    model: nn.Module,
    blocks: Sequence[Block],
    polynomials: Mapping[str, Polynomial],
    bound: float | None,
    batches: Iterable[Any],
) -> tuple[dict[str, Errors], dict[str, Any]]:
    """Errors with and without the bound on the inputs of the intact model's blocks, and which data that was."""
    tallies = {block.name: _Tally(block.net(), polynomials[block.name], bound) for block in blocks}
    read = visit(model, blocks, batches, lambda block, x: tallies[block.name].add(x), stop=True)
    return {n: tally.errors() for n, tally in tallies.items()}, {"data": read.fingerprint, "tokens": read.tokens}


class _Tally:
    """Sums for the fraction of variance unexplained, all outputs together."""

    def __init__(self, net: MLP | GLU, poly: Any, bound: float | None) -> None:
        self._net, self._poly = net, poly
        self._bound = bound if isinstance(poly, RidgePolynomial) else None
        self._count = 0
        self._mean: Any = 0.0  # (o,)
        self._spread: Any = 0.0
        self._missed: Any = 0.0  # with and without the bound, (2,)

    def add(self, x: Tensor) -> None:
        """Take inputs (n, d)."""
        x = x.to(first_weight(self._net).dtype)
        f, plain = self._net(x).double(), self._poly(x).double()
        held = plain if self._bound is None else self._poly(x, bound=self._bound).double()
        self._missed = self._missed + torch.stack([((f - p) ** 2).sum() for p in (held, plain)])
        n, mean = f.shape[0], f.mean(0)
        gap, total = mean - self._mean, self._count + n
        self._spread = self._spread + ((f - mean) ** 2).sum() + (gap**2).sum() * (self._count * n / total)
        self._mean = self._mean + gap * (n / total)
        self._count = total

    def errors(self) -> Errors:
        """Fractions with and without the bound."""
        held, plain = (self._missed / self._spread).tolist()
        return _finite(held), _finite(plain)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
