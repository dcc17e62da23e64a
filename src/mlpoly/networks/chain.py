"""Deep networks: one network after the other, and residual connections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np

from mlpoly.arrays import Array, check_points, constant, namespace
from mlpoly.networks.affine import Affine
from mlpoly.networks.layer import Forms, Layer, Network
from mlpoly.records import arrays_of, record
from mlpoly.tables import Table

S = TypeVar("S")


@record
class Chain(Network):
    """A deep network, `f(x) = layers[-1](... layers[1](layers[0](x)))`.

    Parameters
    ----------
    layers : sequence of networks
        Each takes the outputs of the one before: `MLP` (with W2=None its hidden units are its outputs), `GLU`,
        `Affine`, `Residual` or another `Chain`, which is taken apart.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> deep = mp.Chain([mp.MLP(np.ones((4, 2))), mp.MLP(np.ones((3, 4))), mp.Affine(np.ones((1, 3)))])
    >>> deep
    Chain(2 -> 4 -> 3 -> 1)
    >>> deep(np.array([[1.0, 1.0]])).tolist()
    [[24.0]]
    """

    layers: tuple[Network, ...]

    def __init__(self, layers: Sequence[Network]) -> None:
        if isinstance(layers, Network) or not isinstance(layers, Sequence):
            raise TypeError(f"layers must be a list of networks, got {type(layers).__name__}.")
        flat: list[Network] = []
        for i, layer in enumerate(layers):
            _check(f"layers[{i}]", layer)
            flat += layer.layers if isinstance(layer, Chain) else [layer]
        if not flat:
            raise ValueError("layers is empty; a Chain needs at least one network, such as mlpoly.MLP(W1, b1).")
        namespace(**{f"layers_{i}": layer.prototype for i, layer in enumerate(flat)})
        for i, (one, two) in enumerate(pairwise(flat)):
            if one.dim_out != two.dim_in:
                raise ValueError(
                    f"layers[{i + 1}] takes {two.dim_in} inputs, but layers[{i}] has {one.dim_out} outputs: "
                    f"{one!r} before {two!r}."
                )
            if one.prototype.dtype != two.prototype.dtype:
                raise TypeError(
                    f"layers[{i}] is {one.prototype.dtype} and layers[{i + 1}] is {two.prototype.dtype}; convert one "
                    f"with .to(other.prototype)."
                )
        object.__setattr__(self, "layers", tuple(flat))

    @property
    def dim_in(self) -> int:
        """Number of inputs d."""
        return self.layers[0].dim_in

    @property
    def dim_out(self) -> int:
        """Number of outputs o."""
        return self.layers[-1].dim_out

    @property
    def prototype(self) -> Array:
        """The first weight matrix."""
        return self.layers[0].prototype

    @property
    def entry(self) -> Array | None:
        """Linear forms of the inputs that enter the first layer; None before a residual connection."""
        return self.layers[0].entry

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the inputs, or None."""
        return self.layers[0].names

    @property
    def activations(self) -> tuple[str, ...]:
        """Names of the activations, in order, each once."""
        names = dict.fromkeys(name for layer in self.layers for name in layer.activations)
        return tuple(name for name in names if name != "identity") or ("identity",)

    def __call__(self, x: Array) -> Array:
        """Outputs (..., o) of inputs x (..., d)."""
        for layer in self.layers:
            x = layer(x)
        return x

    def _formula(self) -> str:
        if len(self.layers) > 4:
            return f"f_{len(self.layers)}(... f_2(f_1(x)))"
        made = "x"
        for i in range(1, len(self.layers) + 1):
            made = f"f_{i}({made})"
        return made

    def _table(self) -> Table:
        rows = [(f"f_{i}", repr(part), part._formula(), _numbers(part)) for i, part in enumerate(self.layers, 1)]
        columns = ("layer", "what it is", "formula", "numbers")
        return Table(columns, tuple(rows), repr(self), f"f(x) = {self._formula()}", limit=30)

    def __repr__(self) -> str:
        sizes = [self.dim_in]
        for layer in self.layers:
            sizes += [layer.dim_hidden] if isinstance(layer, Layer) and layer.readout is not None else []
            sizes.append(layer.dim_out)
        return f"Chain({' -> '.join(map(str, sizes))})"


