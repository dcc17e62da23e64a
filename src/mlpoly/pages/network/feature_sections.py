"""Directions: the eigenfeatures of every output, and the network beside its polynomials along the strongest ones."""

from dataclasses import replace
from typing import Any

import numpy as np

from mlpoly.charts.chart import Chart, Curve, Part, Ranking, shortened
from mlpoly.charts.responses import response_chart
from mlpoly.features import EigenFeatures, eigenfeatures
from mlpoly.pages.network.fits import Fits
from mlpoly.pages.network.subject import Subject, distinct
from mlpoly.pages.network.term_sections import one_for_each
from mlpoly.pages.toolkit import Page, plot
from mlpoly.pages.toolkit.pictures import picture, ranking_html
from mlpoly.pages.toolkit.widgets import LEGEND, element, figure, percent, picture_row, rounded, signed

_FEATURES = 6
_SEEN = 0.01  # fraction of the largest eigenvalue below which a feature is left out
_ENTRIES, _SHORT = 6, 0.03  # inputs named for each feature, and the correlation below which one is not
_INPUTS = 4  # single inputs to move along
_POINTS = 49  # of a curve


def strongest_features(subject: Subject, fits: Fits) -> dict[int, EigenFeatures]:
    """Eigenfeatures of the best quadratic of every output that is shown; empty below degree 2."""
    if fits.quadratic is None:
        return {}
    k = min(_FEATURES, subject.net.dim_in)
    options: dict[str, Any] = {"k": k, "metric": "whitened", "inputs": subject.inputs}
    found = {i: eigenfeatures(fits.quadratic, output=i, **options) for i in fits.shown}
    largest = max(float(np.abs(features.values).max()) for features in found.values())
    return found if largest > 0 else {}


def feature_section(page: Page, subject: Subject, fits: Fits, features: dict[int, EigenFeatures]) -> None:
    """The directions whose squares make up the quadratic part: as pictures, or as bars of their largest entries."""
    if not features:
        return
    variance = fits.values.var(axis=0)
    items = []
    for i, found in features.items():
        pictures, cards = [], []
        for number, (value, pattern) in enumerate(zip(found.values, np.asarray(found.directions), strict=True), 1):
            if not abs(value) > _SEEN * abs(found.values[0]):  # cannot be seen beside the first
                continue
            fraction = 2 * value**2 / (variance[i] or 1.0)  # the square of a standard normal has variance 2
            words = f"adds {signed(float(value))}, {percent(float(fraction), None)} of the variance"
            if subject.image_shape is not None:
                pictures.append((picture(pattern.reshape(subject.image_shape), f"eigenfeature {number}"), words))
                continue
            r = np.divide(pattern, subject.spread, out=np.zeros_like(pattern), where=subject.spread > 0)  # correlations
            order = [k for k in np.argsort(-np.abs(r), kind="stable")[:_ENTRIES] if abs(r[k]) > _SHORT]
            bars = ranking_html(Ranking([Part(subject.names[k], float(r[k])) for k in order]), 1.0)
            cards.append(element("div", element("h4", f"{number}: {words}"), bars, class_="card"))
        images = subject.image_shape is not None
        items.append(
            (i, picture_row(pictures, subject.titles[i]) if images else element("div", *cards, class_="cards"))
        )
    what = (
        "The pictures are patterns to add to an input, in which red and blue may be exchanged, as they enter squared. "
        if subject.image_shape is not None
        else "The bars are correlations of the feature with the inputs; as it enters squared, signs may be exchanged. "
    )
    caption = (
        f"{what}What a feature adds at one standard deviation is its eigenvalue. Its variance under a Gaussian, by "
        "itself, is a fraction of the output’s variance on the data."
    )
    page.section("features", "Eigenfeatures", "Eigenfeatures").add(
        "The quadratic part of an output is a weighted sum of squares of a few directions in input space, uncorrelated "
        "and of variance one under the inputs. These are the ones with the largest weights.",
        figure(one_for_each("features-output", subject, items), caption),
    )


def response_section(page: Page, subject: Subject, fits: Fits, features: dict[int, EigenFeatures]) -> None:
    """Outputs along single directions through the mean: the network and its polynomials."""
    covariance, s = np.asarray(subject.inputs.covariance, float), subject.spread
    labels = distinct(shortened(subject.outputs[i], 24) for i in fits.shown)
    gradients = np.asarray(fits.polynomials[1].gradient(subject.mean))[list(fits.shown)]
    by_strength = np.argsort(-np.sqrt(np.sum((gradients * s) ** 2, axis=0)), kind="stable")
    single = [] if subject.image_shape is not None else [j for j in by_strength[:_INPUTS] if s[j] > 0]
    names = distinct(f"{shortened(subject.names[j], 20)} alone" for j in single)
    # Every direction is offered for all outputs or for none.
    ways: dict[str, list[np.ndarray]] = {"linear part": list(gradients @ covariance)}
    for j in range(min(2, subject.net.dim_in) if features else 0):
        ways[f"eigenfeature {j + 1}"] = [np.asarray(features[i].directions)[j] for i in fits.shown]
    ways |= {name: [np.eye(len(s))[j]] * len(labels) for name, j in zip(names, single, strict=True)}
    ways = {name: steps for name, steps in ways.items() if all(step.any() for step in steps)}
    panels = []
    for place, (label, i) in enumerate(zip(labels, fits.shown, strict=True)):
        lines = {name: steps[place] for name, steps in ways.items()}
        found = response_chart(subject.net, [*fits.polynomials.values()], subject.inputs, lines, i, points=_POINTS)
        for panel in found.panels:
            curves = [mark for mark in panel.marks if isinstance(mark, Curve)]
            marks = [replace(curve, x=rounded(curve.x, 5), y=rounded(curve.y, 5)) for curve in curves]
            y = replace(panel.y, title=subject.titles[i], name="value")
            panels.append(replace(panel, marks=marks, y=y, choice=(label, panel.title)))
    if not panels:
        return
    chart = Chart("The network and its polynomials along single directions", panels, ("Output", "Along"))
    page.section("responses", "Along single directions", "Responses").add(
        "From the mean of the inputs along a direction: the one along which the best linear map varies most, the "
        "strongest eigenfeatures, or a single input with all others at their mean.",
        figure(
            plot("plot-responses", chart),
            "Steps are standard deviations of the inputs along the direction. The linear part and the eigenfeatures "
            "move inputs together, as they vary together in the data; a single input moves alone, possibly to where "
            f"there are no data. {LEGEND}",
        ),
    )
