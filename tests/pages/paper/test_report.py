"""The report: one file that asks for nothing, with the right numbers in it, and alive in a real browser."""

import dataclasses
import json
import math
import re
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest
from plotly import graph_objects
from support.fake_results import CLASSES, COLUMNS, FITS, STEPS, fake_results
from support.pages import NASTY, assert_harmless, sections

from mlpoly.pages.paper.page import write_report
from mlpoly.pages.toolkit.pictures import DIVERGING
from mlpoly.pages.toolkit.widgets import number
from mlpoly.studies.paper.results import Results

SECTIONS = ["features", "fvu", "kl", "accuracy", "spectrum", "attack", "claims", "rerun"]
VOID = {"br", "hr", "img", "input", "meta"}


class Parsed(HTMLParser):
    """A page taken apart: its elements with their attributes, its texts, and whether every tag is closed."""

    def __init__(self, source):
        super().__init__()
        self.elements, self.islands, self.text, self._open = [], {}, "", []
        self.feed(source)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID and not (self._open and self._open[-1] == "svg"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open and self._open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        if self._open[-1:] == ["script"]:
            if self.elements[-1][1].get("type") == "application/json":
                self.islands[self.elements[-1][1]["id"]] = data
        elif self._open[-1:] != ["style"]:
            self.text += data

    def values(self, attribute):
        return [a[attribute] or "" for _, a in self.elements if attribute in a]


@pytest.fixture(scope="module")
def results():
    return fake_results()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("report")
    names = "results/training.json", "figures/fvu.pdf", "figures/a #1.pdf", "tables/points.csv", "tables/notes.txt"
    for name in names:
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).touch()
    return made


@pytest.fixture(scope="module")
def path(results, folder):
    return write_report(results, folder / "report.html")


@pytest.fixture(scope="module")
def source(path):
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def parsed(source):
    return Parsed(source)


def mean(records, attribute):
    """Over the seeds, by step."""
    found = {step: [getattr(r, attribute) for r in records if r.step == step] for step in STEPS}
    return [math.fsum(values) / len(values) for values in found.values()]


def fit(results, degree, inputs):
    return [p for p in results.dynamics if (p.degree, p.inputs) == (degree, inputs)]


def test_it_asks_for_nothing(source, parsed):
    assert_harmless(source)
    for address in parsed.values("src"):
        assert address.startswith("data:image/png;base64,")
    for address in parsed.values("href"):
        assert re.match(r"#|(?![a-z]+:)(?!//)", address, re.IGNORECASE)
    assert not any(tag in ("link", "iframe", "object", "embed", "base") for tag, _ in parsed.elements)
    style = source[source.index("<style>") : source.index("</style>")]
    assert "url(" not in style and "@import" not in style
    assert source.count("plotly.js v") == 1
    assert len(source.encode()) < 7.5e6


def test_every_island_is_json(parsed):
    assert set(parsed.islands) == {
        *(f"plot-{name}-data" for name in ("fvu", "kl", "accuracy", "spectrum", "ablation")),
        "viewer-data",
    }
    for island in parsed.islands.values():
        assert "<" not in island and not {"NaN", "Infinity", "-Infinity"} & set(re.split(r"[\[\],:]", island))


def test_structure(source, parsed):
    assert sections(source) == SECTIONS
    tags = Counter(tag for tag, _ in parsed.elements)
    assert tags["h1"] == tags["main"] == tags["nav"] == 1
    assert parsed.elements[0] == ("html", {"lang": "en"})
    identifiers = parsed.values("id")
    assert len(identifiers) == len(set(identifiers))
    targets = [address[1:] for address in parsed.values("href") if address.startswith("#")]
    assert set(targets) <= set(identifiers)
    assert all(a.get("alt") is not None for tag, a in parsed.elements if tag == "img")
    assert all(a.get("aria-label") for tag, a in parsed.elements if tag == "canvas")


def test_summary_has_the_numbers(parsed, results):
    quadratic = [p.fvu_mixture for p in fit(results, 2, "mixture") if p.step == STEPS[-1]]
    assert f"{number(100 * min(quadratic))} to {number(100 * max(quadratic))}" in parsed.text
    accuracy = [p.test_accuracy for p in results.training if p.step == STEPS[-1]]
    assert f"{100 * min(accuracy):.1f} to {100 * max(accuracy):.1f}" in parsed.text


