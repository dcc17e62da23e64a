"""Charts, galleries and waterfalls as matplotlib figures, without a display."""

from __future__ import annotations

from itertools import accumulate, zip_longest
from typing import Any

import numpy as np

from mlpoly.extras import explain_missing
from mlpoly.plots import style
from mlpoly.plots.chart import Area, Chart, Curve, Gallery, Palette, Panel, Picture, Points, Waterfall

with explain_missing("mlpoly.plots"):
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, LinearSegmentedColormap
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.patches import Patch

__all__ = ["draw", "draw_panel"]

_DASHES: dict[str, Any] = {"solid": "-", "dash": style.DASHED, "dot": style.DOTTED, "dashdot": style.DASH_DOT}
_INK = LinearSegmentedColormap.from_list("ink", [style.COLOURS["positive"], "white", "black"])
_PALETTES: dict[Palette, str | Colormap] = {"diverging": "RdBu_r", "ink": _INK, "grey": "gray_r"}
_WIDE = 3.0  # width of a panel in a gallery, in pictures
_LABELS = 1.1  # width of the labels of rows, in inches


def draw(*pictures: Chart | Gallery | Waterfall, title: str = "") -> Figure:
    """Draw pictures below one another.

    Parameters
    ----------
    *pictures : Chart, Gallery or Waterfall
        A chart has all its panels beside one another, up to three in a row.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        9 inches wide; `mlpoly.plots.style.save_figure` writes it. No display is needed.
    """
    heights = [_height(picture) for picture in pictures]
    figure = Figure(figsize=(style.WIDTH, sum(heights) + 0.35 * bool(title)))
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03, wspace=0.02, hspace=0.02)
    places: Any = [figure] if len(pictures) == 1 else figure.subfigures(len(pictures), 1, height_ratios=heights)
    for place, picture in zip(places, pictures, strict=True):
        if isinstance(picture, Chart):
            _draw_chart(place, picture)
        elif isinstance(picture, Gallery):
            _draw_gallery(place, picture)
        else:
            _draw_waterfall(place, picture)
    if title:
        figure.suptitle(title, fontsize=style.LARGE, color=style.INK)
    return figure


