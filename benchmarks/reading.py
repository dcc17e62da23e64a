"""Are features of blocks true, and can they be read? Causal checks and readability by kind, with controls.

stories260K on its own stories and SmolLM2-135M on Shakespeare, the ten strongest features of each kind in three layers;
and what the features of one block of SmolLM2 cost on 20 000 tokens. Needs MLPOLY_DATA/stories260K, or what
`benchmarks.smollm2` needs; runs on a GPU if there is one, and SmolLM2 in small without.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure

from benchmarks import smollm2, stories
from benchmarks.common import Skip, peak_gib, save, synchronise

KINDS = ("principal", "token", "term", "form", "neuron", "pca", "random")
SCORES = {  # of causal checks: what the figure says, and the field
    "logits, feature removed": "correlation",
    "logits, what it writes removed": "direct_correlation",
    "block, square alone": "block_correlation",
    "block, its even part": "square_correlation",
    "block, whole polynomial": "polynomial_block_correlation",
}


class Sizes(NamedTuple):
    """How much is measured."""

    features: int = 10  # of each kind
    tokens: int = 2048  # of the causal checks
    batches: int | None = None  # of the text to fit to, and of the held-out text; all by default
    shape: tuple[int, int] = (64, 512)  # what is used of a batch, at most

    def cut(self, batches: list[Any]) -> list[Any]:
        """Batches of these sizes, as token ids alone."""
        b, t = self.shape
        ids = [batch if isinstance(batch, torch.Tensor) else batch["input_ids"] for batch in batches[: self.batches]]
        return [rows[:b, :t] for rows in ids]


def compare(model: Any, train: list[Any], held_out: list[Any], sizes: Sizes) -> list[dict[str, Any]]:
    """Scores of every feature: kind, layer, rank, and the fields of both scores."""
    from mlpoly.importers import find_blocks
    from mlpoly.lm import block_features, check_features, collect, convert, read_features, readability
    from mlpoly.lm.model.tracing import trace

    names = [block.name for block in find_blocks(model)]
    layers = [len(names) * place // 6 for place in (1, 3, 5)]
    moments = collect(model, train, [names[i] for i in layers])
    made = convert(model, moments, 3, bound=smollm2.BOUND, closed_form=False)
    common = int(torch.cat([ids[:, 1:].flatten() for ids in train]).bincount().argmax())
    wiring, rows = trace(model, [0]), []
    for layer in layers:
        name = names[layer]
        sets = {
            kind: block_features(
                made.polynomials[name], model, name, kind, sizes.features, inputs=moments.gaussian(name),
                token=common if kind == "token" else None, wiring=wiring,
            )
            for kind in KINDS
        }  # fmt: skip
        # The null of the causal checks: what another feature writes.
        principal = sets["principal"]
        sets["exchanged"] = replace(principal, writes=principal.writes.roll(1, 0))
        began = time.perf_counter()
        chosen = list(sets.values())
        causal = check_features(
            model, chosen, held_out, polys=made.polynomials, tokens=sizes.tokens, wiring=wiring, show_progress=False
        )
        checked = time.perf_counter()
        readable = readability(model, chosen[:-1], train, held_out, show_progress=False)
        read = time.perf_counter()
        print(f"layer {layer}: checks {checked - began:.1f} s, readability {read - checked:.1f} s", flush=True)
        explained = [found.explained for found in read_features(model, chosen, held_out, wiring=wiring)]
        places = [(kind, r) for kind, some in sets.items() for r in range(len(some))]
        for i, (kind, rank) in enumerate(places):
            scores = asdict(causal[i]) | (asdict(readable[i]) if i < len(readable) else {})
            rows.append({"kind": kind, "layer": layer, "rank": rank, "explained": explained[i]} | scores)
    return rows


def cost(model: Any, train: list[Any], sizes: Sizes) -> dict[str, float]:
    """Seconds and memory of the features of one block, from the moments to the contexts."""
    from mlpoly.importers import find_blocks
    from mlpoly.lm import block_features, collect, convert, read_features

    names = [block.name for block in find_blocks(model)]
    name, device, found = names[len(names) // 2], "cuda" if torch.cuda.is_available() else "cpu", {}
    collect(model, train[:1], name)  # to warm up
    synchronise(device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = start = time.perf_counter()

    def mark(what: str) -> None:
        nonlocal began
        synchronise(device)
        now = time.perf_counter()
        found[f"features of one block: {what}, s"], began = now - began, now

    moments = collect(model, train, name)
    mark("moments")
    poly = convert(model, moments, 3, bound=smollm2.BOUND, closed_form=False).polynomials[name]
    mark("polynomial")
    some = block_features(poly, model, name, "principal", sizes.features, inputs=moments.gaussian(name))
    mark("features")
    read_features(model, some, train)
    mark("values and contexts on text")
    tokens = sum(ids.numel() for ids in train)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else peak_gib()
    found[f"features of one block on {tokens} tokens: everything, s"] = time.perf_counter() - start
    found["features of one block: peak memory with the model, GiB"] = peak
    return found


def headlines(title: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Medians by kind, over the features of all three layers."""
    found = {}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        for name in (
            *SCORES.values(),
            "slope",
            "direct_slope",
            "block_slope",
            "square_slope",
            "current",
            "recent",
            "tree",
        ):
            if values := _known(rows, kind, name):
                found[f"{title}, {kind}: median {name.replace('_', ' ')}"] = statistics.median(values)
    return found


