"""How far polynomials are from their blocks, by block and degree."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from mlpoly.lm.study.lm_results import FitRow
from mlpoly.lm.study.report.axes import degree_colour, layer_axis, line
from mlpoly.page import Page, Plot, View
from mlpoly.page.numbers import percent
from mlpoly.page.plot import Trace, with_scales
from mlpoly.page.widgets import figure, table

__all__ = ["fits_section", "median_fvu"]

_KINDS = {"closed form": "closed_form", "held-out text": "held_out"}  # and the field of FitRow
_COLUMNS = _KINDS | {"without the bound": "unbounded", "typical token": "typical"}


def fits_section(page: Page, fits: Sequence[FitRow]) -> None:
    """Lines over the blocks, and a table of their means."""
    layers = list(dict.fromkeys(fit.layer for fit in fits))
    degrees = sorted({fit.degree for fit in fits})
    traces: dict[str, list[Trace]] = {kind: [] for kind in _KINDS}
    for kind, key in _KINDS.items():
        sampled = kind == "held-out text"
        for degree in degrees:
            pairs = [(layers.index(f.layer), getattr(f, key)) for f in fits if f.degree == degree]
            pairs = sorted((place, value) for place, value in pairs if math.isfinite(value))
            if pairs:
                words = f"degree {degree}" + (", held out" if sampled else "")
                traces[kind].append(line(words, pairs, layers, degree_colour(degree), sampled))
    both = [trace for kind in traces.values() for trace in kind]
    views = [View(("both",), both), *(View((kind,), found) for kind, found in traces.items() if found)]
    layout = {"xaxis": layer_axis(layers), "yaxis": {"title": {"text": "fraction of variance unexplained"}}}
    label = "Fraction of variance unexplained of every block, by degree"
    plot = Plot("plot-fvu", label, with_scales(views), ("Shown", "Axis"), layout)
    caption = (
        "Solid lines: under the Gaussian inputs of the fit, from weights and moments alone. Dotted lines: on text that "
        "the moments have not seen, whose activations are no Gaussian. A click on a name in the legend hides it."
    )
    columns = {name: key for name, key in _COLUMNS.items() if math.isfinite(median_fvu(fits, degrees[-1], key))}
    rows = []
    for d in degrees:
        worst = max((f.held_out for f in fits if f.degree == d and math.isfinite(f.held_out)), default=math.nan)
        rows.append((f"degree {d}", *(median_fvu(fits, d, key) for key in columns.values()), worst))
    page.section("fvu", "How far each polynomial is from its block", "FVU by block").add(
        "The fraction of the variance of a block’s outputs that a polynomial leaves unexplained (FVU) is 0 for a "
        "perfect copy, 1 for the best constant, and more where the polynomial does worse than that.",
        figure(plot.html(), caption),
        table(("Median over the blocks", *(f"FVU, {name}" for name in columns), "Worst block, held-out text"), rows),
        _notes(fits),
    )


def _notes(fits: Sequence[FitRow]) -> str:
    """What the columns of the table mean that are not there in every study."""
    said = ""
    if any(math.isfinite(fit.beyond) for fit in fits):
        share = median_fvu(fits, max(fit.degree for fit in fits), "beyond")
        said += (
            f"Beyond the bound every neuron goes on as a straight line, and the block is no polynomial there: this "
            f"concerns {percent(share)} of the preactivations on held-out text. The column without the bound has the "
            f"same polynomials everywhere. "
        )
    if any(math.isfinite(fit.typical) for fit in fits):
        said += (
            "A few tokens with massive activations can be nearly all of a block’s variance. The typical token is the "
            "median over tokens of the error’s share of the output’s squared length."
        )
    return said


def median_fvu(fits: Sequence[FitRow], degree: int, key: str) -> float:
    """Median of a field over the blocks where it is known; NaN if there are none."""
    known = [getattr(fit, key) for fit in fits if fit.degree == degree and math.isfinite(getattr(fit, key))]
    return statistics.median(known) if known else math.nan
