"""Charts as plotly draws them: every mark, every choice, each written once."""

import json
import re

import numpy as np
import pytest
from plotly import graph_objects

from mlpoly.charts.chart import Axis, Bars, Chart, Curve, HeatMap, Panel, Points
from mlpoly.pages.toolkit.plot import heat_maps, plain_text, plot, plot_data

X = (0, 1, 4)
CURVE = Curve("one", X, (4.0, 3.0, 2.0), (3.5, 2.5, 1.5), (5.0, 4.0, 3.0), "3 seeds", "blue", "dash")
POINTS = Points("one", X, (4.0, 3.0, 2.0), (0.1, 0.2, 0.3), "blue")
STEPS = Axis("training step", "step", "log", ticks=[(0.5, "0"), (1, "1")], limits=(0.1, 10), guides=[(2, "")], zero=0.5)
ERROR = Axis("error", "FVU", "log")


def test_curve_and_band():
    data = plot_data(Chart("", [Panel([CURVE, POINTS], STEPS, ERROR)]))
    band, line, points = data["traces"]
    assert (line["x"], line["y"]) == ([0.5, 1, 4], CURVE.y)  # step 0 has its own place
    assert line["line"] == {"color": "var(--blue)", "dash": "dash", "width": CURVE.width} and line["mode"] == "lines"
    assert list(line["customdata"]) == [(0, 3.5, 5.0), (1, 2.5, 4.0), (4, 1.5, 3.0)]  # and its own number
    assert line["hovertemplate"] == (
        "<b>one</b><br>step %{customdata[0]:,}<br>FVU %{y:.4g}"
        "<br>3 seeds: %{customdata[1]:.4g} to %{customdata[2]:.4g}<extra></extra>"
    )
    assert band["x"] == [0.5, 1, 4, 4, 1, 0.5] and band["y"] == [5.0, 4.0, 3.0, 1.5, 2.5, 3.5]
    assert points["error_y"]["array"] == POINTS.error
    assert {t["legendgroup"] for t in data["traces"]} == {"one"}  # hidden together
    assert [t.get("showlegend", True) for t in data["traces"]] == [False, True, False]


def test_layout():
    share = Axis("fraction", percent=True, limits=(0.0, None), guides=[(0.5, "half")])
    (view,) = plot_data(Chart("", [Panel([CURVE], STEPS, share)]))["views"]
    layout = view["layout"]
    assert layout["xaxis"]["type"] == "log" and layout["xaxis"]["range"] == pytest.approx([-1, 1])
    assert (layout["xaxis"]["tickvals"], layout["xaxis"]["ticktext"]) == ([0.5, 1], ["0", "1"])
    assert layout["yaxis"] == {
        "type": "linear", "title": {"text": "fraction"}, "tickformat": ".3~%", "rangemode": "tozero"
    }  # fmt: skip
    assert [(s["x0"], s["y0"]) for s in layout["shapes"]] == [(2, 0), (0, 0.5)]
    assert [a["text"] for a in layout["annotations"]] == ["half"]


def test_views_share_their_traces_and_have_two_scales():
    other = Curve("two", X, (1.0, 1.0, 1.0))
    panels = [Panel([CURVE, other], STEPS, ERROR, choice=("a", "x")), Panel([other], STEPS, ERROR, choice=("b", "x"))]
    chart = Chart("", panels, ("Which", "Other"))
    data = plot_data(chart)
    assert [t.get("name") for t in data["traces"]] == [None, "one", "two"]
    assert [view["traces"] for view in data["views"]] == [[0, 1, 2], [2]]
    assert [view["choice"] for view in data["views"]] == [[0, 0], [1, 0]]
    assert plot("p", chart).count("<fieldset") == 1  # a group with one option needs no buttons
    both = plot("p", Chart("A sentence", panels, ("Which", "Other"), scales=True))
    assert both.count("<fieldset") == 2 and "logarithmic" in both and 'aria-label="A sentence"' in both
    assert both.count('"name":"two"') == 1 and both.count('"type":"log"') == 4 + 2  # four x axes, two y axes


def test_plotly_accepts_it():
    data = plot_data(Chart("", [Panel([CURVE, POINTS, Bars("b", X, X, "blue", "abc")], STEPS, ERROR)]))
    figure = graph_objects.Figure(data["traces"], data["views"][0]["layout"])  # raises if not valid
    assert len(figure.data) == len(data["traces"])


def test_texts_stay_texts():
    """Plotly would read tags, entities and templates in any of them."""
    assert plain_text("a<b> & %{x}") == "a&lt;b&gt; &amp; %&#123;x}"
    axis = Axis("<i>", "<u>", ticks=[(0, "<sub>")], guides=[(1, "<sup>")])
    bars = Bars("%{y}", X, X, "blue", texts=["<br>"] * 3, names=["<b>"] * 3)
    (trace,) = plot_data(Chart("", [Panel([bars], axis, axis)]))["traces"]
    assert trace["name"] == "%&#123;y}" and trace["text"][0] == "&lt;br&gt;" and trace["customdata"][0] == ["&lt;b&gt;"]
    assert trace["hovertemplate"].startswith("<b>%&#123;y}</b><br>&lt;u&gt; %{customdata[0]}")


def test_heat_maps():
    maps = [
        (name, HeatMap(np.array([[1.0, -4.0]]), ["<b>"], ["one", "x" * 40], "Pairs", name="effect", limit=limit))
        for name, limit in (("first", None), ("second", 2.0))
    ]
    made = heat_maps("p", "Output", maps)
    data = json.loads(re.search(r'id="p-data">(.*?)</script>', made)[1])
    one, two = data["traces"]
    assert one["z"] == [[1.0, -4.0]] and (one["zmin"], one["zmax"], two["zmax"]) == (-4.0, 4.0, 2.0)
    assert one["names"] == {"rows": ["&lt;b&gt;"], "columns": ["one", "x" * 40]}
    layout = data["views"][1]["layout"]
    assert data["views"][1]["choice"] == [1] and layout["yaxis"]["ticktext"] == ["&lt;b&gt;"]
    assert "…" in layout["xaxis"]["ticktext"][1] and 'aria-label="Pairs"' in made and made.count("<fieldset") == 1
    trace = {key: value for key, value in one.items() if key not in ("names", "colorscale")}
    graph_objects.Figure([trace], layout)  # raises if not valid
    assert heat_maps("p", "Output", maps[:1]).count("<fieldset") == 0
