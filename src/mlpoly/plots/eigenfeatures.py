"""Eigenfeatures as images: the patterns an output is quadratic in, with the spectrum they come from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from mlpoly.arrays import Array, as_integer, to_numpy
from mlpoly.plots import style

__all__ = ["plot_eigenfeatures"]

_WIDTH = 10.0  # of the figure, in inches
_GAP, _SPECTRUM = 0.3, 3.0  # widths in images: between two groups of columns, and of a spectrum with its ticks
_SCALES = {
    "input": "pixels of the unit eigenvectors",
    "whitened": "change of the pixels along the feature, by one standard deviation",
}


class Features(Protocol):
    """What is drawn: for example `mlpoly.eigenfeatures(poly, output=3, k=64)`."""

    @property
    def values(self) -> Array:
        """Eigenvalues (k,)."""

    @property
    def vectors(self) -> Array:
        """Eigenvectors (k, d)."""


class _Row(NamedTuple):
    """One output: all eigenvalues in descending order, and the pairs to be drawn as images."""

    label: str
    spectrum: np.ndarray  # (k,)
    positive: list[tuple[float, np.ndarray]]  # largest first
    negative: list[tuple[float, np.ndarray]]  # most negative first


def plot_eigenfeatures(
    features: Mapping[Any, Features], image_shape: tuple[int, int], title: str = "", columns: int = 3
) -> Figure:
    """Draw the top eigenfeatures of several outputs as images, one row for each output.

    A row shows the features with the largest positive eigenvalues, then those with the most negative ones, then the
    spectrum of all eigenvalues given, with those of the images in full colour. All images share one colour scale,
    centred at zero; as a feature counts with its square, its sign has no meaning.

    Parameters
    ----------
    features : mapping of label to record
        Each with ``.values`` (k,) and ``.vectors`` (k, d); give many pairs (k = d) to see the whole spectrum. A
        record in the metric "whitened" is drawn by its ``.directions`` (k, d), which are patterns of pixels.
    image_shape : (int, int)
        Rows and columns of an image of d pixels.
    title : str
    columns : int
        Images of each sign in a row.

    Returns
    -------
    matplotlib.figure.Figure
        10 inches wide; ``figure.savefig(path, dpi=120)`` writes it. No display is needed.
    """
    columns = as_integer("columns", columns, 1)
    if not features:
        raise ValueError("features is empty; give at least one label with its eigenfeatures.")
    metrics = {getattr(f, "metric", "input") for f in features.values()}
    if len(metrics) > 1:
        raise ValueError(f"features come in the metrics {sorted(metrics)}; one colour scale needs one metric for all.")
    rows = [_row(str(label), f, image_shape, columns) for label, f in features.items()]
    limit = max((float(np.abs(v).max()) for row in rows for _, v in (*row.positive, *row.negative)), default=0.0) or 1.0
    largest = max((float(np.abs(row.spectrum).max(initial=0.0)) for row in rows), default=0.0)
    decimals = max(0, 1 - math.floor(math.log10(largest))) if largest > 0 else 0
    figure, axes = _grid(len(rows), columns)
    for line, row in zip(axes, rows, strict=True):
        for places, pairs in ((line[:columns], row.positive), (line[columns:-1], row.negative)):
            for ax, (value, pixels) in zip(places, pairs, strict=False):
                style.draw_image(ax, pixels.reshape(image_shape), limit=limit)
                colour = style.POSITIVE if value > 0 else style.NEGATIVE
                ax.set_title(style.signed(value, decimals), fontsize=style.SMALL, color=colour, pad=2.5)
            for ax in places[len(pairs) :]:
                ax.set_axis_off()
        # As text and not as a label of the axis, so that it is there even if the first image is not.
        line[0].text(-0.12, 0.5, row.label, transform=line[0].transAxes, ha="right", va="center", fontsize=style.NORMAL)
        _draw_spectrum(line[-1], row)
    images = [ax.images[0] for ax in axes.flat if ax.images]
    if images:  # the colour scale that all of them share, below them
        below = list(axes[:, :-1].flat)
        bar = figure.colorbar(images[0], ax=below, location="bottom", fraction=0.025, aspect=40, pad=0.02, shrink=0.5)
        bar.set_ticks([-limit, 0, limit], labels=[f"\N{MINUS SIGN}{limit:.2g}", "0", f"+{limit:.2g}"])
        bar.ax.tick_params(labelsize=style.SMALL, length=2)
        bar.outline.set(linewidth=0.6, edgecolor=style.FAINT)
        meaning = _SCALES[metrics.pop()]
        bar.set_label(f"{meaning}; one scale for all images", fontsize=style.SMALL, color=style.INK)
    style.headline(figure, title)
    return figure


def _row(label: str, features: Features, image_shape: tuple[int, int], columns: int) -> _Row:
    values, images = to_numpy(features.values), to_numpy(getattr(features, "directions", features.vectors))
    pixels = math.prod(image_shape)
    if len(image_shape) != 2 or images.shape != (values.size, pixels):
        raise ValueError(
            f"features of {label!r} have {values.size} values and vectors of shape {images.shape}; "
            f"images of shape {tuple(image_shape)} need vectors of shape ({values.size}, {pixels})."
        )
    order = np.argsort(-values, kind="stable")
    pairs = [(float(values[i]), images[i]) for i in order]
    return _Row(
        label,
        values[order],
        [pair for pair in pairs if pair[0] > 0][:columns],
        [pair for pair in reversed(pairs) if pair[0] < 0][:columns],
    )


def _grid(rows: int, columns: int) -> tuple[Figure, np.ndarray]:
    """A figure with axes (rows, 2 columns + 1): positive, negative, spectrum, below a line of headings."""
    widths = [*[1.0] * columns, _GAP, *[1.0] * columns, _GAP, _SPECTRUM]
    height = 0.9 * _WIDTH / sum(widths) + 0.28  # an image and its title, in inches; labels take a tenth of the width
    figure = Figure(figsize=(_WIDTH, 0.3 + height * rows + 1.05))
    figure.set_layout_engine("constrained", w_pad=0.04, h_pad=0.05, hspace=0.0, wspace=0.0)
    grid = GridSpec(rows + 1, len(widths), figure, width_ratios=widths, height_ratios=[0.2, *[height] * rows])
    negative, spectrum = columns + 1, len(widths) - 1
    for place, text, colour in (
        (slice(0, columns), "raise the output", style.POSITIVE),
        (slice(negative, negative + columns), "lower the output", style.NEGATIVE),
        (slice(spectrum, None), "eigenvalues", style.INK),
    ):
        heading = figure.add_subplot(grid[0, place])
        heading.set_axis_off()
        heading.text(0.5, 0.0, text, ha="center", va="bottom", fontsize=style.NORMAL, color=colour)
    drawn = [*range(columns), *range(negative, negative + columns), spectrum]
    return figure, np.array([[figure.add_subplot(grid[r, c]) for c in drawn] for r in range(1, rows + 1)])


def _draw_spectrum(ax: Axes, row: _Row) -> None:
    """Bars of all eigenvalues, descending; those of the images in full colour."""
    k, (first, last) = row.spectrum.size, (len(row.positive), len(row.negative))
    for i, value in enumerate(row.spectrum):
        shown = i < first or i >= k - last
        colour = style.POSITIVE if value > 0 else style.NEGATIVE
        ax.bar(i + 1, value, width=0.85, color=colour, alpha=1.0 if shown else 0.45)
    ax.axhline(0, color=style.INK, linewidth=0.6)
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.spines["left"].set(color=style.FAINT, linewidth=0.6)
    ax.tick_params(labelsize=style.SMALL, color=style.FAINT, labelcolor=style.INK, length=2)
    ax.set(xticks=[], xlim=(0.2 - 0.02 * k, k + 0.8))
    ax.locator_params(axis="y", nbins=4, min_n_ticks=3)
    ax.set_box_aspect(1.2 / _SPECTRUM)  # as high as the images, as the ticks take a part of the width
