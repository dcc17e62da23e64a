"""The parts of a torch module in the order in which it defines them, and what each of them is."""

from typing import Any, Literal

import torch
from torch import nn

from mlpoly.importers.adapters import find_adapter, has_own_adapter
from mlpoly.importers.probe import computes, evaluated, is_plain, unwrapped
from mlpoly.importers.torch_activations import is_activation
from mlpoly.networks.assemble import Scaling

Kind = Literal["linear", "batch norm", "activation", "softmax", "network", "unknown"]
Weights = tuple[torch.Tensor, torch.Tensor | None]  # (o, d) and (o,)

_FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def parts_of(module: nn.Module) -> list[nn.Module]:
    """Parts of a module, those of containers inside it included, without those that do nothing in evaluation mode."""
    # A Sequential may use a module twice, which .children() lists once; a class may have two names for one module.
    repeats = isinstance(module, (nn.Sequential, nn.ModuleList))
    children = [unwrapped(m) for m in (module._modules.values() if repeats else module.children()) if m is not None]
    parts: list[nn.Module] = []
    for child in children:
        container = is_plain(child, nn.Sequential) or isinstance(child, (nn.ModuleList, nn.ModuleDict))
        if container and not has_own_adapter(child):
            parts += parts_of(child)
        elif not does_nothing(child):
            parts.append(child)
    return parts


def does_nothing(module: Any) -> bool:
    """Whether a module leaves rows as they are in evaluation mode."""
    if is_plain(module, nn.Flatten):  # of inputs that are rows already
        return (module.start_dim, module.end_dim) == (1, -1)
    return isinstance(module, (nn.modules.dropout._DropoutNd, nn.Identity))


def kind_of(part: nn.Module) -> Kind:
    """What a part is; a "network" has an adapter of its own, which converts all of it."""
    if is_plain(part, nn.Linear):
        return "linear"
    if is_batch_norm(part):
        return "batch norm"
    if is_activation(part):
        return "activation"
    if is_softmax(part):
        return "softmax"
    adapter = find_adapter(part)
    return "network" if adapter is not None and not adapter.entry else "unknown"


def is_batch_norm(module: nn.Module) -> bool:
    """Whether a module is a batch norm of vectors."""
    return is_plain(module, nn.BatchNorm1d) or is_plain(module, nn.SyncBatchNorm)


def is_softmax(module: nn.Module) -> bool:
    """Whether a module is a softmax over the outputs, or the logarithm of one."""
    softmax = is_plain(module, nn.Softmax) or is_plain(module, nn.LogSoftmax)
    return softmax and module.dim in (-1, 1, None)


def linear_weights(part: Any, name: str, strict: bool = True) -> Weights:
    """Weight and bias of a linear module (also of GPT-2's Conv1D), its own tensors or views of them.

    Unless `strict`, subclasses of nn.Linear with a forward of their own are taken, and the caller checks what they
    compute. What is not linear, or holds its weight in another form (LoRA, quantised, lazy), is refused by `name`.
    """
    part = unwrapped(part)
    transposed = computes(part) == "Conv1D" and not isinstance(part, nn.modules.conv._ConvNd)
    own: Any = evaluated(part)  # a weight may be computed by other modules or hooks, and differ in training
    weight = getattr(own, "weight", None)
    if isinstance(weight, torch.Tensor) and nn.parameter.is_lazy(weight):
        raise TypeError(f"{name} is a LazyLinear without weights; run one batch through it first.")
    if isinstance(weight, torch.Tensor) and weight.dtype not in _FLOATING:
        raise TypeError(
            f"{name} has a quantised weight ({weight.dtype}); load the model without quantisation, or convert it back "
            f"with model.dequantize() where transformers offers that."
        )
    linear = transposed or (is_plain(part, nn.Linear) if strict else isinstance(part, nn.Linear))
    if not linear or weight is None:
        raise TypeError(
            f"{name} is a {type(part).__name__}, not a Linear. Merge low-rank adapters first (peft: "
            f"model.merge_and_unload()), load the model without quantisation, or write an adapter of your own, see "
            f"mlpoly.importers.torch.register_adapter."
        )
    return (weight.T if transposed else weight), own.bias


def in_one_dtype(parts: list[Weights]) -> list[Weights]:
    """All weights in the widest dtype among them: T5 keeps one of its matrices in float32 in a 16-bit model."""
    dtype = parts[0][0].dtype
    for weight, _ in parts:
        dtype = torch.promote_types(dtype, weight.dtype)
    return [(weight.to(dtype), None if bias is None else bias.to(dtype)) for weight, bias in parts]


def batch_scaling(module: nn.Module) -> Scaling:
    """The map of a batch norm in evaluation mode, over its own parameters; a TypeError if it depends on the batch."""
    name = type(module).__name__
    own: Any = evaluated(module)
    tensors = (own.running_mean, own.running_var, own.weight, own.bias)
    mean, variance, weight, bias = (
        None if a is None else a.to(torch.promote_types(a.dtype, torch.float32)) for a in tensors
    )
    if mean is None or variance is None:
        raise TypeError(
            f"{name} without running statistics normalises each batch by the batch's own mean and variance, so it is "
            f"no function of one input. Build it with track_running_stats=True and run some batches in training mode."
        )
    if module.training:
        raise TypeError(
            f"{name} is in training mode, in which it normalises each batch by the batch's own mean and variance; "
            f"call module.eval() first, then it uses its running statistics."
        )
    scale = (variance + own.eps).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -mean * scale
    return Scaling(scale, shift if bias is None else shift + bias, own.running_mean.dtype, "BatchNorm1d")
