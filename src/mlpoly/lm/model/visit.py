"""Going through data with an eye on what enters the blocks of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

from mlpoly.integrations import find_blocks
from mlpoly.integrations.blocks import Block
from mlpoly.lm.model.hooks import See, Watcher
from mlpoly.lm.model.running import Runner, evaluating, explained_memory_errors
from mlpoly.lm.text.batches import Reader

__all__ = ["chosen_blocks", "visit"]


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
    reader, run = Reader(batches), Runner(model, blocks)
    with evaluating(model), explained_memory_errors(), Watcher(blocks, see) as watcher:
        for batch in reader:
            # The first batch runs to the end: a block that stands in several places is used several times.
            watcher.watch(run, batch, stop=stop and watcher.calls == len(blocks))
    if not reader.tokens:
        raise ValueError("batches held no tokens; were they an iterator that was used before?")
    missed = [block.name for block in blocks if block.name not in watcher.reached]
    if missed:
        raise ValueError(
            f"{missed[0]!r} was never reached while the model ran on the batches; choose other layers, or pass the "
            f"inputs that lead there."
        )
    return reader


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
