"""Attacks found in the polynomials: accuracy without singular directions."""

from collections.abc import Sequence
from typing import Any

from mlpoly.charts.chart import Axis, Chart, Dash, Mark, Panel
from mlpoly.pages.toolkit.numbers import percent
from mlpoly.studies.paper.figures.over_seeds import curve_over_seeds
from mlpoly.studies.paper.figures.training_curves import MODELS
from mlpoly.studies.paper.results import Ablation

# The attack comes first, then its controls.
_DIRECTIONS = {"singular": "singular vectors", "random": "random directions", "pca": "principal components"}
_DASHES: tuple[Dash, ...] = ("solid", "dash", "dot")


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
