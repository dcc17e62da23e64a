"""Charts, galleries, rankings, heat maps and waterfalls as matplotlib figures, without a display."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from mlpoly.charts import style
from mlpoly.charts.chart import (
    Area,
    Chart,
    Curve,
    Drawing,
    Gallery,
    HeatMap,
    Palette,
    Panel,
    Picture,
    Points,
    Ranking,
    Waterfall,
    minus,
    shortened,
)
from mlpoly.extras import explain_missing

with explain_missing("mlpoly.charts.matplotlib"):
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, LinearSegmentedColormap
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.patches import Patch

_DASHES: dict[str, Any] = {"solid": "-", "dash": style.DASHED, "dot": style.DOTTED, "dashdot": style.DASH_DOT}
_INK = LinearSegmentedColormap.from_list("ink", [style.COLOURS["positive"], "white", "black"])
_PALETTES: dict[Palette, str | Colormap] = {"diverging": "RdBu_r", "ink": _INK, "grey": "gray_r"}
_WIDE = 3.0  # width of a panel in a gallery, in pictures
_ALONE = 7.0  # width of a figure with one panel, in inches
_LABELS = 1.1  # width of the labels of rows, in inches
_NAME = 20  # letters of a name beside a heat map
_SPACES: dict[str, Any] = {"w_pad": 0.03, "h_pad": 0.03, "wspace": 0.02, "hspace": 0.02}


def draw(*pictures: Drawing, title: str = "") -> Figure:
    """Draw pictures below one another on a figure of 9 inches, which `mlpoly.charts.style.save_figure` writes.

    A chart has all its panels beside one another, up to three in a row. No display is needed.
    """
    heights = [_height(picture) for picture in pictures]
    figure = Figure(figsize=(style.WIDTH, sum(heights) + 0.35 * bool(title)))
    figure.set_layout_engine("constrained", **_SPACES)
    places: Any = [figure] if len(pictures) == 1 else figure.subfigures(len(pictures), 1, height_ratios=heights)
    for place, picture in zip(places, pictures, strict=True):
        _draw_on(place, picture)
    if title:
        figure.suptitle(title, fontsize=style.LARGE, color=style.INK)
    return figure


def show(picture: Drawing, ax: Axes | None = None) -> Figure:
    """Draw one picture on axes, or on a new figure of pyplot; see `Plottable.plot`."""
    if ax is not None and isinstance(picture, Chart):
        picture = replace(picture, panels=picture.panels[:1])
    alone = isinstance(picture, HeatMap | Ranking) or (isinstance(picture, Waterfall) and picture.picture is None)
    alone = alone or (isinstance(picture, Chart) and len(picture.panels) == 1)
    if ax is None:
        width = _ALONE if isinstance(picture, Chart) and alone else style.WIDTH
        size = _heat_map_size(picture) if isinstance(picture, HeatMap) else (width, _height(picture))
        figure = style.shown_figure(figsize=size, layout="constrained")
        _draw_on(figure, picture)
        return figure
    if alone:
        _draw_on(ax.figure, picture, ax)
    elif (place := ax.get_subplotspec()) is None:
        raise ValueError("ax must come from plt.subplots(...), as several axes take its place here; or leave it out.")
    else:
        ax.set_axis_off()
        _draw_on(ax.figure.add_subfigure(place), picture)
    return ax.figure.figure


def _draw_on(figure: Figure | SubFigure, picture: Drawing, ax: Axes | None = None) -> None:
    """Draw a picture that has a figure for itself, or one of a single axes on these, with a legend within them."""
    if isinstance(picture, Gallery):
        _draw_gallery(figure, picture)
    elif isinstance(picture, HeatMap):
        _draw_heat_map(ax or figure.subplots(), picture)
    elif isinstance(picture, Ranking):
        _draw_ranking(ax or figure.subplots(), picture)
    elif isinstance(picture, Waterfall):
        if picture.picture is not None:
            beside, ax = figure.subplots(1, 2, width_ratios=[1, 2.6])
            _draw_picture(beside, picture.picture, Gallery((), palette="grey"))
        _draw_waterfall(ax or figure.subplots(), picture)
    elif isinstance(picture, Chart) and ax is not None:
        keys = {label: artist for label, artist in draw_panel(ax, picture.panels[0]).items() if label}
        if keys:
            look: dict[str, Any] = {"edgecolor": "none", "fontsize": style.SMALL, "labelcolor": style.INK}
            ax.legend([*keys.values()], [*map(_text, keys)], **look)
    elif isinstance(picture, Chart):
        _draw_chart(figure, picture)


def _height(picture: Drawing) -> float:
    """Height in inches."""
    if isinstance(picture, Chart):
        columns, rows, keys = _grid(picture)
        return 3.6 * rows + 0.2 * -(-len(keys) // columns) + 0.4
    if isinstance(picture, Waterfall):
        return 0.42 * (len(picture.parts) + len(picture.totals)) + 0.9
    if isinstance(picture, Ranking):
        lines = sum(1 + part.label.count("\n") for part in picture.parts)
        return 0.24 * lines + 0.9 + 0.25 * bool(picture.title) + 0.2 * bool(picture.note)
    if isinstance(picture, HeatMap):
        return _heat_map_size(picture)[1]
    assert isinstance(picture, Gallery)
    cells = [cell for _, row in picture.rows for cell in row if isinstance(cell, Picture)]
    lines_ = 0.1 + 0.2 * any(cell.below for cell in cells) + 0.2 * any(cell.above for cell in cells)
    aspect = cells[0].image.shape[0] / cells[0].image.shape[1] if cells else 1.0
    size = (style.WIDTH - _LABELS) / max(sum(_widths(picture)), 6)
    rest = 0.3 + 0.2 * bool(picture.columns) + 0.45 * (picture.limit is not None)
    return (size * aspect + lines_) * len(picture.rows) + rest


def _heat_map_size(heat: HeatMap) -> tuple[float, float]:
    """Width and height in inches: square cells, names of the rows and columns, and a colour scale."""
    cell = min(0.45, 7.5 / max(heat.values.shape))
    left = 0.075 * max((len(shortened(name, _NAME)) for name in heat.rows), default=0)
    below = 0.075 * max((len(shortened(name, _NAME)) for name in heat.columns), default=0) if _upright(heat) else 0.3
    width = max(cell * len(heat.columns) + left + 1.7, 0.1 * len(heat.title) + 1.0)
    return width, max(cell * len(heat.rows) + below + 0.5 + 0.25 * bool(heat.note), 2.0)


def _upright(heat: HeatMap) -> bool:
    """Whether the names of the columns are too long to stand beside one another."""
    return max((len(name) for name in heat.columns), default=0) * len(heat.columns) > 60


# -- charts ------------------------------------------------------------------------------------------------------------


def _grid(chart: Chart) -> tuple[int, int, list[str]]:
    """Columns of the legend, rows of panels, and entries of the legend."""
    keys = list(dict.fromkeys(mark.label for panel in chart.panels for mark in panel.marks if mark.label))
    longest = max(map(len, keys), default=0)
    width = style.WIDTH if len(chart.panels) > 1 else _ALONE
    return min(int(width / (0.7 + 0.07 * longest)), len(keys) + 1), -(-len(chart.panels) // 3), keys


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
    names = [*map(_text, keys), *(f"range over {spread}" for spread in spreads)]
    title: dict[str, Any] = {"title": chart.note or None, "title_fontsize": style.SMALL}
    if names or chart.note:
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
    style.tidy(ax, *map(_text, (panel.x.title, panel.y.title, panel.title)))
    for side, axis, lines in (("x", panel.x, ax.xaxis), ("y", panel.y, ax.yaxis)):
        if axis.scale == "log":
            ax.set(**{f"{side}scale": "log"})
        if axis.ticks:
            lines.set_ticks([value for value, _ in axis.ticks], labels=[_text(text) for _, text in axis.ticks])
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
    bar.set_ticks([low, 0, high], labels=[minus(f"{v:.3g}") for v in (low, 0, high)])
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


# -- rows of bars, and matrices ----------------------------------------------------------------------------------------


def _draw_waterfall(ax: Axes, waterfall: Waterfall) -> None:
    parts, spans, signs = waterfall.parts, waterfall.spans, ("negative", "positive")
    rows = [
        (f"{part.label}\n{part.remark}" if part.remark else part.label, part.amount, signs[part.amount > 0])
        for part in parts
    ]
    rows += [(label, amount, "grey") for label, amount in waterfall.totals]
    largest = max((abs(row[1]) for row in rows), default=0.0)
    decimals = 3 - math.floor(math.log10(largest)) if math.isfinite(largest) and largest > 0 else 0
    form = "+.2e" if decimals > 7 or decimals < -3 else f"+,.{max(decimals, 0)}f"  # four digits in the largest
    for y, ((_, amount, colour), (start, end)) in enumerate(zip(rows, spans, strict=True)):
        ax.barh(y, end - start, left=start, height=0.62, color=style.COLOURS[colour])
        style.note(ax, minus(f"{amount:{form}}"), (max(start, end), y), (5, 0), va="center")
    for y, (_, end) in enumerate(spans[: len(parts)]):
        ax.plot([end, end], [y - 0.31, y + 1.31], color=style.FAINT, linewidth=0.8, zorder=0)
    reached = [place for span in spans for place in span]
    _draw_names(ax, [row[0] for row in rows], [part.image for part in waterfall.parts])
    style.tidy(ax, waterfall.axis, title=waterfall.title)
    low, room = min(reached), (max(reached) - min(reached)) or 1.0
    ax.set(xlim=(low - 0.04 * room, low + 1.14 * room))  # with room for the numbers


def _draw_ranking(ax: Axes, ranking: Ranking) -> None:
    amounts = [part.amount for part in ranking.parts]
    colours = [style.COLOURS[ranking.colour or ("positive" if amount > 0 else "negative")] for amount in amounts]
    ax.barh(range(len(amounts)), amounts, height=0.7, color=colours)
    right: dict[str, Any] = {"xycoords": ax.get_yaxis_transform(), "annotation_clip": False}
    for y, part in enumerate(ranking.parts):
        style.note(ax, _text(part.remark), (1, y), (6, 0), va="center", **right)
    style.note(ax, ranking.remarks, (1, -0.6), (6, 3), va="bottom", color=style.FAINT, **right)
    _draw_names(ax, [part.label for part in ranking.parts], [part.image for part in ranking.parts])
    style.tidy(ax, ranking.axis, title=ranking.title)
    if ranking.note:
        ax.set_xlabel(f"{ranking.axis}\n{ranking.note}", fontsize=style.SMALL, color=style.INK)


def _draw_names(ax: Axes, names: Sequence[str], images: Sequence[np.ndarray | None]) -> None:
    """Names of the rows of bars, from the top, with the patterns they belong to."""
    ax.axvline(0, color=style.INK, linewidth=0.6)
    ax.set_yticks(range(len(names)), [_text(name) for name in names])
    pictured = any(image is not None for image in images)
    ax.tick_params(axis="y", length=0, pad=40 if pictured else 4)
    ax.set(ylim=(len(names) - 0.4, -0.6))
    for y, image in enumerate(images):
        if image is not None:
            place = ax.inset_axes((-0.085, y - 0.45, 0.08, 0.9), transform=ax.get_yaxis_transform())
            _draw_picture(place, Picture(image), Gallery(()))


def _draw_heat_map(ax: Axes, heat: HeatMap) -> None:
    rows, columns = heat.values.shape
    image = ax.imshow(heat.values, cmap="RdBu_r", vmin=-heat.scale, vmax=heat.scale, interpolation="nearest")
    for lines, names in ((ax.xaxis, heat.columns), (ax.yaxis, heat.rows)):
        step = -(-len(names) // 60)  # as many names as can be read
        texts = [_text(shortened(name, _NAME)) for name in names[::step]]
        lines.set_ticks(range(0, len(names), step), labels=texts)
    style.tidy(ax, heat.note, title=heat.title)
    ax.xaxis.label.set_fontsize(style.SMALL)
    ax.tick_params(length=0)
    if _upright(heat):
        ax.tick_params(axis="x", labelrotation=90)
    ax.spines[:].set(visible=True, color=style.FAINT, linewidth=0.6)
    if rows <= 12 and columns <= 12:
        for (i, j), value in np.ndenumerate(heat.values):
            if np.isfinite(value):
                colour = "white" if abs(value) > 0.6 * heat.scale else style.INK
                style.note(ax, minus(f"{value:.2g}"), (j, i), ha="center", va="center", color=colour)
    bar = ax.figure.colorbar(image, ax=ax, fraction=0.04, pad=0.02)
    bar.ax.tick_params(labelsize=style.SMALL, length=2, color=style.FAINT, labelcolor=style.INK)
    bar.outline.set(linewidth=0.6, edgecolor=style.FAINT)
    bar.set_label(heat.name, fontsize=style.SMALL, color=style.INK)


def _text(name: str) -> str:
    """A name as it is: matplotlib would read what stands between dollars as a formula."""
    return name.replace("$", r"\$")
