"""Token ids of prompts, and texts of tokens."""

import json
import re
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mlpoly.errors import FileFormatError

_MOST_TOKENS = 10**8  # a larger id is damage, and a list of so many texts would fill the memory


def prompt_ids(prompt: Any, tokenizer: Any) -> list[int]:
    """Return the ids of a prompt, which is text or has them already."""
    if isinstance(prompt, str):
        if not hasattr(tokenizer, "encode"):
            raise ValueError("prompt is text, which needs a tokenizer; pass tokenizer=, or token ids.")
        prompt = tokenizer.encode(prompt)
    ids = [int(i) for i in np.asarray(prompt).ravel()]
    if not ids:
        raise ValueError("prompt has no tokens; pass some text, or token ids (t,).")
    return ids


def token_text(source: Any) -> Callable[[int], str]:
    """Return a function from token ids to their texts, by a tokenizer or a list of texts; without one, numbers."""
    if source is None:
        return lambda i: f"#{i}"

    def text(i: int) -> str:
        if not hasattr(source, "decode"):
            piece = source[i] if i < len(source) else f"#{i}"
            # A piece such as "<0x0A>" of SentencePiece stands for a character, if it is one of ASCII.
            found = re.fullmatch(r"<0x([0-7][0-9A-F])>", piece)
            return chr(int(found[1], 16)) if found else piece
        piece = source.convert_ids_to_tokens(i)
        if piece is None or "▁" in piece:  # SentencePiece: decoding one token would lose the space before it
            return f"#{i}" if piece is None else piece.replace("▁", " ")
        decoded = source.decode([i])
        return piece if "\ufffd" in decoded or not decoded else decoded  # a part of a character has no text

    return text


def vocabulary(path: str | PathLike[str]) -> list[str]:
    """The text of every token, by id, from a vocab.json or its folder: a list, or a mapping between ids and texts."""
    file = Path(path)
    file = file / "vocab.json" if file.is_dir() else file
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            pairs = content.items()
            by_id = {int(i): str(s) for s, i in pairs if isinstance(i, int)} or {int(i): str(s) for i, s in pairs}
            if max(by_id) >= _MOST_TOKENS:
                raise TypeError(f"it has an id of {max(by_id)}")
            content = [by_id.get(i, "") for i in range(max(by_id) + 1)]
        if not isinstance(content, list) or not all(isinstance(piece, str) for piece in content):
            raise TypeError("it holds neither a list of texts nor a mapping of ids and texts")
    except FileNotFoundError:
        raise FileNotFoundError(f"no vocabulary {file}; name a vocab.json, or a folder that has one.") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise FileFormatError(f"{file} is not a vocabulary ({error}).") from None
    return content
