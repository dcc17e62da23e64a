"""What pages are put together from: tables, verdicts, numbers to remember, choices, commands, figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeGuard
from urllib.parse import quote

from mlpoly.page.html import Html, element, link, paragraph, text
from mlpoly.page.numbers import number

__all__ = [
    "choices",
    "class_name",
    "command",
    "facts",
    "figure",
    "file_list",
    "options",
    "panels",
    "picture_row",
    "table",
    "tiles",
    "verdict",
]


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    caption: str = "",
    stacked: bool = False,
    digits: int = 3,
) -> Html:
    """A table that scrolls inside its own frame where the window is narrow; numbers stand to the right.

    Parameters
    ----------
    columns : sequence of str
    rows : sequence of sequences
        Numbers are written to some digits, other things as their escaped text; the first of a row is its heading.
    caption : str
    stacked : bool
        Rows of sentences: in a narrow window each becomes a card.
    digits : int
        Of numbers.
    """
    numeric = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    names = zip(columns, numeric, strict=True)
    head = element("tr", *(element("th", name, scope="col", class_="number" if n else None) for name, n in names))
    body = []
    for row in rows:
        cells = [element("th", row[0], scope="row", data_label=columns[0])]
        for column, value in zip(columns[1:], row[1:], strict=False):
            shown, kind = (number(value, digits), "number") if _is_number(value) else (value, None)
            cells.append(element("td", shown, class_=kind, data_label=column))
        body.append(element("tr", *cells))
    parts = [element("caption", caption)] if caption else []
    inner = element("table", *parts, element("thead", head), element("tbody", *body))
    frame = "table stacked" if stacked else "table"
    # Reachable with the keyboard, as whoever has no pointer must be able to scroll it.
    return element("div", inner, class_=frame, tabindex=0, role="region", aria_label=caption or ", ".join(columns))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def options(values: Mapping[str, object]) -> list[tuple[str, object]]:
    """A nested mapping as rows of a table: ("train.steps", 100)."""
    rows: list[tuple[str, object]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += [(f"{key}.{inner}", item) for inner, item in options(value)]
        elif isinstance(value, str):
            rows.append((str(key), value))
        else:
            rows.append((str(key), json.dumps(value, default=str)))
    return rows


def verdict(holds: bool | None) -> Html:
    """Yes, no or "cannot be judged", in colour and in words."""
    kind, words = {True: ("yes", "yes"), False: ("no", "no"), None: ("open", "cannot be judged")}[holds]
    return element("span", words, class_=f"verdict {kind}")


def tiles(items: Sequence[tuple[str, str, str]]) -> Html:
    """Numbers to remember: each a value, its name and a remark."""
    blocks = []
    for value, name, remark in items:
        details = element("dd", remark, class_="remark") if remark else Html()
        blocks.append(element("div", element("dt", name), element("dd", value, class_="value"), details))
    return element("dl", *blocks, class_="tiles")


def facts(items: Mapping[str, object]) -> Html:
    """Names with what they stand for."""
    rows = [element("div", element("dt", name), element("dd", value)) for name, value in items.items()]
    return element("dl", *rows, class_="facts")


def figure(content: Html, caption: object, label: str = "") -> Html:
    """Something to look at, on a card, with its caption."""
    number_ = element("strong", label, ". ") if label else Html()
    return element("figure", content, element("figcaption", number_, text(caption)))


def choices(name: str, legend: str, labels: Sequence[object], chosen: int = 0) -> Html:
    """One of several, as buttons: radio buttons underneath, so that the arrow keys work.

    The value of each is its place, "0", "1", ...
    """
    buttons = []
    for i, label in enumerate(labels):
        radio = element("input", type="radio", name=name, value=i, checked=i == chosen)
        buttons.append(element("label", radio, element("span", label)))
    return element("fieldset", element("legend", legend), *buttons, class_="choices")


def panels(name: str, legend: str, items: Sequence[tuple[object, Html]]) -> Html:
    """Several contents in one place, chosen by buttons; the first is shown."""
    shown = [element("div", content, class_="panel", hidden=i > 0) for i, (_, content) in enumerate(items)]
    buttons = element("div", choices(name, legend, [label for label, _ in items]), class_="controls")
    return element("div", buttons, *shown, class_="panels", data_panels=name)


def class_name(classes: Sequence[str], label: int) -> str:
    """Name of a class, or its number where it has none."""
    return classes[label] if 0 <= label < len(classes) else str(label)


def command(line: str) -> Html:
    """A command to copy."""
    button = element("button", "Copy", type="button", class_="copy")
    return element("div", element("pre", element("code", line)), button, class_="command")


def picture_row(pictures: Sequence[tuple[Html, object]], label: str) -> Html:
    """Small pictures beside one another, each with a line below it."""
    items = [element("li", image, element("span", below)) for image, below in pictures]
    return element("div", paragraph(label, class_="row-label"), element("ul", *items), class_="pictures")


def file_list(folder: Path, patterns: Sequence[str]) -> Html | None:
    """Links to the files below a folder that match, relative to it; None if there are none."""
    found = [path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file()]
    names = [path.relative_to(folder).as_posix() for path in found]
    if not names:
        return None
    return element("ul", *(element("li", link(quote(name), name)) for name in names), class_="files")
