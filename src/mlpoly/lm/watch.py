"""Hooks that sum what goes into the blocks while a model runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from mlpoly.integrations.blocks import Block
from mlpoly.lm.accumulate import Component, Precision, RowSums
from mlpoly.lm.batches import Batch
from mlpoly.lm.components import Components

__all__ = ["Watcher", "block_rows", "check_inputs", "first_tensor"]


class Watcher:
    """Sums of the inputs of blocks; a context manager that has its hooks in place inside.

    Parameters
    ----------
    blocks : sequence of Block
    components : Components
    precision : {"single", "double"}, optional
        See `RowSums`.
    """

    def __init__(self, blocks: Sequence[Block], components: Components, precision: Precision | None) -> None:
        self._blocks = blocks
        self._components = components
        self._precision = precision
        self._sums: dict[str, dict[int, RowSums]] = {block.name: {} for block in blocks}
        self._handles: list[RemovableHandle] = []
        self._finite: list[tuple[str, Tensor]] = []
        self._batch: Batch | None = None
        self._take: Callable[[str, Tensor, Batch], None] = self._add

    def __enter__(self) -> Watcher:
        for block in self._blocks:
            hook = self._hook(block.name)
            self._handles.append(block.entry.register_forward_pre_hook(hook, with_kwargs=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._handles:
            self._handles.pop().remove()

    def calibrate(self, run: Callable[[Batch], None], batch: Batch) -> None:
        """Let the components see a batch, without counting it."""
        self._take = self._calibrate
        try:
            self.watch(run, batch)
        finally:
            self._take = self._add

    def watch(self, run: Callable[[Batch], None], batch: Batch) -> None:
        """Run the model on a batch and count what the blocks see.

        Raises
        ------
        ValueError
            If an input of a block is NaN or infinite.
        """
        self._batch, self._finite = batch, []
        try:
            run(batch)
        finally:
            self._batch = None
        check_inputs(self._finite, batch)

    def result(self) -> dict[str, dict[int, Component]]:
        """Components by block and number, on the CPU; the sums can go on afterwards."""
        found = {name: {n: sums[n].result() for n in sorted(sums)} for name, sums in self._sums.items()}
        return {name: {n: part for n, part in parts.items() if part is not None} for name, parts in found.items()}

    def _hook(self, name: str) -> Callable[..., None]:
        def see(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            if self._batch is not None:
                batch = self._batch.of(name)
                self._take(name, block_rows(name, first_tensor(args, kwargs), batch), batch)

        return see

    def _calibrate(self, name: str, x: Tensor, batch: Batch) -> None:
        self._components.calibrate(name, x)

    def _add(self, name: str, x: Tensor, batch: Batch) -> None:
        self._finite.append((name, torch.isfinite(x).all()))
        _, positions, tokens = batch.on(x.device)
        numbers = self._components.numbers(name, x, positions, tokens)
        if numbers is None:
            self._sums_of(name, 0).add(x)
            return
        # The processor waits for the GPU once here, not once for each component.
        found, counts = (part.tolist() for part in numbers.unique(return_counts=True))
        parts = (x,) if len(found) == 1 else x.index_select(0, numbers.argsort(stable=True)).split(counts)
        for number, rows in zip(found, parts, strict=True):
            self._sums_of(name, number).add(rows)

    def _sums_of(self, name: str, number: int) -> RowSums:
        return self._sums[name].setdefault(number, RowSums(self._precision))


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


def check_inputs(finite: Sequence[tuple[str, Tensor]], batch: Batch) -> None:
    """Raise if an input was not finite, by block.

    To be called behind the model's run and not in its hooks, where the processor would wait for the GPU at every block.
    """
    for name, good in finite:
        if not bool(good):
            raise ValueError(
                f"an input of {name!r} is NaN or infinite in batch {batch.number}. float16 overflows in many models: "
                f"load the model with dtype=torch.bfloat16 or torch.float32. If it is one already, look for damaged "
                f"weights, or leave the batch out."
            )
