"""Deep networks: one network after the other, and residual connections."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from mlpoly.arrays import Array, check_points, namespace
from mlpoly.networks.layer import Layer, Network
from mlpoly.records import arrays_of, record
from mlpoly.tables import Table


class _Composite(Network):
    """A network made of others: its inputs are those of the first, its outputs those of the last."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Network, ...]:
        """The networks, in order."""

    @property
    def dim_out(self) -> int:
        """Number of outputs o."""
        return self.parts[-1].dim_out

    @property
    def prototype(self) -> Array:
        """The first weight matrix."""
        return self.parts[0].prototype

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the inputs, or None."""
        return self.parts[0].names

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """Names of the outputs, or None."""
        return self.parts[-1].output_names

    @property
    def activations(self) -> tuple[str, ...]:
        """Names of the activations, in order, each once."""
        names = dict.fromkeys(name for part in self.parts for name in part.activations)
        return tuple(name for name in names if name != "identity") or ("identity",)


@record
class Chain(_Composite):
    """A deep network, `f(x) = layers[-1](... layers[1](layers[0](x)))`.

    Parameters
    ----------
    layers : sequence of networks
        Each takes the outputs of the one before; another `Chain` is taken apart.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> deep = mp.Chain([mp.MLP(np.ones((4, 2))), mp.MLP(np.ones((3, 4))), mp.Affine(np.ones((1, 3)))])
    >>> deep, deep(np.array([[1.0, 1.0]])).tolist()
    (Chain(2 -> 4 -> 3 -> 1), [[24.0]])
    """

    layers: tuple[Network, ...]

    def __init__(self, layers: Sequence[Network]) -> None:
        if isinstance(layers, Network) or not isinstance(layers, Sequence):
            raise TypeError(f"layers must be a list of networks, got {type(layers).__name__}.")
        flat: list[Network] = []
        for i, layer in enumerate(layers):
            check_kind(f"layers[{i}]", layer)
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
    def parts(self) -> tuple[Network, ...]:
        """The layers."""
        return self.layers

    @property
    def entry(self) -> Array | None:
        """Linear forms of the inputs that enter the first layer; None before a residual connection."""
        return self.layers[0].entry

    def __call__(self, x: Array) -> Array:
        """Outputs (..., o) of inputs x (..., d)."""
        for layer in self.layers:
            x = layer(x)
        return x

    def _table(self) -> Table:
        numbers = [sum(math.prod(a.shape) for a in arrays_of(part).values()) for part in self.layers]
        rows = tuple(zip(range(len(numbers)), map(repr, self.layers), numbers, strict=True))
        return Table(("layer", "what it is", "numbers"), rows, repr(self), limit=30)

    def __repr__(self) -> str:
        sizes = [self.dim_in]
        for layer in self.layers:
            sizes += [layer.dim_hidden] if isinstance(layer, Layer) and layer.readout is not None else []
            sizes.append(layer.dim_out)
        return f"Chain({' -> '.join(map(str, sizes))})"


@record
class Residual(_Composite):
    """f(x) = x + net(x), for a network with as many outputs as inputs.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> mp.Residual(mp.MLP(np.eye(2)))(np.array([[1.0, -1.0]])).tolist()
    [[2.0, -1.0]]
    """

    net: Network

    def __post_init__(self) -> None:
        check_kind("net", self.net)
        if self.net.dim_in != self.net.dim_out:
            raise ValueError(
                f"net maps {self.net.dim_in} inputs to {self.net.dim_out} outputs; a residual connection needs as many "
                f"outputs as inputs."
            )

    @property
    def parts(self) -> tuple[Network, ...]:
        """The network of the branch."""
        return (self.net,)

    @property
    def entry(self) -> None:
        """None: the inputs themselves are among the terms of the outputs."""

    def __call__(self, x: Array) -> Array:
        """Outputs (..., d) of inputs x (..., d)."""
        x = check_points(x, self.dim_in, weights=self.prototype)
        return x + self.net(x)

    def __repr__(self) -> str:
        return f"Residual({self.net!r})"


# Calls that import models of other libraries. On its PyTorch backend, a model of Keras is a torch module too.
_IMPORTS = {
    "keras": "from_keras(model)",
    "equinox": "from_equinox(module)",
    "flax": "from_flax(module, variables)",
    "torch": "from_torch(module)",
    "sklearn": "from_sklearn(pipeline)",
}


def import_call(model: Any) -> str | None:
    """The call of this library that makes a network of a model of another one."""
    libraries = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    return next((call for library, call in _IMPORTS.items() if library in libraries), None)


def import_hint(model: Any) -> str:
    """The end of an error about a model of another library."""
    call = import_call(model)
    return f"; convert it first with mlpoly.{call}" if call else ""


def check_kind(name: str, net: Any) -> None:
    """Raise unless this is a network of this library."""
    if not isinstance(net, Network):
        kinds = "an mlpoly.MLP, GLU, Affine, Residual or Chain"
        raise TypeError(f"{name} must be {kinds}, got {type(net).__name__}{import_hint(net)}.")
