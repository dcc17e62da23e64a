"""Hooks on a model, and passes over data that look at what enters its blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.integrations.blocks import Block
from mlpoly.lm.model.running import Runner, evaluating, explained_memory_errors
from mlpoly.lm.text.batches import Batch, Reader

__all__ = ["See", "Watcher", "check_reached", "hooked", "visit"]

See = Callable[[Block, Tensor, Batch], Any]


@contextmanager
def hooked(
    before: Iterable[tuple[nn.Module, Callable[[Tensor], None]]] = (),
    after: Iterable[tuple[nn.Module, Callable[[Tensor | None, Any], Any]]] = (),
) -> Iterator[None]:
    """Call functions while a model runs.

    Parameters
    ----------
    before : iterable of (nn.Module, callable)
        Modules, and functions of their input, the first tensor among the arguments.
    after : iterable of (nn.Module, callable)
        Modules, and functions of their input and output; a result that is not None replaces the output.
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


class _Reached(BaseException):
    """Not an Exception, so that a model's own error handling lets it pass."""


class Watcher:
    """Runs a model on batches and shows what enters its blocks; a context manager with its hooks in place inside.

    With `stop` a run ends when all blocks were called. `reached` has the names of those that were.
    """

    def __init__(self, model: nn.Module, blocks: Sequence[Block], stop: bool = True) -> None:
        self._model, self._blocks, self._stop = model, blocks, stop
        self._run = Runner(model, blocks)
        self._calls: int | None = None  # of blocks, in the first batch
        self._running: tuple[Batch, See] | None = None
        self._finite: list[tuple[str, Tensor]] = []
        self.reached: set[str] = set()

    def __enter__(self) -> Watcher:
        with ExitStack() as stack:
            stack.enter_context(evaluating(self._model))
            stack.enter_context(explained_memory_errors())
            stack.enter_context(hooked([(block.entry, partial(self._show, block)) for block in self._blocks]))
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._exit.__exit__(*error)

    def watch(self, batch: Batch, see: See) -> None:
        """Run the model on a batch, and raise ValueError if an input of a block is NaN or infinite.

        `see` is called with a block, its inputs (n, d) without those at padding, which may change afterwards, and the
        batch that they belong to.
        """
        self._running, self._finite = (batch, see), []
        try:
            self._run(batch)
        except _Reached:
            pass
        except ValueError:
            self._check_finite(batch)  # the first cause, if it is one
            raise
        finally:
            self._running = None
        self._check_finite(batch)
        # The first batch runs to the end: a block that stands in several places is called several times.
        self._calls = len(self._finite) if self._calls is None else self._calls

    def _show(self, block: Block, x: Tensor) -> None:
        if self._running is None:
            return
        batch, see = self._running[0].of(block.name), self._running[1]
        rows = _rows(block.name, x, batch)
        self._finite.append((block.name, torch.isfinite(rows).all()))
        see(block, rows, batch)
        self.reached.add(block.name)
        if self._stop and self._calls == len(self._blocks) == len(self._finite):
            raise _Reached

    def _check_finite(self, batch: Batch) -> None:
        # After the model's run and not in its hooks, where the processor would wait for the GPU at every block.
        for name, finite in self._finite:
            if not bool(finite):
                raise ValueError(
                    f"an input of {name!r} is NaN or infinite in batch {batch.number}. float16 overflows in many "
                    f"models: load the model with dtype=torch.bfloat16 or torch.float32. If it is one already, look "
                    f"for damaged weights, or leave the batch out."
                )


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
    """Run a model on all batches and show what enters its blocks, see `Watcher`; return the reader of the batches."""
    reader = Reader(batches)
    with Watcher(model, blocks) as watcher:
        for batch in reader:
            watcher.watch(batch, see)
    check_reached(reader.tokens, [block.name for block in blocks if block.name not in watcher.reached])
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
