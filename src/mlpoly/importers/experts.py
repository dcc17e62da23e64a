"""Experts of mixtures: each is a block, also where transformers keeps the weights of all of them in one module.

`unrolled` makes a model call a module for each expert of such a stack, with the tokens that are routed to it, so that
hooks see single experts, and they can be replaced.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.arrays import readable
from mlpoly.importers.adapters import Adapter
from mlpoly.importers.probe import check_computes
from mlpoly.importers.torch_activations import activation_from_torch
from mlpoly.networks import GLU, MLP, Layer

_REMEDY = "Experts that do more than an MLP or a GLU are not supported."


def is_expert(name: str) -> bool:
    """Whether a block is an expert by its name, shared ones included: a term of a sum that a router weights."""
    return any("expert" in part.lower() for part in name.split("."))


def is_stacked(module: nn.Module) -> bool:
    """Whether a module holds the weights of all experts of a mixture, as in transformers, in a form that is known."""
    first, last = (_weight(module, names) for names in (("gate_up_proj", "up_proj"), ("down_proj",)))
    return (
        first is not None and last is not None and len(first) == len(last) and callable(getattr(module, "act_fn", None))
    )


def _weight(module: nn.Module, names: Iterable[str]) -> Tensor | None:
    """The first parameter (E, ., .) of one of the names."""
    found = (module._parameters.get(name) for name in names)
    return next((weight for weight in found if weight is not None and weight.ndim == 3), None)


class Expert(nn.Module):
    """One expert of a stacked module: the same as giving that module tokens that are all routed to it, with weight 1.

    While an unrolled model calls it, `routed` holds which of the layer's tokens it gets (n,), and their number in all.
    """

    def __init__(self, stacked: nn.Module, number: int) -> None:
        super().__init__()
        self.stacked, self.number = stacked, number
        self.routed: tuple[Tensor, int] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the expert's outputs (..., o) for inputs (..., d)."""
        rows = x.reshape(-1, x.shape[-1])
        chosen = torch.full((len(rows), 1), self.number, device=x.device)
        values: Tensor = self.stacked(rows, chosen, torch.ones_like(rows[:, :1]))
        return values.reshape(*x.shape[:-1], -1)

    def net(self) -> Layer:
        """The expert's network, over views of the stacked parameters."""
        stacked: Any = self.stacked
        transposed = getattr(stacked, "is_transposed", False)
        interleaved = not getattr(stacked, "is_concatenated", True)

        def part(name: str) -> tuple[Tensor, Tensor | None]:
            weight, bias = getattr(stacked, name)[self.number], getattr(stacked, f"{name}_bias", None)
            return (weight.T if transposed else weight), None if bias is None else bias[self.number]

        gated, activation = getattr(stacked, "gate_up_proj", None) is not None, activation_from_torch(stacked.act_fn)
        (W1, b1), (W2, b2) = part("gate_up_proj" if gated else "up_proj"), part("down_proj")
        if not gated:
            net: Layer = MLP(W1, b1, W2, b2, activation)
        else:
            half = len(W1) // 2
            gate, up = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(half), slice(half, None))
            biases = (None, None) if b1 is None else (b1[gate], b1[up])
            net = GLU(W1[gate], biases[0], W1[up], biases[1], W2, b2, activation)
        unlike = f"an expert of {type(stacked).__name__} has weights as in Mixtral, but is not the block they form"
        alone = self
        if "forward" not in vars(stacked):  # which would be patched for this very module
            # A copy that holds no other expert, so that checking it in float32 does not widen them all.
            made: Any = object.__new__(type(stacked))
            vars(made).update(vars(stacked))
            own = slice(self.number, self.number + 1)
            made._parameters = {n: None if p is None else p.detach()[own] for n, p in stacked._parameters.items()}
            made.num_experts = 1
            if hasattr(stacked, "config"):  # kernels for the whole may refuse other dtypes
                made.config = SimpleNamespace(_experts_implementation="eager")
            alone = Expert(made, 0)
        check_computes(alone, net, unlike, _REMEDY)
        return net


