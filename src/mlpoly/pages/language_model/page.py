"""The page: a summary on top, then its sections in order; here also the prompt that is taken apart."""

import math
from os import PathLike
from pathlib import Path

from markupsafe import Markup

from mlpoly.features.single_prediction import degree_name
from mlpoly.lm.reading.attribution import Attribution
from mlpoly.pages.language_model.blocks import fits_section, losses_section, median_of, spectra_section, whole_loss
from mlpoly.pages.language_model.dashboard import dashboard, dashboard_assets, score_table, visible
from mlpoly.pages.toolkit import Page, asset
from mlpoly.pages.toolkit.pictures import island
from mlpoly.pages.toolkit.widgets import choices, counted, element, facts, figure, menu, number, percent, rounded, tiles
from mlpoly.studies.language_model.results import LmResults

_FILES = ("results/*.json", "tables/*.csv", "moments/moments.safetensors")
_METHODS = {
    "gaussian": "least squares under the Gaussian of each block’s inputs",
    "neuronwise": "least squares for each neuron, under the mixture of its components",
    "joint": "least squares over all neurons together, under the mixture of its components",
    "samples": "least squares over all neurons together, on the activations of the text",
}


def write_lm_report(results: LmResults, path: str | PathLike[str]) -> Path:
    """Write the report, one HTML file that opens without a network; a section without results is left out."""
    target, about = Path(path), results.about
    name = (about.get("model") or {}).get("model", "A language model")
    page = Page(f"{name} with polynomials in place of its blocks", "A study", about.get("version", ""))
    degree = (about.get("config") or {}).get("degree") or max((x.degree for x in results.losses), default=0)
    own = (asset("mlpoly.pages.language_model", file) for file in ("lm.css", "lm.js"))
    page.style, page.script = (a + b for a, b in zip(dashboard_assets(), own, strict=True))
    page.introduce(*_introduction(results, degree))
    if results.errors:
        fits_section(page, results.errors)
    if results.losses:
        losses_section(page, results.losses, degree)
    if results.spectra:
        spectra_section(page, results.spectra)
    if results.features:
        page.section("features", "What the blocks read and write, in tokens", "Features").add(
            "The quadratic part of a block’s polynomial is a sum of squares of features, each a direction that the "
            "block reads and a vector that it writes. These are eigenvectors of the block’s principal forms: of the "
            "output directions that carry most of its variance at degree 2. No output is chosen. They are seen here on "
            "held-out text.",
            dashboard(results.features),
            score_table(results.features),
        )
    if results.attribution is not None:
        prompt_section(page, results.attribution)
    page.rerun_section(about, target.parent, _FILES)
    return page.write(target)


def _introduction(results: LmResults, degree: int) -> tuple[str | Markup, ...]:
    """A paragraph, numbers to remember, and what they are of."""
    model, data, config = (results.about.get(name) or {} for name in ("model", "data", "config"))
    blocks = len({errors.block for errors in results.errors}) or len(results.spectra)
    sampled = config.get("method") == "samples"
    known = "its activations on the text" if sampled else "the mean and covariance of its inputs"
    said = (
        f"Here polynomials take the place of {counted(blocks, 'feedforward block')} of a language model. Each is the "
        f"closest to its block in mean square, computed from the block’s weights and {known}, without gradients."
    )
    original, replaced = whole_loss(results.losses, "", 0), whole_loss(results.losses, "polynomial", degree)
    shown = (original, "the original model"), (replaced, f"all blocks replaced, degree {degree}")
    unit = "nats per token, cross-entropy"
    items = [(number(loss.cross_entropy, 4), unit, what) for loss, what in shown if loss]
    if original and replaced:
        said += (
            f" With degree {degree} for all of them, the cross-entropy on held-out text goes from "
            f"{number(original.cross_entropy, 4)} to {number(replaced.cross_entropy, 4)} nats per token."
        )
    missed = median_of(results.errors, degree, "held_out")
    if math.isfinite(missed):
        where = f"degree {degree}, held-out text, median of blocks"
        items.append((percent(missed), "of a block’s variance unexplained", where))
    if results.spectra:
        linear = math.fsum(s.fractions[0] for s in results.spectra) / len(results.spectra)
        items.append((percent(linear), "of a block’s variance is linear", "under its Gaussian inputs, mean of blocks"))
    method = [_METHODS.get(config.get("method", ""), "")]
    if config.get("bound"):
        method.append(f"straight lines beyond {number(config['bound'])} standard deviations")
    tokens, held_out = (counted(int(data[key]), "token") if data.get(key) else "" for key in ("tokens", "held_out"))
    kinds = {
        "Model": ", ".join(str(model[key]) for key in ("model", "architecture", "dtype") if model.get(key)),
        "Moments": f"{tokens} of {data.get('text', 'text')}" if tokens else "",
        "Judged on": held_out,
        "Polynomials": "; ".join(words for words in method if words),
    }
    return said, tiles(items), facts(kinds)


def prompt_section(page: Page, found: Attribution) -> None:
    """The prompt in colours, and the parts of the chosen token as a table."""
    names = list(map(degree_name, range(found.degree + 1)))
    blocks = menu("prompt-block", "Block", ["all blocks", *found.blocks])
    kinds = choices("prompt-degree", "Part", [*names, "whole polynomial", "block itself"], len(names))
    columns = enumerate(("Block", *names, "polynomial", "block itself"))
    head = (element("th", column, scope="col", class_="number" if i else None) for i, column in columns)
    parts = element("table", element("thead", element("tr", *head)), element("tbody"))  # the page's script fills it in
    tokens: list[Markup] = []
    for token in found.tokens:
        tokens.append(element("span", visible(token), role="button"))
        tokens += [element("br")] if "\n" in token else []
    ramp = (element("span", words, class_=kind) for words, kind in (("−", None), ("", "ramp"), ("+", None)))
    data = {  # a row of values for each block and token: every degree, and then the block itself
        "degrees": names,
        "blocks": found.blocks,
        "tokens": list(map(visible, found.tokens)),
        "targets": list(map(visible, found.target_tokens)),
        "values": [
            [rounded([*found.parts[i, t], found.actual[i, t]]) for t in range(len(found.ids))]
            for i in range(len(found.blocks))
        ],
        "logits": rounded(found.logits),
        "centred": found.centred,
    }
    viewer = element(
        "div",
        element("div", blocks, kinds, class_="controls"),
        element("div", *tokens, class_="stream"),
        element("p", *ramp, element("span", class_="largest"), class_="scale"),
        element("p", class_="taken", aria_live="polite"),
        element("div", parts, class_="table parts", tabindex=0, role="region", aria_label="Parts by block and degree"),
        island("prompt-data", data),
        id="prompt-viewer",
        data_attribution="prompt-data",
    )
    less = ", less the mean of all logits" if found.centred else ""
    same = len(set(found.targets)) == 1
    goal = "one token" if same else "the token that follows (at the end: of the model’s own guess)"
    caption = (
        "The direct path alone: block, residual stream, final norm with its divisor at that position, unembedding. "
        "Degrees are those of the fit, orthogonal under its Gaussian, not monomials: the constant is the block’s mean "
        "output. Degrees add up to the polynomial exactly; the rest of the logit, beyond what the blocks add, comes "
        "from the embedding and attention. Choose a token with the pointer or the arrow keys."
    )
    page.section("prompt", "A prompt taken apart", "A prompt").add(
        f"Every token is coloured by what the blocks at its position add to the logit of {goal}{less}: red raises it, "
        "blue lowers it.",
        figure(viewer, caption),
    )
