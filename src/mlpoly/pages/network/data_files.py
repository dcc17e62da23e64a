"""Tables of data from files: .npy, .npz and CSV. Nothing in them is run."""

from __future__ import annotations

import csv
import io
import zipfile
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mlpoly.errors import FileFormatError

_DATA = ("x", "X", "data", "x_test", "x_train")  # keys of an .npz file, in the order in which they are tried
_LABELS = {"x": "y", "X": "y", "data": "target", "x_test": "y_test", "x_train": "y_train"}
_BEGINNINGS = {".npy": b"\x93NUMPY", ".npz": b"PK"}
_MISSING = {"", "na", "nan", "null", "none", "?"}  # cells without a number


@dataclass(frozen=True)
class DataTable:
    """Rows of numbers, with labels and names of the columns where the file has them.

    Attributes
    ----------
    x : array (n, d), or (n, rows, columns) for pictures
    labels : array (n,), (n, o) or None
    names : tuple of str or None
    """

    x: np.ndarray
    labels: np.ndarray | None = None
    names: tuple[str, ...] | None = None


def read_table(path: str | PathLike[str], labels: str | None = None) -> DataTable:
    """Read a table of data from a file.

    Parameters
    ----------
    path : path
        ``.npy`` (one array), ``.npz`` (key "x" or the only array; "y" or "labels" and "names" where it has them), or
        ``.csv`` and ``.tsv`` (a header line gives the names).
    labels : str, optional
        Key of the labels in an .npz file; in a CSV file the name of their column, or its number from 0 on. By default
        the key "y" or "labels", or the only column that has no numbers.

    Raises
    ------
    FileFormatError
        If the file cannot be read as what its name says, or holds Python objects, which would run code.
    ValueError
        If the labels are not there, or the name of the file ends otherwise.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}; give a .npz, .npy or .csv file of data.")
    kind = file.suffix.lower()
    if kind in (".csv", ".tsv", ".txt"):
        return _from_csv(file, labels)
    if kind in _BEGINNINGS:
        arrays = _arrays(file, kind)
        if kind == ".npz":
            return _from_npz(file, arrays, labels)
        if labels is not None:
            raise ValueError(f"{file} holds one array and no labels; use an .npz file with x and {labels}.")
        return DataTable(arrays["x"])
    raise ValueError(f"{file} is neither .npy, .npz nor .csv; save the data as one of these.")


def _arrays(file: Path, kind: str) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, or the one of an .npy file as x."""
    with file.open("rb") as beginning:
        if not beginning.read(8).startswith(_BEGINNINGS[kind]):  # NumPy would take anything else for a pickle
            raise FileFormatError(f"{file} is not a readable {kind} file.")
    try:
        content = np.load(file, allow_pickle=False)
        if kind == ".npy":
            return {"x": content}
        with content:
            return {key: content[key] for key in content.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        if "allow_pickle" in str(error):
            raise FileFormatError(
                f"{file} holds Python objects, which would run code when they are read; save arrays of numbers."
            ) from error
        raise FileFormatError(f"{file} is not a readable {kind} file ({error}).") from error


def _from_npz(file: Path, arrays: dict[str, np.ndarray], labels: str | None) -> DataTable:
    key = next((key for key in _DATA if key in arrays), None)
    others = [name for name in arrays if name not in ("y", "labels", "target", "names", labels)]
    key = others[0] if key is None and len(others) == 1 else key
    if key is None:
        raise FileFormatError(f"{file} has no array x, only {', '.join(arrays) or 'nothing'}; save the data as x.")
    if labels is not None and labels not in arrays:
        raise ValueError(f"{file} has no labels {labels!r}, only {', '.join(arrays)}.")
    wanted = labels or next((name for name in ("y", "labels", _LABELS.get(key)) if name in arrays), None)
    names = tuple(str(name) for name in arrays["names"]) if "names" in arrays else None
    return DataTable(arrays[key], arrays[wanted] if wanted else None, names)


def _from_csv(file: Path, labels: str | None) -> DataTable:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{file} is not text in UTF-8 ({error.reason}).") from error
    first = text.partition("\n")[0]
    delimiter = max("\t;,", key=first.count)
    rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if any(cell.strip() for cell in row)]
    if not rows:
        raise FileFormatError(f"{file} is empty.")
    header = None if all(_is_number(cell) for cell in rows[0]) else [cell.strip() for cell in rows.pop(0)]
    width = len(header or rows[0])
    ragged = next((i for i, row in enumerate(rows) if len(row) != width), None)
    if ragged is not None or not rows:
        what = "no rows" if not rows else f"{len(rows[ragged or 0])} cells in row {ragged}, but {width} columns"
        raise FileFormatError(f"{file} has {what}.")
    names = header or [str(i) for i in range(width)]
    columns = dict(enumerate(zip(*rows, strict=True)))
    if header and header[0] == "":  # the numbers of the rows, as pandas writes them
        del columns[0]
    words = [i for i, column in columns.items() if not all(_is_number(cell) for cell in column)]
    if labels is not None:
        place = names.index(labels) if labels in names else int(labels) if labels.isdigit() else -1
        if place not in columns:
            raise ValueError(f"{file} has no column {labels!r}; its columns are {', '.join(names[:20])}.")
    else:
        place = words[0] if len(words) == 1 else -1
    stray = [names[i] for i in words if i != place]
    if stray:
        raise ValueError(
            f"{file} has columns that are not numbers: {', '.join(stray[:5])}; encode them as the network was trained, "
            f"or name the one with the labels."
        )
    kept = [i for i in columns if i != place]
    x = np.array([[_number(cell) for cell in columns[i]] for i in kept]).T.reshape(len(rows), len(kept))
    found = None if place < 0 else _labels([cell.strip() for cell in columns[place]])
    return DataTable(x, found, tuple(names[i] for i in kept) if header else None)


def _labels(cells: list[str]) -> np.ndarray:
    """Labels as integers, real numbers or words, whichever all of them are."""
    for kind in (int, float):
        try:
            return np.array([kind(cell) for cell in cells])
        except ValueError:
            continue
    return np.array(cells)


def _is_number(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def _number(cell: str) -> Any:
    return float("nan") if cell.strip().lower() in _MISSING else float(cell)
