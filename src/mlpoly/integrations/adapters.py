"""The registry of adapters: which modules `from_torch` takes, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from mlpoly.integrations.probe import unwrapped
from mlpoly.networks import Layer

__all__ = [
    "Adapter",
    "add_adapter",
    "find_adapter",
    "from_torch",
    "has_attention",
    "is_mixture",
    "register_adapter",
    "sketch",
]

Predicate = Callable[[nn.Module], bool]


@dataclass(frozen=True)
class Adapter:
    """Conversion of one kind of module to a network.

    Attributes
    ----------
    matches : type or callable
        Class of modules, or a function of a module.
    convert : callable
        Function from the module to an `MLP` or `GLU`.
    entry, exit : str
        Paths of the submodules that take the block's input and return its output; "" is the module itself.
    label : str
        Name in messages.
    listed : bool
        Whether `find_blocks` looks for it in whole models.
    """

    matches: type[nn.Module] | Predicate
    convert: Callable[[Any], Layer]
    entry: str = ""
    exit: str = ""
    label: str = ""
    listed: bool = True

    def takes(self, module: nn.Module) -> bool:
        """Whether the adapter matches a module."""
        return isinstance(module, self.matches) if isinstance(self.matches, type) else bool(self.matches(module))


_adapters: list[Adapter] = []


def add_adapter(adapter: Adapter) -> None:
    """Add an adapter in front of all others."""
    _adapters.append(adapter)


def find_adapter(module: nn.Module) -> Adapter | None:
    """The latest adapter that matches a module, or None."""
    return next((adapter for adapter in reversed(_adapters) if adapter.takes(module)), None)


def register_adapter(
    matches: type[nn.Module] | Predicate, adapter: Callable[[Any], Layer], *, entry: str = "", exit: str = ""
) -> None:
    """Teach `from_torch` and `find_blocks` a block of your own.

    Parameters
    ----------
    matches : type or callable
        A class of modules (its subclasses included), or a function of a module that says whether the adapter applies
        to it. The latest adapter that matches is used.
    adapter : callable
        Function from the module to an `MLP` or `GLU` that holds the module's own parameters.
    entry, exit : str
        Submodules whose input and output are those of the block, such as "fc1" and "fc2", for a block that is only a
        part of the module. By default the module itself.

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> from mlpoly.integrations.torch import register_adapter
    >>> class Block(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.up, self.down = torch.nn.Linear(3, 8), torch.nn.Linear(8, 2)
    >>> register_adapter(Block, lambda m: mp.MLP(m.up.weight, m.up.bias, m.down.weight, m.down.bias, "tanh"))
    >>> mp.from_torch(Block())
    MLP(3 -> 8 -> 2, tanh)
    """
    if not callable(matches) or not callable(adapter):
        raise TypeError(
            "register_adapter takes a module class or a function of a module, and a function that converts it."
        )
    if not isinstance(entry, str) or not isinstance(exit, str):
        raise TypeError(f"entry and exit must be names of submodules such as 'fc1', got {entry!r} and {exit!r}.")
    label = matches.__name__ if isinstance(matches, type) else ""
    add_adapter(Adapter(matches, adapter, entry, exit, label))


def from_torch(module: nn.Module) -> Layer:
    """See `mlpoly.from_torch`."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}.")
    module = unwrapped(module)
    adapter = find_adapter(module)
    if adapter is None:
        raise TypeError(_advice(module))
    net = adapter.convert(module)
    if not isinstance(net, Layer):
        raise TypeError(
            f"the adapter for {type(module).__name__} returned {type(net).__name__}; it must return an MLP or a GLU."
        )
    return net


# ---------------------------------------------------------------------------------------------------------------------
# Advice
# ---------------------------------------------------------------------------------------------------------------------


def is_mixture(module: nn.Module) -> bool:
    """Whether a module is a mixture of experts, or the experts of one."""
    names = [type(module).__name__, *(name for name, _ in module.named_children())]
    return any("expert" in name.lower() for name in names) and not has_attention(module)


def has_attention(module: nn.Module) -> bool:
    """Whether a module is a whole transformer layer."""
    return any("attn" in name or "attention" in name for name, _ in module.named_children())


def sketch(name: str) -> str:
    """How to write an adapter for modules of the class `name`."""
    return (
        f"    from mlpoly.integrations.torch import register_adapter\n"
        f"    def adapt(m):\n"
        f"        return mlpoly.MLP(m.fc1.weight, m.fc1.bias, m.fc2.weight, m.fc2.bias, activation='gelu')\n"
        f"    register_adapter({name}, adapt)\n"
        f"    # a gated unit is an mlpoly.GLU; entry='fc1', exit='fc2' if the module does more than its block"
    )


def _advice(module: nn.Module) -> str:
    name = type(module).__name__
    if is_mixture(module):
        return (
            f"from_torch does not take {name}: it is a mixture of experts, that is, several blocks behind a router, "
            f"not a single MLP or GLU. Convert the experts one by one, each with mlpoly.MLP or mlpoly.GLU."
        )
    if isinstance(module, nn.Linear):
        return (
            f"from_torch takes networks with a hidden layer, but a {name} alone is an affine map, which is its own "
            f"polynomial. To use it like any other network, put it in an nn.Sequential: from_torch(nn.Sequential(m))."
        )
    inner = next((n for n, m in module.named_modules() if n and (a := find_adapter(m)) is not None and a.listed), None)
    if inner is not None:
        return (
            f"from_torch does not know {name}, but it knows blocks inside, such as {inner!r}: "
            f"mlpoly.integrations.find_blocks(module) finds them all. For {name} as a whole write an adapter:\n"
            f"{sketch(name)}"
        )
    names = [n for n, m in module.named_modules() if isinstance(m, nn.Linear)]
    first, last = names if len(names) == 2 else ("fc1", "fc2")
    record = f"mlpoly.MLP(m.{first}.weight, m.{first}.bias, m.{last}.weight, m.{last}.bias, activation='relu')"
    return (
        f"from_torch does not know {name}. Pass its weights, {record}, or an mlpoly.GLU for a gated unit. Once "
        f"for all modules of the class: mlpoly.integrations.torch.register_adapter({name}, lambda m: ...), with that "
        f"network. help(mlpoly.from_torch) lists what is known."
    )
