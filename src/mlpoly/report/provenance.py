"""Where a page comes from: the claims it judges, how to make it again, and the files beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from mlpoly.report.html import Html, element, link
from mlpoly.report.page import Page
from mlpoly.report.parts import command, file_list, options, table, verdict
from mlpoly.report.words import duration

__all__ = ["Claimed", "claims_table", "rerun_section"]


class Claimed(Protocol):
    """A claim and what was measured, such as `mlpoly.studies.results.Claim`."""

    @property
    def name(self) -> str:
        """Short."""

    @property
    def paper(self) -> str:
        """What was claimed."""

    @property
    def measured(self) -> str:
        """One sentence with the numbers."""

    @property
    def holds(self) -> bool | None:
        """None where it cannot be judged."""

    @property
    def figure(self) -> str:
        """Anchor of the figure that shows it."""


def claims_table(claims: Sequence[Claimed], anchors: set[str]) -> Html:
    """Claims beside measurements, each leading to its figure if the page has that anchor."""
    rows = [
        (link(f"#{c.figure}", c.name) if c.figure in anchors else c.name, c.paper, c.measured, verdict(c.holds))
        for c in claims
    ]
    return table(("Claim", "The paper says", "Measured here", "Holds?"), rows, stacked=True)


def rerun_section(page: Page, about: Mapping[str, Any], folder: Path, patterns: Sequence[str]) -> None:
    """How to make the page again, on what it was made, and links to files beside it.

    Parameters
    ----------
    page : Page
    about : mapping
        "command" (str), "config" and "machine" (mappings), "seconds" (stage to float), each where known.
    folder : Path
        Of the page.
    patterns : sequence of str
        Files in it to link, such as "tables/*.csv"; those that are not there yet are left out.
    """
    section = page.section("rerun", "How to rerun it", "Rerun it")
    if about.get("command"):
        section.add(command(str(about["command"])))
    files = file_list(folder, patterns)
    if files:
        section.add(element("h3", "Files beside this page"), files)
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
