"""Which degree of which block pushed a logit, token by token, as parts that add up exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mlpoly.arrays import Array, as_integer, namespace, to_numpy
from mlpoly.integrations import find_blocks
from mlpoly.lm.forward import evaluating
from mlpoly.polynomials import Polynomial, RidgePolynomial

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


def degree_parts(poly: Any, x: Array, direction: Array, bound: float | None = None) -> Array:
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
    bound : float, optional
        As in `RidgePolynomial.__call__`; the parts then add up to the bounded value.

    Returns
    -------
    array (..., degree + 1)
        Constant, linear, quadratic, ... part.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.lm.attribution import degree_parts
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, "square")
    >>> poly = mp.fit(net, mp.Gaussian.standard(2), 2)
    >>> degree_parts(poly, np.array([[1.0, 2.0]]), np.ones(1)).round(12).tolist()  # 2 + (x1^2 - 1) + (x2^2 - 1)
    [[2.0, 0.0, 3.0]]
    """
    if not isinstance(poly, Polynomial):
        raise TypeError(f"poly must be a polynomial made by mlpoly.fit or mlpoly.load, got {type(poly).__name__}.")
    if direction.shape[-1] != poly.dim_out:
        raise ValueError(f"direction has {direction.shape[-1]} weights, expected {poly.dim_out}: one per output.")
    options = {} if bound is None else {"bound": bound}
    xp = namespace(x=x, direction=direction)
    whole: Any = poly  # every form has truncate, though not by contract
    values = [xp.sum(whole.truncate(k)(x, **options) * direction, axis=-1) for k in range(poly.degree + 1)]
    return xp.stack([values[0], *(high - low for low, high in pairwise(values))], axis=-1)


@dataclass(frozen=True, eq=False)
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
    """
    chosen = plain_polynomials(polys)
    ids = _prompt_ids(prompt, tokenizer)
    seen = trace(model, ids)
    if seen.final is None:
        raise ValueError(
            f"the head of {type(model).__name__} does not read the residual stream through one norm, so that there is "
            f"no direct path to its logits; use degree_parts with a direction of your own."
        )
    missing = [name for name in chosen if name not in seen.inputs]
    if missing:
        raise ValueError(f"the model has no block {missing[0]!r}; its blocks are {', '.join(seen.inputs)}.")
    targets = _targets(target, ids, seen.logits)
    weight = _unembedding(model)
    rows = weight[targets].double() - (weight.mean(0, dtype=torch.float64) if centred else 0.0)
    arriving = seen.final.pull(rows) * float(getattr(model.config, "residual_multiplier", None) or 1.0)
    degree = max(poly.degree for poly, _ in chosen.values())
    parts = np.zeros((len(chosen), len(ids), degree + 1))
    blocks = np.zeros((len(chosen), len(ids)))
    for i, (name, (poly, bound)) in enumerate(chosen.items()):
        after = seen.after[name]
        directions = arriving if after is None else after.pull(arriving)
        parts[i, :, : poly.degree + 1] = _parts(poly, seen.inputs[name], directions, bound)
        blocks[i] = (directions * seen.outputs[name].double()).sum(-1).cpu().numpy()
    logits = seen.logits.double()
    found = logits.gather(1, targets[:, None])[:, 0] - (logits.mean(1) if centred else 0.0)
    text = token_text(tokenizer)
    goals = targets.tolist()
    words = tuple(map(text, ids)), tuple(goals), tuple(map(text, goals))
    return Attribution(tuple(chosen), tuple(ids), *words, parts, blocks, found.cpu().numpy(), centred)


def _parts(poly: Polynomial, x: Tensor, directions: Tensor, bound: float | None) -> np.ndarray:
    """The parts in the polynomial's own array library and dtype."""
    like = poly.sample_array
    if isinstance(like, Tensor):
        found = degree_parts(poly, x.to(like), directions.to(like), bound)
    else:
        found = degree_parts(poly, to_numpy(x.double()), to_numpy(directions), bound)
    return to_numpy(found).astype(np.float64)


