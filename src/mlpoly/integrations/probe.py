"""A few test inputs that show whether a module computes what its parts suggest.

Modules with the same parts need not do the same with them: some clamp the gate, scale it, or sparsify it; hooks and
patched methods change what a module computes. Weights taken from such a module by name alone would describe another
function, and nothing later would notice.
"""

from __future__ import annotations

from collections import OrderedDict
from types import MethodType
from typing import Any

import torch
from torch import nn

from mlpoly.arrays import readable
from mlpoly.integrations.module import full_precision
from mlpoly.networks import Layer
from mlpoly.records import replace

__all__ = ["check_computes", "evaluated", "unwrapped"]

_POINTS = 8
_SIZES = (1.0, 100.0)  # the second reveals clamps, which ordinary inputs do not reach
# Detects a scale of 1.001. Rounding in float32 stays far below, at 2e-7 for blocks of 768 inputs; with TensorFloat,
# whose ten bits round the factors of both sides alike, at 1e-5.
_TOLERANCE = 1e-4
_TOLERANCE_16 = 0.05  # for the few modules that must be tested in 16 bits


def check_computes(
    module: nn.Module, net: Layer, unlike: str, remedy: str, *, residual: bool = False, whole: bool = False
) -> None:
    """Raise if a module in evaluation mode and a network over its weights differ on test inputs.

    Parameters
    ----------
    module : nn.Module
        Module to test. It is not changed, and no random numbers are drawn from torch's generator.
    net : Layer
        Network over the module's weights. If those cannot be read (meta device, tracing), nothing is checked.
    unlike, remedy : str
        Beginning and end of the message.
    residual : bool
        Whether the module takes a second tensor that it adds to its output.
    whole : bool
        Whether the module is a network of its own, whose forward hooks are part of it. Hooks of a block in a model
        belong to whoever observes that model, and do not run.

    Raises
    ------
    TypeError
    """
    weight = net.prototype
    if not readable(weight):
        return
    # In 16 bits rounding exceeds the differences to detect, so a copy in float32 is tested. A forward that was patched
    # onto a module (accelerate does that to move weights) belongs to the original and its dtype.
    patched = any("forward" in vars(part) for part in module.modules())
    dtype = weight.dtype if patched else torch.promote_types(weight.dtype, torch.float32)
    try:
        found = _difference(module, net, dtype, residual, whole)
    except Exception as error:  # the module's own code may raise anything
        said = f"{type(error).__name__}: {error}"
        raise TypeError(f"{unlike}: a test input gave an error ({said}). {remedy}") from error
    if not found <= (_TOLERANCE if torch.finfo(dtype).bits > 16 else _TOLERANCE_16):
        raise TypeError(f"{unlike}: on test inputs its output differs from the network's by {found:.2%}. {remedy}")


@torch.no_grad()
def _difference(module: nn.Module, net: Layer, dtype: torch.dtype, residual: bool, whole: bool) -> float:
    """Largest relative difference, in norm, between a module and a network on test inputs."""
    wide: Any = evaluated(module, hooks=whole, dtype=dtype)
    weights = {name: value for name, value in vars(net).items() if isinstance(value, torch.Tensor)}
    net = replace(net, **{name: value.to(dtype) for name, value in weights.items()})
    length = getattr(module, "chunk_size_feed_forward", 0) or _POINTS  # chunks must divide the points evenly
    points = torch.randn(length, net.dim_in, generator=torch.Generator().manual_seed(0))
    points = points.to(next(iter(weights.values())).device, dtype)
    differences = []
    with full_precision(points):
        for size in _SIZES:
            x = size * (points if whole else points[None])  # a block takes a batch of sequences
            found = wide(x, torch.zeros_like(x)) if residual else wide(x)
            expected = net(x)
            if not isinstance(found, torch.Tensor) or found.shape != expected.shape:
                return float("inf")
            seen = torch.isfinite(found) if torch.finfo(dtype).bits == 16 else ...  # float16 may overflow
            found, expected = found[seen].cpu().double(), expected[seen].cpu().double()
            differences.append(float((found - expected).norm()) / (float(expected.norm()) or 1.0))
    return max(differences)


def unwrapped(module: nn.Module) -> nn.Module:
    """The original of a module that torch.compile made, and any other module unchanged."""
    inner = getattr(module, "_orig_mod", None)
    return unwrapped(inner) if isinstance(inner, nn.Module) else module


def evaluated(module: nn.Module, *, hooks: bool = False, dtype: torch.dtype | None = None) -> nn.Module:
    """A copy in evaluation mode over the same parameters; changes to it do not affect the module.

    Parameters
    ----------
    module : nn.Module
    hooks : bool
        Keep forward hooks. Those of torch.nn.utils (spectral_norm, weight_norm, pruning), which compute a weight,
        stay in any case.
    dtype : torch.dtype, optional
        Dtype of floating parameters and buffers; by default theirs, and parameters are the module's own tensors.
    """
    module = unwrapped(module)
    made: Any = object.__new__(type(module))
    vars(made).update(vars(module))  # what copy.copy does, which parametrised modules forbid
    made.training = False
    made._compiled_call_impl = None  # set by module.compile(), for the module and not for the copy
    for name in [name for name in vars(made) if name.endswith("_hooks")]:
        kept = [(key, hook) for key, hook in getattr(made, name).items() if hooks or _computes_weight(hook)]
        setattr(made, name, OrderedDict(kept if "forward" in name else []))
    if isinstance(patched := vars(made).get("forward"), MethodType) and patched.__self__ is module:
        made.forward = MethodType(patched.__func__, made)
    made._modules = {n: None if m is None else evaluated(m, hooks=hooks, dtype=dtype) for n, m in made._modules.items()}
    made._parameters = {n: _cast(p, dtype) for n, p in made._parameters.items()}
    # Buffers are counters and running sums, which modules write to.
    made._buffers = {n: None if b is None else _cast(b, dtype).clone() for n, b in made._buffers.items()}
    for hook in made._forward_pre_hooks.values():
        if _computes_weight(hook):
            hook(made, ())  # the stored weight may date from before the last step, or from training mode
    return made


def _cast(tensor: Any, dtype: torch.dtype | None) -> Any:
    return tensor.to(dtype) if dtype is not None and tensor is not None and tensor.is_floating_point() else tensor


def _computes_weight(hook: Any) -> bool:
    return type(hook).__module__.startswith("torch.nn.utils.")
