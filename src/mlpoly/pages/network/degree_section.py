"""How much of the network lives at each degree, and how far its polynomials are off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlpoly.charts.chart import Axis, Bars, Chart, Curve, Panel, degree_colour, shortened
from mlpoly.pages.network.fits import Fits
from mlpoly.pages.network.subject import Subject, distinct
from mlpoly.pages.network.summary import degree_name, describe_inputs, missed
from mlpoly.pages.toolkit import Page, plot
from mlpoly.pages.toolkit.numbers import number, percent
from mlpoly.pages.toolkit.widgets import figure, table

_VISIBLE = 1e-9  # errors below it are rounding, and have no place on a logarithmic axis


def degree_section(page: Page, about: Subject, fits: Fits) -> None:
    """Fractions of the variance by degree as bars, errors as curves, and both in a table with the labels."""
    section = page.section("degrees", "How much lives at each degree", "Degrees")
    section.add(
        "The best polynomial of a degree explains a part of the variance of the network’s outputs. What it leaves is "
        "the fraction of variance unexplained (FVU): 0 for a perfect copy, 1 for the best constant, and more where it "
        "does worse than that."
    )
    if fits.spectrum is not None:
        section.add(figure(plot("plot-spectrum", _spectrum_chart(about, fits)), _spectrum_caption()))
    sampled = fits.errors[0].under_inputs.standard_error is not None
    sure = "on samples of them" if sampled else "in closed form"
    caption = (
        f"Line: under {describe_inputs(about.inputs)}, {sure}. Dots: on {number(len(fits.rows), 6)} rows of the data, "
        "which need not be Gaussian, with a band of two standard errors."
    )
    section.add(figure(plot("plot-error", _error_chart(fits)), caption))
    columns = ["Polynomial", f"FVU under {describe_inputs(about.inputs)}", "FVU on the data", "± standard error"]
    unseen = fits.errors[0].on_unseen is not None
    columns += ["FVU on unseen rows"] if unseen else []
    score = {"classes": "Correct", "values": "R² with labels", None: ""}[about.task]
    columns += [score] if score else []
    columns += ["Network’s answer"] if about.task == "classes" else []

    def judged(value: float | None) -> str:
        return "–" if value is None else percent(value) if about.task == "classes" else number(value)

    rows = []
    for e in fits.errors:
        row = [degree_name(e.degree), missed(float(e.under_inputs)), missed(float(e.on_data))]
        row.append(missed(e.standard_error))
        row += [missed(e.on_unseen or 0.0)] if unseen else []
        row += [judged(e.score)] if score else []
        row += [judged(e.agreement)] if about.task == "classes" else []
        rows.append(row)
    if score:
        last = ["the network itself", *["–"] * (len(columns) - 1)]
        last[columns.index(score)] = judged(fits.score)
        rows.append(last)
    section.add(table(columns, rows))
    notes = []
    if unseen:
        notes.append(
            "A polynomial knows only the mean and covariance of the rows, not the network’s outputs on them. For the "
            "column of unseen rows it knew those of one half, and its error was measured on the other."
        )
    if about.task is not None:
        notes.append("The labels are those that were given, whether or not the network was trained on these rows.")
    section.add(" ".join(notes))
    if len(about.outputs) > 1:
        names = distinct(about.outputs[i] for i in fits.shown)
        per = [[missed(float(e.under_inputs.per_output[i])) for e in fits.errors] for i in fits.shown]
        section.add(
            table(
                ["FVU by output", *(degree_name(e.degree) for e in fits.errors)],
                [(shortened(name, 60), *values) for name, values in zip(names, per, strict=True)],
            )
        )


def _spectrum_chart(about: Subject, fits: Fits) -> Chart:
    """One bar for each degree of all outputs together, and stacked bars for each output."""
    spectrum = fits.spectrum
    assert spectrum is not None
    fractions = np.concatenate([spectrum.variance, spectrum.remainder[None]]) / spectrum.total
    count = spectrum.degree
    names = [*(f"degree {k}" for k in range(1, count + 1)), f"above degree {count}"]
    colours = [*(degree_colour(k) for k in range(1, count + 1)), "area-rest"]
    whole = [*(float(v) for v in spectrum.overall), float(spectrum.remainder.sum() / spectrum.total.sum())]
    y = Axis("fraction of the variance", "fraction", percent=True, limits=(0.0, None))
    ticks = [(k, str(k)) for k in range(1, count + 1)]
    texts = [missed(value) for value in whole]
    bars = Bars("all outputs", range(1, count + 2), whole, "blue", texts=texts, names=names)
    everything = Panel(
        [bars], Axis("degree", "", ticks=[*ticks, (count + 1, f"> {count}")]), y, choice=("all outputs",)
    )
    if len(about.outputs) == 1:
        return Chart("Fraction of the variance at each degree", [everything], ("Shown",))
    shown = list(fits.shown)
    outputs = distinct(about.outputs[i] for i in shown)
    places = [(i, shortened(name, 12)) for i, name in enumerate(outputs)]
    stacked = [
        Bars(name, range(len(shown)), [float(fractions[k, i]) for i in shown], colour, names=outputs)
        for k, (name, colour) in enumerate(zip(names, colours, strict=True))
    ]
    each = Panel(
        stacked,
        Axis("output", "output", ticks=places),
        Axis(y.title, y.name, percent=True, limits=(0.0, 1.0)),
        choice=("each output",),
    )
    return Chart("Fraction of the variance at each degree", [everything, each], ("Shown",))


def _spectrum_caption() -> str:
    return (
        "Variance of the network’s outputs under the Gaussian, divided among polynomial degrees: sums over the "
        "weights, no samples. What lies above a degree is what the best polynomial of that degree misses."
    )


def _error_chart(fits: Fits) -> Chart:
    """Error by degree as a curve, with the data as points."""
    if fits.spectrum is not None:
        under = [float(v) for v in fits.spectrum.unexplained]
        degrees = list(range(1, len(under) + 1))
    else:
        under, degrees = [float(e.under_inputs) for e in fits.errors], [e.degree for e in fits.errors]
    data = [float(e.on_data) for e in fits.errors]
    spread = [2 * e.standard_error for e in fits.errors]

    def seen(values: Sequence[float]) -> list[float]:
        return [value if value > _VISIBLE else 0.0 for value in values]

    low, high = (seen([v + sign * s for v, s in zip(data, spread, strict=True)]) for sign in (-1, 1))
    marks = [
        Curve("under the inputs of the fit", degrees, seen(under), colour="blue", dots=True),
        Curve(
            "on the data",
            [e.degree for e in fits.errors],
            seen(data),
            low,
            high,
            "two standard errors",
            "orange",
            "dot",
            dots=True,
        ),
    ]
    axis = Axis("degree of the polynomial", "degree", ticks=[(k, str(k)) for k in degrees])
    panel = Panel(marks, axis, Axis("fraction of variance unexplained", "FVU", limits=(0.0, None)))
    return Chart("Error of the polynomials by degree", [panel], scales=min([*under, *data, *low]) > _VISIBLE)
