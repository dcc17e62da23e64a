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
    columns = []
    for name in rows[0]:
        values = [row[name] for row in rows]
        cells = [name, *("" if v is None else f"{v:.4g}" if isinstance(v, float) else str(v) for v in values)]
        width, align = max(map(len, cells)), "<" if any(isinstance(v, str) for v in values) else ">"
        columns.append([f"{cell:{align}{width}}" for cell in cells])
    lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
