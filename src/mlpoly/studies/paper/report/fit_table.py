"""All polynomials at the last checkpoint, as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from mlpoly.page.widgets import table
from mlpoly.studies.paper.figures.training_curves import DEGREES, INPUTS, fit_name
from mlpoly.studies.paper.results import Point

__all__ = ["fit_table", "last"]

_COLUMNS = {
    "fvu_mixture": "FVU, mixture",
    "fvu_samples": "FVU, samples",
    "fvu_test": "FVU, test",
    "kl_samples": "KL, samples",
    "kl_test": "KL, test",
    "accuracy": "Accuracy",
    "agreement": "Agreement",
    "seconds": "Fit, seconds",
}


def last(points: Sequence[Point], degree: int, inputs: str) -> list[Point]:
    """One polynomial at its last checkpoint, for every seed."""
    found = [p for p in points if (p.degree, p.inputs) == (degree, inputs)]
    end = max((p.step for p in found), default=0)
    return [p for p in found if p.step == end]


def fit_table(points: Sequence[Point]) -> Markup:
    """All polynomials at the last checkpoint, means over the seeds."""
    rows = []
    for degree in DEGREES:
        for inputs in INPUTS:
            if records := last(points, degree, inputs):
                means = (math.fsum(getattr(r, c) for r in records) / len(records) for c in _COLUMNS)
                rows.append((fit_name(degree, inputs), *means))
    caption = "Means over the seeds. Accuracy and agreement with the network are on test images."
    return table(("Polynomial", *_COLUMNS.values()), rows, caption)
