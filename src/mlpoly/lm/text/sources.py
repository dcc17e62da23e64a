"""Files and strings that tokens are made from."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TextIO

import numpy as np

from mlpoly.errors import FileFormatError

__all__ = ["Source", "as_path", "chunks", "read_ids", "title"]

Source = str | PathLike[str]

_CHUNK = 1 << 20  # characters that are tokenised at once, up to the end of their last line


def as_path(source: Source) -> Path | None:
    """The file that a source stands for, or None if it is text."""
    if not isinstance(source, str):
        path = Path(source)
    elif "\n" in source or len(source) > 1000:  # no name of a file
        return None
    else:
        path = Path(source)
        if not path.is_file() and path.suffix not in (".txt", ".md", ".npy"):
            return None
    if not path.is_file():
        raise FileNotFoundError(f"no file {path} to read text or token ids from.")
    return path


def title(source: Source) -> str:
    """What messages call a source."""
    path = as_path(source)
    return f"the file {path}" if path is not None else f"the text {str(source)[:20]!r}"


def chunks(source: Path | TextIO) -> Iterator[str]:
    """Runs of whole lines, so that tokens are seldom cut."""
    if not isinstance(source, Path):
        while lines := source.readlines(_CHUNK):
            yield "".join(lines)
        return
    try:
        with source.open(encoding="utf-8") as file:
            yield from chunks(file)
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{source} is no text in UTF-8 ({error.reason} at byte {error.start}).") from None


def read_ids(path: Path) -> np.ndarray:
    """Token ids (n, t) or (n,) of an .npy file."""
    try:
        ids = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError, MemoryError) as error:  # memory: a damaged shape promises anything
        raise FileFormatError(f"{path} is no readable .npy file without pickles ({error}).") from None
    if not isinstance(ids, np.ndarray) or ids.dtype.kind not in "iu" or ids.ndim not in (1, 2):
        found = f"{ids.dtype} of shape {ids.shape}" if isinstance(ids, np.ndarray) else type(ids).__name__
        raise FileFormatError(f"{path} must hold integer token ids (n, t), got {found}.")
    return ids.astype(np.int64)
