"""Data inside a page: JSON that every browser reads, and images as bytes."""

import base64
import io
from typing import Any

import numpy as np
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from mlpoly.codec import to_plain
from mlpoly.pages.toolkit.html import element
from mlpoly.pages.toolkit.numbers import rounded


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
