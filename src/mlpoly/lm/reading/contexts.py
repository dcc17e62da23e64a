"""Features on text: their values in one pass, the contexts where they are largest, and the logits that they move."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.arrays import as_integer
from mlpoly.charts.chart import Part, Ranking
from mlpoly.importers.blocks import Block
from mlpoly.lm.model.running import visit
from mlpoly.lm.model.tracing import NO_PATH, Trace, trace, unembedding
from mlpoly.lm.reading.causality import CausalScore
from mlpoly.lm.reading.feature_set import FeatureSet, as_sets, blocks_of, logit_directions
from mlpoly.lm.reading.readability import ReadabilityScore
from mlpoly.lm.text.batches import Batch
from mlpoly.lm.text.tokens import token_text
from mlpoly.plottable import Plottable
from mlpoly.tables import TableList

_EDGES = 8.0  # standard deviations at which the histogram ends; what lies beyond is in its last bins
_BINS = 64
_ACTIVE = 2.0  # standard deviations from which a value counts as active
_ROWS = 16384  # rows of an embedding that are scored at once
_MORE_SCORES = {  # causal scores that follow, as they are shown
    "the logits, where what it writes is taken out of the output": "direct",
    "the block's output": "block",
    "its part even in the value": "square",
    "by the whole polynomial": "polynomial_block",
}
_BLOCKS = " ▁▂▃▄▅▆▇█"


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
    """One feature of a block, seen on text.

    Its value is in standard deviations under the moments. A feature that enters as a square writes the same on both
    sides, but reads something else on each.
    """

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
    readability: ReadabilityScore | None = None  # see `readability`

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
        return describe(self)


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


def describe(feature: FeatureReading) -> str:
    """A feature on one screen: what it explains, where it is large, and which logits it moves.

    Parameters
    ----------
    feature : FeatureReading
        One of those that `read_features` returns.

    Returns
    -------
    str
        Lines with the name, the variance explained, a histogram of the values, contexts on both sides, tokens, and the
        scores that it has (`with_scores`). ``print(feature)`` prints the same.

    Examples
    --------
    >>> import torch, transformers
    >>> from mlpoly.lm import block_features, collect, convert, describe, read_features
    >>> sizes = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2}
    >>> model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_hidden_layers=1)).eval()
    >>> tokens, name = [torch.arange(20).reshape(2, 10)], "model.layers.0.mlp"
    >>> poly = convert(model, collect(model, tokens), degree=2).polynomials[name]
    >>> features = block_features(poly, model, name, "direction", directions=torch.eye(8)[:1])  # the first input
    >>> print(describe(read_features(model, features, tokens)[0]).splitlines()[0])
    model.layers.0.mlp, direction 0 (direction; enters as its square)
    """
    if not isinstance(feature, FeatureReading):
        raise TypeError(f"feature must be one of those that read_features returns, got {type(feature).__name__}.")
    most = max(feature.histogram) or 1.0
    shown = [_BLOCKS[0 if v == 0 else max(1, round(8 * (v / most) ** 0.5))] for v in feature.histogram]
    how = "enters as its square" if feature.squared else "enters linearly"
    lines = [
        f"{feature.block}, {feature.name} ({feature.kind}; {how})",
        f"explains {100 * feature.explained:.2g} % of the block's variance; beyond two standard deviations at "
        f"{100 * feature.active:.2g} % of the tokens",
        f"{-_EDGES:g} {''.join(shown)} {_EDGES:g} standard deviations",
    ]
    for side, contexts in (("largest", feature.positive), ("smallest", feature.negative)):
        lines.append(f"{side}:")
        lines += [f"  {c.value:+7.2f}  {c}" for c in contexts[:5]]
    for side in ("raises", "lowers"):
        lines.append(f"{side}: " + " ".join(repr(t.text) for t in getattr(feature, side)[:10]))
    if not feature.raises:
        lines[-2:] = [f"raises and lowers: {NO_PATH}"]
    if (causal := feature.causal) is not None:
        lines.append(
            f"removed, the logits change as predicted by the direct path with correlation {causal.correlation:.2f}, "
            f"slope {causal.slope:.2f}; doubled {causal.doubled_correlation:.2f}, {causal.doubled_slope:.2f}"
        )
        for said, name in _MORE_SCORES.items():
            correlation, slope = getattr(causal, f"{name}_correlation"), getattr(causal, f"{name}_slope")
            if correlation is not None:
                lines.append(f"  {said}: correlation {correlation:.2f}, slope {slope:.2f}")
    if (read := feature.readability) is not None:
        lines.append(
            f"the {read.side} side on held-out text, area under the ROC curve: {read.current:.2f} from the current "
            f"token, {read.recent:.2f} from the last few, {read.tree:.2f} by a tree"
        )
    return "\n".join(lines)


def with_scores(
    readings: FeatureReadings,
    causal: Sequence[CausalScore] | None = None,
    readability: Sequence[ReadabilityScore] | None = None,
) -> FeatureReadings:
    """Readings with the scores of `check_features` and `readability`, which are of the same features in that order.

    Parameters
    ----------
    readings : FeatureReadings
        Those of k features, from `read_features`.
    causal : sequence of k CausalScore, optional
        What `check_features` returns.
    readability : sequence of k ReadabilityScore, optional
        What `readability` returns.

    Returns
    -------
    FeatureReadings
        New records of the k features, with the scores in their fields `causal` and `readability`.

    Raises
    ------
    ValueError
        If the scores are of other features.

    Examples
    --------
    >>> import torch, transformers
    >>> from mlpoly.lm import block_features, check_features, collect, convert, read_features, with_scores
    >>> sizes = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2}
    >>> model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_hidden_layers=1)).eval()
    >>> tokens, name = [torch.arange(20).reshape(2, 10)], "model.layers.0.mlp"
    >>> features = block_features(convert(model, collect(model, tokens)).polynomials[name], model, name, k=3)
    >>> scores = check_features(model, features, tokens)
    >>> found = with_scores(read_features(model, features, tokens), causal=scores)
    >>> [reading.causal is score for reading, score in zip(found, scores, strict=True)]
    [True, True, True]
    """
    found = FeatureReadings(readings)
    for field, scores in (("causal", causal), ("readability", readability)):
        if scores is None:
            continue
        if [(s.block, s.feature) for s in scores] != [(r.block, r.name) for r in found]:
            raise ValueError(f"{field} has scores of other features than readings; pass those of the same features.")
        found[:] = [replace(reading, **{field: score}) for reading, score in zip(found, scores, strict=True)]
    return found


def read_features(
    model: nn.Module,
    features: FeatureSet | Sequence[FeatureSet],
    batches: Iterable[Any],
    *,
    tokenizer: Any = None,
    contexts: int = 10,
    window: tuple[int, int] = (12, 5),
    tokens: int = 10,
    wiring: Trace | None = None,
) -> FeatureReadings:
    """Read features on text: one pass over the batches for all of them.

    Parameters
    ----------
    model : torch.nn.Module
        The language model that the features belong to.
    features : FeatureSet, or several
        Features of one block or of many, see `block_features`.
    batches : iterable
        Batches of tokens, as `collect` takes them.
    tokenizer : tokenizer, sequence of str or None
        Source of the texts of tokens.
    contexts : int
        Number of contexts on each side of a feature, at most one from each sequence.
    window : (int, int)
        Number of tokens before and behind the peak of a context.
    tokens : int
        Number of tokens whose logits are raised, and lowered; tokens that the text does not have are left out. There
        are none for a head that does not read the residual stream through one norm (BERT, ALBERT).
    wiring : Trace, optional
        ``trace(model, [0])``, to save a run of the model.

    Returns
    -------
    FeatureReadings
        A list of `FeatureReading` in the order of the features; ``print`` shows it as a table, ``print(found[0])`` one
        feature on a screen, ``.plot()`` bars.

    Examples
    --------
    >>> import torch, transformers
    >>> from mlpoly.lm import block_features, collect, convert, read_features
    >>> sizes = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2}
    >>> model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_hidden_layers=1)).eval()
    >>> tokens, name = [torch.arange(20).reshape(2, 10)], "model.layers.0.mlp"
    >>> poly = convert(model, collect(model, tokens), degree=2).polynomials[name]
    >>> found = read_features(model, block_features(poly, model, name, k=3), tokens)
    >>> len(found), found[0].squared, len(found[0].positive)  # one context from each of the two sequences
    (3, True, 2)
    """
    sets = as_sets(features)
    blocks = blocks_of(model, sets)
    wiring = trace(model, [0]) if wiring is None else wiring
    unread = next((name for name in blocks if name not in wiring.inputs), None)
    if unread is not None:  # experts, whose way to the logits is not known: said before the work begins
        raise ValueError(wiring.without(unread))
    contexts, tokens = as_integer("contexts", contexts, 1), as_integer("tokens", tokens, 1)
    around = as_integer("window", window[0], 0), as_integer("window", window[1], 0)
    sums = [_Reading(f, blocks[f.block], contexts, around) for f in sets]
    counts: dict[int, int] = {}

    def see(block: Block, x: Tensor, batch: Batch) -> None:
        if block.name == next(iter(blocks)):
            for i, n in zip(*(t.tolist() for t in batch.tokens.unique(return_counts=True)), strict=True):
                counts[i] = counts.get(i, 0) + n
        for found in sums:
            if found.block == block.name:
                found.add(x, batch)

    visit(model, list(blocks.values()), batches, see)
    text, seen = token_text(tokenizer), torch.tensor(sorted(counts))
    weight = unembedding(model)
    seen = seen[:0] if wiring.final is None else seen[seen < len(weight)]
    readings = FeatureReadings()
    for found in sums:
        writes = found.features.writes.double().to(weight.device)
        scores = torch.zeros(0, len(writes), dtype=torch.float64)  # (tokens, k)
        if len(seen):
            with torch.no_grad():
                rows = [
                    logit_directions(model, found.block, weight[part.to(weight.device)], wiring)
                    for part in seen.split(_ROWS)
                ]
                scores = (torch.cat(rows) @ writes.T).cpu()
            scores = scores - scores.mean(0)  # the softmax sees no common change
        readings += found.result(text, seen, scores, tokens)
    return readings


class _Reading:
    """Sums of one set of features over the text, and its largest values on either side."""

    def __init__(self, features: FeatureSet, block: Block, contexts: int, window: tuple[int, int]) -> None:
        self.features, self.block, self._net = features, features.block, block.net()
        self._contexts, self._window = contexts, window
        k = len(features)
        self._count = 0
        self._histogram = torch.zeros(_BINS, k, dtype=torch.float64)
        self._active = torch.zeros(k, dtype=torch.float64)
        self._shift: Any = None  # near the mean output, so that sums of squares keep their digits
        self._sums: Any = 0.0
        # For each side: values (m, k), and windows of token ids and values (m, k, width), with -1 where there is none.
        self._best: list[tuple[Tensor, Tensor, Tensor] | None] = [None, None]

    def add(self, x: Tensor, batch: Batch) -> None:
        """Take inputs (n, d) of the block at the tokens of a batch."""
        features = self.features = self.features.to(x.device)
        values = features.values(x)
        y = self._net(x.to(self._net.prototype)).double()
        if self._shift is None:
            self._shift = y.mean(0)
        y, amounts, writes = y - self._shift, features.amounts_of(values).double(), features.writes.double()
        along = y @ writes.T
        # Sums that give the variances of y and of the amounts, and their covariances along what is written.
        new = torch.cat([amounts.sum(0), (amounts**2).sum(0), along.sum(0), (amounts * along).sum(0)])
        self._sums = self._sums + torch.cat([new, (y**2).sum()[None], y.sum(0)]).cpu()
        self._count += len(values)
        self._active += (values.abs() > _ACTIVE).sum(0).double().cpu()
        places = ((values / _EDGES + 1) * (_BINS / 2)).floor().clamp(0, _BINS - 1).long()
        self._histogram.scatter_add_(0, places.cpu(), torch.ones(1, dtype=torch.float64).expand(places.shape))
        # Back to sequences, with room for windows at both ends.
        before, after = self._window
        b, t = batch.shape
        kept = batch.on(x.device)[0]
        ids = torch.full((b * t,), -1, device=x.device)
        ids[kept] = batch.on(x.device)[2]
        filled = torch.zeros(b * t, values.shape[1], device=x.device)
        filled[kept] = values.float()
        here = torch.zeros(b * t, dtype=torch.bool, device=x.device)
        here[kept] = True
        ids = nn.functional.pad(ids.reshape(b, t), (before, after), value=-1)
        filled = filled.reshape(b, t, -1)
        wide = nn.functional.pad(filled, (0, 0, before, after))
        for side, sign in enumerate((1.0, -1.0)):
            score = torch.where(here.reshape(b, t, 1), sign * filled, -torch.inf)
            top, place = score.max(1)  # (b, k): one peak from each sequence
            top, rows = top.topk(min(self._contexts, b), dim=0)
            at = place.gather(0, rows)[..., None] + torch.arange(before + after + 1, device=x.device)  # (m, k, width)
            column = torch.arange(values.shape[1], device=x.device)[None, :, None]
            fresh = top.cpu(), ids[rows[..., None], at].cpu(), wide[rows[..., None], at, column].cpu()
            old = self._best[side]
            if old is not None:
                joined = [torch.cat(pair) for pair in zip(old, fresh, strict=True)]
                best, order = joined[0].topk(min(self._contexts, len(joined[0])), dim=0)
                index = order[..., None].expand(-1, -1, at.shape[-1])
                fresh = best, joined[1].gather(0, index), joined[2].gather(0, index)
            self._best[side] = fresh

    def result(self, text: Any, seen: Tensor, scores: Tensor, count: int) -> list[FeatureReading]:
        """The features as records; `scores` (tokens, k) are changes of the logits of the tokens `seen`."""
        features, n, k = self.features, self._count, len(self.features)
        mean, square, along, both = (self._sums[i * k : (i + 1) * k] / n for i in range(4))
        total = self._sums[4 * k] / n - ((self._sums[4 * k + 1 :] / n) ** 2).sum()
        sizes = (features.writes.double() ** 2).sum(1).cpu()
        explained = (2 * (both - mean * along) - (square - mean**2) * sizes) / total
        words = list(map(text, seen.tolist()))

        def ends(column: Tensor) -> list[Any]:
            chosen = [
                column.topk(min(count, len(column)), largest=largest).indices.tolist() for largest in (True, False)
            ]
            return [tuple(TokenScore(int(seen[i]), words[i], float(column[i])) for i in some) for some in chosen]

        def sides(r: int) -> list[Any]:
            return [
                tuple(
                    _context(ids[m, r], values[m, r], self._window[0], text)
                    for m in range(len(top)) if torch.isfinite(top[m, r])
                )
                for top, ids, values in filter(None, self._best)
            ]  # fmt: skip

        made = []
        for r in range(k):
            positive, negative = sides(r)
            raises, lowers = ends(scores[:, r])
            made.append(
                FeatureReading(
                    block=features.block,
                    kind=features.kind,
                    name=features.names[r],
                    rank=r,
                    squared=features.squares,
                    strength=float(features.strengths[r]),
                    explained=float(explained[r]),
                    active=float(self._active[r] / n),
                    histogram=tuple((self._histogram[:, r] / n).tolist()),
                    positive=positive,
                    negative=negative,
                    raises=raises,
                    lowers=lowers,
                )
            )
        return made


def _context(ids: Tensor, values: Tensor, before: int, text: Any) -> Context:
    there = [i for i in range(len(ids)) if ids[i] >= 0]
    return Context(tuple(text(int(ids[i])) for i in there), tuple(float(values[i]) for i in there), there.index(before))
