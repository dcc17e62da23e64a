"""Two tables of measurements in the documents, from the JSON of one run or two: what is between its marks is made here.

``<!-- measured: mixtures -->`` ... ``<!-- end -->`` is the quality of fits under a mixture, ``speed`` the ratios worth
knowing. The latter is ``benchmarks/speed.md``, where ``{benchmark: pattern}`` stands for the range of all numbers whose
key has the pattern, over all runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).parent / "speed.md"
MARKED = re.compile(r"(<!-- measured: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
Run = Mapping[str, Mapping[str, Any]]  # benchmark -> {"about": ..., "results": ...}

# Rows of the table of qualities: what it says, and the key in the JSON.
QUALITIES = {
    "exact quadratic, default tolerance": "exact quadratic",
    "exact quadratic, fully converged": "exact quadratic, converged",
    "the paper's route: the N(0, I) fit, then 2000 steps of schedule-free SGD": "paper: N(0, I) + 2000 steps of SGD",
    "the same with 200 steps": "paper: N(0, I) + 200 steps of SGD",
    "neuronwise quadratic": "neuronwise quadratic",
    "quadratic under N(mean, cov) of all the data": "quadratic under N(mean, cov)",
    "quadratic under N(0, I)": "quadratic under N(0, I)",
    "linear": "linear",
}
RANGE = re.compile(r"\{(\w+): (.*?)\}")


def filled(text: str, runs: Sequence[Run]) -> str:
    """The text with its tables, where all benchmarks that they need were run."""

    def make(mark: re.Match[str]) -> str:
        try:
            return f"{mark[1]}{KINDS[mark[2]](runs)}\n{mark[3]}"
        except KeyError:
            return mark[0]

    return MARKED.sub(make, text)


def qualities(runs: Sequence[Run]) -> str:
    """Fractions of variance unexplained, in the first run."""
    results = runs[0]["gpu_mixture"]["results"]
    lines = ["| | ReLU | SwiGLU |", "|---|---|---|"]
    for said, key in QUALITIES.items():
        first, second = (results[f"{kind}: FVU, {key}"] for kind in ("ReLU", "SwiGLU"))
        lines.append(f"| {said} | {first:.3g} | {second:.3g} |")
    return "\n".join(lines)


def speeds(runs: Sequence[Run]) -> str:
    """Ratios, and what they are of."""
    return RANGE.sub(lambda m: span(runs, m[1], m[2]), TEMPLATE.read_text(encoding="utf-8").rstrip())


KINDS = {"mixtures": qualities, "speed": speeds}


def span(runs: Sequence[Run], name: str, pattern: str) -> str:
    """Smallest to largest of the numbers of a benchmark whose key has the pattern."""
    measured = [run[name]["results"] for run in runs if name in run]  # some were run once
    found = [value for results in measured for key, value in results.items() if re.search(pattern, key)]
    if not found:
        raise KeyError(pattern)
    low, high = short(min(found)), short(max(found))
    return low if low == high else f"{low} to {high}"


def short(value: float) -> str:
    """Two digits, three of what is near to one: 0.65, 1.04, 66, 850, 8100, 1.4 · 10⁶; whole numbers as they are."""
    if isinstance(value, int):
        return str(value)
    if 1e-3 <= value < 1e5:
        digits = 3 if 0.95 <= value < 2 else 2
        return f"{float(f'{value:.{digits}g}'):g}"
    factor, power = f"{value:.1e}".split("e")
    raised = power_of_ten(int(power))
    return raised if factor == "1.0" else f"{factor} · {raised}"


def power_of_ten(exponent: int) -> str:
    """As it is written by hand: 10⁻¹³."""
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
