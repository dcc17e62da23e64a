"""A dashboard of features: a card for each, with its contexts, and a search over all of them."""

import math
import statistics
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from markupsafe import Markup

from mlpoly.lm.reading.feature_reading import Context, FeatureReading, TokenScore
from mlpoly.pages.toolkit import Page, asset
from mlpoly.pages.toolkit.pictures import island
from mlpoly.pages.toolkit.widgets import counted, element, figure, menu, rounded, table

_KINDS = {
    "principal": "eigenvectors of principal forms",
    "token": "eigenvectors towards a token",
    "term": "terms of the decomposition",
    "form": "principal forms",
    "neuron": "neurons",
    "direction": "directions",
    "pca": "principal components of the inputs (control)",
    "random": "random directions (control)",
}
_CONTROL = "random"  # the kind whose scores stand beside those of the others
_SCORES = {  # what the page calls them, and where their fields begin
    "Logits, removed": "",
    "Logits, its write": "direct_",
    "Block, removed": "block_",
    "Block, even part": "square_",
}
_CAPTION = (
    "A value is in standard deviations of the feature; red tokens have positive values, blue ones negative, and the "
    "colour follows the square. A feature that enters as its square writes the same on both sides. By itself it "
    "explains none of the variance where the text is far from the Gaussian of the moments. Raises, lowers: the logits "
    "that move most where the feature’s amount rises, of the tokens of the text. ␣ is a space at a token’s end, ⏎ a "
    "new line."
)
_CAUSAL = (
    " Predicted and measured changes of the logits, by the direct path, and of the block’s output, where the feature "
    "is removed in the block’s input; its write: where what it writes is taken out of the output; even "
    "part: of the block’s change, the part that is even in the value, as the feature itself is."
)
_BESIDE = " Random: the median of random directions of the same block."


def feature_page(
    readings: Sequence[FeatureReading], path: str | PathLike[str], title: str = "Features of a language model"
) -> Path:
    """Write a dashboard of features, one HTML file that opens without a network, and return its path.

    The features, see `read_features`, are of one block or of many, of any kinds. The scores of random directions among
    them stand beside those of the others.
    """
    readings = list(readings)
    wrong = next((type(r).__name__ for r in readings if not isinstance(r, FeatureReading)), None)
    if wrong or not readings:
        raise TypeError(f"readings must be features as read_features returns them, got {wrong or 'none'}.")
    page = Page(title)
    page.style, page.script = dashboard_assets()
    blocks = len({reading.block for reading in readings})
    page.section("features", "Where they are large, and what they do", "Features").add(
        f"{counted(len(readings), 'feature')} of {counted(blocks, 'feedforward block')}, seen on text.",
        dashboard(readings),
        score_table(readings),
    )
    return page.write(Path(path))


def dashboard_assets() -> tuple[str, str]:
    """Style and script that a page with a dashboard needs."""
    return asset("mlpoly.pages.language_model", "features.css"), asset("mlpoly.pages.language_model", "features.js")


def dashboard(readings: Sequence[FeatureReading]) -> Markup:
    """Search, menus, and the cards, which the page's script makes from the data as they are needed."""
    blocks = list(dict.fromkeys(reading.block for reading in readings))
    kinds = list(dict.fromkeys(reading.kind for reading in readings))
    known = {n: k for n, k in _SCORES.items() if any(math.isfinite(_score(r, f"{k}correlation")) for r in readings)}
    scores = [[_score(reading, f"{key}correlation") for key in known.values()] for reading in readings]
    texts: dict[str, int] = {}  # every token once, with its place

    def place(text: str) -> int:
        return texts.setdefault(visible(text), len(texts))

    def contexts(side: Iterable[Context]) -> list[list[Any]]:
        return [[c.peak, [place(t) for t in c.tokens], [round(100 * v) for v in c.values]] for c in side]

    def tokens(side: Iterable[TokenScore]) -> list[list[float]]:
        return [[place(t.text), *rounded([t.score])] for t in side]

    features = [
        {
            "block": blocks.index(reading.block),
            "kind": kinds.index(reading.kind),
            "name": reading.name,
            "squared": reading.squared,
            "explained": rounded([reading.explained])[0],
            "active": rounded([reading.active])[0],
            "histogram": [round(1e5 * v) for v in reading.histogram],
            "positive": contexts(reading.positive),
            "negative": contexts(reading.negative),
            "raises": tokens(reading.raises),
            "lowers": tokens(reading.lowers),
            "scores": rounded(values),
            "slopes": rounded(_score(reading, f"{key}slope") for key in known.values()),
        }
        for reading, values in zip(readings, scores, strict=True)
    ]
    beside = []  # for each block the medians of the controls
    for block in blocks:
        pairs = zip(readings, scores, strict=True)
        control = [values for reading, values in pairs if (reading.block, reading.kind) == (block, _CONTROL)]
        beside.append(rounded(map(_median, zip(*control, strict=True))))
    kind_names = [_KINDS.get(kind, kind) for kind in kinds]
    data: dict[str, Any] = {"blocks": blocks, "kinds": kind_names, "scores": list(known)}
    data |= {"control": beside, "features": features, "texts": list(texts)}
    search = element("input", type="search", id="features-search", placeholder="a token, some text, a name")
    controls = [
        element("label", "Search", search, class_="pick", for_="features-search"),
        menu("features-block", "Block", ["all blocks", *blocks]),
        menu("features-kind", "Kind", kind_names),
        menu("features-order", "Order", ["block by block", "variance explained", *known]),
    ]
    viewer = element(
        "div",
        element("div", *controls, class_="controls"),
        element("p", class_="found note", role="status"),
        element("div", class_="features"),
        element("button", type="button", class_="more", hidden=True),
        island("features-data", data),
        id="feature-viewer",
        data_dashboard="features-data",
    )
    return figure(viewer, _CAPTION + _CAUSAL * bool(known) + _BESIDE * (bool(known) and any(beside)))


def score_table(readings: Sequence[FeatureReading]) -> Markup:
    """Medians of the scores over the features of each kind; nothing, if there are no scores."""
    kinds = list(dict.fromkeys(reading.kind for reading in readings))
    rows = []
    for label, key in _SCORES.items():
        medians = [_median(_score(r, f"{key}correlation") for r in readings if r.kind == kind) for kind in kinds]
        if any(map(math.isfinite, medians)):
            rows.append((f"{label}, correlation", *medians))
    columns = ("Median over the features", *(_KINDS.get(kind, kind) for kind in kinds))
    return table(columns, rows) if rows else Markup()


def _score(reading: FeatureReading, name: str) -> float:
    """A causal score; NaN where there is none."""
    value = getattr(reading.causal, name, None)
    return math.nan if value is None else float(value)


def _median(values: Iterable[float]) -> float:
    """Median of those that are known; NaN if there are none."""
    known = [value for value in values if math.isfinite(value)]
    return statistics.median(known) if known else math.nan


def visible(text: str) -> str:
    """A token with its line ends and control characters as symbols."""
    return "".join("⏎" if c == "\n" else chr(0x2400 + ord(c)) if ord(c) < 32 else c for c in text)
