"""Charts on a page: drawn in the browser by plotly.js, with buttons that choose the panel."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from mlpoly.charts.chart import Area, Axis, Chart, Curve, HeatMap, Mark, Panel, Points, shortened
from mlpoly.pages.toolkit.pictures import island
from mlpoly.pages.toolkit.widgets import choices, element, rounded

_HEIGHT = 430  # pixels
_TICK = 18  # letters of a name at the edge of a heat map


def plot(name: str, chart: Chart) -> Markup:
    """Buttons that choose a panel, a space to draw it in, and the data; each plot of a page needs a name of its own."""
    if chart.scales:  # every panel twice, as one more group of buttons
        panels = []
        for panel in chart.panels:
            log, linear = replace(panel.y, scale="log"), replace(panel.y, scale="linear", limits=(0.0, None))
            for y, kind in ((log, "logarithmic"), (linear, "linear")):
                panels.append(replace(panel, y=y, choice=(*panel.choice, kind)))
        chart = replace(chart, panels=panels, groups=(*chart.groups, "Axis"), scales=False)
    groups = list(zip(chart.groups, _options(chart), strict=True))
    return _block(name, groups, f"height:{_HEIGHT}px", chart.label, plot_data(chart))


def heat_maps(name: str, legend: str, maps: Sequence[tuple[str, HeatMap]]) -> Markup:
    """Heat maps in one place, chosen by buttons; the pointer reads the names and the number of a cell."""
    traces, views = [], []
    look: dict[str, Any] = {
        "type": "heatmap", "showlegend": False, "xgap": 1, "ygap": 1,
        "colorbar": {"thickness": 12, "outlinewidth": 0, "tickfont": {"size": 12}, "tickformat": "~g"},
        "colorscale": [[0, "var(--negative)"], [0.5, "var(--card)"], [1, "var(--positive)"]],
    }  # fmt: skip
    plain_edge = {"showgrid": False, "ticks": "", "showline": False, "type": "linear", "title": {"text": ""}}
    for i, (_, shown) in enumerate(maps):
        trace: dict[str, Any] = {"x": list(range(len(shown.columns))), "y": list(range(len(shown.rows)))}
        trace |= {"z": [rounded(row) for row in shown.values], "zmin": -shown.scale, "zmax": shown.scale}
        # plots.js makes the names of every cell of these
        trace["names"] = {"rows": list(map(plain_text, shown.rows)), "columns": list(map(plain_text, shown.columns))}
        cell = f"<b>{plain_text(shown.name)} %{{z:.3g}}</b><extra></extra>"
        traces.append(look | trace | {"hovertemplate": "%{customdata[0]}<br>%{customdata[1]}<br>" + cell})
        edges = [
            {"tickvals": list(range(len(names))), "tickangle": angle}
            | {"ticktext": [plain_text(shortened(text, _TICK)) for text in names]}
            for names, angle in ((shown.columns, 45), (shown.rows, 0))
        ]
        layout = {"xaxis": plain_edge | edges[0], "yaxis": plain_edge | edges[1] | {"autorange": "reversed"}}
        views.append({"choice": [i], "traces": [i], "layout": layout})
    count = max(len(shown.rows) for _, shown in maps)
    height = 170 + max(240, min(26 * count, 640))
    style = f"height:{height}px;max-width:{height + 130}px"
    groups = [(legend, [text for text, _ in maps])]
    return _block(name, groups, style, maps[0][1].label, {"traces": traces, "views": views})


def plain_text(text: str) -> str:
    """A text in which plotly.js finds no tags, entities or templates: it shows it as it is."""
    marks = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "{": "&#123;"}
    return "".join(marks.get(letter, letter) for letter in text)


def _block(
    name: str, groups: Sequence[tuple[str, Sequence[str]]], style: str, label: str, data: dict[str, Any]
) -> Markup:
    buttons = [choices(f"{name}-{i}", *group) for i, group in enumerate(groups) if len(group[1]) > 1]
    controls = element("div", *buttons, class_="controls") if buttons else Markup()
    space = element("div", class_="space", style=style, role="img", aria_label=label)
    content = controls, space, island(f"{name}-data", data)
    return element("div", *content, class_="plot", id=name, data_plot=f"{name}-data")


def plot_data(chart: Chart) -> dict[str, Any]:
    """Data for plots.js: traces as plotly writes them, and views with the numbers of their traces and a layout.

    Marks shared by several panels are written once. A colour "var(--blue)" is one of page.css, light or dark.
    """
    options = _options(chart)
    traces: list[dict[str, Any]] = []
    numbers: dict[int, range] = {}  # of the traces of a mark, by the mark's id, which the chart keeps alive
    views = []
    for panel in chart.panels:
        for mark in panel.marks:
            if id(mark) not in numbers:
                start = len(traces)
                traces += _traces(mark, panel)
                numbers[id(mark)] = range(start, len(traces))
        choice = [group.index(option) for group, option in zip(options, panel.choice, strict=True)]
        shown = [number for mark in panel.marks for number in numbers[id(mark)]]
        views.append({"choice": choice, "traces": shown, "layout": _layout(panel)})
    return {"traces": traces, "views": views}


def _options(chart: Chart) -> list[list[str]]:
    """The options of every group, in the order of the panels."""
    return [list(dict.fromkeys(panel.choice[i] for panel in chart.panels)) for i in range(len(chart.groups))]


def _traces(mark: Mark, panel: Panel) -> list[dict[str, Any]]:
    colour, label = f"var(--{mark.colour})", plain_text(mark.label)
    names = [plain_text(name) for name in getattr(mark, "names", ())]
    value = "%{y:.3~%}" if panel.y.percent else "%{y:.4g}"
    place = f"{plain_text(panel.x.name)} %{{customdata[0]{'' if names else ':,'}}}"
    hover = f"<b>{label}</b><br>{place}<br>{plain_text(panel.y.name)} {value}"
    places = panel.x.places(mark.x)
    trace: dict[str, Any] = {"type": "scatter", "name": label, "legendgroup": label}
    trace |= {"x": places, "y": mark.y, "customdata": [[name] for name in names or mark.x]}
    if isinstance(mark, Curve):
        dots = mark.dots or len(mark.x) == 1
        trace |= {"mode": "lines+markers" if dots else "lines", "marker": {"color": colour, "size": 7}}
        trace["line"] = {"color": colour, "dash": mark.dash, "width": mark.width}
        if mark.low:
            hover += f"<br>{plain_text(mark.spread)}: %{{customdata[1]:.4g}} to %{{customdata[2]:.4g}}"
            trace["customdata"] = list(zip(names or mark.x, mark.low, mark.high, strict=True))
    elif isinstance(mark, Points):
        bars = {"type": "data", "array": mark.error, "thickness": 1.2, "width": 2.5, "color": colour}
        circle = {"color": colour, "size": 6, "symbol": "circle-open", "line": {"width": 1.4}}
        trace |= {"name": f"{label}, on samples", "mode": "markers", "marker": circle, "error_y": bars}
        trace["showlegend"] = False
    elif isinstance(mark, Area):
        trace |= {"mode": "lines", "line": {"color": colour, "width": 0.5}, "stackgroup": "areas", "fillcolor": colour}
    else:
        trace |= {"type": "bar", "marker": {"color": colour}}
        trace |= {"text": [plain_text(t) for t in mark.texts], "textposition": "outside"}
    trace["hovertemplate"] = f"{hover}<extra></extra>"
    if not (isinstance(mark, Curve) and len(mark.low) > 1):
        return [trace]
    band: dict[str, Any] = {"type": "scatter", "legendgroup": label, "showlegend": False, "hoverinfo": "skip"}
    band |= {"x": [*places, *reversed(places)], "y": [*mark.high, *reversed(mark.low)], "mode": "lines"}
    return [band | {"fill": "toself", "fillcolor": colour, "opacity": 0.17, "line": {"width": 0}}, trace]


def _layout(panel: Panel) -> dict[str, Any]:
    """Axes and reference lines; colours, fonts and margins are those of plots.js."""
    line = {"type": "line", "line": {"color": "var(--line)", "width": 1}, "layer": "below"}
    shapes = [{**line, "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x} for x, _ in panel.x.guides]
    line["line"] = {"color": "var(--faint)", "dash": "dot", "width": 1.2}
    shapes += [{**line, "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y} for y, _ in panel.y.guides]
    place: dict[str, Any] = {"xref": "paper", "x": 0, "xanchor": "left", "xshift": 8, "yanchor": "bottom"}
    place |= {"showarrow": False, "font": {"size": 12, "color": "var(--muted)"}}
    words = [{**place, "y": y, "text": plain_text(text)} for y, text in panel.y.guides]
    layout: dict[str, Any] = {"shapes": shapes, "annotations": words, "barmode": "stack", "bargap": 0.25}
    layout["uniformtext"] = {"mode": "hide", "minsize": 8}  # texts of bars that are too narrow for them
    return layout | {"xaxis": _axis(panel.x), "yaxis": _axis(panel.y)}


def _axis(axis: Axis) -> dict[str, Any]:
    made: dict[str, Any] = {"type": axis.scale, "title": {"text": plain_text(axis.title)}}
    if axis.percent:
        made["tickformat"] = ".3~%"
    if axis.ticks:
        made["tickvals"], made["ticktext"] = [t for t, _ in axis.ticks], [plain_text(text) for _, text in axis.ticks]
    if axis.limits == (0.0, None):
        made["rangemode"] = "tozero"
    elif axis.limits:
        made["range"] = [math.log10(end) if end and axis.scale == "log" else end for end in axis.limits]
    return made
