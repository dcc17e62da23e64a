"""The top of the page: what was done, the numbers to remember, and how the claims fare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from mlpoly.pages.toolkit.numbers import counted, listing, number, percent, span
from mlpoly.pages.toolkit.widgets import facts, options, tiles
from mlpoly.studies.paper.results import Results

_PAPER = "Converting MLPs into Polynomials in Closed Form"
_EXACT = "FVU under the mixture, exact"
_TILES = (  # degree, inputs, field, name, remark, decimals
    (1, "mixture", "fvu_mixture", "unexplained by the best linear map", _EXACT, None),
    (2, "mixture", "fvu_mixture", "unexplained by the best quadratic", _EXACT, None),
    (2, "paper", "fvu_mixture", "unexplained by the paper’s route", "to the same quadratic, by SGD", None),
    (2, "mixture", "agreement", "same answer as the network", "the quadratic, on test images", 1),
)
_OPTIONS = ("hidden", "activation", "batch_size", "learning_rate", "weight_decay", "warmup", "shrinkage")


def opening(results: Results, classes: Sequence[str]) -> tuple[str, Markup, Markup]:
    """Return a few sentences, the numbers to remember and the facts; what the results do not hold is left out."""
    records: tuple[Any, ...] = (*results.training, *results.dynamics, *results.spectra)
    steps = sorted({record.step for record in records}) or [0]
    seeds, end = sorted({record.seed for record in records}), number(steps[-1], 6)
    data = results.about.get("data") or {}
    trained = f"For each of {counted(len(seeds), 'seed')}, a network" if len(seeds) > 1 else "A network"
    said = (
        f"This page repeats the experiments of Belrose and Rigg, “{_PAPER}” (2025). {trained} was trained on "
        f"{data.get('name', 'images')}, and at "
        f"{counted(len(steps), 'checkpoint')} it was replaced by the polynomials that are closest to it in mean "
        "square, computed from its weights."
    )
    verdicts = [claim.holds for claim in results.claims]
    if verdicts:
        verbs = {True: ("holds", "hold"), False: ("does not", "do not"), None: ("cannot be judged",) * 2}
        counts = [f"{n} {verbs[kind][n > 1]}" for kind in verbs if (n := verdicts.count(kind))]
        said += f" Of {counted(len(verdicts), 'claim')} that were checked, {listing(counts)}."

    remembered: list[tuple[str, str, str]] = []

    def remember(values: Sequence[float], name: str, remark: str, decimals: int | None = 1) -> None:
        """Their mean as a tile, with the range of the seeds."""
        if values:
            seeds = f"; seeds {span(values, lambda v: percent(v, decimals))}" if len(values) > 1 else ""
            remembered.append((percent(float(np.mean(values)), decimals), name, remark + seeds))

    accuracies = [p.test_accuracy for p in results.training if p.step == steps[-1]]
    remember(accuracies, "of test images classified correctly", f"networks at step {end}")
    for degree, inputs, field, name, remark, decimals in _TILES:
        fits = [p for p in results.dynamics if (p.step, p.degree, p.inputs) == (steps[-1], degree, inputs)]
        remember([getattr(p, field) for p in fits], name, remark, decimals)

    config = {key.split(".")[-1]: value for key, value in options(results.about.get("config") or {})}
    told = {}
    if data:
        images = f"{number(data['train'], 6)} training and {number(data['test'], 6)} test images"
        size = " × ".join(map(str, data["image_shape"]))
        told["Data"] = f"{data['name']}: {images} of {size} pixels in {len(classes)} classes"
    told["Network and training"] = ", ".join(f"{o.replace('_', ' ')} {config[o]}" for o in _OPTIONS if o in config)
    told["Checkpoints"] = f"{len(steps)}, from step {steps[0]} to step {end}"
    told["Seeds"] = listing(seeds)
    return said, tiles(remembered), facts(told)
