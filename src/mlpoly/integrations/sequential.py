"""The adapter for nn.Sequential: Linear, activation, Linear."""

from __future__ import annotations

from typing import Any

from torch import nn

from mlpoly.activations import get
from mlpoly.integrations.activations import activation_from_torch
from mlpoly.integrations.adapters import Adapter, add_adapter
from mlpoly.integrations.weights import is_plain, linear_weights
from mlpoly.layers import MLP

__all__ = ["from_sequential"]


def _flat(module: Any) -> list[nn.Module]:
    """The modules of nested Sequentials, in order, without those that do nothing in evaluation mode."""
    if is_plain(module, nn.Sequential):
        # Not .children(), which leaves out a module that stands in two places.
        return [part for child in module._modules.values() for part in _flat(child)]
    return [] if isinstance(module, (nn.Dropout, nn.AlphaDropout, nn.Identity)) else [module]


def from_sequential(module: nn.Module) -> MLP:
    """Linear, activation, Linear, the last of which may be missing; a missing activation is the identity."""
    parts = _flat(module)
    linear = [is_plain(part, nn.Linear) for part in parts]
    if not linear or not linear[0] or len(parts) > 3 or (len(parts) == 3 and linear[1:] != [False, True]):
        raise TypeError(
            f"from_torch takes an nn.Sequential of Linear, activation, Linear (the last may be missing), got "
            f"{', '.join(type(p).__name__ for p in parts) or 'no modules'}. "
            f"Convert a deeper network layer by layer, for example from_torch(module[:3]); "
            f"for other blocks see mlpoly.integrations.torch.register_adapter."
        )
    first, *rest = parts
    last = rest.pop() if linear[1:] and linear[-1] else None
    activation = activation_from_torch(rest[0]) if rest else get("identity")
    W1, b1 = linear_weights(first, "the first module of the Sequential")
    W2, b2 = (None, None) if last is None else linear_weights(last, "the last module of the Sequential")
    return MLP(W1, b1, W2, b2, activation)


def _is_block(module: nn.Module) -> bool:
    """Whether a Sequential is a whole feedforward block; one Linear alone is none that a model should be searched for.

    The activation is looked at by `from_sequential`, which says what it does not know.
    """
    if not is_plain(module, nn.Sequential):
        return False
    parts = _flat(module)
    return [is_plain(part, nn.Linear) for part in parts] == [True, False, True]


add_adapter(Adapter(lambda m: is_plain(m, nn.Sequential), from_sequential, listed=False))
add_adapter(Adapter(_is_block, from_sequential))
