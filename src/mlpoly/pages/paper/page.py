"""The reproduction of the paper as one page: what it claims, what was measured, what to look at, how to rerun it."""

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from mlpoly.pages.network.example_section import example_section
from mlpoly.pages.network.fits import Fits
from mlpoly.pages.network.page import STYLE
from mlpoly.pages.network.subject import Subject
from mlpoly.pages.network.term_sections import formula_section, strongest_terms
from mlpoly.pages.paper.viewer import banner, feature_viewer
from mlpoly.pages.toolkit.page import Page, asset
from mlpoly.pages.toolkit.pictures import gallery_html
from mlpoly.pages.toolkit.plot import plot
from mlpoly.pages.toolkit.widgets import (
    LEGEND,
    counted,
    element,
    facts,
    figure,
    link,
    listing,
    number,
    options,
    panels,
    percent,
    span,
    table,
    tiles,
    verdict,
)
from mlpoly.studies.paper import curves
from mlpoly.studies.paper.figures import attack_gallery
from mlpoly.studies.paper.results import Results

_TITLE = "Neural networks as polynomials: the paper’s experiments, repeated"
_EXAMPLES = 12  # predictions that are taken apart
_FILES = ("network.html", "results/*.json", "figures/*.pdf", "tables/*.csv")
_COLUMNS = {
    "fvu_mixture": "FVU, mixture",
    "fvu_samples": "FVU, samples",
    "fvu_test": "FVU, test",
    "kl_samples": "KL, samples",
    "kl_test": "KL, test",
    "accuracy": "Accuracy",
    "agreement": "Agreement",
    "seconds": "Fit, seconds",
}
_PAPER = "Converting MLPs into Polynomials in Closed Form"
_EXACT = "FVU under the mixture, exact"
_TILES = (  # degree, inputs, field, name, remark, decimals
    (1, "mixture", "fvu_mixture", "unexplained by the best linear map", _EXACT, None),
    (2, "mixture", "fvu_mixture", "unexplained by the best quadratic", _EXACT, None),
    (2, "paper", "fvu_mixture", "unexplained by the paper’s route", "to the same quadratic, by SGD", None),
    (2, "mixture", "agreement", "same answer as the network", "the quadratic, on test images", 1),
)
_OPTIONS = ("hidden", "activation", "batch_size", "learning_rate", "weight_decay", "warmup", "shrinkage")
_BANDS = "Lines are means over the seeds; bands reach from the lowest seed to the highest."


def write_report(results: Results, path: Path, network: tuple[Subject, Fits] | None = None) -> Path:
    """Write the report, one HTML file that opens without a network, and return its path.

    A section for which the results hold nothing is left out; files that are in its folder by then are linked. `network`
    is a trained network with its polynomials, for the sections that write one out and take predictions apart.
    """
    page = Page(_TITLE, "A reproduction", results.about.get("version", ""))
    page.style = STYLE + asset("mlpoly.pages.paper", "paper.css")
    page.script = asset("mlpoly.pages.paper", "viewer.js")
    data = results.about.get("data") or {}
    classes, (rows, columns) = list(data.get("classes", ())), data.get("image_shape", (0, 0))
    said, *numbers = _opening(results, classes)
    page.introduce(said)
    if results.features and results.features.steps:
        page.introduce(banner(results.features.steps, classes, (rows, columns)))
    page.introduce(*numbers)
    if results.features and results.features.steps:
        caption = (
            f"Quadratic and linear polynomial under the mixture, for the network of seed {results.features.seed}. The "
            "sign of an eigenvector has no meaning, as it counts with its square; that of a linear coefficient has."
        )
        page.section("features", "What a class reads, step by step", "Figure 1: features").add(
            "The quadratic part of a logit is a sum of squares: every eigenvector is a pattern, and moves the logit by "
            "its eigenvalue times the square of how much of it is in the image. Eigenvectors are taken in the metric "
            "of the training images, so that they rank by what they change there; a picture shows how the pixels "
            "change along an eigenvector, over one standard deviation. Choose a class, and step through the training "
            "with the slider, its arrow keys, or the film below.",
            figure(feature_viewer(results.features.steps, classes, (rows, columns)), caption, "Figure 1"),
        )
    if network is not None:
        subject, fits = network
        formula_section(page, subject, fits, strongest_terms(subject, fits))
        example_section(page, subject, fits, _EXAMPLES)
    _curves(page, results)
    if results.attack:
        _attack(page, results, classes, (rows, columns))
    if results.claims:
        anchors = {section.anchor for section in page.sections}
        checked = [
            (link(f"#{c.figure}", c.name) if c.figure in anchors else c.name, c.paper, c.measured, verdict(c.holds))
            for c in results.claims
        ]
        page.section("claims", "What the paper claims, and what was measured", "Claims").add(
            "Each claim links to the figure that shows it. One that cannot be judged would need other data or longer "
            "training.",
            table(("Claim", "The paper says", "Measured here", "Holds?"), checked, stacked=True),
        )
    page.rerun_section(results.about, Path(path).parent, _FILES)
    return page.write(path)


