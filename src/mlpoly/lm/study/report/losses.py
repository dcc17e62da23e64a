"""What the whole model loses when its blocks are replaced, all of them or one."""

from __future__ import annotations

import math

from mlpoly.lm.study.lm_results import LmResults
from mlpoly.lm.study.report.axes import layer_axis, line
from mlpoly.lm.study.report.summary import chosen_degree, whole_loss
from mlpoly.page import Page, Plot, View
from mlpoly.page.html import element
from mlpoly.page.widgets import figure, table

__all__ = ["losses_section"]

_BY = {
    "": "nothing: the model as it is",
    "removed": "zero",
    "mean": "their mean output",
    "linear": "linear maps fitted to the text",
}
# What is said of polynomials, by kind and by whether there are both.
_ADDED = {
    ("polynomial", False): "",
    ("polynomial", True): ", lines outside",
    ("unbounded", True): " everywhere",
}


def losses_section(page: Page, results: LmResults) -> None:
    """Cross-entropy with all blocks replaced, as a table, and with each alone, as lines."""
    plain = whole_loss(results, "")
    base = plain.cross_entropy if plain else math.nan
    bounded = any(x.by == "unbounded" for x in results.losses)
    rows = []
    for loss in (x for x in results.losses if x.replaced in ("none", "all")):
        words = _BY.get(loss.by) or f"polynomials of degree {loss.degree}{_ADDED[loss.by, bounded]}"
        perplexity = math.exp(loss.cross_entropy) if loss.cross_entropy < 700 else math.inf  # shown as a dash
        rows.append((words, loss.cross_entropy, loss.cross_entropy - base, loss.kl, perplexity))
    columns = ("All blocks replaced by", "Cross-entropy, nats", "Change, nats", "KL from the model, nats", "Perplexity")
    section = page.section("loss", "What the model loses", "Cross-entropy").add(
        "The whole model runs on held-out text with its blocks replaced. Attention, norms and embeddings stay as they "
        "are. KL is the divergence of its predictions from those of the model as it is; perplexity is the exponential "
        "of the cross-entropy.",
        table(columns, rows, digits=4),
    )
    single = [x for x in results.losses if x.replaced not in ("none", "all")]
    if single:
        degree, layers = chosen_degree(results), list(dict.fromkeys(x.replaced for x in single))
        traces = []
        for by, colour in (("polynomial", "blue"), ("linear", "orange"), ("mean", "grey"), ("removed", "black")):
            found = sorted((layers.index(x.replaced), x.cross_entropy - base) for x in single if x.by == by)
            if found:
                words = f"degree {degree}" if by == "polynomial" else _BY[by]
                traces.append(line(words, found, layers, f"var(--{colour})"))
        layout = {"xaxis": layer_axis(layers), "yaxis": {"title": {"text": "change of the cross-entropy, nats"}}}
        plot = Plot("plot-single", "Change of the cross-entropy by block", [View((), traces)], (), layout)
        alone = f"by its polynomial of degree {degree}" if {x.by for x in single} == {"polynomial"} else "as named"
        caption = f"Each point is the whole model with this block alone replaced, {alone}."
        section.add(element("h3", "One block at a time"), figure(plot.html(), caption))
