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
from mlpoly.studies.paper.results import Results
from mlpoly.studies.paper.tables import plain

__all__ = ["decoded", "load_results", "save_results"]

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
    again = "move results.json and results.safetensors away and run the study again: it has all that they are made from"
    try:
        content, (_, arrays) = read_json(path), read_tensors(folder / "results.safetensors")
    except FileFormatError as error:
        raise FileFormatError(f"{error} To go on, {again}.") from None
    try:
        made: Results = decoded(content, Results, arrays)
        _check_about(made)
        _check_pictures(made)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise FileFormatError(f"{path} is damaged or of another version ({error}); {again}.") from error
    return made


def _check_about(results: Results) -> None:
    """Raise unless what the report and the figures ask of `about` is there."""
    about = results.about
    for name, kind in (("seconds", dict), ("config", dict), ("machine", dict), ("command", str), ("version", str)):
        if not isinstance(about.get(name, kind()), kind):
            raise TypeError(f"about.{name} is {about[name]!r:.40}")
    if not all(isinstance(s, (int, float)) for s in about.get("seconds", {}).values()):
        raise TypeError("about.seconds are no numbers")
    if results.training:
        data = about["data"]
        decoded(data["classes"], tuple[str, ...], {})
        rows, columns = decoded(data["image_shape"], tuple[int, ...], {})
        if not data["classes"] or min(rows, columns) < 1:
            raise ValueError("about.data has no classes or pixels")


def _check_pictures(results: Results) -> None:
    """Raise unless all pictures have the pixels, and all labels are among the classes, that `about` tells of."""
    pictures: list[np.ndarray] = []
    labels: list[int] = []
    pairs: list[tuple[int, int]] = []  # lengths that must agree
    if results.features is not None:
        for step in results.features.steps:
            labels.append(step.label)
            pictures += [step.positive_vectors, step.negative_vectors, step.linear[None]]
            pairs += [
                (len(step.positive), len(step.positive_vectors)),
                (len(step.negative), len(step.negative_vectors)),
            ]
        for explained in results.features.explanations:
            labels += [explained.label, explained.output]
            pictures += [explained.image[None], *(top.vector[None] for top in explained.top)]
    for attack in results.attack:
        shown = attack.pictures
        labels += [shown.ladder_label, *shown.ladder_choices, *shown.labels, *shown.choices]
        pictures += [shown.ladder, shown.digits, shown.ablated]
        pairs += [(len(shown.ladder), len(shown.ladder_choices)), (len(shown.digits), len(shown.labels))]
        pairs += [(len(shown.digits), len(shown.ablated)), (len(shown.labels), len(shown.choices))]
    if not pictures:
        return
    pixels = math.prod(results.about["data"]["image_shape"])
    if any(p.ndim != 2 or p.shape[1] != pixels or p.dtype.kind != "f" for p in pictures):
        raise ValueError(f"a picture has not the {pixels} pixels of the images")
    if any(not 0 <= label < len(results.about["data"]["classes"]) for label in labels):
        raise ValueError("a label is none of the classes")
    if any(one != other for one, other in pairs):
        raise ValueError("there are more pictures than labels, or fewer")


def _encoded(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _encoded(getattr(value, f.name), f"{name}.{f.name}".strip("."), arrays) for f in fields(value)}
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {_ARRAY: name}
    if isinstance(value, tuple):
        return [_encoded(v, f"{name}.{i}", arrays) for i, v in enumerate(value)]
    return plain(value)


def decoded(value: Any, kind: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Build a value of the annotated type from its JSON.

    Raises
    ------
    KeyError, TypeError, ValueError, AttributeError, ArithmeticError
        If it is none.
    """
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        given = {name: decoded(value[name], hint, arrays) for name, hint in hints.items() if name in value}
        return kind(**given)  # type: ignore[operator]
    if kind is np.ndarray:
        return arrays[value[_ARRAY]]
    if kind is float and not isinstance(value, (str, bool)):
        return math.nan if value is None else float(value)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and isinstance(value, list):
        return tuple(decoded(v, arguments[0], arrays) for v in value)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else decoded(value, next(a for a in arguments if a is not type(None)), arrays)
    if type(value) is not (origin or kind):  # a truth is no integer
        raise TypeError(f"{value!r:.40} where {kind} is expected")
    return value
