"""The adapters for networks of Linears and activations: as nn.Sequential, and as parts of a class under any names."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import torch
from torch import nn

from mlpoly.integrations.adapters import Adapter, add_adapter
from mlpoly.integrations.advice import check_parts
from mlpoly.integrations.batch_norm import Scaling, fold_scalings, is_batch_norm, scaling
from mlpoly.integrations.from_module import convert
from mlpoly.integrations.parts import kind_of, parts_of
from mlpoly.integrations.probe import MismatchError, check_computes
from mlpoly.integrations.torch_activations import activation_from_torch
from mlpoly.integrations.weights import is_plain, linear_weights
from mlpoly.networks import MLP, Affine, Chain, Network, Residual

__all__ = ["from_parts", "from_sequential"]

_REMEDY = (
    "Forward hooks, or a forward other than the parts in their order (a class may add its input to them), make it "
    "another function: remove them, or pass the weights yourself: mlpoly.MLP(W1, b1, W2, b2, activation=...), several "
    "in an mlpoly.Chain, with mlpoly.Residual for residual connections."
)

# What a part becomes at first: a network, the scaling of a batch norm, or still the module of an activation.
Piece = Network | Scaling | nn.Module


def from_sequential(module: nn.Module) -> Network:
    """Convert an nn.Sequential, or a Linear or batch norm alone."""
    whole = module if is_plain(module, nn.Sequential) else nn.Sequential(module)
    check_parts(whole)
    net = _assembled(_pieces(parts_of(whole)))
    check_computes(module, net, f"the {type(module).__name__} is more than its parts", _REMEDY, whole=True)
    return net


def from_parts(module: nn.Module) -> Network:
    """Convert a class that computes its parts in the order it defines them, or adds its input to what they give."""
    name = type(module).__name__
    check_parts(module)
    pieces = _pieces(parts_of(module))
    refused: MismatchError | None = None
    other = _alternating(pieces)
    for order in [pieces] if other == pieces else [pieces, other]:
        try:
            net = _assembled(order)
        except MismatchError as error:
            refused = refused or MismatchError(f"{name} has the parts of an MLP, but computes something else: {error}")
            continue
        for candidate in (net, Residual(net)) if net.dim_in == net.dim_out else (net,):
            try:
                unlike = f"{name} has the parts of an MLP, but computes something else"
                check_computes(module, candidate, unlike, _REMEDY, whole=True)
                return candidate
            except MismatchError as error:
                refused = refused or error
    assert refused is not None
    raise refused


def _pieces(parts: list[nn.Module]) -> list[Piece]:
    pieces: list[Piece] = []
    for i, part in enumerate(parts):
        kind = kind_of(part)
        if kind == "linear":
            pieces.append(Affine(*linear_weights(part, f"part {i}")))
        elif kind == "batch norm":
            pieces.append(scaling(part))
        elif kind == "activation":
            pieces.append(part)
        else:
            net = convert(part)
            pieces += net.layers if isinstance(net, Chain) else [net]
    return pieces


def _alternating(pieces: list[Piece]) -> list[Piece]:
    """The pieces of a class that has one activation and uses it before every Linear but the first."""
    activations = [piece for piece in pieces if isinstance(piece, nn.Module)]
    if len(activations) != 1:
        return pieces
    made: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, Affine) and made:
            made += activations
        if piece is not activations[0]:
            made.append(piece)
    return made


def _assembled(pieces: list[Piece]) -> Network:
    """The network that computes the pieces one after the other."""
    if not any(isinstance(piece, (Network, Scaling)) for piece in pieces):
        found = ", ".join(type(piece).__name__ for piece in pieces) or "no modules"
        raise TypeError(f"from_torch needs a Linear, which tells the number of inputs; got {found}.")
    _check_sizes(pieces)
    folded = fold_scalings(pieces)
    layers: list[Network] = []
    open_end = False  # whether the last layer ends with activations, so that an affine map can read them out
    for piece, following in zip_longest(folded, folded[1:]):
        before = layers[-1] if layers else None
        if isinstance(piece, nn.Module):
            if isinstance(before, Affine):
                layers[-1] = _hidden_layer(before, piece)
            else:  # activations of what the layer before gives
                layers.append(_hidden_layer(_identity(before, folded), piece))
        elif isinstance(following, nn.Module) or not isinstance(piece, Affine):
            layers.append(piece)
        elif isinstance(before, MLP) and open_end:
            layers[-1] = before.followed_by(piece)
        elif isinstance(before, Affine):
            layers[-1] = MLP(before.W, before.b, piece.W, piece.b, "identity")
        else:
            layers.append(piece)
        open_end = isinstance(piece, nn.Module)
    return layers[0] if len(layers) == 1 else Chain(layers)


def _check_sizes(pieces: list[Piece]) -> None:
    """Raise unless each piece takes as many inputs as the one before it gives, in one dtype and on one device."""
    size = None
    for piece in pieces:
        needed = size
        if isinstance(piece, Network):
            needed = piece.dim_in
        elif isinstance(piece, Scaling):
            needed = piece.size
        elif isinstance(piece, nn.PReLU) and piece.weight.numel() > 1:
            needed = piece.weight.numel()
        if size is not None and needed != size:
            raise MismatchError(f"{piece!r} takes {needed} inputs, but the parts before it give {size}.")
        size = piece.dim_out if isinstance(piece, Network) else needed
    places = {(str(p.prototype.dtype), str(p.prototype.device)) for p in pieces if isinstance(p, Network)}
    if len(places) > 1:
        found = ", ".join(f"{dtype} on {device}" for dtype, device in sorted(places))
        raise TypeError(f"the parts have weights of different kinds ({found}); convert the module with .to(...).")


def _identity(before: Network | None, pieces: list[Network | nn.Module]) -> Affine:
    """The identity at the place of a Linear that is missing before an activation."""
    known = before or next(piece for piece in pieces if isinstance(piece, Network))
    weight: Any = known.prototype
    size = known.dim_in if before is None else known.dim_out
    return Affine(torch.eye(size, dtype=weight.dtype, device=weight.device))


def _hidden_layer(first: Affine, activation: nn.Module) -> MLP:
    if not isinstance(activation, nn.PReLU) or activation.weight.numel() == 1:
        return MLP(first.W, first.b, None, None, activation_from_torch(activation))
    # One slope per unit, as two ReLUs per unit: y if y > 0 else s y = relu(y) - s relu(-y).
    W, b = first.W, first.b
    slopes = torch.diag(activation.weight.to(W.dtype))
    readout = torch.cat([torch.eye(len(W), dtype=W.dtype, device=W.device), -slopes], 1)
    return MLP(torch.cat([W, -W]), None if b is None else torch.cat([b, -b]), readout, None, "relu")


def _is_network_class(module: nn.Module) -> bool:
    """Whether a class has parts that form a network, and no other parameters, which `from_parts` would ignore."""
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)) or any(True for _ in module.parameters(recurse=False)):
        return False
    kinds = {kind_of(part) for part in parts_of(module)}
    return "unknown" not in kinds and ("network" in kinds or kinds >= {"linear", "activation"})


def _is_block(module: nn.Module) -> bool:
    """Whether a Sequential is Linear, activation, Linear. An unknown activation is named by `from_sequential`."""
    parts = parts_of(module) if is_plain(module, nn.Sequential) else []
    ends = len(parts) == 3 and is_plain(parts[0], nn.Linear) and is_plain(parts[2], nn.Linear)
    return ends and kind_of(parts[1]) in ("activation", "unknown")


# Later adapters come first, so this one is the last resort. Whether a class computes its parts in order is only known
# after a test, so whole models are not searched for it.
add_adapter(Adapter(_is_network_class, from_parts, listed=False))
add_adapter(
    Adapter(
        lambda m: any(is_plain(m, kind) for kind in (nn.Sequential, nn.Linear)) or is_batch_norm(m),
        from_sequential,
        listed=False,
    )
)
# A single Linear is not a block to search a model for, and neither is a deep network.
add_adapter(Adapter(_is_block, from_sequential))
