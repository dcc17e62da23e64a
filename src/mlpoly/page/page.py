"""A page in one file: style, scripts, data and pictures are inside it, and it asks no network for anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from mlpoly.extras import explain_missing
from mlpoly.files import write_text
from mlpoly.page.html import Html, element, join, link, paragraph

__all__ = ["Page", "Section"]

_SCRIPTS = ("page.js", "plots.js", "viewer.js")
# The browser itself refuses whatever would leave the file, should a part of the page ever try.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


@dataclass
class Section:
    """A part of the page with a heading, which the table of contents leads to.

    Attributes
    ----------
    anchor : str
        What ``#anchor`` in an address jumps to.
    title, short : str
        The heading, and its form in the table of contents.
    """

    anchor: str
    title: str
    short: str
    content: list[Html] = field(default_factory=list)

    def add(self, *parts: str | Html) -> Section:
        """Put parts below those it has; a plain string becomes a paragraph."""
        self.content += [part if isinstance(part, Html) else paragraph(part) for part in parts]
        return self

    def html(self) -> Html:
        """The section as HTML."""
        mark = link(f"#{self.anchor}", "#", class_="mark", aria_label=f"Link to: {self.title}")
        heading = element("h2", self.title, " ", mark, id=f"{self.anchor}-title")
        return element("section", heading, *self.content, id=self.anchor, aria_labelledby=f"{self.anchor}-title")


@dataclass
class Page:
    """A page that opens from a file, without a network.

    Attributes
    ----------
    title : str
    kicker : str
        A line above the title: where it comes from.
    footer : str
    lang : str

    Examples
    --------
    >>> page = Page("Polynomials of one block")
    >>> _ = page.section("error", "How far they are off").add("The quadratic leaves 2 % unexplained.")
    >>> page.html().count("<section")
    1
    """

    title: str
    kicker: str = ""
    footer: str = ""
    lang: str = "en"
    lead: list[Html] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)

    def introduce(self, *parts: str | Html) -> Page:
        """Put parts below the title, above the sections; a plain string becomes a paragraph."""
        self.lead += [part if isinstance(part, Html) else paragraph(part, class_="lead") for part in parts]
        return self

    def section(self, anchor: str, title: str, short: str = "") -> Section:
        """Open a section below those it has, and return it."""
        if any(section.anchor == anchor for section in self.sections):
            raise ValueError(f"the page has a section {anchor!r} already; anchors must differ.")
        self.sections.append(Section(anchor, title, short or title))
        return self.sections[-1]

    def html(self) -> str:
        """The whole page."""
        kicker = paragraph(self.kicker, class_="kicker") if self.kicker else Html()
        header = element("header", kicker, element("h1", self.title), *self.lead)
        quiet = element("noscript", paragraph("The plots and the viewer of this page need JavaScript.", class_="note"))
        footer = element("footer", self.footer) if self.footer else Html()
        main = element("main", header, quiet, *(s.html() for s in self.sections), footer, id="content")
        items = element("ol", *(element("li", link(f"#{s.anchor}", s.short)) for s in self.sections))
        contents = element("nav", paragraph("Contents"), items, class_="contents", aria_label="Contents")
        skip = link("#content", "Skip to the content", class_="skip")
        body = join((skip, element("div", contents, main, class_="layout")))
        scripts = [_asset(name) for name in _SCRIPTS]
        if 'data-plot="' in body:  # five megabytes, so only where something is drawn with it
            with explain_missing("a page with plots"):
                from plotly.offline import get_plotlyjs  # an extra: pages without plots do without it
            scripts.insert(0, str(get_plotlyjs()))
        head = element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("title", self.title),
            element("style", Html(_asset("page.css"))),
        )
        code = [element("script", Html(script)) for script in scripts]
        return f"<!DOCTYPE html>\n{element('html', head, element('body', body, *code), lang=self.lang)}\n"

    def write(self, path: str | Path) -> Path:
        """Write the page to a file, whole or not at all; its folder is made if it is missing."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, self.html())
        return path


def _asset(name: str) -> str:
    return (files("mlpoly.page") / "assets" / name).read_text(encoding="utf-8")
