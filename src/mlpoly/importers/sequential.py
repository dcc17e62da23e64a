"""The adapters for networks of Linears and activations: as nn.Sequential, and as parts of a class under any names."""

from __future__ import annotations

from torch import nn

from mlpoly.activations import Activation
from mlpoly.importers.adapters import Adapter
from mlpoly.importers.advice import ROUTE, check_parts
from mlpoly.importers.batch_norm import is_batch_norm, scaling
from mlpoly.importers.from_module import convert
from mlpoly.importers.parts import kind_of, parts_of
from mlpoly.importers.probe import MismatchError, check_computes
from mlpoly.importers.torch_activations import activation_from_torch
from mlpoly.importers.weights import is_plain, linear_weights
from mlpoly.networks import Affine, Chain, Network, Residual
from mlpoly.networks.assemble import Piece, PieceError, Scaling, Slopes, assemble

_REMEDY = (
    "Forward hooks, or a forward other than the parts in their order (a class may add its input to them), make it "
    "another function: remove them, or pass the weights yourself: mlpoly.MLP(W1, b1, W2, b2, activation=...), several "
    f"in an mlpoly.Chain, with mlpoly.Residual for residual connections. {ROUTE}"
)


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
            several = isinstance(part, nn.PReLU) and part.weight.numel() > 1
            pieces.append(Slopes(part.weight) if several else activation_from_torch(part))
        else:
            net = convert(part)
            pieces += net.layers if isinstance(net, Chain) else [net]
    if not any(isinstance(piece, (Network, Scaling)) for piece in pieces):
        found = ", ".join(type(part).__name__ for part in parts) or "no modules"
        raise TypeError(f"from_torch needs a Linear, which tells the number of inputs; got {found}.")
    return pieces


def _alternating(pieces: list[Piece]) -> list[Piece]:
    """The pieces of a class that has one activation and uses it before every Linear but the first."""
    activations = [piece for piece in pieces if isinstance(piece, (Activation, Slopes))]
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
    try:
        return assemble(pieces)
    except PieceError as error:
        raise MismatchError(str(error)) from error


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
ADAPTERS = (
    Adapter(_is_network_class, from_parts, listed=False),
    Adapter(
        lambda m: any(is_plain(m, kind) for kind in (nn.Sequential, nn.Linear)) or is_batch_norm(m),
        from_sequential,
        listed=False,
    ),
    # A single Linear is not a block to search a model for, and neither is a deep network.
    Adapter(_is_block, from_sequential),
)
