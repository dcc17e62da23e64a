"""How well polynomials do in the place of blocks: in closed form, and on the activations of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mlpoly.integrations.blocks import Block
from mlpoly.lm.convert.conversion import plain
from mlpoly.lm.convert.fitters import Fitter, Parts
from mlpoly.lm.convert.switch import choose_rows
from mlpoly.lm.model.visit import visit
from mlpoly.lm.moments.groups import Components
from mlpoly.lm.text.batches import Batch
from mlpoly.measures import ErrorSums, fvu
from mlpoly.measures.fvu import fvu_by_component
from mlpoly.networks import Layer
from mlpoly.polynomials import BoundedPolynomial

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
    found: Mapping[str, Parts],
    fitter: Fitter,
    components: Components | None,
    held_out: Iterable[Any] | None,
    closed_form: bool,
) -> tuple[dict[str, Errors], dict[str, Any] | None]:
    """Errors of the polynomials of each block, and which data they were judged on."""
    errors = {block.name: Errors() for block in blocks}
    judged: dict[str, Any] | None = None
    if held_out is not None and blocks:
        tallies = {block.name: _Tally(block, found[block.name], components) for block in blocks}
        read = visit(model, blocks, held_out, lambda block, x, batch: tallies[block.name].add(x, batch), stop=True)
        errors = {name: tally.errors() for name, tally in tallies.items()}
        judged = {"data": read.fingerprint, "tokens": read.tokens}
    if closed_form:
        for block in blocks:
            closed = closed_form_error(block, found[block.name], fitter)
            errors[block.name] = errors[block.name]._replace(closed_form=closed)
    return errors, judged


def closed_form_error(block: Block, parts: Parts, fitter: Fitter) -> float | None:
    """Fraction of variance unexplained under what was fitted under; None if an output is constant."""
    net = block.net()
    try:
        if len(parts) == 1:
            return _finite(float(fvu(net, plain(next(iter(parts.values())))).total))
        mixture = fitter.moments.mixture(block.name, fitter.shrinkage, net.prototype)
        ordered = [plain(parts[number]) for number in sorted(parts)]
        return _finite(float(fvu_by_component(net, ordered, mixture).total))
    except ValueError:
        return None


class _Tally:
    """Errors over all tokens, the error of each token relative to its output, and how often the bound is passed."""

    def __init__(self, block: Block, parts: Parts, components: Components | None) -> None:
        self._name = block.name
        self._net: Layer = block.net()
        (_, self._main), *self._apart = parts.items()
        self._bounded = isinstance(self._main, BoundedPolynomial)
        self._components = components
        self._held = ErrorSums(standard_error=False)
        self._plain = ErrorSums(standard_error=False)  # without the bound
        self._beyond: Any = 0.0
        self._tokens: list[Tensor] = []

    def add(self, x: Tensor, batch: Batch) -> None:
        """Take inputs (n, d)."""
        x = x.to(self._net.prototype.dtype)
        numbers = None
        if self._components is not None and self._apart:
            numbers = self._components.numbers(self._name, x, *batch.on(x.device)[1:])
        f = self._net(x).double()
        free = self._each(x, numbers, lambda poly, rows: plain(poly)(rows)).double()
        held = free if not self._bounded else self._each(x, numbers, lambda poly, rows: poly(rows)).double()
        self._held.update(f, held)
        self._plain.update(f, free)
        self._tokens.append(((f - held) ** 2).sum(1) / (f**2).sum(1))
        if self._bounded:

            def beyond(poly: Any, rows: Tensor) -> Tensor:
                """Fraction (n, 1) of neurons that are beyond the bound of their polynomial, for each input."""
                t = poly.units.standardise(poly.forms_at(rows)[0])
                return (t.abs() > poly.bounds).double().mean(1, keepdim=True)

            self._beyond = self._beyond + self._each(x, numbers, beyond).sum()

    def _each(self, x: Tensor, numbers: Tensor | None, function: Callable[[Any, Tensor], Tensor]) -> Tensor:
        """A function of a polynomial and its inputs (n, d), for every input with its own polynomial."""
        found = function(self._main, x)
        for number, poly in self._apart:
            found = choose_rows(found, x, numbers, number, partial(function, poly))
        return found

    def errors(self) -> Errors:
        """What came of it."""
        tokens = torch.cat(self._tokens)
        held, free = float(self._held.total), float(self._plain.total)
        beyond = None if not self._bounded else float(self._beyond) / len(tokens)
        return Errors(None, _finite(held), _finite(free), _finite(float(tokens.median())), beyond)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
