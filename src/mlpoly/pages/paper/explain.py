"""A quadratic explained: one image taken apart in bars, pictures and words, and one class written out in pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from mlpoly.pages.toolkit.embedded import GREY, picture
from mlpoly.pages.toolkit.grids import waterfall_html
from mlpoly.pages.toolkit.html import element
from mlpoly.pages.toolkit.numbers import listing, number, percent, signed
from mlpoly.pages.toolkit.widgets import formula, table, variable
from mlpoly.studies.paper.figures.eigenvector_pictures import explanation_waterfall
from mlpoly.studies.paper.results import Formula, ImageExplanation


def explanation(e: ImageExplanation, classes: Sequence[str], image_shape: tuple[int, int]) -> tuple[Markup, Markup]:
    """Return a label for its button, and the explanation itself."""
    name, pixels = classes[e.label], np.reshape(e.image, image_shape)
    limits = (min(0.0, float(pixels.min())), max(1.0, float(pixels.max())))
    question = "" if e.label == e.output else f": why {classes[e.output]}?"
    shown = picture(pixels, f"the image, a {name}", GREY, limits)
    words = element("div", *(element("p", said) for said in explanation_words(e, classes)))
    bars = waterfall_html(explanation_waterfall(e, classes, image_shape))
    button = picture(pixels, "", GREY, limits) + f"a {name}{question}"
    return button, element("div", shown, words, bars, class_="explained")


def explanation_words(e: ImageExplanation, classes: Sequence[str]) -> list[str]:
    """Return which eigenfeatures moved which logit, in sentences."""

    def moved(amount: float) -> str:
        return f"{'raised' if amount >= 0 else 'lowered'} it by {number(abs(amount))}"

    output = classes[e.output]
    said = [
        f"This is a {classes[e.label]}. The quadratic gives class {output} the logit "
        f"{number(e.polynomial)}, the network {number(e.network)}. The mean image gets {number(e.constant)}; from "
        f"there the linear part {moved(e.linear)}, and the quadratic part {moved(e.quadratic)}."
    ]
    if e.top:
        first, amounts = max(e.top, key=lambda term: abs(term.amount)), [term.amount for term in e.top]
        sides = [a for a in amounts if a >= 0], [a for a in amounts if a < 0]
        totals = [f"{len(side)} {moved(math.fsum(side))}" for side in sides if side]
        said.append(
            f"Eigenfeature 1 (eigenvalue {signed(first.eigenvalue)}) moved the logit of {output} most: it "
            f"{moved(first.amount)}. Of the {len(e.top)} shown, {listing(totals)}; all others together {moved(e.rest)}."
        )
    return said


def written_out(f: Formula, classes: Sequence[str], image_shape: tuple[int, int]) -> Markup:
    """Return the quadratic of one class: all of the best one in a few pixels, and the strongest terms of the whole."""

    def factors(pixels: Sequence[int]) -> list[Markup]:
        return [variable("x", *(place + 1 for place in divmod(i, image_shape[1]))) for i in pixels]

    pixels = sorted({i for term in f.small for i in term.pixels})
    board = np.zeros(image_shape)
    board.flat[pixels] = 1
    words = (
        f"All that {len(pixels)} pixels say about class {classes[f.label]}: the best quadratic in them, "
        f"with every one of its {len(f.small)} terms. It leaves {percent(f.small_fvu, 0)} of the variance of the logit "
        "unexplained."
    )
    small = formula("p", [(term.coefficient, factors(term.pixels)) for term in f.small])
    tables = []
    for title, size in (("Strongest single pixels", 1), ("Strongest products of two", 2)):
        terms = [term for term in f.strongest if len(term.pixels) == size]
        rows = [(element("math", *factors(term.pixels)), term.coefficient, term.effect) for term in terms]
        tables.append(table((title, "Coefficient", "Effect"), rows))
    whole = (
        f"The whole quadratic has {number(f.count, 7)} terms. These {len(f.strongest)} alone leave "
        f"{percent(f.strongest_fvu, 0)} of the variance unexplained."
    )
    shown = picture(board, "where these pixels are", GREY, (0, 1))
    head = element("div", shown, element("div", element("p", words), small), class_="explained")
    return head + element("div", *tables, class_="side-by-side") + element("p", whole, class_="note")