def _opening(results: Results, classes: Sequence[str]) -> tuple[str, Markup, Markup]:
    """Return a few sentences, the numbers to remember and the facts; what the results do not hold is left out."""
    records: tuple[Any, ...] = (*results.training, *results.dynamics, *results.spectra)
    steps = sorted({record.step for record in records}) or [0]
    seeds, end = sorted({record.seed for record in records}), number(steps[-1], 6)
    data = results.about.get("data") or {}
    trained = f"For each of {counted(len(seeds), 'seed')}, a network" if len(seeds) > 1 else "A network"
    said = (
        f"This page repeats the experiments of Belrose and Rigg, “{_PAPER}” (2025). {trained} was trained on "
        f"{data.get('name', 'images')}, and at {counted(len(steps), 'checkpoint')} it was replaced by the polynomials "
        "that are closest to it in mean square, computed from its weights."
    )
    verdicts = [claim.holds for claim in results.claims]
    if verdicts:
        verbs = {True: ("holds", "hold"), False: ("does not", "do not"), None: ("cannot be judged",) * 2}
        counts = [f"{n} {verbs[kind][n > 1]}" for kind in verbs if (n := verdicts.count(kind))]
        said += f" Of {counted(len(verdicts), 'claim')} that were checked, {listing(counts)}."

    remembered: list[tuple[str, str, str]] = []

    def remember(values: Sequence[float], name: str, remark: str, decimals: int | None = 1) -> None:
        """Their mean as a tile, with the range of the seeds."""
        if values:
            seeds = f"; seeds {span(values, lambda v: percent(v, decimals))}" if len(values) > 1 else ""
            remembered.append((percent(float(np.mean(values)), decimals), name, remark + seeds))

    accuracies = [p.test_accuracy for p in results.training if p.step == steps[-1]]
    remember(accuracies, "of test images classified correctly", f"networks at step {end}")
    for degree, inputs, field, name, remark, decimals in _TILES:
        fits = [p for p in results.dynamics if (p.step, p.degree, p.inputs) == (steps[-1], degree, inputs)]
        remember([getattr(p, field) for p in fits], name, remark, decimals)

    config = {key.split(".")[-1]: value for key, value in options(results.about.get("config") or {})}
    told = {}
    if data:
        images = f"{number(data['train'], 6)} training and {number(data['test'], 6)} test images"
        size = " × ".join(map(str, data["image_shape"]))
        told["Data"] = f"{data['name']}: {images} of {size} pixels in {len(classes)} classes"
    told["Network and training"] = ", ".join(f"{o.replace('_', ' ')} {config[o]}" for o in _OPTIONS if o in config)
    told["Checkpoints"] = f"{len(steps)}, from step {steps[0]} to step {end}"
    told["Seeds"] = listing(seeds)
    return said, tiles(remembered), facts(told)