def plain_polynomials(polys: Any) -> dict[str, tuple[Any, float | None]]:
    """Polynomial and bound by block, of a Conversion or of a mapping to polynomials or their modules."""
    given = getattr(polys, "polynomials", polys)
    if not isinstance(given, Mapping) or not given:
        raise TypeError(f"polys must map names of blocks to polynomials, got {type(polys).__name__}; see convert.")
    found: dict[str, tuple[Any, float | None]] = {}
    for name, value in given.items():
        poly = value if isinstance(value, Polynomial) else getattr(value, "polynomial", None)
        if not isinstance(poly, Polynomial):
            raise TypeError(f"polys[{name!r}] is a {type(value).__name__}, which holds no polynomial.")
        bound = getattr(value, "bound", None) if isinstance(value, nn.Module) else getattr(polys, "bound", None)
        found[str(name)] = (poly, bound if isinstance(poly, RidgePolynomial) else None)
    return found


def _prompt_ids(prompt: Any, tokenizer: Any) -> list[int]:
    if isinstance(prompt, str):
        if not hasattr(tokenizer, "encode"):
            raise ValueError("prompt is text, which needs a tokenizer; pass tokenizer=, or token ids.")
        prompt = tokenizer.encode(prompt)
    ids = [int(i) for i in np.asarray(prompt).ravel()]
    if not ids:
        raise ValueError("prompt has no tokens; pass some text, or token ids (t,).")
    return ids


def _targets(target: int | None, ids: list[int], logits: Tensor) -> Tensor:
    if target is None:
        return torch.tensor([*ids[1:], int(logits[-1].argmax())], device=logits.device)
    target = as_integer("target", target, 0)
    if target >= logits.shape[1]:
        raise ValueError(f"target is {target}, but the model knows the tokens 0 to {logits.shape[1] - 1}.")
    return torch.full((len(ids),), target, device=logits.device)


def token_text(source: Any) -> Callable[[int], str]:
    """A function from token ids to their texts.

    Parameters
    ----------
    source : tokenizer, sequence of str or None
        Without one, a token is called by its number.
    """
    if source is None:
        return lambda i: f"#{i}"
    if not hasattr(source, "decode"):
        return lambda i: source[i] if i < len(source) else f"#{i}"

    def text(i: int) -> str:
        piece = source.convert_ids_to_tokens(i)
        if piece is None or "▁" in piece:  # SentencePiece: decoding one token would lose the space before it
            return f"#{i}" if piece is None else piece.replace("▁", " ")
        decoded = source.decode([i])
        return piece if "\ufffd" in decoded or not decoded else decoded  # a part of a character has no text

    return text


# ---------------------------------------------------------------------------------------------------------------------
# What a model does on the way
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FrozenNorm:
    """A normalisation whose divisor is held: x -> rate weight (x - mean(x) if centred) + bias, linear in x.

    Attributes
    ----------
    module : nn.Module
    weight : Tensor (d,)
        What it multiplies by, in float64: of Gemma's norms 1 + their parameter.
    centred : bool
        Whether it takes the mean off first, as LayerNorm does.
    rates : Tensor (t,)
        One over the divisor at each position.
    """

    module: nn.Module
    weight: Tensor
    centred: bool
    rates: Tensor

    @classmethod
    def of(cls, module: nn.Module, x: Tensor, y: Tensor) -> FrozenNorm:
        """From what it made of x (t, d), whatever its class: asked with two test vectors, then compared with y."""
        d = x.shape[-1]
        double = deepcopy(module).double()
        even = torch.arange(d, device=x.device) % 2 == 0
        zero_mean = torch.where(even, 1.0 / even.sum(), -1.0 / max(int((~even).sum()), 1)).double()
        probe = zero_mean * (1e3 / zero_mean.square().mean().sqrt())  # so large that no epsilon counts
        plus, minus, moved = double(torch.stack([probe, -probe, probe + 1e3])).double()
        bias, weight = (plus + minus) / 2, (plus - minus) / 2 * (1e3 / probe)
        centred = bool((moved - plus).abs().max() < 1e-3 * (plus - bias).abs().max())
        scaled = weight * (x.double() - (x.double().mean(-1, keepdim=True) if centred else 0.0))
        power = (scaled * scaled).sum(-1)
        rates = (scaled * (y.double() - bias)).sum(-1) / power.clamp_min(torch.finfo(torch.float64).tiny)
        return cls(module, weight, centred, rates)

    def scaled(self, directions: Tensor) -> Tensor:
        """A direction behind the norm as one before it, up to the rate."""
        found = directions * self.weight
        return found - found.mean(-1, keepdim=True) if self.centred else found

    def pull(self, directions: Tensor) -> Tensor:
        """Directions (t, d) behind the norm as directions before it."""
        return self.rates[:, None] * self.scaled(directions)


