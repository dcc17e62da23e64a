"""Sections in terms of tokens: features of the blocks, and a prompt taken apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from mlpoly.lm.reading.attribution import Attribution
from mlpoly.lm.reading.token_features import BlockFeature
from mlpoly.page import Page
from mlpoly.page.embedded import island
from mlpoly.page.html import element
from mlpoly.page.widgets import choices, figure

__all__ = ["features_section", "prompt_section"]

_DEGREES = ("constant", "linear", "quadratic", "cubic", "quartic", "quintic")


def features_section(page: Page, features: Sequence[BlockFeature]) -> None:
    """Menus of blocks and outputs, and the features of the chosen ones."""
    blocks = list(dict.fromkeys(f.block for f in features))
    outputs = list(dict.fromkeys(f.output for f in features))
    ends = ("reads", "reads_not", "raises", "lowers")
    data = [  # block and output by their places in the menus
        {"block": blocks.index(f.block), "output": outputs.index(f.output), "rank": f.rank}
        | {"value": _rounded([f.value])[0]}
        | {end: [[_visible(t.text), *_rounded([t.score])] for t in getattr(f, end)] for end in ends}
        for f in features
    ]
    towards = _menu("features-output", "Towards the logit of", map(_visible, outputs))
    viewer = element(
        "div",
        element("div", _menu("features-block", "Block", blocks), towards, class_="controls"),
        element("div", class_="features", aria_live="polite"),
        island("features-data", {"features": data}),
        id="feature-viewer",
        data_features="features-data",
    )
    caption = (
        "The number is what the feature adds, along the chosen output, where it is one standard deviation from its "
        "mean. Reads: tokens whose embedding, put through the block’s norm alone, lies farthest along the feature’s "
        "input direction; the feature enters as its square, so the two ends may be exchanged. Raises, lowers: the "
        "logits that the feature’s output moves most, through the final norm’s weight. ␣ is a space at a token’s end."
    )
    page.section("features", "What the blocks read and write, in tokens", "Features").add(
        "The quadratic part of a block’s polynomial, towards the logit of one token, is a sum of squares of features. "
        "These are the strongest ones, in the metric of the block’s inputs.",
        figure(viewer, caption),
    )


def prompt_section(page: Page, found: Attribution) -> None:
    """The prompt in colours, and the parts of the chosen token as a table."""
    names = [_DEGREES[k] if k < len(_DEGREES) else f"degree {k}" for k in range(found.degree + 1)]
    menu = _menu("prompt-block", "Block", ["all blocks", *found.blocks])
    kinds = choices("prompt-degree", "Part", [*names, "whole polynomial", "block itself"], len(names))
    columns = enumerate(("Block", *names, "polynomial", "block itself"))
    head = (element("th", column, scope="col", class_="number" if i else None) for i, column in columns)
    parts = element("table", element("thead", element("tr", *head)), element("tbody"))  # the page's script fills it in
    tokens: list[Markup] = []
    for token in found.tokens:
        tokens.append(element("span", _visible(token), role="button"))
        tokens += [element("br")] if "\n" in token else []
    ramp = (element("span", words, class_=kind) for words, kind in (("−", None), ("", "ramp"), ("+", None)))
    data = {  # a row of values for each block and token: every degree, and then the block itself
        "degrees": names,
        "blocks": found.blocks,
        "tokens": list(map(_visible, found.tokens)),
        "targets": list(map(_visible, found.target_tokens)),
        "values": [
            [_rounded([*found.parts[i, t], found.actual[i, t]]) for t in range(len(found.ids))]
            for i in range(len(found.blocks))
        ],
        "logits": _rounded(found.logits),
        "centred": found.centred,
    }
    viewer = element(
        "div",
        element("div", menu, kinds, class_="controls"),
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


def _visible(text: str) -> str:
    """A token with its line ends and control characters as symbols."""
    return "".join("⏎" if c == "\n" else chr(0x2400 + ord(c)) if ord(c) < 32 else c for c in text)


def _rounded(values: Iterable[float]) -> list[float]:
    """Values to the few digits that a page shows."""
    return [float(f"{value:.4g}") for value in values]


def _menu(name: str, label: str, options: Iterable[str]) -> Markup:
    """A menu of options whose values are their places."""
    items = [element("option", option, value=i) for i, option in enumerate(options)]
    return element("label", label, element("select", *items, id=name), class_="pick", for_=name)
