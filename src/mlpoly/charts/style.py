"""Colours and sizes that all figures share, and figures as files and in notebooks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlpoly.extras import explain_missing
from mlpoly.files import replacing

with explain_missing("mlpoly.charts"):
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

INK, FAINT, GUIDE = "#222222", "#8a8a8a", "#d4d4d4"
LINEAR, QUADRATIC = "#d55e00", "#0072b2"  # Okabe and Ito: safe for every kind of colour blindness
COLOURS = {  # by the names that page.css has for the same ones
    "black": INK,
    "grey": FAINT,
    "orange": LINEAR,
    "blue": QUADRATIC,
    "violet": "#7b4fa3",
    "positive": "#b2182b",  # towards the ends of the diverging colormap
    "negative": "#2166ac",
    "area-1": "#440154",  # viridis, without the palest yellow
    "area-2": "#423f85",
    "area-3": "#2d718e",
    "area-4": "#1e9d89",
    "area-5": "#56c667",
    "area-6": "#cae11f",
    "area-rest": "#bdbdbd",
    "area-between": "#e8d5b5",  # not of the colormap of degrees: variance between classes has no degree
}
SMALL, NORMAL, LARGE = 9.0, 11.0, 14.0  # font sizes
WIDTH = 9.0  # of a figure of a study, in inches: 100 pixels to the inch on a page 900 pixels wide
DASHED, DOTTED, DASH_DOT = (0, (4, 1.5)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5))


def save_figure(figure: Figure, folder: str | Path, name: str) -> list[Path]:
    """Write a figure as ``name.png`` with 150 dots per inch and as ``name.pdf``, with the same bytes each time."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # a second pass of the layout could move things by a hair, and the files differ
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
    """A new figure that ``plt.show()`` shows; a plain one where there is no display for the backend asked for."""
    from matplotlib import pyplot  # decides on a backend, which nobody needs who writes files

    try:
        return pyplot.figure(FigureClass=PyplotFigure, **options)
    except ImportError:  # the backend cannot be loaded here
        return Figure(**options)


def tidy(ax: Axes, xlabel: str = "", ylabel: str = "", title: str = "") -> None:
    """Two spines, quiet ticks and labels."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[:].set(color=FAINT, linewidth=0.8)
    ax.tick_params(which="both", labelsize=SMALL, color=FAINT, labelcolor=INK)
    ax.set_xlabel(xlabel, fontsize=NORMAL, color=INK)
    ax.set_ylabel(ylabel, fontsize=NORMAL, color=INK)
    ax.set_title(title, fontsize=NORMAL, color=INK)


def note(ax: Axes, text: str, place: tuple[float, float], offset: tuple[float, float] = (0, 0), **options: Any) -> None:
    """A small text, `offset` points from a place."""
    ax.annotate(text, place, offset, textcoords="offset points", fontsize=SMALL, **{"color": INK, **options})


def key(label: str, **options: Any) -> Line2D:
    """An entry of the legend."""
    return Line2D([], [], label=label, **{"color": INK, "linewidth": 1.8, **options})


def legend_below(figure: Figure | SubFigure, handles: Sequence[Any], columns: int, **options: Any) -> Legend:
    """A legend below all panels."""
    look: dict[str, Any] = {"frameon": False, "fontsize": SMALL, "labelcolor": INK, "handlelength": 2.6}
    return figure.legend(handles=handles, loc="outside lower center", ncols=columns, **look, **options)
