"""How much of the network each degree explains, and how far its polynomials are off."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mlpoly.charts.chart import Axis, Bars, Chart, Curve, Panel, degree_bars, shortened
from mlpoly.features.single_prediction import degree_name
from mlpoly.inputs import Samples
from mlpoly.measures import DegreeSpectrum
from mlpoly.pages.network.fits import Fits, missed
from mlpoly.pages.network.subject import Subject, describe_inputs, distinct
from mlpoly.pages.toolkit import Page, plot
from mlpoly.pages.toolkit.widgets import figure, number, percent, table

_VISIBLE = 1e-9  # errors below it are rounding, and have no place on a logarithmic axis


def degree_section(page: Page, subject: Subject, fits: Fits) -> None:
    """Fractions of the variance by degree as bars, errors as curves, and both in a table with the labels."""
    section = page.section("degrees", "How much each degree explains", "Degrees")
    section.add(
        "The best polynomial of a degree explains a part of the variance of the network’s outputs. What it leaves is "
        "the fraction of variance unexplained (FVU): 0 for a perfect copy, 1 for the best constant, and more where it "
        "does worse than that."
    )
    if fits.spectrum is not None:
        caption = (
            "Variance of the network’s outputs under the Gaussian, divided among polynomial degrees: sums over the "
            "weights, no samples. What lies above a degree is what the best polynomial of that degree misses."
        )
        section.add(figure(plot("plot-spectrum", _spectrum_chart(subject, fits.spectrum, fits.shown)), caption))
    on_rows = isinstance(subject.inputs, Samples)  # then the errors under the inputs are those on the data
    dots = f"Dots: on {number(len(fits.rows), 6)} rows of the data, with a band of two standard errors."
    if not on_rows:
        sampled = fits.errors[0].under_inputs.standard_error is not None
        sure = "on samples of them" if sampled else "in closed form"
        dots = f"Line: under {describe_inputs(subject.inputs)}, {sure}. {dots}"
    section.add(figure(plot("plot-error", _error_chart(fits, on_rows)), dots))
    classes, unseen = subject.task == "classes", fits.errors[0].on_unseen is not None

    def judged(value: float | None) -> str:
        return "–" if value is None else percent(value) if classes else number(value)

    columns: dict[str, list[str]] = {"Polynomial": [degree_name(e.degree) for e in fits.errors]}
    if not on_rows:
        under = f"FVU under {describe_inputs(subject.inputs)}"
        columns[under] = [missed(float(e.under_inputs)) for e in fits.errors]
    columns["FVU on the data"] = [missed(float(e.on_data)) for e in fits.errors]
    columns["± standard error"] = [missed(e.standard_error) for e in fits.errors]
    if unseen:
        columns["FVU on unseen rows"] = [missed(e.on_unseen or 0.0) for e in fits.errors]
    if subject.task is not None:
        score = "Correct" if classes else "R² with labels"
        columns[score] = [judged(e.score) for e in fits.errors]
        if classes:
            columns["Network’s answer"] = [judged(e.agreement) for e in fits.errors]
        for name, cells in columns.items():
            cells.append({"Polynomial": "the network itself", score: judged(fits.score)}.get(name, "–"))
    section.add(table(list(columns), list(zip(*columns.values(), strict=True))))
    halves = (
        "The polynomials are made of the weights and of the mean and covariance of the rows. For unseen rows, mean and "
        "covariance are those of one half of them, and the error is measured on the other half."
    )
    given = "The labels are those that were given, whether or not the network was trained on these rows."
    section.add(" ".join([halves] * unseen + [given] * (subject.task is not None)))
    if len(subject.outputs) > 1:
        names = distinct(subject.outputs[i] for i in fits.shown)
        rows = [
            (shortened(name, 60), *(missed(float(e.under_inputs.per_output[i])) for e in fits.errors))
            for name, i in zip(names, fits.shown, strict=True)
        ]
        section.add(table(["FVU by output", *(degree_name(e.degree) for e in fits.errors)], rows))


def _spectrum_chart(subject: Subject, spectrum: DegreeSpectrum, shown: Sequence[int]) -> Chart:
    """One bar for each degree of all outputs together, and stacked bars for each output."""
    count = spectrum.degree
    whole = [*map(float, spectrum.overall), float(spectrum.remainder.sum() / spectrum.total.sum())]
    y = Axis("fraction of the variance", "fraction", percent=True, limits=(0.0, None))
    ticks = [*((k, str(k)) for k in range(1, count + 1)), (count + 1, f"> {count}")]
    names = [f"degree {k}" for k in range(1, count + 1)] + [f"above degree {count}"]
    bars = Bars("all outputs", range(1, count + 2), whole, "blue", texts=list(map(missed, whole)), names=names)
    panels = [Panel([bars], Axis("degree", "", ticks=ticks), y, choice=("all outputs",))]
    if len(subject.outputs) > 1:
        fractions = np.concatenate([spectrum.variance, spectrum.remainder[None]]) / spectrum.total
        outputs = distinct(subject.outputs[i] for i in shown)
        x = Axis("output", "output", ticks=[(i, shortened(name, 12)) for i, name in enumerate(outputs)])
        stacked = degree_bars(fractions[:, list(shown)].T.tolist(), outputs)
        panels.append(Panel(stacked, x, replace(y, limits=(0.0, 1.0)), choice=("each output",)))
    return Chart("Fraction of the variance at each degree", panels, ("Shown",))


def _error_chart(fits: Fits, on_rows: bool) -> Chart:
    """Error by degree as a curve, with the data as points."""
    degrees, under = [e.degree for e in fits.errors], [float(e.under_inputs) for e in fits.errors]
    data, spread = [float(e.on_data) for e in fits.errors], [2 * e.standard_error for e in fits.errors]

    def seen(values: Sequence[float]) -> list[float]:
        return [value if value > _VISIBLE else 0.0 for value in values]

    low, high = (seen([v + sign * s for v, s in zip(data, spread, strict=True)]) for sign in (-1, 1))
    band = (low, high, "two standard errors")
    samples = Curve("on the data", degrees, seen(data), *band, colour="orange", dash="dot", dots=True)
    if fits.spectrum is not None:  # which has higher degrees, too
        under = list(map(float, fits.spectrum.unexplained))
        degrees = list(range(1, len(under) + 1))
    exact = [] if on_rows else [Curve("under the inputs of the fit", degrees, seen(under), colour="blue", dots=True)]
    axis = Axis("degree of the polynomial", "degree", ticks=[(k, str(k)) for k in degrees])
    panel = Panel([*exact, samples], axis, Axis("fraction of variance unexplained", "FVU", limits=(0.0, None)))
    return Chart("Error of the polynomials by degree", [panel], scales=min([*under, *data, *low]) > _VISIBLE)
