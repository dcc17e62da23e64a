"""The weights of linear modules: nn.Linear and its relatives, and GPT-2's transposed Conv1D."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mlpoly.importers.probe import evaluated, unwrapped

Weights = tuple[torch.Tensor, torch.Tensor | None]

_FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module computes the same as `kind`; a subclass with its own forward (such as LoRA) does not."""
    return isinstance(module, kind) and type(module).forward is kind.forward


def computes(module: nn.Module) -> str:
    """Name of the class that defines a module's forward, which a subclass may leave unchanged."""
    return next(kind.__name__ for kind in type(module).__mro__ if "forward" in vars(kind))


def linear_weights(part: Any, name: str, strict: bool = True) -> Weights:
    """Weight (rows for outputs) and bias of a linear module, its own tensors or views of them.

    Parameters
    ----------
    part : nn.Module
    name : str
        Name in an error, such as "down_proj of LlamaMLP".
    strict : bool
        Refuse subclasses of nn.Linear with a forward of their own; without it the caller checks what they compute.

    Raises
    ------
    TypeError
        For a module that is not linear or that holds its weight in some other form: LoRA, quantised, lazy.
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
