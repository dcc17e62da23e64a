"""A quadratic explained: one image taken apart in bars, pictures and words, and one class written out in pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from mlpoly.page.embedded import picture
from mlpoly.page.grids import waterfall_html
from mlpoly.page.html import element, paragraph
from mlpoly.page.numbers import listing, number, percent, signed
from mlpoly.page.widgets import class_name, formula, table, variable
from mlpoly.studies.paper.figures.eigenvector_pictures import explanation_waterfall
from mlpoly.studies.paper.results import Explanation, Formula

__all__ = ["explanation", "explanation_words", "written_out"]


def explanation(e: Explanation, classes: Sequence[str], image_shape: tuple[int, int]) -> tuple[Markup, Markup]:
    """Return a label for its button, and the explanation itself."""
    name, output = class_name(classes, e.label), class_name(classes, e.output)
    limits = (min(0.0, float(np.min(e.image))), max(1.0, float(np.max(e.image))))
    pixels = np.reshape(e.image, image_shape)
    bars = waterfall_html(explanation_waterfall(e, classes, image_shape))
    words = element("div", *map(paragraph, explanation_words(e, classes)))
    shown = picture(pixels, limits, f"the image, a {name}")
    button = picture(pixels, limits, "") + (f"a {name}" if e.label == e.output else f"a {name}: why {output}?")
    return button, element("div", shown, words, bars, class_="explained")


def explanation_words(e: Explanation, classes: Sequence[str]) -> list[str]:
    """Return which eigenfeatures moved which logit, in sentences."""
    output = class_name(classes, e.output)
    said = [
        f"This is a {class_name(classes, e.label)}. The quadratic gives class {output} the logit "
        f"{number(e.polynomial)}, the network {number(e.network)}. The mean image gets {number(e.constant)}; from "
        f"there the linear part {_moved(e.linear)}, and the quadratic part {_moved(e.quadratic)}."
    ]
    if e.top:
        first, amounts = max(e.top, key=lambda term: abs(term.amount)), [term.amount for term in e.top]
        sides = [([a for a in amounts if a >= 0], "raised"), ([a for a in amounts if a < 0], "lowered")]
        totals = [f"{len(side)} {verb} it by {number(abs(math.fsum(side)))}" for side, verb in sides if side]
        said.append(
            f"Eigenfeature 1 (eigenvalue {signed(first.eigenvalue)}) moved the logit of {output} most: it "
            f"{_moved(first.amount)}. Of the {len(e.top)} shown, {listing(totals)}; all others together "
            f"{_moved(_rest(e))}."
        )
    return said


def _rest(e: Explanation) -> float:
    return e.quadratic - math.fsum(term.amount for term in e.top)


def _moved(amount: float) -> str:
    return f"{'raised' if amount >= 0 else 'lowered'} it by {number(abs(amount))}"


def written_out(f: Formula, classes: Sequence[str], image_shape: tuple[int, int]) -> Markup:
    """Return the quadratic of one class: all of the best one in a few pixels, and the strongest terms of the whole."""

    def pixel(i: int) -> Markup:
        return variable("x", *(place + 1 for place in divmod(i, image_shape[1])))

    pixels = sorted({i for term in f.small for i in term.pixels})
    board = np.zeros(image_shape)
    board.flat[pixels] = 1
    small = [(term.coefficient, [pixel(i) for i in term.pixels]) for term in f.small]
    words = (
        f"All that {len(pixels)} pixels say about class {class_name(classes, f.label)}: the best quadratic in them, "
        f"with every one of its {len(f.small)} terms. It leaves {percent(f.small_fvu, 0)} of the variance of the logit "
        "unexplained."
    )
    shown = picture(board, (0, 1), "where these pixels are")
    tables = []
    for title, size in (("Strongest single pixels", 1), ("Strongest products of two", 2)):
        rows = [
            (element("math", *(pixel(i) for i in term.pixels)), term.coefficient, term.effect)
            for term in f.strongest
            if len(term.pixels) == size
        ]
        tables.append(table((title, "Coefficient", "Effect"), rows))
    whole = (
        f"The whole quadratic has {number(f.count, 7)} terms. These {len(f.strongest)} alone leave "
        f"{percent(f.strongest_fvu, 0)} of the variance unexplained."
    )
    head = element("div", shown, element("div", paragraph(words), formula("p", small)), class_="explained")
    return head + element("div", *tables, class_="side-by-side") + paragraph(whole, class_="note")
