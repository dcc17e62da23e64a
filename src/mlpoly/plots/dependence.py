"""How an output depends on one or two inputs, the others following them: conditional means as curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlpoly.arrays import as_integer, constant, to_numpy, widen
from mlpoly.measures.conditional_mean import ConditionalMean
from mlpoly.plots.chart import Axis, Chart, Curve, Dash, Panel, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS: tuple[tuple[str, Dash], ...] = (
    ("blue", "solid"),
    ("orange", "dash"),
    ("violet", "dashdot"),
    ("area-4", "dot"),
    ("black", "solid"),
    ("grey", "dash"),
)
_SECOND = (-2, -1, 0, 1, 2)  # standard deviations of the second input at which curves are drawn


def plot_dependence(
    mean: ConditionalMean, ax: Axes | None = None, output: int | None = None, span: float = 3.0, title: str = ""
) -> Figure:
    """Draw the mean of the outputs given one input over its range, or given two as curves for values of the second.

    Parameters
    ----------
    mean : ConditionalMean
        What `mlpoly.conditional_mean` returns, for one or two known inputs.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.
    output : int, optional
        One output; by default the first six, or for two known inputs the first.
    span : float
        Range of the input, in standard deviations on either side of its mean.
    title : str
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    return show(dependence_chart(mean, output, span, title), ax)


def dependence_chart(
    mean: ConditionalMean, output: int | None = None, span: float = 3.0, title: str = "", points: int = 121
) -> Chart:
    """Describe what `plot_dependence` draws."""
    if mean.dim_in not in (1, 2):
        raise ValueError(f"a mean given {mean.dim_in} inputs has no curve; take the mean given one or two of them.")
    if output is not None and not -mean.dim_out <= output < mean.dim_out:
        raise ValueError(f"output is {output}, but there are {mean.dim_out} outputs.")
    if not 0 < span < np.inf:
        raise ValueError(f"span must be a positive number of standard deviations, got {span}.")
    inputs, places = mean.inputs, mean.given
    names = [shortened(name) for name in mean.names or [f"x{i}" for i in places.tolist()]]
    center = to_numpy(widen(inputs.mean))[places]
    spread = np.sqrt(np.diagonal(to_numpy(widen(inputs.covariance)))[places])
    for name, each in zip(names, spread.tolist(), strict=True):
        if not each > 0:
            raise ValueError(f"input {name} does not vary, so that there is no range to draw.")
    x = center[0] + np.linspace(-span, span, as_integer("points", points, 2)) * spread[0]
    curves = []
    if mean.dim_in == 1:
        y = to_numpy(mean(constant(x[:, None], mean.net.prototype)))
        chosen = range(min(mean.dim_out, len(_LOOKS))) if output is None else [output]
        for o, (colour, dash) in zip(chosen, _LOOKS, strict=False):
            label = f"output {o}" if len(chosen) > 1 else ""
            curves.append(Curve(label, x.tolist(), y[:, o].tolist(), colour=colour, dash=dash))
    else:
        chosen = [output or 0]
        for number, deviations in enumerate(_SECOND, 1):
            second = center[1] + deviations * spread[1]
            at = np.stack([x, np.full_like(x, second)], axis=1)
            y = to_numpy(mean(constant(at, mean.net.prototype)))[:, chosen[0]]
            label = f"{names[1]} = {second:.3g}".replace("-", "\N{MINUS SIGN}")
            curves.append(Curve(label, x.tolist(), y.tolist(), colour=f"area-{number}"))
    what = f"mean of output {chosen[0]}" if len(chosen) == 1 else "means of the outputs"
    horizontal = Axis(names[0], names[0], limits=(float(x[0]), float(x[-1])), guides=[(float(center[0]), "mean")])
    panel = Panel(
        curves, horizontal, Axis(what, "mean"), title or f"{what[:1].upper()}{what[1:]} given {' and '.join(names)}"
    )
    return Chart(f"Mean of the outputs given {' and '.join(names)}", [panel])
