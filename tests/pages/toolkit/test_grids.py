"""Galleries and waterfalls as HTML."""

import base64
import io
import re
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image as image_module

from mlpoly.charts.chart import Gallery, Part, Picture, Ranking, Waterfall
from mlpoly.pages.toolkit.pictures import gallery_html, ranking_html, waterfall_html


def test_waterfall_bars_touch_and_end_at_the_total():
    amounts = (1.0, 2.5, -4.0, 0.75)
    made = waterfall_html(Waterfall([Part("x", a) for a in amounts], [("sum", sum(amounts))]))
    places = [(float(a), float(b)) for a, b in re.findall(r"left:([\d.]+)%;width:max\(2px,([\d.]+)%\)", made)]
    low, high = -0.5, 3.5  # what the sums reach
    ends = np.cumsum([0, *amounts])
    for (left, width), (start, end) in zip(places, pairwise(ends), strict=False):
        assert left == pytest.approx(100 * (min(start, end) - low) / (high - low), abs=0.01)
        assert width == pytest.approx(100 * abs(end - start) / (high - low), abs=0.01)
    zero = 100 * -low / (high - low)
    assert places[-1] == pytest.approx((zero, 100 * sum(amounts) / (high - low)), abs=0.01)


def test_parts_have_their_pattern_and_remark():
    parts = [Part("a < b", 1.0), Part("feature", -0.5, "eigenvalue −2", np.eye(2))]
    made = waterfall_html(Waterfall(parts, [("sum", 0.5)]))
    assert "a &lt; b" in made and "<small>eigenvalue −2</small>" in made and made.count("<img") == 1
    assert re.findall(r'<li class="(\w+)"', made) == ["up", "down", "total"]


def test_gallery_has_one_scale():
    rows = [("a\nrow", [Picture(np.array([[-2.0, 0.0, 2.0, 5.0]]), "above", "→ <b>", "positive"), None])]
    made = gallery_html(Gallery(rows, palette="ink", limit=2.0))
    assert made.count("<img") == 1 and "a row" in made and "above<br>" in made and "→ &lt;b&gt;" in made
    assert "var(--positive)" in made and 'alt="a row, above, → &lt;b&gt;"' in made
    with image_module.open(io.BytesIO(base64.b64decode(re.search(r"base64,([^\"]+)", made)[1]))) as image:
        red, white, black, beyond = np.asarray(image.convert("RGB"))[0].tolist()
    assert (red, white, black, beyond) == ([178, 24, 43], [255, 255, 255], [0, 0, 0], [0, 0, 0])


def test_ranked_bars_begin_at_zero():
    parts = [Part("long " * 30, 2.0, "remark"), Part("<b>", -1.0)]
    made = ranking_html(Ranking(parts))
    assert re.findall(r"left:([\d.]+)%;width:max\(2px,([\d.]+)%\)", made) == [("50.00", "50.00"), ("25.00", "25.00")]
    assert "--zero:0.5000" in made and 'class="waterfall plain"' in made  # no picture, and no room for one
    assert f'title="{"long " * 30}"' in made and "…" in made and "&lt;b&gt;" in made
    assert re.findall(r'class="amount">([^<]+)<', made) == ["+2", "−1"]
    upward = ranking_html(Ranking([Part("a", 1.0), Part("b", 0.5)]), limit=2.0)
    assert re.findall(r"left:([\d.]+)%;width:max\(2px,([\d.]+)%\)", upward) == [("0.00", "50.00"), ("0.00", "25.00")]