def test_links_to_the_files_beside_it(parsed):
    names = [a for a in parsed.values("href") if not a.startswith("#")]
    assert names == ["results/training.json", "figures/a%20%231.pdf", "figures/fvu.pdf", "tables/points.csv"]


def test_everything_is_escaped(tmp_path):
    results = fake_results([NASTY, *map(str, range(1, CLASSES))])
    claims = (dataclasses.replace(results.claims[0], name=NASTY, paper=NASTY, measured=NASTY, figure='"><b>'),)
    about = {**results.about, "command": NASTY, "version": NASTY, "config": {NASTY: NASTY}, "machine": {NASTY: NASTY}}
    about["data"] = {**about["data"], "name": NASTY}
    attacked = dataclasses.replace(results, claims=claims, about=about)
    source = write_report(attacked, tmp_path / "r.html").read_text(encoding="utf-8")
    assert NASTY not in source and "<b>" not in source
    parsed, clean = Parsed(source), Parsed(write_report(results, tmp_path / "c.html").read_text(encoding="utf-8"))
    assert not any("onerror" in attributes for _, attributes in parsed.elements)
    assert len([t for t, _ in parsed.elements if t == "script"]) == len([t for t, _ in clean.elements if t == "script"])
    assert json.loads(parsed.islands["viewer-data"])["classes"][0] == NASTY
    assert parsed.text.count(NASTY) >= 10


@pytest.mark.parametrize("missing", ["features", "attack", "claims", "spectra", "dynamics", "training"])
def test_what_is_missing_is_left_out(missing, results, tmp_path):
    less = dataclasses.replace(results, **{missing: None if missing == "features" else ()})
    source = write_report(less, tmp_path / "r.html").read_text(encoding="utf-8")
    parsed = Parsed(source)
    gone = {"features": {"features"}, "spectra": {"spectrum"}, "dynamics": {"fvu", "kl"}}
    gone |= {"training": {"accuracy"}, "attack": {"attack"}, "claims": {"claims"}}
    assert set(sections(source)) == set(SECTIONS) - gone[missing]
    targets = {address[1:] for address in parsed.values("href") if address.startswith("#")}
    assert targets <= set(parsed.values("id"))


def test_no_results_at_all(tmp_path):
    path = write_report(Results(), tmp_path / "new" / "r.html")
    assert path.stat().st_size < 1e5  # without plots there is no plotly
    assert Parsed(path.read_text(encoding="utf-8")).text


def test_plotly_accepts_every_view(parsed):
    for name, island in parsed.islands.items():
        if name.startswith("plot-"):
            spec = json.loads(island)
            for view in spec["views"]:
                # raises if not valid
                graph_objects.Figure([spec["traces"][i] for i in view["traces"]], view["layout"])
            used = {i for view in spec["views"] for i in view["traces"]}
            assert used == set(range(len(spec["traces"])))


@pytest.fixture
def browser(window, path):
    """The report, freshly loaded in a wide window."""
    window.resize(1400, 900)
    window.prefer(prefers_color_scheme="light")
    window.open(path)
    yield window
    window.assert_calm()


def plotted(browser, plot):
    """The lines of a plot by name, as plotly holds them."""
    traces = browser.run(
        f"return document.querySelector('#{plot} .space').data.map("
        "t => ({name: t.name, x: t.x, y: t.y, mode: t.mode, custom: t.customdata, fill: t.fill, error: t.error_y}))"
    )
    return {trace["name"]: trace for trace in traces if trace["name"]}


def press_button(browser, plot, label):
    found = browser.run(
        "const label = [...document.querySelectorAll(`#${arguments[0]} label`)]"
        ".find(l => l.textContent.trim() === arguments[1]); label.click(); return Boolean(label)",
        plot,
        label,
    )
    assert found


def canvases(browser):
    return browser.run("return [...document.querySelectorAll('.boards canvas')].map(c => c.toDataURL())")


def test_curves_are_the_records(browser, results):
    lines = plotted(browser, "plot-fvu")
    names = {1: "linear", 2: "quadratic"}
    kinds = {"mixture": "mixture, exact", "paper": "mixture, paper’s route", "gaussian": "N(mean, cov)"}
    kinds["standard"] = "N(0, I)"
    for degree, inputs in FITS:
        line, records = lines[f"{names[degree]}, {kinds[inputs]}"], fit(results, degree, inputs)
        assert line["x"] == [0.5, *STEPS[1:]]
        assert line["y"] == pytest.approx(mean(records, "fvu_mixture"), rel=1e-12)
    dots = lines["quadratic, mixture, exact, on samples"]
    records = fit(results, 2, "mixture")
    assert dots["y"] == pytest.approx(mean(records, "fvu_samples"), rel=1e-12)
    assert dots["error"]["array"] == pytest.approx([2 * e for e in mean(records, "fvu_samples_error")], rel=1e-12)


