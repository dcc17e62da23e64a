"""Which degree of which block pushed a logit, token by token, as parts that add up exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mlpoly.arrays import Array, as_integer, namespace, to_numpy
from mlpoly.lm.model.tracing import FrozenNorm, Trace, trace, unembedding
from mlpoly.lm.tables import plain_table
from mlpoly.lm.text.tokens import prompt_ids, token_text
from mlpoly.polynomials import Polynomial

__all__ = [
    "Attribution",
    "FrozenNorm",
    "Trace",
    "attribute",
    "degree_parts",
    "plain_polynomials",
    "token_text",
    "trace",
]


def degree_parts(poly: Polynomial, x: Array, direction: Array) -> Array:
    """The parts of ``direction . poly(x)`` by degree; they add up to it.

    Part k is ``direction . (poly.truncate(k)(x) - poly.truncate(k - 1)(x))``, the degree that is natural to the fit:
    Hermite degree under the inputs it was fitted under. Under one Gaussian these are the orthogonal components of the
    block, and part k is what degree k adds to the best polynomial of degree k - 1. They are not the monomials of x of
    degree k: those depend on where zero is, grow with the mean of the inputs and cancel one another. Under a mixture
    the parts still add up, but they are no longer orthogonal.

    Parameters
    ----------
    poly : polynomial
        Of one block.
    x : array (..., d)
        Its inputs.
    direction : array (o,) or (..., o)
        Weights of the outputs, one for all inputs or one for each.

    Returns
    -------
    array (..., degree + 1)
        Constant, linear, quadratic, ... part.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.lm.reading.attribution import degree_parts
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, "square")
    >>> poly = mp.fit(net, mp.Gaussian.standard(2), 2)
    >>> degree_parts(poly, np.array([[1.0, 2.0]]), np.ones(1)).round(12).tolist()  # 2 + (x1^2 - 1) + (x2^2 - 1)
    [[2.0, 0.0, 3.0]]
    """
    if not isinstance(poly, Polynomial):
        raise TypeError(f"poly must be a polynomial made by mlpoly.fit or mlpoly.load, got {type(poly).__name__}.")
    if direction.shape[-1] != poly.dim_out:
        raise ValueError(f"direction has {direction.shape[-1]} weights, expected {poly.dim_out}: one per output.")
    xp = namespace(x=x, direction=direction)
    values = [xp.sum(poly.truncate(k)(x) * direction, axis=-1) for k in range(poly.degree + 1)]
    return xp.stack([values[0], *(high - low for low, high in pairwise(values))], axis=-1)


@dataclass(frozen=True, eq=False, repr=False)
class Attribution:
    """Direct contributions of blocks to a logit at every position of one prompt.

    Attributes
    ----------
    layers : tuple of str
        Names of the blocks.
    ids, tokens : tuple
        Of the prompt, t of them.
    targets, target_tokens : tuple
        The token whose logit is meant, at each position.
    parts : array (layers, t, degree + 1)
        What each degree of each block's polynomial adds to that logit at that position.
    blocks : array (layers, t)
        What the block itself adds; what its polynomial misses is ``blocks - parts.sum(-1)``.
    logits : array (t,)
        The model's logit of the target, as the unembedding gives it; less the mean of all logits if `centred`.
    centred : bool
    """

    layers: tuple[str, ...]
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    targets: tuple[int, ...]
    target_tokens: tuple[str, ...]
    parts: np.ndarray
    blocks: np.ndarray
    logits: np.ndarray
    centred: bool = False

    @property
    def degree(self) -> int:
        """Highest degree."""
        return int(self.parts.shape[-1]) - 1

    def rows(self) -> list[dict[str, Any]]:
        """One row per layer and token, with a column for each degree."""
        return [
            {"layer": name, "position": t, "token": self.tokens[t], "target": self.target_tokens[t]}
            | {f"degree_{k}": float(v) for k, v in enumerate(self.parts[i, t])}
            | {"polynomial": float(self.parts[i, t].sum()), "block": float(self.blocks[i, t])}
            for i, name in enumerate(self.layers)
            for t in range(len(self.ids))
        ]

    def __str__(self) -> str:
        """One line per token, all blocks together."""
        parts, blocks = self.parts.sum(0), self.blocks.sum(0)
        return plain_table(
            [
                {"token": repr(token), "target": repr(self.target_tokens[t])}
                | {f"degree_{k}": float(v) for k, v in enumerate(parts[t])}
                | {"polynomials": float(parts[t].sum()), "blocks": float(blocks[t]), "logit": float(self.logits[t])}
                for t, token in enumerate(self.tokens)
            ]
        )

    def __repr__(self) -> str:
        centred = ", centred" if self.centred else ""
        return f"Attribution({len(self.layers)} blocks, {len(self.ids)} tokens, degree={self.degree}{centred})"


def attribute(
    model: nn.Module,
    polys: Any,
    prompt: str | Sequence[int] | Tensor,
    target: int | None = None,
    *,
    tokenizer: Any = None,
    centred: bool = False,
) -> Attribution:
    """What every degree of every block adds to the logit of a token, at each position of a prompt.

    The blocks see the activations of the model as it is, nothing is grafted. Only the direct path is counted: block,
    residual stream, final norm, unembedding; what later layers make of a block's output is theirs. The final norm is
    linear once its divisor is known, and the divisor is taken as what it is at that position when the whole model
    runs. Contributions are then linear in the blocks' outputs and add up: degrees to the polynomial's output, blocks
    to the sum of their outputs. A norm between a block and the residual stream (Gemma 2) is treated likewise.

    Parameters
    ----------
    model : torch.nn.Module
        A causal language model of transformers.
    polys : Conversion or mapping
        Polynomials, or modules of them, by the name of their block.
    prompt : str or sequence of int
        Text, which needs a tokenizer, or token ids (t,).
    target : int, optional
        Id of the token whose logit is taken apart. By default that of the token that follows, and at the last
        position the one that the model finds most likely.
    tokenizer : tokenizer, sequence of str or None
        For the prompt, and for the texts of tokens; a list of texts (`vocabulary`) is enough for ids.
    centred : bool
        Take the logit less the mean of all logits, which the softmax does not see.

    Returns
    -------
    Attribution
        ``print`` shows it as a table of the tokens, ``rows()`` has every block by itself.
    """
    chosen = plain_polynomials(polys)
    ids = prompt_ids(prompt, tokenizer)
    seen = trace(model, ids)
    if seen.final is None:
        raise ValueError(
            f"the head of {type(model).__name__} does not read the residual stream through one norm, so that there is "
            f"no direct path to its logits; use degree_parts with a direction of your own."
        )
    missing = [name for name in chosen if name not in seen.inputs]
    if missing:
        raise ValueError(f"the model has no block {missing[0]!r}; its blocks are {', '.join(seen.inputs)}.")
    if target is None:
        targets = torch.tensor([*ids[1:], int(seen.logits[-1].argmax())], device=seen.logits.device)
    else:
        target, size = as_integer("target", target, 0), seen.logits.shape[1]
        if target >= size:
            raise ValueError(f"target is {target}, but the model knows the tokens 0 to {size - 1}.")
        targets = torch.full((len(ids),), target, device=seen.logits.device)
    weight = unembedding(model)
    rows = weight[targets].double() - (weight.mean(0, dtype=torch.float64) if centred else 0.0)
    arriving = seen.final.pull(rows) * float(getattr(model.config, "residual_multiplier", None) or 1.0)
    degree = max(poly.degree for poly in chosen.values())
    parts = np.zeros((len(chosen), len(ids), degree + 1))
    blocks = np.zeros((len(chosen), len(ids)))
    for i, (name, poly) in enumerate(chosen.items()):
        after = seen.after[name]
        directions = arriving if after is None else after.pull(arriving)
        parts[i, :, : poly.degree + 1] = _parts(poly, seen.inputs[name], directions)
        blocks[i] = (directions * seen.outputs[name].double()).sum(-1).cpu().numpy()
    logits = seen.logits.double()
    found = logits.gather(1, targets[:, None])[:, 0] - (logits.mean(1) if centred else 0.0)
    text, goals = token_text(tokenizer), targets.tolist()
    words = tuple(map(text, ids)), tuple(goals), tuple(map(text, goals))
    return Attribution(tuple(chosen), tuple(ids), *words, parts, blocks, found.cpu().numpy(), centred)


def _parts(poly: Polynomial, x: Tensor, directions: Tensor) -> np.ndarray:
    """The parts in the polynomial's own array library and dtype."""
    like = poly.prototype
    if isinstance(like, Tensor):
        found = degree_parts(poly, x.to(like), directions.to(like))
    else:
        found = degree_parts(poly, to_numpy(x.double()), to_numpy(directions))
    return to_numpy(found).astype(np.float64)


def plain_polynomials(polys: Any) -> dict[str, Polynomial]:
    """Polynomials by block, of a Conversion or of a mapping to polynomials or their modules."""
    given = getattr(polys, "polynomials", polys)
    if not isinstance(given, Mapping) or not given:
        raise TypeError(f"polys must map names of blocks to polynomials, got {type(polys).__name__}; see convert.")
    found: dict[str, Polynomial] = {}
    for name, value in given.items():
        poly = value if isinstance(value, Polynomial) else getattr(value, "polynomial", None)
        if not isinstance(poly, Polynomial):
            raise TypeError(f"polys[{name!r}] is a {type(value).__name__}, which holds no polynomial.")
        found[str(name)] = poly
    return found
