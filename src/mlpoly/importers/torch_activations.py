"""Activations of PyTorch and of Hugging Face transformers as records of the registry."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mlpoly.activations import Activation, get
from mlpoly.importers.probe import computes

# Modules with the name of their activation, in other letters, and those with parameters: the name in the registry, and
# for each of its parameters the attribute of the module.
_SAME = (
    *(nn.Identity, nn.ReLU, nn.ReLU6, nn.Hardsigmoid, nn.Hardswish, nn.SiLU, nn.Sigmoid, nn.LogSigmoid, nn.Tanh),
    *(nn.Tanhshrink, nn.Mish, nn.Softsign, nn.SELU),
)
_NAMED: dict[type[nn.Module], tuple[str, dict[str, str]]] = {
    **{kind: (kind.__name__.lower(), {}) for kind in _SAME},
    nn.LeakyReLU: ("leaky_relu", {"slope": "negative_slope"}),
    nn.Threshold: ("threshold", {"threshold": "threshold", "value": "value"}),
    nn.Hardtanh: ("hardtanh", {"low": "min_val", "high": "max_val"}),
    nn.ELU: ("elu", {"alpha": "alpha"}),
    nn.CELU: ("celu", {"alpha": "alpha"}),
}
_OTHER: dict[type[nn.Module], Callable[[Any], Activation]] = {
    nn.GELU: lambda module: get("gelu" if module.approximate == "none" else "gelu_tanh"),
    nn.PReLU: lambda module: get("leaky_relu", slope=float(module.weight.detach())),
    nn.RReLU: lambda module: get("leaky_relu", slope=(module.lower + module.upper) / 2),  # as in evaluation mode
    nn.Softplus: lambda module: get("softplus", beta=module.beta),
}

# Classes of transformers, by name so that nothing is imported, including names of earlier versions.
_TRANSFORMERS = {
    **dict.fromkeys(("AccurateGELUActivation", "BloomGelu", "FastGELUActivation", "GELUTanh"), "gelu_tanh"),
    **dict.fromkeys(("NewGELUActivation", "PytorchGELUTanh"), "gelu_tanh"),
    "GELUActivation": "gelu",
    "LinearActivation": "identity",
    "MishActivation": "mish",
    "QuickGELUActivation": "quick_gelu",
    "ReLUSquaredActivation": "relu2",
    "SiLUActivation": "silu",
}

# A configuration of transformers may hold a function instead of a name.
_FUNCTIONS: dict[Any, str] = {
    **{functional.gelu: "gelu", functional.silu: "silu", functional.mish: "mish"},
    **dict.fromkeys((functional.relu, torch.relu), "relu"),
    **dict.fromkeys((functional.tanh, torch.tanh), "tanh"),
    **dict.fromkeys((functional.sigmoid, torch.sigmoid), "sigmoid"),
}


def is_activation(module: nn.Module) -> bool:
    """Whether a module is an activation that `activation_from_torch` knows, if perhaps not with all its options."""
    return type(module) in _OTHER or type(module) in _NAMED or computes(module) in _TRANSFORMERS


def activation_from_torch(module: nn.Module | Callable[..., Any]) -> Activation:
    """The record of an activation of torch.nn, torch.nn.functional or transformers, with its parameters."""
    kind = type(module)
    if isinstance(module, nn.PReLU) and module.weight.numel() > 1:
        raise TypeError(
            f"PReLU({module.weight.numel()}) is a different function for every unit, not one activation; use "
            f"nn.PReLU(), which has one slope for all, or an nn.Sequential of Linear, PReLU, Linear, which from_torch "
            f"takes."
        )
    # PyTorch replaces softplus by the identity above a threshold. At the default, 20, the two differ by 2e-9.
    if isinstance(module, nn.Softplus) and module.threshold < 20:
        raise TypeError(
            f"Softplus(threshold={module.threshold}) jumps at its threshold, but mlpoly's softplus does not; use a "
            f"threshold of 20 or more, or mlpoly.activations.register_activation with that kink."
        )
    if kind in _OTHER:
        return _OTHER[kind](module)
    if kind in _NAMED:
        name, attributes = _NAMED[kind]
        return get(name, **{key: float(getattr(module, attribute)) for key, attribute in attributes.items()})
    if isinstance(module, nn.Module) and computes(module) in _TRANSFORMERS:
        return get(_TRANSFORMERS[computes(module)])
    if module in _FUNCTIONS:
        return get(_FUNCTIONS[module])
    shown = type(module).__name__ if isinstance(module, nn.Module) else getattr(module, "__name__", repr(module))
    known = sorted({k.__name__ for k in (*_NAMED, *_OTHER)} | set(_TRANSFORMERS))
    raise TypeError(
        f"from_torch does not know the activation {shown}; it knows {', '.join(known)}. For another one, build the "
        f"record yourself: mlpoly.MLP(W1, b1, W2, b2, activation=...) takes the name of a registered activation or a "
        f"function."
    )