def test_buttons_change_the_curves(browser, results):
    press_button(browser, "plot-fvu", "on test images")
    line = plotted(browser, "plot-fvu")["linear, mixture, exact"]
    assert line["y"] == pytest.approx(mean(fit(results, 1, "mixture"), "fvu_test"), rel=1e-12)
    press_button(browser, "plot-fvu", "under its own inputs")
    lines = plotted(browser, "plot-fvu")
    assert "quadratic, mixture, paper’s route" not in lines  # it was fitted on samples: nothing to draw
    assert lines["linear, N(0, I)"]["y"] == pytest.approx(mean(fit(results, 1, "standard"), "fvu_own"), rel=1e-12)
    axis = "return document.querySelector('#plot-fvu .space').layout.yaxis.type"
    assert browser.run(axis) == "log"
    press_button(browser, "plot-fvu", "linear")
    assert browser.run(axis) == "linear"
    assert "quadratic, mixture, paper’s route" not in plotted(browser, "plot-fvu")  # the other choice stays
    press_button(browser, "plot-kl", "on test images")
    line = plotted(browser, "plot-kl")["quadratic, mixture, paper’s route"]
    assert line["y"] == pytest.approx(mean(fit(results, 2, "paper"), "kl_test"), rel=1e-12)


def test_slider_moves_the_pictures(browser):
    before = canvases(browser)
    assert len(before) == 2 * COLUMNS + 1 and len(set(before)) == len(before)
    slider = "const s = document.querySelector('.player input'); s.value = 2; s.dispatchEvent(new Event('input'));"
    browser.run(slider)
    after = canvases(browser)
    assert all(a != b for a, b in zip(before, after, strict=True))
    assert browser.run("return document.querySelector('.player output').textContent") == "step 2"
    browser.run("document.querySelector('.player input').focus()")
    browser.press("ArrowRight")
    assert browser.run("return document.querySelector('.player output').textContent") == "step 4"
    assert canvases(browser) != after
    browser.run("document.querySelectorAll('.frames button')[15].click()")
    assert canvases(browser) == before


def test_pictures_have_the_colours_of_the_vectors(browser, results):
    """The canvas, pixel by pixel, against the eigenvector itself."""
    press_button(browser, "viewer", "7")
    drawn = browser.run(
        "const c = document.querySelector('.negative canvas');"
        "return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    )
    drawn = np.array(drawn).reshape(-1, 4)[:, :3]
    step = next(f for f in results.features.steps if (f.step, f.label) == (STEPS[-1], 7))
    vector = step.negative_vectors[0] / step.negative_vectors[0][np.abs(step.negative_vectors[0]).argmax()]
    np.testing.assert_array_equal(drawn, DIVERGING[127 + np.round(127 * vector).astype(int)])
    text = browser.run("return document.querySelector('.negative .under').textContent")
    assert float(text.replace("−", "-")) == pytest.approx(step.negative[0], rel=5e-3)


@pytest.mark.parametrize("width", [390, 320, 800])
def test_narrow_windows(browser, width):
    browser.resize(width, 800)
    browser.wait(
        "return [...document.querySelectorAll('.space')].every(s => s.layout.width === s.clientWidth"
        " && s.getBoundingClientRect().right <= innerWidth)"
    )
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    outside = browser.run(
        "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.table, .frames, pre, svg')"
        " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert outside == []


def test_dark_and_print(browser):
    look = (
        "const gd = document.querySelector('#plot-fvu .space');"
        "return [getComputedStyle(document.body).backgroundColor, gd.layout.font.color,"
        " gd.data.find(t => t.name).line.color]"
    )
    light = browser.run(look)
    browser.prefer(prefers_color_scheme="dark")
    browser.wait(f"return document.querySelector('#plot-fvu .space').layout.font.color !== '{light[1]}'")
    assert all(a != b for a, b in zip(light, browser.run(look), strict=True))
    browser.prefer("print", prefers_color_scheme="dark")  # paper is white for everybody
    browser.wait(f"return document.querySelector('#plot-fvu .space').layout.font.color === '{light[1]}'")
    assert browser.run("return document.querySelector('.controls').checkVisibility()") is False
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
