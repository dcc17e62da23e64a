"""How to make a page again: its command, the files beside it, options, machine and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mlpoly.pages.toolkit.html import element, link
from mlpoly.pages.toolkit.numbers import duration
from mlpoly.pages.toolkit.page import Page
from mlpoly.pages.toolkit.widgets import command, options, table


def rerun_section(page: Page, about: Mapping[str, Any], folder: Path, patterns: Sequence[str]) -> None:
    """Add a section that says how to make the page again and on what machine, with links to the files beside it.

    Parameters
    ----------
    page : Page
    about : mapping
        "command" (str), "config" and "machine" (mappings), "seconds" (stage to float), each where known.
    folder : Path
        Folder of the page.
    patterns : sequence of str
        Files in it to link, such as "tables/*.csv"; those that are not there yet are left out.
    """
    section = page.section("rerun", "How to rerun it", "Rerun it")
    if about.get("command"):
        section.add(command(str(about["command"])))
    found = [path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file()]
    if found:
        names = [path.relative_to(folder).as_posix() for path in found]
        links = (element("li", link(quote(name), name)) for name in names)
        section.add(element("h3", "Files beside this page"), element("ul", *links, class_="files"))
    tables = []
    for title, key in (("Option", "config"), ("Machine and versions", "machine")):
        if about.get(key):
            tables.append(table((title, ""), options(about[key])))
    seconds = {stage: float(s) for stage, s in (about.get("seconds") or {}).items()}
    if seconds:
        rows = [(stage, duration(s)) for stage, s in seconds.items()]
        tables.append(table(("Stage", "Time"), [*rows, ("all", duration(sum(seconds.values())))]))
    if tables:
        section.add(element("div", *tables, class_="side-by-side"))
