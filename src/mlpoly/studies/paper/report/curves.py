"""Curves over several seeds: the mean as a line, the range as a band, samples as points with their errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from mlpoly.page.numbers import number
from mlpoly.page.plot import Plot, Trace, View

__all__ = ["Curve", "Summary", "over_seeds", "place_step", "step_axis", "training_plot"]

_ZERO = 0.5  # where step 0 stands on a logarithmic axis: one octave before step 1


@dataclass(frozen=True)
class Summary:
    """A quantity against another, over the seeds.

    Attributes
    ----------
    x : tuple of float
    place : tuple of float
        Where each x stands on the axis.
    mean, low, high : tuple of float
        Over the seeds.
    error : tuple of float
        Mean of the standard errors of the seeds; zeros where none was given. Seeds may share their samples, so that
        errors do not average out.
    seeds : int
        The most that any x has.
    """

    x: tuple[float, ...]
    place: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    error: tuple[float, ...]
    seeds: int


def over_seeds(
    records: Iterable[Any],
    x: str,
    y: str | Callable[[Any], float],
    error: str = "",
    place: Callable[[float], float] = float,
) -> Summary:
    """Summarise records, one for each seed and x.

    Values that are not finite are left out, and an x without any other is left out altogether.

    Parameters
    ----------
    records : iterable
    x, y, error : str
        Attributes; `y` may be a function of the record, and `error` is the standard error of y where there is one.
    place : callable
        Where x stands on the axis.
    """
    height = attrgetter(y) if isinstance(y, str) else y
    groups: dict[float, list[tuple[float, float]]] = {}
    for record in records:
        value = float(height(record))
        if math.isfinite(value):
            spread = float(getattr(record, error)) if error else 0.0
            groups.setdefault(getattr(record, x), []).append((value, spread if math.isfinite(spread) else 0.0))
    order = sorted(groups)
    values = [[value for value, _ in groups[key]] for key in order]
    return Summary(
        x=tuple(order),
        place=tuple(place(key) for key in order),
        mean=tuple(math.fsum(v) / len(v) for v in values),
        low=tuple(min(v) for v in values),
        high=tuple(max(v) for v in values),
        error=tuple(math.fsum(e for _, e in groups[key]) / len(groups[key]) for key in order),
        seeds=max((len(v) for v in values), default=0),
    )


def place_step(step: float) -> float:
    """Where a training step stands on the logarithmic axis."""
    return float(step) if step > 0 else _ZERO


def step_axis(steps: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis for training steps, with a tick at step 0 and at every second power of two."""
    largest = max(steps, default=1.0)
    powers = [float(4**k) for k in range(math.ceil(math.log(max(largest, 1), 4)) + 1)]
    return {
        "type": "log",
        "title": {"text": "training step"},
        "tickvals": [_ZERO, *powers],
        "ticktext": ["0", *(number(p, 5) for p in powers)],
        "range": [math.log10(0.42), math.log10(1.25 * max(largest, 1))],
    }


def training_plot(
    name: str, label: str, views: Sequence[View], steps: Sequence[int], title: str = "", guides: Sequence[int] = ()
) -> Plot:
    """A plot over training steps, with buttons for what is measured and for the vertical axis.

    Parameters
    ----------
    name, label, views
        Of the `Plot`.
    steps : sequence of int
    title : str
        Of the vertical axis.
    guides : sequence of int
        Steps to mark with a thin line.
    """
    line = {"color": "var(--line)", "width": 1}
    shared = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": line, "layer": "below"}
    shapes = [{**shared, "x0": step, "x1": step} for step in guides if step < max(steps)]
    layout = {"xaxis": step_axis(steps), "yaxis": {"title": {"text": title}}, "shapes": shapes}
    return Plot(name, label, views, ("Measured", "Axis")[: len(views[0].choice)], layout)


@dataclass(frozen=True)
class Curve:
    """How a summary is drawn.

    Attributes
    ----------
    name : str
        In the legend; what shares it is hidden with it.
    colour : str
        A colour of page.css that has a soft form too, such as "blue".
    dash : str
        "solid", "dash", "dot" or "dashdot".
    width : float
    x_name, y_name : str
        For the box at the pointer.
    marks : bool
        A dot at every x, where nothing lies between them.
    """

    name: str
    summary: Summary
    colour: str
    dash: str = "solid"
    width: float = 2.4
    x_name: str = "step"
    y_name: str = "value"
    marks: bool = False

    def line(self) -> list[Trace]:
        """The mean as a line, on a band from the lowest to the highest seed."""
        s = self.summary
        stroke = {"color": f"var(--{self.colour})", "dash": self.dash, "width": self.width}
        line: Trace = {
            **self._shared(),
            "x": s.place,
            "y": s.mean,
            "mode": "lines+markers" if self.marks or len(s.x) == 1 else "lines",
            "line": stroke,
            "marker": {"color": f"var(--{self.colour})", "size": 7},
            "name": self.name,
        }
        band: Trace = {
            "type": "scatter",
            "x": [*s.place, *reversed(s.place)],
            "y": [*s.high, *reversed(s.low)],
            "fill": "toself",
            "fillcolor": f"var(--{self.colour}-soft)",
            "line": {"width": 0},
            "mode": "lines",
            "hoverinfo": "skip",
            "showlegend": False,
            "legendgroup": self.name,
        }
        return [band, line] if s.seeds > 1 and len(s.x) > 1 else [line]

    def points(self) -> list[Trace]:
        """The means as points with bars of two standard errors."""
        s = self.summary
        marker = {"color": f"var(--{self.colour})", "size": 6, "symbol": "circle-open", "line": {"width": 1.4}}
        bars = {"type": "data", "array": [2 * e for e in s.error], "thickness": 1.2, "width": 2.5}
        return [
            {
                **self._shared(),
                "x": s.place,
                "y": s.mean,
                "mode": "markers",
                "marker": marker,
                "error_y": {**bars, "color": f"var(--{self.colour})"},
                "name": f"{self.name}, on samples",
                "showlegend": False,
            }
        ]

    def _shared(self) -> Trace:
        s = self.summary
        hover = f"<b>{self.name}</b><br>{self.x_name} %{{customdata[0]:,}}<br>{self.y_name} %{{y:.4g}}"
        if s.seeds > 1:
            hover += f"<br>{s.seeds} seeds: %{{customdata[1]:.4g}} to %{{customdata[2]:.4g}}"
        return {
            "type": "scatter",
            "customdata": list(zip(s.x, s.low, s.high, strict=True)),
            "hovertemplate": f"{hover}<extra></extra>",
            "legendgroup": self.name,
        }