def _curves(page: Page, results: Results) -> None:
    """Everything over training: figures 2 and 3, accuracy, degree spectrum."""
    if results.dynamics:
        end, rows = max(p.step for p in results.dynamics), []
        for degree, inputs in product(curves.DEGREES, curves.INPUTS):
            fits = [p for p in results.dynamics if (p.step, p.degree, p.inputs) == (end, degree, inputs)]
            if fits:
                values = (math.fsum(getattr(p, field) for p in fits) / len(fits) for field in _COLUMNS)
                rows.append((curves.fit_name(degree, inputs), *values))
        means = "Means over the seeds. Accuracy and agreement with the network are on test images."
        caption = (
            f"{_BANDS} Circles with bars are samples, with two standard errors; under the mixture the lines are exact. "
            "Thin vertical lines mark steps 500, 1000 and 4000, between which the paper sees phases; step 0 stands one "
            "octave before step 1. The paper’s convention, that of its code, is to divide by one variance over all "
            f"logits. {LEGEND}"
        )
        page.section("fvu", "How far the polynomials are from the network", "Figure 2: FVU").add(
            "The fraction of the variance of the logits that a polynomial leaves unexplained, the FVU, is 0 for a "
            "perfect copy of the network and 1 for a constant.",
            figure(plot("plot-fvu", curves.distance_chart(results.dynamics, "fvu")), caption, "Figure 2"),
            element("h3", "Every polynomial at the last checkpoint"),
            table(("Polynomial", *_COLUMNS.values()), rows, means),
        )
        caption = f"{_BANDS} Bars are two standard errors; thin vertical lines as in Figure 2."
        page.section("kl", "The same in KL divergence", "Figure 3: KL").add(
            "A softmax turns logits into probabilities, and this is how far the polynomial’s are from the network’s: "
            "the mean of KL(softmax of the network ‖ softmax of the polynomial).",
            figure(plot("plot-kl", curves.distance_chart(results.dynamics, "kl")), caption, "Figure 3"),
        )
    if results.training:
        chart = curves.accuracy_chart(results.training, results.dynamics)
        page.section("accuracy", "How often they are right", "Accuracy").add(
            "The accuracy of the networks, and of every polynomial in their place.",
            figure(plot("plot-accuracy", chart), f"{_BANDS} Polynomials are judged on the test images; {chart.note}."),
        )
    if results.spectra:
        page.section("spectrum", "How much of the network each degree explains", "Degree spectrum").add(
            "The variance of the logits, divided among polynomial degrees: it says in advance what a polynomial of "
            "any degree will leave unexplained. Under the mixture a part of it lies between the means of the classes.",
            figure(plot("plot-spectrum", curves.spectrum_chart(results.spectra)), f"{_BANDS} {LEGEND}"),
        )


def _attack(page: Page, results: Results, classes: list[str], shape: tuple[int, int]) -> None:
    section = page.section("attack", "Attacks found in the polynomial, tried on the network", "Figures 4, 5: attacks")
    caption = f"{_BANDS} Grey: the network under the controls."
    ablations = [a for attack in results.attack for a in attack.ablations]
    if ablations:
        section.add(
            "The singular vectors of the linear polynomial span all that it reads. If the network reads the same, its "
            "accuracy must fall as they are removed from every test image, strongest first. Random directions and "
            "principal components of the images are the controls. The paper does not say which network it attacked; "
            "the curve in its code begins at the accuracy that this network has at about step 512, so that step is "
            "shown beside the last one.",
            figure(plot("plot-ablation", curves.ablation_chart(ablations, len(classes))), caption, "Figure 5"),
        )
    shown = {f"step {a.step}": a.pictures for a in reversed(results.attack)}  # the first seed of every step
    items = [(step, gallery_html(attack_gallery(p, classes, shape))) for step, p in reversed(shown.items())]
    caption = (
        "Images without these directions. Below each is the class that the network chooses, with ✓ where it is right. "
        "All share one scale: black is ink, red is below zero."
    )
    section.add(figure(panels("ablated", "Network at", items), caption, "Figure 4"))