def main(tiny: bool = False) -> None:
    """Run on the models that are there; four minutes for stories260K on two cores."""
    torch.backends.cuda.matmul.allow_tf32 = False
    results: dict[str, Any] = {"table": {}}
    missing = []
    for title, opened in (("stories260K", lambda: stories.opened(tiny)), ("SmolLM2-135M", smollm2.opened)):
        try:
            model, train, held_out = opened()
        except Skip as reason:
            missing.append(str(reason))
            continue
        sizes = Sizes(2, 256, 2) if tiny else Sizes()
        if title != "stories260K" and not torch.cuda.is_available():
            sizes = Sizes(2, 256, 4, (2, 128))
        print(title, sizes, flush=True)
        train, held_out = sizes.cut(train), sizes.cut(held_out)
        rows = results["table"][title] = compare(model, train, held_out, sizes)
        results |= headlines(title, rows)
        results |= {f"{title}, {key}": value for key, value in cost(model, train, sizes).items()}
    if not results["table"]:
        raise Skip("; ".join(missing))
    save("reading", results)


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """Draw the distributions of both kinds of scores, kinds of features side by side."""
    readable = {"current token": "current", "last three tokens": "recent", "tree on the last three": "tree"}
    return {
        "reading-readability": _strips(results["table"], readable, "area under the ROC curve (0.5: chance)"),
        "reading-causal": _strips(results["table"], SCORES, "correlation, predicted and measured"),
    }


def _strips(table: dict[str, Any], fields: dict[str, str], label: str) -> Figure:
    """A row of panels for each model and a panel for each layer; every feature is a dot, medians are lines."""
    figure = Figure(figsize=(12, 3.4 * len(table) + 0.4), layout="constrained")
    grid = figure.subplots(len(table), 3, sharey=True, squeeze=False)
    for axes, (title, rows) in zip(grid, table.items(), strict=True):
        for axis, layer in zip(axes, dict.fromkeys(row["layer"] for row in rows), strict=True):
            here = [row for row in rows if row["layer"] == layer]
            shown = [
                k for k in dict.fromkeys(r["kind"] for r in here) if any(_known(here, k, f) for f in fields.values())
            ]
            for j, (said, field) in enumerate(fields.items()):
                shift = (j - (len(fields) - 1) / 2) * 0.8 / len(fields)
                for i, kind in enumerate(shown):
                    values = _known(here, kind, field)
                    dots = axis.plot([i + shift] * len(values), values, ".", color=f"C{j}", markersize=4, alpha=0.6)
                    dots[0].set_label(said if i == 0 else "_")
                    if values:
                        middle = statistics.median(values)
                        axis.plot([i + shift - 0.08, i + shift + 0.08], [middle] * 2, color=f"C{j}", linewidth=2)
            axis.set_xticks(range(len(shown)), shown, rotation=35, fontsize=8)
            axis.set_title(f"{title}, layer {layer}", fontsize=10)
            axis.grid(True, axis="y", alpha=0.3)
        axes[0].set_ylabel(label, fontsize=9)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(fields), fontsize=8)
    return figure


def _known(rows: list[dict[str, Any]], kind: str, field: str) -> list[float]:
    """Scores of one kind, without those that say nothing."""
    found = (row.get(field) for row in rows if row["kind"] == kind)
    return [value for value in found if value is not None and not math.isnan(value)]


if __name__ == "__main__":
    main()
