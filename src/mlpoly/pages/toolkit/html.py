"""HTML from Python: every text is escaped, and only what is `markupsafe.Markup` already passes as it is."""

from markupsafe import Markup, escape

_VOID = {"br", "hr", "img", "input", "meta"}


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
