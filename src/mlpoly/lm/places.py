"""Which token each input of a block belongs to, told by the modules around the block while a model runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    around = _around(model, listeners)
    handles = []
    for module, inside in around:
        handles.append(module.register_forward_pre_hook(_teller(inside), with_kwargs=True))
        handles.append(module.register_forward_hook(_forgetter(inside), always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for listener in listeners:
            listener.told = None


def _around(model: nn.Module, listeners: Sequence[Told]) -> list[tuple[nn.Module, list[Told]]]:
    """The model and the modules in it that take token ids, each with the listeners inside."""
    found: dict[str, list[Told]] = {}
    for listener in listeners:
        path = listener.name.split(".")
        for depth in range(len(path)):
            found.setdefault(".".join(path[:depth]), []).append(listener)
    modules = [(path, model.get_submodule(path), inside) for path, inside in found.items()]
    return [(module, inside) for path, module, inside in modules if not path or "input_ids" in _names(module)]


def _names(module: nn.Module) -> list[str]:
    """What the arguments of a module are called, in their order."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in inspect.signature(module.forward).parameters.values() if p.kind in kinds]


def _teller(inside: Sequence[Told]) -> Any:
    def tell(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        given = dict(zip(_names(module), args, strict=False)) | dict(kwargs)
        found = _places(given, args[0] if args else None)
        if found is not None:
            for listener in inside:
                listener.told = _with_ids(found, listener.told)

    return tell


def _forgetter(inside: Sequence[Told]) -> Any:
    def forget(module: nn.Module, args: Any, output: Any) -> None:
        for listener in inside:
            listener.told = None

    return forget


def _with_ids(found: Places, outer: Places | None) -> Places:
    """With the ids that a module farther out was given, if this one was given embeddings of the same shape."""
    known = outer is not None and outer.tokens is not None and outer.tokens.shape == found.positions.shape
    return Places(found.positions, outer.tokens) if found.tokens is None and known and outer else found


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
