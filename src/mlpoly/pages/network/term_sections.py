"""The polynomial itself: its formula, its strongest terms, and which inputs interact."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from markupsafe import Markup

from mlpoly.charts.chart import Part, Ranking, shortened
from mlpoly.charts.explanations import effect_map
from mlpoly.features.monomials import interaction_effects
from mlpoly.features.single_prediction import degree_name
from mlpoly.features.term_table import Terms
from mlpoly.pages.network.fits import ROUNDING, Fits
from mlpoly.pages.network.subject import Subject, distinct
from mlpoly.pages.toolkit import Page
from mlpoly.pages.toolkit.pictures import picture, ramp, ranking_html
from mlpoly.pages.toolkit.plot import heat_maps
from mlpoly.pages.toolkit.widgets import (
    counted,
    element,
    figure,
    formula,
    number,
    panels,
    percent,
    picture_row,
    table,
    variable,
)

_WRITTEN = 10  # terms of a formula
_RANKED, _PAIRS = 20, 8  # terms, and pairs of inputs, of a ranking
_SEEN = 0.04  # of the longest bar: what is shorter is left out
_CROSSED = 40  # inputs of a heat map
_HEAT = ramp("ffffff fddbc7 f4a582 d6604d b2182b 67001f")


def one_for_each(name: str, subject: Subject, items: Sequence[tuple[int, Markup]]) -> Markup:
    """Contents for each output, chosen by buttons; just the content where there is a single output."""
    if len(items) == 1:
        return items[0][1]
    labels = distinct(shortened(subject.outputs[i], 24) for i, _ in items)
    return panels(name, "Output", [(label, content) for label, (_, content) in zip(labels, items, strict=True)])


def strongest_terms(subject: Subject, fits: Fits) -> dict[int, Terms]:
    """The strongest monomials, about the mean, of every output that is shown."""
    return {i: fits.written.terms(i, subject.names, _RANKED, subject.mean) for i in fits.shown}


def formula_section(page: Page, subject: Subject, fits: Fits, terms: Mapping[int, Terms]) -> None:
    """The formula of each output in its strongest terms, standardised and in the units of the inputs."""
    names, numbered = subject.names, all(name == f"x{i}" for i, name in enumerate(subject.names))
    words = subject.image_shape is None and any(len(name) > 1 for name in names) and not numbered

    def factor(i: int) -> Markup:
        if subject.image_shape is not None:
            return variable("x", *(place + 1 for place in divmod(i, subject.image_shape[1])))
        if numbered:
            return variable("x", i)
        return variable(shortened(names[i], 24), title=names[i] if len(names[i]) > 24 else "")

    items = []
    for i, found in terms.items():
        name = variable("p", shortened(subject.outputs[i], 24)) if len(subject.outputs) > 1 else variable("p")
        shown = [term for term in found if term.effect != 0][:_WRITTEN]
        size = [float(np.prod(subject.spread[list(term.inputs)])) for term in shown]
        both = []
        for units, scales in (("in standard deviations", size), ("in units of the data", [1.0] * len(shown))):
            written = [(t.coefficient * s, list(map(factor, t.inputs))) for t, s in zip(shown, scales, strict=True)]
            both.append((units, formula(name, [(found.constant, []), *written], words)))
        u = (subject.x if len(subject.x) <= 4000 else subject.x[:: len(subject.x) // 4000]) - subject.mean
        part = sum((t.coefficient * np.prod(u[:, list(t.inputs)], axis=1) for t in shown), np.zeros(len(u)))
        whole = np.asarray(fits.written.output(i)(u + subject.mean))[:, 0]
        left = float(np.var(whole - part) / np.var(whole)) if np.var(whole) > 0 else 0.0
        note = (
            f"{counted(len(shown), 'term')} of {number(found.total, 9)}. On the data, leaving out the others leaves "
            f"{percent(left)} of this polynomial’s variance unexplained."
            if found.total > len(shown)
            else "This is the whole polynomial: it has no other terms."
        )
        items.append((i, panels(f"formula-{i}", "Inputs", both) + element("p", note, class_="note")))
    degree = fits.written.degree
    caption = "Terms by the size of their effect, the standard deviation that each has by itself."
    if subject.image_shape is not None:
        caption += " x with two numbers is the pixel in that row and column, counted from 1 at the top left."
    if degree < fits.degree and float(fits.errors[degree - 1].under_inputs) > ROUNDING:
        caption += (
            f" The polynomial of degree {fits.degree} has too many monomials to list, so this is the best one of "
            f"degree {degree}."
        )
    section = page.section("formula", "The polynomial itself", "Formula").add(
        f"The {degree_name(degree)} polynomial that is closest to the network, in its strongest terms. Every name "
        "stands for the distance of that input from its mean: in standard deviations, so that the numbers can be "
        "compared, or in the units of the data. The first number is the value at the mean of all inputs.",
        figure(one_for_each("formula-output", subject, items), caption),
    )
    if subject.image_shape is not None:
        linear = np.asarray(fits.polynomials[1].gradient(subject.mean)) * subject.spread
        pictures = [
            (picture(linear[i].reshape(subject.image_shape), f"linear part of {subject.titles[i]}"), subject.titles[i])
            for i in fits.shown
        ]
        caption = "Effect of every pixel in the best linear polynomial: red where a brighter pixel raises the output."
        section.add(figure(picture_row(pictures, "Linear part"), caption))
    else:
        used = sorted({i for found in terms.values() for term in found for i in term.inputs})[:60]
        rows = [(shortened(subject.names[i], 60), float(subject.mean[i]), float(subject.spread[i])) for i in used]
        inner = table(("Input", "Mean", "Standard deviation"), rows)
        section.add(element("details", element("summary", "Means and standard deviations of these inputs"), inner))


def terms_section(page: Page, subject: Subject, terms: Mapping[int, Terms]) -> None:
    """The strongest terms of every output as bars."""
    items = [(i, _ranking(found) or element("p", "This output is constant.")) for i, found in terms.items()]
    caption = (
        "The length of a bar is the effect of a term: its coefficient times its standard deviation under the inputs, "
        "in units of the output, red where more of it raises the output. Terms are correlated, so that their fractions "
        "of the variance need not add up to 100 %. Shorter bars than one in twenty-five of the longest are left out."
    )
    section = page.section("terms", "Strongest terms", "Terms")
    section.add(figure(one_for_each("terms-output", subject, items), caption))


def _ranking(terms: Terms) -> Markup | None:
    """Effects as bars, as far as they can be seen beside the largest."""
    seen = [term for term in terms if abs(term.effect) > _SEEN * abs(terms[0].effect)]
    remarks = [f"coefficient {number(t.coefficient)}, {percent(t.fraction, None)} of variance" for t in seen]
    parts = [Part(term.name, term.effect, remark) for term, remark in zip(seen, remarks, strict=True)]
    return ranking_html(Ranking(parts)) if parts else None


def interaction_section(page: Page, subject: Subject, fits: Fits) -> None:
    """Effects of the products of two inputs: a heat map that the pointer reads, or maps of pixels."""
    quadratic = fits.quadratic
    if quadratic is None:
        return
    section = page.section("interactions", "Which inputs interact", "Interactions")
    labels = distinct(shortened(subject.outputs[i], 24) for i in fits.shown)
    largest, maps, strengths, partners = 0.0, [], [], []
    for label, i in zip(labels, fits.shown, strict=True):  # one at a time: of many inputs, pairs are a large matrix
        effects = interaction_effects(quadratic.output(i), 0, subject.inputs)
        largest = max(largest, float(np.abs(effects).max()))
        if subject.image_shape is None:
            maps.append((label, replace(effect_map(effects, subject.names, _CROSSED), name="effect")))
            continue
        strength = np.sqrt(np.sum(effects**2, axis=1))
        strongest, title = int(np.argmax(strength)), subject.titles[i]
        limits = 0.0, float(strength.max()) or 1.0
        image = picture(strength.reshape(subject.image_shape), f"strength of interactions, {title}", _HEAT, limits)
        strengths.append((image, title))
        image = picture(effects[strongest].reshape(subject.image_shape), f"partners of {subject.names[strongest]}")
        partners.append((image, f"{title}, {subject.names[strongest]}"))
    if largest <= 1e-9 * float(fits.values.std(axis=0).max()):
        section.add("None: the best quadratic has no quadratic terms, so that up to degree 2 the network is linear.")
        return
    section.add(
        "Two inputs interact where the effect of one depends on the other: up to degree 2, where their product has a "
        "coefficient."
    )
    caption = (
        "An effect is the coefficient of a product of two inputs, both about their means, in the best quadratic, times "
        "the standard deviation of the product. "
    )
    if subject.image_shape is not None:
        rows = picture_row(strengths, "Strength"), picture_row(partners, "Partners of the strongest pixel")
        caption += (
            "Above: how strongly each pixel interacts with all others (root of the sum of squares; darker is more). "
            "Below: the partners of the strongest pixel, red where the product raises the output."
        )
        section.add(figure(element("div", *rows), caption))
        return
    caption += "On the diagonal are squares. Red raises the output, blue lowers it."
    if subject.net.dim_in > _CROSSED:
        caption += f" The {_CROSSED} inputs that interact most, of {subject.net.dim_in}."
    options: dict[str, Any] = {"names": subject.names, "k": _PAIRS, "center": subject.mean, "inputs": subject.inputs}
    found = [(i, _ranking(quadratic.terms(i, interactions=True, **options))) for i in fits.shown]
    ranked = [(i, bars or element("p", "This output has none.")) for i, bars in found]
    pairs = figure(one_for_each("pairs-output", subject, ranked), "The strongest pairs of inputs, by their effect.")
    section.add(pairs, figure(heat_maps("plot-interactions", "Output", maps), caption))
