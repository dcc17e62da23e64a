"""Attacks found in the polynomials: accuracy without singular directions, and on images that are moved."""

from collections.abc import Iterator, Sequence
from typing import Any

from mlpoly.charts.chart import Axis, Chart, Dash, Mark, Panel
from mlpoly.pages.toolkit.numbers import percent
from mlpoly.studies.paper.figures.over_seeds import curve_over_seeds
from mlpoly.studies.paper.figures.training_curves import MODELS
from mlpoly.studies.paper.results import Ablation, Steering

# The attack comes first, then its controls.
_DIRECTIONS = {"singular": "singular vectors", "random": "random directions", "pca": "principal components"}
_MOVES = {"eigenvector": "along an eigenvector", "noise": "by noise", "random": "along a random vector"}
_DASHES: tuple[Dash, ...] = ("solid", "dash", "dot")


def _accuracy_panels(kinds: dict[str, list[Any]], step: int, x: Axis, y: Axis) -> list[Panel]:
    """A panel of accuracies for every kind of attack; the first has the network under the controls too, in grey."""
    panels: list[Panel] = []
    for words, records in kinds.items():
        marks: list[Mark] = [
            curve_over_seeds(records, x.name, model, model, colour=colour, dots=True)
            for model, colour in MODELS.items()
        ]
        for (name, controls), dash in list(zip(kinds.items(), _DASHES, strict=False))[1:] if not panels else ():
            look: dict[str, Any] = {"colour": "grey", "dash": dash, "width": 1.8, "dots": True}
            marks.append(curve_over_seeds(controls, x.name, "network", f"network, {name}", **look))
        panels.append(Panel(marks, x, y, words, (f"step {step}", words)))
    return panels


def _by_kind(records: Sequence[Any], field: str, words: dict[str, str]) -> Iterator[tuple[int, dict[str, list[Any]]]]:
    """Every step, the last first, with its records of every kind that there is, by the words for the kind."""
    for step in sorted({r.step for r in records}, reverse=True):
        kinds = {said: [r for r in records if (r.step, getattr(r, field)) == (step, k)] for k, said in words.items()}
        yield step, {said: found for said, found in kinds.items() if found}


def ablation_chart(ablations: Sequence[Ablation], classes: int) -> Chart:
    """Describe the accuracy on images without k directions (figure 5); the number of classes sets that of chance."""
    last = max(a.k for a in ablations)
    x = Axis("directions removed", "k", limits=(-0.02 * last - 0.1, last * 1.02 + 0.1))
    levels = [(0.5, "50 %"), (1 / classes, f"chance, {percent(1 / classes, 0)}")]
    y = Axis("accuracy on test images", "accuracy", percent=True, limits=(0.0, 1.03), guides=levels)
    kinds = _by_kind(ablations, "directions", _DIRECTIONS)
    panels = [panel for step, found in kinds for panel in _accuracy_panels(found, step, x, y)]
    return Chart("Accuracy against the number of directions removed", panels, ("Network at", "Removed"))


def steering_chart(steering: Sequence[Steering]) -> Chart:
    """Describe what moving every image does: accuracies, and how far the quadratic is from the network."""
    x = Axis("length of the move", "strength")
    y = Axis("accuracy on moved test images", "accuracy", percent=True, limits=(0.0, 1.03))
    panels: list[Panel] = []
    for step, kinds in _by_kind(steering, "direction", _MOVES):
        panels += _accuracy_panels(kinds, step, x, y)
        for field, title, unit in (("fvu", "FVU of the quadratic", ""), ("kl", "KL of the quadratic", ", nats")):
            marks = [
                curve_over_seeds(rows, "strength", field, f"quadratic, {words}", colour="blue", dash=dash, dots=True)
                for (words, rows), dash in zip(kinds.items(), _DASHES, strict=False)
            ]
            panels.append(Panel(marks, x, Axis(title + unit, field.upper(), "log"), choice=(f"step {step}", title)))
    return Chart("Accuracy against the length of the move", panels, ("Network at", "Shown"))
