"""How well polynomials do in the place of blocks: in closed form, and on the activations of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mlpoly.integrations.blocks import Block
from mlpoly.lm.batches import Batch
from mlpoly.lm.components import Components
from mlpoly.lm.conversion import plain
from mlpoly.lm.fits import Fitter, Parts
from mlpoly.lm.switch import choose_rows
from mlpoly.lm.visit import visit
from mlpoly.measures import ErrorSums, fvu
from mlpoly.measures.fvu import fvu_by_component
from mlpoly.networks import Layer
from mlpoly.polynomials import BoundedPolynomial

__all__ = ["Errors", "closed_form_error", "held_out_errors", "judge"]


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
        errors, judged = held_out_errors(model, blocks, found, components, held_out)
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


def held_out_errors(
    model: nn.Module,
    blocks: Sequence[Block],
    polynomials: Mapping[str, Parts],
    components: Components | None,
    batches: Iterable[Any],
) -> tuple[dict[str, Errors], dict[str, Any]]:
    """Errors on the inputs of the intact model's blocks, and which data that was."""
    tallies = {block.name: _Tally(block, polynomials[block.name], components) for block in blocks}
    read = visit(model, blocks, batches, lambda block, x, batch: tallies[block.name].add(x, batch), stop=True)
    return {n: tally.errors() for n, tally in tallies.items()}, {"data": read.fingerprint, "tokens": read.tokens}


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
        numbers = self._numbers(x, batch)
        f, free = self._net(x).double(), self._values(x, numbers, plain)
        held = free if not self._bounded else self._values(x, numbers, lambda poly: poly)
        self._held.update(f, held)
        self._plain.update(f, free)
        self._tokens.append(((f - held) ** 2).sum(1) / (f**2).sum(1))
        if self._bounded:
            self._beyond = self._beyond + self._outside(x, numbers)

    def _numbers(self, x: Tensor, batch: Batch) -> Tensor | None:
        if self._components is None or not self._apart:
            return None
        _, positions, tokens = batch.on(x.device)
        return self._components.numbers(self._name, x, positions, tokens)

    def _values(self, x: Tensor, numbers: Tensor | None, form: Callable[[Any], Any]) -> Tensor:
        values: Tensor = form(self._main)(x)
        for number, poly in self._apart:
            values = choose_rows(values, x, numbers, number, lambda rows, p=poly: form(p)(rows))
        return values.double()

    def _outside(self, x: Tensor, numbers: Tensor | None) -> Tensor:
        """How many inputs, counted by the fraction of neurons that are beyond the bound of their polynomial."""

        def fraction(poly: Any, rows: Tensor) -> Tensor:
            t = poly.units.standardise(poly.forms_at(rows)[0])
            return (t.abs() > poly.bounds).double().mean(1, keepdim=True)

        found = fraction(self._main, x)
        for number, poly in self._apart:
            found = choose_rows(found, x, numbers, number, lambda rows, p=poly: fraction(p, rows))
        return found.sum()

    def errors(self) -> Errors:
        """What came of it."""
        tokens = torch.cat(self._tokens)
        held, free = float(self._held.total), float(self._plain.total)
        beyond = None if not self._bounded else float(self._beyond) / len(tokens)
        return Errors(None, _finite(held), _finite(free), _finite(float(tokens.median())), beyond)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
