"""Whether results fit together: files may be damaged, or forged, and the report relies on them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from mlpoly.codec import from_plain, to_plain

_LABELS = ("label", "output", "ladder_label", "ladder_choices", "labels", "choices")
_NUMBERS = ("positive", "negative", "spectrum")  # arrays that are not pictures


@dataclass(frozen=True)
class _Data:
    classes: tuple[str, ...]
    image_shape: tuple[int, int]


@dataclass(frozen=True)
class _About:
    """The entries of `Results.about` that the report and the figures rely on."""

    seconds: dict[str, float] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    version: str = ""
    data: _Data | None = None


def check_results(results: Any) -> None:
    """Raise unless pictures and labels of a `Results` are those of the data in its `about`."""
    data = from_plain(_About, to_plain(results.about)).data
    if data is None:
        if results.training or results.features or results.attack:
            raise ValueError("about does not name the data")
        return
    if not data.classes or min(data.image_shape) < 1:
        raise ValueError("about.data has no classes or pixels")
    pixels, classes = math.prod(data.image_shape), len(data.classes)
    for name, value in _entries((results.features, results.attack)):
        if isinstance(value, np.ndarray) and name not in _NUMBERS:
            axes = 1 if name in ("linear", "image", "vector") else 2
            if value.ndim != axes or value.shape[-1] != pixels or value.dtype.kind != "f":
                raise ValueError(f"a picture ({name}) does not have the {pixels} pixels of the images")
        if name in _LABELS and not 0 <= value < classes:
            raise ValueError(f"a label ({name}) is not one of the classes")
        if name == "pixels" and not 0 <= value < pixels:
            raise ValueError(f"a term has a pixel that is not one of the {pixels} of the images")
    pairs: list[tuple[Any, Any]] = []
    for step in results.features.steps if results.features else ():
        pairs += [(step.positive, step.positive_vectors), (step.negative, step.negative_vectors)]
    for shown in (attack.pictures for attack in results.attack):
        pairs += [(shown.ladder, shown.ladder_choices), (shown.digits, shown.labels)]
        pairs += [(shown.digits, shown.ablated), (shown.labels, shown.choices)]
    if any(len(one) != len(other) for one, other in pairs):
        raise ValueError("the numbers of pictures and of labels differ")


def _entries(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Everything inside records and tuples, at any depth, with the name of its field."""
    if is_dataclass(value):
        for f in fields(value):
            yield from _entries(getattr(value, f.name), f.name)
    elif isinstance(value, tuple):
        for item in value:
            yield from _entries(item, name)
    else:
        yield name, value
