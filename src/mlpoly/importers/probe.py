"""A few test inputs that show whether a module computes what its parts suggest: some clamp a gate, or are hooked."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any

import torch
from torch import nn

from mlpoly.arrays import readable
from mlpoly.importers.polynomial_module import full_precision
from mlpoly.networks import Network, Residual
from mlpoly.records import map_arrays

_POINTS = 8
# In standard deviations of ordinary inputs; those far out show limits on large values.
_SIZES = (1.0, 10.0, 100.0, 1e4)
# A difference is taken for rounding up to that of inputs and biases which are off by so many times eps. In float32, a
# factor of 1.00001 is a difference; rounding itself stays far below, at 2e-7 for blocks of 768 inputs.
_ROUNDINGS = 16
_LEAST = 1e-6  # a module may compute in float32 inside, or have constants with ten digits
# For weights in float32 that batch norms and slopes were folded into, which may cancel large means. And for rounding in
# TensorFloat, 1e-5 (its ten bits round the factors of both sides alike), where float64 cannot be used.
_TOLERANCE_32 = 1e-4
_TOLERANCE_16 = 0.05  # for the few modules that must be tested in 16 bits


class MismatchError(TypeError):
    """A module computes something else than its parts suggest."""


class UnrunError(MismatchError):
    """A module did not run on test inputs."""


def check_computes(
    module: nn.Module,
    net: Network,
    unlike: str,
    remedy: str,
    *,
    residual: bool = False,
    whole: bool = False,
    ends: tuple[str, str] | None = None,
    ending: Callable[..., torch.Tensor] | None = None,
) -> None:
    """Raise a MismatchError if a module in evaluation mode and a network over its weights differ on test inputs.

    The module is not changed; weights that cannot be read (meta device, tracing) are not checked. `unlike` and `remedy`
    begin and end the message. With `residual`, the module takes a second tensor that it adds to its output; with
    `whole`, it is a network of its own, whose forward hooks are part of it, and do not belong to whoever observes a
    model. `ends` are the submodules that take the network's input and return its output, if it is a part of what the
    module does; an `ending` (a softmax) is what the module does to the network's outputs.
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
    digits = weight.itemsize if folded else dtype.itemsize
    least = _TOLERANCE_16 if digits == 2 else _TOLERANCE_32 if digits == 4 and folded else _LEAST
    try:
        found, allowed = _compared(module, net, dtype, least, residual, whole, ends, ending)
    except Exception as error:  # the module's own code may raise anything
        said = f"{type(error).__name__}: {error}"
        raise UnrunError(f"{unlike}: a test input gave an error ({said}). {remedy}") from error
    if not found <= allowed and dtype == torch.float32:
        try:
            found, allowed = _compared(module, net, torch.float64, least, residual, whole, ends, ending)
        except Exception:  # not every module and device can do float64
            allowed = max(allowed, _TOLERANCE_32)
    if not found <= allowed:
        rounding = f" Or {weight.dtype} has too few digits to fold its batch norms or slopes: try module.double()."
        amount = f"{found:.2%}" if found >= 1e-4 else f"{found:.1g} of its size"
        said = f"on test inputs its output differs from the network's by {amount}"
        raise MismatchError(f"{unlike}: {said}. {remedy}{rounding if folded else ''}")


