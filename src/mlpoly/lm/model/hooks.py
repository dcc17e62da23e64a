"""Hooks on a model, and passes over data that look at what enters its blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.integrations.blocks import Block
from mlpoly.lm.model.running import Runner, evaluating
from mlpoly.lm.text.batches import Batch, Reader

__all__ = ["check_reached", "hooked", "visit", "watching"]

See = Callable[[Block, Tensor, Batch], Any]


@contextmanager
def hooked(
    before: Iterable[tuple[nn.Module, Callable[[Tensor], None]]] = (),
    after: Iterable[tuple[nn.Module, Callable[[Tensor | None, Any], Any]]] = (),
) -> Iterator[None]:
    """Call functions while a model runs: `before` a module with its input, `after` it with its input and output.

    The input is the first tensor among the arguments. A result of `after` that is not None replaces the output.
    """

    def first(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)

    def enter(function: Any, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        function(first(args, kwargs))

    def leave(function: Any, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> Any:
        return function(first(args, kwargs), output)

    # Hooks run in the order in which they were registered, so that the inner of two grafts has the last word.
    with ExitStack() as stack:
        for module, function in before:
            stack.callback(module.register_forward_pre_hook(partial(enter, function), with_kwargs=True).remove)
        for module, replace in after:
            stack.callback(module.register_forward_hook(partial(leave, replace), with_kwargs=True).remove)
        yield


@contextmanager
def watching(model: nn.Module, blocks: Sequence[Block]) -> Iterator[Callable[[Batch, See], None]]:
    """Give a function that runs a model on a batch, and calls `see` with what enters each of its blocks.

    `see` gets a block, its inputs (n, d) without those at padding, which may change afterwards, and the batch that they
    belong to. An input that is NaN or infinite raises ValueError.
    """
    run = Runner(model, blocks)
    running: list[tuple[Batch, See]] = []  # nothing while the user's own code runs the model
    finite: list[tuple[str, Tensor]] = []

    def show(block: Block, x: Tensor) -> None:
        for whole, see in running:
            batch = whole.of(block.name)
            rows = _rows(block.name, x, batch)
            finite.append((block.name, torch.isfinite(rows).all()))
            see(block, rows, batch)

    def check_finite(batch: Batch) -> None:
        # After the model's run and not in its hooks, where the processor would wait for the GPU at every block.
        for name, fine in finite:
            if not bool(fine):
                raise ValueError(
                    f"an input of {name!r} is NaN or infinite in batch {batch.number}. float16 overflows in many "
                    f"models: load the model with dtype=torch.bfloat16 or torch.float32. If it is one already, look "
                    f"for damaged weights, or leave the batch out."
                )

    def watch(batch: Batch, see: See) -> None:
        finite.clear()
        running.append((batch, see))
        try:
            run(batch)
        except ValueError:
            check_finite(batch)  # the first cause, if it is one
            raise
        finally:
            running.clear()
        check_finite(batch)

    with evaluating(model), hooked([(block.entry, partial(show, block)) for block in blocks]):
        yield watch


def _rows(name: str, x: Tensor, batch: Batch) -> Tensor:
    """Return the rows (n, d) of a block's input that belong to the tokens that count."""
    rows = x.detach().reshape(-1, x.shape[-1])
    places = batch.shape[0] * batch.shape[1]
    if rows.shape[0] == places:
        return rows if batch.kept.shape[0] == places else rows.index_select(0, batch.on(x.device)[0])
    attended = batch.inputs.get("attention_mask")
    # Some models lay out the tokens without the padding between them.
    if attended is not None and rows.shape[0] == int((attended != 0).sum()) == batch.kept.shape[0]:
        return rows
    raise ValueError(
        f"{name!r} was given {rows.shape[0]} inputs in batch {batch.number}, which has {places} tokens "
        f"({batch.shape[0]} x {batch.shape[1]}); one input per token of input_ids is needed. Choose other blocks (of "
        f"an encoder-decoder model those of its encoder, or pass decoder_input_ids), and switch chunking of the "
        f"feedforward off."
    )


def visit(model: nn.Module, blocks: Sequence[Block], batches: Iterable[Any], see: See) -> Reader:
    """Run a model on all batches and show what enters its blocks, see `watching`; return the reader of the batches."""
    reader, reached = Reader(batches), set()

    def show(block: Block, x: Tensor, batch: Batch) -> None:
        reached.add(block.name)
        see(block, x, batch)

    with watching(model, blocks) as watch:
        for batch in reader:
            watch(batch, show)
    check_reached(reader.tokens, [block.name for block in blocks if block.name not in reached])
    return reader


def check_reached(tokens: int, missed: Sequence[str]) -> None:
    """Raise if a pass had no tokens, or missed a block."""
    if not tokens:
        raise ValueError("batches held no tokens; were they an iterator that was used before?")
    if missed:
        raise ValueError(
            f"{missed[0]!r} was never reached while the model ran on the batches; choose others with blocks=, or pass "
            f"the inputs that lead there."
        )
