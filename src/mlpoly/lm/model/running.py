"""Running a model: in evaluation mode, without the parts that are not needed, with errors that say what to do."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from mlpoly.integrations.blocks import Block
from mlpoly.lm.text.batches import Batch

__all__ = ["Runner", "evaluating", "explained_memory_errors"]


class Runner:
    """Calls a model, or the smallest part of it that has all the blocks if there are some, with a batch."""

    def __init__(self, model: nn.Module, blocks: Sequence[Block] | None = None) -> None:
        self._part: Any = model if blocks is None else _body(model, blocks)
        parameters = inspect.signature(self._part.forward).parameters.values()
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
        low, high = (int(end) for end in batch.inputs["input_ids"].aminmax())
        # A GPU answers an unknown token with an error that says nothing, and cannot be used afterwards.
        if self._vocabulary is not None and not 0 <= low <= high < self._vocabulary:
            raise ValueError(
                f"batch {batch.number} has token ids from {low} to {high}, but the model knows 0 to "
                f"{self._vocabulary - 1}; use the tokenizer that belongs to it."
            )
        inputs = {name: value.to(self._device) for name, value in batch.inputs.items()}
        if "input_ids" not in self._names:  # a wrapper that passes everything on, or a model of the user's
            return self._part(**inputs) if self._any_name else self._part(inputs["input_ids"])
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


def _body(model: nn.Module, blocks: Sequence[Block]) -> nn.Module:
    """Return the model without its head, which can be a third of the work, and without a decoder that is not needed."""
    body = getattr(model, getattr(model, "base_model_prefix", None) or "", None)
    whole = body if isinstance(body, nn.Module) else model
    entries = {block.entry for block in blocks}
    encoder = getattr(whole, "encoder", None)
    if isinstance(encoder, nn.Module) and "input_ids" in inspect.signature(encoder.forward).parameters:
        whole = encoder if entries <= set(encoder.modules()) else whole
    return whole if entries <= set(whole.modules()) else model


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module gets its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def explained_memory_errors() -> Iterator[None]:
    """Errors of a full memory with advice in place of the allocator's numbers."""
    try:
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
