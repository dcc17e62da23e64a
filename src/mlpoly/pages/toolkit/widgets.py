"""Building blocks of pages: elements, numbers as people read them, tables, choices, figures, formulas.

Every text is escaped; only what is `markupsafe.Markup` already passes as it is. A number has few digits, a true minus
sign, thin spaces between thousands, and no line break inside.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeGuard

from markupsafe import Markup, escape

LEGEND = "A click on a name in the legend hides it."
_VOID = {"br", "hr", "img", "input", "meta"}
_MINUS, _THIN, _FIXED = "\N{MINUS SIGN}", "\N{NARROW NO-BREAK SPACE}", "\N{NO-BREAK SPACE}"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_PERCENT = f"{_THIN}%"
_MISSING = "–"


def element(tag: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element with its children, which are escaped unless they are Markup.

    The attributes ``class_="wide"`` and ``aria_label="..."`` become class and aria-label. True writes the name alone;
    False and None leave the attribute out.
    """
    opening = Markup(tag)
    for key, value in attributes.items():
        if value is not None and value is not False:
            name = key.rstrip("_").replace("_", "-")
            opening += Markup(" {}").format(name) if value is True else Markup(' {}="{}"').format(name, value)
    closing = Markup() if tag in _VOID else Markup(f"</{tag}>")
    return Markup("<{}>{}{}").format(opening, Markup().join(map(escape, children)), closing)


def link(address: str, *children: object, **attributes: object) -> Markup:
    """Return a link to an anchor of the page or to a file beside it; an address with a scheme is refused."""
    if ":" in address.split("/")[0] or address.startswith("//"):
        raise ValueError(f"the address {address!r} leaves the page; give an anchor (#name) or a relative path.")
    return element("a", *children, href=address, **attributes)


def number(value: float, digits: int = 3) -> str:
    """Return a number to some significant digits; a power of ten if it is tiny or huge, a dash if it is not finite."""
    if not math.isfinite(value):
        return _MISSING
    size = abs(value)
    if size != 0 and not 1e-4 <= size < 1e7:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}{_FIXED}×{_FIXED}10{str(int(exponent)).translate(_RAISED)}".replace("-", _MINUS)
    if size >= 10**digits or value == int(value):
        return f"{value:,.0f}".replace(",", _THIN).replace("-", _MINUS)
    return f"{value:#.{digits}g}".rstrip(".").replace("-", _MINUS)


def signed(value: float, digits: int = 3) -> str:
    """Return a number with its sign, whichever it is."""
    return f"+{number(value, digits)}" if value > 0 else number(value, digits)


def percent(value: float, decimals: int | None = 1) -> str:
    """Return a fraction as a percentage; None for decimals gives three significant digits."""
    if not math.isfinite(value):
        return _MISSING
    return (number(100 * value) if decimals is None else f"{100 * value:.{decimals}f}") + _PERCENT


def span(values: Iterable[float], show: Callable[[float], str] = number) -> str:
    """Return the range of several numbers, as "0.011 to 0.013" or "2 to 3 %"; one number where all read the same."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return _MISSING
    low, high = show(min(finite)), show(max(finite))
    return low if low == high else f"{low.removesuffix(_PERCENT)} to {high}"


def rounded(values: Iterable[float], digits: int = 4) -> list[float]:
    """Return values to the few digits that a page shows, for the data of its scripts."""
    return [float(f"{value:.{digits}g}") for value in values]


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    if not math.isfinite(seconds):
        return _MISSING
    size, unit = (1, "s") if seconds < 120 else (60, "min") if seconds < 7200 else (3600, "h")
    return f"{number(seconds / size)}{_THIN}{unit}"


def listing(items: Sequence[object]) -> str:
    """Return several things in a sentence: "a", "a and b", "a, b and c"."""
    names = [str(item) for item in items]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: "1 seed", "3 seeds"."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


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
    blocks = (
        (element("dt", name), element("dd", value, class_="value"), element("dd", remark, class_="remark"))
        for value, name, remark in items
    )
    return element("dl", *(element("div", *block) for block in blocks), class_="tiles")


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
    radios = (element("input", type="radio", name=name, value=i, checked=i == chosen) for i in range(len(labels)))
    buttons = (element("label", *each) for each in zip(radios, (element("span", x) for x in labels), strict=True))
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
