"""Shape functions of a network on a table: the closest sum of functions of one input each."""

from dataclasses import replace

import numpy as np

from mlpoly.charts.chart import Chart, shortened
from mlpoly.inputs import Gaussian
from mlpoly.measures import AdditiveModel
from mlpoly.pages.network.fits import Fits
from mlpoly.pages.network.subject import Subject, distinct
from mlpoly.pages.network.summary import describe_inputs
from mlpoly.pages.toolkit import Page, plot
from mlpoly.pages.toolkit.numbers import percent
from mlpoly.pages.toolkit.widgets import figure, table
from mlpoly.scores import fvu_of_outputs

_INPUTS = 8  # curves of an output


def shape_section(page: Page, subject: Subject, fits: Fits, model: AdditiveModel, on_rows: bool) -> None:
    """Curves of the strongest inputs and what all of them explain, for tables."""
    section = page.section("shapes", "One curve for each input", "Curves")
    where = "on the rows of data" if on_rows else f"under {describe_inputs(subject.inputs)}, in closed form"
    weight = np.asarray(model.variance) / np.sum(model.variance)
    said = (
        "The closest sum of functions of one input each. The inputs may be correlated: what two of them have in common "
        f"is not counted twice. Of the variance of the outputs {where}, it explains "
        f"{percent(float(model.additive @ weight), None)}"
    )
    if not on_rows:
        left = float(fvu_of_outputs(fits.values, np.asarray(model(fits.rows))))
        said += f"; on the rows of data themselves, {percent(1 - left, None)}"
    how = "exact" if not on_rows and isinstance(subject.inputs, Gaussian) else "polynomials of degree 8"
    section.add(f"{said}. The rest is interactions. The curves are {how}.")
    caption = (
        "What each input adds to an output, over three standard deviations on either side of its mean, the strongest "
        "first. Grey: the density of the input."
    )
    strength = np.sum(np.asarray(model.importance) ** 2, axis=1)
    strongest: list[int | str] = [int(i) for i in np.argsort(-strength, kind="stable")[:_INPUTS] if strength[i] > 0]
    panels = []
    for name, i in zip(distinct(shortened(subject.outputs[i], 24) for i in fits.shown), fits.shown, strict=True):
        drawn = model.chart(inputs=strongest, output=i).panels
        names = distinct(panel.choice[0] for panel in drawn)
        panels += [replace(panel, choice=(name, own)) for panel, own in zip(drawn, names, strict=True)]
    chart = Chart("Functions of one input each", panels, ("Output", "Input"))
    section.add(figure(plot("plot-shapes", chart), caption))
    if len(fits.shown) > 1:
        rows = [(shortened(subject.outputs[i], 60), percent(float(model.additive[i]), None)) for i in fits.shown]
        section.add(table(["Output", f"Explained by the curves {where}"], rows))
