"""Which degree of which block pushed a logit, token by token, as parts that add up exactly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mlpoly.arrays import Array, as_integer, namespace, to_numpy
from mlpoly.charts.chart import HeatMap
from mlpoly.importers.torch import PolynomialModule
from mlpoly.lm.conversion.conversion import Conversion
from mlpoly.lm.model.tracing import NO_PATH, trace, unembedding
from mlpoly.lm.text.tokens import prompt_ids, token_text
from mlpoly.polynomials import Polynomial
from mlpoly.tables import Plottable, Table, Tabular

Polynomials = Conversion | Mapping[str, Polynomial | PolynomialModule]  # of blocks by name


def degree_parts(poly: Polynomial, x: Array, direction: Array) -> Array:
    """Parts (..., degree + 1) of ``direction . poly(x)`` by Hermite degree under the inputs of the fit.

    Part k is ``direction . (poly.truncate(k)(x) - poly.truncate(k - 1)(x))``, at inputs x (..., d) of the block and for
    weights (o,) or (..., o) of the outputs. Under one Gaussian the parts are orthogonal. They are not the monomials of
    x, which depend on where zero is and cancel one another.
    """
    if not isinstance(poly, Polynomial):
        raise TypeError(f"poly must be a polynomial made by mlpoly.fit or mlpoly.load, got {type(poly).__name__}.")
    if direction.shape[-1] != poly.dim_out:
        raise ValueError(f"direction has {direction.shape[-1]} weights, expected {poly.dim_out}: one per output.")
    xp = namespace(x=x, direction=direction)
    values = [xp.sum(poly.truncate(k)(x) * direction, axis=-1) for k in range(poly.degree + 1)]
    return xp.stack([values[0], *(high - low for low, high in pairwise(values))], axis=-1)


@dataclass(frozen=True, eq=False, repr=False)
class Attribution(Tabular, Plottable):
    """Direct contributions of blocks to a logit at every position of one prompt of t tokens."""

    blocks: tuple[str, ...]
    ids: tuple[int, ...]  # t tokens of the prompt
    tokens: tuple[str, ...]  # their texts
    targets: tuple[int, ...]  # tokens whose logits are meant, one at each position
    target_tokens: tuple[str, ...]
    parts: np.ndarray  # (blocks, t, degree + 1) contribution of each degree of a block's polynomial to that logit
    actual: np.ndarray  # (blocks, t) contribution of the block itself
    logits: np.ndarray  # (t,) of the targets, as the unembedding gives them
    centred: bool = False  # whether the mean of all logits is subtracted

    @property
    def degree(self) -> int:
        """Highest degree."""
        return int(self.parts.shape[-1]) - 1

    def rows(self) -> list[dict[str, Any]]:
        """One row per block and token, with a column for each degree."""
        return [
            {"block": name, "position": t, "token": self.tokens[t], "target": self.target_tokens[t]}
            | {f"degree_{k}": float(v) for k, v in enumerate(self.parts[i, t])}
            | {"polynomial": float(self.parts[i, t].sum()), "actual": float(self.actual[i, t])}
            for i, name in enumerate(self.blocks)
            for t in range(len(self.ids))
        ]

    def _table(self) -> Table:
        """One line per token, all blocks together."""
        parts, actual = self.parts.sum(0), self.actual.sum(0)
        return Table.of(
            [
                {"token": repr(token), "target": repr(self.target_tokens[t])}
                | {f"degree_{k}": float(v) for k, v in enumerate(parts[t])}
                | {"polynomials": float(parts[t].sum()), "blocks": float(actual[t]), "logit": float(self.logits[t])}
                for t, token in enumerate(self.tokens)
            ]
        )

    def chart(self) -> HeatMap:  # type: ignore[override]
        """Heat map of the contribution of each degree, all blocks together, at each token."""
        degrees = [f"degree {k}" for k in range(self.degree + 1)]
        tokens = [f"{token!r} to {target!r}" for token, target in zip(self.tokens, self.target_tokens, strict=True)]
        label = "Contributions of the blocks' polynomials to the logits"
        return HeatMap(self.parts.sum(0).T, degrees, tokens, label, "Contributions to logits", "contribution")

    def __repr__(self) -> str:
        centred = ", centred" if self.centred else ""
        return f"Attribution({len(self.blocks)} blocks, {len(self.ids)} tokens, degree={self.degree}{centred})"


def attribute(
    model: nn.Module,
    polys: Polynomials,
    prompt: str | Sequence[int] | Tensor,
    target: int | None = None,
    *,
    tokenizer: Any = None,
    centred: bool = False,
) -> Attribution:
    """Return what every degree of every block adds to the logit of a token, at each position of a prompt.

    Nothing is grafted, and only the direct path is counted: block, residual stream, final norm, unembedding. The
    divisor of the final norm is that of the whole model at this position, so that contributions add up: degrees to the
    polynomial's output, blocks to the sum of their outputs. ``rows()`` has every block by itself.

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
        Tokenizer of the prompt, and source of the texts of tokens, for which a list is enough.
    centred : bool
        Take the logit less the mean of all logits, which the softmax does not see.
    """
    chosen = polynomials_of(polys)
    ids = prompt_ids(prompt, tokenizer)
    seen = trace(model, ids)
    if seen.final is None:
        raise ValueError(f"{type(model).__name__}: {NO_PATH}; use degree_parts with a direction of your own.")
    missing = [name for name in chosen if name not in seen.inputs]
    if missing:
        raise ValueError(seen.without(missing[0]))
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
    actual = np.zeros((len(chosen), len(ids)))
    for i, (name, poly) in enumerate(chosen.items()):
        x, after, like = seen.inputs[name], seen.after[name], poly.prototype
        directions = arriving if after is None else after.pull(arriving)
        if isinstance(like, Tensor):  # the parts in the polynomial's own array library and dtype
            found = degree_parts(poly, x.to(like), directions.to(like))
        else:
            found = degree_parts(poly, to_numpy(x.double()), to_numpy(directions))
        parts[i, :, : poly.degree + 1] = to_numpy(found)
        actual[i] = (directions * seen.outputs[name].double()).sum(-1).cpu().numpy()
    logits = seen.logits.double()
    reached = logits.gather(1, targets[:, None])[:, 0] - (logits.mean(1) if centred else 0.0)
    text, goals = token_text(tokenizer), targets.tolist()
    words = tuple(map(text, ids)), tuple(goals), tuple(map(text, goals))
    return Attribution(tuple(chosen), tuple(ids), *words, parts, actual, reached.cpu().numpy(), centred)


def polynomials_of(polys: Polynomials) -> dict[str, Polynomial]:
    """Return polynomials by the names of their blocks."""
    given = polys.polynomials if isinstance(polys, Conversion) else polys
    if not isinstance(given, Mapping) or not given:
        raise TypeError(f"polys must map names of blocks to polynomials, got {type(polys).__name__}; see convert.")
    found = {str(name): p.polynomial if isinstance(p, PolynomialModule) else p for name, p in given.items()}
    for name, poly in found.items():
        if not isinstance(poly, Polynomial):
            raise TypeError(f"polys[{name!r}] is a {type(poly).__name__}, which holds no polynomial.")
    return found
