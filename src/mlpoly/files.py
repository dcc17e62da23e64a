"""Files written whole or not at all: safetensors with a JSON header, JSON, CSV and text; never pickle."""

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

_KEY = "mlpoly"  # key of the header in the metadata of a safetensors file
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of a cell that a spreadsheet would compute


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[Path]:
    """Give a temporary file beside `path` that replaces it at the end, so that a crash leaves no half-written file.

    Its name is random, so that no other process writes to it and no link of that name redirects it.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; create it before saving.")
    scratch = target.with_name(f".mlpoly-{secrets.token_hex(8)}.tmp")
    try:
        scratch.touch(exist_ok=False)  # O_CREAT and O_EXCL: fails if anything of that name exists, even a link
        yield scratch
        scratch.replace(target)
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"{target} could not be written ({reason}); check free space and permissions.") from error
    finally:
        with suppress(OSError):  # an error above matters more than a leftover file
            scratch.unlink(missing_ok=True)


def make_folder(path: str | PathLike[str]) -> Path:
    """Create the folder if it is missing and check that it is writable, before hours of work depend on it."""
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
    """Write text in UTF-8; a lone surrogate, which UTF-8 cannot encode, is escaped as in JSON."""
    with replacing(path) as scratch:
        scratch.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: str | PathLike[str], content: Any) -> None:
    """Write indented JSON; NaN and infinities, which JSON cannot express, are refused."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def read_json(path: str | PathLike[str]) -> Any:
    """Read JSON that `write_json` wrote."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, numbers too long, nested too deep
        raise FileFormatError(f"{path} is not a readable JSON file ({error}); it may be truncated.") from error


def write_csv(path: str | PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table; a row need not have every column, and missing cells stay empty.

    Text that a spreadsheet would take for a formula gets a leading apostrophe, so that it stays text there.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines: list[str] = []
    # A cell is quoted if it holds a character of the line terminator: with both in it, so is a token "\r".
    writer = csv.DictWriter(SimpleNamespace(write=lines.append), columns, lineterminator="\r\n")
    writer.writeheader()
    for row in rows:
        computed = {
            name: f"'{cell}" for name, cell in row.items() if isinstance(cell, str) and cell.startswith(_FORMULA)
        }
        writer.writerow({**row, **computed})
    write_text(path, "".join(line.removesuffix("\r\n") + "\n" for line in lines))


def write_tensors(path: str | PathLike[str], arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
    """Write named NumPy arrays with a header that JSON can express."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    whole = {name: np.asarray(a, order="C") for name, a in arrays.items()}
    with replacing(path) as scratch:
        rights = stat.S_IMODE(scratch.stat().st_mode)
        try:
            save_file(whole, scratch, metadata={_KEY: json.dumps(dict(header))})
        except SafetensorError as error:  # safetensors' error for a full disk, among others, is not an OSError
            raise OSError(str(error)) from error
        scratch.chmod(rights)  # safetensors replaces the file by one that only its owner can read


def read_tensors(path: str | PathLike[str]) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """Read the header (None if the file has no header of this library) and the arrays.

    Raises a FileFormatError for files that are corrupt or truncated, or hold numbers of a type unknown to NumPy.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, ValueError, OSError) as error:
        raise FileFormatError(f"{path} is not a readable safetensors file ({error}); it may be truncated.") from error
    except (TypeError, AttributeError, KeyError) as error:
        raise FileFormatError(f"{path} holds numbers of a type unknown to NumPy ({error}); save it again.") from error
    # JAX adds bfloat16 and 8-bit floats to NumPy; what a file holds must not depend on which libraries are imported.
    if odd := [f"{name}: {a.dtype}" for name, a in arrays.items() if a.dtype.isbuiltin != 1]:
        raise FileFormatError(f"{path} holds numbers of a type unknown to NumPy ({odd[0]}); save it again.")
    try:
        header = json.loads(metadata[_KEY])
    except (KeyError, TypeError, ValueError, RecursionError):
        header = None
    return (header if isinstance(header, dict) else None), arrays
