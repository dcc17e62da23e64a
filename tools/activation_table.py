"""The README's table of activations, made from the registry.

``python tools/activation_table.py`` rewrites the part of README.md between the two markers; with ``--check`` it only
says whether that part is up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mlpoly import activations

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- activations: begin -->", "<!-- activations: end -->"


def table() -> str:
    """The table as Markdown."""
    lines = ["| name | function | coefficients | also known as |", "|---|---|---|---|"]
    for family in activations.families():
        record = activations.get(family.name)
        name = family.name
        if family.parameters:
            name += "(" + ", ".join(f"{k}={v:g}" for k, v in family.parameters.items()) + ")"
        other = ", ".join(f"`{a}`" for a in family.aliases)
        formula = record.formula.replace("|", "\\|")
        lines.append(f"| `{name}` | {formula} | {record.route} | {other} |")
    return "\n".join(lines)


def updated(text: str) -> str:
    """README text with the table between its markers."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


def main() -> int:
    """Rewrite or check the README."""
    text = README.read_text(encoding="utf-8")
    if "--check" in sys.argv:
        return int(updated(text) != text)
    README.write_text(updated(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
