"""Running a model: in evaluation mode, without the parts that are not needed, with hooks on its blocks."""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.importers.blocks import Block
from mlpoly.importers.experts import Expert, is_expert, unrolled
from mlpoly.importers.probe import unwrapped
from mlpoly.lm.text.batches import Batch, Reader

See = Callable[[Block, Tensor, Batch], Any]


class Runner:
    """Calls a model, or the smallest part of it that has all the blocks if there are some, with a batch."""

    def __init__(self, model: nn.Module, blocks: Sequence[Block] | None = None) -> None:
        self._part: Any = model
        if blocks is not None:
            # Without the head, which can be a third of the work, and without a decoder that is not needed.
            body = getattr(model, getattr(model, "base_model_prefix", None) or "", None)
            whole: Any = body if isinstance(body, nn.Module) else model
            entries, encoder = {block.entry for block in blocks}, getattr(whole, "encoder", None)
            main = getattr(model, "main_input_name", "input_ids")
            if isinstance(encoder, nn.Module) and main in inspect.signature(encoder.forward).parameters:
                whole = encoder if entries <= set(encoder.modules()) else whole
            self._part = whole if entries <= set(whole.modules()) else model
        parameters = inspect.signature(unwrapped(self._part).forward).parameters.values()
        self._names = {p.name for p in parameters}
        self._any_name = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        # Weights that are offloaded, and brought in when they are needed, stand on the meta device meanwhile.
        self._device = next((p.device for p in model.parameters() if not p.is_meta), torch.device("cpu"))
        try:
            self._vocabulary: int | None = int(model.get_input_embeddings().num_embeddings)  # type: ignore[operator]
        except (AttributeError, NotImplementedError, TypeError):
            self._vocabulary = None

    def __call__(self, batch: Batch) -> Any:
        """Return the output of the model."""
        if batch.of_tokens and self._vocabulary is not None:
            low, high = (int(end) for end in batch.inputs["input_ids"].aminmax())
            # A GPU answers an unknown token with an error that says nothing, and cannot be used afterwards.
            if not 0 <= low <= high < self._vocabulary:
                raise ValueError(
                    f"batch {batch.number} has token ids from {low} to {high}, but the model knows 0 to "
                    f"{self._vocabulary - 1}; use the tokenizer that belongs to it."
                )
        inputs = {name: value.to(self._device) for name, value in batch.inputs.items()}
        if batch.main not in self._names:  # a wrapper that passes everything on, or a model of the user's
            return self._part(**inputs) if self._any_name else self._part(inputs[batch.main])
        options = {"use_cache": False} if "use_cache" in self._names else {}
        given = {name: value for name, value in inputs.items() if name in self._names}
        try:
            return self._part(**given, **options)
        except ValueError as error:
            if "decoder_input_ids" not in self._names - set(given):
                raise
            raise ValueError(
                f"{type(self._part).__name__} did not run without tokens for its decoder ({error}); pass batches with "
                f"'decoder_input_ids', or choose blocks of the encoder alone, such as 'encoder.*'."
            ) from error


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module gets its own mode back. A full memory is an error with advice."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    except RuntimeError as error:
        message = str(error).lower()
        known = any(words in message for words in ("out of memory", "not enough memory", "can't allocate memory"))
        if not known and not isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        first = str(error).strip().split("\n")[0][:200]
        raise MemoryError(
            f"the device ran out of memory ({first}). Use smaller batches or shorter sequences, fewer blocks at a "
            f"time (each keeps a d x d matrix in float64 per group of tokens), or precision='single'."
        ) from error
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def hooked(
    before: Iterable[tuple[nn.Module, Callable[[Tensor], Tensor | None]]] = (),
    after: Iterable[tuple[nn.Module, Callable[[Tensor | None, Any], Any]]] = (),
) -> Iterator[None]:
    """Call functions while a model runs: `before` a module with its input, `after` it with its input and output.

    The input is the first tensor among the arguments. A result that is not None replaces it, or the output.
    """

    def first(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)

    def enter(function: Any, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        x = first(args, kwargs)
        made = function(x)
        if made is None:
            return None
        changed = {name: made if value is x else value for name, value in kwargs.items()}
        return tuple(made if value is x else value for value in args), changed

    def leave(function: Any, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> Any:
        return function(first(args, kwargs), output)

    # Hooks run in the order in which they were registered, so that the inner of two grafts has the last word.
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:  # what torch.compile made earlier does not look for new hooks
            stack.enter_context(torch.compiler.set_stance("force_eager"))
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
    running: list[tuple[Batch, See]] = []  # nothing while the user's own code runs the model
    finite: list[tuple[str, Tensor]] = []

    def show(block: Block, x: Tensor) -> None:
        for whole, see in running:
            rows, batch = _rows(block, x, whole.of(block.name))
            finite.append((block.name, torch.isfinite(rows).all()))
            if len(rows):
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

    with unrolled(model, [block.module for block in blocks]), evaluating(model):
        run = Runner(model, blocks)
        with hooked([(block.entry, partial(show, block)) for block in blocks]):
            yield watch


def _rows(block: Block, x: Tensor, batch: Batch) -> tuple[Tensor, Batch]:
    """Return the rows (n, d) of a block's input that belong to the tokens that count, and the batch of those tokens."""
    rows = x.detach().reshape(-1, x.shape[-1])
    batch = batch.laid_out(len(rows))
    places = batch.shape[0] * batch.shape[1]
    routed = block.module.routed if isinstance(block.module, Expert) else None
    if routed is not None and routed[1] == places:
        batch, counted = batch.routed(routed[0])
        return rows.index_select(0, counted.to(x.device)), batch
    if rows.shape[0] == places:
        return (rows if batch.kept.shape[0] == places else rows.index_select(0, batch.on(x.device)[0])), batch
    attended = batch.inputs.get("attention_mask")
    # Some models lay out the tokens without the padding between them.
    if attended is not None and rows.shape[0] == int((attended != 0).sum()) == batch.kept.shape[0]:
        return rows, batch
    if is_expert(block.name):
        raise ValueError(
            f"{block.name!r} is an expert of a mixture that was given {rows.shape[0]} of the {places} tokens in batch "
            f"{batch.number}, and which ones is not known for this model. Its weights can be read and replaced, but "
            f"nothing collected; choose other blocks with blocks=."
        )
    raise ValueError(
        f"{block.name!r} was given {rows.shape[0]} inputs in batch {batch.number}, which has {places} tokens "
        f"({batch.shape[0]} x {batch.shape[1]}); one input per token of input_ids is needed. Choose other blocks (of "
        f"an encoder-decoder those of the encoder, or pass decoder_input_ids), or switch chunking off."
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
    """Raise if a pass had no tokens, or missed a block; warn of experts to which none of the tokens was routed."""
    if not tokens:
        raise ValueError("batches held no tokens; were they an iterator that was used before?")
    experts = [name for name in missed if is_expert(name)]
    missed = [name for name in missed if not is_expert(name)]
    if experts:
        warnings.warn(
            f"none of the {tokens} tokens was routed to {len(experts)} experts, such as {experts[0]!r}: left out.",
            stacklevel=3,
        )
    if missed:
        raise ValueError(
            f"{missed[0]!r} was never reached by the batches; choose others with blocks=, or pass other inputs."
        )
