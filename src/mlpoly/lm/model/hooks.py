"""Hooks that look at what goes into the blocks while a model runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from mlpoly.integrations.blocks import Block
from mlpoly.lm.text.batches import Batch

__all__ = ["See", "Watcher", "block_rows", "first_tensor"]

See = Callable[[Block, Tensor, Batch], Any]


class _Reached(BaseException):
    """Not an Exception, so that a model's own error handling lets it pass."""


class Watcher:
    """Shows the inputs of blocks while a model runs; a context manager that has its hooks in place inside.

    Parameters
    ----------
    blocks : sequence of Block
    see : callable
        Is called with the block, its inputs (n, d), which may change afterwards, and the batch that they belong to.

    Attributes
    ----------
    calls : int or None
        Of blocks, in the first batch.
    reached : set of str
        Names of the blocks that were run.
    """

    def __init__(self, blocks: Sequence[Block], see: See) -> None:
        self._blocks, self.see = blocks, see
        self._handles: list[RemovableHandle] = []
        self._batch: Batch | None = None
        self._stop, self._seen = False, 0
        self._finite: list[tuple[str, Tensor]] = []
        self.calls: int | None = None
        self.reached: set[str] = set()

    def __enter__(self) -> Watcher:
        for block in self._blocks:
            hook = partial(self._show, block)
            self._handles.append(block.entry.register_forward_pre_hook(hook, with_kwargs=True))
        return self

    def __exit__(self, *error: object) -> None:
        while self._handles:
            self._handles.pop().remove()

    def watch(self, run: Callable[[Batch], None], batch: Batch, stop: bool = False) -> None:
        """Run the model on a batch; with `stop`, until all blocks were called.

        Raises
        ------
        ValueError
            If an input of a block is NaN or infinite.
        """
        self._batch, self._stop, self._seen, self._finite = batch, stop, 0, []
        try:
            run(batch)
        except _Reached:
            pass
        except ValueError:
            self._check_inputs(batch)  # the first cause, if it is one
            raise
        finally:
            self._batch = None
        self._check_inputs(batch)
        self.calls = self._seen if self.calls is None else self.calls

    def _show(self, block: Block, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._batch is None:
            return
        batch = self._batch.of(block.name)
        rows = block_rows(block.name, first_tensor(args, kwargs), batch)
        self._finite.append((block.name, torch.isfinite(rows).all()))
        self.see(block, rows, batch)
        self.reached.add(block.name)
        self._seen += 1
        if self._stop and self._seen == len(self._blocks):
            raise _Reached

    def _check_inputs(self, batch: Batch) -> None:
        # Behind the model's run and not in its hooks, where the processor would wait for the GPU at every block.
        for name, good in self._finite:
            if not bool(good):
                raise ValueError(
                    f"an input of {name!r} is NaN or infinite in batch {batch.number}. float16 overflows in many "
                    f"models: load the model with dtype=torch.bfloat16 or torch.float32. If it is one already, look "
                    f"for damaged weights, or leave the batch out."
                )


def block_rows(name: str, x: Tensor, batch: Batch) -> Tensor:
    """The rows (n, d) of a block's input that belong to the tokens that count."""
    rows = x.detach().reshape(-1, x.shape[-1])
    places = batch.shape[0] * batch.shape[1]
    if rows.shape[0] == places:
        return rows if batch.whole else rows.index_select(0, batch.on(x.device)[0])
    attended = batch.inputs.get("attention_mask")
    # Some models lay out the tokens without the padding between them.
    if attended is not None and rows.shape[0] == int((attended != 0).sum()) == batch.kept.shape[0]:
        return rows
    raise ValueError(
        f"{name!r} was given {rows.shape[0]} inputs in batch {batch.number}, which has {places} tokens "
        f"({batch.shape[0]} x {batch.shape[1]}); one input per token of input_ids is needed. Choose other hookpoints "
        f"(of an encoder-decoder model those of its encoder, or pass decoder_input_ids), and switch chunking of the "
        f"feedforward off."
    )


def first_tensor(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
    """The input of a block among the arguments that its module is called with."""
    return next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