@record
class Residual(Network):
    """f(x) = x + net(x).

    Parameters
    ----------
    net : network
        Any network with as many outputs as inputs.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> mp.Residual(mp.MLP(np.eye(2)))(np.array([[1.0, -1.0]])).tolist()
    [[2.0, -1.0]]
    """

    net: Network

    def __post_init__(self) -> None:
        _check("net", self.net)
        if self.net.dim_in != self.net.dim_out:
            raise ValueError(
                f"net maps {self.net.dim_in} inputs to {self.net.dim_out} outputs; a residual connection needs as many "
                f"outputs as inputs."
            )

    @property
    def dim_in(self) -> int:
        """Number of inputs d."""
        return self.net.dim_in

    @property
    def dim_out(self) -> int:
        """Number of outputs, d."""
        return self.net.dim_out

    @property
    def prototype(self) -> Array:
        """The first weight matrix."""
        return self.net.prototype

    @property
    def entry(self) -> None:
        """None: the inputs themselves are among the terms of the outputs."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the inputs, or None."""
        return self.net.names

    @property
    def activations(self) -> tuple[str, ...]:
        """Names of the activations, in order, each once."""
        return self.net.activations

    def __call__(self, x: Array) -> Array:
        """Outputs (..., d) of inputs x (..., d)."""
        x = check_points(x, self.dim_in, weights=self.prototype)
        return x + self.net(x)

    def _formula(self) -> str:
        return f"x + {self.net._formula()}"

    def __repr__(self) -> str:
        return f"Residual({self.net!r})"


def _numbers(net: Network) -> int:
    """Number of a network's weights and biases."""
    return sum(math.prod(a.shape) for a in arrays_of(net).values())


def check_network(net: Any) -> Network:
    """Return the network with its affine maps merged into its layers, or raise if it is not one of this library."""
    _check("net", net)
    return _simplified(net)


def check_layer(net: Any) -> Layer:
    """Return the network as one layer, or raise unless it is a network of this library with one hidden layer."""
    layer = check_network(net)
    if isinstance(layer, Layer):
        return layer
    raise TypeError(
        f"net must have one hidden layer here, got {net!r}; of deep networks mlpoly.propagate has the moments, "
        f"mlpoly.fit the polynomials and mlpoly.fvu their error."
    )


def _check(name: str, net: Any) -> None:
    if not isinstance(net, Network):
        sources = {"state_dict": "from_torch(module)", "get_params": "from_sklearn(estimator)"}
        hint = next((f"; convert it first with mlpoly.{s}" for name, s in sources.items() if hasattr(net, name)), "")
        raise TypeError(
            f"{name} must be an mlpoly.MLP, GLU, Affine, Residual or Chain, got {type(net).__name__}{hint}."
        )


# -- passes over a network, layer by layer -----------------------------------------------------------------------------


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


class _Collect:
    """A walk that notes the layers it passes."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []

    def layer(self, layer: Layer, state: None) -> None:
        self.layers.append(layer)

    def enter(self, state: None) -> None:
        """Nothing to note."""

    def join(self, before: None, branch: None) -> None:
        """Nothing to note."""


def layers_of(net: Network) -> list[Layer]:
    """All layers of a network, those within residual connections included, in the order of the data."""
    collected = _Collect()
    walk(net, collected, None)
    return collected.layers


def _simplified(net: Network) -> Network:
    """The same function with every affine map merged into a layer beside it; a chain of one layer is that layer."""
    if isinstance(net, Residual):
        return Residual(_simplified(net.net))
    if isinstance(net, Layer) and not net.dim_hidden:
        return _with_a_unit(net)
    if not isinstance(net, Chain):
        return net
    made: list[Network] = []
    for part in map(_simplified, net.layers):
        before = made[-1] if made else None
        if isinstance(part, Affine) and isinstance(before, Layer):
            made[-1] = before.followed_by(part)
        elif isinstance(part, Layer) and isinstance(before, Affine):
            made[-1] = part.preceded_by(before)
        else:
            made.append(part)
    return made[0] if len(made) == 1 else Chain(made)


def _with_a_unit(net: Layer) -> Layer:
    """A layer without hidden units as one with a single unit of zeros, so that no other code meets empty arrays."""
    W, rows = constant(np.zeros((1, net.dim_in)), net.prototype), constant(np.zeros((net.dim_out, 1)), net.prototype)
    return net.with_parts(Forms(W, None, None if net.forms.gate_directions is None else W), rows, net.bias)
