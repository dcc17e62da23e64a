"""What a class reads: eigenvectors of the quadratic over training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlpoly.arrays import as_integer
from mlpoly.charts.chart import Gallery, Picture
from mlpoly.pages.toolkit.numbers import signed
from mlpoly.studies.paper.class_features import align
from mlpoly.studies.paper.results import FeatureStep

_NOTE = (
    "each image is scaled by its own largest pixel (red positive, blue negative); signs of eigenvectors mean nothing"
)
_ROWS = (("positive", 0, "largest"), ("positive", 1, "2nd largest"), ("negative", 0, "lowest"))  # sign, rank, words


def spread(count: int, most: int) -> list[int]:
    """Return at most `most` of `count` places, evenly spread, with the first and the last."""
    return [int(i) for i in np.round(np.linspace(0, count - 1, min(most, count)))]


def _of_class(steps: Sequence[FeatureStep], label: int) -> list[FeatureStep]:
    """The checkpoints of one class, in the order of training."""
    chosen = sorted((s for s in steps if s.label == label), key=lambda s: s.step)
    if not chosen:
        raise ValueError(f"steps has none of label={label}, only of {sorted({s.label for s in steps})}.")
    return chosen


def _eigenvector(step: FeatureStep, sign: str, rank: int, image_shape: tuple[int, int]) -> Picture | None:
    values, vectors = getattr(step, sign), getattr(step, f"{sign}_vectors")
    if rank >= len(values):
        return None
    return Picture(np.reshape(vectors[rank], image_shape), "", signed(float(values[rank]), 2), sign)


def training_gallery(
    steps: Sequence[FeatureStep], label: int, image_shape: tuple[int, int], columns: int = 10
) -> Gallery:
    """Describe what one class reads over training, in a column for each of at most so many checkpoints (figure 1).

    Rows are eigenvectors of the quadratic with the largest positive and the most negative eigenvalues, then the
    coefficients of the best linear map.
    """
    steps = _of_class(steps, label)
    shown = align([steps[i] for i in spread(len(steps), as_integer("columns", columns, 1))])
    rows: list[tuple[str, Sequence[Picture | None]]] = [
        (f"{words}\neigenvalue", [_eigenvector(step, sign, rank, image_shape) for step in shown])
        for sign, rank, words in _ROWS
    ]
    rows.append(("linear\ncoefficients", [Picture(np.reshape(s.linear, image_shape)) for s in shown]))
    return Gallery(rows, ("step", *(str(s.step) for s in shown)), note=_NOTE)
