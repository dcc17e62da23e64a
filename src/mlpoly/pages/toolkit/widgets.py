"""Building blocks of pages: tables, verdicts, numbers to remember, choices, commands, figures, formulas."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeGuard

from markupsafe import Markup

from mlpoly.pages.toolkit.html import element
from mlpoly.pages.toolkit.numbers import number

LEGEND = "A click on a name in the legend hides it."


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    caption: str = "",
    stacked: bool = False,
    digits: int = 3,
) -> Markup:
    """Return a table that scrolls inside its own frame where the window is narrow; numbers stand to the right.

    The first cell of a row is its heading. With `stacked`, rows are sentences: in a narrow window each becomes a card.
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
    title = element("caption", element("span", caption)) if caption else Markup()
    inner = element("table", title, element("thead", head), element("tbody", *body))
    frame = "table stacked" if stacked else "table"
    # Reachable with the keyboard, as whoever has no pointer must be able to scroll it.
    return element("div", inner, class_=frame, tabindex=0, role="region", aria_label=caption or ", ".join(columns))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def options(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return a nested mapping as rows of a table: ("train.steps", "100")."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += [(f"{key}.{inner}", item) for inner, item in options(value)]
        else:
            rows.append((str(key), value if isinstance(value, str) else json.dumps(value, default=str)))
    return rows


def verdict(holds: bool | None) -> Markup:
    """Return yes, no or "cannot be judged", in colour and in words."""
    kind, words = {True: ("yes", "yes"), False: ("no", "no"), None: ("open", "cannot be judged")}[holds]
    return element("span", words, class_=f"verdict {kind}")


def tiles(items: Sequence[tuple[str, str, str]]) -> Markup:
    """Return numbers to remember: each a value, its name and a remark."""
    blocks = []
    for value, name, remark in items:
        shown = element("dd", value, class_="value"), element("dd", remark, class_="remark")
        blocks.append(element("div", element("dt", name), *shown))
    return element("dl", *blocks, class_="tiles")


def facts(items: Mapping[str, str]) -> Markup:
    """Return names with their values; those without a value are left out."""
    rows = [element("div", element("dt", name), element("dd", value)) for name, value in items.items() if value]
    return element("dl", *rows, class_="facts")


def figure(content: Markup, caption: object, label: str = "") -> Markup:
    """Return something to look at, on a card, with its caption."""
    name = element("strong", label, ". ") if label else Markup()
    return element("figure", content, element("figcaption", name, caption))


def choices(name: str, legend: str, labels: Sequence[object], chosen: int = 0) -> Markup:
    """Return buttons to choose one of several: radio buttons underneath, so that the arrow keys work.

    The value of each is its place, "0", "1", ...
    """
    buttons = []
    for i, label in enumerate(labels):
        radio = element("input", type="radio", name=name, value=i, checked=i == chosen)
        buttons.append(element("label", radio, element("span", label)))
    return element("fieldset", element("legend", legend), *buttons, class_="choices")


def menu(name: str, label: str, options: Iterable[str]) -> Markup:
    """Return a menu of options whose values are their places."""
    items = [element("option", option, value=i) for i, option in enumerate(options)]
    return element("label", label, element("select", *items, id=name), class_="pick", for_=name)


def panels(name: str, legend: str, items: Sequence[tuple[object, Markup]]) -> Markup:
    """Return several contents in one place, chosen by buttons; the first is shown."""
    shown = [element("div", content, class_="panel", hidden=i > 0) for i, (_, content) in enumerate(items)]
    buttons = element("div", choices(name, legend, [label for label, _ in items]), class_="controls")
    return element("div", buttons, *shown, class_="panels", data_panels=name)


def formula(name: str | Markup, terms: Sequence[tuple[float, Sequence[Markup]]], words: bool = False) -> Markup:
    """Return a polynomial written out, "p = 2.1 + 0.5 x − 0.3 x y", in MathML; lines break between terms.

    Each term has a coefficient and factors (see `variable`), of which a repeated one is a power. With `words`, where
    factors have names of several letters, dots stand between them.
    """
    between = element("mo", "·") if words else Markup("<mspace width='0.15em'></mspace>")
    pieces = [element("math", name if isinstance(name, Markup) else element("mi", name), element("mo", "="))]
    for i, (coefficient, factors) in enumerate(terms):
        powers = [(factor, len(list(group))) for factor, group in groupby(factors)]
        shown = [factor if power == 1 else element("msup", factor, element("mn", power)) for factor, power in powers]
        sign = "−" if coefficient < 0 else "+" if i else ""
        parts = [element("mo", sign, form="infix" if i else "prefix")] if sign else []
        size = element("mn", number(abs(coefficient)))
        pieces.append(element("math", *parts, size, *(between + f for f in shown)))
    return element("p", Markup(" ").join(pieces), class_="formula", tabindex=0)


def variable(name: str, *indices: object, title: str = "") -> Markup:
    """Return a variable with its indices, "x" or "x₂,₃", as MathML for `formula`; a title is shown by the pointer."""
    letter = element("mi", name, title=title or None)
    return element("msub", letter, element("mtext", ",".join(map(str, indices)))) if indices else letter


def command(line: str) -> Markup:
    """Return a command to copy."""
    button = element("button", "Copy", type="button", class_="copy")
    return element("div", element("pre", element("code", line)), button, class_="command")


def picture_row(pictures: Sequence[tuple[Markup, object]], label: str) -> Markup:
    """Return small pictures beside one another, each with a line below it."""
    items = [element("li", image, element("span", below)) for image, below in pictures]
    return element("div", element("p", label, class_="row-label"), element("ul", *items), class_="pictures")
