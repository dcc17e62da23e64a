"""Which token each input of a block belongs to, told by the modules around the block while a model runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

__all__ = ["Places", "Told", "told_places"]


class Places(NamedTuple):
    """The tokens of a batch.

    Attributes
    ----------
    positions : Tensor (b, t)
        In their sequences, padding not counted; negative for padding at the beginning.
    tokens : Tensor (b, t) or None
        Their ids; None if the model was given embeddings.
    """

    positions: Tensor
    tokens: Tensor | None


class Told(Protocol):
    """Something in the place of a block that must know them."""

    name: str
    told: Places | None


@contextmanager
def told_places(model: nn.Module, listeners: Sequence[Told]) -> Iterator[None]:
    """While this is open, every listener has the places of the batch that the model is running on.

    Every module around a block that takes token ids speaks, and the innermost has the last word: a model may be called
    with or without its head, or inside another one, and a decoder has other tokens than its encoder.
    """
    around: dict[str, list[Told]] = {}  # by the path of a module, the listeners inside
    for listener in listeners:
        path = listener.name.split(".")
        for depth in range(len(path)):
            around.setdefault(".".join(path[:depth]), []).append(listener)
    handles = []
    for name, inside in around.items():
        module = model.get_submodule(name)
        if not name or "input_ids" in _names(module):
            handles.append(module.register_forward_pre_hook(partial(_tell, inside), with_kwargs=True))
            handles.append(module.register_forward_hook(partial(_forget, inside), always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        _forget(listeners)


def _names(module: nn.Module) -> list[str]:
    """What the arguments of a module are called, in their order."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in inspect.signature(module.forward).parameters.values() if p.kind in kinds]


def _tell(inside: Sequence[Told], module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    given = dict(zip(_names(module), args, strict=False)) | dict(kwargs)
    found = _places(given, args[0] if args else None)
    if found is None:
        return
    for listener in inside:
        ids, outer = found.tokens, listener.told
        # A module farther out may have been given ids, and this one embeddings of the same shape.
        if ids is None and outer and outer.tokens is not None and outer.tokens.shape == found.positions.shape:
            ids = outer.tokens
        listener.told = Places(found.positions, ids)


def _forget(inside: Sequence[Told], *_: Any) -> None:
    for listener in inside:
        listener.told = None


def _places(given: Mapping[str, Any], first: Any) -> Places | None:
    """From what a module is called with; a model of the user's may call its token ids as it likes."""
    ids = given.get("input_ids", first)
    ids = ids if isinstance(ids, Tensor) and ids.ndim == 2 and not ids.is_floating_point() else None
    shaped = ids if ids is not None else given.get("inputs_embeds")
    if not isinstance(shaped, Tensor) or shaped.ndim < 2:
        return None
    b, t = shaped.shape[:2]
    past, mask, positions = (given.get(name) for name in ("past_key_values", "attention_mask", "position_ids"))
    seen = int(past.get_seq_length()) if hasattr(past, "get_seq_length") else 0  # type: ignore[union-attr]
    if isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape[1] >= t:
        end = seen + t if mask.shape[1] >= seen + t else mask.shape[1]
        return Places(((mask != 0).long().cumsum(1) - 1)[:, end - t : end], ids)
    if isinstance(positions, Tensor) and positions.shape in ((b, t), (1, t)):
        return Places(positions.expand(b, t), ids)
    return Places(torch.arange(seen, seen + t, device=shaped.device).expand(b, t), ids)
