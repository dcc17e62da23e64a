"""One image taken apart: what its quadratic logit is made of, in bars, pictures and words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from mlpoly.page.embedded import eigenpicture, picture
from mlpoly.page.html import Html, element, join, paragraph
from mlpoly.page.numbers import listing, number, signed
from mlpoly.page.widgets import class_name
from mlpoly.studies.paper.report.breakdown import Part, waterfall

__all__ = ["Explained", "explanation", "explanation_words"]


class Explained(Protocol):
    """A logit and its parts, such as `mlpoly.studies.paper.results.Explanation`."""

    @property
    def image(self) -> np.ndarray:
        """Pixels (d,)."""

    @property
    def label(self) -> int:
        """The class it is."""

    @property
    def output(self) -> int:
        """The class whose logit is explained."""

    @property
    def network(self) -> float:
        """The network's logit."""

    @property
    def polynomial(self) -> float:
        """The polynomial's logit: the sum of the next three."""

    @property
    def constant(self) -> float:
        """Logit of the mean image."""

    @property
    def linear(self) -> float:
        """Linear part, about the mean image."""

    @property
    def quadratic(self) -> float:
        """Quadratic part, about the mean image."""

    @property
    def top(self) -> Sequence[Any]:
        """Its strongest terms, each with ``eigenvalue``, ``amount`` and ``vector``."""


def explanation(e: Explained, classes: Sequence[str], image_shape: tuple[int, int]) -> tuple[Html, Html]:
    """A label for its button, and the explanation itself."""
    name, output = class_name(classes, e.label), class_name(classes, e.output)
    limits = (min(0.0, float(np.min(e.image))), max(1.0, float(np.max(e.image))))
    pixels = np.reshape(e.image, image_shape)
    said = f"a {name}" if e.label == e.output else f"a {name}: why {output}?"
    parts = [Part("constant", e.constant), Part("linear part", e.linear)]
    for i, term in enumerate(_strongest(e), 1):
        term_name = join((f"eigenfeature {i}", element("small", f"eigenvalue {signed(term.eigenvalue)}")))
        parts.append(Part(term_name, term.amount, eigenpicture(term.vector, image_shape, f"eigenvector {i}")))
    parts.append(Part("all other eigenfeatures", _rest(e)))
    bars = waterfall(parts, (("the quadratic’s logit", e.polynomial), ("the network’s logit", e.network)))
    words = element("div", *(paragraph(line) for line in explanation_words(e, classes)))
    shown = picture(pixels, limits, f"the image, a {name}")
    return join((picture(pixels, limits, ""), said)), element("div", shown, words, bars, class_="explained")


def explanation_words(e: Explained, classes: Sequence[str]) -> list[str]:
    """Which eigenfeatures moved which logit, in sentences."""
    output = class_name(classes, e.output)
    said = [
        f"This is a {class_name(classes, e.label)}. The quadratic gives class {output} the logit "
        f"{number(e.polynomial)}, the network {number(e.network)}. The mean image gets {number(e.constant)}; from "
        f"there the linear part {_moved(e.linear)}, and the quadratic part {_moved(e.quadratic)}."
    ]
    if e.top:
        first, amounts = _strongest(e)[0], [term.amount for term in e.top]
        sides = [([a for a in amounts if a >= 0], "raised"), ([a for a in amounts if a < 0], "lowered")]
        totals = [f"{len(side)} {verb} it by {number(abs(math.fsum(side)))}" for side, verb in sides if side]
        said.append(
            f"Eigenfeature 1 (eigenvalue {signed(first.eigenvalue)}) moved the logit of {output} most: it "
            f"{_moved(first.amount)}. Of the {len(e.top)} shown, {listing(totals)}; all others together "
            f"{_moved(_rest(e))}."
        )
    return said


def _strongest(e: Explained) -> list[Any]:
    return sorted(e.top, key=lambda term: -abs(term.amount))


def _rest(e: Explained) -> float:
    return e.quadratic - math.fsum(term.amount for term in e.top)


def _moved(amount: float) -> str:
    return f"{'raised' if amount >= 0 else 'lowered'} it by {number(abs(amount))}"
