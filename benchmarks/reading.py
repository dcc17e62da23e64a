"""Are features of blocks true? Causal checks by kind, with controls.

The ten strongest features of each kind in three layers of SmolLM2-135M on Shakespeare: it needs what
`benchmarks.smollm2` needs. With ``--tiny`` it measures the model of this package.
"""

import math
import statistics
import time
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import torch

from benchmarks import smollm2
from benchmarks.common import save

KINDS = ("principal", "token", "term", "form", "neuron", "pca", "random")
SCORES = (
    "square_correlation",
    "block_correlation",
    "correlation",
    "direct_correlation",
    "polynomial_block_correlation",
)


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
    """Scores of every feature: kind, layer, rank, and the fields of its score."""
    from mlpoly.importers import find_blocks
    from mlpoly.lm import block_features, check_features, collect, convert, read_features
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
        causal = check_features(model, chosen, held_out, polys=made.polynomials, tokens=sizes.tokens, wiring=wiring)
        print(f"layer {layer}: {time.perf_counter() - began:.1f} s", flush=True)
        explained = [found.explained for found in read_features(model, chosen, held_out, wiring=wiring)]
        places = [(kind, r) for kind, some in sets.items() for r in range(len(some))]
        for i, (kind, rank) in enumerate(places):
            rows.append({"kind": kind, "layer": layer, "rank": rank, "explained": explained[i]} | asdict(causal[i]))
    return rows


def medians(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Medians by kind, over the features of all three layers."""
    table: dict[str, dict[str, float]] = {}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        known = {score: _known(rows, kind, score) for score in SCORES}
        table[kind] = {score: statistics.median(values) for score, values in known.items() if values}
    return table


def main(tiny: bool = False) -> None:
    """Run on SmolLM2-135M, or in small on the model of this package."""
    torch.backends.cuda.matmul.allow_tf32 = False
    model, train, held_out = smollm2.opened(tiny)
    sizes = Sizes(2, 256, 2) if tiny else Sizes() if torch.cuda.is_available() else Sizes(2, 256, 4, (2, 128))
    save("reading", {"table": medians(compare(model, sizes.cut(train), sizes.cut(held_out), sizes))})


def _known(rows: list[dict[str, Any]], kind: str, field: str) -> list[float]:
    """Scores of one kind, without those that say nothing."""
    found = (row.get(field) for row in rows if row["kind"] == kind)
    return [value for value in found if value is not None and not math.isnan(value)]


if __name__ == "__main__":
    main()
