"""The report of a language model: one file with the right numbers, alive in a real browser, whatever the tokens."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from support.pages import NASTY, assert_harmless, island, sections

from mlpoly.lm import feature_page
from mlpoly.lm.conversion.conversion import BlockErrors
from mlpoly.lm.evaluation.losses import Loss
from mlpoly.lm.reading.attribution import Attribution
from mlpoly.lm.reading.block_spectra import BlockSpectrum
from mlpoly.lm.reading.causality import CausalScore
from mlpoly.lm.reading.feature_reading import Context, FeatureReading, TokenScore
from mlpoly.pages.language_model.page import write_lm_report
from mlpoly.studies.language_model.results import LmResults

BLOCKS = tuple(f"model.layers.{i}.mlp" for i in range(3))
TOKENS = ("Once", " upon", NASTY, "\n", "\x00", " <b>", "é", "\\u003c", " ")
SECTIONS = ["fvu", "loss", "spectrum", "features", "prompt", "rerun"]


def scores(rng, prefix):
    return tuple(TokenScore(i, f"{prefix}{t}", float(rng.normal())) for i, t in enumerate(TOKENS[:4]))


def reading(rng, block, kind, rank, contexts=7):
    """A feature of which every number is known again, and whose tokens are anything."""

    def side(sign):
        found = []
        for i in range(contexts):
            tokens = (f"start{rank}", *TOKENS[1:5], f" {kind}{rank}side{i}{'-' if sign < 0 else '+'}")
            found.append(Context(tokens, tuple(float(v) for v in sign * rng.uniform(0, 3, 6)), 5))
        return tuple(found)

    own = {"block_correlation": 0.54, "block_slope": 0.55}
    causal = CausalScore(0.5 + 0.1 * rank, 0.51, 100, direct_correlation=0.52, direct_slope=-0.53, **own)
    histogram = tuple(np.diff(np.linspace(0, 1, 65)))
    about = (f"{kind} {rank}", rank, True, 1.0, 0.25 / (rank + 1), 0.031, histogram)
    ends = scores(rng, f"{block[-5]}R "), scores(rng, f"{block[-5]}L ")
    return FeatureReading(block, kind, *about, side(1), side(-1), *ends, causal)


def fake_results():
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(3, len(TOKENS), 4))
    errors = [BlockErrors(n, k, 0.5**k, 0.6**k if k < 3 else None) for n in BLOCKS for k in (1, 2, 3)]
    whole = ("none", "", 0, 2.5, 0), ("all", "removed", 0, 8, 5), ("all", "polynomial", 3, 2.75, 0.2)
    losses = [
        *(Loss(*row) for row in (*whole, ("all", "linear", 0, 1e6, math.inf))),
        *(Loss(name, "polynomial", 3, 2.5 + 0.01 * i, 0.01) for i, name in enumerate(BLOCKS)),
        *(Loss(name, "mean", 0, 2.6 + 0.01 * i, 0.01) for i, name in enumerate(BLOCKS)),
    ]
    features = [
        reading(rng, name, kind, rank)
        for name in BLOCKS
        for kind, count in (("principal", 6), ("random", 3))
        for rank in range(count)
    ]
    count = len(TOKENS)
    tokens = tuple(range(count)), TOKENS, (*range(1, count), 0), (*TOKENS[1:], TOKENS[0])
    attribution = Attribution(BLOCKS, *tokens, parts, parts.sum(-1) + 0.1, rng.normal(size=count), True)
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


def test_the_page_is_whole_and_small_and_escapes_tokens(path):
    page = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 15e6
    assert sections(page) == SECTIONS
    assert_harmless(page)


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
    assert all(t["customdata"] == [[block] for block in BLOCKS] for t in plot["traces"])  # what a pointer reads
    medians = re.search(r"<tr><th[^>]*>Logits, removed, correlation</th>(.*?)</tr>", page)[1]
    assert re.findall(r">([\d.]+)<", medians) == ["0.750", "0.600"]  # of six ranks, and of three
    single = {trace["name"]: trace["y"] for trace in island(page, "plot-single-data")["traces"]}
    assert single["degree 3"] == pytest.approx([0, 0.01, 0.02]) and "their mean output" in single
    assert "goes from 2.500 to 2.750 nats per token" in page
    assert '<td class="number" data-label="Cross-entropy, nats">2.750</td>' in page  # as many digits as the summary
    assert "replaced, as named." in page  # there are single blocks with their mean output too


def test_sections_without_results_are_left_out(tmp_path):
    page = write_lm_report(LmResults({"version": "1"}, (), ()), tmp_path / "report.html").read_text(encoding="utf-8")
    assert sections(page) == ["rerun"]


@pytest.fixture
def browser(window, path):
    window.resize(1400, 900)
    window.open(path)
    window.wait("return document.querySelectorAll('.js-plotly-plot').length === 3")
    yield window
    window.assert_calm()


def choose(browser, menu, place):
    script = (
        "const m = document.getElementById(arguments[0]); m.value = arguments[1]; m.dispatchEvent(new Event('change'))"
    )
    browser.run(script, menu, str(place))


def texts(browser, selector):
    return browser.run("return [...document.querySelectorAll(arguments[0])].map(n => n.textContent)", selector)


def test_cards_have_what_the_results_have(browser):
    results = fake_results()
    assert texts(browser, ".found") == ["18 features"]
    assert len(texts(browser, ".feature")) == 10 and texts(browser, ".features + .more") == ["Show 8 more of 8"]
    first = results.features[0]
    assert texts(browser, ".feature h3")[0] == f"principal 0{BLOCKS[0]}"
    assert "explains 25\u202f% of the block’s variance" in texts(browser, ".feature .about")[0]
    shown = browser.run("return document.querySelector('.feature .contexts').innerText")
    assert NASTY in shown and "⏎" in shown and "␀" in shown
    lines = texts(browser, ".feature:first-child .contexts li")
    assert len(lines) == 10  # five on each side, until the others are asked for
    value = float(lines[0].split("start0")[0].replace("−", "-"))
    assert value == pytest.approx(first.positive[0].value, abs=0.006)
    browser.run("document.querySelector('.feature button.more').click()")
    assert len(texts(browser, ".feature:first-child .contexts li")) == 12
    peak = "return document.querySelector('.feature .peak').style.background"
    assert "--positive" in browser.run(peak)
    assert texts(browser, ".feature .pieces li")[0] == "0R Once"
    # The scores, beside the medians of the three random directions of the block.
    cells = "return [...arguments[0].rows].map(row => [...row.cells].map(cell => cell.textContent).join(' | '))"
    tables = [browser.run(cells, table) for table in browser.run("return [...document.querySelectorAll('.scores')]")]
    assert tables[0] == [
        "Predicted | corr. | slope | random", "Logits, removed | 0.50 | 0.51 | 0.60",
        "Logits, its write | 0.52 | −0.53 | 0.52", "Block, removed | 0.54 | 0.55 | 0.54",
    ]  # fmt: skip
    browser.run("document.querySelector('.features + .more').click()")
    assert len(texts(browser, ".feature")) == 18
    assert browser.run("return document.querySelector('.features + .more').hidden")
    assert browser.run("return [...document.querySelectorAll('.feature')].indexOf(document.activeElement)") == 10


def search(browser, text):
    script = "const i = document.getElementById('features-search'); i.value = arguments[0]; "
    browser.run(script + "i.dispatchEvent(new Event('input'))", text)
    return texts(browser, ".found")[0]


def test_the_search_finds_and_hides(browser):
    assert search(browser, "principal 3") == "3 of 18 features found"  # a name, one in each block
    assert [name[:11] for name in texts(browser, ".feature h3")] == ["principal 3"] * 3
    assert search(browser, "LAYERS.1") == "6 of 18 features found"  # a block
    assert search(browser, "</script>") == "18 of 18 features found"
    assert search(browser, "1r  upon") == "6 of 18 features found"  # tokens whose logits rise
    # Text that runs over two tokens, in a context that is not among those shown first.
    assert search(browser, "␀ principal2side6+") == "3 of 18 features found"
    assert len(texts(browser, ".feature li.hit")) == 3
    assert search(browser, "nowhere") == "0 of 18 features found" and not texts(browser, ".feature")
    choose(browser, "features-block", 2)
    assert search(browser, "") == "6 features" and texts(browser, ".feature h3 small") == [BLOCKS[1]] * 6
    choose(browser, "features-order", 2)  # by causal correlation, best first
    assert [name[10] for name in texts(browser, ".feature h3")] == list("543210")
    choose(browser, "features-order", 1)  # by variance
    assert [name[10] for name in texts(browser, ".feature h3")] == list("012345")
    choose(browser, "features-kind", 1)
    assert search(browser, "") == "3 features" and texts(browser, ".feature h3")[0].startswith("random 0")


def test_features_by_themselves_make_a_page(window, tmp_path):
    rng = np.random.default_rng(1)
    readings = [reading(rng, BLOCKS[0], "neuron", i) for i in range(2)]
    readings = [replace(r, causal=None) for r in readings]
    path = feature_page(readings, tmp_path / "deep" / "features.html", title=NASTY)
    assert path.stat().st_size < 200_000  # without plots there is no library for them
    window.resize(400, 900)
    window.open(path)
    assert texts(window, "h1") == [NASTY] and texts(window, ".feature h3") == [f"neuron {i}{BLOCKS[0]}" for i in (0, 1)]
    assert not texts(window, ".scores")
    assert texts(window, "#features-order option") == ["block by block", "variance explained"]
    hidden = "return ['block', 'kind'].map(n => document.getElementById(`features-${n}`).offsetParent === null)"
    assert window.run(hidden) == [True, True]  # one of each, and nothing to choose
    window.wait("return document.documentElement.scrollWidth <= innerWidth")
    window.assert_calm()
    for wrong in ([], ["feature"]):
        with pytest.raises(TypeError, match="readings must be features as read_features returns them"):
            feature_page(wrong, path)


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
