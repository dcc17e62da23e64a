"""The parts of which a module is made, in the order in which it defines them."""

from __future__ import annotations

from typing import Any, Literal

from torch import nn

from mlpoly.importers.adapters import find_adapter, has_own_adapter
from mlpoly.importers.batch_norm import is_batch_norm
from mlpoly.importers.probe import unwrapped
from mlpoly.importers.torch_activations import is_activation
from mlpoly.importers.weights import is_plain

Kind = Literal["linear", "batch norm", "activation", "softmax", "network", "unknown"]


def parts_of(module: nn.Module) -> list[nn.Module]:
    """Parts of a module, those of containers inside it included, without those that do nothing in evaluation mode."""
    # A Sequential may use a module twice, which .children() lists once; a class may have two names for one module.
    repeats = isinstance(module, (nn.Sequential, nn.ModuleList))
    children = module._modules.values() if repeats else module.children()
    return [part for child in children if child is not None for part in _flat(unwrapped(child))]


def _flat(module: nn.Module) -> list[nn.Module]:
    container = is_plain(module, nn.Sequential) or isinstance(module, (nn.ModuleList, nn.ModuleDict))
    if container and not has_own_adapter(module):
        return parts_of(module)
    return [] if _does_nothing(module) else [module]


def _does_nothing(module: Any) -> bool:
    if is_plain(module, nn.Flatten):  # of inputs that are rows already
        return (module.start_dim, module.end_dim) == (1, -1)
    return isinstance(module, (nn.modules.dropout._DropoutNd, nn.Identity))


def is_softmax(module: nn.Module) -> bool:
    """Whether a module is a softmax over the outputs, or the logarithm of one."""
    softmax = is_plain(module, nn.Softmax) or is_plain(module, nn.LogSoftmax)
    return softmax and module.dim in (-1, 1, None)


def kind_of(part: nn.Module) -> Kind:
    """What a part is; a "network" has an adapter of its own, which converts all of it."""
    if is_plain(part, nn.Linear):
        return "linear"
    if is_batch_norm(part):
        return "batch norm"
    if is_activation(part):
        return "activation"
    if is_softmax(part):
        return "softmax"
    adapter = find_adapter(part)
    return "network" if adapter is not None and not adapter.entry else "unknown"


def final_softmax(module: nn.Module) -> nn.Module | None:
    """The softmax at the end of a module or of its last part, or None."""
    parts = parts_of(module)
    if not parts or has_own_adapter(module) or find_adapter(module) is None:
        return None
    return parts[-1] if is_softmax(parts[-1]) else final_softmax(parts[-1])
