"""Pictures as records: curves, bars, grids of images, sums taken apart. They know no plotting library.

`mlpoly.plots.draw` draws them with matplotlib, `mlpoly.page.plot` and `mlpoly.page.grids` on a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

__all__ = [
    "Area",
    "Axis",
    "Bars",
    "Chart",
    "Curve",
    "Dash",
    "Gallery",
    "Mark",
    "Palette",
    "Panel",
    "Part",
    "Picture",
    "Points",
    "Waterfall",
]

Dash = Literal["solid", "dash", "dot", "dashdot"]
Palette = Literal["diverging", "ink", "grey"]


@dataclass(frozen=True)
class Curve:
    """A line through points, with a band around it where a range is given.

    Attributes
    ----------
    label : str
        Entry of the legend. Marks with the same label belong together and have one entry.
    x, y : sequence of float (n,)
    low, high : sequence of float (n,)
        Ends of the band; empty for none.
    spread : str
        Name of what the band is the range of, such as "3 seeds".
    colour : str
        Name of a colour that page.css and `mlpoly.plots.style.COLOURS` have, such as "blue".
    dash : {"solid", "dash", "dot", "dashdot"}
    width : float
    dots : bool
        Whether there is a dot at every x.
    names : sequence of str (n,)
        Names of the x for the pointer; empty for the numbers themselves.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    spread: str = ""
    colour: str = "black"
    dash: Dash = "solid"
    width: float = 2.2
    dots: bool = False
    names: Sequence[str] = ()


@dataclass(frozen=True)
class Points:
    """Hollow circles with error bars, hidden and shown with the curve of the same label."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float]  # half the length of a bar
    colour: str = "black"


@dataclass(frozen=True)
class Area:
    """A layer that lies on top of the areas before it."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str


@dataclass(frozen=True)
class Bars:
    """Bars at numbers or names, on top of the bars before them at the same place."""

    label: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    colour: str
    texts: Sequence[str] = ()  # written above the bars
    names: Sequence[str] = ()  # of the x for the pointer


Mark = Curve | Points | Area | Bars


@dataclass(frozen=True)
class Axis:
    """One axis of a panel.

    Attributes
    ----------
    title : str
    name : str
        Short name for the pointer, such as "step".
    scale : {"linear", "log"}
    percent : bool
        Whether numbers are written as per cent.
    ticks : sequence of (float, str)
        Places and texts; empty leaves them to the plotting library.
    limits : (float, float), optional
        Ends of the axis; None leaves an end to the data.
    guides : sequence of (float, str)
        Places of reference lines across the panel, with their texts.
    zero : float, optional
        Place of 0 on a logarithmic axis.
    """

    title: str = ""
    name: str = ""
    scale: Literal["linear", "log"] = "linear"
    percent: bool = False
    ticks: Sequence[tuple[float, str]] = ()
    limits: tuple[float | None, float | None] | None = None
    guides: Sequence[tuple[float, str]] = ()
    zero: float | None = None

    def places(self, x: Sequence[Any]) -> list[Any]:
        """Places of numbers or names on the axis: all but 0 stand where they are."""
        return [self.zero if self.zero is not None and value == 0 else value for value in x]


@dataclass(frozen=True)
class Panel:
    """Marks that share two axes: a subplot of a figure, or on a page a view chosen by buttons.

    Attributes
    ----------
    marks : sequence of Curve, Points, Area or Bars
    x, y : Axis
    title : str
        Heading of the subplot.
    choice : tuple of str
        One option for each group of the chart.
    """

    marks: Sequence[Mark]
    x: Axis
    y: Axis
    title: str = ""
    choice: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chart:
    """Panels that show one subject.

    Attributes
    ----------
    label : str
        Subject in a sentence, for readers who do not see it.
    panels : sequence of Panel
        A page opens on the first; every combination of options must have a panel.
    groups : tuple of str
        Name of each group of buttons on a page.
    note : str
        Remark below the panels of a figure, or in the caption on a page.
    scales : bool
        Whether a page offers a linear vertical axis beside the logarithmic one.
    """

    label: str
    panels: Sequence[Panel]
    groups: tuple[str, ...] = ()
    note: str = ""
    scales: bool = False


@dataclass(frozen=True)
class Picture:
    """An image (rows, columns) with a line above and a line below."""

    image: np.ndarray
    above: str = ""
    below: str = ""
    colour: str = "black"  # of the line below


@dataclass(frozen=True)
class Gallery:
    """Rows of pictures of one size.

    Attributes
    ----------
    rows : sequence of (str, sequence)
        Label of each row and its cells: pictures, panels, or None for a gap.
    columns : sequence of str
        Headings; the first stands above the labels of the rows.
    palette : {"diverging", "ink", "grey"}
        Blue, white and red; red, white and black; white to black.
    limit : float, optional
        Value at the end of the palette, the same for all pictures. Otherwise each picture has its own largest pixel
        there.
    note : str
        Remark below the rows; with a common limit it stands below the colour scale.
    """

    rows: Sequence[tuple[str, Sequence[Picture | Panel | None]]]
    columns: Sequence[str] = ()
    palette: Palette = "diverging"
    limit: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Part:
    """One of several numbers that add up, with the pattern it belongs to, if any."""

    label: str
    amount: float
    remark: str = ""
    image: np.ndarray | None = None


@dataclass(frozen=True)
class Waterfall:
    """A number taken apart: parts that begin where the one before ended, then totals that begin at zero."""

    parts: Sequence[Part]
    totals: Sequence[tuple[str, float]]
    picture: Picture | None = None  # beside the bars
    title: str = ""
    axis: str = ""  # name of the number
