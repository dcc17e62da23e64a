"""HTML from Python: every text is escaped, and only what was made here passes as it is."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["Html", "element", "join", "link", "paragraph", "text"]

_VOID = {"br", "hr", "img", "input", "meta"}


class Html(str):
    """Text that is HTML already; any other string is escaped before it gets on a page."""

    __slots__ = ()


def text(content: object) -> Html:
    """Content as HTML: escaped, unless it is HTML."""
    return content if isinstance(content, Html) else Html(escape(str(content), quote=True))


def join(parts: Iterable[object], between: str = "") -> Html:
    """Several contents, one after the other."""
    return Html(text(between).join(text(part) for part in parts))


def element(tag: str, /, *children: object, **attributes: object) -> Html:
    """An element with its children, which are escaped unless they are HTML.

    Parameters
    ----------
    tag : str
    *children : str, Html or anything with a text
    **attributes : str, number, bool or None
        ``class_="wide"`` and ``aria_label="..."`` become class and aria-label. True writes the name alone; False and
        None leave the attribute out.
    """
    opening = tag
    for key, value in attributes.items():
        if value is not None and value is not False:
            key = key.rstrip("_").replace("_", "-")
            opening += f" {key}" if value is True else f' {key}="{text(str(value))}"'
    if tag in _VOID:
        return Html(f"<{opening}>")
    return Html(f"<{opening}>{join(children)}</{tag}>")


def paragraph(*children: object, **attributes: object) -> Html:
    """A paragraph."""
    return element("p", *children, **attributes)


def link(address: str, *children: object, **attributes: object) -> Html:
    """A link to an anchor of the page or to a file beside it; a page of ours points nowhere else.

    Raises
    ------
    ValueError
        For an address with a scheme, such as https: or javascript:.
    """
    if ":" in address.split("/")[0] or address.startswith("//"):
        raise ValueError(f"the address {address!r} leaves the page; give an anchor (#name) or a relative path.")
    return element("a", *children, href=address, **attributes)
