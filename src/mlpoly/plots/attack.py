"""Attacks read off the polynomials: accuracy without singular directions, the images, steering by an eigenvector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
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
        As in `mlpoly.studies.results.Ablation`.
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
        _level(ax, level, text)
    for directions in reversed(_DIRECTIONS):
        rows = [a for a in ablations if a.directions == directions]
        for model in style.MODELS if directions == "singular" else ("network",):
            _draw_ablation(ax, rows, directions, model)
    style.tidy(ax, "directions removed", "accuracy on the test images")
    last = max(a.k for a in ablations)
    ax.set(ylim=(0, 1.02), xlim=(-0.02 * last - 0.1, last * 1.02 + 0.1))
    ax.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    style.percent(ax.yaxis)
    style.legend_below(figure, _ablation_keys(ablations), 2)
    style.headline(figure, title)
    return figure


def _level(ax: Axes, level: float, text: str) -> None:
    """A faint horizontal line with its name at the right."""
    ax.axhline(level, color=style.GUIDE, linewidth=0.9, zorder=0, label="_level")
    place = ax.get_yaxis_transform()
    style.note(ax, text, (1, level), (4, 0), xycoords=place, va="center", color=style.FAINT)


def _draw_ablation(ax: Axes, rows: list[Any], directions: str, model: str) -> None:
    if not rows:
        return
    look, marks = _DIRECTIONS[directions], _MARKED if directions == "singular" else {}
    curve = style.curve_over_seeds(rows, "k", model)
    ax.plot(curve.x, curve.mean, label=f"{model}, {directions}", **marks, **look.options(style.MODELS[model]))
    style.draw_band(ax, curve.x, curve, style.MODELS[model])


def _ablation_keys(ablations: list[Any]) -> list[Any]:
    """The legend, for two columns: singular directions, controls."""
    kinds, seeds = {a.directions for a in ablations}, len({a.seed for a in ablations})
    columns: list[list[Any]] = [[], []]
    for name, look in _DIRECTIONS.items():
        if name not in kinds:
            continue
        main = name == "singular"
        for model, colour in style.MODELS.items() if main else [("network", style.NETWORK)]:
            options = {**look.options(colour), **(_MARKED if main else {})}
            columns[not main].append(style.key(f"{model}, without {look.label}", **options))
    return style.in_columns([columns[0], [*columns[1], *style.band_key(seeds)]])


# -- the images --------------------------------------------------------------------------------------------------------


def plot_ablation_pictures(pictures: Any, image_shape: tuple[int, int], title: str = "") -> Figure:
    """Draw one image with more and more directions removed, then one of each class before and after.

    Numbers with an arrow are the network's choice, red where it is wrong. White is zero, black the largest pixel of
    the original images, red below zero; the removal makes pixels beyond both ends, which are drawn like the ends.

    Parameters
    ----------
    pictures : record
        As in `mlpoly.studies.results.AttackPictures`.
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
    frame = _Frame(image_shape, _ink(), limit)
    _draw_line(
        axes[0],
        "directions\nremoved",
        [(p.ladder[k], f"{k}", p.ladder_choices[k], p.ladder_label) for k in ladder],
        frame,
    )
    _draw_line(axes[1], "original", [(x, f"{y}", None, y) for x, y in zip(p.digits, p.labels, strict=True)], frame)
    after = zip(p.ablated, p.choices, p.labels, strict=True)
    _draw_line(axes[2], "without\nall", [(x, "", choice, y) for x, choice, y in after], frame)
    _draw_scale(figure, axes, limit)
    style.headline(figure, title)
    return figure


class _Frame(NamedTuple):
    """What all images share."""

    image_shape: tuple[int, int]
    cmap: Colormap
    limit: float


def _ink() -> Colormap:
    """Ink on paper for positive pixels, red for negative ones."""
    return LinearSegmentedColormap.from_list("ink", [style.POSITIVE, "white", "black"])


