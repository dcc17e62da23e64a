"""Attacks read off the polynomials: accuracy without singular directions, the images, steering by an eigenvector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mlpoly.plots import style

__all__ = ["plot_ablation", "plot_ablation_pictures", "plot_steering"]

_LADDER = 11  # images of the ladder at most
_MARKED: dict[str, Any] = {"marker": "o", "markersize": 4.6}
_DIRECTIONS = {
    "singular": style.Look("singular directions", "-", 2.2, 0.0),
    "pca": style.Look("principal components", style.DASHED, 1.4, 0.35),
    "random": style.Look("random directions", style.DOTTED, 1.4, 0.35),
}
_MOVES = {
    "eigenvector": style.Look("along the eigenvector", "-", 1.8, 0.0),
    "random": style.Look("along a random direction", style.DASHED, 1.4, 0.3),
    "noise": style.Look("noise of the same length", style.DOTTED, 1.4, 0.3),
}


def plot_ablation(ablations: Iterable[Any], chance: float = 0.1, title: str = "") -> Figure:
    """Draw the accuracy on images without k directions, for network, linear and quadratic polynomial.

    Thick curves remove singular directions of the linear polynomial; thin ones are the network with controls. Curves
    are means over the seeds and bands their range.

    Parameters
    ----------
    ablations : iterable of records
        As in `mlpoly.studies.paper.results.Ablation`.
    chance : float
        Accuracy of guessing, drawn as a line.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    ablations = style.check_rows("ablations", ablations, "accuracy")
    figure = Figure(figsize=(style.WIDTH, 4.8), layout="constrained")
    ax = figure.subplots()
    for level, text in ((0.5, "50 %"), (chance, "chance")):
        ax.axhline(level, color=style.GUIDE, linewidth=0.9, zorder=0, label="_level")
        place = ax.get_yaxis_transform()
        style.note(ax, text, (1, level), (4, 0), xycoords=place, va="center", color=style.FAINT)
    keys: dict[bool, list[Any]] = {True: [], False: []}  # two columns of the legend: singular directions, controls
    for directions, look in reversed(_DIRECTIONS.items()):
        rows, main = [a for a in ablations if a.directions == directions], directions == "singular"
        for model in (style.MODELS if main else ("network",)) if rows else ():
            curve, options = style.curve_over_seeds(rows, "k", model), look.options(style.MODELS[model])
            options |= _MARKED if main else {}
            ax.plot(curve.x, curve.mean, label=f"{model}, {directions}", **options)
            style.draw_band(ax, curve.x, curve, style.MODELS[model])
            keys[main].append(style.key(f"{model}, without {look.label}", **options))
    style.tidy(ax, "directions removed", "accuracy on the test images")
    last = max(a.k for a in ablations)
    ax.set(ylim=(0, 1.02), xlim=(-0.02 * last - 0.1, last * 1.02 + 0.1))
    ax.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    style.percent(ax.yaxis)
    controls = [*reversed(keys[False]), *style.band_key(len({a.seed for a in ablations}))]
    style.legend_below(figure, style.in_columns([keys[True], controls]), 2)
    style.headline(figure, title)
    return figure


# -- the images --------------------------------------------------------------------------------------------------------


