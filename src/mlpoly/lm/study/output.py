"""What a study leaves in its folder: tables, results and a report; and the command that makes it again."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from mlpoly.errors import FileFormatError
from mlpoly.files import make_folder, read_json, write_csv, write_json
from mlpoly.lm.study.config import LmConfig
from mlpoly.lm.study.lm_results import LmResults
from mlpoly.lm.study.report import write_lm_report
from mlpoly.lm.text.token_batches import as_path
from mlpoly.page.embedded import to_json

__all__ = ["check_folder", "command_line", "write_results"]


def check_folder(folder: Path) -> None:
    """Refuse a folder whose results are not those of an earlier study like this one, before the work begins.

    Raises
    ------
    FileFormatError
    """
    path = folder / "results.json"
    if not path.is_file():
        return
    try:
        found = read_json(path)
    except FileFormatError as error:
        raise FileFormatError(f"{error} Move it away, or choose another --out.") from None
    if not (isinstance(found, dict) and {f.name for f in fields(LmResults)} <= set(found)):
        raise FileFormatError(f"{path} holds no results of `mlpoly lm`; move it away, or choose another --out.")


def write_results(folder: Path, results: LmResults) -> None:
    """Write tables/*.csv, results.json and report.html."""
    ends = ("reads", "reads_not", "raises", "lowers")
    tables: dict[str, list[dict[str, Any]]] = {
        "fvu": [asdict(fit) for fit in results.fits],
        "loss": [asdict(loss) for loss in results.losses],
        "spectrum": [
            {"layer": s.layer} | {f"degree_{k}": v for k, v in enumerate(s.shares, start=1)} | {"rest": s.rest}
            for s in results.spectra
        ],
        "features": [
            {"layer": f.layer, "output": f.output, "rank": f.rank, "value": f.value}
            | {key: " | ".join(t.text for t in getattr(f, key)) for key in ends}
            for f in results.features
        ],
        "attribution": results.attribution.rows() if results.attribution is not None else [],
    }
    target = make_folder(folder / "tables")
    for name, rows in tables.items():
        if rows:
            write_csv(target / f"{name}.csv", rows)
    write_json(folder / "results.json", json.loads(to_json(asdict(results))))
    write_lm_report(results, folder / "report.html")


def command_line(model: Any, text: Any, held_out: Any, out: Any, prompt: Any, device: str, config: LmConfig) -> str:
    """The command line that does it again."""
    shown = str(text) if as_path(text) is not None else "TEXT.txt"
    words = ["mlpoly", "lm", str(model), "--text", shown, "--out", str(out)]
    words += ["--held-out", str(held_out)] if held_out is not None and as_path(held_out) is not None else []
    words += ["--prompt", prompt] if prompt is not None else []
    words += ["--device", device] if device != "cpu" else []
    default = LmConfig()
    for f in fields(config):
        value = getattr(config, f.name)
        if value == getattr(default, f.name):
            continue
        flag = f.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    return shlex.join(words)