class _RoutedExperts(nn.Module):
    """A stacked module taken apart: calls each expert with its tokens, and adds up their weighted outputs."""

    def __init__(self, stacked: nn.Module, known: dict[int, Expert]) -> None:
        super().__init__()
        self.kind = type(stacked).__name__
        for number in range(_count(stacked)):
            self.add_module(str(number), known.get(number) or Expert(stacked, number))
        weight: Any = _weight(stacked, ("down_proj",))
        if readable(weight):  # do the experts one by one add up to what the module computes?
            d = weight.shape[1] if not getattr(stacked, "is_transposed", False) else weight.shape[2]
            generator = torch.Generator().manual_seed(0)
            x = torch.randn(8, d, generator=generator).to(weight)
            chosen = torch.stack([torch.randperm(_count(stacked), generator=generator)[:2] for _ in range(8)])
            chosen, weights = chosen.to(weight.device), torch.rand(chosen.shape, generator=generator).to(weight)
            with torch.no_grad():
                whole, parts = stacked(x, chosen, weights).double(), self(x, chosen, weights).double()
            tolerance = 0.05 if weight.itemsize == 2 else 1e-4  # as in probe
            if not float((whole - parts).norm()) <= tolerance * float(whole.norm()):
                raise TypeError(
                    f"the experts of {self.kind} one by one, weighted, do not add up to its output; {_REMEDY}"
                )

    def forward(self, x: Tensor, *args: Tensor, **kwargs: Tensor) -> Tensor:
        """Return outputs (n, d) for inputs x (n, d), chosen experts (n, k) and their weights (n, k)."""
        others = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        chosen = next((a for a in others if not a.is_floating_point()), None)
        weights = next((a for a in others if a.is_floating_point()), None)
        if chosen is None or weights is None or chosen.shape != weights.shape or chosen.dtype == torch.bool:
            raise TypeError(f"{self.kind} was not called with chosen experts and their weights.")
        total = torch.zeros_like(x)
        for number in chosen.unique().tolist():
            expert = self._modules.get(str(number))
            if expert is None:  # of another device
                continue
            tokens, slots = (chosen == number).nonzero(as_tuple=True)
            if isinstance(expert, Expert):
                expert.routed = tokens, len(x)
            values = expert(x[tokens]) * weights[tokens, slots, None]
            if isinstance(expert, Expert):
                expert.routed = None
            total.index_add_(0, tokens, values.to(total.dtype))
        return total


def _count(stacked: nn.Module) -> int:
    weight: Any = _weight(stacked, ("down_proj",))
    return len(weight)


def experts_of(stacked: nn.Module) -> list[Expert]:
    """The experts of a stacked module as modules."""
    return [Expert(stacked, number) for number in range(_count(stacked))]


@contextmanager
def unrolled(model: nn.Module, modules: Iterable[nn.Module]) -> Iterator[None]:
    """Let a model call the experts among `modules`, and their siblings, as modules of their own."""
    wanted: dict[nn.Module, dict[int, Expert]] = {}
    for module in modules:
        if isinstance(module, Expert):
            wanted.setdefault(module.stacked, {})[module.number] = module
    children = [(m, key, child) for m in model.modules() for key, child in m._modules.items()] if wanted else []
    # An expert that is a module of the model holds the stacked module too.
    stacks = [(m, key, child) for m, key, child in children if child in wanted and not isinstance(m, Expert)]
    routed = {stacked: _RoutedExperts(stacked, wanted[stacked]) for _, _, stacked in stacks}
    for parent, key, stacked in stacks:
        parent._modules[key] = routed[stacked]
    try:
        yield
    finally:
        for parent, key, stacked in stacks:
            parent._modules[key] = stacked


ADAPTERS = (Adapter(Expert, Expert.net),)