def _height(picture: Chart | Gallery | Waterfall) -> float:
    """Height in inches."""
    if isinstance(picture, Chart):
        columns, rows, keys = _grid(picture)
        return 3.6 * rows + 0.2 * -(-len(keys) // columns) + 0.4
    if isinstance(picture, Waterfall):
        return 0.42 * (len(picture.parts) + len(picture.totals)) + 0.9
    cells = [cell for _, row in picture.rows for cell in row if isinstance(cell, Picture)]
    lines = 0.1 + 0.2 * any(cell.below for cell in cells) + 0.2 * any(cell.above for cell in cells)
    aspect = cells[0].image.shape[0] / cells[0].image.shape[1] if cells else 1.0
    size = (style.WIDTH - _LABELS) / max(sum(_widths(picture)), 6)
    rest = 0.3 + 0.2 * bool(picture.columns) + 0.45 * (picture.limit is not None)
    return (size * aspect + lines) * len(picture.rows) + rest


# -- charts ------------------------------------------------------------------------------------------------------------


def _grid(chart: Chart) -> tuple[int, int, list[str]]:
    """Columns of the legend, rows of panels, and entries of the legend."""
    keys = list(dict.fromkeys(mark.label for panel in chart.panels for mark in panel.marks if mark.label))
    longest = max(map(len, keys), default=0)
    return min(int(style.WIDTH / (0.6 + 0.07 * longest)), len(keys) + 1), -(-len(chart.panels) // 3), keys


def _draw_chart(figure: Figure | SubFigure, chart: Chart) -> None:
    columns, rows, _ = _grid(chart)
    shared = all(panel.y == chart.panels[0].y for panel in chart.panels)
    axes = figure.subplots(rows, -(-len(chart.panels) // rows), squeeze=False, sharey=shared)
    left = None  # the vertical axis of the panel before
    keys: dict[str, Any] = {}
    for ax, panel in zip_longest(axes.flat, chart.panels):
        if panel is None:
            ax.set_axis_off()
            continue
        keys |= {label: artist for label, artist in draw_panel(ax, panel).items() if label and label not in keys}
        if panel.y == left and ax not in axes[:, 0]:
            ax.set_ylabel("")
        left = panel.y
    spreads = dict.fromkeys(m.spread for p in chart.panels for m in p.marks if isinstance(m, Curve) and m.spread)
    bands = [Patch(color=style.FAINT, alpha=0.35, linewidth=0) for _ in spreads]
    names = [*keys, *(f"range over {spread}" for spread in spreads)]
    title: dict[str, Any] = {"title": chart.note or None, "title_fontsize": style.SMALL}
    style.legend_below(figure, [*keys.values(), *bands], columns, labels=names, **title)


def draw_panel(ax: Axes, panel: Panel) -> dict[str, Any]:
    """Draw one panel on axes; return what stands for each label in a legend."""
    keys: dict[str, Any] = {}
    stack: dict[Any, float] = {}  # heights of the areas and bars so far
    for mark in panel.marks:
        x = panel.x.places(mark.x)
        colour = style.COLOURS[mark.colour]
        if isinstance(mark, Curve):
            look: dict[str, Any] = {"linestyle": _DASHES[mark.dash], "linewidth": mark.width}
            look |= {"marker": "o", "markersize": 4.2} if mark.dots else {}
            (keys[mark.label],) = ax.plot(x, mark.y, color=colour, label=mark.label, **look)
            if len(mark.low):
                ax.fill_between(x, mark.low, mark.high, color=colour, alpha=0.18, linewidth=0, zorder=1)
        elif isinstance(mark, Points):
            look = {"marker": "o", "markersize": 3.6, "markerfacecolor": "white", "linestyle": ""}
            ax.errorbar(x, mark.y, mark.error, color=colour, elinewidth=1.0, capsize=2.0, zorder=4, **look)
        else:
            bottom = [stack.get(place, 0.0) for place in x]
            stack |= {place: low + y for place, low, y in zip(x, bottom, mark.y, strict=True)}
            if isinstance(mark, Area):
                top = [stack[place] for place in x]
                keys[mark.label] = ax.fill_between(x, bottom, top, color=colour, linewidth=0, label=mark.label)
            else:
                keys[mark.label] = bars = ax.bar(x, mark.y, 0.75, bottom, color=colour, label=mark.label)
                if mark.texts:
                    ax.bar_label(bars, mark.texts, fontsize=style.SMALL, color=style.INK, padding=2)
    style.tidy(ax, panel.x.title, panel.y.title, panel.title)
    for side, axis, lines in (("x", panel.x, ax.xaxis), ("y", panel.y, ax.yaxis)):
        if axis.scale == "log":
            ax.set(**{f"{side}scale": "log"})
        if axis.ticks:
            lines.set_ticks([value for value, _ in axis.ticks], labels=[text for _, text in axis.ticks])
            lines.minorticks_off()
        if axis.percent:
            lines.set_major_formatter(lambda fraction, _: f"{100 * fraction:.4g} %")
        if axis.limits:
            ax.set(**{f"{side}lim": axis.limits})
    for value, _ in panel.x.guides:
        ax.axvline(value, color=style.GUIDE, linewidth=0.8, zorder=0, label="_guide")
    for value, text in panel.y.guides:
        ax.axhline(value, color=style.GUIDE, linewidth=0.9, zorder=0, label="_guide")
        place = ax.get_yaxis_transform()
        style.note(ax, text, (1, value), (4, 0), xycoords=place, va="center", color=style.FAINT)
    return keys


# -- images ------------------------------------------------------------------------------------------------------------


def _widths(gallery: Gallery) -> list[float]:
    """Relative widths of the columns."""
    columns = zip_longest(*(cells for _, cells in gallery.rows))
    return [_WIDE if any(isinstance(cell, Panel) for cell in column) else 1.0 for column in columns]


def _draw_gallery(figure: Figure | SubFigure, gallery: Gallery) -> None:
    widths = _widths(gallery)
    axes = figure.subplots(len(gallery.rows), len(widths), squeeze=False, width_ratios=widths)
    above: dict[str, Any] = {"xycoords": "axes fraction", "annotation_clip": False}
    for row, (label, cells) in zip(axes, gallery.rows, strict=True):
        for ax, cell in zip_longest(row, cells):
            if cell is None:
                ax.set_axis_off()
            elif isinstance(cell, Panel):
                draw_panel(ax, cell)
                ax.set_box_aspect(1.2 / _WIDE)  # as high as the images, as the ticks take a part of the width
            else:
                _draw_picture(ax, cell, gallery)
        # As text and not as a label of the axis, so that it is there even if the first image is not.
        style.note(row[0], label, (-0.12, 0.5), ha="right", va="center", linespacing=1.25, **above)
    for i, heading in enumerate(gallery.columns):
        place, side = ((-0.12, 1), "right") if i == 0 else ((0.5, 1), "center")
        style.note(axes[0, max(i - 1, 0)], heading, place, (0, 4), ha=side, **above)
    images = [ax.images[0] for ax in axes.flat if ax.images]
    if gallery.limit is None or not images:
        figure.supxlabel(gallery.note, fontsize=style.SMALL, color=style.INK)
        return
    beyond = any(np.abs(image.get_array()).max() > gallery.limit for image in images)
    below: dict[str, Any] = {"location": "bottom", "fraction": 0.03, "aspect": 45, "shrink": 0.45, "pad": 0.02}
    bar = figure.colorbar(images[0], ax=axes, extend="both" if beyond else "neither", **below)
    low, high = images[0].get_clim()
    bar.set_ticks([low, 0, high], labels=[f"{v:.3g}".replace("-", "\N{MINUS SIGN}") for v in (low, 0, high)])
    bar.ax.tick_params(labelsize=style.SMALL, length=2)
    bar.outline.set(linewidth=0.6, edgecolor=style.FAINT)
    bar.set_label(gallery.note, fontsize=style.SMALL, color=style.INK)


def _draw_picture(ax: Axes, picture: Picture, gallery: Gallery) -> None:
    """An image in a thin frame, in the colours of a gallery."""
    low, high = gallery.limits(picture)
    ax.imshow(picture.image, cmap=_PALETTES[gallery.palette], vmin=low, vmax=high, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set(color=style.FAINT, linewidth=0.6)
    ax.set_title(picture.above, fontsize=style.SMALL, color=style.INK, pad=2.5)
    ax.set_xlabel(picture.below, fontsize=style.SMALL, color=style.COLOURS[picture.colour], labelpad=2)


def _draw_waterfall(figure: Figure | SubFigure, waterfall: Waterfall) -> None:
    picture, ax = figure.subplots(1, 2, width_ratios=[1, 2.6])
    if waterfall.picture is None:
        picture.set_axis_off()
    else:
        _draw_picture(picture, waterfall.picture, Gallery((), palette="grey"))
    ends = list(accumulate((part.amount for part in waterfall.parts), initial=0.0))
    signs = ("negative", "positive")
    rows = [
        (f"{part.label}\n{part.remark}" if part.remark else part.label, start, part.amount, signs[part.amount > 0])
        for part, start in zip(waterfall.parts, ends, strict=False)
    ]
    rows += [(label, 0.0, amount, "grey") for label, amount in waterfall.totals]
    for y, (_, start, amount, colour) in enumerate(rows):
        ax.barh(y, amount, left=start, height=0.62, color=style.COLOURS[colour])
        text = f"{amount:+.2f}".replace("-", "\N{MINUS SIGN}")
        style.note(ax, text, (max(start, start + amount), y), (5, 0), va="center")
    for y, (part, end) in enumerate(zip(waterfall.parts, ends[1:], strict=True)):
        ax.plot([end, end], [y - 0.31, y + 1.31], color=style.FAINT, linewidth=0.8, zorder=0)
        if part.image is not None:
            place = ax.inset_axes((-0.085, y - 0.45, 0.08, 0.9), transform=ax.get_yaxis_transform())
            _draw_picture(place, Picture(part.image), Gallery(()))
    ax.axvline(0, color=style.INK, linewidth=0.6)
    style.tidy(ax, waterfall.axis, title=waterfall.title)
    ax.set_yticks(range(len(rows)), [row[0] for row in rows])
    ax.tick_params(axis="y", length=0, pad=40)
    reached = [*ends, *(amount for _, amount in waterfall.totals)]
    low, room = min(reached), max(reached) - min(reached)
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlim=(low - 0.04 * room, low + 1.14 * room))  # with room for the numbers
