"""A language model with polynomials in place of its blocks, as one page that asks no network for anything."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from mlpoly.lm.attribution import Attribution
from mlpoly.lm.reading import BlockFeature, LayerSpectrum, TokenScore
from mlpoly.report import Page, Plot, View
from mlpoly.report.data import island
from mlpoly.report.html import Html, element, paragraph
from mlpoly.report.parts import choices, facts, figure, table, tiles
from mlpoly.report.plot import Trace, with_scales
from mlpoly.report.provenance import rerun_section
from mlpoly.report.words import counted, number, percent

__all__ = ["FitRow", "LmResults", "Loss", "write_lm_report"]

_FILES = ("results.json", "tables/*.csv", "moments/moments.safetensors")
_COLOURS = 6  # degrees that page.css has a colour for
_DEGREES = ("constant", "linear", "quadratic", "cubic", "quartic", "quintic")
_DIGITS = 4  # of numbers inside the page


@dataclass(frozen=True)
class FitRow:
    """One polynomial against its block.

    Attributes
    ----------
    layer : str
    degree : int
    closed_form : float
        FVU under the inputs that it was fitted under, from weights and moments alone; NaN if unknown.
    held_out : float
        FVU on inputs from text that the moments have not seen; NaN if unknown.
    """

    layer: str
    degree: int
    closed_form: float
    held_out: float


@dataclass(frozen=True)
class Loss:
    """The model on held-out text with some of its blocks replaced.

    Attributes
    ----------
    replaced : str
        "none", "all", or the name of the only block.
    by : str
        "" for the model as it is, "polynomial", or a baseline: "removed", "mean", "linear".
    degree : int
        Of the polynomials; 0 where there are none.
    cross_entropy : float
        Mean per token, in nats.
    kl : float
        Mean KL(model ‖ model with the replacement) per token, in nats.
    """

    replaced: str
    by: str
    degree: int
    cross_entropy: float
    kl: float


@dataclass
class LmResults:
    """What a study of a language model found.

    Attributes
    ----------
    about : dict
        "version", "command", "config", "model", "data", "machine", "seconds" (by stage).
    fits, losses, spectra, features : list
    attribution : Attribution or None
    """

    about: dict[str, Any] = field(default_factory=dict)
    fits: list[FitRow] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    spectra: list[LayerSpectrum] = field(default_factory=list)
    features: list[BlockFeature] = field(default_factory=list)
    attribution: Attribution | None = None


def write_lm_report(results: LmResults, path: str | PathLike[str]) -> Path:
    """Write the report, one HTML file that opens without a network.

    Parameters
    ----------
    results : LmResults
        A section for which it holds nothing is left out.
    path : path
        Usually ``report.html`` in the folder of the results; files beside it are linked if they are there by then.

    Returns
    -------
    Path
        The file.
    """
    target = Path(path)
    made = f"mlpoly {results.about.get('version', '')}".strip()
    name = results.about.get("model", {}).get("model", "A language model")
    page = Page(f"{name} with polynomials for blocks", f"A study by {made}", f"Made by {made}. {_QUIET}")
    page.introduce(element("style", Html(_STYLE)), _summary(results), tiles(_tiles(results)))
    page.introduce(facts(_facts(results)))
    for show, there in (
        (_fits, results.fits),
        (_losses, results.losses),
        (_spectra, results.spectra),
        (_features, results.features),
        (_prompt, results.attribution),
    ):
        if there:
            show(page, results)
    rerun_section(page, results.about, target.parent, _FILES)
    page.sections[-1].add(element("script", Html(_SCRIPT)))
    return page.write(target)


_QUIET = "This page asks no network for anything."


# -- the top of the page -----------------------------------------------------------------------------------------------


def _degree(results: LmResults) -> int:
    """Degree of the polynomials that the study is about."""
    told = (results.about.get("config") or {}).get("degree")
    return told or max((loss.degree for loss in results.losses if loss.by == "polynomial"), default=0)


def _loss(results: LmResults, by: str) -> Loss | None:
    """The model as it is (""), or with all blocks replaced."""
    wanted = (by, "all", _degree(results)) if by == "polynomial" else (by, "all" if by else "none", 0)
    return next((x for x in results.losses if (x.by, x.replaced, x.degree) == wanted), None)


def _summary(results: LmResults) -> str:
    layers = len({fit.layer for fit in results.fits}) or len(results.spectra)
    sampled = (results.about.get("config") or {}).get("method") == "samples"
    known = "the text’s own activations" if sampled else "mean and covariance of what goes into each block"
    said = (
        f"The feedforward blocks of this language model ({number(layers)} of them) were replaced by polynomials of "
        f"their inputs, the closest in mean square, computed from the weights and from {known}. No gradient was taken."
    )
    plain, replaced = _loss(results, ""), _loss(results, "polynomial")
    if plain and replaced:
        said += (
            f" With all of them of degree {_degree(results)}, the cross-entropy on text that none of this has seen "
            f"goes from {number(plain.cross_entropy, 4)} to {number(replaced.cross_entropy, 4)} nats per token."
        )
    return said


def _tiles(results: LmResults) -> list[tuple[str, str, str]]:
    plain, replaced, degree = _loss(results, ""), _loss(results, "polynomial"), _degree(results)
    items = []
    if plain:
        items.append((number(plain.cross_entropy, 4), "nats per token", "the model as it is"))
    if replaced:
        items.append((number(replaced.cross_entropy, 4), "nats per token", f"all blocks of degree {degree}"))
    known = [f.held_out for f in results.fits if f.degree == degree and math.isfinite(f.held_out)]
    if known:
        share = math.fsum(known) / len(known)
        items.append((percent(share), "of a block unexplained", f"degree {degree}, held-out text, mean of blocks"))
    if results.spectra:
        linear = math.fsum(s.shares[0] for s in results.spectra) / len(results.spectra)
        items.append((percent(linear), "of a block is linear", "under its Gaussian, mean of blocks"))
    return items


def _facts(results: LmResults) -> dict[str, object]:
    model, data = results.about.get("model") or {}, results.about.get("data") or {}
    tokens = counted(int(data["tokens"]), "token") if data.get("tokens") else ""
    kinds = {
        "Model": ", ".join(str(model[key]) for key in ("model", "architecture", "dtype") if model.get(key)),
        "Moments": f"{tokens} of {data.get('text', 'text')}" if tokens else "",
        "Judged on": counted(int(data["held_out"]), "token") if data.get("held_out") else "",
        "Inputs": str(data.get("inputs", "")),
    }
    return {name: words for name, words in kinds.items() if words}


# -- figures -----------------------------------------------------------------------------------------------------------


def _layer_axis(layers: Sequence[str]) -> dict[str, Any]:
    ticks = [_short(name) for name in layers]
    step = max(1, math.ceil(len(ticks) / 24))
    shown = list(range(0, len(ticks), step))
    return {"title": {"text": "block"}, "tickvals": shown, "ticktext": [ticks[i] for i in shown]}


def _short(name: str) -> str:
    """The number of a layer in its name, or the name."""
    return next((part for part in name.split(".") if part.isdigit()), name)


def _line(name: str, pairs: Sequence[tuple[int, float]], colour: str, sampled: bool = False) -> Trace:
    return {
        "type": "scatter",
        "x": [place for place, _ in pairs],
        "y": [value for _, value in pairs],
        "name": name,
        "mode": "lines+markers",
        "line": {"color": colour, "width": 1.4 if sampled else 2.4, "dash": "dot" if sampled else "solid"},
        "marker": {"color": colour, "size": 7, "symbol": "circle-open" if sampled else "circle"},
        "hovertemplate": f"<b>{name}</b><br>block %{{x}}<br>%{{y:.4g}}<extra></extra>",
    }


def _fits(page: Page, results: LmResults) -> None:
    layers = list(dict.fromkeys(fit.layer for fit in results.fits))
    kinds = (("closed form", "closed_form", False), ("held-out text", "held_out", True))
    traces: dict[str, list[Trace]] = {kind: [] for kind, _, _ in kinds}
    degrees = sorted({fit.degree for fit in results.fits})
    for degree in degrees:
        for kind, key, sampled in kinds:
            pairs = [(layers.index(f.layer), getattr(f, key)) for f in results.fits if f.degree == degree]
            pairs = sorted((place, value) for place, value in pairs if math.isfinite(value))
            if pairs:
                colour = f"var(--area-{min(degree, _COLOURS)})"
                words = f"degree {degree}" + (", held out" if sampled else "")
                traces[kind].append(_line(words, pairs, colour, sampled))
    both = [trace for kind in traces.values() for trace in kind]
    views = [View(("both",), both), *(View((kind,), found) for kind, found in traces.items() if found)]
    layout = {"xaxis": _layer_axis(layers), "yaxis": {"title": {"text": "fraction of variance unexplained"}}}
    label = "Fraction of variance unexplained of every block, by degree"
    plot = Plot("plot-fvu", label, with_scales(views), ("Shown", "Axis"), layout)
    caption = (
        "Lines: under the Gaussian inputs of the fit, from weights and moments alone. Open circles: on text that the "
        "moments have not seen, whose activations are no Gaussian. A click on a name in the legend hides it."
    )
    rows = [(f"degree {d}", *(_mean_fvu(results.fits, d, key) for _, key, _ in kinds)) for d in degrees]
    page.section("fvu", "How far each polynomial is from its block", "FVU by block").add(
        "The fraction of the variance of a block’s outputs that a polynomial leaves unexplained is 0 for a perfect "
        "copy and 1 for a constant.",
        figure(plot.html(), caption),
        table(("Mean over the blocks", "FVU, closed form", "FVU, held-out text"), rows),
    )


def _mean_fvu(fits: Sequence[FitRow], degree: int, key: str) -> float:
    known = [getattr(fit, key) for fit in fits if fit.degree == degree and math.isfinite(getattr(fit, key))]
    return math.fsum(known) / len(known) if known else math.nan


def _perplexity(nats: float) -> float:
    return math.exp(nats) if nats < 700 else math.inf  # a page shows a dash for infinity


_BY = {
    "": "nothing",
    "removed": "zero",
    "mean": "their mean output",
    "linear": "the best linear map",
}


def _losses(page: Page, results: LmResults) -> None:
    plain = _loss(results, "")
    base = plain.cross_entropy if plain else math.nan
    rows = []
    for loss in (x for x in results.losses if x.replaced in ("none", "all")):
        words = _BY.get(loss.by) or f"polynomials of degree {loss.degree}"
        rows.append((words, loss.cross_entropy, loss.cross_entropy - base, loss.kl, _perplexity(loss.cross_entropy)))
    columns = ("All blocks replaced by", "Cross-entropy, nats", "Change", "KL from the model", "Perplexity")
    section = page.section("loss", "What the model loses", "Cross-entropy").add(
        "The whole model runs on held-out text with its blocks replaced. Attention, norms and embeddings stay as they "
        "are.",
        table(columns, rows),
    )
    single = [x for x in results.losses if x.replaced not in ("none", "all")]
    if single:
        layers = list(dict.fromkeys(x.replaced for x in single))
        traces = []
        for by, colour in (("polynomial", "blue"), ("linear", "orange"), ("mean", "grey"), ("removed", "black")):
            found = sorted((layers.index(x.replaced), x.cross_entropy - base) for x in single if x.by == by)
            if found:
                words = f"degree {_degree(results)}" if by == "polynomial" else _BY[by]
                traces.append(_line(words, found, f"var(--{colour})"))
        layout = {"xaxis": _layer_axis(layers), "yaxis": {"title": {"text": "change of the cross-entropy, nats"}}}
        plot = Plot("plot-single", "Change of the cross-entropy by block", [View((), traces)], (), layout)
        section.add(element("h3", "One block at a time"), figure(plot.html(), "Only this block is replaced."))


def _spectra(page: Page, results: LmResults) -> None:
    layers = [s.layer for s in results.spectra]
    count = max(len(s.shares) for s in results.spectra)
    bars = []
    for k in range(count + 1):
        name, colour = (f"degree {k + 1}", min(k + 1, _COLOURS)) if k < count else (f"above degree {count}", "rest")
        shares = [(*s.shares, s.rest)[k] for s in results.spectra]
        hover = f"<b>{name}</b><br>block %{{x}}<br>%{{y:.3%}}<extra></extra>"
        marker = {"color": f"var(--area-{colour})"}
        x = list(range(len(layers)))
        bars.append({"type": "bar", "x": x, "y": shares, "name": name, "marker": marker, "hovertemplate": hover})
    views = [
        View(("all",), bars, {"yaxis": {"range": [0, 1]}}),
        View(("above degree 1",), bars[1:], {"yaxis": {"rangemode": "tozero"}}),
    ]
    axis = {"title": {"text": "share of the variance"}, "tickformat": ".1~%"}
    layout = {"xaxis": _layer_axis(layers), "yaxis": axis, "barmode": "stack", "bargap": 0.25}
    plot = Plot("plot-spectrum", "Shares of every block's variance by degree", views, ("Degrees",), layout)
    page.section("spectrum", "How much of each block lives at each degree", "Degree spectrum").add(
        "The variance of a block’s outputs under the Gaussian of its inputs, shared out over polynomial degrees: it "
        "says in advance what a polynomial of any degree leaves unexplained there.",
        figure(plot.html(), "Sums over the weights, no samples. A click on a name in the legend hides it."),
    )


# -- tokens ------------------------------------------------------------------------------------------------------------


def _visible(text: str) -> str:
    """A token with its line ends and control characters as symbols."""
    return "".join("⏎" if c == "\n" else chr(0x2400 + ord(c)) if ord(c) < 32 else c for c in text)


def _rounded(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]


def _menu(name: str, label: str, options: Sequence[str]) -> Html:
    items = [element("option", option, value=i) for i, option in enumerate(options)]
    return element("label", label, element("select", *items, id=name), class_="pick", for_=name)


def _features(page: Page, results: LmResults) -> None:
    layers = list(dict.fromkeys(f.layer for f in results.features))
    outputs = list(dict.fromkeys(f.output for f in results.features))

    def tokens(found: Sequence[TokenScore]) -> list[list[object]]:
        return [[_visible(t.text), *_rounded([t.score])] for t in found]

    features = [
        {
            "layer": layers.index(f.layer),
            "output": outputs.index(f.output),
            "rank": f.rank,
            "value": _rounded([f.value])[0],
            **{key: tokens(getattr(f, key)) for key in ("reads", "reads_not", "raises", "lowers")},
        }
        for f in results.features
    ]
    towards = _menu("features-output", "Towards", [_visible(output) for output in outputs])
    viewer = element(
        "div",
        element("div", _menu("features-layer", "Block", layers), towards, class_="controls"),
        element("div", class_="features", aria_live="polite"),
        island("features-data", {"features": features}),
        id="feature-viewer",
        data_features="features-data",
    )
    caption = (
        "The number is what the feature adds, along the output that was chosen, where it stands one standard deviation "
        "from its mean. Reads: tokens whose embedding, put through the block’s norm alone, lies farthest along the "
        "feature’s input direction; it counts with its square, so the two ends may be exchanged. Raises, lowers: the "
        "logits that the feature’s output moves most, through the final norm’s weight."
    )
    page.section("features", "What the blocks read and write, in tokens", "Features").add(
        "The quadratic part of a block’s polynomial, towards the logit of one token, is a sum of squares of features. "
        "These are the strongest ones, in the metric of the block’s inputs.",
        figure(viewer, caption),
    )


def _prompt(page: Page, results: LmResults) -> None:
    found = results.attribution
    assert found is not None
    names = [_DEGREES[k] if k < len(_DEGREES) else f"degree {k}" for k in range(found.degree + 1)]
    values = [
        [_rounded([*found.parts[i, t], found.blocks[i, t]]) for t in range(len(found.ids))]
        for i in range(len(found.layers))
    ]
    data = {
        "degrees": names,
        "layers": found.layers,
        "tokens": list(map(_visible, found.tokens)),
        "targets": list(map(_visible, found.target_tokens)),
        "values": values,
        "logits": _rounded(found.logits),
        "centred": found.centred,
    }
    menu = _menu("prompt-layer", "Block", ["all blocks", *found.layers])
    kinds = choices("prompt-degree", "Part", [*names, "whole polynomial", "block itself"], len(names))
    ends = (
        element("span", "−"),
        element("span", class_="ramp"),
        element("span", "+"),
        element("span", class_="largest"),
    )
    columns = ("Block", *names, "polynomial", "block itself")
    head = element(
        "tr", *(element("th", c, scope="col", class_="number" if i else None) for i, c in enumerate(columns))
    )
    parts = element("table", element("thead", head), element("tbody"))
    viewer = element(
        "div",
        element("div", menu, kinds, class_="controls"),
        element("div", *map(_token, found.tokens), class_="stream"),
        paragraph(*ends, class_="scale"),
        paragraph(class_="taken", aria_live="polite"),
        element("div", parts, class_="parts", tabindex=0, role="region", aria_label="Parts by block and degree"),
        island("prompt-data", data),
        id="prompt-viewer",
        data_attribution="prompt-data",
    )
    _add_prompt(page, viewer, found)


def _token(token: str) -> Html:
    """A token of the prompt; a line end also ends the line."""
    breaks = element("br") if "\n" in token else Html()
    return Html(element("span", _visible(token), role="button") + breaks)


def _add_prompt(page: Page, viewer: Html, found: Attribution) -> None:
    less = ", less the mean of all logits" if found.centred else ""
    same = len(set(found.targets)) == 1
    goal = "one token" if same else "the token that follows (at the end: of the model’s own guess)"
    caption = (
        "The direct path alone: block, residual stream, final norm with its divisor at that position, unembedding. "
        "Degrees are those of the fit, orthogonal under its Gaussian, not monomials: the constant is the block’s mean "
        "output. Degrees add up to the polynomial exactly. Choose a token with the pointer or the arrow keys."
    )
    page.section("prompt", "A prompt taken apart", "A prompt").add(
        f"Every token is coloured by what the blocks at its position add to the logit of {goal}{less}: red raises it, "
        "blue lowers it.",
        figure(viewer, caption),
    )


# -- what the browser gets beyond page.css and page.js ----------------------------------------------------------------

_STYLE = """
/* What the report of a language model has beyond the other pages; its colours are those of page.css. */
.pick { display: inline-flex; align-items: center; gap: 0.5rem; font-size: 0.84rem; color: var(--muted);
  max-width: 100%; }
