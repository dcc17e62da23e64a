"""What the polynomial of a block says, in tokens; and how much of every block lives at each degree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mlpoly.arrays import Array, as_integer, constant, to_numpy
from mlpoly.features import eigenfeatures
from mlpoly.features.eigen import Metric
from mlpoly.integrations import find_blocks
from mlpoly.lm.model.tracing import Trace, trace
from mlpoly.lm.moments.block_moments import Moments
from mlpoly.lm.reading.attribution import plain_polynomials
from mlpoly.lm.tables import TableList
from mlpoly.lm.text.tokens import token_text
from mlpoly.measures import degree_spectrum
from mlpoly.progress import progress

__all__ = ["BlockFeature", "LayerSpectrum", "TokenScore", "block_features", "layer_spectra"]

_ROWS = 16384  # of an embedding that are scored at once
_SHOWN = 4  # tokens at each end of a feature that are printed


class TokenScore(NamedTuple):
    """A token and its score."""

    id: int
    text: str
    score: float


@dataclass(frozen=True, repr=False)
class BlockFeature:
    """One eigenfeature of a block's quadratic, as tokens.

    Attributes
    ----------
    layer : str
        Name of the block.
    output : str
        The output direction in words.
    rank : int
        0 for the strongest.
    value : float
        The eigenvalue: what the feature adds along the output direction where it stands one standard deviation from
        its mean (metric "whitened"), whichever side.
    reads, reads_not : tuple of TokenScore
        Tokens whose embeddings lie farthest along the feature's input direction, and against it. The feature counts
        with its square, so the two ends may be exchanged.
    raises, lowers : tuple of TokenScore
        Tokens whose logits what it writes raises and lowers most.
    """

    layer: str
    output: str
    rank: int
    value: float
    reads: tuple[TokenScore, ...]
    reads_not: tuple[TokenScore, ...]
    raises: tuple[TokenScore, ...]
    lowers: tuple[TokenScore, ...]

    def row(self) -> dict[str, Any]:
        """Rank, value and the first tokens at each end, for a table."""
        ends = {name: getattr(self, name) for name in ("reads", "reads_not", "raises", "lowers")}
        shown = {name: " ".join(repr(token.text) for token in end[:_SHOWN]) for name, end in ends.items()}
        return {"rank": self.rank, "value": self.value} | shown

    def __repr__(self) -> str:
        row = self.row()
        reads = f"reads {row['reads']} or {row['reads_not']}, raises {row['raises']}, lowers {row['lowers']}"
        return f"BlockFeature({self.layer}, {self.output}, value={self.value:.4g}: {reads})"


@dataclass(frozen=True)
class LayerSpectrum:
    """Shares of one block's variance by polynomial degree.

    Attributes
    ----------
    layer : str
    shares : tuple of float
        Of degree 1, 2, ...; with `rest` they add up to 1.
    rest : float
        Share of all higher degrees.
    """

    layer: str
    shares: tuple[float, ...]
    rest: float

    def row(self) -> dict[str, Any]:
        """Shares by degree, for a table."""
        shares = {f"degree_{k}": share for k, share in enumerate(self.shares, 1)}
        return {"block": self.layer, **shares, "rest": self.rest}

    def unexplained(self, degree: int) -> float:
        """What the best polynomial of a degree leaves unexplained, up to the highest degree that is told apart."""
        return sum(self.shares[degree:]) + self.rest


def block_features(
    poly: Any,
    model: nn.Module,
    name: str,
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
) -> list[BlockFeature]:
    """Eigenfeatures of a block's polynomial for an output direction, shown as tokens.

    The features are those of ``mlpoly.eigenfeatures(poly.truncate(2), direction=u, k=k)``. What is done, exactly:

    - The output direction u of a token is its row of the unembedding, times the weight of the final norm (and less
      its mean, if that norm is a LayerNorm): the change of its logit with the residual stream, up to the norm's
      divisor, which no weights can tell. A difference is that of two such rows.
    - Reads: a token's row of the input embedding goes through the norm in front of the block, as if the residual
      stream held that row alone; what the block would see less the mean of its inputs, times the feature's input
      direction, is the score. In the metric "whitened" that direction is how the input changes while the feature
      rises by one standard deviation; in "input" the eigenvector, and no mean is taken off. Attention and earlier
      layers are left out, so that it says most in early layers.
    - Writes: the block's own output for the square of the feature, a vector w with u . w = value, is scored with
      every row of the unembedding like u.

    Parameters
    ----------
    poly : polynomial or module of one
        Of degree 2 or more.
    model : torch.nn.Module
        A language model of transformers.
    name : str
        Of the block.
    token, direction, difference : int, array (d,) or (int, int)
        One of them: a token id, a direction in the residual stream, or two token ids a, b for the logit of a less
        that of b.
    k, tokens : int
        How many features, and how many tokens at each end.
    metric : {"whitened", "input"}
    inputs : Gaussian, optional
        What "whitened" refers to, ``moments.gaussian(name)``; by default what the polynomial was fitted under.
    tokenizer : tokenizer, sequence of str or None
        For the texts of tokens.
    wiring : Trace, optional
        ``trace(model, [0])``, to save a run of the model where many blocks are read.

    Returns
    -------
    list of BlockFeature
        By descending size of their values; ``print`` shows it as a table.
    """
    poly = plain_polynomials({name: poly})[name]
    tokens = as_integer("tokens", tokens, 1)
    reader = _Reader(model, name, token_text(tokenizer), wiring)
    u, label = reader.direction(token, direction, difference)
    quadratic, like = poly.truncate(2), poly.prototype
    inputs = poly.inputs if inputs is None else inputs
    # Those that have the form of the polynomial stay as they are, and know the root of their covariance.
    if inputs is not None and not (
        type(inputs.mean) is type(like) and inputs.mean.dtype == like.dtype and inputs.mean.device == like.device
    ):
        inputs = inputs.to(like)
    found = eigenfeatures(quadratic, direction=constant(u.cpu().numpy(), like), k=k, metric=metric, inputs=inputs)
    center = inputs.mean if metric == "whitened" else 0 * found.directions[0]
    reads = reader.reads(found.directions, center)
    # The quadratic part of all outputs (k, o) at the directions: a second difference, exact for a quadratic.
    middle = quadratic(center + 0 * found.directions[:1])
    squares = (quadratic(center + found.directions) + quadratic(center - found.directions)) / 2 - middle
    writes = reader.writes(squares)
    ends = [(*reader.ends(reads[:, j], tokens), *reader.ends(writes[:, j], tokens)) for j in range(reads.shape[1])]
    return TableList(BlockFeature(name, label, j, float(found.values[j]), *four) for j, four in enumerate(ends))


def layer_spectra(
    model: nn.Module,
    moments: Moments,
    max_degree: int = 6,
    *,
    shrinkage: float | str = 0.0,
    show_progress: bool = True,
) -> list[LayerSpectrum]:
    """Degree spectra of all blocks that there are moments of, each under the Gaussian of its inputs.

    See `mlpoly.degree_spectrum`: it says in advance, without a sample, what the best polynomial of any degree leaves
    unexplained while the inputs are Gaussian. ``print`` shows the result as a table.
    """
    wanted = set(moments.names)
    blocks = [block for block in find_blocks(model) if block.name in wanted]
    rows = TableList()
    with progress("spectra", len(blocks), show_progress) as bar:
        for i, block in enumerate(blocks):
            net = block.net()
            inputs = moments.gaussian(block.name, shrinkage, like=net.prototype)
            found = degree_spectrum(net, inputs, max_degree)
            shares = tuple(float(share) for share in found.overall)
            rows.append(LayerSpectrum(block.name, shares, float(found.unexplained[-1])))
            bar(i + 1, block.name)
    return rows


# ---------------------------------------------------------------------------------------------------------------------
# Scores of tokens
# ---------------------------------------------------------------------------------------------------------------------


class _Reader:
    """Embedding and unembedding as one block sees them."""

    def __init__(self, model: Any, name: str, text: Callable[[int], str], wiring: Trace | None) -> None:
        self._text = text
        self._embedding: Tensor = model.get_input_embeddings().weight.detach()
        self._unembedding: Tensor = model.get_output_embeddings().weight.detach()
        seen = trace(model, [0]) if wiring is None else wiring
        if name not in seen.inputs:
            raise ValueError(f"the model has no block {name!r}; its blocks are {', '.join(seen.inputs)}.")
        self._before, self._after, self._final = seen.before[name], seen.after[name], seen.final

    def direction(self, token: Any, direction: Any, difference: Any) -> tuple[Tensor, str]:
        """The output direction (d,), and what to call it."""
        if sum(given is not None for given in (token, direction, difference)) != 1:
            raise ValueError("give one of token (an id), direction (a vector) and difference (two ids).")
        if direction is not None:
            found = torch.as_tensor(to_numpy(direction), dtype=torch.float64).to(self._unembedding.device)
            width = self._unembedding.shape[1]
            if found.shape != (width,):
                raise ValueError(f"direction has shape {tuple(found.shape)}, the residual stream needs ({width},).")
            return (found if self._after is None else self._after.scaled(found)), "a direction"
        if token is not None:
            return self._row(token), repr(self._text(int(token)))
        a, b = difference
        return self._row(a) - self._row(b), f"{self._text(int(a))!r} − {self._text(int(b))!r}"

    def _row(self, token: Any) -> Tensor:
        place, size = as_integer("token", token, 0), self._unembedding.shape[0]
        if place >= size:
            raise ValueError(f"token is {place}, but the model knows the tokens 0 to {size - 1}.")
        return self._from_logits(self._unembedding[place].double())

    def _from_logits(self, rows: Tensor) -> Tensor:
        """Rows (..., d) of the unembedding as directions of the block's output."""
        for norm in (self._final, self._after):
            rows = rows if norm is None else norm.scaled(rows)
        return rows

    def reads(self, directions: Array, center: Array) -> np.ndarray:
        """Scores (vocabulary, k) of the tokens for input directions (k, d)."""
        columns = torch.as_tensor(to_numpy(directions), device=self._embedding.device).T
        offset = torch.as_tensor(to_numpy(center), device=columns.device, dtype=columns.dtype) @ columns
        norm: Any = (lambda rows: rows) if self._before is None else self._before.module
        with torch.no_grad():
            parts = [norm(rows).to(columns.dtype) @ columns - offset for rows in self._embedding.split(_ROWS)]
        return np.concatenate([part.double().cpu().numpy() for part in parts])

    def writes(self, outputs: Array) -> np.ndarray:
        """Changes (vocabulary, k) of the logits for outputs (k, d), up to the divisor of the final norm."""
        columns = torch.as_tensor(to_numpy(outputs), device=self._unembedding.device).double().T
        parts = (self._from_logits(rows.double()) @ columns for rows in self._unembedding.split(_ROWS))
        return np.concatenate([part.cpu().numpy() for part in parts])

    def ends(self, scores: np.ndarray, count: int) -> Iterator[tuple[TokenScore, ...]]:
        """The tokens with the largest scores, and those with the smallest."""
        order = np.argsort(scores, kind="stable")
        for places in (order[::-1][:count], order[:count]):
            yield tuple(TokenScore(int(i), self._text(int(i)), float(scores[i])) for i in places)
