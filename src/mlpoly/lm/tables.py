"""Rows as text: columns of equal width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["TableList", "plain_table"]


class TableList(list[Any]):
    """A list of records with a method ``row()``, which prints as a table of them."""

    def __str__(self) -> str:
        return plain_table([record.row() for record in self])


def plain_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of rows with the same keys; numbers stand to the right, what is None stays empty."""
    if not rows:
        return ""
    names = list(rows[0])
    cells = [names]
    for values in ([row[name] for name in names] for row in rows):
        cells.append(["" if v is None else f"{v:.4g}" if isinstance(v, float) else str(v) for v in values])
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    right = [not any(isinstance(row[name], str) for row in rows) for name in names]
    lines = [
        "  ".join(
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in cells
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
