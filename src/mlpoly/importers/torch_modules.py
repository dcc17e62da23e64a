"""From a torch module to a network, by the adapters that match it; those for Linears and activations are here."""

from __future__ import annotations

import warnings
from typing import Any

from torch import nn

from mlpoly.activations import Activation
from mlpoly.importers.adapters import Adapter, matching_adapters
from mlpoly.importers.advice import ROUTE, advice, check_parts, check_visible
from mlpoly.importers.parts import batch_scaling, final_softmax, is_batch_norm, kind_of, linear_weights, parts_of
from mlpoly.importers.probe import (
    MismatchError,
    UnrunError,
    check_computes,
    first_computed,
    is_plain,
    unwrapped,
    without,
)
from mlpoly.importers.torch_activations import activation_from_torch
from mlpoly.networks import Affine, Chain, Network, Residual
from mlpoly.networks.assemble import Piece, PieceError, Scaling, Slopes, assemble

_REMEDY = (
    "Forward hooks, or a forward other than the parts in their order (a class may add its input to them), make it "
    "another function: remove them, or pass the weights yourself: mlpoly.MLP(W1, b1, W2, b2, activation=...), several "
    f"in an mlpoly.Chain, with mlpoly.Residual for residual connections. {ROUTE}"
)


def from_torch(module: nn.Module) -> Network:
    """Return the weights of a torch module as a network that `fit` and `propagate` take.

    The network is the module in evaluation mode, over its own parameters: results can be differentiated with respect
    to them, and an optimiser step on the module changes the network. Only weights that have to be computed (batch norms
    folded in, parametrisations, slopes of PReLU) keep the values they have now.

    Parameters
    ----------
    module : torch.nn.Module
        An ``nn.Sequential`` of any depth. Linears and activations become layers. A batch norm in evaluation mode is
        folded into a Linear beside it. Dropout, Identity and ``Flatten(start_dim=1)`` are passed over: the network's
        inputs are rows. A Softmax or LogSoftmax at the end is left out with a warning, and the outputs are the logits.

        A class of your own with such parts, under any names, if it computes them in the order in which it defines
        them, perhaps with one activation for all layers, or adds its input to what they give.

        A feedforward block of Hugging Face transformers (of a layer, if the block has no module of its own,
        `find_blocks` finds it), or of TransformerLens.

        Any other module needs an adapter, see `mlpoly.importers.torch.register_adapter`, or the way through ONNX:
        ``torch.onnx.export(module.eval(), x, "model.onnx", dynamo=False)``, then `from_onnx`.

    Returns
    -------
    MLP, GLU, Affine, Chain or Residual

    Notes
    -----
    A module that computes something else than its parts suggest is refused, with what to do. Random test inputs of
    standard deviations 1 to 10 000 reveal that to a few parts in a million (behind batch norms folded in float32 one in
    ten thousand), but not what happens only for special inputs. They run the forward hooks of a Sequential or class.

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> from torch import nn
    >>> mp.from_torch(nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 2)))
    MLP(3 -> 8 -> 2, gelu)
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}.")
    module = unwrapped(module)
    check_visible(module)
    softmax = final_softmax(module)
    if softmax is None:
        return convert(module)
    net = convert(without(module, softmax))
    warnings.warn(
        f"from_torch leaves out the {type(softmax).__name__} at the end of {type(module).__name__}: the network's "
        f"outputs are the logits that enter it.",
        stacklevel=2,
    )
    return net


def convert(module: nn.Module, *, part: bool = False) -> Network:
    """The network of the latest adapter that matches a module and finds what it expects.

    With `part`, also one that is only a part of what the module does.
    """
    refused: MismatchError | None = None
    for adapter in matching_adapters(module):
        if adapter.entry and not part:
            raise TypeError(
                f"{type(module).__name__} does more than its feedforward block, between {adapter.entry!r} and "
                f"{adapter.exit or 'the end'!r}. The network of that block alone is "
                f"mlpoly.find_blocks(module)[0].net()."
            )
        try:
            net = adapter.convert(module)
            if not isinstance(net, Network):
                raise TypeError(
                    f"the adapter for {type(module).__name__} returned {type(net).__name__}; it must return an MLP or "
                    f"a GLU, or an mlpoly.Chain, Residual or Affine."
                )
            if adapter.own or adapter.entry:
                _check(adapter, module, net)
        except MismatchError as error:  # names of parts promised a block, but it may still be its parts in order
            if adapter.own:
                raise
            refused = refused or error
            continue
        return net
    raise refused or TypeError(advice(module))


def _check(adapter: Adapter, module: nn.Module, net: Network) -> None:
    """Raise unless the network of an adapter computes what the module does on test inputs, if it takes such."""
    name = type(module).__name__
    unlike = f"the network of the adapter for {name} is not what the module computes"
    remedy = "Compare its activation, weights and biases with forward; the latest adapter that is registered is used."
    # A block of a model takes sequences, a network of its own rows.
    ways: list[dict[str, Any]] = [{"ends": (adapter.entry, adapter.exit)}] if adapter.entry else [{}, {"whole": True}]
    refused: list[MismatchError] = []
    for way in ways:
        try:
            return check_computes(module, net, unlike, remedy, **way)
        except MismatchError as error:
            refused.append(error)
    different = next((error for error in refused if not isinstance(error, UnrunError)), None)
    if different is not None:
        raise different
    if adapter.own:
        warnings.warn(
            f"the network of the adapter for {name} is not compared with the module, which does not run on a tensor "
            f"alone: {refused[-1].__cause__!r}.",
            stacklevel=4,
        )


def from_sequential(module: nn.Module) -> Network:
    """Convert an nn.Sequential, or a Linear or batch norm alone."""
    whole = module if is_plain(module, nn.Sequential) else nn.Sequential(module)
    check_parts(whole)
    net = assemble(_pieces(parts_of(whole)))
    check_computes(module, net, f"the {type(module).__name__} is more than its parts", _REMEDY, whole=True)
    return net


def from_parts(module: nn.Module) -> Network:
    """Convert a class that computes its parts in the order it defines them, or adds its input to what they give."""
    check_parts(module)
    unlike = f"{type(module).__name__} has the parts of an MLP, but computes something else"
    return first_computed(module, _candidates(module, unlike), unlike, _REMEDY, whole=True)


def _candidates(module: nn.Module, unlike: str) -> list[Network]:
    """Networks that a class may compute: its parts in order, or one activation before every Linear but the first."""
    pieces = _pieces(parts_of(module))
    orders = [pieces]
    activations = [piece for piece in pieces if isinstance(piece, (Activation, Slopes))]
    if len(activations) == 1:
        repeated: list[Piece] = []
        for piece in pieces:
            repeated += activations if isinstance(piece, Affine) and repeated else []
            repeated += [piece] if piece is not activations[0] else []
        orders += [repeated] if repeated != pieces else []
    nets: list[Network] = []
    misfits: list[PieceError] = []
    for order in orders:
        try:
            net = assemble(order)
        except PieceError as error:
            misfits.append(error)
            continue
        nets += [net, Residual(net)] if net.dim_in == net.dim_out else [net]
    if not nets:
        raise MismatchError(f"{unlike}: {misfits[0]}") from misfits[0]
    return nets


def _pieces(parts: list[nn.Module]) -> list[Piece]:
    pieces: list[Piece] = []
    for i, part in enumerate(parts):
        kind = kind_of(part)
        if kind == "linear":
            pieces.append(Affine(*linear_weights(part, f"part {i}")))
        elif kind == "batch norm":
            pieces.append(batch_scaling(part))
        elif kind == "activation":
            several = isinstance(part, nn.PReLU) and part.weight.numel() > 1
            pieces.append(Slopes(part.weight) if several else activation_from_torch(part))
        else:
            net = convert(part)
            pieces += net.layers if isinstance(net, Chain) else [net]
    if not any(isinstance(piece, (Network, Scaling)) for piece in pieces):
        names = ", ".join(type(part).__name__ for part in parts) or "no modules"
        raise TypeError(f"from_torch needs a Linear, which sets the number of inputs; got {names}.")
    return pieces


def _is_network_class(module: nn.Module) -> bool:
    """Whether a class has parts that form a network, and no other parameters, which `from_parts` would ignore."""
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)) or any(True for _ in module.parameters(recurse=False)):
        return False
    kinds = {kind_of(part) for part in parts_of(module)}
    return "unknown" not in kinds and ("network" in kinds or kinds >= {"linear", "activation"})


def _is_sequential(module: nn.Module) -> bool:
    return is_plain(module, nn.Sequential) or is_plain(module, nn.Linear) or is_batch_norm(module)


def _is_block(module: nn.Module) -> bool:
    """Whether a Sequential is Linear, activation, Linear. An unknown activation is named by `from_sequential`."""
    parts = parts_of(module) if is_plain(module, nn.Sequential) else []
    ends = len(parts) == 3 and is_plain(parts[0], nn.Linear) and is_plain(parts[2], nn.Linear)
    return ends and kind_of(parts[1]) in ("activation", "unknown")


# Later adapters come first, so this one is the last resort. Whether a class computes its parts in order is only known
# after a test, so whole models are not searched for it.
ADAPTERS = (
    Adapter(_is_network_class, from_parts, listed=False),
    Adapter(_is_sequential, from_sequential, listed=False),
    # A single Linear is not a block to search a model for, and neither is a deep network.
    Adapter(_is_block, from_sequential),
)
