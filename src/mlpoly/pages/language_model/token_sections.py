"""Sections in terms of tokens: features of the blocks, and a prompt taken apart."""

from collections.abc import Sequence

from markupsafe import Markup

from mlpoly.features.single_prediction import degree_name
from mlpoly.lm.reading.attribution import Attribution
from mlpoly.lm.reading.feature_reading import FeatureReading
from mlpoly.pages.language_model.dashboard import dashboard, score_table, visible
from mlpoly.pages.toolkit import Page
from mlpoly.pages.toolkit.embedded import island
from mlpoly.pages.toolkit.html import element
from mlpoly.pages.toolkit.numbers import rounded
from mlpoly.pages.toolkit.widgets import choices, figure, menu


def features_section(page: Page, features: Sequence[FeatureReading]) -> None:
    """The dashboard of features."""
    page.section("features", "What the blocks read and write, in tokens", "Features").add(
        "The quadratic part of a block’s polynomial is a sum of squares of features, each a direction that the block "
        "reads and a vector that it writes. These are eigenvectors of the block’s principal forms: of the output "
        "directions that carry most of its variance at degree 2. No output is chosen. They are seen here on held-out "
        "text.",
        dashboard(features),
        score_table(features),
    )


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
