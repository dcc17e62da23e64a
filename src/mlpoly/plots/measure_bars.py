"""Measures, moments and their errors as bars and points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlpoly.arrays import Array, scalar, to_numpy
from mlpoly.measures.compare import Comparison
from mlpoly.plots.chart import Axis, Bars, Chart, Curve, Panel, Part, Points, Ranking
from mlpoly.scores import FVU, Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MEASURES = {
    "fvu": "fraction of variance unexplained",
    "kl": "KL divergence, nats",
    "agreement": "same class",
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

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.plots import plot_fvu
    >>> net = mp.MLP(np.eye(2), activation="gelu")
    >>> figure = plot_fvu(mp.fvu(net, mp.fit(net, mp.Gaussian.standard(2), degree=3)))
    >>> len(figure.axes[0].patches)  # a bar for each output
    2
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
    """Draw all measures of a comparison as bars, with their standard errors as text.

    Parameters
    ----------
    found : Comparison
        What `mlpoly.compare` returns.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        ``plt.show()`` shows it, a notebook does so by itself, ``figure.savefig(path, dpi=120)`` writes it.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.plots import plot_comparison
    >>> net, inputs = mp.MLP(np.eye(2), activation="gelu"), mp.Gaussian.standard(2)
    >>> found = mp.compare(net, mp.fit(net, inputs, degree=3), inputs.sample(100, seed=0))
    >>> figure = plot_comparison(found)  # or found.plot()
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['fraction of variance unexplained', 'KL divergence, nats', 'same class']
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    rows = {_MEASURES[name]: value for name, value in found.measures().items()}
    parts = [Part(name, float(value), _with_error(value)) for name, value in rows.items()]
    return show(
        Ranking(parts, "Measures of a polynomial on data", title or "Polynomial and network on data", colour="blue"), ax
    )


def plot_estimate(estimate: Estimate, ax: Axes | None = None, title: str = "") -> Figure:
    """Draw a mean over samples as a bar, with its standard error as text.

    Parameters
    ----------
    estimate : Estimate
        What `mlpoly.kl`, `mlpoly.accuracy` or `mlpoly.agreement` returns.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        ``plt.show()`` shows it, a notebook does so by itself, ``figure.savefig(path, dpi=120)`` writes it.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.plots import plot_estimate
    >>> net = mp.MLP(np.eye(2), activation="gelu")
    >>> found = mp.accuracy(net, np.eye(2), labels=[0, 1])
    >>> plot_estimate(found, title="Accuracy").axes[0].get_title()
    'Accuracy'
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    return show(
        Ranking([Part("mean", float(estimate), _with_error(estimate))], "A mean over samples", title, colour="blue"), ax
    )


def plot_outputs(mean: Array, cov: Array, ax: Axes | None = None, title: str = "") -> Figure:
    """Draw the mean of each output with one standard deviation on either side.

    Parameters
    ----------
    mean : array (o,)
    cov : array (o, o)
        Covariance of the outputs; only its diagonal is drawn.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        ``plt.show()`` shows it, a notebook does so by itself, ``figure.savefig(path, dpi=120)`` writes it.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.plots import plot_outputs
    >>> moment = mp.second_moment(mp.MLP(np.eye(3), activation="relu"), mp.Gaussian.standard(3))
    >>> figure = plot_outputs(moment.mean, moment.cov)  # or moment.plot()
    >>> figure.axes[0].get_ylabel()
    'mean and standard deviation'
    """
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
