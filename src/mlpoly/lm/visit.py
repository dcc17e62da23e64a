"""Going through data with an eye on what enters the blocks of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.integrations import find_blocks
from mlpoly.integrations.blocks import Block
from mlpoly.lm.batches import Batch, Reader
from mlpoly.lm.forward import Runner, evaluating, explained_memory_errors
from mlpoly.lm.watch import block_rows, check_inputs, first_tensor

__all__ = ["chosen_blocks", "visit"]

See = Callable[[Block, Tensor, Batch], Any]


def visit(model: nn.Module, blocks: Sequence[Block], batches: Iterable[Any], see: See, *, stop: bool = False) -> Reader:
    """Run a model on batches and show the inputs of its blocks, those that belong to padding left out.

    Parameters
    ----------
    model : nn.Module
    blocks : sequence of Block
    batches : iterable
        As `mlpoly.lm.collect` takes them.
    see : callable
        Is called with the block, its inputs (n, d), which may change afterwards, and the batch that they belong to.
    stop : bool
        Whether what comes behind the last block need not be computed.

    Returns
    -------
    Reader
        Knows how many tokens there were, and their hash.

    Raises
    ------
    ValueError
        If an input of a block is NaN or infinite, or if a block was never reached.
    """
    reader, run, eye = Reader(batches), Runner(model, blocks), _Eye(blocks, see)
    with evaluating(model), explained_memory_errors(), eye.open():
        for batch in reader:
            # The first batch runs to the end: a block that stands in several places is used several times.
            eye.look(batch, run, stop=stop and eye.calls == len(blocks))
    if not reader.tokens:
        raise ValueError("batches held no tokens; were they an iterator that was used before?")
    missed = [block.name for block in blocks if block.name not in eye.reached]
    if missed:
        raise ValueError(
            f"{missed[0]!r} was never reached while the model ran on the batches; choose other layers, or pass the "
            f"inputs that lead there."
        )
    return reader


class _Reached(BaseException):
    """Not an Exception, so that a model's own error handling lets it pass."""


class _Eye:
    """Hooks on blocks, and what is being looked at."""

    def __init__(self, blocks: Sequence[Block], see: See) -> None:
        self._blocks, self._see = blocks, see
        self._batch: Batch | None = None
        self._stop, self._seen = False, 0
        self._finite: list[tuple[str, Tensor]] = []
        self.calls: int | None = None  # of blocks, in the first batch
        self.reached: set[str] = set()

    @contextmanager
    def open(self) -> Iterator[None]:
        handles = [b.entry.register_forward_pre_hook(self._hook(b), with_kwargs=True) for b in self._blocks]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def look(self, batch: Batch, run: Runner, stop: bool) -> None:
        self._batch, self._stop, self._seen, self._finite = batch, stop, 0, []
        try:
            run(batch)
        except _Reached:
            pass
        except ValueError:
            check_inputs(self._finite, batch)  # the first cause, if it is one
            raise
        finally:
            self._batch = None
        check_inputs(self._finite, batch)
        self.calls = self._seen if self.calls is None else self.calls

    def _hook(self, block: Block) -> Callable[..., None]:
        def show(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            if self._batch is None:
                return
            batch = self._batch.of(block.name)
            rows = block_rows(block.name, first_tensor(args, kwargs), batch)
            self._finite.append((block.name, torch.isfinite(rows).all()))
            self._see(block, rows, batch)
            self.reached.add(block.name)
            self._seen += 1
            if self._stop and self._seen == len(self._blocks):
                raise _Reached

        return show


def chosen_blocks(model: nn.Module, given: str | Sequence[str] | None, argument: str = "layers") -> list[Block]:
    """Blocks by pattern, by several patterns or names, or all; in the model's order.

    Parameters
    ----------
    model : nn.Module
    given : str, sequence of str or None
        None for all blocks.
    argument : str
        What the caller calls it, for the error.

    Raises
    ------
    ValueError
        If it is an empty sequence, or if a pattern matches no block.
    """
    if given is None or isinstance(given, str):
        return find_blocks(model, given)
    wanted = {block.name for pattern in given for block in find_blocks(model, pattern)}
    if not wanted:
        raise ValueError(f"{argument} is empty; pass None for all blocks, or a pattern such as 'layers.*.mlp'.")
    return [block for block in find_blocks(model) if block.name in wanted]
