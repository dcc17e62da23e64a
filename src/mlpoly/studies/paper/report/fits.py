"""Polynomials against a network as curves: the colour is the degree, the dashes are what it was fitted under."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from mlpoly.page.plot import Plot, Trace, View
from mlpoly.page.widgets import table
from mlpoly.studies.paper.report.curves import Curve, over_seeds, place_step

__all__ = ["DEGREES", "INPUTS", "fit_curves", "fit_table", "fit_traces", "last", "network_traces", "spectrum_plot"]

DEGREES = {1: ("linear", "orange"), 2: ("quadratic", "blue")}
INPUTS = {  # name, dash, width: the fits that count most are drawn boldest
    "mixture": ("mixture, exact", "solid", 2.6),
    "paper": ("mixture, paper’s route", "dash", 2.2),
    "gaussian": ("N(mean, cov)", "dashdot", 1.6),
    "standard": ("N(0, I)", "dot", 1.6),
}
_SAMPLED = ("mixture", "paper")  # fits that get points with errors; on all of them they would hide the lines
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
_AREAS = 6  # degrees that page.css has a colour for


def fit_curves(points: Sequence[Any], y: str, y_name: str, error: str = "") -> dict[tuple[int, str], Curve]:
    """A curve over the steps for every polynomial that has finite values.

    Parameters
    ----------
    points : sequence of records
        With ``degree``, ``inputs``, ``step`` and the attribute `y`, one for each seed, such as
        `mlpoly.studies.paper.results.Point`.
    y, error : str
        The attribute to draw, and that of its standard error.
    y_name : str
        For the box at the pointer.

    Returns
    -------
    dict
        By degree and inputs.
    """
    curves = {}
    for degree in sorted({p.degree for p in points}):
        name, colour = DEGREES.get(degree, (f"degree {degree}", "violet"))
        for inputs in dict.fromkeys([*INPUTS, *(p.inputs for p in points)]):
            words, dash, width = INPUTS.get(inputs, (inputs, "longdash", 1.4))
            records = [p for p in points if (p.degree, p.inputs) == (degree, inputs)]
            summary = over_seeds(records, "step", y, error, place_step)
            if summary.x:
                curves[degree, inputs] = Curve(f"{name}, {words}", summary, colour, dash, width, y_name=y_name)
    return curves


def fit_traces(points: Sequence[Any], y: str, y_name: str, sampled: str = "") -> list[Trace]:
    """Lines of `y` for all polynomials; points of `sampled` with their errors for those under the mixture."""
    traces = [trace for curve in fit_curves(points, y, y_name).values() for trace in curve.line()]
    if sampled:
        dots = fit_curves(points, sampled, y_name, f"{sampled}_error")
        traces += [trace for (_, inputs), curve in dots.items() if inputs in _SAMPLED for trace in curve.points()]
    return traces


def network_traces(training: Sequence[Any], kind: str) -> list[Trace]:
    """The "accuracy" or "loss" of the network, on test and on training images."""
    traces = []
    for part, colour, dash in (("test", "black", "solid"), ("train", "grey", "dash")):
        summary = over_seeds(training, "step", f"{part}_{kind}", place=place_step)
        traces += Curve(f"network, {part} images", summary, colour, dash, y_name=kind).line()
    return traces


def last(points: Sequence[Any], degree: int, inputs: str) -> list[Any]:
    """One polynomial at its last checkpoint, for every seed."""
    found = [p for p in points if (p.degree, p.inputs) == (degree, inputs)]
    end = max((p.step for p in found), default=0)
    return [p for p in found if p.step == end]


def fit_table(points: Sequence[Any]) -> Markup:
    """All polynomials at the last checkpoint, means over the seeds."""
    rows = []
    for key, curve in fit_curves(points, "fvu_mixture", "").items():
        records = last(points, *key)
        rows.append((curve.name, *(math.fsum(getattr(r, c) for r in records) / len(records) for c in _COLUMNS)))
    caption = "Means over the seeds. Accuracy and agreement with the network are on test images."
    return table(("Polynomial", *_COLUMNS.values()), rows, caption)


def spectrum_plot(name: str, spectra: Sequence[Any], axis: dict[str, Any]) -> Plot:
    """Shares of the network's variance by degree over training, stacked.

    Parameters
    ----------
    name : str
        Of the plot.
    spectra : sequence of records
        With ``step``, ``inputs`` ("gaussian" or "mixture"), ``shares``, ``rest`` and ``between``, one for each seed,
        such as `mlpoly.studies.paper.results.Spectrum`.
    axis : dict
        The horizontal one.
    """
    views = []
    for inputs, words in (("gaussian", "N(mean, cov)"), ("mixture", "mixture of the classes")):
        records = [s for s in spectra if s.inputs == inputs]
        if not records:
            continue
        count = max(len(record.shares) for record in records)
        kinds: list[tuple[str, object]] = [(f"degree {k}", min(k, _AREAS)) for k in range(1, count + 1)]
        kinds = [("between classes", "between"), *kinds, (f"above degree {count}", "rest")]  # from the bottom
        areas = []
        for place, (kind, colour) in enumerate(kinds):

            def share(record: Any, place: int = place) -> float:
                return float((record.between, *record.shares, record.rest)[place])

            summary = over_seeds(records, "step", share, place=place_step)
            line = Curve(kind, summary, f"area-{colour}", width=0.5, y_name="share").line()[-1]
            areas.append({**line, "stackgroup": "shares", "fillcolor": f"var(--area-{colour})"})
        areas = areas if any(record.between > 0 for record in records) else areas[1:]
        higher = [area for area in areas if area["name"] not in ("between classes", "degree 1")]
        views.append(View((words, "all"), areas, {"yaxis": {"range": [0, 1]}}))
        views.append(View((words, "above degree 1"), higher, {"yaxis": {"rangemode": "tozero"}}))
    layout = {"xaxis": axis, "yaxis": {"title": {"text": "share of the variance"}, "tickformat": ".1~%"}}
    label = "Shares of the variance of the network by polynomial degree, over training"
    return Plot(name, label, views, ("Inputs", "Degrees"), layout)
