"""The table of activations in docs/activations.md, made from the registry.

``python tools/activation_table.py`` rewrites the part of that page between the two markers; with ``--check`` it
only says whether that part is up to date.
"""

import sys
from pathlib import Path

from mlpoly import activations

PAGE = Path(__file__).parent.parent / "docs" / "activations.md"
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
    """Text of the page with the table between its markers."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


def main() -> int:
    """Rewrite or check the page."""
    text = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv:
        return int(updated(text) != text)
    PAGE.write_text(updated(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
