"""Curves of the paper's figures: polynomials against the network over training, and under attacks.

Records of several seeds are one curve, with a band.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Literal

from mlpoly.charts.chart import Area, Axis, Chart, Curve, Dash, Mark, Panel, Points, degree_colour
from mlpoly.pages.toolkit.widgets import listing, percent
from mlpoly.studies.paper.results import Ablation, Point, Spectrum, TrainingPoint

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
# The attack comes first, then its controls.
_DIRECTIONS = {"singular": "singular vectors", "random": "random directions", "pca": "principal components"}
_DASHES: tuple[Dash, ...] = ("solid", "dash", "dot")
_PHASES = (500, 1000, 4000)  # steps between which the paper sees phases of training


def curve_over_seeds(records: Iterable[Any], x: str, y: str | Callable[[Any], float], label: str, **look: Any) -> Curve:
    """Return a curve of the means over the seeds, with a band from the lowest seed to the highest.

    `x` and `y` are attributes of a record, of which there is one for each seed and x; `y` may be a function of it.
    Values that are not finite are left out, and so is an x without any other. `look`: further fields of the `Curve`.
    """
    value = attrgetter(y) if isinstance(y, str) else y
    groups: dict[float, list[float]] = {}
    for record in records:
        if math.isfinite(height := float(value(record))):
            groups.setdefault(getattr(record, x), []).append(height)
    order = sorted(groups)
    seeds = max(map(len, groups.values()), default=0)
    band: dict[str, Any] = {
        "low": [min(groups[key]) for key in order],
        "high": [max(groups[key]) for key in order],
        "spread": f"{seeds} seeds",
    }
    means = [math.fsum(groups[key]) / len(groups[key]) for key in order]
    return Curve(label, order, means, **look, **(band if seeds > 1 else {}))


def points_over_seeds(records: Sequence[Any], x: str, y: str, label: str, colour: str) -> Points:
    """Return the means over the seeds of a sampled quantity, with bars of two standard errors.

    Seeds may share their samples, so that their errors do not average out: the bars are means too.
    """
    heights, errors = curve_over_seeds(records, x, y, label), curve_over_seeds(records, x, f"{y}_error", label)
    return Points(label, heights.x, heights.y, [2 * error for error in errors.y], colour)


def step_axis(steps: Iterable[int], phases: bool = False) -> Axis:
    """Return a logarithmic axis of training steps, with step 0 one octave before step 1, and lines at the phases."""
    first, last = min(steps), max(1, *steps)
    jump = 2 if last > 64 else 1
    powers = [2**i for i in range(0, int(math.log2(last)) + 1, jump) if 2**i >= first]
    names = [f"{p >> 20}M" if p >= 2**20 else f"{p >> 10}k" if p >= 2**10 else str(p) for p in powers]
    ticks = [(0.5, "0")] * (first == 0) + list(zip(powers, names, strict=True))
    limits = (max(first, 0.5) / 1.25, 1.25 * last)
    guides = [(float(p), "") for p in _PHASES if first < p < last] if phases else []
    return Axis("training step", "step", "log", ticks=ticks, limits=limits, guides=guides, zero=0.5)


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


def ablation_chart(ablations: Sequence[Ablation], classes: int) -> Chart:
    """Describe the accuracy on images without k directions (figure 5); the number of classes sets that of chance.

    Every step, the last first, has a panel for each kind of directions; its first one has the network under the
    controls too, in grey.
    """
    last = max(a.k for a in ablations)
    x = Axis("directions removed", "k", limits=(-0.02 * last - 0.1, last * 1.02 + 0.1))
    levels = [(0.5, "50 %"), (1 / classes, f"chance, {percent(1 / classes, 0)}")]
    y = Axis("accuracy on test images", "accuracy", percent=True, limits=(0.0, 1.03), guides=levels)
    panels: list[Panel] = []
    for step in sorted({a.step for a in ablations}, reverse=True):
        records = {k: [a for a in ablations if (a.step, a.directions) == (step, k)] for k in _DIRECTIONS}
        kinds = {_DIRECTIONS[kind]: found for kind, found in records.items() if found}
        for i, (words, found) in enumerate(kinds.items()):
            marks: list[Mark] = [
                curve_over_seeds(found, "k", model, model, colour=colour, dots=True) for model, colour in MODELS.items()
            ]
            for (name, controls), dash in list(zip(kinds.items(), _DASHES, strict=False))[1:] if i == 0 else ():
                look: dict[str, Any] = {"colour": "grey", "dash": dash, "width": 1.8, "dots": True}
                marks.append(curve_over_seeds(controls, "k", "network", f"network, {name}", **look))
            panels.append(Panel(marks, x, y, words, (f"step {step}", words)))
    return Chart("Accuracy against the number of directions removed", panels, ("Network at", "Removed"))
