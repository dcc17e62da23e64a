"""Features of the blocks as tokens, by block and output."""

from __future__ import annotations

from collections.abc import Sequence

from mlpoly.lm.reading.token_features import BlockFeature
from mlpoly.lm.study.report.viewers import menu, rounded, visible
from mlpoly.page import Page
from mlpoly.page.embedded import island
from mlpoly.page.html import element
from mlpoly.page.widgets import figure

__all__ = ["features_section"]

_ENDS = ("reads", "reads_not", "raises", "lowers")


def features_section(page: Page, features: Sequence[BlockFeature]) -> None:
    """Menus of blocks and outputs, and the features of the chosen ones."""
    layers = list(dict.fromkeys(f.layer for f in features))
    outputs = list(dict.fromkeys(f.output for f in features))
    told = [  # block and output by their places in the menus
        {"layer": layers.index(f.layer), "output": outputs.index(f.output), "rank": f.rank}
        | {"value": rounded([f.value])[0]}
        | {key: [[visible(t.text), *rounded([t.score])] for t in getattr(f, key)] for key in _ENDS}
        for f in features
    ]
    towards = menu("features-output", "Towards the logit of", [visible(output) for output in outputs])
    viewer = element(
        "div",
        element("div", menu("features-layer", "Block", layers), towards, class_="controls"),
        element("div", class_="features", aria_live="polite"),
        island("features-data", {"features": told}),
        id="feature-viewer",
        data_features="features-data",
    )
    caption = (
        "The number is what the feature adds, along the output that was chosen, where it stands one standard deviation "
        "from its mean. Reads: tokens whose embedding, put through the block’s norm alone, lies farthest along the "
        "feature’s input direction; it counts with its square, so the two ends may be exchanged. Raises, lowers: the "
        "logits that the feature’s output moves most, through the final norm’s weight. ␣ is a space at a token’s end."
    )
    page.section("features", "What the blocks read and write, in tokens", "Features").add(
        "The quadratic part of a block’s polynomial, towards the logit of one token, is a sum of squares of features. "
        "These are the strongest ones, in the metric of the block’s inputs.",
        figure(viewer, caption),
    )
