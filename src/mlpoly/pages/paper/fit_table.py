"""All polynomials at the last checkpoint, as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from mlpoly.pages.toolkit.widgets import table
from mlpoly.studies.paper.figures.training_curves import DEGREES, INPUTS, fit_name
from mlpoly.studies.paper.results import Point

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


def fit_table(points: Sequence[Point]) -> Markup:
    """All polynomials at the last checkpoint, means over the seeds."""
    end, rows = max(p.step for p in points), []
    for degree, inputs in [(degree, inputs) for degree in DEGREES for inputs in INPUTS]:
        fits = [p for p in points if (p.step, p.degree, p.inputs) == (end, degree, inputs)]
        if fits:
            means = (math.fsum(getattr(p, field) for p in fits) / len(fits) for field in _COLUMNS)
            rows.append((fit_name(degree, inputs), *means))
    caption = "Means over the seeds. Accuracy and agreement with the network are on test images."
    return table(("Polynomial", *_COLUMNS.values()), rows, caption)
