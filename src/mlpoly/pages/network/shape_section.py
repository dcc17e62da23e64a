"""Shape functions of a network on a table: the closest sum of functions of one input each."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from mlpoly.inputs import Gaussian, Samples
from mlpoly.measures import AdditiveModel, additive
from mlpoly.networks import Layer, check_network
from mlpoly.pages.network.fits import Fits
from mlpoly.pages.network.subject import Subject
from mlpoly.pages.network.summary import describe_inputs
from mlpoly.pages.network.term_sections import one_for_each
from mlpoly.pages.toolkit import Page, plot
from mlpoly.pages.toolkit.numbers import percent
from mlpoly.pages.toolkit.widgets import figure
from mlpoly.records import replace
from mlpoly.scores import fvu_of_outputs

_INPUTS = 8  # curves of an output
_MOST = 100  # inputs of a table; more are pixels or the like


def shape_section(page: Page, subject: Subject, fits: Fits) -> None:
    """Curves of the strongest inputs and what all of them explain, for tables."""
    varying = subject.spread > 0
    if subject.image_shape is not None or not 2 <= varying.sum() <= _MOST or len(varying) > _MOST:
        return
    layer = isinstance(check_network(subject.net), Layer)
    on_rows = isinstance(subject.inputs, Samples) or not layer
    model = additive(subject.net, fits.rows if on_rows else subject.inputs)
    model = replace(model, names=subject.names)
    section = page.section("shapes", "One curve for each input", "Curves")
    where = "on the rows of data" if on_rows else f"under {describe_inputs(subject.inputs)}, in closed form"
    weight = np.asarray(model.variance) / np.sum(model.variance)
    said = (
        "The closest sum of functions of one input each. It knows how the inputs are correlated: what two of them say "
        f"together is not counted twice. Of the variance of the outputs {where}, it explains "
        f"{percent(float(model.additive @ weight), None)}"
    )
    if not on_rows:
        left = float(fvu_of_outputs(fits.values, np.asarray(model(fits.rows))))
        said += f"; on the rows of data themselves, {percent(1 - left, None)}"
    how = "exact" if layer and isinstance(subject.inputs, Gaussian) else "polynomials of degree 8"
    section.add(f"{said}. The rest is interactions. The curves are {how}.")
    section.add(one_for_each("shapes", subject, [(i, _curves(model, subject, i)) for i in fits.shown]))


def _curves(model: AdditiveModel, subject: Subject, output: int) -> Markup:
    caption = (
        f"What each input adds to {subject.outputs[output]}, over three standard deviations on either side of its "
        f"mean, the strongest first. Grey: the density of the input. Together the curves are "
        f"{percent(float(model.additive[output]), None)} of the variance of this output."
    )
    return figure(plot(f"plot-shapes-{output}", model.chart(inputs=_INPUTS, output=output)), caption)
