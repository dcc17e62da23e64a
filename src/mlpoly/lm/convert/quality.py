"""How well polynomials do in the place of blocks: in closed form, and on the activations of a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mlpoly.integrations.blocks import Block
from mlpoly.lm.convert.conversion import plain
from mlpoly.lm.model.visit import visit
from mlpoly.measures import ErrorSums, fvu
from mlpoly.networks import Layer
from mlpoly.polynomials import BoundedPolynomial, Polynomial

__all__ = ["Errors", "closed_form_error", "judge"]


class Errors(NamedTuple):
    """Of one block's polynomials; see `Quality`, which begins with the same fields."""

    closed_form: float | None = None
    held_out: float | None = None
    held_out_unbounded: float | None = None
    typical: float | None = None
    beyond: float | None = None


def judge(
    model: nn.Module,
    blocks: Sequence[Block],
    found: Mapping[str, Polynomial],
    held_out: Iterable[Any] | None,
    closed_form: bool,
) -> tuple[dict[str, Errors], dict[str, Any] | None]:
    """Errors of the polynomials of each block, and which data they were judged on."""
    errors = {block.name: Errors() for block in blocks}
    judged: dict[str, Any] | None = None
    if held_out is not None and blocks:
        tallies = {block.name: _Tally(block.net(), found[block.name]) for block in blocks}
        read = visit(model, blocks, held_out, lambda block, x, _: tallies[block.name].add(x), stop=True)
        errors = {name: tally.errors() for name, tally in tallies.items()}
        judged = {"data": read.fingerprint, "tokens": read.tokens}
    if closed_form:
        for block in blocks:
            closed = closed_form_error(block, found[block.name])
            errors[block.name] = errors[block.name]._replace(closed_form=closed)
    return errors, judged


def closed_form_error(block: Block, poly: Polynomial) -> float | None:
    """Fraction of variance unexplained under what was fitted under; None if an output is constant."""
    try:
        return _finite(float(fvu(block.net(), plain(poly)).total))
    except ValueError:
        return None


class _Tally:
    """Errors over all tokens, the error of each token relative to its output, and how often the bound is passed."""

    def __init__(self, net: Layer, poly: Polynomial) -> None:
        self._net, self._poly = net, poly
        self._held = ErrorSums(standard_error=False)
        self._plain = ErrorSums(standard_error=False)  # without the bound
        self._beyond: Any = 0.0
        self._tokens: list[Tensor] = []

    def add(self, x: Tensor) -> None:
        """Take inputs (n, d)."""
        x, poly = x.to(self._net.prototype.dtype), self._poly
        f = self._net(x).double()
        free = held = plain(poly)(x).double()
        if isinstance(poly, BoundedPolynomial):
            held = poly(x).double()
            t = poly.units.standardise(poly.forms_at(x)[0])
            self._beyond = self._beyond + (t.abs() > poly.bounds).double().mean(1).sum()
        self._held.update(f, held)
        self._plain.update(f, free)
        self._tokens.append(((f - held) ** 2).sum(1) / (f**2).sum(1))

    def errors(self) -> Errors:
        """What came of it."""
        tokens = torch.cat(self._tokens)
        held, free = float(self._held.total), float(self._plain.total)
        beyond = float(self._beyond) / len(tokens) if isinstance(self._poly, BoundedPolynomial) else None
        return Errors(None, _finite(held), _finite(free), _finite(float(tokens.median())), beyond)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
