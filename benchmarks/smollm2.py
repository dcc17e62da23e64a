"""Every feedforward block of SmolLM2-135M as a polynomial: error by block and degree, and the cost to the model.

Moments from 20 480 tokens of one part of a text, evaluated on 16 384 tokens of another. Needs the model as a GGUF file
(MLPOLY_SMOLLM2) and MLPOLY_DATA/text/tinyshakespeare.txt; runs on a GPU if there is one. With ``--tiny`` it measures
the model of this package.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure

from benchmarks.common import Skip, save

BOUND = 3.0
BOUNDS = (1.0, 2.0, 2.5, 3.0, 4.0, 6.0)


class Case(NamedTuple):
    """One way to convert all blocks."""

    title: str
    degrees: tuple[int, ...]
    options: dict[str, Any]
    exact: bool = False  # whether the error under the moments is computed too


def cases(train: list[Any]) -> Iterator[Case]:
    """Ways to convert that are compared."""
    yield Case("closed form", (1, 2, 3, 4, 5), {"method": "gaussian"}, exact=True)
    yield Case("closed form, lines beyond 3 sigma", (1, 2, 3, 4, 5), {"method": "gaussian", "bound": BOUND})
    fitted = {"method": "samples", "batches": train}
    yield Case("fitted to the tokens", (3, 5), fitted)
    yield Case("fitted to the tokens, lines beyond 3 sigma", (1, 2, 3, 4, 5), {**fitted, "bound": BOUND})
    yield Case("first token apart, one mixture", (3, 5), {"method": "neuronwise"})
    yield Case("first token apart, one mixture, lines beyond 3 sigma", (3, 5), {"method": "neuronwise", "bound": BOUND})
    for bound in BOUNDS:
        if bound != BOUND:
            yield Case(f"closed form, lines beyond {bound:g} sigma", (3, 5), {"method": "gaussian", "bound": bound})
            yield Case(f"fitted to the tokens, lines beyond {bound:g} sigma", (3, 5), {**fitted, "bound": bound})


def opened(tiny: bool = False) -> tuple[Any, list[Any], list[Any]]:
    """Return the model, and tokens to fit to and to evaluate on."""
    from mlpoly.lm import example_text, load_model, token_batches

    if tiny:
        model, tokenizer = load_model()
        texts = example_text(600), example_text(300, seed=2)
        return model, *(list(token_batches(tokenizer, text, length=64)) for text in texts)
    text = Path(os.environ.get("MLPOLY_DATA", ""), "text", "tinyshakespeare.txt")
    if not text.is_file():
        raise Skip("it needs MLPOLY_DATA with text/tinyshakespeare.txt")
    if not os.environ.get("MLPOLY_SMOLLM2"):
        raise Skip("it needs SmolLM2-135M as a GGUF file: set MLPOLY_SMOLLM2")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, tokenizer = load_model(os.environ["MLPOLY_SMOLLM2"], device=device, dtype="float32")
    words = text.read_text()
    cut = len(words) * 6 // 10
    train = token_batches(tokenizer, words[:cut], tokens=20_480)
    return model, list(train), list(token_batches(tokenizer, words[cut:], tokens=16_384))


def measured(model: Any, moments: Any, case: Case, degree: int, held_out: list[Any]) -> dict[str, Any]:
    """Measure one conversion, by block and in the whole model."""
    from mlpoly.lm import convert, evaluate

    made = convert(model, moments, degree, held_out=held_out, closed_form=case.exact, **case.options)
    row: dict[str, Any] = {"change": evaluate(model, made, held_out, baselines=()).increase}
    beyond = [q.beyond for q in made.errors.values() if q.beyond is not None]
    if beyond:
        row["beyond"] = sum(beyond) / len(beyond)
    if "beyond" not in case.title or f"beyond {BOUND:g} " in case.title:  # of other bounds the cost alone is shown
        row["held_out"] = [q.held_out for q in made.errors.values()]
    if case.exact:
        row["closed_form"] = [q.closed_form for q in made.errors.values()]
    return row


def compare(model: Any, train: list[Any], held_out: list[Any], chosen: Iterable[Case]) -> dict[str, Any]:
    """Return everything that is saved of one model."""
    from mlpoly.lm import collect, convert, evaluate

    moments = collect(model, train, groups="first")
    table: dict[str, dict[str, Any]] = {}
    for case in chosen:
        for degree in case.degrees:
            row = table.setdefault(case.title, {})[str(degree)] = measured(model, moments, case, degree, held_out)
            print(f"{case.title}, degree {degree}: {row['change']:+.4f} nats", flush=True)
    line = convert(model, moments, 1, closed_form=False)  # baselines are for the blocks of a conversion
    baselines = evaluate(model, line, held_out, calibration=train)
    found = {"cross-entropy of the model": baselines.original}
    found |= {f"{row.by}: nats added": row.cross_entropy - baselines.original for row in baselines.rows[2:]}
    return {**found, **headlines(table), "table": table}


def main(tiny: bool = False) -> None:
    """Run everything; about three minutes on an H200."""
    torch.backends.cuda.matmul.allow_tf32 = False
    model, train, held_out = opened(tiny)
    save("smollm2", compare(model, train, held_out, cases(train)))


def headlines(table: dict[str, Any]) -> dict[str, float]:
    """Cost and errors of degree 3 and 5, at one bound; the table has everything."""
    results: dict[str, float] = {}
    for title, rows in table.items():
        if "beyond" in title and f"beyond {BOUND:g} " not in title:
            continue
        for degree in ("3", "5"):
            row, said = rows[degree], f"{title}, degree {degree}"
            known = [value for value in row["held_out"] if value is not None]
            results |= {
                f"{said}: nats added": row["change"],
                f"{said}: median FVU": statistics.median(known),
                f"{said}: worst FVU": max(known),
            }
    return results


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """Draw errors by block, and the cost of all blocks against the bound."""
    return {"smollm2": _by_block(results["table"]), "smollm2-bound": _by_bound(results["table"])}


def _by_block(table: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    panels = [
        ("under the Gaussian of the moments", "closed form", "closed_form"),
        ("on held-out tokens", "closed form", "held_out"),
        ("on held-out tokens, with lines beyond 3 sigma", "closed form, lines beyond 3 sigma", "held_out"),
    ]
    axes = figure.subplots(1, 3, sharey=True)
    for axis, (title, case, name) in zip(axes, panels, strict=True):
        for degree, row in table[case].items():
            values = [float("nan") if v is None else v for v in row[name]]
            axis.semilogy(values, marker="o", markersize=2.5, linewidth=1, label=f"degree {degree}")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("block")
        axis.set_ylim(1e-5, 20)
        axis.grid(True, alpha=0.3)
    axes[0].set_ylabel("fraction of variance unexplained")
    axes[0].legend(fontsize=8, ncols=2)
    return figure


def _by_bound(table: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis = figure.subplots()
    for way, style in (("closed form", "o-"), ("fitted to the tokens", "s--")):
        for degree, color in (("3", "C0"), ("5", "C1")):
            costs = [table[f"{way}, lines beyond {b:g} sigma"][degree]["change"] for b in BOUNDS]
            axis.loglog(BOUNDS, costs, style, color=color, markersize=4, label=f"{way}, degree {degree}")
    axis.set_xticks(BOUNDS, [f"{b:g}" for b in BOUNDS])
    axis.minorticks_off()
    axis.set_xlabel("bound, standard deviations of a preactivation")
    axis.set_ylabel("nats added, all 30 blocks replaced")
    axis.grid(True, alpha=0.3)
    axis.legend(fontsize=8)
    return figure


if __name__ == "__main__":
    main()
