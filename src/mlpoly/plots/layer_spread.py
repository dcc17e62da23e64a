"""Moments behind the layers of a network, from the first to the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlpoly.arrays import scalar, to_numpy
from mlpoly.plots.chart import Axis, Chart, Curve, Panel
from mlpoly.propagation import Propagation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DOUBTFUL = 0.05  # the excess above which moments need a check on samples


def plot_propagation(behind: Propagation, ax: Axes | None = None, title: str = "") -> Figure:
    """Draw mean and spread of the values behind each layer and, on a figure of its own, what the closure ignores.

    Parameters
    ----------
    behind : Propagation
        What `mlpoly.propagate` returns.
    ax : matplotlib.axes.Axes, optional
        Axes to draw mean and spread on; by default those of a new figure of pyplot.
    title : str

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.plots import plot_propagation
    >>> net = mp.Chain([mp.MLP(np.eye(2), activation="gelu"), mp.MLP(np.eye(2), activation="relu")])
    >>> figure = plot_propagation(mp.propagate(net, mp.Gaussian.standard(2)))
    >>> [axes.get_title() for axes in figure.axes]
    ['Values behind each layer', 'What the closure ignores']
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    numbers = list(range(len(behind)))  # as in `behind[0]` and its table
    layers = Axis("layer", "layer", ticks=[(n, str(n)) for n in numbers[:: -(-len(numbers) // 20)]])
    means = [float(np.sqrt(np.mean(to_numpy(layer.mean) ** 2))) for layer in behind]
    spreads = [float(np.sqrt(np.mean(np.diagonal(to_numpy(layer.cov))))) for layer in behind]
    excess = [scalar(layer.excess) for layer in behind]
    sizes = [
        Curve("means", numbers, means, colour="orange", dash="dash", dots=True),
        Curve("standard deviations", numbers, spreads, colour="blue", dots=True),
    ]
    size = Axis("root mean square over outputs", limits=(0.0, None))
    guide = [(_DOUBTFUL, "check")] if max(excess) > _DOUBTFUL / 4 else []
    panels = [
        Panel(sizes, layers, size, title or "Values behind each layer"),
        Panel(
            [Curve("excess", numbers, excess, colour="black", dash="dot", dots=True)],
            layers,
            Axis("error of means, in std of units", limits=(0.0, None), guides=guide),
            "What the closure ignores",
        ),
    ]
    return show(Chart("Values behind each layer", panels if ax is None else panels[:1]), ax)
