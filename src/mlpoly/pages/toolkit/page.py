"""A page in one file: style, scripts, data and pictures are inside it, and it loads nothing from a network."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mlpoly._version import __version__
from mlpoly.extras import explain_missing
from mlpoly.files import write_text
from mlpoly.pages.toolkit.html import element


def asset(package: str, name: str) -> str:
    """Return the text of a file in the folder "assets" of a package, such as a style or a script for `Page`."""
    return (files(package) / "assets" / name).read_text(encoding="utf-8")


@dataclass
class Section:
    """A part of the page with a heading, which the table of contents leads to.

    Attributes
    ----------
    anchor : str
        Name that ``#anchor`` in an address jumps to.
    title, short : str
        The heading, and its form in the table of contents.
    """

    anchor: str
    title: str
    short: str
    content: list[Markup] = field(default_factory=list)

    def add(self, *parts: str | Markup) -> Section:
        """Put parts below those it has; a plain string becomes a paragraph."""
        self.content += [part if isinstance(part, Markup) else element("p", part) for part in parts]
        return self


@dataclass
class Page:
    """A page that opens from a file, without a network.

    Attributes
    ----------
    title : str
    kind : str
        What the page is, such as "A report"; the line above the title says which version of the library made it.
    version : str
        That version.
    style, script : str
        CSS and JavaScript of this page alone, after those of every page.

    Examples
    --------
    >>> page = Page("Polynomials of one block")
    >>> _ = page.section("error", "How far they are off").add("The quadratic leaves 2 % unexplained.")
    >>> page.html().count("<section")
    1
    """

    title: str
    kind: str = "A report"
    version: str = __version__
    style: str = ""
    script: str = ""
    lead: list[Markup] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)

    @property
    def maker(self) -> str:
        """The library and its version."""
        return f"mlpoly {self.version}".strip()

    def introduce(self, *parts: str | Markup) -> Page:
        """Put parts below the title, above the sections; a plain string becomes a paragraph."""
        self.lead += [part if isinstance(part, Markup) else element("p", part, class_="lead") for part in parts]
        return self

    def section(self, anchor: str, title: str, short: str = "") -> Section:
        """Open a section below those it has, and return it."""
        if any(section.anchor == anchor for section in self.sections):
            raise ValueError(f"the page has a section {anchor!r} already; anchors must differ.")
        self.sections.append(Section(anchor, title, short or title))
        return self.sections[-1]

    def html(self) -> str:
        """Return the whole page."""
        scripts = [asset("mlpoly.pages.toolkit", name) for name in ("page.js", "plots.js")] + [self.script]
        parts = self.lead + [part for section in self.sections for part in section.content]
        if any('data-plot="' in part for part in parts):  # five megabytes, so only where something is drawn with it
            with explain_missing("a page with plots"):
                from plotly.offline import get_plotlyjs  # an extra: pages without plots do without it
            scripts.insert(0, get_plotlyjs())
        environment = Environment(
            loader=PackageLoader("mlpoly.pages.toolkit", "assets"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
        )
        style = asset("mlpoly.pages.toolkit", "page.css") + self.style
        return environment.get_template("page.html").render(page=self, style=style, scripts=scripts)

    def write(self, path: str | Path) -> Path:
        """Write the page to a file, whole or not at all; its folder is made if it is missing."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, self.html())
        return path
