"""What the figures share: colours and sizes, the axis of training steps, curves over seeds, and writing to files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mlpoly.files import replacing

__all__ = ["Curve", "Look", "curve_over_seeds", "save_figure"]

INK, FAINT, GUIDE = "#222222", "#8a8a8a", "#d4d4d4"
IMAGES = "RdBu_r"  # diverging, and told apart with every kind of colour blindness
POSITIVE, NEGATIVE = "#b2182b", "#2166ac"  # towards the ends of that colormap
NETWORK, LINEAR, QUADRATIC = INK, "#d55e00", "#0072b2"  # Okabe and Ito: safe for every kind of colour blindness
MODELS = {"network": NETWORK, "linear": LINEAR, "quadratic": QUADRATIC}
BAR, REST = "#2166ac", "#bdbdbd"
SMALL, NORMAL, LARGE = 9.0, 11.0, 14.0  # font sizes
WIDTH = 9.0  # of a figure of a study, in inches: 100 pixels to the inch on a page 900 pixels wide
DASHED, DOTTED, DASH_DOT = (0, (4, 1.5)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5))
_ZERO = 0.5  # where step 0 stands on the logarithmic axis


class Curve(NamedTuple):
    """One quantity over training, or over k: its mean, smallest and largest value over the seeds."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: int


class Look(NamedTuple):
    """How one kind of curve is drawn."""

    label: str
    dashes: Any
    width: float
    white: float  # share of white in the colour

    def options(self, colour: str) -> dict[str, Any]:
        """For `Axes.plot` and `key`."""
        return {"color": lighter(colour, self.white), "linestyle": self.dashes, "linewidth": self.width}


def curve_over_seeds(rows: Iterable[Any], x: str, y: str | Callable[[Any], float]) -> Curve:
    """Collect ``row.y``, or ``y(row)``, at every value of ``row.x``, over the seeds that have it."""
    value = y if callable(y) else attrgetter(y)
    groups: dict[float, list[float]] = {}
    seeds = set()
    for row in rows:
        groups.setdefault(getattr(row, x), []).append(value(row))
        seeds.add(row.seed)
    order = sorted(groups)
    mean, low, high = (np.array([f(groups[place]) for place in order], dtype=float) for f in (np.mean, np.min, np.max))
    return Curve(np.array(order, dtype=float), mean, low, high, len(seeds))


def save_figure(figure: Figure, folder: str | Path, name: str) -> list[Path]:
    """Write a figure as ``name.png`` with 150 dots per inch and as ``name.pdf``; the same figure gives the same bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Its layout is computed here and then stays, so that both files look alike.
    folder : path
        Made if it is missing.
    name : str
        Without an ending.

    Returns
    -------
    list of Path
        The two files.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # a second pass of the layout could move things by a hair
    png, pdf = folder / f"{name}.png", folder / f"{name}.pdf"
    with replacing(png) as scratch:
        figure.savefig(scratch, format="png", dpi=150, metadata={"Software": None})
    with replacing(pdf) as scratch, rc_context({"pdf.fonttype": 42}):  # TrueType, as publishers ask
        figure.savefig(scratch, format="pdf", metadata={"Creator": None, "Producer": None, "CreationDate": None})
    return [png, pdf]


class PyplotFigure(Figure):
    """A figure of pyplot that a notebook shows once."""

    def _ipython_display_(self) -> None:
        """Let IPython draw it like any figure; in a notebook it is then done with.

        A notebook draws the value of a cell's last line, and after that all figures that pyplot still has open.
        """
        from matplotlib import get_backend, pyplot

        if get_backend().endswith("inline"):
            pyplot.close(self)
        raise NotImplementedError  # IPython's word for "draw it as you would without this method"


def shown_figure(**options: Any) -> Figure:
    """A new figure that ``plt.show()`` shows; one by itself where there is no display for the backend asked for.

    For what a person at a keyboard asked for. What is written to files is drawn on a plain `Figure`, which pyplot
    does not keep.
    """
    from matplotlib import pyplot  # decides on a backend, which nobody needs who writes files

    try:
        return pyplot.figure(FigureClass=PyplotFigure, **options)
    except ImportError:  # the backend cannot be loaded here
        return Figure(**options)


# -- small parts -------------------------------------------------------------------------------------------------------


def check_rows(name: str, rows: Iterable[Any], what: str) -> list[Any]:
    """The rows as a list; an empty one is an error."""
    rows = list(rows)
    if not rows:
        raise ValueError(f"{name} is empty; give at least one {what}.")
    return rows


def spread(rows: Sequence[Any], count: int) -> list[Any]:
    """At most `count` of the rows, evenly spread, with the first and the last; one is the last."""
    places = np.linspace(0, len(rows) - 1, min(count, len(rows))) if count > 1 else [len(rows) - 1]
    return [rows[int(i)] for i in np.round(places)]


def as_image(name: str, pixels: Any, image_shape: tuple[int, int]) -> np.ndarray:
    """Pixels (d,) as an image."""
    pixels = np.asarray(pixels, dtype=float)
    if len(image_shape) != 2 or pixels.size != math.prod(image_shape):
        raise ValueError(f"{name} has {pixels.size} pixels, which do not fill an image of shape {tuple(image_shape)}.")
    return pixels.reshape(image_shape)


def lighter(colour: str, share: float) -> tuple[float, float, float]:
    """A colour mixed with a share of white."""
    red, green, blue = (c + share * (1 - c) for c in to_rgb(colour))
    return red, green, blue


def signed(value: float, decimals: int) -> str:
    """A number with its sign."""
    return f"{value:+.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def two_digits(value: float) -> str:
    """A number with its sign and two digits, whatever its size."""
    text = f"{value:+.0f}" if abs(value) >= 100 else f"{value:+#.2g}".rstrip(".").replace("e-0", "e-")
    return text.replace("-", "\N{MINUS SIGN}")


def percent(axis: Axis) -> None:
    """Write shares as per cent."""
    axis.set_major_formatter(lambda share, _: f"{100 * share:.4g} %")


def tidy(ax: Axes, xlabel: str = "", ylabel: str = "", title: str = "") -> None:
    """Two spines, quiet ticks and labels."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[:].set(color=FAINT, linewidth=0.8)
    ax.tick_params(which="both", labelsize=SMALL, color=FAINT, labelcolor=INK)
    ax.set_xlabel(xlabel, fontsize=NORMAL, color=INK)
    ax.set_ylabel(ylabel, fontsize=NORMAL, color=INK)
    ax.set_title(title, fontsize=NORMAL, color=INK)


