"""One image taken apart: what its quadratic logit is made of, in bars, pictures and words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpoly.page.embedded import picture
from mlpoly.page.grids import waterfall_html
from mlpoly.page.html import Html, element, join, paragraph
from mlpoly.page.numbers import listing, number, signed
from mlpoly.page.widgets import class_name
from mlpoly.studies.paper.figures.eigenvector_pictures import explanation_waterfall
from mlpoly.studies.paper.results import Explanation

__all__ = ["explanation", "explanation_words"]


def explanation(e: Explanation, classes: Sequence[str], image_shape: tuple[int, int]) -> tuple[Html, Html]:
    """A label for its button, and the explanation itself."""
    name, output = class_name(classes, e.label), class_name(classes, e.output)
    limits = (min(0.0, float(np.min(e.image))), max(1.0, float(np.max(e.image))))
    pixels = np.reshape(e.image, image_shape)
    said = f"a {name}" if e.label == e.output else f"a {name}: why {output}?"
    bars = waterfall_html(explanation_waterfall(e, classes, image_shape))
    words = element("div", *(paragraph(line) for line in explanation_words(e, classes)))
    shown = picture(pixels, limits, f"the image, a {name}")
    return join((picture(pixels, limits, ""), said)), element("div", shown, words, bars, class_="explained")


def explanation_words(e: Explanation, classes: Sequence[str]) -> list[str]:
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


def _strongest(e: Explanation) -> list[Any]:
    return sorted(e.top, key=lambda term: -abs(term.amount))


def _rest(e: Explanation) -> float:
    return e.quadratic - math.fsum(term.amount for term in e.top)


def _moved(amount: float) -> str:
    return f"{'raised' if amount >= 0 else 'lowered'} it by {number(abs(amount))}"
