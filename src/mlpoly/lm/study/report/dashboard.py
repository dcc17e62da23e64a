"""A dashboard of features: a card for each, with its contexts, and a search over all of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any

from markupsafe import Markup

from mlpoly._version import __version__
from mlpoly.lm.reading.contexts import CausalScore, Context, FeatureReading, ReadabilityScore, TokenScore
from mlpoly.page import Page, asset
from mlpoly.page.embedded import island
from mlpoly.page.html import element
from mlpoly.page.numbers import counted
from mlpoly.page.widgets import figure

__all__ = ["dashboard", "dashboard_assets", "feature_page", "menu", "rounded", "visible"]

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
_SCORES = {  # what the page calls them
    "causal": {
        "correlation": "Removed: correlation",
        "slope": "Removed: slope",
        "doubled_correlation": "Doubled: correlation",
        "doubled_slope": "Doubled: slope",
    },
    "readability": {
        "current": "Read from the token",
        "recent": "Read from the last few",
        "tree": "Read by a tree",
    },
}
_CAPTION = (
    "A value is in standard deviations of the feature; red tokens have positive values, blue ones negative, and the "
    "colour follows the square. A feature that enters as its square writes the same on both sides. Raises, lowers: the "
    "logits that move most where the feature’s amount rises, of the tokens of the text. ␣ is a space at a token’s end, "
    "⏎ a new line."
)
_CAUSAL = (
    " Removed, doubled: correlation and slope of the changes of logits in the model with those that the polynomial "
    "predicts."
)
_READABLE = (
    " Read from: area under the ROC curve with which the text alone says where the feature is active; 0.5 is chance."
)


def feature_page(
    readings: Sequence[FeatureReading], path: str | PathLike[str], title: str = "Features of a language model"
) -> Path:
    """Write a dashboard of features, one HTML file that opens without a network, and return its path.

    Parameters
    ----------
    readings : sequence of FeatureReading
        Features of one block or of many, of any kinds, see `read_features`. The scores of random directions among them
        stand beside those of the others.
    path : path
    title : str
    """
    readings = list(readings)
    wrong = next((type(r).__name__ for r in readings if not isinstance(r, FeatureReading)), None)
    if wrong or not readings:
        raise TypeError(f"readings must be features as read_features returns them, got {wrong or 'none'}.")
    page = Page(title, footer=f"Made by mlpoly {__version__}. This page loads nothing from a network.")
    page.style, page.script = dashboard_assets()
    blocks = len({reading.block for reading in readings})
    page.section("features", "Where they are large, and what they do", "Features").add(
        f"{counted(len(readings), 'feature')} of {counted(blocks, 'feedforward block')}, seen on text.",
        dashboard(readings),
    )
    return page.write(Path(path))


def dashboard_assets() -> tuple[str, str]:
    """Style and script that a page with a dashboard needs."""
    return asset("mlpoly.lm.study.report", "features.css"), asset("mlpoly.lm.study.report", "features.js")


def dashboard(readings: Sequence[FeatureReading]) -> Markup:
    """Search, menus, and the cards, which the page's script makes from the data as they are needed."""
    blocks = list(dict.fromkeys(reading.block for reading in readings))
    kinds = list(dict.fromkeys(reading.kind for reading in readings))
    names = [  # of the scores that any feature has
        (part, name)
        for part, cls in (("causal", CausalScore), ("readability", ReadabilityScore))
        if any(getattr(reading, part) is not None for reading in readings)
        for name in (f.name for f in fields(cls))
        if name in _SCORES[part]
    ]
    scores = [[_score(reading, *name) for name in names] for reading in readings]
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
        }
        for reading, values in zip(readings, scores, strict=True)
    ]
    beside = []  # for each block the medians of the controls
    for block in blocks:
        pairs = zip(readings, scores, strict=True)
        control = [values for reading, values in pairs if (reading.block, reading.kind) == (block, _CONTROL)]
        beside.append(rounded(map(_median, zip(*control, strict=True))))
    labels = [_SCORES[part][name] for part, name in names]
    kind_names = [_KINDS.get(kind, kind) for kind in kinds]
    data: dict[str, Any] = {"blocks": blocks, "kinds": kind_names, "scores": labels, "control": beside}
    data |= {"features": features, "texts": list(texts)}
    search = element("input", type="search", id="features-search", placeholder="a token, some text, a name")
    controls = [
        element("label", "Search", search, class_="pick", for_="features-search"),
        menu("features-block", "Block", ["all blocks", *blocks]),
        menu("features-kind", "Kind", kind_names),
        menu("features-order", "Order", ["block by block", "variance explained", *labels]),
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
    parts = {part for part, _ in names}
    return figure(viewer, _CAPTION + _CAUSAL * ("causal" in parts) + _READABLE * ("readability" in parts))


def _score(reading: FeatureReading, part: str, name: str) -> float:
    found = getattr(reading, part)
    return math.nan if found is None else float(getattr(found, name))


def _median(values: Iterable[float]) -> float:
    """Median of those that are known; NaN if there are none."""
    known = [value for value in values if math.isfinite(value)]
    return statistics.median(known) if known else math.nan


def visible(text: str) -> str:
    """A token with its line ends and control characters as symbols."""
    return "".join("⏎" if c == "\n" else chr(0x2400 + ord(c)) if ord(c) < 32 else c for c in text)


def rounded(values: Iterable[float]) -> list[float]:
    """Values to the few digits that a page shows."""
    return [float(f"{value:.4g}") for value in values]


def menu(name: str, label: str, options: Iterable[str]) -> Markup:
    """A menu of options whose values are their places."""
    items = [element("option", option, value=i) for i, option in enumerate(options)]
    return element("label", label, element("select", *items, id=name), class_="pick", for_=name)