def plot_ablation_pictures(pictures: Any, image_shape: tuple[int, int], title: str = "") -> Figure:
    """Draw one image with more and more directions removed, then one of each class before and after.

    Numbers with an arrow are the network's choice, red where it is wrong. White is zero, black the largest pixel of
    the original images, red below zero; the removal makes pixels beyond both ends, which are drawn like the ends.

    Parameters
    ----------
    pictures : record
        As in `mlpoly.studies.paper.results.AttackPictures`.
    image_shape : (int, int)
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    p = pictures
    ladder = style.spread(range(len(p.ladder)), _LADDER)
    columns = max(len(ladder), len(p.digits))
    size = (style.WIDTH - 0.9) / columns
    height = size * image_shape[0] / image_shape[1] + 0.3
    figure = Figure(figsize=(style.WIDTH, 3 * height + 0.85 + 0.35 * bool(title)))
    figure.set_layout_engine("constrained", w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
    axes = figure.subplots(3, columns, squeeze=False)
    limit = float(max(np.max(p.digits), np.max(p.ladder[0]))) or 1.0
    ink = LinearSegmentedColormap.from_list("ink", [style.POSITIVE, "white", "black"])  # red for negative pixels
    # Rows of images: pixels, a number above, the network's choice, and the class.
    rows: dict[str, list[tuple[Any, str, int | None, int]]] = {
        "directions\nremoved": [(p.ladder[k], f"{k}", p.ladder_choices[k], p.ladder_label) for k in ladder],
        "original": [(x, f"{y}", None, y) for x, y in zip(p.digits, p.labels, strict=True)],
        "without\nall": [(x, "", choice, y) for x, choice, y in zip(p.ablated, p.choices, p.labels, strict=True)],
    }
    for places, (name, cells) in zip(axes, rows.items(), strict=True):
        for ax in places[len(cells) :]:
            ax.set_axis_off()
        for ax, (pixels, above, choice, label) in zip(places, cells, strict=False):
            style.draw_image(ax, style.as_image("pictures", pixels, image_shape), ink, limit)
            ax.set_title(above, fontsize=style.SMALL, color=style.INK, pad=3)
            if choice is not None:
                colour = style.INK if choice == label else style.POSITIVE
                ax.set_xlabel(f"→ {choice}", fontsize=style.SMALL, color=colour, labelpad=2)
        style.beside(places[0], name)
    place: dict[str, Any] = {"location": "bottom", "fraction": 0.03, "aspect": 45, "shrink": 0.45}
    bar = figure.colorbar(axes[0, 0].images[0], ax=list(axes.flat), extend="both", **place)
    bar.set_ticks([-limit, 0, limit], labels=[f"\N{MINUS SIGN}{limit:g}", "0", f"{limit:g}"])
    bar.ax.tick_params(labelsize=style.SMALL, length=2)
    bar.outline.set(linewidth=0.6, edgecolor=style.FAINT)
    bar.set_label("pixel, one scale for all images; → the network's choice", fontsize=style.SMALL, color=style.INK)
    style.headline(figure, title)
    return figure


# -- steering ----------------------------------------------------------------------------------------------------------


def plot_steering(steering: Iterable[Any], title: str = "") -> Figure:
    """Draw what happens when all images are moved: accuracies, and how far the quadratic is from the network.

    Parameters
    ----------
    steering : iterable of records
        As in `mlpoly.studies.paper.results.Steering`.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    steering = style.check_rows("steering", steering, "accuracy")
    figure = Figure(figsize=(style.WIDTH, 4.2), layout="constrained")
    accuracy, fvu, kl = figure.subplots(1, 3, width_ratios=[1.35, 1, 1])
    lines = [*((accuracy, model, model) for model in style.MODELS), (fvu, "fvu", "quadratic"), (kl, "kl", "quadratic")]
    for ax, quantity, model in lines:
        for direction, look in _MOVES.items():
            rows, main = [s for s in steering if s.direction == direction], direction == "eigenvector"
            if not rows:
                continue
            curve = style.curve_over_seeds(rows, "strength", quantity)
            options = {**look.options(style.MODELS[model]), **(_MARKED if main else {})}
            ax.plot(curve.x, curve.mean, label=f"{quantity}, {direction}", **options)
            if main:  # the bands of all would hide the curves
                style.draw_band(ax, curve.x, curve, style.MODELS[model])
    fvu.set_yscale("log")
    kl.set_yscale("log")
    titles = ("accuracy", "FVU of the quadratic", "its KL divergence (nats)")
    for ax, text in zip((accuracy, fvu, kl), titles, strict=True):
        style.tidy(ax, "strength of the move", title=text)
    accuracy.set_ylim(0, 1.02)
    style.percent(accuracy.yaxis)
    kinds, bands = {s.direction for s in steering}, style.band_key(len({s.seed for s in steering}))
    models = [style.key(name, color=colour, linewidth=3.0) for name, colour in style.MODELS.items()]
    moves = [style.key(look.label, **look.options(style.INK)) for name, look in _MOVES.items() if name in kinds]
    style.legend_below(figure, style.in_columns([models, moves, bands]), 3)
    style.headline(figure, title)
    return figure
