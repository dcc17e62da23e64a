"""The report of a language model: one file with the right numbers, alive in a real browser, whatever the tokens."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("plotly")

from mlpoly.lm.convert.block_errors import BlockErrors
from mlpoly.lm.evaluate.losses import Loss
from mlpoly.lm.reading.attribution import Attribution
from mlpoly.lm.reading.block_spectra import BlockSpectrum
from mlpoly.lm.reading.token_features import BlockFeature, TokenScore
from mlpoly.lm.study.lm_results import LmResults
from mlpoly.lm.study.report.lm_page import write_lm_report

NASTY = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">'
BLOCKS = tuple(f"model.layers.{i}.mlp" for i in range(3))
TOKENS = ("Once", " upon", NASTY, "\n", "\x00", " <b>", "é", "\\u003c", " ")
SECTIONS = ["fvu", "loss", "spectrum", "features", "prompt", "rerun"]


def scores(rng: np.random.Generator, prefix: str) -> tuple[TokenScore, ...]:
    return tuple(TokenScore(i, f"{prefix}{t}", float(rng.normal())) for i, t in enumerate(TOKENS[:4]))


def fake_results() -> LmResults:
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(3, len(TOKENS), 4))
    errors = [BlockErrors(n, k, 0.5**k, 0.6**k if k < 3 else None) for n in BLOCKS for k in (1, 2, 3)]
    losses = [
        Loss("none", "", 0, 2.5, 0.0),
        Loss("all", "removed", 0, 8.0, 5.0),
        Loss("all", "polynomial", 3, 2.75, 0.2),
        Loss("all", "linear", 0, 1e6, math.inf),
        *(Loss(name, "polynomial", 3, 2.5 + 0.01 * i, 0.01) for i, name in enumerate(BLOCKS)),
        *(Loss(name, "mean", 0, 2.6 + 0.01 * i, 0.01) for i, name in enumerate(BLOCKS)),
    ]
    features = [
        BlockFeature(name, output, rank, 1.5 - rank, *(scores(rng, f"{i}{kind} ") for kind in "+-RL"))
        for i, name in enumerate(BLOCKS)
        for output in ("' the'", repr(NASTY))
        for rank in range(2)
    ]
    attribution = Attribution(
        BLOCKS,
        tuple(range(len(TOKENS))),
        TOKENS,
        (*range(1, len(TOKENS)), 0),
        (*TOKENS[1:], TOKENS[0]),
        parts,
        parts.sum(-1) + 0.1,
        rng.normal(size=len(TOKENS)),
        True,
    )
    about = {
        "version": "1.2.3",
        "command": f"mlpoly lm {NASTY}",
        "config": {"degree": 3},
        "model": {"model": NASTY, "architecture": "LlamaForCausalLM", "dtype": "float32"},
        "data": {"text": NASTY, "tokens": 1000, "held_out": 100},
        "machine": {"torch": "2"},
        "seconds": {"collect": 1.0},
    }
    spectra = [BlockSpectrum(name, (0.5, 0.3, 0.1), 0.1) for name in BLOCKS]
    return LmResults(about, tuple(errors), tuple(losses), tuple(spectra), tuple(features), attribution)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_lm_report(fake_results(), tmp_path_factory.mktemp("report") / "report.html")


def island(page: str, name: str) -> Any:
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S)[1])


def test_the_page_is_whole_and_small_and_escapes_tokens(path):
    page = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 15e6
    assert re.findall(r'<section id="([\w-]+)"', page) == SECTIONS
    assert "<script>window.hacked" not in page and "<img src=x" not in page
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page.split("<script>")[0])


def test_the_numbers_are_those_of_the_results(path):
    page, results = path.read_text(encoding="utf-8"), fake_results()
    data = island(page, "prompt-data")
    assert data["tokens"][3:5] == ["⏎", "␀"] and data["tokens"][2] == NASTY
    for i in range(3):
        for t in range(len(TOKENS)):
            assert data["values"][i][t][:4] == pytest.approx(results.attribution.parts[i, t], rel=1e-3)
            assert data["values"][i][t][4] == pytest.approx(results.attribution.actual[i, t], rel=1e-3)
    plot = island(page, "plot-fvu-data")
    lines = {trace["name"]: trace["y"] for trace in plot["traces"]}
    assert lines["degree 2"] == [0.25] * 3 and lines["degree 2, held out"] == [0.36] * 3
    assert "degree 3, held out" not in lines  # it was not measured
    bars = island(page, "plot-spectrum-data")["traces"]
    assert [bar["y"][0] for bar in bars] == [0.5, 0.3, 0.1, 0.1]
    assert lines and all(
        trace["customdata"] == [[block] for block in BLOCKS] for trace in plot["traces"]
    )  # what a pointer reads
    single = {trace["name"]: trace["y"] for trace in island(page, "plot-single-data")["traces"]}
    assert single["degree 3"] == pytest.approx([0, 0.01, 0.02]) and "their mean output" in single
    assert "goes from 2.500 to 2.750 nats per token" in page
    assert '<td class="number" data-label="Cross-entropy, nats">2.750</td>' in page  # as many digits as the summary
    assert "replaced, as named." in page  # there are single blocks with their mean output too


def test_the_page_says_how_the_polynomials_were_made(tmp_path):
    def facts(**config: Any) -> str:
        page = write_lm_report(LmResults({"config": config}, (), ()), tmp_path / "report.html").read_text(
            encoding="utf-8"
        )
        found = re.search(r"<dt>Polynomials</dt><dd>(.*?)</dd>", page)
        return found[1] if found else ""

    assert facts(method="gaussian") == "least squares under the Gaussian of each block’s inputs"
    assert facts(method="samples", bound=3.0).endswith("; straight lines beyond 3 standard deviations")
    assert facts() == ""


def test_sections_without_results_are_left_out(tmp_path):
    page = write_lm_report(LmResults({"version": "1"}, (), ()), tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.findall(r'<section id="([\w-]+)"', page) == ["rerun"]


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture
def browser(window, path):
    window.resize(1400, 900)
    window.open(path)
    window.wait("return document.querySelectorAll('.js-plotly-plot').length === 3")
    yield window
    errors = [entry for entry in window.log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert errors == []
    assert all(address.startswith("file:") for address in window.requests())
    assert window.run("return window.hacked") is None


def choose(browser, menu: str, place: int) -> None:
    script = (
        "const m = document.getElementById(arguments[0]); m.value = arguments[1]; m.dispatchEvent(new Event('change'))"
    )
    browser.run(script, menu, str(place))


def texts(browser, selector: str) -> list[str]:
    return browser.run("return [...document.querySelectorAll(arguments[0])].map(n => n.textContent)", selector)


def test_choosing_a_block_and_an_output_changes_the_features(browser):
    first = texts(browser, ".feature .pieces li")
    assert len(texts(browser, ".feature")) == 2 and first[0] == "0+ Once" and f"0+ {NASTY}" in first
    choose(browser, "features-block", 2)
    assert texts(browser, ".feature .pieces li")[0] == "2+ Once"
    choose(browser, "features-output", 1)
    assert texts(browser, ".feature .value")[0].startswith("+1.50")
    assert len(texts(browser, ".feature")) == 2


def test_choosing_block_and_degree_colours_the_prompt(browser):
    def colours() -> list[str]:
        return browser.run("return [...document.querySelectorAll('.stream span')].map(s => s.style.background)")

    def tips() -> list[str]:
        return browser.run("return [...document.querySelectorAll('.stream span')].map(s => s.title)")

    assert texts(browser, ".stream span")[2] == NASTY
    whole = colours()
    choose(browser, "prompt-block", 1)
    one = colours()
    assert whole != one and len(set(one)) > 3
    browser.run("document.querySelector('#prompt-viewer input[value=\"2\"]').click()")
    assert colours() != one
    parts = fake_results().attribution.parts[0, 0]
    sign = "+" if parts[2] > 0 else "−"
    assert f"quadratic {sign}{abs(parts[2]):.3g}"[:14] in tips()[0] and "→  upon" in tips()[0]


def test_a_token_is_taken_apart(browser):
    rows = texts(browser, "#prompt-viewer tbody tr")
    assert len(rows) == 4 and rows[-1].startswith("all blocks")
    browser.run("document.querySelectorAll('.stream span')[2].click()")
    assert texts(browser, ".taken code")[1] == "⏎"
    assert NASTY in texts(browser, ".taken")[0] and texts(browser, "#prompt-viewer tbody tr") != rows
    browser.run("document.querySelectorAll('.stream span')[0].click()")
    assert texts(browser, ".taken code") == ["Once", "␣upon"]  # a space that could not be seen otherwise
    browser.run("document.querySelectorAll('.stream span')[2].focus()")
    browser.press("ArrowRight")
    assert browser.run("return [...document.querySelectorAll('.stream span')].indexOf(document.activeElement)") == 3


@pytest.mark.parametrize("width", [1400, 390])
def test_nothing_sticks_out(browser, width):
    browser.resize(width, 900)
    browser.wait("return document.documentElement.scrollWidth <= innerWidth")
