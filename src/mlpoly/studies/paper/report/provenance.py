"""The table of claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mlpoly.page.html import Html, link
from mlpoly.page.widgets import table, verdict

__all__ = ["Claimed", "claims_table"]


class Claimed(Protocol):
    """A claim and what was measured, such as `mlpoly.studies.paper.results.Claim`."""

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
