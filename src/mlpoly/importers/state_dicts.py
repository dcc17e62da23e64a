"""Networks from weights by name, as state dicts of PyTorch and files of weights have them."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mlpoly.activations import Activation, get
from mlpoly.networks import GLU, Network
from mlpoly.networks.assemble import Layout, from_layers

Pair = tuple[np.ndarray, np.ndarray | None]  # weight and bias

_ROLES = {"weight": "weight", "kernel": "weight", "W": "weight", "w": "weight", "bias": "bias", "b": "bias"}
# Names of gate, other factor and readout of gated units.
_GATED = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"), ("wi_0", "wi_1", "wo"))


def network_from_state(
    state: Mapping[str, np.ndarray],
    activation: str | Activation | Sequence[str | Activation | None] | None = None,
    layout: Layout | None = None,
    *,
    ordered: bool = True,
) -> Network:
    """Return the network of weights by name; `read_network` describes the names and arguments.

    With `ordered`, the order of the mapping is that in which a module defines its layers, as in a state dict.
    """
    common = _common_prefix(list(state))
    state = {name.removeprefix(common): np.asarray(a) for name, a in state.items()}
    groups, words = _groups(state)
    layout = layout or ("in_out" if words == {"kernel"} else "out_in")
    for parts in _GATED:
        if set(parts) == set(groups):
            _needed(activation)
            weights = [groups[part]["weight"] if layout == "out_in" else groups[part]["weight"].T for part in parts]
            gate, up, down = zip(weights, [groups[part].get("bias") for part in parts], strict=True)
            return GLU(*gate, *up, *down, activation=_single(activation))
    linear = {name: (group["weight"], group.get("bias")) for name, group in groups.items()}
    if len(linear) > 1:
        _needed(activation)
    order = _in_order(linear, ordered)
    if isinstance(activation, (str, Activation)) and len(order) > 2:
        sizes = [linear[name][0].shape for name in order]
        sizes = sizes if layout == "out_in" else [shape[::-1] for shape in sizes]
        activation = _activations(order, sizes, activation)
    elif isinstance(activation, Sequence) and not isinstance(activation, str):
        activation = [None if each == "identity" else each for each in activation]
    return from_layers([linear[name] for name in order], activation or "identity", layout)


def _activations(names: Sequence[str], sizes: Sequence[tuple[int, ...]], activation: Any) -> list[Any]:
    """The activations between layers, None where there is none; a ValueError where there may be one or none."""
    numbers = [int(name) for name in names] if all(name.isdigit() for name in names) else []
    steps = [two - one for one, two in pairwise(numbers)]
    if max(steps, default=1) > 1:  # of a Sequential, where activations have numbers too
        return [activation if step > 1 else None for step in steps]
    for i, ((_, before), (behind, inner)) in enumerate(pairwise(sizes)):
        if inner < min(before, behind):
            given = [repr(getattr(activation, "name", activation))] * (len(names) - 1)
            none = [*given[:i], "None", *given[i + 1 :]]
            raise ValueError(
                f"{names[i]} and {names[i + 1]} map {before} -> {inner} -> {behind} values, as two parts of one linear "
                f"map of low rank do, and as hidden layers of an autoencoder do; weights do not show whether there is "
                f"an activation between them. Name one for each place: activation=[{', '.join(given)}], or "
                f"[{', '.join(none)}] if there is none there (identity on the command line)."
            )
    return [activation] * (len(names) - 1)


def _in_order(layers: Mapping[str, Pair], ordered: bool) -> list[str]:
    """The layers in the order in which the network computes them."""
    names = sorted(layers, key=_natural)
    if len({re.sub(r"\d+", "#", name) for name in names}) == 1:  # they differ in their numbers alone
        return names
    if ordered:
        return list(layers)
    raise ValueError(
        f"the names {', '.join(names)} do not show the order of the layers; pass them in order in Python: "
        f"mlpoly.MLP.from_layers([(W, b), ...], activation=...)."
    )


def _needed(activation: Any) -> None:
    if activation is None:
        raise ValueError(
            "weights do not show the activation of the hidden layers; name it, activation='relu' or, on the command "
            "line, --activation relu."
        )


def _single(activation: Any) -> Activation:
    if isinstance(activation, Sequence) and not isinstance(activation, str):
        if len({get(each or "identity") for each in activation}) != 1:
            raise ValueError("activation must be one name for a gated unit.")
        activation = activation[0]
    return get(activation or "identity")


def _common_prefix(names: Sequence[str]) -> str:
    """The parts, separated by dots, that all names begin with."""
    split = [name.split(".")[:-1] for name in names]
    shared = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "".join(f"{part}." for part in shared)


def _natural(name: str) -> list[Any]:
    """Key that sorts numbers in names by value."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def _groups(state: Mapping[str, np.ndarray]) -> tuple[dict[str, dict[str, np.ndarray]], set[str]]:
    """Arrays by layer and role, and the words that name the weights; a ValueError for what no layer has."""
    groups: dict[str, dict[str, np.ndarray]] = {}
    words = set()
    for name, a in state.items():
        layer, _, last = name.rpartition(".")
        if last in ("running_mean", "num_batches_tracked"):
            raise ValueError(
                f"the file has a batch norm ({layer}), and not where the activations are. {_remedy(state)}"
            )
        if last not in _ROLES:
            match = re.fullmatch(r"(.*?)(weight|kernel|W|w|bias|b)_?(\d+)", name)
            if match is None:
                raise ValueError(f"{name!r} is not a weight or bias of a linear layer. {_remedy(state)}")
            layer, last = f"{match[1]}{match[3]}", match[2]
        role = _ROLES.get(last, last)
        if role == "weight" and a.ndim == 2:
            words.add(last)
        groups.setdefault(layer, {})[role] = a
    for layer, arrays in groups.items():
        weight = arrays.get("weight")
        if weight is None or weight.ndim != 2:
            shape = "no weight" if weight is None else f"a weight of shape {weight.shape}"
            kind = {1: ": a normalisation, or slopes of PReLU", 3: ": a convolution", 4: ": a convolution"}
            why = kind.get(0 if weight is None else weight.ndim, "")
            raise ValueError(f"{layer or 'a layer'!r} has {shape}, not a matrix{why}. {_remedy(state)}")
    return groups, words


def _remedy(state: Mapping[str, Any]) -> str:
    shown = ", ".join(list(state)[:4])
    more = ", ..." if len(state) > 4 else ""
    return (
        f"The file holds {shown}{more}, which are not the layers of one feedforward network: convert the model in "
        f"Python with mlpoly.from_torch(model), a language model with `mlpoly lm`."
    )
