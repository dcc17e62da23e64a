"""Files that are whole or not there: safetensors with a JSON header, JSON, CSV and text; never pickle."""

from __future__ import annotations

import csv
import json
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlpoly.errors import FileFormatError

__all__ = [
    "make_folder",
    "read_json",
    "read_tensors",
    "replacing",
    "write_csv",
    "write_json",
    "write_tensors",
    "write_text",
]

_KEY = "mlpoly"  # where the header stands among the metadata of a safetensors file
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that spreadsheets compute


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place at the end, so that a crash leaves no half file.

    It is there, empty and with the rights that new files get here, and its name is random: nobody else writes to it,
    and no link leads elsewhere from it.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no folder {target.parent}; create it before saving.")
    scratch = target.with_name(f".mlpoly-{secrets.token_hex(8)}.tmp")
    try:
        scratch.touch(exist_ok=False)  # O_CREAT and O_EXCL: fails if there is anything of that name, links too
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
        probe = folder / f".mlpoly-{secrets.token_hex(8)}.probe"
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"the folder {folder} cannot be written to ({reason}); choose another.") from error
    return folder


def write_text(path: str | PathLike[str], text: str) -> None:
    """Write text in UTF-8; what it has no bytes for, half of a surrogate pair, is written as JSON would escape it."""
    with replacing(path) as scratch:
        scratch.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: str | PathLike[str], content: Any) -> None:
    """Write JSON, indented; NaN and infinities, which JSON has no words for, are refused."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def read_json(path: str | PathLike[str]) -> Any:
    """Read JSON that `write_json` wrote."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, numbers of thousands of digits, nested too deep
        raise FileFormatError(f"{path} is no readable JSON file ({error}); it may be truncated.") from error


def write_csv(path: str | PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table; a row need not have every column, and what it lacks stays empty.

    Text that a spreadsheet would take for a formula gets an apostrophe in front, which makes it text there as well.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines: list[str] = []
    # Cells are quoted if they hold a character of the line's end: with both in it, a token "\r" is as well.
    writer = csv.DictWriter(SimpleNamespace(write=lines.append), columns, lineterminator="\r\n")
    writer.writeheader()
    for row in rows:
        computed = {
            name: f"'{cell}" for name, cell in row.items() if isinstance(cell, str) and cell.startswith(_FORMULA)
        }
        writer.writerow({**row, **computed})
    write_text(path, "".join(line.removesuffix("\r\n") + "\n" for line in lines))


def write_tensors(path: str | PathLike[str], arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
    """Write named NumPy arrays, with a header that JSON can hold."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    whole = {name: np.asarray(a, order="C") for name, a in arrays.items()}
    with replacing(path) as scratch:
        rights = stat.S_IMODE(scratch.stat().st_mode)
        try:
            save_file(whole, scratch, metadata={_KEY: json.dumps(dict(header))})
        except SafetensorError as error:  # a full disk, for one, is no OSError there
            raise OSError(str(error)) from error
        scratch.chmod(rights)  # safetensors puts a file in its place that is readable for its owner alone


def read_tensors(path: str | PathLike[str]) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """Header (None if the file has none of ours) and arrays.

    Raises
    ------
    FileFormatError
        If the file is corrupt or truncated, or holds numbers that NumPy has no type for.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, ValueError, OSError) as error:
        raise FileFormatError(f"{path} is no readable safetensors file ({error}); it may be truncated.") from error
    except (TypeError, AttributeError, KeyError) as error:
        raise FileFormatError(f"{path} holds numbers that NumPy has no type for ({error}); save it again.") from error
    # JAX teaches NumPy bfloat16 and floats of 8 bits; what a file means must not depend on who is imported.
    if odd := [f"{name}: {a.dtype}" for name, a in arrays.items() if a.dtype.isbuiltin != 1]:
        raise FileFormatError(f"{path} holds numbers that NumPy has no type for ({odd[0]}); save it again.")
    try:
        header = json.loads(metadata[_KEY])
    except (KeyError, TypeError, ValueError, RecursionError):
        header = None
    return (header if isinstance(header, dict) else None), arrays
