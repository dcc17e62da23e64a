"""Every feedforward block of SmolLM2-135M as a polynomial: error by block and degree, and the cost to the model.

Moments from 20 480 tokens of one part of a text, evaluated on 16 384 tokens of another. Needs the model as a GGUF file
(MLPOLY_SMOLLM2) and MLPOLY_DATA/text/tinyshakespeare.txt; runs on a GPU if there is one. With ``--tiny`` it measures
the model of this package.
"""

import json
import os
import statistics
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure

from benchmarks.common import FOLDER, Skip, save, write

NAME = "smollm2"
BOUND = 3.0
BOUNDS = (1.0, 2.0, 2.5, 3.0, 4.0, 6.0)
GROUPS = (1, 4, 16, 64)  # of tokens; 1 is the first token apart


class Case(NamedTuple):
    """One way to convert all blocks."""

    title: str
    degrees: tuple[int, ...]
    options: dict[str, Any]
    exact: bool = False  # whether the error under the moments is computed too
    groups: Any = "first"  # of the tokens of the moments


def cases(train: list[Any]) -> Iterator[Case]:
    """Ways to convert that are compared."""
    from mlpoly.lm import TokenClusters

    fitted: dict[str, Any] = {"method": "samples", "batches": train}
    auto, own = ", lines where best", ", lines beyond 3 sigma"
    yield Case(f"fitted to the tokens{auto}", (2, 3, 1, 4, 5), {**fitted, "bound": "auto", "coefficients": "readout"})
    yield Case("fitted to the tokens", (3, 2, 1, 4, 5), {**fitted, "coefficients": "readout"})
    free = "fitted to the tokens, all coefficients"
    yield Case(f"{free}{auto}", (2, 3), {**fitted, "bound": "auto", "coefficients": "free"})
    yield Case(free, (3, 2), {**fitted, "coefficients": "free"})
    yield Case(f"closed form{auto}", (3, 2, 1, 4, 5), {"method": "gaussian", "bound": "auto"})
    for count in GROUPS:
        clusters: Any = TokenClusters(count) if count > 1 else "first"
        apart = f"{count} clusters" if count > 1 else "first token apart"
        for way in ("neuronwise", "joint"):
            yield Case(f"{way}, {apart}", (2, 3), {"method": way}, groups=clusters)
            yield Case(f"{way}, {apart}{auto}", (2, 3), {"method": way, "bound": "auto"}, groups=clusters)
    yield Case("closed form", (1, 2, 3, 4, 5), {"method": "gaussian"}, exact=True)
    yield Case(f"closed form{own}", (1, 2, 3, 4, 5), {"method": "gaussian", "bound": BOUND})
    for bound in BOUNDS:
        if bound != BOUND:
            yield Case(f"closed form, lines beyond {bound:g} sigma", (3, 5), {"method": "gaussian", "bound": bound})


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


def compare(
    model: Any, train: list[Any], held_out: list[Any], chosen: Iterable[Case], name: str = NAME
) -> dict[str, Any]:
    """Return everything that is saved of one model."""
    from mlpoly.lm import collect, convert, evaluate

    table: dict[str, dict[str, Any]] = known(name, len(train))
    moments = {"first": collect(model, train, groups="first")}
    for case in chosen:
        kind = str(getattr(case.groups, "count", case.groups))
        for degree in case.degrees:
            if str(degree) in table.get(case.title, {}):
                continue
            if kind not in moments:
                moments[kind] = collect(model, train, groups=case.groups)
            began = time.perf_counter()
            row = measured(model, moments[kind], case, degree, held_out)
            table.setdefault(case.title, {})[str(degree)] = row
            seconds = time.perf_counter() - began
            print(f"{case.title}, degree {degree}: {row['change']:+.4f} nats, {seconds:.0f} s", flush=True)
            write(name, {"batches": len(train), "table": table})
    line = convert(model, moments["first"], 1, closed_form=False)  # baselines are for the blocks of a conversion
    baselines = evaluate(model, line, held_out, calibration=train)
    found = {"cross-entropy of the model": baselines.original}
    found |= {f"{row.by}: nats added": row.cross_entropy - baselines.original for row in baselines.rows[2:]}
    return {**found, **headlines(table), "batches": len(train), "table": table}


def known(name: str, batches: int) -> dict[str, Any]:
    """The rows of a run that was interrupted, if it read as many batches."""
    path = FOLDER / f"{name}.json"
    found = json.loads(path.read_text())["results"] if path.exists() else {}
    return dict(found["table"]) if found.get("batches") == batches else {}


def main(tiny: bool = False) -> None:
    """Run what is not in the JSON of a run before; about ten minutes on an H200."""
    torch.backends.cuda.matmul.allow_tf32 = False
    model, train, held_out = opened(tiny)
    save(NAME, compare(model, train, held_out, cases(train)))


def headlines(table: dict[str, Any]) -> dict[str, float]:
    """Cost and errors of degree 3 and 5, at one bound; the table has everything."""
    results: dict[str, float] = {}
    for title, rows in table.items():
        if "beyond" in title and f"beyond {BOUND:g} " not in title:
            continue
        for degree in sorted(rows.keys() & {"2", "3", "5"}):
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
    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    axis = figure.subplots()
    for degree, color in (("3", "C0"), ("5", "C1")):
        costs = [table[f"closed form, lines beyond {b:g} sigma"][degree]["change"] for b in BOUNDS]
        axis.loglog(BOUNDS, costs, "o-", color=color, markersize=4, label=f"closed form, degree {degree}")
        for way, style in (("closed form", ":"), ("fitted to the tokens", "--")):
            chosen = table[f"{way}, lines where best"][degree]["change"]
            axis.axhline(
                chosen, linestyle=style, color=color, linewidth=1, label=f"{way}, degree {degree}, bounds chosen"
            )
    axis.set_xticks(BOUNDS, [f"{b:g}" for b in BOUNDS])
    axis.minorticks_off()
    axis.set_xlabel("bound, standard deviations of a preactivation")
    axis.set_ylabel("nats added, all 30 blocks replaced")
    axis.grid(True, alpha=0.3)
    figure.legend(fontsize=8, loc="outside right upper")
    return figure


if __name__ == "__main__":
    main()
