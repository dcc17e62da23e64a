"""Data of a study: batches for the moments, others to judge by, and the tokens that features are read towards."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mlpoly.lm.text.token_batches import Source, as_path, read_ids, split_text, title, token_batches
from mlpoly.lm_config import LmConfig

__all__ = ["fingerprint", "frequent_tokens", "study_batches"]

_HELD_OUT = 0.1  # fraction of a text that nothing is fitted to, where no other is given


def study_batches(
    tokenizer: Any, text: Source, held_out: Source | None, config: LmConfig
) -> tuple[list[Tensor], list[Tensor]]:
    """Batches (b, t) of token ids to work with, and others to judge by."""
    path, length, size = as_path(text), config.length, config.batch_size
    if held_out is None and path is not None and path.suffix == ".npy":
        ids = torch.from_numpy(read_ids(path))
        if ids.ndim == 1:
            ids = ids[: len(ids) // length * length].reshape(-1, length)
        if ids.shape[0] < 2 or ids.shape[1] == 0:
            raise ValueError(
                f"{path} has {ids.shape[0]} sequences of {ids.shape[1]} tokens; two are needed at least, one of them "
                f"to judge by. Pass more, or a held-out file of its own."
            )
        last, ids = max(1, round(_HELD_OUT * ids.shape[0])), ids[:, :length]
        # As many rows as it takes to have so many tokens.
        rows = [math.ceil(tokens / ids.shape[1]) for tokens in (config.tokens, config.held_out_tokens)]
        return list(ids[:-last][: rows[0]].split(size)), list(ids[-last:][: rows[1]].split(size))
    if held_out is None:
        whole = str(text) if path is None else path.read_text(encoding="utf-8")
        if not whole.strip():
            raise ValueError(f"{title(text)} is empty; pass text of a few thousand words.")
        text, held_out = split_text(whole, _HELD_OUT)
    shape: dict[str, Any] = {"length": length, "batch_size": size}
    train = token_batches(tokenizer, text, tokens=config.tokens, **shape)
    return list(train), list(token_batches(tokenizer, held_out, tokens=config.held_out_tokens, **shape))


def fingerprint(batches: Sequence[Tensor]) -> str:
    """SHA-256 of token ids and of how they are cut into batches."""
    digest = hashlib.sha256()
    for batch in batches:
        digest.update(f"{tuple(batch.shape)}".encode() + batch.numpy().tobytes())
    return digest.hexdigest()


def frequent_tokens(batches: Sequence[Tensor], text: Callable[[int], str], count: int) -> list[int]:
    """The most frequent tokens with a letter in their text; any, if none has one."""
    counts = Counter(int(i) for batch in batches for i in batch.flatten().tolist())
    order = [i for i, _ in counts.most_common()]
    named = [i for i in order if any(c.isalpha() for c in text(i)) and not text(i).strip().startswith("<")]
    return (named or order)[:count]
