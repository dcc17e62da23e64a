"""Compare the ratios of a new run with those that are kept: ``python -m benchmarks.check [NEW] [OLD]``.

Only numbers without a unit are compared: seconds and GiB say more of the machine than of the library. A number may get
worse by a factor (slopes: by a difference) before it counts. Exits with 1 if something got worse by more.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import FOLDER

KEPT = Path(__file__).parent / "results"
UNITS = re.compile(r"(, (s|ms|us|µs|GiB|MiB|GB/s|[GT]FLOP/s|hours)\b|\bseconds\b|\bms per\b|, microseconds)")
# Numbers that tell what was asked or found, not how well it went.
NEUTRAL = re.compile(
    r"standard errors|directions kept|iterations|converged after|catches up|samples? (at|size)|tokens at"
)


class Rule(NamedTuple):
    """How one kind of number is judged."""

    higher_is_better: bool
    tolerance: float
    by_difference: bool = False


# The first that is found in the key decides.
RULES: tuple[tuple[str, Rule], ...] = (
    (r": (launches|products /|passes over|compilations)", Rule(False, 1.05)),  # counted, hardly of the machine
    (r"exponent of time per iteration", Rule(False, 0.7, by_difference=True)),  # of milliseconds, with much latency
    (r"slope|exponent", Rule(False, 0.35, by_difference=True)),
    (r"share of", Rule(True, 1.5)),
    (r"/ closed form|/ exact quadratic|dense coefficients / ridge", Rule(True, 2.0)),  # of others to ours
    (r"error of the (covariance|means)", Rule(False, 1.2)),  # of a closure: hardly any rounding in it
    (r"\berrors?\b|gradient|CUDA against CPU", Rule(False, 10.0)),  # of the size of rounding
    (r"FVU|misfit", Rule(False, 1.1)),  # no time in them: they hardly move
    (r"", Rule(False, 1.5)),
)


class Row(NamedTuple):
    """One number in both runs."""

    benchmark: str
    key: str
    old: float
    new: float
    allowed: str
    worse: bool


def comparable(key: str) -> bool:
    """Whether a key names a number without a unit that can get better or worse."""
    return not UNITS.search(key) and not NEUTRAL.search(key)


def rule_of(key: str) -> Rule:
    """How the number of that name is judged."""
    return next(rule for pattern, rule in RULES if re.search(pattern, key))


def worse(key: str, old: float, new: float) -> bool:
    """Whether a number got worse by more than it may."""
    rule = rule_of(key)
    if rule.by_difference:
        return new > old + rule.tolerance
    if rule.higher_is_better:
        return new * rule.tolerance < old
    return new > old * rule.tolerance


def allowed(key: str) -> str:
    """The tolerance in words."""
    rule = rule_of(key)
    if rule.by_difference:
        return f"+ {rule.tolerance:g}"
    return f"{'/' if rule.higher_is_better else '×'} {rule.tolerance:g}"


def compare(new: Path, old: Path) -> list[Row]:
    """All ratios that both folders have; benchmarks that were not run again are passed over."""
    rows = []
    for path in sorted(new.glob("*.json")):
        before = old / path.name
        if not before.exists():
            continue
        now, then = (json.loads(p.read_text())["results"] for p in (path, before))
        for key in then:
            if is_number(then[key]) and is_number(now.get(key)) and comparable(key):
                judged = worse(key, then[key], now[key])
                rows.append(Row(path.stem, key, then[key], now[key], allowed(key), judged))
    return rows


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def show(rows: list[Row]) -> None:
    """A table of all numbers, those that got worse in red."""
    from rich.console import Console
    from rich.table import Table

    table = Table("benchmark", "ratio", box=None, header_style="bold")
    for title in ("kept", "now", "may become", ""):
        table.add_column(title, justify="right")
    for r in rows:
        mark = "worse" if r.worse else "ok"
        cells = (r.benchmark, r.key, f"{r.old:.3g}", f"{r.new:.3g}", r.allowed, mark)
        table.add_row(*cells, style="red" if r.worse else None)
    Console(width=None if sys.stdout.isatty() else 160).print(table, markup=False)


def main(arguments: list[str] | None = None) -> int:
    """Compare, and tell how many got worse."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("new", nargs="?", type=Path, default=FOLDER, help="folder with the JSON of a new run")
    parser.add_argument("old", nargs="?", type=Path, default=KEPT, help="folder to compare with")
    chosen = parser.parse_args(arguments)
    rows = compare(chosen.new, chosen.old)
    if not rows:
        print(f"nothing to compare: {chosen.new} and {chosen.old} have no ratio in common; run make bench first")
        return 2
    show(rows)
    bad = sum(r.worse for r in rows)
    print(f"{len(rows)} ratios compared, {bad} worse than allowed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
