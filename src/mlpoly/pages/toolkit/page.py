"""A page in one file: style, scripts, data and pictures are inside it, and it loads nothing from a network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mlpoly._version import __version__
from mlpoly.extras import explain_missing
from mlpoly.files import write_text
from mlpoly.pages.toolkit.widgets import command, duration, element, link, options, table


def asset(package: str, name: str) -> str:
    """Return the text of a file in the folder "assets" of a package, such as a style or a script for `Page`."""
    return (files(package) / "assets" / name).read_text(encoding="utf-8")


@dataclass
class Section:
    """A part of the page with a heading, which the table of contents leads to."""

    anchor: str  # which ``#anchor`` in an address jumps to
    title: str
    short: str  # the title in the table of contents
    content: list[Markup] = field(default_factory=list)

    def add(self, *parts: str | Markup) -> "Section":
        """Put parts below those it has; a plain string becomes a paragraph."""
        self.content += [part if isinstance(part, Markup) else element("p", part) for part in parts]
        return self


@dataclass
class Page:
    """A page that opens from a file, without a network; its sections are added one by one."""

    title: str
    kind: str = "A report"  # stands above the title, with the version of the library that made it
    version: str = __version__
    style: str = ""  # CSS and JavaScript of this page alone, after those of every page
    script: str = ""
    lead: list[Markup] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)

    def introduce(self, *parts: str | Markup) -> "Page":
        """Put parts below the title, above the sections; a plain string becomes a paragraph."""
        self.lead += [part if isinstance(part, Markup) else element("p", part, class_="lead") for part in parts]
        return self

    def section(self, anchor: str, title: str, short: str = "") -> "Section":
        """Open a section below those it has, and return it."""
        if any(section.anchor == anchor for section in self.sections):
            raise ValueError(f"the page has a section {anchor!r} already; anchors must differ.")
        self.sections.append(Section(anchor, title, short or title))
        return self.sections[-1]

    def rerun_section(self, about: Mapping[str, Any], folder: Path, patterns: Sequence[str] = ()) -> None:
        """Add how to make the page again, with links to the files beside it in `folder` that match the patterns.

        `about` has "command" (str), "config" and "machine" (mappings), "seconds" (stage to float), each where known.
        """
        section = self.section("rerun", "How to rerun it", "Rerun it")
        if about.get("command"):
            section.add(command(str(about["command"])))
        paths = [path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file()]
        if paths:
            names = [path.relative_to(folder).as_posix() for path in paths]
            links = (element("li", link(quote(name), name)) for name in names)
            section.add(element("h3", "Files beside this page"), element("ul", *links, class_="files"))
        titles = {"config": "Option", "machine": "Machine and versions"}
        tables = [table((title, ""), options(about[key])) for key, title in titles.items() if about.get(key)]
        seconds = {stage: float(s) for stage, s in (about.get("seconds") or {}).items()}
        if seconds:
            rows = [(stage, duration(s)) for stage, s in seconds.items()]
            tables.append(table(("Stage", "Time"), [*rows, ("all", duration(sum(seconds.values())))]))
        if tables:
            section.add(element("div", *tables, class_="side-by-side"))

    def html(self) -> str:
        """Return the whole page."""
        scripts = [asset("mlpoly.pages.toolkit", name) for name in ("page.js", "plots.js")] + [self.script]
        parts = self.lead + [part for section in self.sections for part in section.content]
        if any('data-plot="' in part for part in parts):  # five megabytes, so only where something is drawn with it
            with explain_missing("a page with plots"):
                from plotly.offline import get_plotlyjs  # an extra: pages without plots do without it
            scripts.insert(0, get_plotlyjs())
        style = asset("mlpoly.pages.toolkit", "page.css") + self.style
        look: dict[str, Any] = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True}
        environment = Environment(loader=PackageLoader("mlpoly.pages.toolkit", "assets"), **look)
        return environment.get_template("page.html").render(page=self, style=style, scripts=scripts)

    def write(self, path: str | Path) -> Path:
        """Write the page to a file, whole or not at all; its folder is made if it is missing."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, self.html())
        return path
