"""Features on text: their values in one pass, the contexts where they are largest, and the logits that they move."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.arrays import as_integer
from mlpoly.importers.blocks import Block
from mlpoly.lm.model.running import visit
from mlpoly.lm.model.tracing import Trace, trace, unembedding
from mlpoly.lm.reading.block_features import logit_directions
from mlpoly.lm.reading.feature_reading import EDGES, Context, FeatureReading, FeatureReadings, TokenScore
from mlpoly.lm.reading.feature_set import FeatureSet, as_sets, blocks_of
from mlpoly.lm.text.batches import Batch
from mlpoly.lm.text.tokens import token_text

_BINS = 64
_ACTIVE = 2.0  # standard deviations from which a value counts as active
_ROWS = 16384  # rows of an embedding that are scored at once


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

    ``print`` shows the result as a table, ``print(found[0])`` one feature on a screen, ``.plot()`` bars.

    Parameters
    ----------
    model, features, batches
        The language model, a FeatureSet of it, or several, and batches of tokens, as `collect` takes them.
    tokenizer : tokenizer, sequence of str or None
        Source of the texts of tokens.
    contexts : int
        Number of contexts on each side of a feature, at most one from each sequence.
    window : (int, int)
        Number of tokens before and behind the peak of a context.
    tokens : int
        Number of tokens whose logits are raised, and lowered, of those that the text has. There are none for a head
        that does not read the residual stream through one norm (BERT, ALBERT).
    wiring : Trace, optional
        ``trace(model, [0])``, to save a run of the model.
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
    counts: Counter[int] = Counter()

    def see(block: Block, x: Tensor, batch: Batch) -> None:
        if block.name == next(iter(blocks)):
            counts.update(batch.tokens.tolist())
        for found in sums:
            if found.features.block == block.name:
                found.add(x, batch)

    visit(model, list(blocks.values()), batches, see)
    weight = unembedding(model)
    seen = torch.tensor(sorted(i for i in counts if wiring.final is not None and i < len(weight)), dtype=torch.long)
    readings = FeatureReadings()
    for found in sums:
        writes = found.features.writes.double().to(weight.device)
        scores = torch.zeros(len(seen), len(writes), dtype=torch.float64)
        for part, rows in zip(scores.split(_ROWS), seen.to(weight.device).split(_ROWS), strict=True):
            if len(part):
                part.copy_(logit_directions(model, found.features.block, weight[rows], wiring) @ writes.T)
        # The softmax sees no common change.
        readings += found.result(token_text(tokenizer), seen, scores - scores.mean(0), tokens)
    return readings


class _Reading:
    """Sums of one set of features over the text, and its largest values on either side."""

    def __init__(self, features: FeatureSet, block: Block, contexts: int, window: tuple[int, int]) -> None:
        self.features, self._net = features, block.net()
        self._contexts, self._window = contexts, window
        self._count = 0
        self._histogram = torch.zeros(_BINS, len(features), dtype=torch.float64)
        self._active = torch.zeros(len(features), dtype=torch.float64)
        self._shift: Any = None  # near the mean output, so that sums of squares keep their digits
        self._sums: Any = 0.0
        # For each side: values (m, k), and windows of token ids and values (m, k, width), with -1 where there is none.
        self._best: dict[int, list[Tensor]] = {}

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
        places = ((values / EDGES + 1) * (_BINS / 2)).floor().clamp(0, _BINS - 1).long()
        self._histogram.scatter_add_(0, places.cpu(), torch.ones(1, dtype=torch.float64).expand(places.shape))
        self._find_peaks(values.float(), batch)

    def _find_peaks(self, values: Tensor, batch: Batch) -> None:
        """Keep the largest values (n, k) of a batch on either side, at most one from a sequence, with their windows."""
        (before, after), (b, t), device = self._window, batch.shape, values.device
        kept, _, tokens = batch.on(device)
        # Back to sequences (b, t), with room for windows at both ends.
        ids = torch.full((b * t,), -1, device=device).index_put((kept,), tokens).reshape(b, t)
        rows = torch.full((b * t, values.shape[1]), torch.nan, device=device).index_put((kept,), values)
        rows = rows.reshape(b, t, -1)
        wide_ids = nn.functional.pad(ids, (before, after), value=-1)
        wide = nn.functional.pad(rows, (0, 0, before, after))
        column = torch.arange(values.shape[1], device=device)[None, :, None]
        for sign in (1, -1):
            top, place = (sign * rows).nan_to_num(-torch.inf).max(1)  # (b, k): one peak from each sequence
            top, sequence = top.topk(min(self._contexts, b), dim=0)
            window = place.gather(0, sequence)[..., None] + torch.arange(before + after + 1, device=device)
            sequence = sequence[..., None]
            found = [top.cpu(), wide_ids[sequence, window].cpu(), wide[sequence, window, column].cpu()]
            if sign in self._best:
                found = [torch.cat(pair) for pair in zip(self._best[sign], found, strict=True)]
            order = found[0].topk(min(self._contexts, len(found[0])), dim=0).indices
            self._best[sign] = [part[order, column[0, :, 0].cpu()] for part in found]

    def result(self, text: Callable[[int], str], seen: Tensor, scores: Tensor, count: int) -> list[FeatureReading]:
        """The features as records; `scores` (tokens, k) are changes of the logits of the tokens `seen`."""
        features, n, k = self.features, self._count, len(self.features)
        mean, square, along, both = (self._sums[i * k : (i + 1) * k] / n for i in range(4))
        total = self._sums[4 * k] / n - ((self._sums[4 * k + 1 :] / n) ** 2).sum()
        sizes = (features.writes.double() ** 2).sum(1).cpu()
        explained = (2 * (both - mean * along) - (square - mean**2) * sizes) / total

        def ends(column: Tensor, largest: bool) -> tuple[TokenScore, ...]:
            best = column.topk(min(count, len(column)), largest=largest)
            ids = seen[best.indices].tolist()
            return tuple(TokenScore(i, text(i), score) for i, score in zip(ids, best.values.tolist(), strict=True))

        def side(sign: int, r: int) -> tuple[Context, ...]:
            top, ids, values = (part[:, r] for part in self._best[sign])
            found = []
            for m in top.isfinite().nonzero()[:, 0].tolist():
                there = (ids[m] >= 0).nonzero()[:, 0].tolist()
                words = tuple(text(int(ids[m, i])) for i in there)
                found.append(Context(words, tuple(values[m][there].tolist()), there.index(self._window[0])))
            return tuple(found)

        return [
            FeatureReading(
                block=features.block,
                kind=features.kind,
                name=name,
                rank=r,
                squared=features.squares,
                strength=float(features.strengths[r]),
                explained=float(explained[r]),
                active=float(self._active[r] / n),
                histogram=tuple((self._histogram[:, r] / n).tolist()),
                positive=side(1, r),
                negative=side(-1, r),
                raises=ends(scores[:, r], True),
                lowers=ends(scores[:, r], False),
            )
            for r, name in enumerate(features.names)
        ]
