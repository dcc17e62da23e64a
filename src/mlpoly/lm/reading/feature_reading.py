"""A feature as it is seen on text, in words and in a table, with the scores that it has."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlpoly.charts.chart import Part, Ranking
from mlpoly.lm.model.tracing import NO_PATH
from mlpoly.lm.reading.causality import CausalScore
from mlpoly.tables import Plottable, TableList

EDGES = 8.0  # standard deviations at which the histogram ends; what lies beyond is in its last bins
_SHADES = " ▁▂▃▄▅▆▇█"
_MORE_SCORES = {  # causal scores that follow, as they are shown
    "the logits, where what it writes is taken out of the output": "direct",
    "the block's output": "block",
    "its part even in the value": "square",
    "by the whole polynomial": "polynomial_block",
}


@dataclass(frozen=True)
class TokenScore:
    """A token and its score."""

    id: int
    text: str
    score: float


@dataclass(frozen=True)
class Context:
    """A piece of text around a token at which a feature is large."""

    tokens: tuple[str, ...]
    values: tuple[float, ...]  # of the feature at each of them
    peak: int  # place of the token in `tokens`

    @property
    def value(self) -> float:
        """The value at the peak."""
        return self.values[self.peak]

    def __str__(self) -> str:
        marked = [f"«{t}»" if i == self.peak else t for i, t in enumerate(self.tokens)]
        return "".join(marked).replace("\n", "⏎")


@dataclass(frozen=True)
class FeatureReading:
    """One feature of a block, seen on text; its value is in standard deviations under the moments."""

    block: str
    kind: str
    name: str
    rank: int  # 0 for the first of its set
    squared: bool  # whether it enters as its square
    strength: float  # standard deviation of what it writes, under the moments
    explained: float  # fraction of the variance of the block's output on the text that it explains by itself
    active: float  # fraction of tokens at which it is more than two standard deviations from its mean
    histogram: tuple[float, ...]  # fractions of the tokens, in equal bins from -8 to 8; the ends hold what is beyond
    positive: tuple[Context, ...]  # contexts with the largest values, at most one from a sequence
    negative: tuple[Context, ...]  # and with the smallest
    # Tokens of the text whose logits it raises most where its amount rises, and lowers most. Empty where there is no
    # direct path to the logits: BERT's head transforms the residual stream.
    raises: tuple[TokenScore, ...]
    lowers: tuple[TokenScore, ...]
    causal: CausalScore | None = None  # see `check_features`

    def row(self) -> dict[str, Any]:
        """The feature in a line, for a table."""
        peaks = {
            side: " ".join(dict.fromkeys(repr(c.tokens[c.peak]) for c in getattr(self, side)[:6]))
            for side in ("positive", "negative")
        }
        logits = {side: " ".join(repr(t.text) for t in getattr(self, side)[:4]) for side in ("raises", "lowers")}
        about = {"rank": self.rank, "name": self.name, "explained": self.explained}
        return about | {f"{side} at": tokens for side, tokens in peaks.items()} | logits

    def __str__(self) -> str:
        """Plain text on one screen: where it is large, and which logits it moves."""
        most = max(self.histogram) or 1.0
        shown = [_SHADES[0 if v == 0 else max(1, round(8 * (v / most) ** 0.5))] for v in self.histogram]
        how = "enters as its square" if self.squared else "enters linearly"
        lines = [
            f"{self.block}, {self.name} ({self.kind}; {how})",
            f"beyond two standard deviations at {100 * self.active:.2g} % of the tokens; explains "
            f"{f'{100 * self.explained:.2g} %' if self.explained > 0 else 'none'} of the block's variance by itself",
            f"{-EDGES:g} {''.join(shown)} {EDGES:g} standard deviations",
        ]
        for side, contexts in (("largest", self.positive), ("smallest", self.negative)):
            lines.append(f"{side}:")
            lines += [f"  {c.value:+7.2f}  {c}" for c in contexts[:5]]
        for side in ("raises", "lowers"):
            lines.append(f"{side}: " + " ".join(repr(t.text) for t in getattr(self, side)[:10]))
        if not self.raises:
            lines[-2:] = [f"raises and lowers: {NO_PATH}"]
        if (causal := self.causal) is not None:
            lines.append(
                "removed, the logits change as predicted by the direct path with correlation "
                f"{causal.correlation:.2f}, slope {causal.slope:.2f}"
            )
            for said, name in _MORE_SCORES.items():
                correlation, slope = getattr(causal, f"{name}_correlation"), getattr(causal, f"{name}_slope")
                if correlation is not None:
                    lines.append(f"  {said}: correlation {correlation:.2f}, slope {slope:.2f}")
        return "\n".join(lines)


class FeatureReadings(Plottable, TableList):
    """A list of `FeatureReading`, which prints as a table."""

    def chart(self) -> Ranking:  # type: ignore[override]
        """Bars of the fractions of the block's variance that the features explain, named by where they are largest."""
        parts = []
        for found in self:
            row = found.row()
            parts.append(Part(f"{found.name}: {row['positive at'][:40]}", found.explained, row["raises"]))
        title = f"Features of {self[0].block}" if self else "Features"
        return Ranking(parts, title, title, "fraction of the block's variance", "raises")


def with_scores(readings: FeatureReadings, causal: Sequence[CausalScore]) -> FeatureReadings:
    """Readings with the scores of `check_features`, of the same k features in that order."""
    if [(s.block, s.feature) for s in causal] != [(r.block, r.name) for r in readings]:
        raise ValueError("causal has scores of other features than readings; pass those of the same features.")
    return FeatureReadings(replace(r, causal=score) for r, score in zip(readings, causal, strict=True))
