"""From text to token ids, and from ids to texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["prompt_ids", "token_text"]


def prompt_ids(prompt: Any, tokenizer: Any) -> list[int]:
    """Ids of a prompt, which is text or has them already."""
    if isinstance(prompt, str):
        if not hasattr(tokenizer, "encode"):
            raise ValueError("prompt is text, which needs a tokenizer; pass tokenizer=, or token ids.")
        prompt = tokenizer.encode(prompt)
    ids = [int(i) for i in np.asarray(prompt).ravel()]
    if not ids:
        raise ValueError("prompt has no tokens; pass some text, or token ids (t,).")
    return ids


def token_text(source: Any) -> Callable[[int], str]:
    """A function from token ids to their texts.

    Parameters
    ----------
    source : tokenizer, sequence of str or None
        Without one, a token is called by its number.
    """
    if source is None:
        return lambda i: f"#{i}"
    if not hasattr(source, "decode"):
        return lambda i: source[i] if i < len(source) else f"#{i}"

    def text(i: int) -> str:
        piece = source.convert_ids_to_tokens(i)
        if piece is None or "▁" in piece:  # SentencePiece: decoding one token would lose the space before it
            return f"#{i}" if piece is None else piece.replace("▁", " ")
        decoded = source.decode([i])
        return piece if "\ufffd" in decoded or not decoded else decoded  # a part of a character has no text

    return text
