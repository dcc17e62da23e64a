"""Results of a command as text: paths as lines, records as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mlpoly.studies.paper.results import Claim
from mlpoly.studies.paper.tables import plain

__all__ = ["show"]

_HOLDS = {True: "[green]yes[/green]", False: "[red]no[/red]", None: "cannot be judged"}
_WIDTH = 120  # of tables where no terminal says


def show(result: dict[str, Any], console: Console | None = None) -> None:
    """Print what a command found."""
    console = console or Console(width=None if Console().is_terminal else _WIDTH, highlight=False)
    for name, value in result.items():
        listed = isinstance(value, Sequence) and not isinstance(value, str)
        rows = [plain(v) for v in value] if listed else []
        if rows and isinstance(value[0], Claim):
            table = Table(title="What the paper says, and what was measured", show_lines=True)
            for heading in ("claim", "measured here", "holds?"):
                table.add_column(heading)
            for claim in value:
                table.add_row(escape(claim.name), escape(claim.measured), _HOLDS[claim.holds])
            console.print(table)
        elif rows and isinstance(rows[0], dict):
            table = Table(title=name)
            for heading, first in rows[0].items():
                table.add_column(heading.replace("_", " "), justify="left" if isinstance(first, str) else "right")
            for row in rows:
                table.add_row(*[escape(_text(v)) for v in row.values()])
            console.print(table)
        else:
            if isinstance(value, dict):
                value = ", ".join(f"{k} {_text(v)}" for k, v in value.items())
            for line in rows if listed else [value]:
                console.print(f"{name}: {line}", soft_wrap=True, markup=False)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(_text(v) for v in value)
    return str(value)
