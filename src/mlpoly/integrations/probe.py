"""A few test inputs that show whether a module computes what its parts suggest.

Modules with the same parts need not do the same with them: some clamp the gate, scale it, or sparsify it; hooks and
patched methods change what a module computes. Weights taken from such a module by name alone would describe another
function, and nothing later would notice.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from contextlib import suppress
from types import MethodType
from typing import Any

import torch
from torch import nn

from mlpoly.arrays import readable
from mlpoly.integrations.module import full_precision
from mlpoly.networks import Layer, Network, Residual
from mlpoly.records import map_arrays

__all__ = ["MismatchError", "check_computes", "evaluated", "unwrapped", "without"]

_POINTS = 8
_SIZES = (1.0, 100.0)  # the second reveals clamps, which ordinary inputs do not reach
# Detects a scale of 1.001. Rounding in float32 stays far below, at 2e-7 for blocks of 768 inputs; with TensorFloat,
# whose ten bits round the factors of both sides alike, at 1e-5.
_TOLERANCE = 1e-4
_TOLERANCE_16 = 0.05  # for the few modules that must be tested in 16 bits


class MismatchError(TypeError):
    """A module computes something else than its parts suggest."""


def check_computes(
    module: nn.Module, net: Network, unlike: str, remedy: str, *, residual: bool = False, whole: bool = False
) -> None:
    """Raise if a module in evaluation mode and a network over its weights differ on test inputs.

    Parameters
    ----------
    module : nn.Module
        Module to test. It is not changed, and no random numbers are drawn from torch's generator.
    net : Network
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
    MismatchError
    """
    weight = net.prototype
    if not readable(weight):
        return
    # In 16 bits rounding exceeds the differences to detect, so a copy in float32 is tested. A forward that was patched
    # onto a module (accelerate does that to move weights) belongs to the original and its dtype.
    patched = any("forward" in vars(part) for part in module.modules())
    dtype = weight.dtype if patched else torch.promote_types(weight.dtype, torch.float32)
    # What is folded into weights, batch norms and slopes, rounds them once more.
    folded = any(isinstance(part, (nn.modules.batchnorm._BatchNorm, nn.PReLU)) for part in module.modules())
    tolerance = _TOLERANCE_16 if dtype.itemsize == 2 or (folded and weight.itemsize == 2) else _TOLERANCE
    try:
        found = _difference(module, net, dtype, residual, whole)
    except Exception as error:  # the module's own code may raise anything
        said = f"{type(error).__name__}: {error}"
        raise MismatchError(f"{unlike}: a test input gave an error ({said}). {remedy}") from error
    if not found <= tolerance and dtype == torch.float32 and not isinstance(net, Layer):
        with suppress(Exception):  # rounding grows from layer to layer; not every module and device can do float64
            found = _difference(module, net, torch.float64, residual, whole)
    if not found <= tolerance:
        rounding = f" Or {weight.dtype} has too few digits to fold its batch norms or slopes: try module.double()."
        said = f"on test inputs its output differs from the network's by {found:.2%}"
        raise MismatchError(f"{unlike}: {said}. {remedy}{rounding if folded else ''}")


@torch.no_grad()
def _difference(module: nn.Module, net: Network, dtype: torch.dtype, residual: bool, whole: bool) -> float:
    """Largest relative difference, in norm, between a module and a network on test inputs."""
    wide: Any = evaluated(module, hooks=whole, dtype=dtype)
    net = map_arrays(net, lambda weight: weight.to(dtype))
    length = getattr(module, "chunk_size_feed_forward", 0) or _POINTS  # chunks must divide the points evenly
    points = torch.randn(length, net.dim_in, generator=torch.Generator().manual_seed(0))
    points = points.to(net.prototype.device, dtype)
    differences = []
    with full_precision(points):
        for size in _SIZES:
            x = size * (points if whole else points[None])  # a block takes a batch of sequences
            found = wide(x, torch.zeros_like(x)) if residual else wide(x)
            expected = net(x)
            if not isinstance(found, torch.Tensor) or found.shape != expected.shape:
                return math.inf
            # Float16 may overflow, and so may large powers, if not in one of the two alone.
            seen = torch.isfinite(found) if dtype.itemsize == 2 else torch.isfinite(found) | torch.isfinite(expected)
            branch = expected - x if isinstance(net, Residual) else expected
            found, expected, branch = (a[seen].cpu().double() for a in (found, expected, branch))
            scale = float(expected.norm())
            if isinstance(net, Residual) and dtype.itemsize > 2:
                # The branch may be small beside the input, and is what has to be right. The margin is for rounding.
                scale = float(branch.norm()) + 0.01 * scale
            ratio = float((found - expected).norm()) / (scale or 1.0)
            differences.append(math.inf if math.isnan(ratio) else ratio)
    return max(differences)


def unwrapped(module: nn.Module) -> nn.Module:
    """The original of a module that torch.compile made, and any other module unchanged."""
    inner = getattr(module, "_orig_mod", None)
    return unwrapped(inner) if isinstance(inner, nn.Module) else module


def without(module: nn.Module, part: nn.Module) -> nn.Module:
    """A copy over the same parameters and modules, except that one of them does nothing."""
    module = unwrapped(module)
    if module is part:
        return nn.Identity()
    if all(part is not inner for inner in module.modules()):
        return module
    made: Any = object.__new__(type(module))
    vars(made).update(vars(module))
    made._modules = {n: None if m is None else without(m, part) for n, m in made._modules.items()}
    return made


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
    # Lists of this name are not torch's: components of TransformerLens have some.
    for name in [name for name, value in vars(made).items() if name.endswith("_hooks") and isinstance(value, dict)]:
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
