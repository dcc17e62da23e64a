"""From a torch module to a network, by the adapters that match it; those for Linears and activations are here."""

import warnings
from typing import Any

from torch import nn

from mlpoly.importers.adapters import Adapter, matching_adapters
from mlpoly.importers.advice import ROUTE, advice, check_visible, is_mixture
from mlpoly.importers.branches import FinalSoftmax
from mlpoly.importers.parts import batch_scaling, is_batch_norm, kind_of, linear_weights, parts_of
from mlpoly.importers.probe import MismatchError, UnrunError, check_computes, is_plain, unwrapped
from mlpoly.importers.torch_graph import Forward, TraceError
from mlpoly.networks import Network
from mlpoly.networks.assemble import PieceError

_REMEDY = (
    "Hooks, or what it does with values that tracing does not see, make it another function: remove them, or pass the "
    "weights yourself: mlpoly.MLP(W1, b1, W2, b2, activation=...), several in an mlpoly.Chain, with mlpoly.Residual "
    "for residual connections."
)


def from_torch(module: nn.Module) -> Network:
    """Return the weights of a torch module as a network that `fit` and `propagate` take.

    The network is the module in evaluation mode, over its own parameters: results can be differentiated with respect
    to them. Only weights that have to be computed (batch norms folded in, parametrisations, slopes of PReLU) keep the
    values they have now.

    Parameters
    ----------
    module : torch.nn.Module
        An ``nn.Sequential`` or a class of your own, whose forward is followed (torch.fx). Linears, products with
        weights, activations as modules, as functions or written out become layers; sums of a value and what is computed
        from it are residual connections, products of two affine maps, one perhaps behind an activation, gated units.
        Values side by side (torch.cat) and sums of two branches are taken too, and batch norms in evaluation mode. A
        softmax at the end is left out with a warning, and the outputs are the logits. Where forward cannot be followed,
        a class is taken that computes its parts in the order in which it defines them.

        A feedforward block of Hugging Face transformers (of a layer, if the block has no module of its own,
        `find_blocks` finds it), or of TransformerLens.

        Any other module needs an adapter, see `mlpoly.importers.torch.register_adapter`, or, where forward depends on
        sizes, the way through ONNX: ``torch.onnx.export(module.eval(), x, "model.onnx", dynamo=False)``, `from_onnx`.

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
    return convert(module)


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
        except TypeError as error:
            if refused is not None:
                raise refused from error
            raise
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


def from_forward(module: nn.Module) -> Network:
    """Convert a module by what its forward does, or, where that cannot be followed, by its parts in their order."""
    for part in module.modules():  # what says what to do about one in training mode, or without weights
        if is_batch_norm(part):
            batch_scaling(part)
        elif isinstance(part, nn.LazyLinear):
            linear_weights(part, "a part")
    alone = type(module).__module__.startswith("torch.nn.modules") and not isinstance(module, nn.Sequential)
    try:
        return _followed(module, nn.Sequential(module) if alone else module)
    except TraceError as error:
        # Are its parts a network, and has it no other parameters, which their order says nothing of?
        kinds = {kind_of(part) for part in parts_of(module)} if not list(module.parameters(recurse=False)) else set()
        whole = "unknown" not in kinds and ("network" in kinds or kinds >= {"linear", "activation"})
        if is_mixture(module) or not whole:
            remedy = advice(module)
            if remedy.startswith(ROUTE) and "divides by the size" in str(error):  # a norm, which ONNX has too
                remedy = ""
            raise TypeError(f"{error} {remedy}".rstrip()) from error.__cause__
        try:
            return _followed(module, nn.Sequential(*parts_of(module)))
        except TypeError as second:
            said = f"{error} Nor does it compute its parts in their order: {second}"
            raise TypeError(said) from (error.__cause__ or second.__cause__)


def _followed(module: nn.Module, whole: nn.Module) -> Network:
    """The network that a forward shows, which is that of the module on test inputs."""
    forward = Forward(whole, convert)
    path = forward.path()
    softmax = path[-1] if path and isinstance(path[-1], FinalSoftmax) else None
    try:
        net = forward.network(path if softmax is None else path[:-1])
    except PieceError as error:
        raise TypeError(f"from_torch cannot take {type(module).__name__}: {error}") from None
    unlike, ending = f"{type(module).__name__} is more than its forward", None if softmax is None else softmax.function
    check_computes(module, net, unlike, _REMEDY, whole=True, ending=ending)
    if softmax is not None:
        warnings.warn(
            f"from_torch leaves out the {softmax.where} at the end of {type(module).__name__}: the network's outputs "
            f"are the logits that enter it.",
            stacklevel=5,
        )
    return net


def _is_followed(module: nn.Module) -> bool:
    """Whether a module is a class of its own, a Sequential, or a part of one that is a network by itself."""
    if not type(module).__module__.startswith("torch.nn"):
        return True
    plain = (nn.Sequential, nn.Linear, nn.Bilinear)
    return any(is_plain(module, kind) for kind in plain) or is_batch_norm(module)


def _is_block(module: nn.Module) -> bool:
    """Whether a Sequential is Linear, activation, Linear. An unknown activation is named by `from_sequential`."""
    parts = parts_of(module) if is_plain(module, nn.Sequential) else []
    ends = len(parts) == 3 and is_plain(parts[0], nn.Linear) and is_plain(parts[2], nn.Linear)
    return ends and kind_of(parts[1]) in ("activation", "unknown")


# Later adapters come first, so this one is the last resort. Whether a class computes its parts in order is only known
# after a test, so whole models are not searched for it.
ADAPTERS = (
    Adapter(_is_followed, from_forward, listed=False),
    # A single Linear is not a block to search a model for, and neither is a deep network.
    Adapter(_is_block, from_forward),
)
