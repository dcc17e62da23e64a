"""A plot with several views of its data, chosen by buttons; drawn in the browser by plotly.js."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from markupsafe import Markup

from mlpoly.page.embedded import island
from mlpoly.page.html import element
from mlpoly.page.widgets import choices

__all__ = ["Plot", "Trace", "View", "with_scales"]

Trace = dict[str, Any]  # as plotly writes it; a colour "var(--blue)" is one of page.css, light or dark


@dataclass(frozen=True)
class View:
    """What one choice shows.

    Attributes
    ----------
    choice : tuple of str
        An option of every group of buttons.
    traces : sequence of dict
        Those shared by several views are written to the page once.
    layout : dict
        On top of that of the plot.
    """

    choice: tuple[str, ...]
    traces: Sequence[Trace]
    layout: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plot:
    """A plot and the buttons above it.

    Attributes
    ----------
    name : str
        Different for every plot of a page.
    label : str
        What it shows, in a sentence, for those who do not see it.
    views : sequence of View
        The first is shown first. Every combination of options must have one.
    groups : sequence of str
        What each group of buttons chooses.
    layout : dict
        As plotly writes it; colours, fonts and margins are those of the page.
    height : int
        In pixels.
    """

    name: str
    label: str
    views: Sequence[View]
    groups: Sequence[str] = ()
    layout: dict[str, Any] = field(default_factory=dict)
    height: int = 430

    def options(self) -> list[list[str]]:
        """The options of every group, in the order of the views."""
        return [list(dict.fromkeys(view.choice[i] for view in self.views)) for i in range(len(self.groups))]

    def data(self) -> dict[str, Any]:
        """What the page holds of it: traces, views that name them by their place, layout."""
        pool = {id(trace): trace for view in self.views for trace in view.traces}
        place = {key: i for i, key in enumerate(pool)}
        options = self.options()
        views = [
            {
                "choice": [group.index(option) for group, option in zip(options, view.choice, strict=True)],
                "traces": [place[id(trace)] for trace in view.traces],
                "layout": view.layout,
            }
            for view in self.views
        ]
        return {"traces": list(pool.values()), "views": views, "layout": self.layout}

    def html(self) -> Markup:
        """Buttons, a place to draw, and the data."""
        groups = [
            choices(f"{self.name}-{i}", legend, options)
            for i, (legend, options) in enumerate(zip(self.groups, self.options(), strict=True))
            if len(options) > 1
        ]
        controls = element("div", *groups, class_="controls") if groups else Markup()
        space = element("div", class_="space", style=f"height:{self.height}px", role="img", aria_label=self.label)
        data = island(f"{self.name}-data", self.data())
        return element("div", controls, space, data, class_="plot", id=self.name, data_plot=f"{self.name}-data")


def with_scales(views: Sequence[View], names: tuple[str, str] = ("logarithmic", "linear")) -> list[View]:
    """Every view twice, with a logarithmic and a linear vertical axis, as one more group of buttons."""
    kinds = (("log", {"rangemode": "normal"}), ("linear", {"rangemode": "tozero"}))
    both = []
    for view in views:
        for name, (kind, more) in zip(names, kinds, strict=True):
            axis = {**view.layout.get("yaxis", {}), "type": kind, **more}
            both.append(replace(view, choice=(*view.choice, name), layout={**view.layout, "yaxis": axis}))
    return both
