"""A number taken apart: parts that add up to it, as a waterfall of bars, each with its picture and its words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from markupsafe import Markup

from mlpoly.page.html import element
from mlpoly.page.numbers import number, signed
from mlpoly.page.widgets import choices

__all__ = ["Part", "panels", "waterfall"]


class Part(NamedTuple):
    """One of the numbers that add up."""

    name: object
    amount: float
    picture: Markup | None = None


def waterfall(parts: Sequence[Part], totals: Sequence[tuple[str, float]]) -> Markup:
    """Bars that begin where the one above ended, and below them totals that begin at zero.

    Parameters
    ----------
    parts : sequence of Part
    totals : sequence of (name, value)
        The sum of the parts, and what it may be compared with.
    """
    ends = list(accumulate((part.amount for part in parts), initial=0.0))
    reached = [*ends, *(value for _, value in totals)]
    low, high = min(reached), max(reached)
    room = (high - low) or 1.0

    def row(name: object, start: float, end: float, shown: str, kind: str, picture: Markup | None = None) -> Markup:
        left, width = (min(start, end) - low) / room, abs(end - start) / room
        bar = element("span", class_="bar", style=f"left:{left:.2%};width:max(2px,{width:.2%})")
        track = element("span", bar, class_="track", aria_hidden="true")
        cells = (element("span", picture or Markup(), class_="picture"), element("span", name, class_="name"))
        return element("li", *cells, track, element("span", shown, class_="amount"), class_=kind)

    rows = [
        row(p.name, start, end, signed(p.amount), "up" if p.amount >= 0 else "down", p.picture)
        for p, start, end in zip(parts, ends, ends[1:], strict=False)
    ]
    rows += [row(name, 0.0, value, number(value), "total") for name, value in totals]
    return element("ol", *rows, class_="waterfall", style=f"--zero:{-low / room:.4f}")


def panels(name: str, legend: str, items: Sequence[tuple[object, Markup]]) -> Markup:
    """Several contents in one place, chosen by buttons; the first is shown."""
    shown = [element("div", content, class_="panel", hidden=i > 0) for i, (_, content) in enumerate(items)]
    buttons = element("div", choices(name, legend, [label for label, _ in items]), class_="controls")
    return element("div", buttons, *shown, class_="panels", data_panels=name)