.pick select { font: 500 0.86rem/1.3 var(--sans); color: var(--ink); background: var(--wash);
  border: 1px solid transparent;
  border-radius: 7px; padding: 0.34rem 0.5rem; min-width: 0; max-width: 100%; cursor: pointer; }
.pick select:hover { border-color: var(--faint); }
.pieces { display: flex; flex-wrap: wrap; gap: 0.25rem; margin: 0; padding: 0; list-style: none; }
.pieces li, .stream span { font: 0.84rem/1.5 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; }
.pieces li { background: var(--wash); border-radius: 4px; padding: 0 0.3rem; }
.features { display: grid; gap: 1.1rem; margin-top: 0.6rem; }
.feature { display: grid; grid-template-columns: 7rem minmax(0, 1fr) minmax(0, 1fr); gap: 0.5rem 1.4rem;
  border-top: 1px solid var(--grid); padding-top: 0.9rem; }
.feature .value { font: 600 1.2rem/1.2 var(--serif); font-variant-numeric: lining-nums tabular-nums; }
.feature .value small { display: block; font: 0.78rem/1.3 var(--sans); color: var(--muted); }
.feature h4 { margin: 0 0 0.25rem; }
.feature .pieces + h4 { margin-top: 0.6rem; }
.feature .raises { color: var(--positive); } .feature .lowers { color: var(--negative); }
.stream { line-height: 2.05; margin: 0.3rem 0 0.8rem; }
.stream span { font-size: 0.95rem; padding: 0.16rem 0; border-radius: 3px; cursor: pointer; color: var(--ink); }
.stream span:hover { box-shadow: 0 0 0 1px var(--faint); }
.stream span[aria-pressed="true"] { box-shadow: 0 0 0 2px var(--accent); }
.taken { margin: 1rem 0 0.4rem; font-size: 0.95rem; }
.taken code { background: var(--wash); border-radius: 4px; padding: 0 0.3rem; white-space: pre-wrap; }
.parts { overflow-x: auto; }
.parts table { font-size: 0.86rem; }
.parts th, .parts td { padding: 0.26rem 0.6rem; }
.parts thead th { white-space: nowrap; }
.parts tr.sum > * { font-weight: 600; border-top: 1px solid var(--line); }
.ramp { flex: none; width: 5.5rem; height: 0.6rem; border-radius: 3px;
  background: linear-gradient(90deg, color-mix(in srgb, var(--negative) 70%, transparent), transparent,
  color-mix(in srgb, var(--positive) 70%, transparent)); }
