"""One pass through a network, layer by layer in the order of the data."""

from typing import Protocol, TypeVar

from mlpoly.networks.chain import Chain, Residual
from mlpoly.networks.layer import Layer, Network

S = TypeVar("S")


class Walk(Protocol[S]):
    """A computation that follows the data through a network; S is what it knows of the values at one place."""

    def layer(self, layer: Layer, state: S) -> S:
        """State behind a layer, given that before it."""

    def enter(self, state: S) -> S:
        """State with which the branch of a residual connection starts, given that before the connection."""

    def join(self, before: S, branch: S) -> S:
        """State behind a residual connection, given those before it and at the end of its branch."""


def walk(net: Network, steps: Walk[S], state: S) -> S:
    """State behind a network, given that before it."""
    if isinstance(net, Chain):
        for part in net.layers:
            state = walk(part, steps, state)
        return state
    if isinstance(net, Residual):
        return steps.join(state, walk(net.net, steps, steps.enter(state)))
    if isinstance(net, Layer):
        return steps.layer(net, state)
    raise TypeError(f"{type(net).__name__} is a network of an unknown kind.")


def layers_of(net: Network) -> list[Layer]:
    """All layers of a network, those within residual connections included, in the order of the data."""
    if isinstance(net, Layer):
        return [net]
    parts = net.parts if isinstance(net, Chain | Residual) else ()
    return [layer for part in parts for layer in layers_of(part)]
