"""The registry of adapters: which modules `from_torch` takes, and how."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mlpoly.networks import Network

Predicate = Callable[[nn.Module], bool]


@dataclass(frozen=True)
class Adapter:
    """Conversion of one kind of module to a network; see `register_adapter` for the fields that it has too.

    `find_blocks` looks for those that are `listed` in whole models, whose networks are an `MLP` or `GLU`. Modules that
    an adapter of a user's `own` matches are not taken apart.
    """

    matches: type[nn.Module] | Predicate
    convert: Callable[[Any], Network]
    entry: str = ""
    exit: str = ""
    listed: bool = True
    own: bool = False

    def takes(self, module: nn.Module) -> bool:
        """Whether the adapter matches a module."""
        return isinstance(module, self.matches) if isinstance(self.matches, type) else bool(self.matches(module))


ADAPTERS: list[Adapter] = []  # the latest one that matches is used


def matching_adapters(module: nn.Module) -> Iterator[Adapter]:
    """The adapters that match a module, the latest first; none for TorchScript, which hides the parts of a module."""
    hidden = isinstance(module, torch.jit.ScriptModule)
    return (adapter for adapter in reversed(ADAPTERS) if not hidden and adapter.takes(module))


def find_adapter(module: nn.Module) -> Adapter | None:
    """The latest adapter that matches a module, or None."""
    return next(matching_adapters(module), None)


def has_own_adapter(module: nn.Module) -> bool:
    """Whether a user registered an adapter that matches a module."""
    return any(adapter.own for adapter in matching_adapters(module))


def register_adapter(
    matches: type[nn.Module] | Predicate, adapter: Callable[[Any], Network], *, entry: str = "", exit: str = ""
) -> None:
    """Teach `from_torch` and `find_blocks` a block of your own; the latest adapter that matches is used.

    Parameters
    ----------
    matches : type or callable
        A class of modules (its subclasses included), or a function that says whether the adapter applies to a module.
    adapter : callable
        Function from the module to a network over its parameters: an `MLP` or `GLU` for a block of a model, else also
        a `Chain`, `Residual` or `Affine`. Network and module are compared on test inputs.
    entry, exit : str
        Submodules that take the block's input and return its output, such as "fc1" and "fc2", for a block that is only
        a part of the module.

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> from mlpoly.importers.torch import register_adapter
    >>> class Squared(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x) ** 2
    >>> register_adapter(Squared, lambda m: mp.MLP(m.weight, m.bias, activation="square"))
    >>> mp.from_torch(Squared(3, 8))
    MLP(3 -> 8 -> 8, square)
    """
    if not callable(matches) or not callable(adapter):
        raise TypeError(
            "register_adapter takes a module class or a function of a module, and a function that converts it."
        )
    if not isinstance(entry, str) or not isinstance(exit, str):
        raise TypeError(f"entry and exit must be names of submodules such as 'fc1', got {entry!r} and {exit!r}.")
    ADAPTERS.append(Adapter(matches, adapter, entry, exit, own=True))
