"""Can a feature be read? How well the last few tokens predict, on held-out text, whether it is active."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mlpoly.arrays import as_integer
from mlpoly.importers.blocks import Block
from mlpoly.lm.model.running import visit
from mlpoly.lm.reading.feature_set import FeatureSet, blocks_of
from mlpoly.lm.text.batches import Batch
from mlpoly.progress_bars import progress_bar
from mlpoly.tables import TableList

_PRIOR = 4.0  # tokens with the mean activity that each token's own mean is shrunk by
_SWEEPS = 6  # over the places of an additive predictor; more change nothing that counts
_FOLDS = 4  # parts of the text; a tree is grown on means of each token in the other parts
_BINS = 32  # of the means of tokens, where a tree may split
_DEPTH = 4  # of a tree
_COLUMNS = 64  # activities that are predicted at once


@dataclass(frozen=True)
class ReadabilityScore:
    """How well the text says whether a feature is active: areas under ROC curves on held-out text, 0.5 for chance."""

    current: float  # from the current token
    recent: float  # from the last few tokens
    tree: float  # from a small decision tree on the last few tokens
    side: Literal["positive", "negative"] = "positive"  # the side that the scores are of, which is read better
    block: str = ""
    feature: str = ""

    def row(self) -> dict[str, Any]:
        """The scores in a line, for a table."""
        return {name: getattr(self, name) for name in ("block", "feature", "side", "current", "recent", "tree")}


class ReadabilityScores(TableList):
    """A list of `ReadabilityScore`, which prints as a table."""


def readability(
    model: nn.Module,
    features: FeatureSet | Sequence[FeatureSet],
    batches: Iterable[Any],
    held_out: Iterable[Any],
    *,
    last: int = 3,
    active: float = 0.05,
) -> ReadabilityScores:
    """Score how well the last few tokens predict whether a feature is active, without a human reader.

    A feature is active on its positive side where its value is among the largest 5 % on `batches`, and on its negative
    side where it is among the smallest: the same fraction for all features, so that their scores can be compared. Each
    side is predicted by itself; a feature has the scores of the side whose three have the larger mean. That choice
    favours every feature a little, controls such as "random" and "pca" included.

    The predictors are fitted to `batches` and judged on `held_out`:

    - current: mean activity at the current token, shrunk to the overall mean;
    - recent: a sum of one term for each of the last tokens, by ridge regression on one-hot tokens;
    - tree: a decision tree with up to 16 leaves, which splits on the mean activity at the current token, at the one
      before, and so on.

    Parameters
    ----------
    model : torch.nn.Module
        The language model that the features belong to.
    features : FeatureSet, or several
        Features of one block or of many, see `block_features`.
    batches, held_out : iterable
        Batches of tokens, as `collect` takes them, to fit to and to judge on: different text.
    last : int
        Number of last tokens, the current one included.
    active : float
        Fraction of the tokens at which a side counts as active.

    Returns
    -------
    ReadabilityScores
        A list of `ReadabilityScore` in the order of the features; ``print`` shows it as a table. A score is NaN where
        the held-out text has no active token, or none that is not.

    Examples
    --------
    >>> import torch, transformers
    >>> from mlpoly.lm import block_features, collect, convert, readability
    >>> sizes = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2}
    >>> model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_hidden_layers=1)).eval()
    >>> text, other = torch.randint(20, (2, 8, 32))
    >>> name = "model.layers.0.mlp"
    >>> poly = convert(model, collect(model, [text]), degree=2).polynomials[name]
    >>> found = readability(model, block_features(poly, model, name, k=3), batches=[text], held_out=[other])
    >>> [score.current > 0.5 for score in found]  # better than chance
    [True, True, True]
    """
    sets = [features] if isinstance(features, FeatureSet) else list(features)
    if not sets:
        raise ValueError("features is empty; pass one FeatureSet or several.")
    last = as_integer("last", last, 1)
    if isinstance(active, bool) or not 0.0 < float(active) < 0.5:
        raise ValueError(f"active must be a fraction between 0 and 0.5, such as 0.05, got {active!r}.")
    text, new_text = (_values(model, sets, given, last) for given in (batches, held_out))
    found = ReadabilityScores()
    with progress_bar("readability", len(sets)) as bar:
        for i, some in enumerate(sets):
            parts = [torch.stack(_areas(*text[i], *new_text[i], sign, float(active))) for sign in (1.0, -1.0)]
            areas = torch.stack(parts)  # (sides, predictors, features)
            for r, side in enumerate(areas.mean(1).nan_to_num(-1.0).argmax(0).tolist()):
                current, recent, tree = areas[side, :, r].tolist()
                worded: Literal["positive", "negative"] = "negative" if side else "positive"
                found.append(ReadabilityScore(current, recent, tree, worded, some.block, some.names[r]))
            bar(i + 1, some.block)
    return found


def area_under_curve(scores: Tensor, truth: Tensor) -> Tensor:
    """Areas (k,) under the ROC curves of scores (n, k) for booleans (n, k); NaN where they are all alike.

    The fraction of pairs of an active and another token that are in the right order, where a tie counts one half.
    """
    ordered, columns = scores.T.contiguous().sort(1).values, scores.T.contiguous()
    ranks = (torch.searchsorted(ordered, columns) + torch.searchsorted(ordered, columns, right=True) + 1).double() / 2
    chosen = truth.T.double()
    yes = chosen.sum(1)
    no = chosen.shape[1] - yes
    return ((ranks * chosen).sum(1) - yes * (yes + 1) / 2) / (yes * no)  # 0 / 0 is NaN


def _values(
    model: nn.Module, sets: Sequence[FeatureSet], batches: Iterable[Any], last: int
) -> list[tuple[Tensor, Tensor]]:
    """For each set the last tokens (n, last), the current first, -1 where there is none, and the values (n, k)."""
    blocks = blocks_of(model, sets)
    words: dict[str, list[Tensor]] = {name: [] for name in blocks}
    values: list[list[Tensor]] = [[] for _ in sets]

    def see(block: Block, x: Tensor, batch: Batch) -> None:
        decoder = "decoder" in block.name.split(".") and "decoder_input_ids" in batch.inputs
        kind = "decoder_" if decoder else ""
        if f"{kind}input_ids" not in batch.inputs:
            raise ValueError(f"batch {batch.number} has no tokens to predict the features of {block.name!r} from.")
        ids, attended = batch.inputs[f"{kind}input_ids"].cpu(), batch.inputs.get(f"{kind}attention_mask")
        ids = ids if attended is None else torch.where(attended.cpu() != 0, ids, -1)
        windows = nn.functional.pad(ids, (last - 1, 0), value=-1).unfold(1, last, 1).flip(-1)  # (b, t, last)
        words[block.name].append(windows.flatten(0, 1)[batch.kept])
        for some, kept in zip(sets, values, strict=True):
            if some.block == block.name:
                kept.append(some.to(x.device).values(x).float().cpu())

    visit(model, list(blocks.values()), batches, see)
    for name, seen in words.items():
        if not seen:
            raise ValueError(f"no token of the text was routed to {name!r}; pass more text, or leave its features out.")
    return [(torch.cat(words[some.block]), torch.cat(kept)) for some, kept in zip(sets, values, strict=True)]


def _areas(
    words: Tensor, values: Tensor, new_words: Tensor, new_values: Tensor, sign: float, active: float
) -> list[Tensor]:
    """Areas (k,) of the three predictors of one side of features."""
    known = torch.cat([words, new_words]).unique(return_inverse=True)[1]  # ids of tokens that are there, without gaps
    words, new_words = known.split([len(words), len(new_words)])
    parts: list[list[Tensor]] = []
    for some, new in zip((sign * values).split(_COLUMNS, 1), (sign * new_values).split(_COLUMNS, 1), strict=True):
        edge = some.kthvalue(min(math.floor((1 - active) * len(some)) + 1, len(some)), dim=0).values
        strict = (some > edge).any(0)  # of equal values either all are active or none is
        truth, new_truth = (torch.where(strict, v > edge, v >= edge) for v in (some, new))
        new_truth &= truth.double().mean(0) <= 0.5  # where most values are equal, a side may have nothing to find
        guesses = _predictions(words, truth.double(), new_words)
        parts.append([area_under_curve(guess, new_truth) for guess in guesses])
    return [torch.cat(areas) for areas in zip(*parts, strict=True)]


def _predictions(words: Tensor, truth: Tensor, new: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Predicted activities (m, k) at new tokens (m, last) by the three predictors fitted to tokens (n, last)."""
    size, mean = int(max(words.max(), new.max())) + 1, truth.mean(0)
    places = range(words.shape[1])

    def means(which: Tensor | slice, place: int, target: Tensor) -> Tensor:
        """Shrunken means (size, k) of a target of mean zero at each token in a place."""
        ids, rows = words[which, place], target[which]
        sums = torch.zeros(size, rows.shape[1], dtype=rows.dtype).index_add_(0, ids, rows)
        return sums / (ids.bincount(minlength=size)[:, None] + _PRIOR)

    everywhere, rest = slice(None), truth - mean
    alone = [means(everywhere, place, rest) for place in places]
    terms = [torch.zeros_like(term) for term in alone]
    for _ in range(_SWEEPS):  # coordinate descent: each place explains what the others leave
        for place in places:
            left = rest + terms[place][words[:, place]]
            terms[place] = means(everywhere, place, left)
            rest = left - terms[place][words[:, place]]
    recent = torch.stack([terms[place][new[:, place]] for place in places]).sum(0)

    # A tree that splits on means which its own targets went into would trust tokens seen once.
    fold = torch.arange(len(words)) * _FOLDS // len(words)
    others = torch.empty(len(words), len(places), truth.shape[1], dtype=truth.dtype)
    for part in range(_FOLDS):
        here = fold == part
        for place in places:
            others[here, place] = means(~here, place, truth - mean)[words[here, place]]
    given = torch.stack([alone[place][new[:, place]] for place in places], 1)
    return alone[0][new[:, 0]], recent, _tree(others, truth, given)


