"""The reproduction of the paper as one page: what it claims, what was measured, what to look at, how to rerun it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlpoly.page.html import element, link
from mlpoly.page.numbers import counted, listing, number, percent, span
from mlpoly.page.page import Page, asset
from mlpoly.page.plot import View, with_scales
from mlpoly.page.rerun import rerun_section
from mlpoly.page.widgets import class_name, facts, figure, options, table, tiles, verdict
from mlpoly.studies.paper.report.attacks import ablation_plot, attack_pictures, steering_plot
from mlpoly.studies.paper.report.breakdown import panels
from mlpoly.studies.paper.report.curves import step_axis, training_plot
from mlpoly.studies.paper.report.explain import explanation, written_out
from mlpoly.studies.paper.report.fits import fit_table, fit_traces, last, network_traces, spectrum_plot
from mlpoly.studies.paper.report.viewer import banner, feature_viewer
from mlpoly.studies.paper.results import Features, Results

__all__ = ["write_report"]

_TITLE = "Neural networks as polynomials: the paper’s experiments, repeated"
_PAPER = "Converting MLPs into Polynomials in Closed Form"
_FILES = ("results.json", "figures/*.pdf", "tables/*.csv")
_PHASES = (500, 1000, 4000)  # steps
_SHOWN = 3  # the class that the paper shows
_BANDS = "Lines are means over the seeds; bands reach from the lowest seed to the highest."
_TOLD = {  # options that are told at the top, if they are there, and how
    "hidden": "{} hidden units",
    "activation": "{}",
    "batch_size": "batches of {}",
    "learning_rate": "learning rate {}",
    "weight_decay": "weight decay {}",
    "warmup": "{} steps of warm-up",
    "shrinkage": "class covariances shrunk by {}",
}


def write_report(results: Results, path: Path) -> Path:
    """Write the report, one HTML file that opens without a network.

    Parameters
    ----------
    results : Results
        A section for which it holds nothing is left out.
    path : Path
        Usually ``report.html`` in the folder of the results. The figures, tables and results.json beside it are linked
        if they are there by then, so write the report last.

    Returns
    -------
    Path
        The file.
    """
    path = Path(path)
    made = f"mlpoly {results.about.get('version', '')}".strip()
    page = Page(_TITLE, f"A reproduction by {made}", f"Made by {made}. This page loads nothing from a network.")
    page.style, page.script = (asset("mlpoly.studies.paper.report", name) for name in ("paper.css", "viewer.js"))
    page.introduce(_summary(results))
    if results.features and results.features.steps:
        page.introduce(banner(results.features.steps, _classes(results), _shape(results)))
    page.introduce(tiles(_tiles(results)), facts(_facts(results)))
    if results.features:
        _features(page, results.features, _classes(results), _shape(results))
    if results.dynamics:
        _distances(page, results)
    if results.training:
        _accuracy(page, results)
    if results.spectra:
        plot = spectrum_plot("plot-spectrum", results.spectra, step_axis(_steps(results)))
        page.section("spectrum", "How much of the network lives at each degree", "Degree spectrum").add(
            "The variance of the logits, divided among polynomial degrees: it says in advance what a polynomial of "
            "any degree will leave unexplained. Under the mixture a part of it lies between the means of the classes.",
            figure(plot.html(), "Means over the seeds. A click on a name in the legend hides it."),
        )
    if results.attack:
        _attack(page, results)
    if results.claims:
        _claims(page, results)
    rerun_section(page, results.about, path.parent, _FILES)
    return page.write(path)


# -- what the results say of themselves --------------------------------------------------------------------------------


def _data(results: Results) -> dict[str, Any]:
    return dict(results.about.get("data") or {})


def _classes(results: Results) -> list[str]:
    """Names of the classes by label; "classes" may be their number."""
    given = _data(results).get("classes", 10)
    return [str(c) for c in (range(given) if isinstance(given, int) else given)]


def _shape(results: Results) -> tuple[int, int]:
    rows, columns = _data(results)["image_shape"]
    return int(rows), int(columns)


def _steps(results: Results) -> list[int]:
    records: tuple[Any, ...] = (*results.training, *results.dynamics, *results.spectra)
    return sorted({record.step for record in records}) or [0]


def _seeds(results: Results) -> list[int]:
    records: tuple[Any, ...] = (*results.training, *results.dynamics, *results.spectra)
    return sorted({record.seed for record in records})


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


# -- the top of the page -----------------------------------------------------------------------------------------------


def _summary(results: Results) -> str:
    """The findings in a few sentences."""
    steps, data = _steps(results), _data(results).get("name", "images")
    seeds = counted(len(_seeds(results)), "seed")
    said = [
        f"This page repeats the experiments of Belrose and Rigg, “{_PAPER}” (2025). For each of {seeds} a network was "
        f"trained on {data}, and at {counted(len(steps), 'checkpoint')} it was replaced by the polynomials that are "
        "closest to it in mean square, computed from its weights."
    ]
    accuracy = [p.test_accuracy for p in results.training if p.step == steps[-1]]
    if accuracy:
        said.append(f"After {number(steps[-1], 6)} steps it recognises {span(accuracy, percent)} of the test images.")
    fits = [
        [p.fvu_mixture for p in last(results.dynamics, *key)] for key in ((1, "mixture"), (2, "mixture"), (2, "paper"))
    ]
    linear, quadratic, paper = (span(values, lambda v: percent(v, 2)) if values else "" for values in fits)
    if linear and quadratic:
        said.append(
            "Where inputs follow one Gaussian for each class, the best linear map leaves "
            f"{linear} of the variance of its logits unexplained and the best quadratic {quadratic}"
            + (f", while the paper’s own route to that quadratic leaves {paper}." if paper else ".")
        )
    verdicts = [claim.holds for claim in results.claims]
    if verdicts:
        good, bad, unclear = (verdicts.count(kind) for kind in (True, False, None))
        words = ((good, "holds" if good == 1 else "hold"), (bad, "does not" if bad == 1 else "do not"))
        counts = [f"{n} {verb}" for n, verb in (*words, (unclear, "cannot be judged")) if n]
        said.append(f"Of {counted(len(verdicts), 'claim')} that were checked, {listing(counts)}.")
    return " ".join(said)


def _tiles(results: Results) -> list[tuple[str, str, str]]:
    end, items = _steps(results)[-1], []
    accuracy = [p.test_accuracy for p in results.training if p.step == end]
    if accuracy:
        items.append((percent(_mean(accuracy)), "of test images right", f"the networks at step {number(end, 6)}"))
    for degree, name in ((1, "linear map"), (2, "quadratic")):
        fits = last(results.dynamics, degree, "mixture")
        if fits:
            share = _mean([p.fvu_mixture for p in fits])
            items.append((percent(share, 2), f"unexplained by the best {name}", "FVU under the mixture, exact"))
    if fits:
        items.append(
            (percent(_mean([p.agreement for p in fits])), "same answer as the network", "the quadratic, on test images")
        )
    if results.claims:
        good = sum(claim.holds is True for claim in results.claims)
        items.append((f"{good} of {len(results.claims)}", "claims of the paper hold", "see the table below"))
    return items


def _facts(results: Results) -> dict[str, object]:
    """What was done."""
    data, steps = _data(results), _steps(results)
    config = {key.split(".")[-1]: value for key, value in options(results.about.get("config") or {})}
    told = [words.format(config[name]) for name, words in _TOLD.items() if name in config]
    size = " × ".join(map(str, data.get("image_shape", ())))
    images = f"{number(data.get('train', 0), 6)} training and {number(data.get('test', 0), 6)} test images"
    kinds = {
        "Data": f"{data.get('name', 'images')}: {images} of {size} pixels in {len(_classes(results))} classes"
        if data
        else "",
        "Network and training": ", ".join(told),
        "Checkpoints": f"{len(steps)}, from step {steps[0]} to step {number(steps[-1], 6)}",
        "Seeds": listing(_seeds(results)),
    }
    return {name: words for name, words in kinds.items() if words}


# -- curves over training ----------------------------------------------------------------------------------------------


def _distances(page: Page, results: Results) -> None:
    """Figures 2 and 3; the plots show where the paper sees phases."""
    points, steps = results.dynamics, _steps(results)
    views = [
        View(("under the mixture",), fit_traces(points, "fvu_mixture", "FVU", "fvu_samples")),
        View(("on test images",), fit_traces(points, "fvu_test", "FVU", "fvu_test")),
        View(("under its own inputs",), fit_traces(points, "fvu_own", "FVU")),
        View(("paper’s convention",), fit_traces(points, "fvu_flattened", "FVU")),
    ]
    label = "Fraction of variance unexplained by linear and quadratic polynomials, over training"
    plot = training_plot("plot-fvu", label, with_scales(views), steps, "fraction of variance unexplained", _PHASES)
    caption = (
        f"{_BANDS} Circles with bars are samples, with two standard errors; under the mixture the lines are exact. "
        "Thin verticals mark steps 500, 1000 and 4000, between which the paper sees phases; step 0 stands one octave "
        "before step 1. The paper’s convention, that of its code, is one variance over all logits. A click on a name "
        "in the legend hides it."
    )
    page.section("fvu", "How far the polynomials are from the network", "Figure 2: FVU").add(
        "The fraction of the variance of the logits that a polynomial leaves unexplained, the FVU, is 0 for a perfect "
        "copy of the network and 1 for a constant.",
        figure(plot.html(), caption, "Figure 2"),
        element("h3", "Every polynomial at the last checkpoint"),
        fit_table(points),
    )
    kinds = (("on samples of the mixture", "kl_samples"), ("on test images", "kl_test"))
    views = [View((name,), fit_traces(points, y, "KL", y)) for name, y in kinds]
    label = "KL divergence of linear and quadratic polynomials from the network, over training"
    plot = training_plot("plot-kl", label, with_scales(views), steps, "KL divergence, nats", _PHASES)
    page.section("kl", "The same in KL divergence", "Figure 3: KL").add(
        "Logits become probabilities, and this is how far the polynomial’s are from the network’s: the mean of "
        "KL(softmax of the network ‖ softmax of the polynomial).",
        figure(plot.html(), f"{_BANDS} Bars are two standard errors; thin verticals as in Figure 2.", "Figure 3"),
    )


def _accuracy(page: Page, results: Results) -> None:
    points = results.dynamics
    right = {"yaxis": {"tickformat": ".0%", "title": {"text": "share of images right"}}}
    same = {"yaxis": {"tickformat": ".0%", "title": {"text": "share of test images with the network’s answer"}}}
    loss = {"yaxis": {"title": {"text": "cross-entropy, nats"}}}
    views = [
        View(
            ("accuracy",),
            network_traces(results.training, "accuracy") + fit_traces(points, "accuracy", "accuracy"),
            right,
        )
    ]
    if points:
        views.append(View(("agreement",), fit_traces(points, "agreement", "agreement"), same))
    views.append(View(("loss of the network",), network_traces(results.training, "loss"), loss))
    label = "Accuracy of the network and its polynomials, over training"
    plot = training_plot("plot-accuracy", label, views, _steps(results))
    page.section("accuracy", "How often they are right", "Accuracy").add(
        "The networks’ accuracy, and that of every polynomial put in their place.",
        figure(plot.html(), f"{_BANDS} Polynomials are judged on the test images."),
    )


# -- features and attacks ----------------------------------------------------------------------------------------------


def _features(page: Page, features: Features, classes: list[str], shape: tuple[int, int]) -> None:
    if features.steps:
        viewer = feature_viewer("viewer", features.steps, classes, shape, chosen=_SHOWN)
        caption = (
            f"Quadratic and linear polynomial under the mixture, for the network of seed {features.seed}. The sign of "
            "an eigenvector has no meaning, as it counts with its square; that of a linear coefficient has."
        )
        page.section("features", "What a class reads, step by step", "Figure 1: features").add(
            "The quadratic part of a logit is a sum of squares: every eigenvector is a pattern, and it moves the "
            "logit by its eigenvalue times the square of how much of it is in the image. Eigenvectors are taken in the "
            "metric of the training images, so that they rank by what they change there; a picture shows the change "
            "of the pixels along one by one standard deviation. Choose a class, and go through the training with the "
            "slider, its arrow keys, or the film below.",
            figure(viewer, caption, "Figure 1"),
        )
    if features.explanations:
        items = [explanation(e, classes, shape) for e in features.explanations]
        caption = (
            "Each bar begins where the one above it ends. The parts are taken about the mean of the training images."
        )
        page.section("explanation", "One image taken apart", "Explanations").add(
            "The quadratic’s logit is a constant, a linear part, and one term for every eigenvector. They add up to "
            "it exactly, so one can say what moved it.",
            figure(panels("explained", "Image", items), caption),
        )
    if features.formulas:
        written = [(class_name(classes, f.label), written_out(f, classes, shape)) for f in features.formulas]
        caption = (
            "x with its row and column is a pixel minus its mean over the training images. The effect of a term is "
            "its standard deviation over them, taken as one Gaussian. The best quadratic in a few pixels is exact "
            "under that Gaussian; the pixels were chosen one by one, each to explain most of what was left."
        )
        page.section("formula", "One polynomial written out", "In full").add(
            "The quadratic of a class is an ordinary polynomial in the pixels, and can be written down. With so many "
            "terms nobody would read it, which is why eigenvectors stand above; but a few pixels and a few terms "
            "already say much.",
            figure(panels("written", "Class", written), caption),
        )


def _attack(page: Page, results: Results) -> None:
    section = page.section("attack", "Attacks found in the polynomial, tried on the network", "Figures 4, 5: attacks")
    ablations = [a for attack in results.attack for a in attack.ablations]
    if ablations:
        plot = ablation_plot("plot-ablation", ablations, len(_classes(results)))
        section.add(
            "The singular vectors of the linear polynomial span all that it reads. If the network reads the same, it "
            "must suffer when they are removed from every test image, strongest first. Random directions and principal "
            "components of the images are the controls. The paper does not say which network it attacked; the curve "
            "in its code begins at the accuracy that this network has at about step 512, so both are here.",
            figure(plot.html(), f"{_BANDS} Grey: the network under the controls.", "Figure 5"),
        )
    shown = {f"step {a.step}": a.pictures for a in reversed(results.attack)}  # the first seed of every step
    items = [(step, attack_pictures(p, _classes(results), _shape(results))) for step, p in reversed(shown.items())]
    section.add(
        figure(
            panels("ablated", "Network at", items),
            "What the network reads in images without these directions; ✓ where it is right. One grey scale for all.",
            "Figure 4",
        )
    )
    steering = [s for attack in results.attack for s in attack.steering]
    if steering:
        section.add(
            element("h3", "Steering along an eigenvector", id="steering"),
            "Every test image is moved along the strongest eigenvector of a class; the controls are noise, another for "
            "each image, and one random vector for all. The unit of length is the mean distance of test images from "
            "their mean.",
            figure(steering_plot("plot-steering", steering).html(), f"{_BANDS} Grey: the network under the controls."),
        )


def _claims(page: Page, results: Results) -> None:
    anchors = {section.anchor for section in page.sections}
    rows = [
        (link(f"#{c.figure}", c.name) if c.figure in anchors else c.name, c.paper, c.measured, verdict(c.holds))
        for c in results.claims
    ]
    page.section("claims", "What the paper claims, and what was measured", "Claims").add(
        "Each claim links to the figure that shows it. One that cannot be judged would need other data, or a longer "
        "training than this one.",
        table(("Claim", "The paper says", "Measured here", "Holds?"), rows, stacked=True),
    )
