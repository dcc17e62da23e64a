"""The adapters for Linear, activation, Linear: as nn.Sequential, and as parts of a class under any names."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mlpoly.activations import get
from mlpoly.integrations.adapters import Adapter, add_adapter
from mlpoly.integrations.probe import check_computes, unwrapped
from mlpoly.integrations.torch_activations import activation_from_torch
from mlpoly.integrations.weights import is_plain, linear_weights
from mlpoly.networks import MLP

__all__ = ["from_parts", "from_sequential"]

_REMEDY = (
    "Forward hooks, a forward of its own or a residual connection make it another function: remove them, or pass "
    "the weights yourself: mlpoly.MLP(W1, b1, W2, b2, activation=...)."
)


def _flat(module: Any) -> list[nn.Module]:
    """Modules of nested Sequentials, in order, without those that do nothing in evaluation mode."""
    module = unwrapped(module)
    if is_plain(module, nn.Sequential):
        # Not .children(), which lists a module that is used twice only once.
        return [part for child in module._modules.values() for part in _flat(child)]
    return [] if isinstance(module, (nn.Dropout, nn.AlphaDropout, nn.Identity)) else [module]


def from_sequential(module: nn.Module) -> MLP:
    """Convert Linear, activation, Linear; the last may be missing, and a missing activation is the identity."""
    parts = _flat(module)
    linear = [is_plain(part, nn.Linear) for part in parts]
    if not linear or not linear[0] or len(parts) > 3 or (len(parts) == 3 and linear[1:] != [False, True]):
        raise TypeError(
            f"from_torch takes an nn.Sequential of Linear, activation, Linear (the last may be missing), got "
            f"{', '.join(type(p).__name__ for p in parts) or 'no modules'}. "
            f"Convert a deeper network layer by layer, for example from_torch(module[:3]); "
            f"for other blocks see mlpoly.integrations.torch.register_adapter."
        )
    net = _record(parts)
    check_computes(module, net, "the Sequential is more than its parts", _REMEDY, whole=True)
    return net


def from_parts(module: nn.Module) -> MLP:
    """Convert a class whose parts are Linear, activation and Linear, if it computes just these in this order."""
    name = type(module).__name__
    net = _record(_parts(module))
    check_computes(module, net, f"{name} has the parts of an MLP, but computes something else", _REMEDY, whole=True)
    return net


def _record(parts: list[nn.Module]) -> MLP:
    first, *rest = parts
    last = rest.pop() if rest and is_plain(rest[-1], nn.Linear) else None
    W1, b1 = linear_weights(first, "the first Linear")
    W2, b2 = (None, None) if last is None else linear_weights(last, "the last Linear")
    if rest and isinstance(rest[0], nn.PReLU) and rest[0].weight.numel() > 1:
        # One slope per unit, as two ReLUs per unit: y if y > 0 else s y = relu(y) - s relu(-y).
        if W2 is None:
            raise TypeError(
                "from_torch takes a PReLU with one slope per unit only before a second Linear; use "
                "nn.PReLU(), which has one slope for all, or append nn.Linear."
            )
        both = None if b1 is None else torch.cat([b1, -b1])
        return MLP(torch.cat([W1, -W1]), both, torch.cat([W2, -W2 * rest[0].weight], 1), b2, get("relu"))
    return MLP(W1, b1, W2, b2, activation_from_torch(rest[0]) if rest else get("identity"))


def _is_mlp(parts: list[nn.Module]) -> bool:
    return [is_plain(part, nn.Linear) for part in parts] == [True, False, True]


def _parts(module: nn.Module) -> list[nn.Module]:
    """Parts of a class, in the order in which it defines them."""
    return [part for child in module.children() for part in _flat(child)]


# Later adapters come first, so this one is the last resort. Whether a class computes its parts in order is only known
# after a test, so whole models are not searched for it.
# It matches a class with the parts of an MLP and no other parameters, which `from_parts` would ignore.
add_adapter(
    Adapter(
        lambda m: not any(True for _ in m.parameters(recurse=False)) and _is_mlp(_parts(m)), from_parts, listed=False
    )
)
add_adapter(Adapter(lambda m: is_plain(m, nn.Sequential), from_sequential, listed=False))
# A single Linear is not a block to search a model for. `from_sequential` checks the activation, and names an unknown
# one in its error.
add_adapter(Adapter(lambda m: is_plain(m, nn.Sequential) and _is_mlp(_flat(m)), from_sequential))
