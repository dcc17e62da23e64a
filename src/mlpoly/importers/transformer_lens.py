"""The feedforward blocks of TransformerLens, whose weights are parameters (inputs, outputs) of the block itself."""

from __future__ import annotations

from typing import Any

from torch import nn

from mlpoly.activations import Activation, get
from mlpoly.errors import UnknownActivationError
from mlpoly.importers.adapters import Adapter
from mlpoly.importers.probe import MismatchError, check_computes
from mlpoly.importers.torch_activations import activation_from_torch
from mlpoly.importers.weights import Weights, in_one_dtype
from mlpoly.networks import GLU, MLP, Layer

_PARAMETERS = {"W_in", "b_in", "W_gate", "b_gate", "W_out", "b_out"}
_REMEDY = "Write an adapter for it, see mlpoly.importers.torch.register_adapter."


def from_transformer_lens(module: Any) -> Layer:
    """Convert a block with the parameters W_in, W_out, perhaps W_gate, and biases, and the function act_fn."""
    unlike = f"{type(module).__name__} has parameters named as in TransformerLens, but is not the block they form there"
    into, out = _weights(module, "in"), _weights(module, "out")
    activation = _activation(module.act_fn)
    if getattr(module, "W_gate", None) is None:
        (W1, b1), (W2, b2) = in_one_dtype([into, out])
        candidates: list[Layer] = [MLP(W1, b1, W2, b2, activation)]
    else:
        (V, c), (W1, b1), (W2, b2) = in_one_dtype([_weights(module, "gate"), into, out])
        plain = GLU(V, c, W1, b1, W2, b2, activation)
        # TransformerLens adds b_in to the product of gate and W_in x, where W_out carries it to the outputs.
        moved = None if b1 is None else W2 @ b1
        shift = b2 if moved is None else moved if b2 is None else moved + b2
        candidates = [GLU(V, c, W1, None, W2, shift, activation), plain]
    refused: MismatchError | None = None
    for net in candidates:
        try:
            check_computes(module, net, unlike, _REMEDY)
            return net
        except MismatchError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _weights(module: Any, name: str) -> Weights:
    """Weight (rows for outputs), a view of the parameter, and bias."""
    return getattr(module, f"W_{name}").T, getattr(module, f"b_{name}", None)


def _activation(function: Any) -> Activation:
    """The activation of a block; a function of TransformerLens, such as gelu_new, is known by its name.

    Test inputs show whether it is the one of that name.
    """
    try:
        return activation_from_torch(function)
    except TypeError:
        try:
            return get(getattr(function, "__name__", ""))
        except UnknownActivationError:
            pass
        raise


def _is_block(module: nn.Module) -> bool:
    own = {name: p for name, p in module._parameters.items() if p is not None}
    matrices = [p for name, p in own.items() if name.startswith("W_")]
    inside = any(True for child in module.children() for _ in child.parameters())
    named = {"W_in", "W_out"} <= set(own) <= _PARAMETERS
    return named and not inside and all(p.ndim == 2 for p in matrices) and callable(getattr(module, "act_fn", None))


ADAPTERS = (Adapter(_is_block, from_transformer_lens, label="TransformerLens"),)
