"""The toolkit of pages: HTML that is escaped, data that browsers read, numbers that people read."""

import base64
import io
import json
import math
import re

import numpy as np
import pytest
from markupsafe import Markup
from PIL import Image as image_module

from mlpoly.pages.toolkit import Page
from mlpoly.pages.toolkit.pictures import DIVERGING, pack_images, picture, to_json
from mlpoly.pages.toolkit.widgets import element, formula, link, number, variable


def test_json():
    made = to_json({"a": [math.nan, np.float32(1.5), np.array([math.inf, 2])], 3: "</script><!--\u2028"})
    assert "<" not in made and "\u2028" not in made
    assert json.loads(made) == {"a": [None, 1.5, [None, 2.0]], "3": "</script><!--\u2028"}


def test_pack_images_survives_bad_images():
    packed = pack_images(np.array([[0.0, 0.0], [math.nan, 2.0], [-1e-30, 1e-31]]))
    pixels = np.frombuffer(base64.b64decode(packed["pixels"]), np.int8).reshape(3, 2)
    assert pixels.tolist() == [[0, 0], [0, 127], [-127, 13]]


def test_picture_is_a_png_with_the_right_colours():
    made = picture(np.array([[-1.0, 0.0, 1.0], [5.0, -5.0, 0.5]]), 'a "b"', limits=(-1, 1))
    assert 'alt="a &#34;b&#34;"' in made
    raw = base64.b64decode(re.search(r"base64,([^\"]+)", made)[1])
    with image_module.open(io.BytesIO(raw)) as image:
        pixels = np.asarray(image.convert("RGB"))
    blue, white, red = DIVERGING[0], DIVERGING[127], DIVERGING[254]
    np.testing.assert_array_equal(pixels, [[blue, white, red], [red, blue, DIVERGING[190]]])


def test_html():
    assert element("p", "a < b", Markup("<i>c</i>"), class_="x", hidden=True, title=None, data_x='"') == (
        '<p class="x" hidden data-x="&#34;">a &lt; b<i>c</i></p>'
    )
    assert link("figures/a.pdf", "a") == '<a href="figures/a.pdf">a</a>'
    for address in ("https://x.org", "javascript:alert(1)", "//x.org/a", "data:text/html,x"):
        with pytest.raises(ValueError, match="leaves the page"):
            link(address, "x")


def test_page():
    page = Page("A < B")
    page.section("one", "First").add("text & more", element("p", "other"))
    assert "<title>A &lt; B</title>" in page.html() and "text &amp; more" in page.html()
    assert "Plotly, Inc." not in page.html()
    with pytest.raises(ValueError, match="'one' already"):
        page.section("one", "Again")


def test_half_of_a_surrogate_pair_does_not_cost_the_page(tmp_path):
    page = Page("A token \ud800")
    page.section("one", "First").add(element("script", Markup(to_json({"token": "\ud800"}))))
    text = page.write(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h1>A token \\ud800</h1>" in text
    assert '>{"token":"\\ud800"}<' in text  # which JSON reads as what it was


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.123456, "0.123"), (-2.5, "−2.50"), (3.0, "3"), (1234.5, "1\u202f234"), (16384, "16\u202f384"),
     (1.5e-5, "1.50\u00a0×\u00a010⁻⁵"), (math.nan, "–"), (99.96, "100"), (0.1, "0.100")],
)  # fmt: skip
def test_numbers(value, text):
    assert number(value) == text


def test_formula():
    x, y = variable("x"), variable("y", 2, 3)
    made = formula("p", [(2.0, []), (-0.5, [x]), (1.5, [x, x]), (3.25, [x, y])])
    words = re.sub(r"<[^>]+>", "", made)
    assert words == "p= 2 −0.500x +1.50x2 +3.25xy2,3"
    assert made.count("<math>") == 5 and "<msup><mi>x</mi><mn>2</mn></msup>" in made  # one for each term and the name
    assert "<msub><mi>y</mi><mtext>2,3</mtext></msub>" in made
    assert re.sub(r"<[^>]+>", "", formula("p", [(-1.5, [])])) == "p= −1.50"
    cubic = formula(variable("q", 1), [(2.0, [x, x, x, y])], words=True)
    assert re.sub(r"<[^>]+>", "", cubic) == "q1= 2·x3·y2,3" and "<msub><mi>q</mi>" in cubic
    assert 'title="a &lt; b"' in variable("a…b", title="a < b")
