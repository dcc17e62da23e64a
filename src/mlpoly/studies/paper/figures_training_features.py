"""What a class reads: eigenvectors of the quadratic over training, their eigenvalues, and single images taken apart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from mlpoly.arrays import as_integer
from mlpoly.plots import style

__all__ = ["plot_explanation", "plot_spectrum_of_class", "plot_training_features"]

_SCALED = "each image is scaled by its own largest pixel (red positive, blue negative)"
_SIGNS = "the sign of an eigenvector has no meaning"
_ORDINALS = ("", "2nd ", "3rd ")
_COLOURS = {"positive": style.POSITIVE, "negative": style.NEGATIVE}


class _Row(NamedTuple):
    """One row of images: a label, and an eigenvalue (or none) and pixels for each checkpoint that has them."""

    label: str
    cells: list[tuple[float | None, np.ndarray] | None]


def plot_training_features(
    steps: Iterable[Any],
    label: int,
    image_shape: tuple[int, int],
    columns: int = 10,
    positive: int = 2,
    negative: int = 1,
    title: str = "",
) -> Figure:
    """Draw what one class reads over training: one column for each checkpoint.

    Rows are eigenvectors of the quadratic with the largest positive and the most negative eigenvalues (in the titles),
    then the coefficients of the best linear map. Each image is scaled by its own largest pixel. Eigenvectors are
    turned so that they agree with those of the next checkpoint.

    Parameters
    ----------
    steps : iterable of records
        As in `mlpoly.studies.paper.results.FeatureStep`; those of other classes are left out.
    label : int
        The class.
    image_shape : (int, int)
        Rows and columns of an image.
    columns : int
        Checkpoints at most: spread evenly over those given, with the first and the last.
    positive, negative : int
        Rows of eigenvectors of either sign.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    shown = style.spread(_of_class(steps, label), as_integer("columns", columns, 1))
    rows = [_eigen_row(shown, "positive", i) for i in range(as_integer("positive", positive, 0))]
    rows += [_eigen_row(shown, "negative", i) for i in range(as_integer("negative", negative, 0))]
    rows += [_Row("linear\ncoefficients", [(None, np.asarray(s.linear)) for s in shown])]
    size = (style.WIDTH - 1.1) / max(len(shown), 6)  # of an image, in inches; the row labels take the rest
    height = size * image_shape[0] / image_shape[1] + 0.24
    width = max(1.1 + size * len(shown), 5.4)  # the caption needs that much
    figure = Figure(figsize=(width, height * len(rows) + 0.5 + 0.35 * bool(title)))
    figure.set_layout_engine("constrained", w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
    axes = figure.subplots(len(rows), len(shown), squeeze=False)
    for places, row in zip(axes, rows, strict=True):
        _draw_row(places, row, image_shape)
    for ax, step in zip(axes[0], shown, strict=True):
        style.note(ax, f"{step.step}", (0.5, 1), (0, 15), xycoords="axes fraction", ha="center")
    style.note(axes[0, 0], "step", (-0.12, 1), (0, 15), xycoords="axes fraction", ha="right")
    caption = f"{_SCALED}; {_SIGNS}" if width > 8 else f"{_SCALED};\n{_SIGNS}"
    figure.supxlabel(caption, fontsize=style.SMALL, color=style.INK)
    style.headline(figure, title)
    return figure


def _of_class(steps: Iterable[Any], label: int) -> list[Any]:
    steps = style.check_rows("steps", steps, "checkpoint")
    chosen = sorted((s for s in steps if s.label == label), key=lambda s: s.step)
    if not chosen:
        raise ValueError(f"steps has none of label={label}, only of {sorted({s.label for s in steps})}.")
    return chosen


def _eigen_row(steps: list[Any], sign: str, index: int) -> _Row:
    """The eigenvectors of one rank, each turned towards the next one; the last has its largest pixel positive."""
    cells: list[tuple[float | None, np.ndarray] | None] = []
    following: np.ndarray | None = None
    for step in reversed(steps):
        values, vectors = np.asarray(getattr(step, sign)), np.asarray(getattr(step, f"{sign}_vectors"))
        if index >= len(values):
            cells.append(None)
            continue
        vector = vectors[index]
        towards = vector[np.argmax(np.abs(vector))] if following is None else vector @ following
        following = -vector if towards < 0 else vector
        cells.append((float(values[index]), following))
    ordinal = _ORDINALS[index] if index < len(_ORDINALS) else f"{index + 1}th "
    return _Row(f"{ordinal}largest\neigenvalue" if sign == "positive" else f"{ordinal}lowest\neigenvalue", cells[::-1])


def _draw_row(axes: np.ndarray, row: _Row, image_shape: tuple[int, int]) -> None:
    for ax, cell in zip(axes, row.cells, strict=True):
        if cell is None:
            ax.set_axis_off()
            continue
        value, pixels = cell
        style.draw_image(ax, style.as_image(f"steps ({row.label!r})", pixels, image_shape))
        if value is not None:
            colour = style.POSITIVE if value > 0 else style.NEGATIVE
            ax.set_title(style.two_digits(value), fontsize=style.SMALL - 1, color=colour, pad=2.5)
    style.beside(axes[0], row.label)


# -- the spectrum of one class -----------------------------------------------------------------------------------------


def plot_spectrum_of_class(
    steps: Iterable[Any], label: int, image_shape: tuple[int, int], columns: int = 4, title: str = ""
) -> Figure:
    """Draw the quadratic of one class: strongest eigenvectors, all eigenvalues, and how the largest move in training.

    Parameters
    ----------
    steps : iterable of records
        As in `mlpoly.studies.paper.results.FeatureStep`; the images and the spectrum are those of the last one.
    label : int
    image_shape : (int, int)
    columns : int
        Eigenvectors of each sign at most.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    steps = _of_class(steps, label)
    columns = min(as_integer("columns", columns, 1), max(len(steps[-1].positive), len(steps[-1].negative), 1))
    images = [_eigen_row(steps[-1:], sign, i).cells[0] for sign in _COLOURS for i in range(columns)]
    height = style.WIDTH / len(images) * image_shape[0] / image_shape[1] + 0.3
    figure = Figure(figsize=(style.WIDTH, height + 3.4 + 0.35 * bool(title)))
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.04)
    top, bottom = np.asarray(figure.subfigures(2, 1, height_ratios=[height, 3.4]))
    _draw_row(top.subplots(1, len(images)), _Row("", images), image_shape)
    ranks, moves = bottom.subplots(1, 2)
    spectrum = np.asarray(steps[-1].spectrum)
    largest = float(np.abs(spectrum).max(initial=0.0)) or 1.0
    for sign, colour in _COLOURS.items():
        # Magnitudes of all eigenvalues by rank, each sign by itself; filled where there is an image.
        values = np.sort(spectrum if sign == "positive" else -spectrum)[::-1]
        values = values[values > 1e-5 * largest]  # smaller ones are rounding
        rank, hollow = np.arange(1, len(values) + 1), {"marker": "o", "markersize": 2.6, "mfc": "white", "mew": 0.8}
        ranks.plot(rank, values, color=colour, linewidth=1.2, label=sign, **hollow)
        ranks.plot(rank[:columns], values[:columns], "o", color=colour, markersize=4.2, label="_shown")
        for i in range(columns):  # at every checkpoint; the further from the largest, the lighter
            line = [(s.step, getattr(s, sign)[i]) for s in steps if i < len(getattr(s, sign))]
            x, y = zip(*line, strict=True) if line else ((), ())
            shade = style.lighter(colour, 0.65 * i / max(columns - 1, 1))
            moves.plot(style.step_places(x), y, color=shade, linewidth=2.0 - 0.8 * (i > 0), label=f"{sign} {i + 1}")
    ranks.set(xscale="log", yscale="log")
    style.tidy(ranks, "rank", title="sizes of the eigenvalues at the end")
    ranks.xaxis.set_major_formatter("{x:g}")
    ranks.legend(frameon=False, fontsize=style.SMALL, labelcolor=list(_COLOURS.values()), loc="lower left")
    moves.axhline(0, color=style.FAINT, linewidth=0.6, zorder=0, label="_zero")
    style.tidy(moves, title="largest eigenvalues over training")
    style.step_axis(moves, [s.step for s in steps])
    bottom.supxlabel(f"images: {_SCALED}; {_SIGNS}", fontsize=style.SMALL, color=style.INK)
    style.headline(figure, title)
    return figure


# -- one image taken apart ---------------------------------------------------------------------------------------------


def plot_explanation(explanation: Any, image_shape: tuple[int, int], title: str = "") -> Figure:
    """Draw one image and how the logit of a class adds up: constant, linear part, strongest eigenfeatures, the rest.

    Parameters
    ----------
    explanation : record
        As in `mlpoly.studies.paper.results.Explanation`.
    image_shape : (int, int)
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    e = explanation
    parts: list[tuple[str, float, Any]] = [("constant", e.constant, None), ("linear", e.linear, None)]
    parts += [(f"eigenvalue {style.two_digits(c.eigenvalue)}", c.amount, np.asarray(c.vector)) for c in e.top]
    parts += [("other quadratic", e.quadratic - sum(c.amount for c in e.top), None)]
    figure = Figure(figsize=(style.WIDTH, 0.42 * (len(parts) + 2) + 0.9 + 0.35 * bool(title)), layout="constrained")
    picture, ax = figure.subplots(1, 2, width_ratios=[1, 2.6])
    style.draw_image(picture, style.as_image("explanation.image", e.image, image_shape), "gray_r")
    picture.images[0].set_clim(0, None)
    picture.set_title(f"an image of class {e.label}", fontsize=style.NORMAL, color=style.INK)
    # Bars that start where the one above ends, then their sum, then the network's logit as a diamond.
    ends = np.cumsum([amount for _, amount, _ in parts])
    for y, ((_, amount, vector), end) in enumerate(zip(parts, ends, strict=True)):
        colour = style.POSITIVE if amount > 0 else style.NEGATIVE
        ax.barh(y, amount, left=end - amount, height=0.62, color=colour)
        ax.plot([end, end], [y - 0.31, y + 1.31], color=style.FAINT, linewidth=0.8, zorder=0, label="_step")
        style.note(ax, style.signed(amount, 2), (max(end, end - amount), y), (5, 0), va="center")
        if vector is not None:
            place = ax.inset_axes((-0.085, y - 0.45, 0.08, 0.9), transform=ax.get_yaxis_transform())
            style.draw_image(place, style.as_image("explanation.top", vector, image_shape))
    last = len(parts)
    ax.barh(last, e.polynomial, height=0.62, color=style.FAINT)
    ax.plot(e.network, last + 1, "D", color=style.INK, markersize=7, label="network")
    style.note(ax, style.signed(e.polynomial, 2), (max(e.polynomial, 0.0), last), (5, 0), va="center")
    style.note(ax, style.signed(e.network, 2), (e.network, last + 1), (10, 0), va="center")
    ax.axvline(0, color=style.INK, linewidth=0.6, label="_zero")
    ax.set_yticks(range(last + 2), [*(label for label, _, _ in parts), "polynomial", "network"])
    ax.tick_params(axis="y", length=0, pad=40)
    low, high = min(0.0, e.network, *ends), max(0.0, e.network, *ends)
    ax.set(ylim=(last + 1.6, -0.6), xlim=(low - 0.04 * (high - low), high + 0.14 * (high - low)))  # room for numbers
    style.tidy(ax, "logit", title=f"how the logit of class {e.output} adds up")
    style.headline(figure, title)
    return figure