@dataclass(eq=False)
class Trace:
    """What a model did with one prompt.

    Attributes
    ----------
    inputs, outputs : dict of str to Tensor (t, d)
        Of each block.
    before, after : dict of str to FrozenNorm or None
        The norm that made a block's input, and the one that its output goes through, where there are such.
    final : FrozenNorm or None
        The norm of the model's body whose result the unembedding reads.
    logits : Tensor (t, vocabulary)
        As the unembedding gives them, before any scale or cap.
    """

    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    before: dict[str, FrozenNorm | None] = field(default_factory=dict)
    after: dict[str, FrozenNorm | None] = field(default_factory=dict)
    final: FrozenNorm | None = None
    logits: Tensor = field(default_factory=lambda: torch.zeros(0, 0))


def trace(model: nn.Module, ids: Sequence[int]) -> Trace:
    """Run a model on one prompt (t,) and look where its blocks, norms and unembedding are connected.

    What is connected is seen from the memory that tensors share, so that no name of a layer needs to be known.
    """
    blocks, head = find_blocks(model), _head(model)
    norms = [m for m in model.modules() if "norm" in type(m).__name__.lower() and not list(m.children())]
    device = next(model.parameters()).device
    with evaluating(model), _recorded([*norms, head, *(m for b in blocks for m in (b.entry, b.exit))]) as seen:
        model(input_ids=torch.tensor([list(ids)], device=device), use_cache=False)
    found = Trace()
    inside = set((getattr(model, getattr(model, "base_model_prefix", ""), None) or model).modules())
    frozen: dict[nn.Module, FrozenNorm] = {}

    def freeze(candidates: Iterator[nn.Module]) -> FrozenNorm | None:
        norm = next(candidates, None)
        if norm is not None and norm not in frozen:
            frozen[norm] = FrozenNorm.of(norm, seen[norm].x, seen[norm].y)
        return None if norm is None else frozen[norm]

    ran = [norm for norm in norms if norm in seen]
    with torch.no_grad():
        for block in blocks:
            if block.entry in seen:
                entry, end = seen[block.entry], seen[block.exit]
                found.inputs[block.name], found.outputs[block.name] = entry.x, end.y
                found.before[block.name] = freeze(n for n in ran if seen[n].made == entry.read)
                found.after[block.name] = freeze(n for n in ran if seen[n].read == end.made)
        found.final = freeze(n for n in ran if n in inside and seen[n].made == seen[head].read)
    found.logits = seen[head].y
    return found


@dataclass(frozen=True, eq=False)
class _Seen:
    """Input and output of a module, copied, and where the originals were in memory."""

    x: Tensor
    y: Tensor
    read: int
    made: int
    alive: tuple[Tensor, Tensor]  # so that nothing else gets their memory meanwhile


@contextmanager
def _recorded(modules: Sequence[nn.Module]) -> Iterator[dict[nn.Module, _Seen]]:
    seen: dict[nn.Module, _Seen] = {}

    def keep(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        x = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        y = result[0] if isinstance(result, tuple) else result
        if x is not None and isinstance(y, Tensor):
            places = [value.untyped_storage().data_ptr() for value in (x, y)]
            rows = [value.detach().reshape(-1, value.shape[-1]).clone() for value in (x, y)]
            seen[module] = _Seen(rows[0], rows[1], places[0], places[1], (x, y))

    handles = [module.register_forward_hook(keep, with_kwargs=True) for module in dict.fromkeys(modules)]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _head(model: Any) -> nn.Module:
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None:
        raise TypeError(f"{type(model).__name__} has no unembedding; pass a causal language model of transformers.")
    return head


def _unembedding(model: nn.Module) -> Tensor:
    weight: Any = _head(model).weight
    return weight.detach()
