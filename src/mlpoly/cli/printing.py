"""Results of a command on a terminal: paths as lines, records as tables."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mlpoly.codec import to_plain
from mlpoly.studies.paper.results import Claim

_HOLDS = {True: "[green]yes[/green]", False: "[red]no[/red]", None: "cannot be judged"}
_WIDTH = 120  # of tables where there is no terminal


def show(result: dict[str, Any], console: Console | None = None) -> None:
    """Print the result of a command."""
    console = console or Console(width=None if Console().is_terminal else _WIDTH, highlight=False)
    for name, value in result.items():
        rows = to_plain(value) if isinstance(value, list | tuple) else []
        if rows and isinstance(value[0], Claim):
            table = Table("claim", "measured here", "holds?", title="Claims of the paper", show_lines=True)
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
            if isinstance(value, Path):
                value = value.resolve()  # so that it can be opened from anywhere
            for line in rows if isinstance(value, list | tuple) else [value]:
                console.print(f"{name}: {line}", soft_wrap=True, markup=False)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
