"""Measures, moments and their errors as bars and points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlpoly.arrays import Array, scalar, to_numpy
from mlpoly.measures.compare import Comparison
from mlpoly.measures.number import FVU, Estimate
from mlpoly.plots.chart import Axis, Bars, Chart, Curve, Panel, Part, Points, Ranking

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_comparison", "plot_estimate", "plot_fvu", "plot_outputs"]

_MEASURES = {
    "fvu": "fraction of variance unexplained",
    "kl": "KL divergence, nats",
    "agreement": "same largest output",
    "accuracy": "accuracy of the polynomial",
    "network_accuracy": "accuracy of the network",
}


def plot_fvu(fvu: FVU, ax: Axes | None = None, title: str = "") -> Figure:
    """Draw the fraction of variance unexplained of each output, with that of all together as a line.

    Parameters
    ----------
    fvu : FVU
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.
    title : str
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    values, total = to_numpy(fvu.per_output), scalar(fvu.total)
    texts = [f"{value:.2g}" for value in values] if len(values) <= 12 else []
    places, limits = list(range(len(values))), (0.0, 1.1 * float(values.max()) or None)
    ticks = [(i, str(i)) for i in places[:: -(-len(values) // 20)]]
    panel = Panel(
        [Bars("", places, values.tolist(), "negative", texts)],
        Axis("output", ticks=ticks, limits=(-1.0, float(max(len(values), 3)))),
        Axis(
            "fraction of variance unexplained", guides=[(total, f"all: {total:.2g}")][: len(values) - 1], limits=limits
        ),
        title,
    )
    return show(Chart("Fraction of variance unexplained by output", [panel]), ax)


def plot_comparison(found: Comparison, ax: Axes | None = None, title: str = "") -> Figure:
    """Draw all measures of a comparison as bars, with their standard errors as text."""
    from mlpoly.plots.draw import show  # needs matplotlib

    rows = {_MEASURES[name]: value for name, value in found.measures().items()}
    parts = [Part(name, float(value), _with_error(value)) for name, value in rows.items()]
    return show(
        Ranking(parts, "Measures of a polynomial on data", title or "Polynomial and network on data", colour="blue"), ax
    )


def plot_estimate(estimate: Estimate, ax: Axes | None = None, title: str = "") -> Figure:
    """Draw a mean over samples as a bar, with its standard error as text."""
    from mlpoly.plots.draw import show  # needs matplotlib

    return show(
        Ranking([Part("mean", float(estimate), _with_error(estimate))], "A mean over samples", title, colour="blue"), ax
    )


def plot_outputs(mean: Array, cov: Array, ax: Axes | None = None, title: str = "") -> Figure:
    """Draw the mean of each output with one standard deviation on either side, (o,) and (o, o)."""
    from mlpoly.plots.draw import show  # needs matplotlib

    level, spread = to_numpy(mean), np.sqrt(np.clip(np.diagonal(to_numpy(cov)), 0, None))
    places, few = list(range(len(level))), len(level) <= 40
    if few:
        marks: list[Points | Curve] = [Points("", places, level.tolist(), spread.tolist(), "blue")]
    else:
        low, high = (level - spread).tolist(), (level + spread).tolist()
        marks = [Curve("", places, level.tolist(), low, high, colour="blue", width=1.2)]
    ticks = [(i, str(i)) for i in places[:: -(-len(places) // 20)]]
    panel = Panel(marks, Axis("output", ticks=ticks), Axis("mean and standard deviation", guides=[(0.0, "")]), title)
    return show(Chart("Mean and standard deviation of each output", [panel]), ax)


def _with_error(value: FVU | Estimate) -> str:
    error = value.standard_error
    return f"{float(value):.3g}" + ("" if error is None else f" ± {scalar(error):.1g}")
