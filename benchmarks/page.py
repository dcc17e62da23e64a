"""Write docs/benchmarks.md, and the tables of other pages, from JSON: ``python -m benchmarks.page [FOLDER]``.

The prose is ``benchmarks/page.md``. In it ``{benchmark: pattern}`` stands for the range of all numbers whose key has
the pattern, and ``<!-- results: NAME -->`` for a table of them. In every page ``<!-- table: NAME KIND -->`` ...
``<!-- end -->`` holds a table of `benchmarks.tables`. With ``--keep`` the JSON, without what pictures are drawn from,
is copied to ``benchmarks/results``, which later runs are compared with.
"""

import argparse
import importlib
import json
import re
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.common import FOLDER, as_text

HERE = Path(__file__).parent
TEMPLATE, KEPT = HERE / "page.md", HERE / "results"
RANGE = re.compile(r"\{(\w+): (.*?)\}")
RESULTS = re.compile(r"<!-- results: (\w+) -->")
Run = dict[str, dict[str, Any]]  # benchmark -> {"about": ..., "results": ...}


def read(folder: Path) -> Run:
    """All results in a folder."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def page(run: Run) -> str:
    """The page of the benchmarks."""
    text = TEMPLATE.read_text().replace("<!-- machines -->", machines(run))
    text = RANGE.sub(lambda mark: span(run, mark[1], mark[2]), text)
    return tables.filled(RESULTS.sub(lambda mark: section(mark[1], run), text), run)


def section(name: str, run: Run) -> str:
    """All single numbers of a benchmark, and the command that measures them."""
    if name not in run:
        return f"*Not measured yet: `python -m benchmarks {name}`.*"
    return f"{tables.numbers(run[name]['results'])}\n\n{origin(run[name])}"


def origin(content: dict[str, Any]) -> str:
    """Command, date, and versions of other libraries that were measured beside ours."""
    versions = content["results"].get("versions", {})
    peers = "".join(f", {package} {version}" for package, version in versions.items())
    return f"`{content['about']['command']}`, {content['about']['date']}{peers}."


def span(run: Run, name: str, pattern: str) -> str:
    """Smallest to largest of the numbers of a benchmark whose key has the pattern."""
    values = [value for key, value in run[name]["results"].items() if re.search(pattern, key)]
    low, high = short(min(values)), short(max(values))
    return low if low == high else f"{low} to {high}"


def short(value: float) -> str:
    """Two digits, three of what is near to one: 0.65, 1.04, 66, 850, 8100, 1.4 · 10⁶; whole numbers as they are."""
    if isinstance(value, int):
        return str(value)
    if 1e-3 <= value < 1e5:
        digits = 3 if 0.95 <= value < 2 else 2
        return f"{float(f'{value:.{digits}g}'):g}"
    factor, power = f"{value:.1e}".split("e")
    raised = tables.power_of_ten(int(power))
    return raised if factor == "1.0" else f"{factor} · {raised}"


def machines(run: Run) -> str:
    """Which machine, system and versions every benchmark was run on."""
    groups: dict[str, list[str]] = {}
    for name, content in run.items():
        groups.setdefault(described(content["about"]), []).append(name)
    return "\n".join(f"- {', '.join(names)}: {text}." for text, names in groups.items())


def described(about: dict[str, Any]) -> str:
    """One machine in words."""
    chip = f"{about['gpu']}, " if about.get("gpu") else ""
    versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
    processor = f"{about['cpu']} with {about['cores']} cores and {about['memory, GiB']:.0f} GiB"
    return f"{chip}{processor}, threads: {about['threads']}, {about['os']}, Python {about['python']}, {versions}"


def write_pictures(run: Run, folder: Path) -> None:
    """PNG files whose names begin with ``bench-``, of the benchmarks that have a function `plot`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in run.items():
        plot = getattr(importlib.import_module(f"benchmarks.{name}"), "plot", None)
        for stem, figure in {} if plot is None else plot(content["results"]).items():
            figure.savefig(folder / f"bench-{stem}.png", dpi=150, metadata={"Software": None})


def main(arguments: list[str] | None = None) -> None:
    """Write the page, and the tables of the other documents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help="with the JSON of a run")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where benchmarks.md and images/ go")
    parser.add_argument("--keep", action="store_true", help="copy the JSON to benchmarks/results")
    chosen = parser.parse_args(arguments)
    new = read(chosen.folder)
    if not new:
        parser.error(f"no JSON in {chosen.folder}; run make bench first")
    write_pictures(new, chosen.docs / "images")
    for content in new.values():
        content["results"].pop("curves", None)
    run = read(KEPT) | new  # what was not measured again stays as it was
    (chosen.docs / "benchmarks.md").write_text(page(run))
    for path in chosen.docs.glob("*.md"):
        path.write_text(tables.filled(path.read_text(), run))
    for name, content in new.items() if chosen.keep else ():
        (KEPT / f"{name}.json").write_text(as_text(content))


if __name__ == "__main__":
    main()
