"""Files that are whole or not there: safetensors with a JSON header, JSON, CSV and text; never pickle."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mlpoly.errors import FileFormatError

__all__ = ["make_folder", "read_json", "read_tensors", "write_csv", "write_json", "write_tensors", "write_text"]

_KEY = "mlpoly"  # where the header stands among the metadata of a safetensors file


@contextmanager
def _replacing(path: str | PathLike[str]) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place at the end, so that a crash leaves no half file."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no folder {target.parent}; create it before saving.")
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield scratch
        scratch.replace(target)
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"{target} could not be written ({reason}); is there space, and the right to write?") from error
    finally:
        with suppress(OSError):  # what went wrong above is the news
            scratch.unlink(missing_ok=True)


def make_folder(path: str | PathLike[str]) -> Path:
    """The folder, made if it is missing and tried for writing, before hours of work depend on it."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{os.getpid()}.probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"the folder {folder} cannot be written to ({reason}); choose another.") from error
    return folder


def write_text(path: str | PathLike[str], text: str) -> None:
    """Write text in UTF-8."""
    with _replacing(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def write_json(path: str | PathLike[str], content: Any) -> None:
    """Write JSON, indented; NaN and infinities, which JSON has no words for, are refused."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def read_json(path: str | PathLike[str]) -> Any:
    """Read JSON that `write_json` wrote."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is no readable JSON file ({error}); it may be truncated.") from error


def write_csv(path: str | PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table; a row need not have every column, and what it lacks stays empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_tensors(path: str | PathLike[str], arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
    """Write named NumPy arrays, with a header that JSON can hold."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    whole = {name: np.asarray(a, order="C") for name, a in arrays.items()}
    with _replacing(path) as scratch:
        try:
            save_file(whole, scratch, metadata={_KEY: json.dumps(dict(header))})
        except SafetensorError as error:  # a full disk, for one, is no OSError there
            raise OSError(str(error)) from error
        _share(scratch)


def _share(path: Path) -> None:
    """Give the file the rights that files get here; safetensors makes them readable for their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def read_tensors(path: str | PathLike[str]) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """Header (None if the file has none of ours) and arrays.

    Raises
    ------
    FileFormatError
        If the file is corrupt or truncated.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, ValueError, OSError) as error:
        raise FileFormatError(f"{path} is no readable safetensors file ({error}); it may be truncated.") from error
    try:
        header = json.loads(metadata[_KEY])
    except (KeyError, TypeError, json.JSONDecodeError):
        header = None
    return (header if isinstance(header, dict) else None), arrays
