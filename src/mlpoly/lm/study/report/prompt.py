"""A prompt taken apart: what every degree of every block adds to a logit, token by token."""

from __future__ import annotations

from functools import partial

from markupsafe import Markup

from mlpoly.lm.reading.attribution import Attribution
from mlpoly.lm.study.report.viewers import menu, rounded, visible
from mlpoly.page import Page
from mlpoly.page.embedded import island
from mlpoly.page.html import element, paragraph
from mlpoly.page.widgets import choices, figure

__all__ = ["prompt_section"]

_DEGREES = ("constant", "linear", "quadratic", "cubic", "quartic", "quintic")


def prompt_section(page: Page, found: Attribution) -> None:
    """The prompt in colours, and the parts of the chosen token as a table."""
    less = ", less the mean of all logits" if found.centred else ""
    same = len(set(found.targets)) == 1
    goal = "one token" if same else "the token that follows (at the end: of the model’s own guess)"
    caption = (
        "The direct path alone: block, residual stream, final norm with its divisor at that position, unembedding. "
        "Degrees are those of the fit, orthogonal under its Gaussian, not monomials: the constant is the block’s mean "
        "output. Degrees add up to the polynomial exactly; what the blocks do not add to the logit comes from the "
        "embedding and attention. Choose a token with the pointer or the arrow keys."
    )
    page.section("prompt", "A prompt taken apart", "A prompt").add(
        f"Every token is coloured by what the blocks at its position add to the logit of {goal}{less}: red raises it, "
        "blue lowers it.",
        figure(_viewer(found), caption),
    )


def _viewer(found: Attribution) -> Markup:
    names = [_DEGREES[k] if k < len(_DEGREES) else f"degree {k}" for k in range(found.degree + 1)]
    blocks = menu("prompt-layer", "Block", ["all blocks", *found.layers])
    kinds = choices("prompt-degree", "Part", [*names, "whole polynomial", "block itself"], len(names))
    span = partial(element, "span")
    scale = (span("−"), span(class_="ramp"), span("+"), span(class_="largest"))
    columns = enumerate(("Block", *names, "polynomial", "block itself"))
    head = (element("th", column, scope="col", class_="number" if i else None) for i, column in columns)
    parts = element("table", element("thead", element("tr", *head)), element("tbody"))  # the page's script fills it in
    # A line end also ends the line.
    tokens = [element("span", visible(t), role="button") + (element("br") if "\n" in t else "") for t in found.tokens]
    # What the page's script gets: a row of values for each block and token, every degree and then the block itself.
    data = {
        "degrees": names,
        "layers": found.layers,
        "tokens": list(map(visible, found.tokens)),
        "targets": list(map(visible, found.target_tokens)),
        "values": [
            [rounded([*found.parts[i, t], found.blocks[i, t]]) for t in range(len(found.ids))]
            for i in range(len(found.layers))
        ],
        "logits": rounded(found.logits),
        "centred": found.centred,
    }
    return element(
        "div",
        element("div", blocks, kinds, class_="controls"),
        element("div", *map(Markup, tokens), class_="stream"),
        paragraph(*scale, class_="scale"),
        paragraph(class_="taken", aria_live="polite"),
        element("div", parts, class_="parts", tabindex=0, role="region", aria_label="Parts by block and degree"),
        island("prompt-data", data),
        id="prompt-viewer",
        data_attribution="prompt-data",
    )
