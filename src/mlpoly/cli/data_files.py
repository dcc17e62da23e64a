"""Rows of data from files: .npy, .npz and CSV. Nothing in them is run."""

import zipfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mlpoly.errors import FileFormatError
from mlpoly.extras import explain_missing

_ROWS = ("x", "X", "data", "x_test", "x_train")  # keys of an .npz file, in the order in which they are tried
_LABELS = {"x": "y", "X": "y", "data": "target", "x_test": "y_test", "x_train": "y_train"}


def read_data(path: str | PathLike[str], labels: str | None = None) -> tuple[Any, Any, tuple[str, ...] | None]:
    """Read rows of inputs x, with labels and names of the columns, None where the file has none.

    Parameters
    ----------
    path : path
        ``.npy`` (one array), ``.npz`` (key "x" or the only array; "y" or "labels" and "names" where it has them), or
        ``.csv`` and ``.tsv`` (a header line has the names). Python objects, which would run code, are refused.
    labels : str, optional
        Key of the labels in an .npz file; in a CSV file the name of their column, or its number from 0 on. By default
        the key "y" or "labels", or the only column that has no numbers.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}; give a .npz, .npy or .csv file of data.")
    kind = file.suffix.lower()
    if kind in (".csv", ".tsv", ".txt"):
        return _from_csv(file, labels)
    if kind not in (".npy", ".npz"):
        raise ValueError(f"{file} is neither .npy, .npz nor .csv; save the data as one of these.")
    try:
        with file.open("rb") as opened:
            content = np.load(opened, allow_pickle=False)
            arrays = {"x": content} if kind == ".npy" else dict(content)
    except (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise FileFormatError(
            f"{file} is not a readable {kind} file of numbers ({error}); Python objects are not read, as they would "
            f"run code."
        ) from error
    others = [name for name in arrays if name not in ("y", "labels", "target", "names", labels)]
    key = next((key for key in _ROWS if key in arrays), others[0] if len(others) == 1 else None)
    if key is None:
        raise FileFormatError(f"{file} has no array x, only {', '.join(arrays) or 'nothing'}; save the data as x.")
    if labels is not None and labels not in arrays:
        raise ValueError(f"{file} has no labels {labels!r}, only {', '.join(arrays)}; save them in an .npz file.")
    wanted = labels or next((name for name in ("y", "labels", _LABELS.get(key)) if name in arrays), None)
    names = tuple(str(name) for name in arrays["names"]) if "names" in arrays else None
    return arrays[key], arrays[wanted] if wanted else None, names


def _from_csv(file: Path, labels: str | None) -> tuple[np.ndarray, np.ndarray | None, tuple[str, ...] | None]:
    with explain_missing(f"reading {file.suffix} files"):
        import pandas
    try:
        with file.open(encoding="utf-8-sig") as lines:
            first = lines.readline().strip()
        separator = max("\t;,", key=first.count)
        numbers = pandas.to_numeric(pandas.Series(first.split(separator)), errors="coerce").notna().all()
        frame = pandas.read_csv(
            file, sep=separator, header=None if numbers else 0, skipinitialspace=True, na_values="?", index_col=False
        )
    except (UnicodeDecodeError, pandas.errors.ParserError, pandas.errors.EmptyDataError) as error:
        raise FileFormatError(f"{file} is not a table of text in UTF-8 ({error}).") from error
    frame.columns = [str(name).strip() for name in frame.columns]
    if frame.columns[0] == "Unnamed: 0":  # the numbers of the rows, as pandas writes them
        frame = frame.iloc[:, 1:]
    if not len(frame):
        raise FileFormatError(f"{file} has no rows.")
    words = [name for name in frame.columns if not pandas.api.types.is_numeric_dtype(frame[name])]
    if labels is None:
        labels = words[0] if len(words) == 1 else None
    elif labels not in frame.columns:
        if not labels.isdigit() or int(labels) >= len(frame.columns):
            raise ValueError(f"{file} has no column {labels!r}; its columns are {', '.join(frame.columns[:20])}.")
        labels = frame.columns[int(labels)]
    stray = [name for name in words if name != labels]
    if stray:
        raise ValueError(
            f"{file} has columns that are not numbers: {', '.join(stray[:5])}; encode them as the network was trained, "
            f"or name the one with the labels."
        )
    rows = frame.drop(columns=[] if labels is None else [labels])
    return (
        rows.to_numpy(float),
        None if labels is None else frame[labels].to_numpy(),
        None if numbers else tuple(rows.columns),
    )