def _tree(x: Tensor, truth: Tensor, new: Tensor) -> Tensor:
    """Predictions (m, k) at new (m, p, k) of regression trees on x (n, p, k), a tree for each column of truth (n, k).

    All trees grow together, a level at a time, from histograms of x; each node takes the split that leaves the smallest
    sum of squares.
    """
    n, p, k = x.shape
    cuts = torch.arange(1, _BINS) * (n - 1) // _BINS
    edges = x.sort(0).values[cuts].permute(1, 2, 0).contiguous()  # (p, k, bins - 1), as many tokens in each bin
    codes, new_codes = (torch.searchsorted(edges, v.permute(1, 2, 0).contiguous()) for v in (x, new))  # (p, k, n)
    node, new_node = torch.zeros(k, n, dtype=torch.long), torch.zeros(k, new.shape[0], dtype=torch.long)
    target = truth.T.contiguous()

    def totals(index: Tensor, size: int) -> Tensor:
        """Numbers of tokens, and sums of the target (2, k, size)."""
        ones = torch.zeros(k, size, dtype=x.dtype).scatter_add_(1, index, torch.ones_like(target))
        return torch.stack([ones, torch.zeros(k, size, dtype=x.dtype).scatter_add_(1, index, target)])

    for level in range(_DEPTH):
        gains = []
        for place in range(p):
            left = totals(node * _BINS + codes[place], 2**level * _BINS).reshape(2, k, -1, _BINS).cumsum(3)
            right = left[..., -1:] - left
            gains.append(left[1] ** 2 / left[0].clamp_min(1.0) + right[1] ** 2 / right[0].clamp_min(1.0))
        best = torch.stack(gains, 2).flatten(2).argmax(2)  # (k, nodes): the place and the bin up to which to go left

        def below(at: Tensor, code: Tensor, best: Tensor = best) -> Tensor:
            """Nodes (k, m) of the next level."""
            place, cut = best.gather(1, at) // _BINS, best.gather(1, at) % _BINS
            return 2 * at + (code.gather(0, place[None])[0] > cut)

        node, new_node = below(node, codes), below(new_node, new_codes)
    count, total = totals(node, 2**_DEPTH)
    mean = truth.mean(0)[:, None]
    return ((total + _PRIOR * mean) / (count + _PRIOR)).gather(1, new_node).T
