"""Variance explained by 8, 32 and 128 terms of several decompositions of a block's quadratic part.

All blocks of stories260K, and three of SmolLM2-135M where that is at hand (see `benchmarks.smollm2`). Directions come
from weights and moments, writes are the least-squares optimum under the moments; variance in closed form and on
held-out tokens. The first token of a sequence is left out: attention sinks make its activations unlike all others.
Needs MLPOLY_DATA/stories260K.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

import mlpoly as mp
from benchmarks import smollm2, stories
from benchmarks.common import Skip, save, write
from mlpoly.features import QuadraticDecomposition
from mlpoly.features.quadratic_part import QuadraticPart, gram, quadratic_part, unit
from mlpoly.features.term_search import matching_pursuit

BUDGETS = (8, 32, 128)
SMOLLM2_BLOCKS = ("*.5.mlp", "*.15.mlp", "*.25.mlp")
MEASURES = ("degree 2, closed form", "degree 2, held-out tokens", "linear part and terms, held-out tokens")
CEILING = "leading output directions (bound)"

Terms = Callable[[int], tuple[Tensor, Tensor]]  # number of terms to whitened directions, one array twice for squares


def block_inputs(model: Any, blocks: Any, batches: list[Any]) -> dict[str, Tensor]:
    """Inputs (n, d) of blocks in the intact model, without those of first tokens."""
    from mlpoly.lm.model.running import visit

    rows: dict[str, list[Tensor]] = {block.name: [] for block in blocks}
    visit(model, blocks, batches, lambda block, x, batch: rows[block.name].append(x[batch.positions > 0].clone()))
    return {name: torch.cat(parts) for name, parts in rows.items()}


def decompositions(part: QuadraticPart, poly: mp.RidgePolynomial, inputs: mp.Gaussian) -> Iterator[tuple[str, Terms]]:
    """Ways to choose terms; of all but the tensor decompositions the first k of one long list."""
    most, like = max(BUDGETS), part.left
    d = int(like.shape[1])

    def squares(rows: Tensor) -> Terms:
        return lambda k: (rows[:k], rows[:k])

    def moved(terms: Any) -> Terms:
        def made(k: int) -> tuple[Tensor, Tensor]:
            found = mp.decompose(poly, k, inputs, terms=terms)
            return found.vectors, found.vectors if found.partners is None else found.partners

        return made

    yield "squares (CP)", moved("squares")
    yield "products (CP)", moved("products")
    left, right, targets = part.products()
    strength = part.writes.norm(dim=1) * part.left.norm(dim=1) * part.right.norm(dim=1)
    strongest = strength.argsort(descending=True)
    yield "neurons, strongest", lambda k: (left[strongest[:k]], right[strongest[:k]])
    chosen = torch.as_tensor(matching_pursuit(left, right, targets, part.energy(), most)[0])
    yield "neurons, matching pursuit", lambda k: (left[chosen[:k]], right[chosen[:k]])
    forms = mp.principal_forms(poly, 2, 64, inputs)
    rows = torch.cat([forms.features(j, 16).vectors for j in range(len(forms.values))]).to(like)
    chosen_rows = torch.as_tensor(matching_pursuit(rows, rows, part.along(rows, rows)[0], part.energy(), most)[0])
    yield "eigenfeatures of principal forms, matching pursuit", squares(rows[chosen_rows])
    axes = torch.linalg.eigh(inputs.covariance.double())[1].T.flip(0)
    yield "principal components of the inputs", squares(axes.to(like))
    noise = torch.as_tensor(np.random.default_rng(0).standard_normal((most, d)))
    yield "random directions", squares(unit(noise.to(like)))


def explained(y: Tensor, made: Tensor) -> float:
    """Fraction of the variance of y (n, o) that is explained, in float64."""
    y, made = y.double(), made.double()
    return float(1 - ((y - made) ** 2).sum() / ((y - y.mean(0)) ** 2).sum())


def measured(net: Any, train: Tensor, x: Tensor) -> dict[str, Any]:
    """All decompositions of one block, given its inputs in two parts of a text."""
    inputs = mp.Gaussian.from_samples(train)
    poly = mp.fit(net, inputs, 2)
    part, line = quadratic_part(poly, inputs), poly.truncate(1)
    energy, y, linear = part.energy(), net(x), line(x)
    quadratic = poly(x) - linear
    table: dict[str, dict[str, Any]] = {}
    for name, terms in decompositions(part, poly, inputs):
        for k in BUDGETS:
            began = time.perf_counter()
            a, b = terms(k)
            took = time.perf_counter() - began
            inner, target = gram(a, b).double(), part.along(a, b)[0].double()
            writes = torch.linalg.lstsq(inner, target, driver="gelsd" if inner.device.type == "cpu" else None).solution
            fraction = float((writes * target).sum() / energy)
            second = None if b is a else b
            sum_of = QuadraticDecomposition(writes.to(a), a, a[:, 0], second, inputs).polynomial()(x)
            values = (fraction, explained(quadratic, sum_of), explained(y, linear + sum_of))
            table.setdefault(name, {})[str(k)] = {**dict(zip(MEASURES, values, strict=True)), "seconds": took}
    forms = mp.principal_forms(poly, 2, max(BUDGETS), inputs)
    for k in BUDGETS:
        u = forms.outputs[:k]
        part_of = quadratic @ u.T @ u
        values = (float(forms.fractions[:k].sum()), explained(quadratic, part_of), explained(y, linear + part_of))
        table.setdefault(CEILING, {})[str(k)] = dict(zip(MEASURES, values, strict=True))
    return {"table": table, "linear": explained(y, linear), "quadratic": explained(y, poly(x))}


def models(tiny: bool) -> Iterator[tuple[str, Any, list[Any], list[Any], Any]]:
    """Models that are at hand, with tokens and patterns of blocks."""
    yield ("stories260K", *stories.opened(tiny), "*.0.mlp" if tiny else None)
    if tiny:
        return
    try:
        yield ("SmolLM2-135M", *smollm2.opened(), SMOLLM2_BLOCKS)
    except Skip as reason:
        print(f"SmolLM2-135M: skipped, {reason}", flush=True)


def main(tiny: bool = False) -> None:
    """Run; a minute for stories260K on one core, some minutes for each block of SmolLM2-135M."""
    tables: dict[str, Any] = {}
    for model_name, model, train, held_out, chosen in models(tiny):
        blocks = mp.find_blocks(model, chosen)
        before, after = (block_inputs(model, blocks, batches) for batches in (train, held_out))
        for block in blocks:
            found = measured(block.net(), before[block.name], after[block.name])
            tables.setdefault(model_name, {})[block.name] = found
            row = {name: {k: round(v[MEASURES[0]], 3) for k, v in r.items()} for name, r in found["table"].items()}
            print(model_name, block.name, *row.items(), sep="\n  ", flush=True)
            write("decompositions", {**headlines(tables), "tables": tables})  # what there is, if it is interrupted
    save("decompositions", {**headlines(tables), "tables": tables})


def headlines(tables: dict[str, Any]) -> dict[str, str]:
    """Medians over the blocks of each model, for all numbers of terms in one row."""
    results: dict[str, str] = {}
    for model, blocks in tables.items():
        count = f"{', '.join(map(str, BUDGETS[:-1]))} and {BUDGETS[-1]} terms"
        for measure in MEASURES:
            for name in next(iter(blocks.values()))["table"]:
                shown = [f"{_median(blocks, name, k, measure):.3f}" for k in BUDGETS]
                results[f"{model}, {measure}: {name}, {count}"] = ", ".join(shown)
        for name in ("linear", "quadratic"):
            level = statistics.median(block[name] for block in blocks.values())
            results[f"{model}, {MEASURES[-1]}: best {name} polynomial"] = f"{level:.3f}"
    return results


def _median(blocks: dict[str, Any], name: str, terms: int, measure: str) -> float:
    return statistics.median(block["table"][name][str(terms)][measure] for block in blocks.values())


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """Draw variance explained against the number of terms, medians over the blocks."""
    tables = results["tables"]
    figure = Figure(figsize=(11, 3.6 * len(tables) + 0.8), layout="constrained")
    grid = figure.subplots(len(tables), 3, squeeze=False)
    for axes, (model, blocks) in zip(grid, tables.items(), strict=True):
        for axis, measure in zip(axes, MEASURES, strict=True):
            for number, name in enumerate(next(iter(blocks.values()))["table"]):
                values = [_median(blocks, name, k, measure) for k in BUDGETS]
                style = {"color": "black", "linestyle": ":"} if name == CEILING else {"color": f"C{number}"}
                axis.semilogx(BUDGETS, values, marker="o", markersize=4, label=name, **style)
            if measure == MEASURES[2]:
                for name, style in (("linear", "--"), ("quadratic", "-.")):
                    level = statistics.median(block[name] for block in blocks.values())
                    axis.axhline(level, color="grey", linestyle=style, linewidth=1, label=f"best {name}")
            axis.set_title(f"{model}\n{measure}", fontsize=9)
            axis.set_xticks(BUDGETS, [str(k) for k in BUDGETS])
            axis.minorticks_off()
            axis.set_xlabel("terms")
            axis.set_ylim(-0.25 if measure == MEASURES[2] else -0.03, 1.02)
            axis.grid(True, alpha=0.3)
        axes[0].set_ylabel("fraction of variance explained")
    figure.legend(*grid[0][2].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return {"decompositions": figure}


if __name__ == "__main__":
    main()
