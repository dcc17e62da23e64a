"""What goes into a study: batches to work with and others to judge by, and the texts of tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlpoly.lm.study.config import LmConfig
from mlpoly.lm.text.token_batches import Source, as_path, read_ids, split_text, title, token_batches
from mlpoly.lm.text.tokens import vocabulary

__all__ = ["frequent_tokens", "study_batches", "texts_of"]

_HELD_OUT = 0.1  # share of a text that nothing is fitted to, where no other is given


def texts_of(model: str | PathLike[str]) -> list[str] | None:
    """Texts of the tokens of a model that has no tokenizer but a vocab.json."""
    return vocabulary(model) if (Path(model) / "vocab.json").is_file() else None


def study_batches(
    tokenizer: Any, text: Source, held_out: Source | None, config: LmConfig
) -> tuple[list[Tensor], list[Tensor]]:
    """Batches to work with, and others to judge by."""
    path = as_path(text)
    if held_out is None and path is not None and path.suffix == ".npy":
        ids, length, size = torch.from_numpy(read_ids(path)), config.length, config.batch_size
        if ids.ndim == 1:
            ids = ids[: len(ids) // length * length].reshape(-1, length)
        if ids.shape[0] < 2 or ids.shape[1] == 0:
            raise ValueError(
                f"{path} has {ids.shape[0]} sequences of {ids.shape[1]} tokens; two are needed at least, one of them "
                f"to judge by. Pass more, or a held-out file of its own."
            )
        last = max(1, round(_HELD_OUT * ids.shape[0]))
        rows, others = ids[:-last, :length], ids[-last:, :length]
        return _tensors(rows, size, config.tokens), _tensors(others, size, config.held_out_tokens)
    if held_out is None:
        whole = str(text) if path is None else path.read_text(encoding="utf-8")
        if not whole.strip():
            raise ValueError(f"{title(text)} is empty; pass text of a few thousand words.")
        text, held_out = split_text(whole, _HELD_OUT)
    options: dict[str, Any] = {"length": config.length, "batch_size": config.batch_size}
    train = token_batches(tokenizer, text, tokens=config.tokens, **options)
    judge = token_batches(tokenizer, held_out, tokens=config.held_out_tokens, **options)
    return list(train), list(judge)


def _tensors(ids: Tensor, batch_size: int, tokens: int) -> list[Tensor]:
    """As many rows as it takes to have so many tokens, in batches."""
    rows = math.ceil(tokens / ids.shape[1])
    return list(ids[:rows].split(batch_size))


def frequent_tokens(batches: Sequence[Tensor], text: Callable[[int], str], count: int) -> list[int]:
    """The most frequent tokens with a letter in their text; any, if none has one."""
    counts = Counter(int(i) for batch in batches for i in batch.flatten().tolist())
    order = [i for i, _ in counts.most_common()]
    named = [i for i in order if any(c.isalpha() for c in text(i)) and not text(i).strip().startswith("<")]
    return (named or order)[:count]