def headline(figure: Figure, title: str) -> None:
    """A title over all panels, if there is one."""
    if title:
        figure.suptitle(title, fontsize=LARGE, color=INK)


def draw_image(ax: Axes, image: np.ndarray, cmap: Any = IMAGES, limit: float | None = None) -> None:
    """An image centred at zero, in a thin frame; without a limit it is scaled by its own largest pixel."""
    limit = limit or float(np.abs(image).max()) or 1.0
    ax.imshow(image, cmap=cmap, vmin=-limit, vmax=limit, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set(color=FAINT, linewidth=0.6)


def note(ax: Axes, text: str, place: tuple[float, float], offset: tuple[float, float] = (0, 0), **options: Any) -> None:
    """A small text, `offset` points from a place."""
    ax.annotate(text, place, offset, textcoords="offset points", fontsize=SMALL, **{"color": INK, **options})


def beside(ax: Axes, text: str) -> None:
    """The name of a row of images, left of the first; as text, so that it is there even if the image is not."""
    note(ax, text, (-0.12, 0.5), xycoords="axes fraction", ha="right", va="center", linespacing=1.25)


def draw_band(ax: Axes, x: np.ndarray, curve: Curve, colour: Any) -> None:
    """The range over the seeds; one seed has none."""
    if curve.seeds > 1:
        ax.fill_between(x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0, zorder=1)


def band_key(seeds: int) -> list[Artist]:
    """The entry of the legend for bands, if there are any."""
    return [Patch(color=FAINT, alpha=0.35, linewidth=0, label=f"range over {seeds} seeds")] if seeds > 1 else []


def key(label: str, **options: Any) -> Line2D:
    """An entry of the legend."""
    return Line2D([], [], label=label, **{"color": INK, "linewidth": 1.8, **options})


def legend_below(figure: Figure, handles: Sequence[Artist], columns: int) -> None:
    """A legend below all panels."""
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=SMALL,
        labelcolor=INK,
        handlelength=2.6,
    )


def in_columns(columns: Sequence[Sequence[Artist | None]]) -> list[Artist]:
    """Entries of a legend that is filled column by column, so that each of `columns` gets its own."""
    kept = [[entry for entry in column if entry is not None] for column in columns]
    longest = max(len(column) for column in kept)
    return [entry for column in kept for entry in (*column, *[key("", linestyle="")] * (longest - len(column)))]


# -- the axis of training steps ----------------------------------------------------------------------------------------


def step_places(steps: Any) -> np.ndarray:
    """Where steps stand on a logarithmic axis: step 0 one octave left of step 1."""
    return np.maximum(np.asarray(steps, dtype=float), _ZERO)


def step_axis(ax: Axes, steps: Sequence[int], guides: Iterable[int] = ()) -> None:
    """Make the horizontal axis one of training steps: octaves, with a break before step 0, and light guide lines."""
    first, last = min(steps), max(steps)
    jump = 2 if last > 64 else 1
    powers = [2**i for i in range(0, int(math.log2(max(last, 1))) + 1, jump) if 2**i >= first]
    names = [f"{p >> 20}M" if p >= 2**20 else f"{p >> 10}k" if p >= 2**10 else str(p) for p in powers]
    ax.set_xscale("log", base=2)
    ax.set_xticks([_ZERO, *powers] if first == 0 else powers, ["0"] * (first == 0) + names)
    ax.xaxis.minorticks_off()
    left, right = step_places([first, max(last, 1)])
    ax.set_xlim(left / 1.35, right * 1.35)
    for guide in guides:
        if left < guide < right:
            ax.axvline(guide, color=GUIDE, linewidth=0.8, zorder=0, label="_guide")
    if first == 0:
        place, middle = ax.get_xaxis_transform(), _ZERO**0.5
        gap = [middle / 1.07, middle * 1.07]
        ax.plot(gap, [0, 0], transform=place, color="white", linewidth=2.0, zorder=5, clip_on=False, label="_break")
        ax.text(middle, 0, "//", transform=place, ha="center", va="center", fontsize=7, color=FAINT, zorder=6)
    ax.set_xlabel("training step", fontsize=NORMAL, color=INK)
