"""PyTorch: modules in (`from_torch`, with one adapter per kind of block), polynomials out (`PolynomialModule`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from mlpoly.activations import Activation, get
from mlpoly.arrays import to_numpy
from mlpoly.layers import GLU, MLP
from mlpoly.polynomials import ChaosPolynomial, DensePolynomial, Gate, Polynomial, RidgePolynomial, Source
from mlpoly.polynomials.base import replace_fields

__all__ = ["PolynomialModule", "activation_from_torch", "from_torch", "register_adapter"]

Adapter = Callable[[Any], MLP | GLU]
Predicate = Callable[[nn.Module], bool]


# ---------------------------------------------------------------------------------------------------------------------
# Modules in
# ---------------------------------------------------------------------------------------------------------------------

_adapters: list[tuple[type[nn.Module] | Predicate, Adapter]] = []


def register_adapter(matches: type[nn.Module] | Predicate, adapter: Adapter) -> None:
    """Teach `from_torch` a block of your own.

    Parameters
    ----------
    matches : type or callable
        A class of modules (its subclasses included), or a function of a module that says whether the adapter is meant
        for it. The latest adapter that matches is used.
    adapter : callable
        Takes the module, gives an `MLP` or `GLU` that holds the module's own parameters.

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> from mlpoly.integrations.torch import register_adapter
    >>> class Block(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.up, self.down = torch.nn.Linear(3, 8), torch.nn.Linear(8, 2)
    >>> register_adapter(Block, lambda m: mp.MLP(m.up.weight, m.up.bias, m.down.weight, m.down.bias, "tanh"))
    >>> mp.from_torch(Block())
    MLP(3 -> 8 -> 2, tanh)
    """
    if not callable(matches) or not callable(adapter):
        raise TypeError(
            "register_adapter takes a module class or a function of a module, and a function that converts it."
        )
    _adapters.append((matches, adapter))


def from_torch(module: nn.Module) -> MLP | GLU:
    """See `mlpoly.from_torch`."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}.")
    for matches, adapter in reversed(_adapters):
        if isinstance(module, matches) if isinstance(matches, type) else matches(module):
            return _checked(adapter(module), module)
    raise TypeError(_advice(module))


def _checked(net: Any, module: nn.Module) -> MLP | GLU:
    if not isinstance(net, (MLP, GLU)):
        raise TypeError(
            f"the adapter for {type(module).__name__} returned {type(net).__name__}; it must return an MLP or a GLU."
        )
    return net


def _advice(module: nn.Module) -> str:
    name = type(module).__name__
    own = [m.__name__ for m, _ in _adapters if isinstance(m, type)]
    return (
        f"from_torch does not know {name}. It takes an nn.Sequential of Linear, activation, Linear (Dropout and "
        f"Identity are passed over, the second Linear may be missing)"
        + (f", and by registered adapters {', '.join(own)}" if own else "")
        + f". For a block of another shape write an adapter:\n"
        f"    from mlpoly.integrations.torch import register_adapter\n"
        f"    def adapt(m): return mlpoly.MLP(m.fc1.weight, m.fc1.bias, m.fc2.weight, m.fc2.bias, activation='gelu')\n"
        f"    register_adapter({name}, adapt)"
    )


# -- nn.Sequential -----------------------------------------------------------------------------------------------------


