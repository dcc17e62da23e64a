"""Batches of token ids from text: files, strings or arrays of ids."""

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlpoly.arrays import as_integer, as_number
from mlpoly.errors import FileFormatError

Source = str | PathLike[str]

_SUFFIXES = (".txt", ".md", ".npy", ".npz", ".json", ".jsonl", ".csv", ".tsv", ".parquet", ".gz", ".html", ".xml")
_CHUNK = 1 << 20  # characters that are tokenised at once, up to the end of their last line


def token_batches(
    tokenizer: Any,
    text: Source | Sequence[Source],
    *,
    length: int = 512,
    batch_size: int = 8,
    tokens: int | None = None,
    seed: int | None = None,
    bos: bool = True,
) -> "TokenBatches":
    """Cut text into sequences of equal length: batches (b, t) of int64 that can be iterated more than once.

    Parameters
    ----------
    tokenizer : tokenizer of transformers, or None
        Not needed for .npy files.
    text : str, Path, or several
        A string is the text itself, a `pathlib.Path` a file: text in UTF-8, or .npy with token ids (n, t), whose rows
        are sequences, cut to `length`. Several texts are joined.
    length, batch_size : int
        Tokens in a sequence, the special ones included, and sequences in a batch; the last may have fewer.
    tokens : int, optional
        Number of tokens after which to stop, at the end of a sequence.
    seed : int, optional
        Seed of a random order of the sequences, which needs all of them in memory; by default they keep theirs.
    bos : bool
        Whether to put around every sequence what the tokenizer puts around a text: the beginning-of-sequence token if
        it adds one, BERT's [CLS] and [SEP].

    Examples
    --------
    >>> from mlpoly.lm import example_text, load_model, token_batches
    >>> batches = token_batches(load_model()[1], example_text(100), length=16, batch_size=4)
    >>> next(iter(batches)).shape
    torch.Size([4, 16])
    """
    sources: tuple[Source, ...] = (text,) if isinstance(text, (str, PathLike)) else tuple(text)
    if not sources:
        raise ValueError("text is an empty list; pass text, a file, or several of them.")
    arrays = [path is not None and path.suffix == ".npy" for path in map(as_path, sources)]
    if tokenizer is None and not all(arrays):
        text_source = title(sources[arrays.index(False)])
        raise ValueError(f"text is {text_source}, which needs a tokenizer; without one pass .npy files of token ids.")
    budget = None if tokens is None else as_integer("tokens", tokens, 1)
    order = None if seed is None else as_integer("seed", seed, 0)
    length, batch_size = as_integer("length", length, 1), as_integer("batch_size", batch_size, 1)
    return TokenBatches(tokenizer, sources, length, batch_size, budget, order, bool(bos) and tokenizer is not None)


