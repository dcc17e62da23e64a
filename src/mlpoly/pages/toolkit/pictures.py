"""What a page carries inside: images as bytes, JSON for its scripts, galleries, waterfalls and rankings as HTML."""

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from mlpoly.charts.chart import Gallery, Palette, Part, Picture, Ranking, Waterfall, shortened
from mlpoly.codec import to_plain
from mlpoly.pages.toolkit.widgets import element, number, picture_row, rounded, signed

_NAME = 70  # letters of a name beside a bar


def ramp(stops: str) -> np.ndarray:
    """Return 255 colours (255, 3) through evenly spaced stops, "ff0000 0000ff"; odd, so that the middle has its own."""
    channels = np.array([list(bytes.fromhex(stop)) for stop in stops.split()], float).T
    known = np.linspace(0, 254, channels.shape[1])
    return np.stack([np.interp(np.arange(255), known, channel) for channel in channels], -1).round().astype(np.uint8)


# ColorBrewer's RdBu from blue to red; page.js has the same stops.
DIVERGING = ramp("053061 2166ac 4393c3 92c5de d1e5f0 f7f7f7 fddbc7 f4a582 d6604d b2182b 67001f")
GREY = ramp("000000 ffffff")


def to_json(value: Any) -> Markup:
    """Return JSON with null for NaN, which browsers reject, and without "<", which could end the script around it."""
    return htmlsafe_json_dumps(to_plain(value), allow_nan=False, separators=(",", ":"))


def island(name: str, value: Any) -> Markup:
    """Return data for the scripts of the page, which find it by its name."""
    return element("script", to_json(value), type="application/json", id=name)


def pack_images(images: np.ndarray) -> dict[str, Any]:
    """Return images (n, d) as signed bytes in base64 with one scale each: pixel = byte * scale, to half a scale."""
    images = np.nan_to_num(np.asarray(images, float), nan=0.0, posinf=0.0, neginf=0.0)
    largest = np.abs(images).max(axis=1, initial=0.0)
    # Rounded before it is used, so that the page multiplies by exactly what was divided by here.
    scale = np.array(rounded((largest + (largest == 0)) / 127, 5))
    pixels = np.round(images / scale[:, None]).clip(-127, 127).astype(np.int8)
    return {"scale": scale.tolist(), "pixels": base64.b64encode(pixels.tobytes()).decode("ascii")}


def picture(
    image: np.ndarray, alt: str, palette: np.ndarray = DIVERGING, limits: tuple[float, float] | None = None
) -> Markup:
    """Return an image (rows, columns) as an <img> that carries its own bytes, in a palette (levels, 3) of uint8.

    `limits` are the values at the ends of the palette, by default plus and minus the largest magnitude; values beyond
    are drawn as the end.
    """
    from PIL import Image  # comes with matplotlib

    image = np.nan_to_num(np.asarray(image, float))
    largest = float(np.abs(image).max()) or 1.0
    low, high = limits or (-largest, largest)
    fraction = (image - low) / ((high - low) or 1.0)
    png = Image.fromarray(np.round(np.clip(fraction, 0, 1) * (len(palette) - 1)).astype(np.uint8))
    png.putpalette(palette.tobytes())
    buffer = io.BytesIO()
    png.save(buffer, "PNG", optimize=True)
    source = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    return element("img", src=source, alt=alt, width=image.shape[1], height=image.shape[0])


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