def _is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module computes what `kind` does; a subclass with its own forward (LoRA, say) does not."""
    return isinstance(module, kind) and type(module).forward is kind.forward


def _flat(module: Any) -> list[nn.Module]:
    """The modules of nested Sequentials, in order, without those that do nothing in evaluation mode."""
    if _is_plain(module, nn.Sequential):
        # Not .children(), which leaves out a module that stands in two places.
        return [part for child in module._modules.values() for part in _flat(child)]
    return [] if isinstance(module, (nn.Dropout, nn.AlphaDropout, nn.Identity)) else [module]


def _from_sequential(module: nn.Module) -> MLP:
    """Linear, activation, Linear, the last of which may be missing; a missing activation is the identity."""
    parts = _flat(module)
    linear = [_is_plain(part, nn.Linear) for part in parts]
    if not linear or not linear[0] or len(parts) > 3 or (len(parts) == 3 and linear[1:] != [False, True]):
        raise TypeError(
            f"from_torch takes an nn.Sequential of Linear, activation, Linear (the last may be missing), got "
            f"{', '.join(type(p).__name__ for p in parts) or 'no modules'}. "
            f"Convert a deeper network layer by layer, for example from_torch(module[:3]); "
            f"for other blocks see mlpoly.integrations.torch.register_adapter."
        )
    first, *rest = parts
    last = rest.pop() if linear[1:] and linear[-1] else None
    activation = activation_from_torch(rest[0]) if rest else get("identity")
    (W1, b1), (W2, b2) = _weights(first), _weights(last)
    return MLP(W1, b1, W2, b2, activation)


def _weights(linear: Any) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    if linear is None:
        return None, None
    if nn.parameter.is_lazy(linear.weight):
        raise TypeError("the module has a LazyLinear without weights; run one batch through it first.")
    return linear.weight, linear.bias


register_adapter(lambda m: _is_plain(m, nn.Sequential), _from_sequential)


# -- activations -------------------------------------------------------------------------------------------------------


def _gelu(module: Any) -> Activation:
    return get("gelu" if module.approximate == "none" else "gelu_tanh")


def _rrelu(module: Any) -> Activation:
    return get("leaky_relu", slope=(module.lower + module.upper) / 2)  # what it computes in evaluation mode


def _softplus(module: Any) -> Activation:
    # PyTorch replaces softplus by the identity above a threshold. At the default, 20, the two differ by 2e-9.
    if module.threshold < 20:
        raise TypeError(
            f"Softplus(threshold={module.threshold}) jumps at its threshold, mlpoly's softplus does not; use a "
            f"threshold of 20 or more, or mlpoly.register_activation with that kink."
        )
    return get("softplus", beta=module.beta)


# Name in the registry, and for each of its parameters the attribute of the module.
_NAMED: dict[type[nn.Module], tuple[str, dict[str, str]]] = {
    nn.Identity: ("identity", {}),
    nn.ReLU: ("relu", {}),
    nn.LeakyReLU: ("leaky_relu", {"slope": "negative_slope"}),
    nn.ReLU6: ("relu6", {}),
    nn.Threshold: ("threshold", {"threshold": "threshold", "value": "value"}),
    nn.Hardtanh: ("hardtanh", {"low": "min_val", "high": "max_val"}),
    nn.Hardsigmoid: ("hardsigmoid", {}),
    nn.Hardswish: ("hardswish", {}),
    nn.SiLU: ("silu", {}),
    nn.Sigmoid: ("sigmoid", {}),
    nn.LogSigmoid: ("logsigmoid", {}),
    nn.Tanh: ("tanh", {}),
    nn.Tanhshrink: ("tanhshrink", {}),
    nn.Mish: ("mish", {}),
    nn.Softsign: ("softsign", {}),
    nn.ELU: ("elu", {"alpha": "alpha"}),
    nn.SELU: ("selu", {}),
    nn.CELU: ("celu", {"alpha": "alpha"}),
}
_OTHER: dict[type[nn.Module], Callable[[Any], Activation]] = {
    nn.GELU: _gelu,
    nn.RReLU: _rrelu,
    nn.Softplus: _softplus,
}


def activation_from_torch(module: nn.Module) -> Activation:
    """The activation record of a torch.nn activation module, with the module's parameters; for use in adapters."""
    kind = type(module)
    if kind in _OTHER:
        return _OTHER[kind](module)
    if kind in _NAMED:
        name, attributes = _NAMED[kind]
        return get(name, **{key: float(getattr(module, attribute)) for key, attribute in attributes.items()})
    known = ", ".join(sorted(k.__name__ for k in (*_NAMED, *_OTHER)))
    raise TypeError(
        f"from_torch does not know the activation {kind.__name__}; it knows {known}. For another one, build the record "
        f"yourself: mlpoly.MLP(W1, b1, W2, b2, activation=...) takes the name of a registered activation or a function."
    )


