"""What the two viewers of tokens share: tokens that can be seen, rounded numbers, menus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from mlpoly.page.html import element

__all__ = ["menu", "rounded", "visible"]

_DIGITS = 4  # of numbers inside the page


def visible(text: str) -> str:
    """A token with its line ends and control characters as symbols."""
    return "".join("⏎" if c == "\n" else chr(0x2400 + ord(c)) if ord(c) < 32 else c for c in text)


def rounded(values: Iterable[float]) -> list[float]:
    """Values to the few digits that a page shows."""
    return [float(f"{value:.{_DIGITS}g}") for value in values]


def menu(name: str, label: str, options: Sequence[str]) -> Markup:
    """A menu of options whose values are their places."""
    items = [element("option", option, value=i) for i, option in enumerate(options)]
    return element("label", label, element("select", *items, id=name), class_="pick", for_=name)
