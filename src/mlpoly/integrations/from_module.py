"""From a torch module to a network, by the adapters that match it."""

from __future__ import annotations

import warnings

from torch import nn

from mlpoly.integrations.adapters import matching_adapters
from mlpoly.integrations.advice import advice
from mlpoly.integrations.parts import final_softmax
from mlpoly.integrations.probe import MismatchError, unwrapped, without
from mlpoly.networks import Network

__all__ = ["convert", "from_torch"]


def from_torch(module: nn.Module) -> Network:
    """See `mlpoly.from_torch`."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}.")
    module = unwrapped(module)
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


def convert(module: nn.Module) -> Network:
    """The network of the latest adapter that matches a module and finds what it expects."""
    refused: MismatchError | None = None
    for adapter in matching_adapters(module):
        try:
            net = adapter.convert(module)
        except MismatchError as error:  # names of parts promised a block, but it may still be its parts in order
            refused = refused or error
            continue
        if not isinstance(net, Network):
            raise TypeError(
                f"the adapter for {type(module).__name__} returned {type(net).__name__}; it must return an MLP or a "
                f"GLU, or an mlpoly.Chain, Residual or Affine."
            )
        return net
    raise refused or TypeError(advice(module))