@media (max-width: 760px) {
  .feature { grid-template-columns: minmax(0, 1fr); }
  .feature .value small { display: inline; margin-left: 0.5rem; }
}
"""

_SCRIPT = r"""
"use strict";

// Features and attributions of a language model. Tokens can be any text: it is set as text, never as HTML.
addEventListener("DOMContentLoaded", () => {
  const made = (tag, text, cls) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (cls) node.className = cls;
    return node;
  };
  const pieces = (tokens) => {
    const list = made("ul", undefined, "pieces");
    tokens.forEach(([text, score]) => {
      const item = made("li", text);
      item.title = `score ${Page.signed(score)}`;
      list.append(item);
    });
    return list;
  };

  for (const block of document.querySelectorAll("[data-features]")) {
    const spec = Page.data(block.dataset.features);
    const [layer, output] = block.querySelectorAll("select");
    const space = block.querySelector(".features");
    const part = (title, tokens, cls) => [made("h4", title, cls), pieces(tokens)];
    const show = () => {
      const fits = (f) => f.layer === Number(layer.value) && f.output === Number(output.value);
      const chosen = spec.features.filter(fits);
      space.replaceChildren(...chosen.map((f) => {
        const row = made("div", undefined, "feature");
        const value = made("div", Page.signed(f.value), "value");
        value.append(made("small", `feature ${f.rank + 1}`));
        const reads = made("div"), writes = made("div");
        reads.append(...part("reads, one end", f.reads), ...part("reads, other end", f.reads_not));
        writes.append(...part("raises", f.raises, "raises"), ...part("lowers", f.lowers, "lowers"));
        row.append(value, reads, writes);
        return row;
      }));
      if (!chosen.length) space.append(made("p", "No features were read here.", "note"));
    };
    [layer, output].forEach((menu) => menu.addEventListener("change", show));
    show();
  }

  for (const block of document.querySelectorAll("[data-attribution]")) {
    const spec = Page.data(block.dataset.attribution);
    const layer = block.querySelector("select");
    const degrees = block.querySelector("fieldset");
    const spans = [...block.querySelectorAll(".stream span")];
    const count = spec.degrees.length;
    let token = spans.length - 1;

    // A row holds every degree, then what the block itself adds; layer 0 of the menu is the sum of all.
    const zeros = new Array(count + 1).fill(0);
    const sum = (rows) => rows.reduce((all, row) => all.map((v, i) => v + row[i]), zeros);
    const row = (place, t) => (place === 0 ? sum(spec.values.map((l) => l[t])) : spec.values[place - 1][t]);
    const total = (values) => values.slice(0, count).reduce((a, b) => a + b, 0);
    const picked = (values, kind) => (kind < count ? values[kind] : kind === count ? total(values) : values[count]);
    const tint = (node, value, largest) => {
      const share = Math.round(70 * Math.min(Math.abs(value) / (largest || 1), 1));
      const colour = value > 0 ? "var(--positive)" : "var(--negative)";
      node.style.background = `color-mix(in srgb, ${colour} ${share}%, transparent)`;
    };
    const cells = (name, values, cls) => {
      const line = made("tr", undefined, cls);
      const heading = made("th", name);
      heading.scope = "row";
      line.append(heading);
      const shown = [...values.slice(0, count), total(values), values[count]];
      line.append(...shown.map((v) => made("td", Page.signed(v), "number")));
      return line;
    };

    const table = () => {
      const body = block.querySelector(".parts tbody");
      body.replaceChildren(
        ...spec.layers.map((name, i) => cells(name, spec.values[i][token])),
        cells("all blocks", row(0, token), "sum"),
      );
      const numbers = spec.layers.flatMap((_, i) => spec.values[i][token].slice(0, count));
      const largest = Math.max(...numbers.map(Math.abs));
      [...body.rows].slice(0, -1).forEach((line, i) => {
        for (let k = 0; k < count; k += 1) tint(line.cells[k + 1], spec.values[i][token][k], largest);
      });
      const words = block.querySelector(".taken");
      words.replaceChildren(
        "After ", made("code", spec.tokens[token]), `, position ${token}, towards `, made("code", spec.targets[token]),
        `: the model’s logit is ${Page.number(spec.logits[token])}`,
        spec.centred ? " above the mean of all logits." : ".",
      );
    };
    const show = () => {
      const kind = Number(degrees.querySelector("input:checked").value), place = Number(layer.value);
      const rows = spans.map((_, t) => row(place, t));
      const values = rows.map((values) => picked(values, kind));
      const largest = Math.max(...values.map(Math.abs));
      spans.forEach((span, t) => {
        tint(span, values[t], largest);
        const parts = spec.degrees.map((name, k) => `${name} ${Page.signed(rows[t][k])}`);
        const sums = [`polynomial ${Page.signed(total(rows[t]))}`, `block itself ${Page.signed(rows[t][count])}`];
        span.title = [`${spec.tokens[t]} → ${spec.targets[t]}`, ...parts, ...sums].join("\n");
        span.setAttribute("aria-pressed", String(t === token));
        span.tabIndex = t === token ? 0 : -1;
      });
      block.querySelector(".largest").textContent = `colours reach ±${Page.number(largest)}`;
    };
    const choose = (t) => { token = Math.max(0, Math.min(spans.length - 1, t)); show(); table(); };
    spans.forEach((span, t) => {
      span.addEventListener("click", () => choose(t));
      span.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        choose(t + step);
        spans[token].focus();
      });
    });
    layer.addEventListener("change", show);
    degrees.addEventListener("change", show);
    choose(token);
  }
});
"""
