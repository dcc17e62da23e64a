"""Eigenfeatures of a block's polynomial in terms of tokens: what they read, and which logits they move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mlpoly.arrays import Array, as_integer, constant, to_numpy
from mlpoly.features import eigenfeatures
from mlpoly.features.eigen import Metric
from mlpoly.integrations.torch import PolynomialModule
from mlpoly.lm.model.tracing import Trace, trace, unembedding
from mlpoly.lm.reading.attribution import polynomials_of
from mlpoly.lm.text.tokens import token_text
from mlpoly.polynomials import Polynomial
from mlpoly.tables import TableList

__all__ = ["BlockFeature", "BlockFeatures", "TokenScore", "block_features"]

_ROWS = 16384  # rows of an embedding that are scored at once
_SHOWN = 4  # tokens at each end of a feature that are printed


@dataclass(frozen=True)
class TokenScore:
    """A token and its score."""

    id: int
    text: str
    score: float


@dataclass(frozen=True, repr=False)
class BlockFeature:
    """One eigenfeature of a block's quadratic, as tokens.

    Its value, the eigenvalue, is its contribution along the output direction where it is one standard deviation from
    its mean (metric "whitened"), on either side. It enters as its square, so `reads` and `reads_not` may be exchanged.
    """

    block: str
    output: str  # the output direction in words
    rank: int  # 0 for the strongest
    value: float
    reads: tuple[TokenScore, ...]  # tokens whose embeddings lie farthest along the feature's input direction
    reads_not: tuple[TokenScore, ...]  # and against it
    raises: tuple[TokenScore, ...]  # tokens whose logits its output raises most
    lowers: tuple[TokenScore, ...]  # and lowers most

    def row(self) -> dict[str, Any]:
        """Rank, value and the first tokens at each end, for a table."""
        ends = {name: getattr(self, name) for name in ("reads", "reads_not", "raises", "lowers")}
        shown = {name: " ".join(repr(token.text) for token in end[:_SHOWN]) for name, end in ends.items()}
        return {"rank": self.rank, "value": self.value} | shown

    def __repr__(self) -> str:
        row = self.row()
        reads = f"reads {row['reads']} or {row['reads_not']}, raises {row['raises']}, lowers {row['lowers']}"
        return f"BlockFeature({self.block}, {self.output}, value={self.value:.4g}: {reads})"


class BlockFeatures(TableList):
    """A list of `BlockFeature`, which prints as a table."""

    def plot(self, ax: Any = None) -> Any:
        """Bars of the eigenvalues, with the tokens that the features read and those whose logits they raise."""
        from mlpoly.plots.chart import Part, Ranking
        from mlpoly.plots.draw import show  # needs matplotlib

        parts = []
        for feature in self:
            reads, raises = (" ".join(repr(t.text) for t in ts[:3]) for ts in (feature.reads, feature.raises))
            parts.append(Part(reads, feature.value, raises))
        title = f"Features of {self[0].block} for {self[0].output}" if self else "Features"
        return show(Ranking(parts, title, title, "eigenvalue", "raises"), ax)


def block_features(
    poly: Polynomial | PolynomialModule,
    model: nn.Module,
    block: str,
    *,
    token: int | None = None,
    direction: Array | None = None,
    difference: tuple[int, int] | None = None,
    k: int = 5,
    tokens: int = 10,
    metric: Metric = "whitened",
    inputs: Any = None,
    tokenizer: Any = None,
    wiring: Trace | None = None,
) -> BlockFeatures:
    """Eigenfeatures of a block's polynomial for an output direction, shown as tokens.

    The features are those of ``mlpoly.eigenfeatures(poly.truncate(2), direction=u, k=k)``, in detail:

    - The output direction u of a token is its row of the unembedding, times the weight of the final norm (and less
      its mean, if that norm is a LayerNorm): the change of its logit with the residual stream, up to the norm's
      divisor, which depends on the text. A difference is that of two such rows.
    - Reads: a token's row of the input embedding goes through the norm in front of the block, as if the residual
      stream held that row alone. Its score is what the block would see, less the mean of its inputs, times the
      feature's input direction. With metric "whitened" that direction is how the input changes while the feature
      rises by one standard deviation; with "input" it is the eigenvector, and no mean is subtracted. Attention and
      earlier blocks are left out, so that the scores are most telling in early blocks.
    - Writes: the block's own output for the square of the feature, a vector w with u . w = value, is scored with
      every row of the unembedding like u.

    Parameters
    ----------
    poly : polynomial or module of one
        Polynomial of the block, of degree 2 or more.
    model : torch.nn.Module
        A language model of transformers.
    block : str
        Name of the block.
    token, direction, difference : int, array (d,) or (int, int)
        One of them: a token id, a direction in the residual stream, or two token ids a, b for the logit of a less
        that of b.
    k, tokens : int
        Number of features, and of tokens at each end.
    metric : {"whitened", "input"}
        Inner product that the features are orthogonal in, see `mlpoly.eigenfeatures`.
    inputs : Gaussian, optional
        Inputs that "whitened" refers to, ``moments.gaussian(block)``; by default those of the fit.
    tokenizer : tokenizer, sequence of str or None
        Source of the texts of tokens.
    wiring : Trace, optional
        ``trace(model, [0])``, to save a run of the model where many blocks are read.

    Returns
    -------
    BlockFeatures
        A list of `BlockFeature` by descending size of their values; ``print`` shows it as a table, ``.plot()`` as bars.
    """
    made = polynomials_of({block: poly})[block]
    tokens, text = as_integer("tokens", tokens, 1), token_text(tokenizer)
    seen = trace(model, [0]) if wiring is None else wiring
    if block not in seen.inputs:
        raise ValueError(seen.without(block))
    before, after, weight = seen.before[block], seen.after[block], unembedding(model)

    def block_output(rows: Tensor) -> Tensor:
        """Rows (..., d) of the unembedding as directions of the block's output."""
        for norm in (seen.final, after):
            rows = rows if norm is None else norm.scaled(rows)
        return rows

    if sum(given is not None for given in (token, direction, difference)) != 1:
        raise ValueError("give one of token (an id), direction (a vector) and difference (two ids).")
    if direction is not None:
        u, label = torch.as_tensor(to_numpy(direction), dtype=torch.float64).to(weight.device), "a direction"
        if u.shape != weight.shape[1:]:
            raise ValueError(f"direction has shape {tuple(u.shape)}, the residual stream needs ({weight.shape[1]},).")
        u = u if after is None else after.scaled(u)
    else:
        ids = [as_integer("token", i, 0) for i in ([token] if difference is None else difference)]
        if max(ids) >= len(weight):
            raise ValueError(f"token is {max(ids)}, but the model knows the tokens 0 to {len(weight) - 1}.")
        rows = [block_output(weight[i].double()) for i in ids]
        u, label = (rows[0] if difference is None else rows[0] - rows[1]), " − ".join(repr(text(i)) for i in ids)

    quadratic, like = made.truncate(2), made.prototype
    inputs = made.inputs if inputs is None else inputs
    # Inputs that have the form of the polynomial stay as they are: they keep the root of their covariance.
    if inputs is not None and not (
        type(inputs.mean) is type(like) and inputs.mean.dtype == like.dtype and inputs.mean.device == like.device
    ):
        inputs = inputs.to(like)
    found = eigenfeatures(quadratic, direction=constant(u.cpu().numpy(), like), k=k, metric=metric, inputs=inputs)
    center = inputs.mean if metric == "whitened" else 0 * found.directions[0]
    # The quadratic part of all outputs (k, o) at the directions: a second difference, exact for a quadratic.
    middle = quadratic(center + 0 * found.directions[:1])
    squares = (quadratic(center + found.directions) + quadratic(center - found.directions)) / 2 - middle

    embedding: Tensor = model.get_input_embeddings().weight.detach()  # type: ignore[operator]
    norm: Callable[[Tensor], Tensor] = (lambda rows: rows) if before is None else before.module
    columns = torch.as_tensor(to_numpy(found.directions), device=embedding.device).T
    offset = torch.as_tensor(to_numpy(center), device=columns.device, dtype=columns.dtype) @ columns
    outputs = torch.as_tensor(to_numpy(squares), device=weight.device).double().T
    with torch.no_grad():
        read = torch.cat([norm(rows).to(columns.dtype) @ columns - offset for rows in embedding.split(_ROWS)])
        written = torch.cat([block_output(rows.double()) @ outputs for rows in weight.split(_ROWS)])

    def ends(scores: np.ndarray) -> list[tuple[TokenScore, ...]]:
        """The tokens with the largest scores (vocabulary,), and those with the smallest."""
        order = np.argsort(scores, kind="stable")
        return [
            tuple(TokenScore(int(i), text(int(i)), float(scores[i])) for i in chosen)
            for chosen in (order[::-1][:tokens], order[:tokens])
        ]

    pairs = zip(read.double().cpu().numpy().T, written.cpu().numpy().T, strict=True)
    return BlockFeatures(
        BlockFeature(block, label, rank, float(found.values[rank]), *ends(reads), *ends(writes))
        for rank, (reads, writes) in enumerate(pairs)
    )
