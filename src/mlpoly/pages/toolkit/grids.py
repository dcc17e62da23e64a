"""Galleries, waterfalls and rankings as HTML."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from mlpoly.charts.chart import Gallery, Palette, Part, Picture, Ranking, Waterfall, shortened
from mlpoly.pages.toolkit.embedded import DIVERGING, GREY, picture, ramp
from mlpoly.pages.toolkit.html import element
from mlpoly.pages.toolkit.numbers import number, signed
from mlpoly.pages.toolkit.widgets import picture_row

_NAME = 70  # letters of a name beside a bar
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
                alt = ", ".join(line for line in (label, cell.above, cell.below) if line)
                below = element("span", cell.below, style=f"color:var(--{cell.colour})")
                shown = [cell.above, below][not cell.above : 1 + bool(cell.below)]
                image = picture(cell.image, alt, _PALETTES[gallery.palette], gallery.limits(cell))
                items.append((image, element("br").join(shown)))
        rows.append(picture_row(items, label))
    return element("div", *rows)


def waterfall_html(waterfall: Waterfall) -> Markup:
    """Bars that begin where the one above ended, and below them totals that begin at the base."""
    spans = waterfall.spans
    reached = [place for span in spans for place in span] or [0.0]
    scale = min(reached), max(reached)
    parts = [*((part, "") for part in waterfall.parts), *((Part(*total), "total") for total in waterfall.totals)]
    rows = [_bar(part, *span, scale, kind) for (part, kind), span in zip(parts, spans, strict=True)]
    return _bar_list(rows, scale, waterfall.base)


def ranking_html(ranking: Ranking, limit: float | None = None) -> Markup:
    """Bars that all begin at zero; `limit` is the size of a bar of full length, by default the largest."""
    amounts = [part.amount for part in ranking.parts]
    high = max(map(abs, amounts), default=0.0) if limit is None else limit
    scale = (-high if min(amounts, default=0.0) < 0 else 0.0), (high if max(amounts, default=0.0) > 0 else 0.0)
    kind = "even" if ranking.colour else ""
    return _bar_list([_bar(part, 0.0, part.amount, scale, kind) for part in ranking.parts], scale)


def _bar(part: Part, start: float, end: float, scale: tuple[float, float], kind: str = "") -> Markup:
    room = (scale[1] - scale[0]) or 1.0
    left, width = (min(start, end) - scale[0]) / room, abs(end - start) / room
    bar = element("span", class_="bar", style=f"left:{left:.2%};width:max(2px,{width:.2%})") if width else ""
    image = "" if part.image is None else picture(part.image, f"pattern of {part.label}")
    # A long name may end a line behind an underscore, and nowhere else within a word that fits a line.
    label = Markup("_<wbr>").join(shortened(part.label, _NAME).split("_"))
    name = Markup().join((label, element("small", part.remark))) if part.remark else label
    return element(
        "li",
        element("span", image, class_="picture"),
        element("span", name, class_="name", title=part.label if len(part.label) > _NAME // 3 else None),
        element("span", bar, class_="track", aria_hidden="true"),
        element("span", number(part.amount) if kind else signed(part.amount), class_="amount"),
        class_=kind or ("up" if part.amount >= 0 else "down"),
    )


def _bar_list(rows: Sequence[Markup], scale: tuple[float, float], base: float = 0.0) -> Markup:
    zero = (base - scale[0]) / ((scale[1] - scale[0]) or 1.0)
    pictures = "" if any("<img" in row for row in rows) else " plain"
    return element("ol", *rows, class_=f"waterfall{pictures}", style=f"--zero:{zero:.4f}")
