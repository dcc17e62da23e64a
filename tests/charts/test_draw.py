"""Charts, galleries and waterfalls as matplotlib figures: everything described is drawn, and written the same twice."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from mlpoly.charts.chart import (
    Area,
    Axis,
    Chart,
    Curve,
    Gallery,
    HeatMap,
    Panel,
    Part,
    Picture,
    Points,
    Ranking,
    Waterfall,
    shortened,
)
from mlpoly.charts.matplotlib import draw
from mlpoly.charts.style import COLOURS, save_figure

X = (0, 1, 4, 16)
CURVE = Curve("one", X, (4.0, 3.0, 2.0, 1.0), (3.5, 2.5, 1.5, 0.5), (5.0, 4.0, 3.0, 2.0), "3 seeds", "blue", "dash")
POINTS = Points("one", X, (4.0, 3.0, 2.0, 1.0), (0.1, 0.2, 0.3, 0.4), "blue")
STEPS = Axis("training step", "step", "log", ticks=[(0.5, "0"), (1, "1")], limits=(0.4, 20), guides=[(8, "")], zero=0.5)
PERCENT = Axis("part", percent=True, limits=(0.0, None), guides=[(0.5, "half")])
AREAS = [Area("first", X, (0.1, 0.2, 0.3, 0.4), "area-1"), Area("second", X, (0.5, 0.4, 0.3, 0.2), "area-2")]


@pytest.fixture
def chart():
    both = Panel([CURVE, POINTS], STEPS, Axis("error", scale="log"), "curves")
    return Chart("", [both, Panel(AREAS, STEPS, PERCENT)], note="a remark")


def legend(figure):
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


def test_curves_and_points(chart):
    figure = draw(chart, title="Title")
    left = figure.axes[0]
    (curve,) = [item for item in left.lines if item.get_label() == "one"]
    np.testing.assert_array_equal(curve.get_xdata(), [0.5, 1, 4, 16])
    np.testing.assert_array_equal(curve.get_ydata(), CURVE.y)
    assert to_rgb(curve.get_color()) == to_rgb(COLOURS["blue"]) and curve.get_linestyle() == "--"
    (band,) = [c for c in left.collections if c.get_alpha() is not None]
    corners = band.get_paths()[0].vertices
    np.testing.assert_array_equal(np.unique(corners[corners[:, 0] == 4, 1]), [1.5, 3.0])
    (bars,) = left.containers
    ends = np.array([segment[:, 1] for segment in bars.lines[2][0].get_segments()])
    np.testing.assert_allclose(ends, np.stack([np.subtract(POINTS.y, POINTS.error), np.add(POINTS.y, POINTS.error)], 1))
    assert (left.get_xscale(), left.get_yscale(), left.get_title()) == ("log", "log", "curves")
    assert [t.get_text() for t in left.get_xticklabels()] == ["0", "1"] and left.get_xlim() == (0.4, 20)
    assert [item.get_xdata()[0] for item in left.lines if item.get_label() == "_guide"] == [8]
    assert legend(figure) == ["one", "first", "second", "range over 3 seeds"]
    assert figure.legends[0].get_title().get_text() == "a remark" and figure.get_suptitle() == "Title"


def test_areas_are_stacked(chart):
    right = draw(chart).axes[1]
    tops = [area.get_paths()[0].vertices[:, 1].max() for area in right.collections]
    np.testing.assert_allclose(tops, [0.4, 0.6])
    assert right.get_ylim()[0] == 0 and right.yaxis.get_major_formatter()(0.25, 0) == "25 %"
    assert "half" in [text.get_text() for text in right.texts]


def test_gallery():
    images = np.arange(12.0).reshape(2, 2, 3) - 4
    row = [Picture(images[0], "above", "below", "positive"), None, Panel([CURVE], STEPS, Axis())]
    figure = draw(Gallery([("first", row), ("second", [Picture(images[1])])], ("head", "x"), note="remark"))
    grid = np.array(figure.axes).reshape(2, 3)
    np.testing.assert_array_equal(grid[0, 0].images[0].get_array(), images[0])
    assert grid[0, 0].images[0].get_clim() == (-4, 4) and grid[1, 0].images[0].get_clim() == (-7, 7)  # one each
    assert (grid[0, 0].get_title(), grid[0, 0].get_xlabel()) == ("above", "below")
    assert to_rgb(grid[0, 0].xaxis.label.get_color()) == to_rgb(COLOURS["positive"])
    assert {text.get_text() for text in grid[0, 0].texts} == {"first", "head", "x"}
    assert [ax.axison for ax in grid.flat] == [True, False, True, True, False, False] and len(grid[0, 2].lines) == 2
    assert figure.get_supxlabel() == "remark"


def test_waterfall():
    parts = [Part("constant", -1.0), Part("linear", -3.0), Part("feature", 1.5, "value 2", np.eye(2)), Part("x", 0.5)]
    figure = draw(Waterfall(parts, [("sum", -2.0), ("network", -2.5)], Picture(np.eye(2)), "title", "logit"))
    picture, bars = figure.axes[:2]
    np.testing.assert_array_equal(picture.images[0].get_array(), np.eye(2))
    assert [bar.get_width() for bar in bars.patches] == [-1.0, -3.0, 1.5, 0.5, -2.0, -2.5]
    assert [bar.get_x() for bar in bars.patches] == [0, -1, -4, -2.5, 0, 0]  # each starts where the one above ends
    names = ["constant", "linear", "feature\nvalue 2", "x", "sum", "network"]
    assert [t.get_text() for t in bars.get_yticklabels()] == names
    assert len(bars.child_axes) == 1


def test_ranking():
    parts = [Part("first", 3.0, "a $b$"), Part("second", -1.0), Part("third", 0.5, image=np.eye(2))]
    (ax,) = draw(Ranking(parts, "", "title", "effect", "remark", "note")).axes[:1]
    assert [bar.get_width() for bar in ax.patches] == [3.0, -1.0, 0.5]
    assert [bar.get_x() for bar in ax.patches] == [0, 0, 0]
    colours = ["positive", "negative", "positive"]
    assert [to_rgb(bar.get_facecolor()) for bar in ax.patches] == [to_rgb(COLOURS[c]) for c in colours]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["first", "second", "third"]
    low, high = ax.get_ylim()
    assert low > high  # the first is on top
    assert [t.get_text() for t in ax.texts] == [r"a \$b\$", "", "", "remark"]  # dollars are no formula
    assert ax.get_title() == "title" and ax.get_xlabel() == "effect\nnote" and len(ax.child_axes) == 1
    (ax,) = draw(Ranking(parts[:2], colour="blue")).axes
    assert {to_rgb(bar.get_facecolor()) for bar in ax.patches} == {to_rgb(COLOURS["blue"])}


def test_heat_map():
    values = np.array([[1.0, -4.0, np.nan], [0.0, 2.0, 3.0]])
    ax, bar = draw(HeatMap(values, ["a", "b"], ["x", "$y$", "z"], title="title", name="effect", note="note")).axes
    np.testing.assert_array_equal(ax.images[0].get_array().filled(np.nan), values)
    assert ax.images[0].get_clim() == (-4, 4) and bar.get_ylabel() == "effect"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["x", r"\$y\$", "z"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    assert [t.get_text() for t in ax.texts] == ["1", "−4", "0", "2", "3"]
    assert (ax.get_title(), ax.get_xlabel()) == ("title", "note")
    large = HeatMap(np.ones((100, 100)), [f"name {i}" for i in range(100)], [str(i) for i in range(100)], limit=2.0)
    ax, _ = draw(large).axes
    assert ax.images[0].get_clim() == (-2, 2) and len(ax.texts) == 0
    assert [t.get_text() for t in ax.get_yticklabels()][:3] == ["name 0", "name 2", "name 4"]


def test_long_names_lose_their_middle():
    assert shortened("short") == "short" and shortened("x" * 28) == "x" * 28
    name = shortened("the beginning and then a lot in the middle and the end")
    assert len(name) == 28 and name.startswith("the beginning") and name.endswith("the end") and "…" in name


def test_files_are_the_same_on_every_writing(chart, tmp_path):
    gallery = Gallery([("row", [Picture(np.eye(3))])], note="remark")
    figures = [draw(chart, gallery), draw(chart, gallery)]
    once, twice, anew = (save_figure(f, tmp_path / str(i), "name") for i, f in enumerate((figures[0], *figures)))
    assert [path.name for path in once] == ["name.png", "name.pdf"]
    for a, b, c in zip(once, twice, anew, strict=True):
        assert a.read_bytes() == b.read_bytes() == c.read_bytes()
    assert once[0].read_bytes()[:4] == b"\x89PNG" and once[1].read_bytes()[:5] == b"%PDF-"
    assert b"Date" not in once[1].read_bytes() and b"matplotlib" not in once[0].read_bytes()


def test_every_colour_has_a_name_on_pages():
    style = (Path(__file__).parents[2] / "src/mlpoly/pages/toolkit/assets/page.css").read_text(encoding="utf-8")
    for name in COLOURS:
        assert style.count(f"--{name}: ") >= 2  # light and dark
