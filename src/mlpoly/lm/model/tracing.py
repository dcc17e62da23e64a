"""How a model is connected, found while it runs: what enters and leaves its blocks, and the norms around them."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mlpoly.importers import find_blocks
from mlpoly.importers.blocks import listed
from mlpoly.importers.experts import is_expert
from mlpoly.lm.model.running import evaluating, hooked

# Of a model whose trace has no `final` norm: BERT, whose head transforms the residual stream first, for one.
NO_PATH = "the head does not read the residual stream through one norm, so that there is no direct path to its logits"


@dataclass(frozen=True, eq=False)
class FrozenNorm:
    """A normalisation whose divisor is held: x -> rate weight (x - mean(x) if centred) + bias, linear in x."""

    module: nn.Module
    weight: Tensor  # (d,) factor of each entry, in float64: in Gemma's norms 1 + their parameter
    centred: bool  # whether it takes the mean off first, as LayerNorm does
    rates: Tensor  # (t,) one over the divisor at each position

    @classmethod
    def of(cls, module: nn.Module, x: Tensor, y: Tensor) -> "FrozenNorm":
        """Find it from its output y at x (t, d), whatever its class: by two test vectors, then by comparison with y."""
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
        """Return a direction behind the norm as one before it, up to the rate."""
        found = directions * self.weight
        return found - found.mean(-1, keepdim=True) if self.centred else found

    def pull(self, directions: Tensor) -> Tensor:
        """Return directions (t, d) behind the norm as directions before it."""
        return self.rates[:, None] * self.scaled(directions)


@dataclass(eq=False)
class Trace:
    """Inputs and outputs of a model's blocks on one prompt, with the norms around them; None where there is no norm."""

    logits: Tensor  # (t, vocabulary) before any scale or cap
    final: FrozenNorm | None = None  # the norm whose result the unembedding reads; see `NO_PATH`
    inputs: dict[str, Tensor] = field(default_factory=dict)  # (t, d) of each block
    outputs: dict[str, Tensor] = field(default_factory=dict)
    after: dict[str, FrozenNorm | None] = field(default_factory=dict)  # the norm that its output goes through

    def without(self, block: str) -> str:
        """What to say of a block that was not traced."""
        if is_expert(block):
            return f"{block!r} is an expert; a router weights what it writes, which is not read here."
        return f"the model has no block {block!r}; its blocks are {listed(list(self.inputs))}."


class _Value(NamedTuple):
    """A copy of a tensor as rows (t, d), where it is in memory, and itself, so that nothing else gets that memory."""

    rows: Tensor
    place: int
    itself: Tensor

    @classmethod
    def of(cls, value: Tensor) -> "_Value":
        rows = value.detach().reshape(-1, value.shape[-1]).clone()
        return cls(rows, value.untyped_storage().data_ptr(), value)


def trace(model: nn.Module, ids: Sequence[int]) -> Trace:
    """Run a model on one prompt (t,) and find how its blocks, norms and unembedding are connected.

    Connections are found from the memory that tensors share, so that no name of a module needs to be known.
    """
    # What an expert writes is weighted by a router, token by token.
    blocks, head = [block for block in find_blocks(model) if not is_expert(block.name)], head_of(model)
    norms = [m for m in model.modules() if "norm" in type(m).__name__.lower() and not list(m.children())]
    device = next(model.parameters()).device
    watched = dict.fromkeys([*norms, head, *(m for b in blocks for m in (b.entry, b.exit))])
    seen: dict[nn.Module, tuple[_Value, _Value]] = {}  # input and output

    def keep(module: nn.Module, x: Tensor | None, result: Any) -> None:
        y = result[0] if isinstance(result, tuple) else result
        if x is not None and isinstance(y, Tensor):
            seen[module] = _Value.of(x), _Value.of(y)

    with evaluating(model), hooked(after=[(module, partial(keep, module)) for module in watched]):
        model(input_ids=torch.tensor([list(ids)], device=device), use_cache=False)
    found = Trace(seen[head][1].rows)
    inside = set((getattr(model, getattr(model, "base_model_prefix", ""), None) or model).modules())
    frozen: dict[nn.Module, FrozenNorm] = {}

    def freeze(candidates: Iterator[nn.Module]) -> FrozenNorm | None:
        norm = next(candidates, None)
        if norm is not None and norm not in frozen:
            frozen[norm] = FrozenNorm.of(norm, *(value.rows for value in seen[norm]))
        return None if norm is None else frozen[norm]

    ran = [norm for norm in norms if norm in seen]
    with torch.no_grad():
        for block in blocks:
            if block.entry in seen:
                y = seen[block.exit][1]
                found.inputs[block.name], found.outputs[block.name] = seen[block.entry][0].rows, y.rows
                found.after[block.name] = freeze(n for n in ran if seen[n][0].place == y.place)
        found.final = freeze(n for n in ran if n in inside and seen[n][1].place == seen[head][0].place)
    return found


def head_of(model: Any) -> nn.Module:
    """The module that makes logits."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None:
        raise TypeError(f"{type(model).__name__} has no unembedding; pass a causal language model of transformers.")
    return head


def unembedding(model: nn.Module) -> Tensor:
    """Return the matrix (vocabulary, d) that makes logits."""
    weight: Any = head_of(model).weight
    return weight.detach()
