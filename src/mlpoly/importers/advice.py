"""What to say of modules that `from_torch` does not take."""

from __future__ import annotations

import re
from itertools import pairwise

import torch
from torch import nn

from mlpoly.importers.adapters import find_adapter
from mlpoly.importers.parts import kind_of, parts_of
from mlpoly.importers.probe import is_plain
from mlpoly.importers.torch_activations import activation_from_torch

_MATRIX = """
    def flat(x):  # shape: that of one input, such as (1, 28, 28)
        return layer(x.reshape(1, *shape)).flatten()
    zero = torch.zeros(math.prod(shape))
    mlpoly.Affine(torch.func.jacrev(flat)(zero), flat(zero))"""


ROUTE = (
    "Or export it, which records what forward does with an example x: torch.onnx.export(m.eval(), x, 'm.onnx', "
    "dynamo=False), then mlpoly.from_onnx('m.onnx')."
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


def sketch(name: str) -> str:
    """How to write an adapter for modules of the class `name`."""
    return (
        f"    from mlpoly.importers.torch import register_adapter\n"
        f"    def adapt(m):\n"
        f"        return mlpoly.MLP(m.fc1.weight, m.fc1.bias, m.fc2.weight, m.fc2.bias, activation=...)\n"
        f"    register_adapter({name}, adapt)\n"
        f"    # activation: what forward applies, such as 'relu'; a gated unit is an mlpoly.GLU(gate, up, down); with\n"
        f"    # entry='fc1', exit='fc2' if the module does more than its block"
    )


def advice(module: nn.Module) -> str:
    """Message for a module without an adapter."""
    name = type(module).__name__
    if is_mixture(module):
        return (
            f"from_torch does not take {name}: it is a mixture of experts, that is, several blocks behind a router, "
            f"not a single MLP or GLU. mlpoly.find_blocks finds the experts of the kinds that it knows; convert others "
            f"one by one, each with mlpoly.MLP or mlpoly.GLU."
        )
    reason = _reason(_obstacle(module))
    inner = next((n for n, m in module.named_modules() if n and (a := find_adapter(m)) is not None and a.listed), None)
    if inner is not None:
        whole = reason or f"For {name} as a whole write an adapter:\n{sketch(name)}"
        return (
            f"from_torch does not know {name}, but it knows blocks inside, such as {inner!r}: "
            f"mlpoly.importers.find_blocks(module) finds them all. {whole}"
        )
    if reason:
        return f"from_torch does not know {name}. {reason}"
    return (
        f"from_torch does not know {name}: it sees submodules, and not what forward does with functions. Make "
        f"activations and scalings submodules in the order in which they act{_listed(module)}. {ROUTE} Once for all "
        f"modules of the class: mlpoly.importers.torch.register_adapter({name}, lambda m: ...), with an mlpoly.MLP, "
        f"or an mlpoly.GLU for a gated unit. help(mlpoly.from_torch) lists what is known."
    )


def check_parts(module: nn.Module) -> None:
    """Raise a TypeError that names the first part of a module that cannot be converted, and says what can be."""
    bad = next((part for part in parts_of(module) if _is_bad(part)), None)
    if bad is None:
        return
    reason = _reason(bad)
    if not reason and not any(True for _ in bad.parameters()) and not any(True for _ in bad.children()):
        activation_from_torch(bad)  # whose message lists the activations that are known
    reason = reason or (
        f"{type(bad).__name__} is not known; mlpoly.importers.torch.register_adapter({type(bad).__name__}, lambda "
        f"m: ...) makes it known, with a function that returns its network."
    )
    raise TypeError(f"from_torch does not take this {type(module).__name__}. {_rest(module)}{reason}")


def _is_bad(part: nn.Module) -> bool:
    return kind_of(part) in ("unknown", "softmax")  # a softmax at the end has been left out already


def _rest(module: nn.Module) -> str:
    """Code for what stands behind the last bad part of a Sequential, or before the first, if a Linear is there."""
    if not is_plain(module, nn.Sequential):
        return ""
    children = [nn.Sequential(child) for child in module._modules.values() if child is not None]
    bad = [i for i, child in enumerate(children) if any(map(_is_bad, parts_of(child)))]
    behind, before = (f"{bad[-1] + 1}:", children[bad[-1] + 1 :]), (f":{bad[0]}", children[: bad[0]])
    for code, others in (behind, before):
        if any(isinstance(part, nn.Linear) for child in others for part in child.modules()):
            return f"A part that it takes: mlpoly.from_torch(module[{code}]). "
    return ""


def _obstacle(module: nn.Module) -> nn.Module:
    """The first part that cannot be converted, however deep inside; the module itself if it has no such parts."""
    bad = next((part for part in parts_of(module) if kind_of(part) == "unknown"), None)
    return module if bad is None else _obstacle(bad)


def _reason(part: nn.Module) -> str:
    """Why a module cannot be converted and what is possible instead; empty for one of an unknown kind."""
    name, adapter = type(part).__name__, find_adapter(part)
    if isinstance(part, torch.jit.ScriptModule):
        return f"{name} is scripted or traced (TorchScript), which hides its parts; use the module it was made from."
    pools = [kind.__name__ for kind in type(part).__mro__ if kind.__module__ == "torch.nn.modules.pooling"]
    if adapter is not None and adapter.entry:
        return f"{name} is more than its feedforward block; mlpoly.find_blocks(module) gives that block."
    if isinstance(part, (nn.modules.conv._ConvNd, nn.BatchNorm2d, nn.BatchNorm3d)) or any("Avg" in p for p in pools):
        return (
            f"{name} is not fully connected. But on inputs of one size it is affine, so its matrix can stand in an "
            f"mlpoly.Affine, in an mlpoly.Chain with the rest:{_MATRIX}"
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


def _listed(module: nn.Module) -> str:
    """Code for the Linears of a module with activations between, if their sizes suggest it; empty if not."""
    linears = {n: m for n, m in module.named_modules() if isinstance(m, nn.Linear)}
    norm = next((n for n, m in module.named_modules() if isinstance(m, nn.BatchNorm1d)), None)
    fit = all(one.out_features == two.in_features for one, two in pairwise(linears.values()))
    if not fit or not 2 <= len(linears) <= 6:
        return ""
    paths = [_path(name) for name in linears]
    if norm is not None:  # where it acts is not known, nor whether another one follows
        paths = [f"{paths[0]}, {_path(norm)}", "..."]
    code = f"mlpoly.from_torch(torch.nn.Sequential({', act, '.join(paths)}))"
    shown = "with act the activation that forward applies, as a module"
    return f", or list the layers if they act one after the other, {shown}: {code}"


def _path(name: str) -> str:
    """Code for a part of the module m."""
    return re.sub(r"\.(\d+)", r"[\1]", f"m.{name}")
