"""Records as JSON and back: numbers in a JSON file, arrays in a safetensors file beside it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mlpoly.errors import FileFormatError
from mlpoly.extras import explain_missing
from mlpoly.files import read_json, read_tensors, write_csv, write_json, write_tensors

T = TypeVar("T")

_ARRAY = "array"  # {"array": name} in JSON stands for the tensor of that name


def to_plain(value: Any, name: str = "", arrays: dict[str, np.ndarray] | None = None) -> Any:
    """Return a value in terms of JSON: records become dictionaries, NaN and infinities None.

    Its arrays go to `arrays` under `name` and their place in the value, or become lists where that is None.
    """
    if isinstance(value, np.ndarray) and arrays is not None:
        arrays[name] = value
        return {_ARRAY: name}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    dot = f"{name}." if name else ""
    if isinstance(value, Mapping):
        return {str(key): to_plain(item, f"{dot}{key}", arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, f"{dot}{i}", arrays) for i, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def from_plain(cls: type[T], value: Any, arrays: Mapping[str, np.ndarray] | None = None) -> T:
    """Return the record that `to_plain` made a value from, or raise a FileFormatError that names the first misfit.

    Fields that the class does not have are ignored, and fields with a default may be missing, so that files of other
    versions load. Where a float is expected, null is NaN, and where an array is, {"array": name} is one of `arrays`.
    """
    with explain_missing("reading results"):
        import cattrs
    converter = cattrs.Converter()
    converter.register_structure_hook(float, lambda value, _: math.nan if value is None else float(value))
    converter.register_structure_hook(np.ndarray, lambda value, _: (arrays or {})[value[_ARRAY]])
    try:
        return converter.structure(value, cls)
    except Exception as error:  # cattrs raises groups, and single errors of any type from inside a group
        raise FileFormatError(f"{cls.__name__}: {cattrs.transform_error(error)[0]}") from error


def save_results(path: str | PathLike[str], record: Any) -> None:
    """Write a record to a JSON file, and its arrays, if it has any, to a .safetensors file of the same name."""
    path, arrays = Path(path), dict[str, np.ndarray]()
    content = to_plain(record, "", arrays)
    tensors = path.with_suffix(".safetensors")
    if arrays:
        write_tensors(tensors, arrays, {"format": "mlpoly-results"})
    write_json(path, content)
    if not arrays:
        tensors.unlink(missing_ok=True)


def load_results(path: str | PathLike[str], cls: type[T]) -> T:
    """Read what `save_results` wrote; raise a FileFormatError if a file is damaged or of another version."""
    path = Path(path)
    tensors = path.with_suffix(".safetensors")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; run the study that makes it first.")
    remedy = f"Move {path.name} and {tensors.name} away and run the study again: it has all that they are made from."
    try:
        content, arrays = read_json(path), read_tensors(tensors)[1] if tensors.is_file() else {}
    except FileFormatError as error:
        raise FileFormatError(f"{error} {remedy}") from None
    try:
        return from_plain(cls, content, arrays)
    except FileFormatError as error:
        raise FileFormatError(f"{path} is damaged or of another version ({error}). {remedy}") from error


def write_table(path: str | PathLike[str], records: Sequence[Any]) -> None:
    """Write a CSV file with one row per record, one column per field, and one per entry of a field that is a tuple."""
    rows: list[dict[str, Any]] = [{} for _ in records]
    for row, record in zip(rows, records, strict=True):
        for name, value in to_plain(record).items():
            row |= {f"{name}_{i}": v for i, v in enumerate(value, 1)} if isinstance(value, list) else {name: value}
    write_csv(path, rows)