@dataclass(frozen=True)
class TokenBatches:
    """Batches (b, t) of token ids, read when they are asked for; can be iterated again. See `token_batches`."""

    tokenizer: Any
    sources: tuple[Source, ...]
    length: int
    batch_size: int
    tokens: int | None
    seed: int | None
    bos: bool

    def __iter__(self) -> Iterator[Tensor]:
        sequences: Iterable[np.ndarray] = self._sequences()
        if self.seed is not None:
            drawn = list(sequences)
            sequences = (drawn[i] for i in np.random.default_rng(self.seed).permutation(len(drawn)))
        # Sequences of one length can stand in one batch; only those of several .npy files differ.
        for _, group in groupby(self._within_budget(sequences), key=len):
            while rows := list(islice(group, self.batch_size)):
                yield torch.from_numpy(np.stack(rows))

    def _within_budget(self, sequences: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        seen = 0
        for row in sequences:
            yield row
            seen += len(row)
            if self.tokens is not None and seen >= self.tokens:
                return

    def _sequences(self) -> Iterator[np.ndarray]:
        """Give all sequences; the end of the text, too short for one, is dropped unless it is all there is."""
        before, after = list[int](), list[int]()  # what the tokenizer puts around a text
        if self.bos:
            plain, full = self._encode("a"), self._encode("a", special=True)
            starts = (i for i in range(len(full) - len(plain) + 1) if full[i : i + len(plain)] == plain)
            if (start := next(starts, None)) is not None:
                before, after = full[:start], full[start + len(plain) :]
        room = self.length - len(before) - len(after)
        if room < 1:
            raise ValueError(
                f"length is {self.length}, but the tokenizer puts {len(before) + len(after)} tokens around every "
                f"sequence; use a greater length, or bos=False."
            )
        rest, found = np.zeros(0, np.int64), False
        for ids in self._ids():
            if ids.ndim == 2:
                found = found or ids.size > 0
                yield from ids[:, : self.length]
                continue
            rest = np.concatenate([rest, ids])
            whole = len(rest) // room * room
            for row in rest[:whole].reshape(-1, room):
                found = True
                yield np.concatenate([before, row, after]).astype(np.int64)
            rest = rest[whole:]
        if not found:
            if not len(rest):
                raise ValueError(f"no tokens in {', '.join(map(title, self.sources))}: it is empty.")
            yield np.concatenate([before, rest, after]).astype(np.int64)

    def _ids(self) -> Iterator[np.ndarray]:
        """Give token ids: (n,) of a chunk of text, or (n, t) of an array."""
        for source in self.sources:
            path = as_path(source)
            if path is not None and path.suffix == ".npy":
                yield read_ids(path)
                continue
            try:
                with io.StringIO(str(source)) if path is None else path.open(encoding="utf-8") as file:
                    while lines := file.readlines(_CHUNK):  # whole lines, so that tokens are seldom cut
                        yield np.asarray(self._encode("".join(lines)), dtype=np.int64)
            except UnicodeDecodeError as error:
                reason = f"{error.reason} at byte {error.start}"
                raise FileFormatError(f"{path} is not text in UTF-8 ({reason}).") from None

    def _encode(self, text: str, special: bool = False) -> list[int]:
        # transformers warns of texts longer than its model can take at once; this one is cut afterwards.
        quiet = {"verbose": False} if hasattr(self.tokenizer, "model_max_length") else {}
        return list(self.tokenizer.encode(text, add_special_tokens=special, **quiet))


def split_text(text: str, held_out: float = 0.1) -> tuple[str, str]:
    """Cut a text in two at the line end nearest to a fraction `held_out` of it: to work with, and to evaluate on."""
    wanted = round(len(text) * (1 - as_number("held_out", held_out, "a fraction between 0 and 1", 0, 1)))
    before = text.rfind("\n", 0, max(wanted, 0)) + 1
    after = text.find("\n", max(wanted - 1, 0)) + 1
    cuts = [cut for cut in (before, after) if 0 < cut < len(text)]
    if not cuts:
        raise ValueError(
            f"text has no line end to cut at ({len(text)} characters); pass one of several lines, or cut it yourself."
        )
    cut = min(cuts, key=lambda place: abs(place - wanted))
    return text[:cut], text[cut:]


def as_path(source: Source) -> Path | None:
    """Return the file if the source is a path, or None if it is text; text that looks like a path is refused."""
    if isinstance(source, str):
        line = len(source) <= 1000 and "\n" not in source
        if line and (os.path.isfile(source) or (len(source.split()) == 1 and source.lower().endswith(_SUFFIXES))):
            raise ValueError(f"text is the name of a file, {source!r}; pass pathlib.Path({source!r}) to read it.")
        return None
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"no file {path} to read text or token ids from.")
    return path


def title(source: Source) -> str:
    """Return the name of a source in messages."""
    path = as_path(source)
    return f"the file {path}" if path is not None else f"the text {str(source)[:20]!r}"


def read_ids(path: Path) -> np.ndarray:
    """Return the token ids (n, t) or (n,) of an .npy file."""
    try:
        ids = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError, MemoryError) as error:  # memory: a damaged shape promises anything
        raise FileFormatError(f"{path} is not a readable .npy file without pickles ({error}).") from None
    if not isinstance(ids, np.ndarray) or ids.dtype.kind not in "iu" or ids.ndim not in (1, 2):
        found = f"{ids.dtype} of shape {ids.shape}" if isinstance(ids, np.ndarray) else type(ids).__name__
        raise FileFormatError(f"{path} must hold integer token ids (n, t), got {found}.")
    return ids.astype(np.int64)
