"""Polynomials against the network over training: unexplained variance, KL divergence, accuracy, degree spectrum."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from mlpoly.charts.chart import Area, Axis, Chart, Mark, Panel, degree_colour
from mlpoly.pages.toolkit.numbers import listing, percent
from mlpoly.studies.paper.figures.over_seeds import curve_over_seeds, points_over_seeds, step_axis
from mlpoly.studies.paper.results import Point, Spectrum, TrainingPoint

MODELS = {"network": "black", "linear": "orange", "quadratic": "blue"}  # and their colours
DEGREES = {1: "linear", 2: "quadratic"}
INPUTS: dict[str, tuple[str, dict[str, Any]]] = {  # the fits that count most are drawn boldest
    "mixture": ("mixture, exact", {"dash": "solid", "width": 2.6}),
    "paper": ("mixture, paper’s route", {"dash": "dash", "width": 2.2}),
    "gaussian": ("N(mean, cov)", {"dash": "dashdot", "width": 1.6}),
    "standard": ("N(0, I)", {"dash": "dot", "width": 1.6}),
}
_SAMPLED = ("mixture", "paper")  # fits that get points with errors; on all of them they would hide the lines
_KINDS = {  # the option, the quantity of the lines, and that of the points
    "fvu": (
        ("under the mixture", "fvu_mixture", "fvu_samples"),
        ("on test images", "fvu_test", "fvu_test"),
        ("under its own inputs", "fvu_own", ""),
        ("paper’s convention", "fvu_flattened", ""),
    ),
    "kl": (("on samples of the mixture", "kl_samples", "kl_samples"), ("on test images", "kl_test", "kl_test")),
}


def fit_name(degree: int, inputs: str) -> str:
    """Return the name of a polynomial: its degree, and what it was fitted under."""
    return f"{DEGREES.get(degree, f'degree {degree}')}, {INPUTS[inputs][0]}"


def _fit_marks(points: Sequence[Point], y: str, sampled: str = "") -> list[Mark]:
    """Curves of `y` for all polynomials that have it; points of `sampled` for those under the mixture."""
    curves: list[Mark] = []
    dots: list[Mark] = []
    for degree in sorted({p.degree for p in points}):
        for inputs, (_, look) in INPUTS.items():
            records = [p for p in points if (p.degree, p.inputs) == (degree, inputs)]
            name, colour = fit_name(degree, inputs), MODELS.get(DEGREES.get(degree, ""), "violet")
            curve = curve_over_seeds(records, "step", y, name, colour=colour, **look)
            if curve.x:
                curves.append(curve)
                if sampled and inputs in _SAMPLED:
                    dots.append(points_over_seeds(records, "step", sampled, name, colour))
    return [*curves, *dots]


def distance_chart(points: Sequence[Point], measure: Literal["fvu", "kl"]) -> Chart:
    """Describe how far polynomials are from the network over training (figures 2 and 3).

    Lines are in closed form for the FVU under the mixture; points are sampled.
    """
    title = "fraction of variance unexplained" if measure == "fvu" else "KL divergence from the network, nats"
    x, y = step_axis([p.step for p in points], phases=True), Axis(title, measure.upper(), "log")
    panels = [Panel(_fit_marks(points, line, dots), x, y, name, (name,)) for name, line, dots in _KINDS[measure]]
    note = "circles: on samples, with two standard errors; verticals: steps 500, 1000 and 4000"
    return Chart(f"{title[0].upper()}{title[1:]}, over training", panels, ("Measured",), note, scales=True)


def accuracy_chart(training: Sequence[TrainingPoint], points: Sequence[Point]) -> Chart:
    """Describe how often network and polynomials are right, how often they agree, and the network's loss."""
    x = step_axis([t.step for t in training], phases=True)
    looks: dict[str, dict[str, Any]] = {"test": {"width": 3.4}, "train": {"colour": "grey", "dash": "dash"}}
    network = {
        kind: [
            curve_over_seeds(training, "step", f"{part}_{kind}", f"network, {part} images", **look)
            for part, look in looks.items()
        ]
        for kind in ("accuracy", "loss")
    }
    right = [*network["accuracy"], *_fit_marks(points, "accuracy")]
    fraction = Axis("fraction classified correctly", "accuracy", percent=True, limits=(0.0, 1.03))
    same = Axis("fraction with the network’s answer", "agreement", percent=True)
    panels = [Panel(right, x, fraction, choice=("accuracy",))]
    if points:
        panels.append(Panel(_fit_marks(points, "agreement"), x, same, choice=("agreement",)))
    loss = Axis("cross-entropy, nats", "loss", limits=(0.0, None))
    panels.append(Panel(network["loss"], x, loss, choice=("loss of the network",)))
    named = {"network": network["accuracy"][0].label} | {n: fit_name(d, "mixture") for d, n in DEGREES.items()}
    ends = [f"{n} {percent(m.y[-1])}" for n, label in named.items() for m in right if m.label == label]
    label = "Accuracy of the network and its polynomials, over training"
    return Chart(label, panels, ("Measured",), f"correct at the end: {listing(ends)}")


def spectrum_chart(spectra: Sequence[Spectrum]) -> Chart:
    """Describe how the network's variance spreads over polynomial degrees, over training.

    The first panel has what is left above each degree, which under one Gaussian is the FVU of the best polynomial of
    that degree; the others stack the degrees.
    """

    def layers(start: int, stop: int | None = None) -> Callable[[Spectrum], float]:
        return lambda s: sum((s.between, *s.shares, s.rest)[start:stop])

    x, panels = step_axis([s.step for s in spectra]), []
    for inputs, words in (("gaussian", "N(mean, cov)"), ("mixture", "mixture of the classes")):
        records = [s for s in spectra if s.inputs == inputs]
        if not records:
            continue
        count = max(len(record.shares) for record in records)
        colours = {f"degree {k}": degree_colour(k) for k in range(1, count + 1)}
        left = [
            curve_over_seeds(records, "step", layers(k), f"above {name}", colour=colour, width=1.8)
            for k, (name, colour) in enumerate(colours.items(), 2)
        ]
        between = any(record.between > 0 for record in records)
        colours = {"between classes": "area-between", **colours, f"rest, above degree {count}": "area-rest"}
        areas = []
        for i, (name, colour) in enumerate(colours.items()):
            curve = curve_over_seeds(records, "step", layers(i, i + 1), name)
            areas.append(Area(name, curve.x, curve.y, colour))
        whole = Axis("fraction of the variance", "fraction", percent=True, limits=(0.0, 1.0))
        fraction = replace(whole, limits=(0.0, None))
        log = Axis("fraction of the variance above each degree", "fraction", "log", percent=True)
        panels += [
            Panel(left, x, log, choice=(words, "left above each degree")),
            Panel(areas[not between :], x, whole, choice=(words, "all degrees")),
            Panel(areas[2:], x, fraction, choice=(words, "above degree 1")),
        ]
    label = "Fractions of the variance of the network by polynomial degree, over training"
    return Chart(label, panels, ("Inputs", "Shown"))
