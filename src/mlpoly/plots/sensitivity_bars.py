"""What groups of inputs explain of the variance, and what they add to one prediction, as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlpoly.arrays import as_integer, to_numpy
from mlpoly.measures.sensitivity import Sensitivity
from mlpoly.measures.shapley import Shapley
from mlpoly.plots.chart import Axis, Bars, Chart, Panel, Part, Points, Waterfall, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STEP = 4  # places of a group: three bars and a gap
_LETTERS = 84  # in a row below the bars


def plot_sensitivity(
    sensitivity: Sensitivity, ax: Axes | None = None, output: int | None = None, k: int = 12, title: str = ""
) -> Figure:
    """Draw what every group of inputs explains: alone, on average over orders of joining, and in total.

    Parameters
    ----------
    sensitivity : Sensitivity
        What `mlpoly.sensitivity` returns.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.
    output : int, optional
        One output; by default all together.
    k : int
        Number of groups: those with the largest Shapley effects.
    title : str
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    return show(sensitivity_chart(sensitivity, output, k, title), ax)


def sensitivity_chart(sensitivity: Sensitivity, output: int | None = None, k: int = 12, title: str = "") -> Chart:
    """Describe what `plot_sensitivity` draws."""
    weights = to_numpy(sensitivity.variance).astype(float)
    if output is not None:
        _check_output(output, len(weights))
        weights = np.eye(len(weights))[output]
    weights = weights / weights.sum()
    first, effects, total = (to_numpy(a) @ weights for a in (sensitivity.first, sensitivity.shapley, sensitivity.total))
    order = np.argsort(-effects, kind="stable")[: as_integer("k", k, 1)]
    left = np.arange(len(order)) * _STEP
    marks: list[Bars | Points] = []
    looks = (("alone", "area-rest"), ("Shapley effect", "blue"), ("total", "grey"))
    for place, ((label, colour), values) in enumerate(zip(looks, (first, effects, total), strict=True)):
        marks.append(Bars(label, (left + place).tolist(), values[order].tolist(), colour))
    if sensitivity.standard_error is not None:  # of outputs together at most the sum of theirs
        error = (to_numpy(sensitivity.standard_error) @ weights)[order]
        marks.append(Points("Shapley effect", (left + 1).tolist(), effects[order].tolist(), error.tolist()))
    names = [shortened(sensitivity.groups[i], max(5, _LETTERS // len(order))) for i in order.tolist()]
    ticks = [(float(place + 1), name) for place, name in zip(left.tolist(), names, strict=True)]
    rest = len(effects) - len(order)
    subject = (
        "" if len(to_numpy(sensitivity.variance)) == 1 else "all outputs" if output is None else f"output {output}"
    )
    axis = Axis(
        f"the strongest {len(order)} of {len(effects)} groups" if rest else "",
        ticks=ticks,
        limits=(-1.5, float(left[-1]) + 3.5),
    )
    panel = Panel(
        marks, axis, Axis("fraction of the variance", guides=[(0.0, "")]),
        title or f"What inputs explain of {subject or 'the output'}",
    )  # fmt: skip
    return Chart("Fractions of the variance that groups of inputs explain", [panel])


def plot_shapley(shapley: Shapley, ax: Axes | None = None, output: int = 0, k: int = 12, title: str = "") -> Figure:
    """Draw one prediction as bars that begin where the one before ended, from the mean of the network.

    Parameters
    ----------
    shapley : Shapley
        What `mlpoly.shapley` returns.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.
    output : int
    k : int
        Number of groups that get a bar of their own, those with the largest values.
    title : str
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    return show(shapley_waterfall(shapley, output, k, title), ax)


def shapley_waterfall(shapley: Shapley, output: int = 0, k: int = 12, title: str = "") -> Waterfall:
    """Describe what `plot_shapley` draws."""
    mean, prediction = to_numpy(shapley.mean), to_numpy(shapley.prediction)
    _check_output(output, len(mean))
    values = to_numpy(shapley.values)[:, output]
    errors = None if shapley.standard_error is None else to_numpy(shapley.standard_error)[:, output]
    order = np.argsort(-np.abs(values), kind="stable")
    shown, rest = np.split(order, [as_integer("k", k, 1)])
    parts = [Part("mean", float(mean[output]))]
    for i in shown.tolist():
        remark = "" if errors is None else f"± {errors[i]:.1g}"
        parts.append(Part(shortened(shapley.groups[i]), float(values[i]), remark))
    if len(rest):
        parts.append(Part(f"{len(rest)} others", float(values[rest].sum())))
    totals = [("prediction", float(prediction[output]))]
    title = title or f"One prediction{f' of output {output}' if len(mean) > 1 else ''}"
    return Waterfall(parts, totals, None, title, "value of the output", float(mean[output]))


def _check_output(output: int, count: int) -> None:
    if not -count <= output < count:
        raise ValueError(f"output is {output}, but there are {count} outputs.")
