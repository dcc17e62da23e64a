"""Results of a command as text: paths as lines, records as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mlpoly.studies.results import Claim
from mlpoly.studies.tables import plain

__all__ = ["show"]

_HOLDS = {True: "[green]yes[/green]", False: "[red]no[/red]", None: "cannot be judged"}
_WIDTH = 120  # of tables where no terminal says


def show(result: dict[str, Any], console: Console | None = None) -> None:
    """Print what a command found."""
    console = console or Console(width=None if Console().is_terminal else _WIDTH, highlight=False)
    for name, value in result.items():
        if isinstance(value, Sequence) and not isinstance(value, str) and value and isinstance(value[0], Claim):
            console.print(_claims(value))
        elif isinstance(value, Sequence) and not isinstance(value, str):
            _list(console, name, value)
        elif isinstance(value, dict):
            parts = ", ".join(f"{k} {_text(v)}" for k, v in value.items())
            console.print(f"{name}: {parts}", soft_wrap=True, markup=False)
        else:
            console.print(f"{name}: {value}", soft_wrap=True, markup=False)


def _claims(claims: Sequence[Claim]) -> Table:
    table = Table(title="What the paper says, and what was measured", show_lines=True)
    for heading in ("claim", "measured here", "holds?"):
        table.add_column(heading)
    for claim in claims:
        table.add_row(escape(claim.name), escape(claim.measured), _HOLDS[claim.holds])
    return table


def _list(console: Console, name: str, values: Sequence[Any]) -> None:
    rows = [plain(v) for v in values]
    if not rows or not isinstance(rows[0], dict):
        for row in rows:
            console.print(f"{name}: {row}", soft_wrap=True, markup=False)
        return
    table = Table(title=name)
    for heading in rows[0]:
        table.add_column(heading.replace("_", " "), justify="left" if isinstance(rows[0][heading], str) else "right")
    for row in rows:
        table.add_row(*[escape(_text(v)) for v in row.values()])
    console.print(table)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(_text(v) for v in value)
    return str(value)
