"""A network from the weights of its layers, in the layout of any library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args

from mlpoly.activations import Activation, get
from mlpoly.arrays import Array
from mlpoly.networks.affine import Affine
from mlpoly.networks.assemble import Piece, assemble
from mlpoly.networks.layer import Network
from mlpoly.networks.weight_checks import check_bias, check_weight

Layout = Literal["out_in", "in_out"]
ActivationLike = str | Activation | Callable[[Array], Array]

_USERS = "'out_in' for PyTorch and Equinox, 'in_out' for scikit-learn, Keras and Flax"


def from_layers(
    layers: Sequence[tuple[Array, Array | None]],
    activation: ActivationLike | Sequence[ActivationLike | None] = "relu",
    layout: Layout | None = None,
) -> Network:
    """See `mlpoly.MLP.from_layers`."""
    pairs = _checked_pairs(layers)
    if layout is None:
        layout = _found_layout([(tuple(W.shape), None if b is None else tuple(b.shape)) for W, b in pairs])
    elif layout not in get_args(Layout):
        raise ValueError(f"layout must be {_USERS}, got {layout!r}.")
    several = isinstance(activation, Sequence) and not isinstance(activation, str)
    activations: Any = activation if several else [activation] * (len(pairs) - 1)
    if len(activations) != len(pairs) - 1:
        raise ValueError(
            f"activation has {len(activations)} entries, but {len(pairs)} layers have {len(pairs) - 1} activations "
            f"between them; give one name for all, or a list of {len(pairs) - 1}."
        )
    pieces: list[Piece] = []
    outputs = None
    for i, (W, b) in enumerate(pairs):
        weight = W if layout == "out_in" else W.T
        hint = f"in the layout {layout!r}; layout is {_USERS}"
        if outputs not in (None, weight.shape[1]):
            takes = f"layers[{i}] takes {weight.shape[1]} inputs, but layers[{i - 1}] has {outputs} outputs"
            raise ValueError(f"{takes} {hint}.")
        outputs = weight.shape[0]
        check_bias(f"the bias of layers[{i}]", b, outputs, f" {hint}")
        pieces.append(Affine(weight, b))
        if i < len(activations) and activations[i] is not None:
            pieces.append(get(activations[i]))
    return assemble(pieces)


def _checked_pairs(layers: Any) -> list[tuple[Array, Array | None]]:
    if not isinstance(layers, Sequence) or isinstance(layers, (str, bytes)) or not layers:
        raise TypeError(f"layers must be a list of pairs (weight, bias), got {type(layers).__name__} {layers!r:.60}.")
    pairs = []
    for i, pair in enumerate(layers):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"layers[{i}] must be a pair (weight, bias), where the bias may be None, got {type(pair).__name__}."
            )
        W, b = pair
        W = check_weight(f"the weight of layers[{i}]", W, (None, None), "a matrix")
        pairs.append((W, None if b is None else check_weight(f"the bias of layers[{i}]", b, (None,), "a vector")))
    return pairs


def _found_layout(shapes: Sequence[tuple[tuple[int, ...], tuple[int, ...] | None]]) -> Layout:
    """The layout in which weights and biases of these shapes fit together, or raise unless it is one of the two."""
    fits: list[Layout] = []
    for layout in get_args(Layout):
        out, into = (0, 1) if layout == "out_in" else (1, 0)
        joined = all(two[0][into] == one[0][out] for one, two in pairwise(shapes))
        if joined and all(bias is None or bias == (weight[out],) for weight, bias in shapes):
            fits.append(layout)
    if len(fits) == 1:
        return fits[0]
    shown = ", ".join(f"{weight} with bias {bias}" if bias else f"{weight}" for weight, bias in shapes)
    if fits:
        raise ValueError(f"the weights {shown} fit together in both layouts; pass layout={_USERS}.")
    raise ValueError(
        f"the weights {shown} do not fit together: each takes as many inputs as the one before it has outputs, in "
        f"one layout for all, layout={_USERS}."
    )
