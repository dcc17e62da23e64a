"""Pictures as records: charts, rankings, heat maps, grids of images, sums taken apart. They know no plotting library.

`mlpoly.charts.matplotlib` draws them for files and notebooks, `mlpoly.pages.toolkit` on a page. A colour is a name that
`mlpoly.charts.style.COLOURS` and page.css both have, such as "blue".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from mlpoly.arrays import as_integer
from mlpoly.tables import Plottable

Dash = Literal["solid", "dash", "dot", "dashdot"]
Palette = Literal["diverging", "ink", "grey"]  # blue, white and red; red, white and black; white to black


class Drawing(Plottable):
    """A description that is drawn as it is."""

    def chart(self, **options: Any) -> "Drawing":
        """Return the description itself, which has no options left."""
        if options:
            raise TypeError(f"this picture is described; {', '.join(options)} belongs to the function that made it.")
        return self


@singledispatch
def chart_of(result: Any, **options: Any) -> Drawing:
    """Describe the picture of a result: what ``result.chart(**options)`` does, by a function for its class."""
    raise TypeError(f"a {type(result).__name__} has no picture.")


def shortened(name: str, length: int = 28) -> str:
    """Return a name without its middle if it is too long for a picture."""
    return name if len(name) <= length else f"{name[: length - length // 3 - 1]}…{name[-(length // 3) :]}"


def check_image_shape(image_shape: Any, d: int) -> tuple[int, int]:
    """Return rows and columns as integers, or raise if d inputs are no images of this shape."""
    if isinstance(image_shape, str) or np.shape(image_shape) != (2,) or math.prod(image_shape) != d:
        remedy = f"give (rows, columns) with rows * columns = {d}"
        raise ValueError(f"image_shape is {image_shape!r}, but there are {d} inputs; {remedy}.")
    rows, columns = (as_integer("image_shape", size, 1) for size in image_shape)
    return rows, columns


def minus(number: str) -> str:
    """Return a number as text with a minus sign instead of a hyphen."""
    return number.replace("-", "\N{MINUS SIGN}")


def degree_colour(degree: int) -> str:
    """Return the name of the colour of a polynomial degree; all from 6 on share one."""
    return f"area-{min(degree, 6)}"


@dataclass(frozen=True)
class Curve:
    """A line through n points, with a band around it where a range is given."""

    label: str  # entry of the legend; marks with the same label share one
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()  # ends of the band, empty for none
    high: Sequence[float] = ()
    spread: str = ""  # name of what the band is the range of: "3 seeds"
    colour: str = "black"
    dash: Dash = "solid"
    width: float = 2.2
    dots: bool = False  # at every x
    names: Sequence[str] = ()  # of the x for the pointer, in place of the numbers


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
    """A layer on top of the areas before it."""

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
    texts: Sequence[str] = ()  # above the bars
    names: Sequence[str] = ()  # of the x for the pointer


def degree_bars(fractions: Sequence[Sequence[float]], names: Sequence[str] = ()) -> list[Bars]:
    """Return stacked bars for rows of fractions at degree 1, 2, ... and, as the last, above the highest."""
    highest = len(fractions[0]) - 1
    labels = [*(f"degree {k}" for k in range(1, highest + 1)), f"above degree {highest}"]
    colours = [*map(degree_colour, range(1, highest + 1)), "area-rest"]
    columns = zip(labels, colours, zip(*fractions, strict=True), strict=True)
    return [Bars(label, range(len(fractions)), column, colour, names=names) for label, colour, column in columns]


Mark = Curve | Points | Area | Bars


@dataclass(frozen=True)
class Axis:
    """One axis of a panel."""

    title: str = ""
    name: str = ""  # short, for the pointer: "step"
    scale: Literal["linear", "log"] = "linear"
    percent: bool = False  # whether numbers are written as per cent
    ticks: Sequence[tuple[float, str]] = ()  # places and texts; empty leaves them to the plotting library
    limits: tuple[float | None, float | None] | None = None  # None leaves an end to the data
    guides: Sequence[tuple[float, str]] = ()  # reference lines across the panel, with their texts
    zero: float | None = None  # place of 0 on a logarithmic axis

    @classmethod
    def numbered(cls, title: str, count: int, limits: tuple[float, float] | None = None) -> "Axis":
        """Axis of the numbers 0 to count - 1, at most 20 of which are written."""
        return cls(title, ticks=[(i, str(i)) for i in range(0, count, -(-count // 20))], limits=limits)

    def places(self, x: Sequence[Any]) -> list[Any]:
        """Return the places of numbers or names on the axis: all but 0 stand where they are."""
        return [self.zero if self.zero is not None and value == 0 else value for value in x]


@dataclass(frozen=True)
class Panel:
    """Marks that share two axes: a subplot of a figure, or on a page a view chosen by buttons."""

    marks: Sequence[Mark]
    x: Axis
    y: Axis
    title: str = ""  # heading of the subplot
    choice: tuple[str, ...] = ()  # one option for each group of the chart


@dataclass(frozen=True)
class Chart(Drawing):
    """Panels about one subject; a page opens on the first."""

    label: str  # subject in a sentence, for readers who do not see it
    panels: Sequence[Panel]  # one for every combination of options
    groups: tuple[str, ...] = ()  # name of each group of buttons on a page
    note: str = ""  # remark below a figure, or in the caption on a page
    scales: bool = False  # whether a page offers a linear vertical axis beside the logarithmic one


def curve_chart(label: str, x: Sequence[float], y: Sequence[float], axes: tuple[Axis, Axis], title: str) -> Chart:
    """Describe a single blue curve, with dots unless there are many."""
    curve = Curve("", x, y, colour="blue", dots=len(x) <= 40)
    return Chart(label, [Panel([curve], *axes, title)])


@dataclass(frozen=True)
class Picture:
    """An image (rows, columns) with a line above and a line below."""

    image: np.ndarray
    above: str = ""
    below: str = ""
    colour: str = "black"  # of the line below


@dataclass(frozen=True)
class Gallery(Drawing):
    """Rows of pictures of one size."""

    rows: Sequence[tuple[str, Sequence[Picture | Panel | None]]]  # label and cells; None is a gap
    columns: Sequence[str] = ()  # headings; the first stands above the labels of the rows
    palette: Palette = "diverging"
    limit: float | None = None  # value at the end of the palette; None: the largest pixel of each picture
    note: str = ""  # remark below the rows, or below the colour scale where there is a limit

    def limits(self, picture: Picture) -> tuple[float, float]:
        """Return the values at the ends of the palette: zero is in the middle, or at the start of the grey one."""
        limit = self.limit or float(np.abs(picture.image).max()) or 1.0
        return (0.0 if self.palette == "grey" else -limit), limit


@dataclass(frozen=True)
class Part:
    """One of several numbers that add up, with the pattern it belongs to, if any."""

    label: str
    amount: float
    remark: str = ""
    image: np.ndarray | None = None


@dataclass(frozen=True)
class Waterfall(Drawing):
    """A number taken apart: parts that begin where the one before ended, then totals that begin at the base."""

    parts: Sequence[Part]
    totals: Sequence[tuple[str, float]]
    picture: Picture | None = None  # beside the bars
    title: str = ""
    axis: str = ""  # name of the number
    base: float = 0.0  # where the first part and the totals begin: a large first part would leave no room for the rest

    @property
    def spans(self) -> list[tuple[float, float]]:
        """Where the bars of the parts begin and end, then those of the totals."""
        ends = list(accumulate(part.amount for part in self.parts))
        parts = list(zip([self.base, *ends[:-1]], ends, strict=True)) if ends else []
        return [*parts, *((self.base, amount) for _, amount in self.totals)]


@dataclass(frozen=True)
class Ranking(Drawing):
    """Numbers with names, as bars that begin at zero, below one another in the order given."""

    parts: Sequence[Part]
    label: str = ""  # subject in a sentence, for readers who do not see it
    title: str = ""
    axis: str = ""  # name of the number
    remarks: str = ""  # heading of the remarks, which stand to the right of the bars
    note: str = ""  # remark below all
    colour: str = ""  # of all bars; by default that of their signs, "positive" and "negative"


@dataclass(frozen=True)
class HeatMap(Drawing):
    """A matrix of numbers as colours, zero in the middle of the palette."""

    values: np.ndarray  # (rows, columns); NaN is left blank
    rows: Sequence[str]  # names
    columns: Sequence[str]
    label: str = ""  # subject in a sentence, for readers who do not see it
    title: str = ""
    name: str = ""  # of the number, at the colour scale and for the pointer
    limit: float | None = None  # value at the end of the palette; None: the largest
    note: str = ""  # remark below

    @property
    def scale(self) -> float:
        """Value at the end of the palette."""
        finite = np.abs(self.values[np.isfinite(self.values)])
        return self.limit or float(finite.max(initial=0.0)) or 1.0
