"""The blocks of a model as an axis, and lines over it, as plotly draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlpoly.page.plot import Trace

__all__ = ["degree_colour", "hover", "layer_axis", "line"]

_COLOURS = 6  # degrees that page.css has a colour for


def degree_colour(degree: int) -> str:
    """The colour that a degree has on all pages."""
    return f"var(--area-{min(degree, _COLOURS)})"


def layer_axis(layers: Sequence[str]) -> dict[str, Any]:
    """A horizontal axis with the number of each block, of every few where they are many."""
    # The number of a layer in its name, or the name.
    ticks = [next((part for part in name.split(".") if part.isdigit()), name) for name in layers]
    step = max(1, math.ceil(len(ticks) / 24))
    shown = list(range(0, len(ticks), step))
    return {"title": {"text": "block"}, "tickvals": shown, "ticktext": [ticks[i] for i in shown]}


def line(
    name: str, pairs: Sequence[tuple[int, float]], layers: Sequence[str], colour: str, sampled: bool = False
) -> Trace:
    """A line over blocks, from pairs of place and value; dotted where the values were sampled."""
    return {
        "type": "scatter",
        "x": [place for place, _ in pairs],
        "y": [value for _, value in pairs],
        "name": name,
        "mode": "lines+markers",
        "line": {"color": colour, "width": 1.4 if sampled else 2.4, "dash": "dot" if sampled else "solid"},
        "marker": {"color": colour, "size": 7, "symbol": "circle-open" if sampled else "circle"},
        "customdata": [layers[place] for place, _ in pairs],
        "hovertemplate": hover(name, "%{y:.4g}"),
    }


def hover(name: str, value: str) -> str:
    """What a point says: the name of its line or bar, that of its block (its customdata), and a value."""
    return f"<b>{name}</b><br>%{{customdata}}<br>{value}<extra></extra>"