def _draw_line(axes: np.ndarray, name: str, cells: list[tuple[Any, str, int | None, int]], frame: _Frame) -> None:
    """A row of images: pixels, a number above, the network's choice, and the class."""
    for ax in axes[len(cells) :]:
        ax.set_axis_off()
    for ax, (pixels, above, choice, label) in zip(axes, cells, strict=False):
        style.draw_image(ax, style.as_image("pictures", pixels, frame.image_shape), frame.cmap, frame.limit)
        ax.set_title(above, fontsize=style.SMALL, color=style.INK, pad=3)
        if choice is not None:
            colour = style.INK if choice == label else style.POSITIVE
            ax.set_xlabel(f"→ {choice}", fontsize=style.SMALL, color=colour, labelpad=2)
    style.beside(axes[0], name)


def _draw_scale(figure: Figure, axes: np.ndarray, limit: float) -> None:
    place: dict[str, Any] = {"location": "bottom", "fraction": 0.03, "aspect": 45, "shrink": 0.45}
    bar = figure.colorbar(axes[0, 0].images[0], ax=list(axes.flat), extend="both", **place)
    bar.set_ticks([-limit, 0, limit], labels=[f"\N{MINUS SIGN}{limit:g}", "0", f"{limit:g}"])
    bar.ax.tick_params(labelsize=style.SMALL, length=2)
    bar.outline.set(linewidth=0.6, edgecolor=style.FAINT)
    bar.set_label("pixel, one scale for all images; → the network's choice", fontsize=style.SMALL, color=style.INK)


# -- steering ----------------------------------------------------------------------------------------------------------


def plot_steering(steering: Iterable[Any], title: str = "") -> Figure:
    """Draw what happens when all images are moved: accuracies, and how far the quadratic is from the network.

    Parameters
    ----------
    steering : iterable of records
        As in `mlpoly.studies.results.Steering`.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    steering = style.check_rows("steering", steering, "accuracy")
    figure = Figure(figsize=(style.WIDTH, 4.2), layout="constrained")
    accuracy, fvu, kl = figure.subplots(1, 3, width_ratios=[1.35, 1, 1])
    for model in style.MODELS:
        _draw_moves(accuracy, steering, model, model)
    for ax, quantity in ((fvu, "fvu"), (kl, "kl")):
        _draw_moves(ax, steering, quantity, "quadratic")
        ax.set_yscale("log")
    titles = ("accuracy", "FVU of the quadratic", "its KL divergence (nats)")
    for ax, text in zip((accuracy, fvu, kl), titles, strict=True):
        style.tidy(ax, "strength of the move", title=text)
    accuracy.set_ylim(0, 1.02)
    style.percent(accuracy.yaxis)
    style.legend_below(figure, _steering_keys(steering), 3)
    style.headline(figure, title)
    return figure


def _draw_moves(ax: Axes, steering: list[Any], quantity: str, model: str) -> None:
    for direction, look in _MOVES.items():
        rows = [s for s in steering if s.direction == direction]
        if not rows:
            continue
        curve = style.curve_over_seeds(rows, "strength", quantity)
        options = {**look.options(style.MODELS[model]), **(_MARKED if direction == "eigenvector" else {})}
        ax.plot(curve.x, curve.mean, label=f"{quantity}, {direction}", **options)
        if direction == "eigenvector":  # the bands of all would hide the curves
            style.draw_band(ax, curve.x, curve, style.MODELS[model])


def _steering_keys(steering: list[Any]) -> list[Any]:
    kinds, seeds = {s.direction for s in steering}, len({s.seed for s in steering})
    models = [style.key(name, color=colour, linewidth=3.0) for name, colour in style.MODELS.items()]
    moves = [style.key(look.label, **look.options(style.INK)) for name, look in _MOVES.items() if name in kinds]
    return style.in_columns([models, moves, style.band_key(seeds)])
