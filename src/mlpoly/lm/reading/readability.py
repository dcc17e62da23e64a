"""Can a feature be read? How well the last few tokens predict, on held-out text, whether it is active."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse import hstack
from torch import Tensor, nn

from mlpoly.arrays import as_integer, as_number
from mlpoly.extras import library
from mlpoly.importers.blocks import Block
from mlpoly.lm.model.running import visit
from mlpoly.lm.reading.feature_set import FeatureSet, as_sets, blocks_of
from mlpoly.lm.text.batches import Batch
from mlpoly.progress_bars import progress_bar
from mlpoly.tables import TableList

_PRIOR = 4.0  # tokens with the mean activity that each token's own mean is shrunk by
_FOLDS = 4  # parts of the text; a tree is grown on means of each token in the other parts
_DEPTH = 4  # of a tree

Side = Literal["positive", "negative"]
_SIDES: tuple[Side, Side] = ("positive", "negative")


@dataclass(frozen=True)
class ReadabilityScore:
    """How well the text says whether a feature is active: areas under ROC curves on held-out text, 0.5 for chance."""

    current: float  # from the current token
    recent: float  # from the last few tokens
    tree: float  # from a small decision tree on the last few tokens
    side: Side = "positive"  # the side that the scores are of, which is read better
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
    side where it is among the smallest. A feature has the scores of the side whose three have the larger mean, which
    favours every feature a little, controls such as "random" included. A score is NaN where the held-out text has no
    active token, or none that is not. Three predictors are fitted to `batches` and judged on `held_out`:

    - current: mean activity at the current token, shrunk to the overall mean;
    - recent: a sum of one term for each of the last tokens, by ridge regression on one-hot tokens;
    - tree: a decision tree of depth 4 on the mean activities at the current token, at the one before, and so on.

    Parameters
    ----------
    model, features, batches, held_out
        The language model, a FeatureSet of it, or several, and batches of tokens, as `collect` takes them, to fit to
        and to judge on: different text.
    last : int
        Number of last tokens, the current one included.
    active : float
        Fraction of the tokens at which a side counts as active.
    """
    sets = as_sets(features)
    last = as_integer("last", last, 1)
    active = as_number("active", active, "a fraction between 0 and 0.5, such as 0.05", 0, 0.5)
    text, new_text = (_values(model, sets, given, last) for given in (batches, held_out))
    found = ReadabilityScores()
    with progress_bar("readability", len(sets)) as bar:
        for i, some in enumerate(sets):
            (tokens, values), (new_tokens, new_values) = text[i], new_text[i]
            sides = [_areas(tokens, s * values, new_tokens, s * new_values, float(active)) for s in (1, -1)]
            for r, name in enumerate(some.names):
                # Where a side has nothing to find, its areas are NaN.
                side = int(np.nan_to_num([areas[:, r].mean() for areas in sides], nan=-1.0).argmax())
                current, recent, tree = sides[side][:, r].tolist()
                found.append(ReadabilityScore(current, recent, tree, _SIDES[side], some.block, name))
            bar(i + 1, some.block)
    return found


def _values(
    model: nn.Module, sets: Sequence[FeatureSet], batches: Iterable[Any], last: int
) -> list[tuple[np.ndarray, np.ndarray]]:
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
    return [
        (torch.cat(words[some.block]).numpy(), torch.cat(kept).numpy()) for some, kept in zip(sets, values, strict=True)
    ]


def _areas(
    tokens: np.ndarray, values: np.ndarray, new_tokens: np.ndarray, new_values: np.ndarray, active: float
) -> np.ndarray:
    """Areas (3, k) under the ROC curves of the predictors of where new values (m, k) are large, one row for each."""
    linear, metrics, preprocessing, trees = (
        library(f"sklearn.{name}", "scikit-learn", "readability")
        for name in ("linear_model", "metrics", "preprocessing", "tree")
    )
    place = min(math.floor((1 - active) * len(values)), len(values) - 1)
    edge = np.partition(values, place, axis=0)[place]
    strict = (values > edge).any(0)  # of equal values either all are active or none is
    truth, new_truth = (np.where(strict, v > edge, v >= edge) for v in (values, new_values))
    new_truth &= truth.mean(0) <= 0.5  # where most values are equal, a side may have nothing to find
    rest, places = truth - truth.mean(0), range(tokens.shape[1])
    one_hot = [preprocessing.OneHotEncoder(handle_unknown="ignore").fit(tokens[:, [j]]) for j in places]
    x, new_x = ([one_hot[j].transform(t[:, [j]]) for j in places] for t in (tokens, new_tokens))

    def means(j: int, rows: Any) -> np.ndarray:
        """Mean activity (tokens, k) at each token in a place, less the overall mean and shrunk to it."""
        return np.asarray((x[j][rows].T @ rest[rows]) / (x[j][rows].sum(0).T + _PRIOR))

    new_means = np.stack([new_x[j] @ means(j, slice(None)) for j in places], 2)  # (m, k, places)
    # A tree that splits on means which its own targets went into would trust tokens seen once.
    other_means, fold = np.empty((*truth.shape, len(places))), np.arange(len(tokens)) * _FOLDS // len(tokens)
    for part, j in product(range(_FOLDS), places):
        other_means[fold == part, :, j] = x[j][fold == part] @ means(j, fold != part)
    additive = linear.Ridge(_PRIOR, fit_intercept=False, solver="sparse_cg").fit(hstack(x, "csr"), rest)
    sums = additive.predict(hstack(new_x, "csr")).reshape(new_truth.shape)
    areas = np.full((3, truth.shape[1]), np.nan)
    for r in np.flatnonzero(new_truth.any(0) & ~new_truth.all(0)):
        tree = trees.DecisionTreeRegressor(max_depth=_DEPTH, random_state=0).fit(other_means[:, r], truth[:, r])
        for i, guess in enumerate((new_means[:, r, 0], sums[:, r], tree.predict(new_means[:, r]))):
            areas[i, r] = metrics.roc_auc_score(new_truth[:, r], guess)
    return areas