# ---------------------------------------------------------------------------------------------------------------------
# Polynomials out
# ---------------------------------------------------------------------------------------------------------------------

# The arrays of each form.
_FIELDS: dict[type[Polynomial], tuple[str, ...]] = {
    RidgePolynomial: ("directions", "shifts", "scales", "series", "readout", "bias"),
    DensePolynomial: ("center", "constant", "linear", "quadratic"),
    ChaosPolynomial: ("center", "whitener", "values"),
}
_GATE_FIELDS = ("directions", "shifts", "slopes", "series")


class PolynomialModule(nn.Module):
    """A polynomial as a module: drop-in for the network that it was fitted to.

    The arrays are buffers, named like the fields of the polynomial (those of a gate ``gate_...``): the module moves
    with ``.to(...)`` and saves with ``state_dict()``, and an optimiser leaves it alone. It owns a copy of its numbers,
    so that training the network goes on without touching it.

    Parameters
    ----------
    polynomial : RidgePolynomial, DensePolynomial or ChaosPolynomial
        Of any array library.

    Attributes
    ----------
    polynomial : RidgePolynomial, DensePolynomial or ChaosPolynomial
        Over the buffers as they are now.
    """

    def __init__(self, polynomial: Polynomial) -> None:
        super().__init__()
        if type(polynomial) not in _FIELDS:
            raise TypeError(
                f"polynomial must be a RidgePolynomial, a DensePolynomial or a ChaosPolynomial, "
                f"got {type(polynomial).__name__}."
            )
        for name in _FIELDS[type(polynomial)]:
            self.register_buffer(name, _copied(getattr(polynomial, name)))
        gate = polynomial.gate if isinstance(polynomial, RidgePolynomial) else None
        for name in () if gate is None else _GATE_FIELDS:
            self.register_buffer(f"gate_{name}", _copied(getattr(gate, name)))
        self.gated = gate is not None
        # What is no array: source, exponents. The distribution that it was fitted under stays behind.
        self._rest = replace_fields(
            polynomial, inputs=None, gate=None, report=None, **dict.fromkeys(_FIELDS[type(polynomial)])
        )

    @property
    def source(self) -> Source:
        """Where the polynomial comes from."""
        return self._rest.source

    @property
    def dtype(self) -> torch.dtype:
        """Of the buffers."""
        return next(self.buffers()).dtype

    @property
    def polynomial(self) -> Any:
        """The polynomial over the buffers as they are now."""
        return self._polynomial(self.dtype)

    def _polynomial(self, dtype: torch.dtype) -> Any:
        """The polynomial over the buffers in a dtype; nothing is copied where they have it."""
        cast: dict[str, Any] = {name: b.to(dtype) for name, b in self.named_buffers()}
        if self.gated:
            cast["gate"] = Gate(**{name: cast.pop(f"gate_{name}") for name in _GATE_FIELDS})
        return replace_fields(self._rest, **cast)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Values (..., o) at points x (..., d), in the dtype of x; 16-bit numbers are computed in float32."""
        wide = torch.promote_types(torch.promote_types(x.dtype, self.dtype), torch.float32)
        values: torch.Tensor = self._polynomial(wide)(x).to(x.dtype)
        return values

    def extra_repr(self) -> str:
        """What print shows of the module."""
        p = self.polynomial
        return f"degree={p.degree}, {p.dim_in} -> {p.dim_out}, {p.source}"


def _copied(array: Any) -> torch.Tensor | None:
    if array is None:
        return None
    if isinstance(array, torch.Tensor):
        return array.detach().clone()
    return torch.tensor(to_numpy(array))
