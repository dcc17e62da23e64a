"""Write docs/benchmarks.md and its pictures from the JSON of one run or two: ``python -m benchmarks.page [FOLDER]...``.

The prose is ``benchmarks/page.md``. Every number comes from the JSON; where it says ``<!-- results: NAME -->``, the
pictures, notes and table of that benchmark are put. The tables of docs/language_models.md, docs/deep_networks.md,
docs/encrypted.md and docs/mixtures.md are filled in as well. With ``--keep`` the JSON is copied to
``benchmarks/results``, which later runs are compared with.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

from benchmarks import summary, tables
from benchmarks.check import comparable, is_number, rule_of
from benchmarks.common import FOLDER

HERE = Path(__file__).parent
TEMPLATE, KEPT = HERE / "page.md", HERE / "results"
MARK = re.compile(r"<!-- results: (\w+) -->")
Run = dict[str, dict[str, Any]]  # of one folder: benchmark -> {"about": ..., "results": ...}


def read(folder: Path) -> Run:
    """All results in a folder."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def write_page(runs: list[Run], docs: Path) -> Path:
    """Pictures from the first run, tables from all."""
    names = MARK.findall(TEMPLATE.read_text())
    for name in runs[0]:
        if name in names:
            write_pictures(name, runs[0][name]["results"], docs / "images")
    text = MARK.sub(lambda mark: section(mark[1], runs), TEMPLATE.read_text())
    text = summary.filled(text.replace("<!-- machines -->", machines(runs)), runs)
    text = tables.filled(text, runs[0])
    path = docs / "benchmarks.md"
    path.write_text(text)
    for other in (docs / "language_models.md", docs / "deep_networks.md", docs / "encrypted.md"):
        if other.is_file():
            other.write_text(tables.filled(other.read_text(), runs[0]))
    mixtures = docs / "mixtures.md"
    if mixtures.is_file():
        mixtures.write_text(summary.filled(mixtures.read_text(), runs))
    return path


def figures(name: str, results: dict[str, Any]) -> dict[str, Any]:
    """Figures of a benchmark by file stem; one without a function `plot` has none."""
    plot = getattr(importlib.import_module(f"benchmarks.{name}"), "plot", None)
    return {} if plot is None else plot(results)


def write_pictures(name: str, results: dict[str, Any], folder: Path) -> None:
    """As PNG files whose names begin with ``bench-``."""
    folder.mkdir(parents=True, exist_ok=True)
    for stem, figure in figures(name, results).items():
        figure.savefig(folder / f"bench-{stem}.png", dpi=150, metadata={"Software": None})


# -- parts of the page -------------------------------------------------------------------------------------------------


def section(name: str, runs: list[Run]) -> str:
    """Pictures, notes, table and command of one benchmark."""
    found = [run[name] for run in runs if name in run]
    if not found:
        return f"*Not measured yet: `python -m benchmarks {name}`.*"
    first = found[0]
    results = first["results"]
    pictures = [f"![{stem.replace('-', ' ')}](images/bench-{stem}.png)" for stem in figures(name, results)]
    notes = [f"- {sentence}" for sentence in results.get("notes", [])]
    origin = f"`{first['about']['command']}`, {first['about']['date']}{peers(results)}."
    parts = ["\n\n".join(pictures), "\n".join(notes), table([f["results"] for f in found]), origin]
    return "\n\n".join(part for part in parts if part)


def peers(results: dict[str, Any]) -> str:
    """Versions of other libraries that were measured beside ours."""
    return "".join(f", {package} {version}" for package, version in results.get("versions", {}).items())


def table(results: list[dict[str, Any]]) -> str:
    """All single numbers; of two runs side by side, and their ratio where it means something."""
    both = len(results) > 1
    head = ["", *(["first run", "second run", "second / first"] if both else ["measured"])]
    lines = [row(head), "|---|" + "---:|" * (len(head) - 1)]
    for key, value in results[0].items():
        if isinstance(value, (dict, list)):
            continue
        cells = [escaped(key), *[number(r.get(key)) for r in results]]
        lines.append(row([*cells, *([ratio(key, value, results[1].get(key))] if both else [])]))
    return "\n".join(lines) if len(lines) > 2 else ""


def row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """Text that does not end a cell of a table."""
    return text.replace("|", "\\|")


def number(value: Any) -> str:
    """Three digits of a number; anything else as it is."""
    if value is None:
        return "–"
    if not isinstance(value, float):
        return escaped(str(value))
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa} · {summary.power_of_ten(int(exponent))}"


def ratio(key: str, first: Any, second: Any) -> str:
    """Second over first, for ratios alone: absolute times tell more of the machine's mood than of the library."""
    means = comparable(key) and not rule_of(key).by_difference  # of slopes near zero a ratio tells nothing
    return f"{second / first:.2f}" if means and is_number(first) and is_number(second) and first else ""


def machines(runs: list[Run]) -> str:
    """Which machine, system and versions every benchmark was run on."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        for name, content in run.items():
            names = groups.setdefault(described(content["about"]), [])
            if name not in names:
                names.append(name)
    return "\n".join(f"- {', '.join(names)}: {text}." for text, names in groups.items())


def described(about: dict[str, Any]) -> str:
    """One machine in words."""
    chip = f"{about['gpu']}, " if about.get("gpu") else ""
    versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
    processor = f"{about['cpu']} with {about['cores']} cores and {about['memory, GiB']:.0f} GiB"
    return f"{chip}{processor}, threads: {about['threads']}, {about['os']}, Python {about['python']}, {versions}"


def keep(folders: list[Path]) -> None:
    """Copy the JSON of the first run to where later runs are compared with it, and that of a second beside it."""
    for folder, target in zip(folders, (KEPT, KEPT / "second"), strict=False):
        target.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.json")):
            if path.resolve() != (target / path.name).resolve():
                shutil.copyfile(path, target / path.name)


def main(arguments: list[str] | None = None) -> None:
    """Write the page, and the tables of the other documents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folders", nargs="*", type=Path, default=[FOLDER], help="with the JSON of one or two runs")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where benchmarks.md and images/ go")
    parser.add_argument("--keep", action="store_true", help="copy the JSON to benchmarks/results")
    chosen = parser.parse_args(arguments)
    runs = [read(folder) for folder in chosen.folders[:2]]
    if not runs[0]:
        parser.error(f"no JSON in {chosen.folders[0]}; run make bench first")
    print(f"wrote {write_page(runs, chosen.docs)}")
    if chosen.keep:
        keep(chosen.folders[:2])


if __name__ == "__main__":
    main()
