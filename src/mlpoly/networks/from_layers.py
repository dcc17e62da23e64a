"""A network from the weights of its layers, in PyTorch's layout or transposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    layout: Layout = "out_in",
) -> Network:
    """See `mlpoly.MLP.from_layers`."""
    pairs = _checked_pairs(layers)
    if layout not in get_args(Layout):
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
        hint = f"in the layout {layout!r}; pass layout={_USERS}"
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
