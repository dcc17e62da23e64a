"""What to say of modules that `from_torch` does not take."""

import torch
from torch import nn

from mlpoly.importers.adapters import find_adapter

NORM = "it divides by the size of its own input, so it is neither affine nor an activation of single units"
ROUTE = (
    "Or export it, which records what forward does with an example x: torch.onnx.export(m.eval(), x, 'm.onnx', "
    "dynamo=False), then mlpoly.from_onnx('m.onnx')."
)


def register(name: str) -> str:
    """How to make modules of the class `name` known."""
    return (
        f"mlpoly.importers.torch.register_adapter({name}, lambda m: mlpoly.MLP(m.fc1.weight, m.fc1.bias, m.fc2.weight, "
        f"m.fc2.bias, activation=...)) makes the class known; a gated unit is an mlpoly.GLU."
    )


def check_visible(module: nn.Module) -> None:
    """Raise a TypeError for a module of TorchScript."""
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError(
            f"{type(module).__name__} is scripted or traced (TorchScript), which hides its parts; pass the module that "
            f"it was made from. {ROUTE}"
        )


def is_mixture(module: nn.Module) -> bool:
    """Whether a module is a mixture of experts, or the experts of one."""
    names = [type(module).__name__, *(name for name, _ in module.named_children())]
    return any("expert" in name.lower() for name in names) and not has_attention(module)


def has_attention(module: nn.Module) -> bool:
    """Whether a module is a whole transformer layer."""
    return any("attn" in name or "attention" in name for name, _ in module.named_children())


def advice(module: nn.Module) -> str:
    """What else to do about a module whose forward cannot be taken."""
    name = type(module).__name__
    if is_mixture(module):
        return (
            f"{name} is a mixture of experts, that is, several blocks behind a router, not a single MLP or GLU. "
            f"mlpoly.find_blocks finds the experts of the kinds that it knows; convert others one by one, each with "
            f"mlpoly.MLP or mlpoly.GLU."
        )
    inner = next((n for n, m in module.named_modules() if n and (a := find_adapter(m)) is not None and a.listed), None)
    if inner is not None:
        return f"But from_torch knows blocks inside, such as {inner!r}: mlpoly.find_blocks(module) finds them all."
    return f"{ROUTE} {register(name)} help(mlpoly.from_torch) lists what is known."


def reason_of(part: nn.Module) -> str:
    """Why a module cannot be converted and what is possible instead; empty for one of an unknown kind."""
    name, adapter = type(part).__name__, find_adapter(part)
    pools = [kind.__name__ for kind in type(part).__mro__ if kind.__module__ == "torch.nn.modules.pooling"]
    convolution = isinstance(part, (nn.modules.conv._ConvNd, nn.BatchNorm2d, nn.BatchNorm3d))
    if isinstance(part, torch.jit.ScriptModule):
        return f"{name} is scripted or traced (TorchScript), which hides its parts; use the module it was made from."
    if adapter is not None and adapter.entry:
        return f"{name} is more than its feedforward block; mlpoly.find_blocks(module) gives that block."
    if convolution or any("Avg" in pool for pool in pools):
        return (
            f"{name} is not fully connected. But on inputs of one size it is affine: its matrix, from "
            f"torch.func.jacrev at zero, can stand in an mlpoly.Affine, in an mlpoly.Chain with the rest."
        )
    if pools:
        return f"{name} is neither affine nor an activation of single units."
    if "attention" in name.lower() or isinstance(part, nn.Transformer):
        return f"{name} mixes the positions of a sequence; only feedforward networks can be converted."
    if isinstance(part, nn.RNNBase):
        return f"{name} has a state; only feedforward networks can be converted."
    if isinstance(part, (nn.Embedding, nn.EmbeddingBag)):
        return f"{name} takes indices; convert what follows it, whose inputs are the embedded vectors."
    if "norm" in name.lower():
        return (
            f"{name} divides by the size of its own input, so it is neither affine nor an activation of single units; "
            f"convert what stands before it and behind it, each by itself."
        )
    if isinstance(part, (nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.Softmax2d)):
        return (
            f"{part!r} couples its inputs, so it is not an activation of single units; a softmax over the outputs is "
            f"left out at the end of a network, but not elsewhere."
        )
    if isinstance(part, nn.Flatten):
        return f"{part!r} is not passed over, because the network's inputs are rows; use Flatten(start_dim=1)."
    return ""
