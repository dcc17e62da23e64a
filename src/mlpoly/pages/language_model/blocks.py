"""Sections about the blocks: how far their polynomials are off, what the model loses, and the degree spectra."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mlpoly.charts.chart import Axis, Chart, Curve, Panel, degree_bars, degree_colour
from mlpoly.lm.conversion.conversion import BlockErrors
from mlpoly.lm.evaluation.losses import Loss
from mlpoly.lm.reading.block_spectra import BlockSpectrum
from mlpoly.pages.toolkit import Page
from mlpoly.pages.toolkit.plot import plot
from mlpoly.pages.toolkit.widgets import LEGEND, element, figure, percent, table

_KINDS = {"closed form": "closed_form", "held-out text": "held_out"}  # and the field of BlockErrors
_COLUMNS = _KINDS | {"without the bound": "held_out_unbounded", "typical token": "typical"}
_BY = {
    "": "nothing: the original model",
    "removed": "zero",
    "mean": "their mean output",
    "linear": "linear maps fitted to the text",
}


def fits_section(page: Page, fits: Sequence[BlockErrors]) -> None:
    """Errors as lines over the blocks, and a table of their medians."""
    blocks = list(dict.fromkeys(fit.block for fit in fits))
    degrees = sorted({fit.degree for fit in fits})
    curves: dict[str, list[Curve]] = {kind: [] for kind in _KINDS}
    for kind, key in _KINDS.items():
        for degree in degrees:
            values = {fit.block: getattr(fit, key) for fit in fits if fit.degree == degree}
            held_out = kind == "held-out text"
            name = f"degree {degree}" + ", held out" * held_out
            curves[kind] += _curve(name, values, blocks, degree_colour(degree), held_out)
    shown = {"both": [*curves["closed form"], *curves["held-out text"]]} | curves
    axes = _block_axis(blocks), Axis("fraction of variance unexplained", "FVU")
    panels = [Panel(marks, *axes, choice=(kind,)) for kind, marks in shown.items() if marks]
    chart = Chart("Fraction of variance unexplained of every block, by degree", panels, ("Shown",), scales=True)
    columns = {name: key for name, key in _COLUMNS.items() if _known(fits, degrees[-1], key)}
    rows = []
    for degree in degrees:
        worst = max(_known(fits, degree, "held_out"), default=math.nan)
        rows.append((f"degree {degree}", *(median_of(fits, degree, key) for key in columns.values()), worst))
    notes = ""
    if _known(fits, degrees[-1], "beyond"):
        notes += (
            "Beyond the bound every neuron continues as a straight line, and the block is not a polynomial there. "
            f"This concerns {percent(median_of(fits, degrees[-1], 'beyond'))} of the preactivations on held-out text. "
            "The column without the bound is of the best polynomials without lines. "
        )
    if _known(fits, degrees[-1], "typical"):
        notes += (
            "A few tokens with massive activations can make up nearly all of a block’s variance. The typical token is "
            "the median over tokens of the squared error, as a fraction of the output’s squared length."
        )
    caption = (
        "Solid lines: under the Gaussian inputs of the fit, from weights and moments alone. Dotted lines: on held-out "
        f"text, whose activations are not Gaussian. {LEGEND}"
    )
    page.section("fvu", "How far each polynomial is from its block", "FVU by block").add(
        "The fraction of the variance of a block’s outputs that a polynomial leaves unexplained (FVU) is 0 for a "
        "perfect copy, 1 for the best constant, and more where the polynomial does worse than that.",
        figure(plot("plot-fvu", chart), caption),
        table(("Median over the blocks", *(f"FVU, {name}" for name in columns), "Worst block, held-out text"), rows),
        notes,
    )


def losses_section(page: Page, losses: Sequence[Loss], degree: int) -> None:
    """Cross-entropy with all blocks replaced, as a table, and with each alone, as lines."""
    original = whole_loss(losses, "", 0)
    base = original.cross_entropy if original else math.nan
    bounded = any(loss.by == "unbounded" for loss in losses)
    added = {"polynomial": ", lines outside" if bounded else "", "unbounded": " everywhere"}
    rows = []
    for loss in (x for x in losses if x.replaced in ("none", "all")):
        words = _BY.get(loss.by) or f"polynomials of degree {loss.degree}{added[loss.by]}"
        perplexity = math.exp(loss.cross_entropy) if loss.cross_entropy < 700 else math.inf  # shown as a dash
        rows.append((words, loss.cross_entropy, loss.cross_entropy - base, loss.kl, perplexity))
    columns = ("All blocks replaced by", "Cross-entropy, nats", "Change, nats", "KL from the model, nats", "Perplexity")
    section = page.section("loss", "What the model loses", "Cross-entropy").add(
        "The whole model runs on held-out text with its blocks replaced. Attention, norms and embeddings stay as they "
        "are. KL is the divergence of its predictions from those of the original model; perplexity is the exponential "
        "of the cross-entropy.",
        table(columns, rows, digits=4),
    )
    single = [loss for loss in losses if loss.replaced not in ("none", "all")]
    if single:
        blocks, curves = list(dict.fromkeys(loss.replaced for loss in single)), []
        for by, colour in (("polynomial", "blue"), ("linear", "orange"), ("mean", "grey"), ("removed", "black")):
            changes = {loss.replaced: loss.cross_entropy - base for loss in single if loss.by == by}
            name = f"degree {degree}" if by == "polynomial" else _BY[by]
            curves += _curve(name, changes, blocks, colour)
        panel = Panel(curves, _block_axis(blocks), Axis("change of the cross-entropy, nats", "change"))
        chart = Chart("Change of the cross-entropy by block", [panel])
        alone = f"by its polynomial of degree {degree}" if {x.by for x in single} == {"polynomial"} else "as named"
        caption = f"Each point is the whole model with this block alone replaced, {alone}."
        section.add(element("h3", "One block at a time"), figure(plot("plot-single", chart), caption))


def spectra_section(page: Page, spectra: Sequence[BlockSpectrum]) -> None:
    """Stacked bars, one for each block."""
    blocks = [spectrum.block for spectrum in spectra]
    bars = degree_bars([(*spectrum.fractions, spectrum.rest) for spectrum in spectra], blocks)
    x, y = _block_axis(blocks), Axis("fraction of the variance", "fraction", percent=True, limits=(0.0, 1.0))
    higher = Panel(bars[1:], x, replace(y, limits=(0.0, None)), choice=("above degree 1",))
    panels = [Panel(bars, x, y, choice=("all",)), higher]
    chart = Chart("Fractions of every block's variance by degree", panels, ("Degrees",))
    page.section("spectrum", "How much of each block each degree explains", "Degree spectrum").add(
        "The variance of a block’s outputs under the Gaussian of its inputs, divided among polynomial degrees: it "
        "says in advance what a polynomial of any degree leaves unexplained there.",
        figure(plot("plot-spectrum", chart), f"Sums over the weights, no samples. {LEGEND}"),
    )


def median_of(fits: Sequence[BlockErrors], degree: int, key: str) -> float:
    """Median of a field over the blocks where it is known; NaN if there are none."""
    known = _known(fits, degree, key)
    return statistics.median(known) if known else math.nan


def _known(fits: Sequence[BlockErrors], degree: int, key: str) -> list[float]:
    return [getattr(fit, key) for fit in fits if fit.degree == degree and getattr(fit, key) is not None]


def whole_loss(losses: Sequence[Loss], by: str, degree: int) -> Loss | None:
    """The loss of the original model (by ""), or that with all blocks replaced."""
    wanted = (by, "all" if by else "none", degree)
    return next((loss for loss in losses if (loss.by, loss.replaced, loss.degree) == wanted), None)


def _block_axis(blocks: Sequence[str]) -> Axis:
    """A horizontal axis with the number in the name of each block, of every few where there are many."""
    ticks = [(i, next((part for part in name.split(".") if part.isdigit()), name)) for i, name in enumerate(blocks)]
    return Axis("block", "block", ticks=ticks[:: max(1, math.ceil(len(ticks) / 24))])


def _curve(
    name: str, values: Mapping[str, float | None], blocks: Sequence[str], colour: str, sampled: bool = False
) -> list[Curve]:
    """A curve over the blocks with a value, dotted where the values were sampled; none if there is no value."""
    known = [(i, block, value) for i, block in enumerate(blocks) if (value := values.get(block)) is not None]
    if not known:
        return []
    places, names, heights = zip(*known, strict=True)
    curve = Curve(name, places, heights, colour=colour, width=2.4, dots=True, names=names)
    return [replace(curve, dash="dot", width=1.4) if sampled else curve]