@torch.no_grad()
def _compared(
    module: nn.Module,
    net: Network,
    dtype: torch.dtype,
    least: float,
    residual: bool,
    whole: bool,
    ends: tuple[str, str] | None,
    ending: Callable[..., torch.Tensor] | None,
) -> tuple[float, float]:
    """Relative difference in norm, and what rounding may make of it, for the size of inputs where it is worst."""
    wide: Any = evaluated(module, hooks=whole, dtype=dtype)
    net = map_arrays(net, lambda weight: weight.to(dtype))
    length = getattr(module, "chunk_size_feed_forward", 0) or _POINTS  # chunks must divide the points evenly
    generator = torch.Generator().manual_seed(0)
    points = torch.tensor(_SIZES)[:, None, None] * torch.randn(length, net.dim_in, generator=generator)
    x = points.to(net.prototype.device, dtype)
    x = x.flatten(0, 1) if whole else x  # a block takes a batch of sequences
    eps = _ROUNDINGS * torch.finfo(dtype).eps

    def shaken(a: torch.Tensor) -> torch.Tensor:
        return a * (1 + eps * torch.randn(a.shape, generator=generator).sign().to(a))

    seen: dict[str, torch.Tensor] = {}

    def enter(_: Any, args: Any, kwargs: Any) -> None:
        seen["entry"] = next(a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)).clone()

    with full_precision(x):
        if ends is None:
            found = wide(x, torch.zeros_like(x)) if residual else wide(x)
        else:
            # What enters the part last, and what comes out of it; some modules write to these later.
            entry, exit = (wide.get_submodule(end) for end in ends)
            entry.register_forward_pre_hook(enter, with_kwargs=True)
            exit.register_forward_hook(lambda _, args, output: seen.update(exit=output.clone()))
            wide(x)
            x, found = seen["entry"], seen["exit"]
        expected = net(x)
        moved = map_arrays(net, lambda weight: shaken(weight) if weight.ndim == 1 else weight)(shaken(x))
        expected, moved = (a if ending is None else ending(a, dim=-1) for a in (expected, moved))
    if isinstance(found, torch.Tensor) and (*found.shape, 1) == expected.shape:
        found = found[..., None]  # a single output without its axis
    if not isinstance(found, torch.Tensor) or found.shape != expected.shape:
        return math.inf, 0.0
    branch = expected - x if isinstance(net, Residual) and dtype.itemsize > 2 else expected
    rows = [a.reshape(1 if ends else len(_SIZES), -1).cpu().double() for a in (found, expected, branch, moved)]
    narrow, gaps = dtype.itemsize == 2, []
    for found, expected, branch, moved in zip(*rows, strict=True):
        # Float16 may overflow, and so may large powers, if not in one of the two alone.
        finite = torch.isfinite(found) if narrow else torch.isfinite(found) | torch.isfinite(expected)
        found, expected, branch, moved = (a[finite] for a in (found, expected, branch, moved))
        # The branch of a residual may be small beside the input, and is what has to be right. The margin is for
        # rounding.
        size = float(expected.norm())
        scale = min(size, float(branch.norm()) + 0.01 * size) or 1.0
        difference, rounding = float((found - expected).norm()), float((moved - expected).norm()) + eps * size
        allowed = least if narrow or not math.isfinite(rounding) else max(least, rounding / scale)
        gaps.append((math.inf if math.isnan(difference) else difference / scale, allowed))
    return max(gaps, key=lambda gap: gap[0] / gap[1])


def first_computed(module: nn.Module, nets: Iterable[Network], unlike: str, remedy: str, **options: Any) -> Network:
    """The first of several networks that `check_computes` accepts; raises its first error if it accepts none."""
    refused: list[MismatchError] = []
    for net in nets:
        try:
            check_computes(module, net, unlike, remedy, **options)
            return net
        except MismatchError as error:
            refused.append(error)
    raise refused[0]


def is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module computes the same as `kind`; a subclass with its own forward (such as LoRA) does not."""
    return isinstance(module, kind) and type(module).forward is kind.forward


def computes(module: nn.Module) -> str:
    """Name of the class that defines a module's forward, which a subclass may leave unchanged."""
    return next(kind.__name__ for kind in type(module).__mro__ if "forward" in vars(kind))


def unwrapped(module: nn.Module) -> nn.Module:
    """The original of a module that torch.compile or TransformerLens wrapped, and any other module unchanged."""
    if isinstance(module, torch.jit.ScriptModule):
        return module
    inner = module._modules.get("_orig_mod", module._modules.get("_original_component"))
    return unwrapped(inner) if isinstance(inner, nn.Module) else module


def evaluated(module: nn.Module, *, hooks: bool = False, dtype: torch.dtype | None = None) -> nn.Module:
    """A copy in evaluation mode over the same parameters, or over those in a dtype; with `hooks`, with forward hooks.

    Those of torch.nn.utils (spectral_norm, weight_norm, pruning), which compute a weight, stay in any case.
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
