"""The paper's figures as files for print: the curves, and pictures of what a class reads and of attacked images."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mlpoly.arrays import as_integer
from mlpoly.charts.chart import Chart, Gallery, Picture
from mlpoly.charts.matplotlib import draw
from mlpoly.charts.style import save_figure
from mlpoly.files import make_folder
from mlpoly.pages.toolkit.widgets import signed
from mlpoly.studies.paper.class_features import align
from mlpoly.studies.paper.curves import ablation_chart, accuracy_chart, distance_chart, spectrum_chart
from mlpoly.studies.paper.results import AttackPictures, FeatureStep, Results

_NOTE = (
    "each image is scaled by its own largest pixel (red positive, blue negative); signs of eigenvectors mean nothing"
)
_ROWS = (("positive", 0, "largest"), ("positive", 1, "2nd largest"), ("negative", 0, "lowest"))  # sign, rank, words


def write_figures(results: Results, folder: Path, label: int = 3) -> list[Path]:
    """Every figure that the results allow; those of one class show `label`. The numbers are those of the paper."""
    make_folder(folder)
    written: list[Path] = []

    def save(name: str, *pictures: Chart | Gallery, title: str = "") -> None:
        written.extend(save_figure(draw(*pictures, title=title), folder, name))

    def first(chart: Chart, count: int) -> Chart:
        return replace(chart, panels=chart.panels[:count])

    rows, columns = results.about["data"]["image_shape"]
    shape, classes = (rows, columns), [str(c) for c in results.about["data"]["classes"]]
    label = min(label, len(classes) - 1)
    if results.dynamics:
        save("figure-2-fvu", first(distance_chart(results.dynamics, "fvu"), 2))
        save("figure-3-kl", first(distance_chart(results.dynamics, "kl"), 2))
        save("accuracy", first(accuracy_chart(results.training, results.dynamics), 2))
        save("spectrum", first(spectrum_chart(results.spectra), 2))
    if results.features is not None:
        save("figure-1-features", training_gallery(results.features.steps, label, shape))
    for step in sorted({a.step for a in results.attack}):
        attacks, title = [a for a in results.attack if a.step == step], f"The network at step {step}"
        ablations = ablation_chart([a for attack in attacks for a in attack.ablations], len(classes))
        save(f"figure-4-ablated-{step}", attack_gallery(attacks[0].pictures, classes, shape, 11), title=title)
        save(f"figure-5-attack-{step}", first(ablations, 1), title=title)
    return written


def _spread(count: int, most: int) -> list[int]:
    """Return at most `most` of `count` places, evenly spread, with the first and the last."""
    return [int(i) for i in np.round(np.linspace(0, count - 1, min(most, count)))]


def training_gallery(
    steps: Sequence[FeatureStep], label: int, image_shape: tuple[int, int], columns: int = 10
) -> Gallery:
    """Describe what one class reads over training, in a column for each of at most so many checkpoints (figure 1).

    Rows are eigenvectors of the quadratic with the largest positive and the most negative eigenvalues, then the
    coefficients of the best linear map.
    """
    own = sorted((s for s in steps if s.label == label), key=lambda s: s.step)
    if not own:
        raise ValueError(f"steps has none of label={label}, only of {sorted({s.label for s in steps})}.")
    shown = align([own[i] for i in _spread(len(own), as_integer("columns", columns, 1))])

    def cell(step: FeatureStep, sign: str, rank: int) -> Picture | None:
        values, vectors = getattr(step, sign), getattr(step, f"{sign}_vectors")
        if rank >= len(values):
            return None
        return Picture(np.reshape(vectors[rank], image_shape), "", signed(float(values[rank]), 2), sign)

    rows: list[tuple[str, Sequence[Picture | None]]] = [
        (f"{words}\neigenvalue", [cell(step, sign, rank) for step in shown]) for sign, rank, words in _ROWS
    ]
    rows.append(("linear\ncoefficients", [Picture(np.reshape(s.linear, image_shape)) for s in shown]))
    return Gallery(rows, ("step", *(str(s.step) for s in shown)), note=_NOTE)


def attack_gallery(
    pictures: AttackPictures, classes: Sequence[str], image_shape: tuple[int, int], columns: int = 1000
) -> Gallery:
    """Describe one image with more and more directions removed, then one of each class before and after (figure 4).

    Below an image is the class that the network chooses, red where it is wrong. The first row has at most `columns`
    images, spread evenly over those given.
    """

    def cell(pixels: np.ndarray, above: str, choice: int, label: int) -> Picture:
        mark, colour = (" ✓", "black") if choice == label else ("", "positive")
        return Picture(np.reshape(pixels, image_shape), above, f"→ {classes[choice]}{mark}", colour)

    p, names = pictures, [classes[label] for label in pictures.labels]
    shown = _spread(len(p.ladder), columns)
    ladder = [cell(p.ladder[k], f"k = {k}", p.ladder_choices[k], p.ladder_label) for k in shown]
    before = [Picture(np.reshape(x, image_shape), name) for x, name in zip(p.digits, names, strict=True)]
    after = [cell(*of) for of in zip(p.ablated, names, p.choices, p.labels, strict=True)]
    first = f"a {classes[p.ladder_label]} without\nk directions"
    rows = [(first, ladder), ("one of\neach class", before), ("without all\ndirections", after)]
    limit = float(max(np.max(p.digits), np.max(p.ladder[0]))) or 1.0
    note = "pixel, one scale for all images, red below zero; → the network’s choice, ✓ where it is right"
    return Gallery(rows, palette="ink", limit=limit, note=note)
