"""Variance explained by the terms of a decomposition, against their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpoly.arrays import to_numpy
from mlpoly.features import QuadraticDecomposition
from mlpoly.plots.chart import Axis, Chart, Curve, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_decomposition(terms: QuadraticDecomposition, ax: Axes | None = None, title: str = "") -> Figure:
    """Draw the fraction of the variance of the quadratic part that the first terms explain.

    Parameters
    ----------
    terms : QuadraticDecomposition
        What `mlpoly.decompose` returns.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.
    title : str
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    explained = [0.0, *to_numpy(terms.explained).tolist()]
    kind = "squares" if terms.partners is None else "products"
    curve = Curve("", list(range(len(explained))), explained, colour="blue", dots=len(explained) <= 40)
    scale = Axis("variance explained", percent=True, limits=(0.0, 1.0))
    panel = Panel([curve], Axis(f"number of {kind}"), scale, title or "Terms of the quadratic part")
    return show(Chart("Variance of the quadratic part explained by the first terms", [panel]), ax)
