"""Results on disk: every number in results.json, every picture in results.safetensors, and back again."""

from __future__ import annotations

import math
import types
import typing
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlpoly.errors import FileFormatError
from mlpoly.files import read_json, read_tensors, write_json, write_tensors
from mlpoly.studies.results import Results
from mlpoly.studies.tables import plain

__all__ = ["load_results", "save_results"]

_ARRAY = "array"  # {"array": name} stands for a tensor of that name


def save_results(results: Results, folder: Path) -> None:
    """Write results.json and results.safetensors."""
    arrays: dict[str, np.ndarray] = {}
    content = _encoded(results, "", arrays)
    write_tensors(folder / "results.safetensors", arrays, {"format": "mlpoly-results"})
    write_json(folder / "results.json", content)


def load_results(folder: Path) -> Results:
    """Read what `save_results` wrote.

    Raises
    ------
    FileNotFoundError
    FileFormatError
        If a file is damaged or of another version.
    """
    path = folder / "results.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"no results in {folder}; make them with `mlpoly dynamics` or `mlpoly reproduce` first."
        )
    content, (_, arrays) = read_json(path), read_tensors(folder / "results.safetensors")
    try:
        made: Results = _decoded(content, Results, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(f"{path} is damaged or of another version ({error}); run the study again.") from error
    return made


def _encoded(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _encoded(getattr(value, f.name), f"{name}.{f.name}".strip("."), arrays) for f in fields(value)}
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {_ARRAY: name}
    if isinstance(value, tuple):
        return [_encoded(v, f"{name}.{i}", arrays) for i, v in enumerate(value)]
    return plain(value)


def _decoded(value: Any, kind: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Build a value of the annotated type from its JSON."""
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        given = {name: _decoded(value[name], hint, arrays) for name, hint in hints.items() if name in value}
        return kind(**given)  # type: ignore[operator]
    if kind is np.ndarray:
        return arrays[value[_ARRAY]]
    if kind is float:
        return math.nan if value is None else float(value)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return tuple(_decoded(v, arguments[0], arrays) for v in value)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _decoded(value, next(a for a in arguments if a is not type(None)), arrays)
    return value
