"""Tables of docs/language_models.md from the JSON of the benchmarks: what is between its marks is made here.

``<!-- table: NAME cost -->`` ... ``<!-- end -->`` is what all blocks replaced at once cost the model, ``NAME errors``
the errors of every block, and ``NAME baselines`` what simpler replacements cost.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from typing import Any

MARKED = re.compile(r"(<!-- table: (\w+) (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
DEGREES = ("1", "2", "3", "4", "5")

# Rows of the table of costs: title of the case in the JSON, and how a user asks for it.
COSTS = {
    "closed form": "closed form, polynomials everywhere",
    "first token apart, one mixture": '`groups="first"`, `method="neuronwise"`, polynomials everywhere',
    "fitted to the tokens": '`method="samples"`, polynomials everywhere',
    "closed form, lines beyond 3 sigma": "closed form, `bound=3.0`",
    "first token apart, one mixture, lines beyond 3 sigma": '`method="neuronwise"`, `bound=3.0`',
    "fitted to the tokens, lines beyond 3 sigma": '`method="samples"`, `bound=3.0`',
}
# Columns of the table of errors: case, field, and heading.
ERRORS = (
    ("closed form", "closed_form", "under the moments"),
    ("closed form", "held_out", "on held-out tokens"),
    ("closed form, lines beyond 3 sigma", "held_out", "`bound=3.0`"),
    ("fitted to the tokens, lines beyond 3 sigma", "held_out", '`method="samples"`, `bound=3.0`'),
)


def filled(text: str, run: Mapping[str, Any]) -> str:
    """The text with the tables of those benchmarks that were run."""

    def make(mark: re.Match[str]) -> str:
        if mark[2] not in run:
            return mark[0]
        return f"{mark[1]}{KINDS[mark[3]](run[mark[2]]['results'])}\n{mark[4]}"

    return MARKED.sub(make, text)


def costs(results: Mapping[str, Any]) -> str:
    """Nats added by degree."""
    lines = ["| | 1 | 2 | 3 | 4 | 5 |", "|---|---|---|---|---|---|"]
    for title, said in COSTS.items():
        rows = results["table"].get(title, {})
        if rows:
            cells = [nats(rows[d]["change"]) if d in rows else "" for d in DEGREES]
            lines.append(f"| {said} | {' | '.join(cells)} |")
    return "\n".join(lines)


def errors(results: Mapping[str, Any]) -> str:
    """Fractions of variance unexplained, the five degrees in each cell."""
    table = results["table"]
    lines = [f"| block | {' | '.join(heading for *_, heading in ERRORS)} |", "|---|" + "---|" * len(ERRORS)]
    count = len(table["closed form"]["1"]["held_out"])
    kinds: dict[str, Any] = {str(i): lambda values, i=i: values[i] for i in range(count)}
    for name, pick in (kinds | {"median": statistics.median, "worst": max}).items():
        cells = [" ".join(fraction(pick(table[case][d][field])) for d in DEGREES) for case, field, _ in ERRORS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def baselines(results: Mapping[str, Any]) -> str:
    """One sentence."""
    said = {"removed": "removed", "mean": "mean output", "linear": "least-squares linear map"}
    found = [f"{words} + {results[f'{name}: nats added']:.3g}" for name, words in said.items()]
    before = results["cross-entropy of the model"]
    return f"The model itself has {before:.2f} nats. Simpler replacements for the same blocks: {', '.join(found)}."


KINDS = {"cost": costs, "errors": errors, "baselines": baselines}


def nats(value: float) -> str:
    """Four decimals where they tell something."""
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def fraction(value: float | None) -> str:
    """Short: .0038, .15, 1.2."""
    if value is None:
        return "–"
    if value >= 1:
        return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
    return (f"{value:.4f}" if value < 0.0995 else f"{value:.3f}").removeprefix("0")
