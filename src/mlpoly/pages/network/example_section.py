"""Single predictions taken apart."""

from dataclasses import replace

import numpy as np
from markupsafe import Markup

from mlpoly.charts.chart import Part, Waterfall, shortened
from mlpoly.charts.explanations import explanation_waterfall
from mlpoly.features.single_prediction import Explanation, degree_name, explain
from mlpoly.pages.network.fits import Fits, chosen
from mlpoly.pages.network.subject import Subject
from mlpoly.pages.toolkit import Page
from mlpoly.pages.toolkit.pictures import GREY, picture, waterfall_html
from mlpoly.pages.toolkit.widgets import element, figure, number, panels, table

_TERMS = 8  # bars of one explanation


def chosen_rows(subject: Subject, fits: Fits, count: int) -> list[tuple[str, int, int]]:
    """Rows worth explaining, each with a name, its place among the measured rows, and an output.

    The one on which the polynomial is furthest from the network, the one of median error, then one of each class: the
    first that the network gets right.
    """
    poly = np.asarray(fits.written(fits.rows))
    apart = np.sqrt(np.sum((poly - fits.values) ** 2, axis=1))
    order = np.argsort(apart, kind="stable")
    several = fits.values.shape[1] > 1
    answer = fits.values.argmax(axis=1) if several else np.zeros(len(fits.values), int)
    if several and subject.task != "classes":  # no choice between them: the output that is furthest from its mean
        deviation = np.abs(fits.values - fits.values.mean(axis=0)) / (fits.values.std(axis=0) + 1e-300)
        answer = deviation.argmax(axis=1)
    found = [("a typical row", int(order[len(order) // 2])), ("largest error", int(order[-1]))]
    if subject.task == "classes" and subject.targets is not None:
        targets = subject.targets[:: fits.every]
        right = targets == chosen(subject.net, fits.values)
        for label in range(len(subject.outputs) if several else 2):
            of_class = np.flatnonzero((targets == label) & right)
            if len(of_class):
                found.append((subject.titles[label] if several else f"class {label}", int(of_class[0])))
    elif not several:
        ranked = np.argsort(fits.values[:, 0], kind="stable")
        found += [("largest output", int(ranked[-1])), ("smallest output", int(ranked[0]))]
    return [(name, row, int(answer[row])) for name, row in found[:count]]


def example_section(page: Page, subject: Subject, fits: Fits, count: int) -> None:
    """A few rows of the data: what each part and term of the polynomial added."""
    if count == 0:
        return
    items: list[tuple[object, Markup]] = []
    shape = subject.image_shape
    for name, row, output in chosen_rows(subject, fits, count):
        x, value = fits.rows[row], float(fits.values[row, output])
        found = explain(fits.written, x, subject.inputs, output=output, k=_TERMS, names=subject.names)
        image = "" if shape is None else picture(x.reshape(shape), "", GREY, (float(x.min()), float(x.max())))
        items.append((image + shortened(name, 24), _explained(subject, found, value, row * fits.every)))
    caption = (
        "Grey bars: the value of the polynomial and of the network, from that at the mean of the inputs. The others "
        "add up to the polynomial: red raises the output, blue lowers it."
    )
    page.section("examples", "Single predictions explained", "Predictions").add(
        f"A few rows of the data, taken apart by the {degree_name(fits.written.degree)} polynomial. About the mean of "
        "the inputs its terms add up to what it predicts.",
        figure(panels("examples-row", "Row", items), caption),
    )


def _explained(subject: Subject, found: Explanation, network: float, row: int) -> Markup:
    """One prediction in words and bars."""
    assert found.output is not None
    wanted = f" For {shortened(subject.titles[found.output], 40)}," if subject.outputs != ("output",) else ""
    the = "the" if wanted else "The"
    parts = [float(part) for part in found.parts]
    said = (
        f"Row {number(row, 9)} of the data.{wanted} {the} network gives {number(network)}, the polynomial "
        f"{number(found.polynomial)}. From {number(parts[0])} at the mean of the inputs, "
        + ", ".join(f"the {degree_name(k)} part adds {number(part)}" for k, part in enumerate(parts) if k > 0)
        + "."
    )
    if subject.image_shape is not None and found.features:
        waterfall = explanation_waterfall(replace(found, network=network), subject.image_shape)
    else:
        bars = [Part(term.name, term.amount) for term in found.terms]
        if abs(found.other_terms) > 1e-12 * abs(found.polynomial):
            bars.append(Part("all other terms", found.other_terms))
        totals = [("polynomial", found.polynomial), ("network", network)]
        waterfall = Waterfall([Part("at the mean of the inputs", parts[0]), *bars], totals, base=parts[0])
    if subject.task == "values" and subject.targets is not None:
        label = float(subject.targets[row, found.output])
        waterfall = replace(waterfall, totals=[*waterfall.totals, ("label", label)])
    words = element("div", element("p", said))
    shown = waterfall_html(waterfall)
    if subject.image_shape is not None:
        pixels = np.asarray(found.point).reshape(subject.image_shape)
        limits = (float(pixels.min()), float(pixels.max()))
        return element("div", picture(pixels, f"row {row}", GREY, limits), words, shown, class_="explained")
    deviations = (found.point - subject.mean) / np.where(subject.spread > 0, subject.spread, np.inf)
    used = sorted({i for term in found.terms for i in term.inputs})
    rows = [(shortened(subject.names[i], 40), float(found.point[i]), float(deviations[i])) for i in used]
    inner = table(("Input", "Value", "Standard deviations from the mean"), rows)
    return element("div", words, shown, element("details", element("summary", "Values of these inputs"), inner))
