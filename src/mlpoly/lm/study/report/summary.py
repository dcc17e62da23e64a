"""The top of the page: what was done and what came out, in a paragraph and a few numbers."""

from __future__ import annotations

import math

from mlpoly.lm.study.lm_results import LmResults, Loss
from mlpoly.lm.study.report.fits import median_fvu
from mlpoly.page.html import Html
from mlpoly.page.numbers import counted, number, percent
from mlpoly.page.widgets import facts, tiles

__all__ = ["chosen_degree", "introduction", "whole_loss"]

_METHODS = {
    "gaussian": "least squares under the Gaussian of each block’s inputs",
    "neuronwise": "least squares for each neuron, under the mixture of its components",
    "samples": "least squares for each neuron, on the activations of the text",
}


def introduction(results: LmResults) -> tuple[str | Html, ...]:
    """A paragraph, numbers to remember, and what they are of."""
    layers = len({fit.layer for fit in results.fits}) or len(results.spectra)
    sampled = (results.about.get("config") or {}).get("method") == "samples"
    known = "the text’s own activations" if sampled else "mean and covariance of what goes into each block"
    said = (
        f"The feedforward blocks of this language model ({number(layers)} of them) were replaced by polynomials of "
        f"their inputs, the closest in mean square, computed from the weights and from {known}. No gradient was taken."
    )
    plain, replaced, degree = whole_loss(results, ""), whole_loss(results, "polynomial"), chosen_degree(results)
    if plain and replaced:
        said += (
            f" With all of them of degree {degree}, the cross-entropy on text that none of this has "
            f"seen goes from {number(plain.cross_entropy, 4)} to {number(replaced.cross_entropy, 4)} nats per token."
        )
    items, unit = [], "nats per token, cross-entropy"
    if plain:
        items.append((number(plain.cross_entropy, 4), unit, "the model as it is"))
    if replaced:
        items.append((number(replaced.cross_entropy, 4), unit, f"all blocks replaced, degree {degree}"))
    share = median_fvu(results.fits, degree, "held_out")
    if math.isfinite(share):
        where = f"degree {degree}, held-out text, median of blocks"
        items.append((percent(share), "of a block’s variance unexplained", where))
    if results.spectra:
        linear = math.fsum(s.shares[0] for s in results.spectra) / len(results.spectra)
        items.append((percent(linear), "of a block’s variance is linear", "under its Gaussian inputs, mean of blocks"))
    return said, tiles(items), facts(_facts(results))


def chosen_degree(results: LmResults) -> int:
    """Degree of the polynomials that the study is about."""
    told = (results.about.get("config") or {}).get("degree")
    return told or max((loss.degree for loss in results.losses if loss.by == "polynomial"), default=0)


def whole_loss(results: LmResults, by: str) -> Loss | None:
    """The model as it is (""), or with all blocks replaced."""
    wanted = (by, "all", chosen_degree(results)) if by == "polynomial" else (by, "all" if by else "none", 0)
    return next((x for x in results.losses if (x.by, x.replaced, x.degree) == wanted), None)


def _facts(results: LmResults) -> dict[str, object]:
    model, data, config = (results.about.get(name) or {} for name in ("model", "data", "config"))
    method = [_METHODS.get(config.get("method", ""), "")]
    if config.get("bound"):
        method.append(f"straight lines beyond {number(config['bound'])} standard deviations")
    tokens = counted(int(data["tokens"]), "token") if data.get("tokens") else ""
    kinds = {
        "Model": ", ".join(str(model[key]) for key in ("model", "architecture", "dtype") if model.get(key)),
        "Moments": f"{tokens} of {data.get('text', 'text')}" if tokens else "",
        "Judged on": counted(int(data["held_out"]), "token") if data.get("held_out") else "",
        "Polynomials": "; ".join(words for words in method if words),
    }
    return {name: words for name, words in kinds.items() if words}
