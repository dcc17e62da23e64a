"""Two functions compared, as bars: their distance and cosine at each degree, or for each output."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from mlpoly.arrays import scalar, to_numpy
from mlpoly.measures.similarity import Similarity
from mlpoly.plots.chart import Axis, Bars, Chart, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

By = Literal["degrees", "outputs"]


def plot_similarity(found: Similarity, ax: Axes | None = None, by: By | None = None, title: str = "") -> Figure:
    """Draw distance and cosine of two functions at each degree, or for each output.

    Parameters
    ----------
    found : Similarity
        What `mlpoly.similarity` returns.
    ax : matplotlib.axes.Axes, optional
        Axes to draw the distance on; by default those of a new figure of pyplot, with the cosine beside it.
    by : "degrees" or "outputs", optional
        What the bars stand for; by default degrees, or outputs where there are none, on samples.
    title : str
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    chart = similarity_chart(found, by, title)
    return show(chart if ax is None else replace(chart, panels=chart.panels[:1]), ax)


def similarity_chart(found: Similarity, by: By | None = None, title: str = "") -> Chart:
    """Describe what `plot_similarity` draws."""
    if by not in (None, "degrees", "outputs"):
        raise ValueError(f"by must be 'degrees' or 'outputs', got {by!r}.")
    if by is None:
        by = "outputs" if found.by_degree is None else "degrees"
    parts = found.by_degree if by == "degrees" else found.per_output
    if parts is None:
        raise ValueError("a similarity on samples has no degrees; take by='outputs'.")
    distance, cosine = to_numpy(parts.distance), to_numpy(parts.cosine)
    places = list(range(len(distance)))
    texts = [str(i) for i in places]
    if by == "degrees":
        texts[-1] = f"> {len(places) - 2}"
    few = len(places) <= 12
    written = [
        [f"{value:.3g}".replace("-", "\N{MINUS SIGN}") for value in a] if few else [] for a in (distance, cosine)
    ]
    ticks = [(float(i), texts[i]) for i in places[:: -(-len(places) // 12)]]
    x = Axis("polynomial degree" if by == "degrees" else "output", ticks=ticks, limits=(-1.0, float(len(places))))
    top = 1.15 * float(distance.max()) or 1.0
    low = -1.15 if float(cosine.min()) < 0 else 0.0
    total = scalar(found.cosine)
    panels = [
        Panel([Bars("", places, distance.tolist(), "negative", written[0])], x, Axis("E|f − g|²", limits=(0.0, top)),
              title or f"distance, {scalar(found.distance):.3g} in all"),
        Panel([Bars("", places, cosine.tolist(), "area-rest", written[1])], x,
              Axis("cosine", limits=(low, 1.15), guides=[(total, "all")]), f"cosine, {total:.3g} in all"),
    ]  # fmt: skip
    return Chart("Distance and cosine of two functions", panels)
