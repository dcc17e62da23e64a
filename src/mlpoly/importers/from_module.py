"""From a torch module to a network, by the adapters that match it."""

from __future__ import annotations

import warnings
from typing import Any

from torch import nn

from mlpoly.importers.adapters import Adapter, matching_adapters
from mlpoly.importers.advice import advice, check_visible
from mlpoly.importers.parts import final_softmax
from mlpoly.importers.probe import MismatchError, UnrunError, check_computes, unwrapped, without
from mlpoly.networks import Network


def from_torch(module: nn.Module) -> Network:
    """See `mlpoly.from_torch`."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}.")
    module = unwrapped(module)
    check_visible(module)
    softmax = final_softmax(module)
    if softmax is None:
        return convert(module)
    net = convert(without(module, softmax))
    warnings.warn(
        f"from_torch leaves out the {type(softmax).__name__} at the end of {type(module).__name__}: the network's "
        f"outputs are the logits that enter it.",
        stacklevel=3,
    )
    return net


def convert(module: nn.Module, *, part: bool = False) -> Network:
    """The network of the latest adapter that matches a module and finds what it expects.

    With `part`, also one that is only a part of what the module does.
    """
    refused: MismatchError | None = None
    for adapter in matching_adapters(module):
        if adapter.entry and not part:
            raise TypeError(
                f"{type(module).__name__} does more than its feedforward block, between {adapter.entry!r} and "
                f"{adapter.exit or 'the end'!r}. The network of that block alone is "
                f"mlpoly.find_blocks(module)[0].net()."
            )
        try:
            net = adapter.convert(module)
            if not isinstance(net, Network):
                raise TypeError(
                    f"the adapter for {type(module).__name__} returned {type(net).__name__}; it must return an MLP or "
                    f"a GLU, or an mlpoly.Chain, Residual or Affine."
                )
            if adapter.own or adapter.entry:
                _check(adapter, module, net)
        except MismatchError as error:  # names of parts promised a block, but it may still be its parts in order
            if adapter.own:
                raise
            refused = refused or error
            continue
        return net
    raise refused or TypeError(advice(module))


def _check(adapter: Adapter, module: nn.Module, net: Network) -> None:
    """Raise unless the network of an adapter computes what the module does on test inputs, if it takes such."""
    name = type(module).__name__
    unlike = f"the network of the adapter for {name} is not what the module computes"
    remedy = "Compare its activation, weights and biases with forward; the latest adapter that is registered is used."
    # A block of a model takes sequences, a network of its own rows.
    ways: list[dict[str, Any]] = [{"ends": (adapter.entry, adapter.exit)}] if adapter.entry else [{}, {"whole": True}]
    refused: list[MismatchError] = []
    for way in ways:
        try:
            return check_computes(module, net, unlike, remedy, **way)
        except MismatchError as error:
            refused.append(error)
    different = next((error for error in refused if not isinstance(error, UnrunError)), None)
    if different is not None:
        raise different
    if adapter.own:
        warnings.warn(
            f"the network of the adapter for {name} is not compared with the module, which does not run on a tensor "
            f"alone: {refused[-1].__cause__!r}.",
            stacklevel=4,
        )
