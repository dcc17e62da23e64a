"""Galleries and waterfalls as HTML."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from markupsafe import Markup

from mlpoly.page.embedded import DIVERGING, GREY, picture, ramp
from mlpoly.page.html import element
from mlpoly.page.numbers import number, signed
from mlpoly.page.widgets import picture_row
from mlpoly.plots.chart import Gallery, Palette, Picture, Waterfall

__all__ = ["gallery_html", "waterfall_html"]

_PALETTES: dict[Palette, np.ndarray] = {
    "diverging": DIVERGING,
    "ink": ramp("b2182b ffffff 000000"),
    "grey": GREY[::-1],
}


def gallery_html(gallery: Gallery) -> Markup:
    """Rows of pictures, which wrap where the window is narrow; panels are left out."""
    rows = []
    for label, cells in gallery.rows:
        label, items = label.replace("\n", " "), []
        for cell in cells:
            if isinstance(cell, Picture):
                limit = gallery.limit or float(np.abs(cell.image).max()) or 1.0
                limits = (0.0 if gallery.palette == "grey" else -limit, limit)
                alt = ", ".join(line for line in (label, cell.above, cell.below) if line)
                below = element("span", cell.below, style=f"color:var(--{cell.colour})")
                shown = [cell.above, below][not cell.above : 1 + bool(cell.below)]
                items.append((picture(cell.image, alt, _PALETTES[gallery.palette], limits), element("br").join(shown)))
        rows.append(picture_row(items, label))
    return element("div", *rows)


def waterfall_html(waterfall: Waterfall) -> Markup:
    """Bars that begin where the one above ended, and below them totals that begin at zero."""
    ends = list(accumulate((part.amount for part in waterfall.parts), initial=0.0))
    reached = [*ends, *(value for _, value in waterfall.totals)]
    low = min(reached)
    room = (max(reached) - low) or 1.0

    def row(name: object, start: float, end: float, shown: str, kind: str, image: object = "") -> Markup:
        left, width = (min(start, end) - low) / room, abs(end - start) / room
        bar = element("span", class_="bar", style=f"left:{left:.2%};width:max(2px,{width:.2%})")
        track = element("span", bar, class_="track", aria_hidden="true")
        cells = (element("span", image, class_="picture"), element("span", name, class_="name"))
        return element("li", *cells, track, element("span", shown, class_="amount"), class_=kind)

    rows = []
    for part, start, end in zip(waterfall.parts, ends, ends[1:], strict=False):
        image = "" if part.image is None else picture(part.image, f"pattern of {part.label}")
        name = Markup().join((part.label, element("small", part.remark))) if part.remark else part.label
        rows.append(row(name, start, end, signed(part.amount), "up" if part.amount >= 0 else "down", image))
    rows += [row(name, 0.0, value, number(value), "total") for name, value in waterfall.totals]
    return element("ol", *rows, class_="waterfall", style=f"--zero:{-low / room:.4f}")
