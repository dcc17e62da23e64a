"""Activations by name: the built-in ones, PyTorch's and Hugging Face's aliases, and the user's own."""

import copyreg
import difflib
import math
import pkgutil
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from numbers import Real
from typing import Any

from mlpoly.activations.numeric import celu, elu, numeric_activations, softplus
from mlpoly.activations.piecewise import piecewise
from mlpoly.activations.quadrature import adaptive_projection
from mlpoly.activations.record import Activation
from mlpoly.activations.smooth import COS, ERF, GAUSSIAN, GELU, SIN
from mlpoly.arrays import Array, namespace_of, relu
from mlpoly.errors import UnknownActivationError


@dataclass(frozen=True)
class Family:
    """A name in the registry: how to build its record, its parameters with defaults, its other names."""

    name: str
    build: Callable[..., Activation]
    parameters: dict[str, float] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()


def _clip(y: Array, low: float, high: float) -> Array:
    return namespace_of(y).clip(y, low, high)


def _above(y: Array, at: float, value: Array, otherwise: Any) -> Array:
    return namespace_of(y).where(y > at, value, otherwise)


def _sixth(y: Array) -> Array:
    return _clip(y + 3, 0, 6) / 6


def _hardtanh(name: str, low: float, high: float) -> Activation:
    if not low < high:
        raise ValueError(f"hardtanh needs low < high, got low={low}, high={high}.")
    pieces = [[low, 0.0], [0.0, 1.0], [high, 0.0]]
    return piecewise(name, "clip(y, low, high)", lambda y: _clip(y, low, high), [low, high], pieces)


def _leaky_relu(name: str, slope: float) -> Activation:
    pieces = [[0.0, slope], [0.0, 1.0]]
    return piecewise(name, "y if y > 0 else slope y", lambda y: _above(y, 0, y, slope * y), [0], pieces)


def _threshold(name: str, threshold: float, value: float, formula: str = "value") -> Activation:
    formula = f"y if y > threshold else {formula}"
    return piecewise(name, formula, lambda y: _above(y, threshold, y, value), [threshold], [[value, 0], [0, 1]])


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


_HARDSWISH = [[0.0], [0.0, 0.5, 1 / 6], [0.0, 1.0]]
_ALIASES = {
    "identity": ("linear", "none"),
    "leaky_relu": ("leakyrelu",),
    "relu2": ("relu_squared", "relusquared"),
    "step": ("heaviside",),
    "jumprelu": ("jump_relu",),
    "hardtanh": ("hard_tanh",),
    "hardsigmoid": ("hard_sigmoid",),
    "hardswish": ("hard_swish",),
    "gelu": ("gelu_python",),
    "gelu_tanh": ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate"),
    "quick_gelu": ("quickgelu",),
    "silu": ("swish",),
    "logsigmoid": ("log_sigmoid",),
}


def _fixed(activation: Activation) -> Family:
    """The family of an activation without parameters."""
    return Family(activation.name, lambda name: activation, {}, _ALIASES.get(activation.name, ()))


def _with(name: str, build: Callable[..., Activation], **parameters: float) -> Family:
    """A family with parameters, which have these defaults."""
    return Family(name, build, parameters, _ALIASES.get(name, ()))


_BUILT_IN: dict[str, Family] = {
    f.name: f
    for f in [
        _fixed(piecewise("identity", "y", lambda y: y, [], [[0, 1]])),
        _fixed(piecewise("relu", "max(y, 0)", relu, [0], [[0], [0, 1]])),
        _with("leaky_relu", _leaky_relu, slope=0.01),
        _fixed(piecewise("relu6", "min(max(y, 0), 6)", lambda y: _clip(y, 0, 6), [0, 6], [[0], [0, 1], [6]])),
        _fixed(piecewise("relu2", "max(y, 0)²", lambda y: relu(y) ** 2, [0], [[0], [0, 0, 1]])),
        _fixed(piecewise("abs", "|y|", lambda y: namespace_of(y).abs(y), [0], [[0, -1], [0, 1]])),
        _fixed(piecewise("step", "1 if y > 0 else 0", lambda y: _above(y, 0, y * 0 + 1, 0.0), [0], [[0], [1]])),
        _with("jumprelu", partial(_threshold, value=0.0, formula="0"), threshold=1.0),
        _with("threshold", _threshold, threshold=1.0, value=0.0),
        _with("hardtanh", _hardtanh, low=-1.0, high=1.0),
        _fixed(piecewise("hardsigmoid", "relu6(y + 3) / 6", _sixth, [-3, 3], [[0], [0.5, 1 / 6], [1]])),
        _fixed(piecewise("hardswish", "y relu6(y + 3) / 6", lambda y: y * _sixth(y), [-3, 3], _HARDSWISH)),
        _fixed(piecewise("square", "y²", lambda y: y * y, [], [[0, 0, 1]])),
        _fixed(piecewise("cube", "y³", lambda y: y * y * y, [], [[0, 0, 0, 1]])),
        _fixed(GELU),
        *map(_fixed, numeric_activations()),
        _with("softplus", softplus, beta=1.0),
        _with("elu", elu, alpha=1.0),
        _fixed(elu("selu", _SELU_ALPHA, _SELU_SCALE, "scale elu(y) with PyTorch's constants")),
        _with("celu", celu, alpha=1.0),
        *map(_fixed, (ERF, SIN, COS, GAUSSIAN)),
    ]
}
_families = dict(_BUILT_IN)
_aliases: dict[str, str] = {a: f.name for f in _families.values() for a in f.aliases}


def families() -> tuple[Family, ...]:
    """All registered families, in the order of the table of activations."""
    return tuple(_families.values())


def names() -> list[str]:
    """Canonical names of all registered activations, sorted; without aliases, such as "swish" for "silu".

    Examples
    --------
    >>> import mlpoly as mp
    >>> mp.activations.names()[:3]
    ['abs', 'celu', 'cos']
    """
    return sorted(_families)


def get(activation: str | Activation | Callable[[Array], Array], **parameters: float) -> Activation:
    """Return an activation by name.

    Parameters
    ----------
    activation : str, Activation or callable
        A name or alias (in any case), with optional parameters in brackets: ``"leaky_relu(0.2)"``,
        ``"threshold(threshold=-1, value=0.5)"``. A record is returned unchanged. A plain callable is integrated as a
        function without kinks; use `register_activation` to declare kinks.
    **parameters : float

    Examples
    --------
    >>> import mlpoly as mp
    >>> mp.activations.get("swish").name, mp.activations.get("leaky_relu", slope=0.2).name
    ('silu', 'leaky_relu(0.2)')
    """
    if parameters and not isinstance(activation, str):
        raise ValueError(f"parameters {list(parameters)} need an activation given by name, not a record or callable.")
    if isinstance(activation, Activation):
        return activation
    if callable(activation) and not isinstance(activation, type):
        return _from_callable(getattr(activation, "__name__", "callable"), activation, ())
    if not isinstance(activation, str):
        raise TypeError(f"activation must be a name, an Activation or a callable, got {type(activation).__name__}.")
    family, values = _parse(activation, _families)
    unknown = sorted(set(parameters) - set(family.parameters))
    if unknown:
        raise ValueError(
            f"activation {family.name!r} has no parameter {unknown[0]!r}; it takes {list(family.parameters) or 'none'}."
        )
    return _built(family, values | parameters)


def _built(family: Family, values: dict[str, float]) -> Activation:
    """The record of a family with given parameters."""
    for key, value in values.items():
        if not isinstance(value, Real) or not math.isfinite(value):
            raise ValueError(f"activation parameter {key} of {family.name!r} must be a finite number, got {value!r}.")
        values[key] = float(value)
    given = [values[k] for k in family.parameters]
    default = all(v == d for v, d in zip(given, family.parameters.values(), strict=True))
    written = ", ".join(f"{v:g}" if float(f"{v:g}") == v else repr(v) for v in given)
    return family.build(family.name if default else f"{family.name}({written})", **values)


def _parse(text: str, among: dict[str, Family]) -> tuple[Family, dict[str, float]]:
    match = re.fullmatch(r"\s*([\w.-]+)\s*(?:\((.*)\))?\s*", text)
    if not match:
        raise _unknown(text)
    name = match[1].lower().replace("-", "_")
    family = among.get(_aliases.get(name, name))
    if family is None:
        raise _unknown(text)
    inside = (match[2] or "").strip()
    keys, values = list(family.parameters), {}
    for position, part in enumerate(inside.split(",") if inside else []):
        key, _, number = part.rpartition("=")
        key = key.strip() or (keys[position] if position < len(keys) else "")
        if key not in keys:
            raise ValueError(f"activation {text!r}: {family.name} takes the parameters {keys or 'none'}.")
        if key in values:
            raise ValueError(f"activation {text!r} gives the parameter {key!r} twice; give it once.")
        try:
            values[key] = float(number)
        except ValueError:
            raise ValueError(f"activation {text!r}: {number.strip()!r} is not a number.") from None
    return family, family.parameters | values


def _unknown(text: str) -> UnknownActivationError:
    near = difflib.get_close_matches(text.lower(), [*_families, *_aliases], n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UnknownActivationError(
        f"unknown activation {text!r}.{hint} mlpoly.activations.names() lists all; "
        f"mlpoly.activations.register_activation(name, function, kinks=...) adds one."
    )


def register_activation(
    name: str, function: Callable[[Array], Array], kinks: Sequence[float] = (), *, overwrite: bool = False
) -> Activation:
    """Add a scalar function to the registry, and return its record, which networks take as well.

    Its coefficients come from adaptive quadrature, with a `QuadratureWarning` if that has not converged.

    Parameters
    ----------
    name : str
    function : callable
        Elementwise function of an array; it is called with the array type of the network.
    kinks : sequence of float
        Points at which the function or one of its derivatives jumps, which then cost no accuracy. Also declare the
        position of a narrow feature, which may otherwise fall between the nodes: ``(c - 9 * w, c, c + 9 * w)`` for a
        bump of width w at c.
    overwrite : bool
        Allow an existing name to be replaced.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> mp.activations.register_activation("signed_square", lambda y: y * abs(y), kinks=(0.0,))
    Activation('signed_square', quadrature)
    >>> mp.MLP(np.eye(1), activation="signed_square")
    MLP(1 -> 1 -> 1, signed_square)
    """
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(f"name must be a word of letters, digits and '_', '-', '.', got {name!r}.")
    key = name.lower().replace("-", "_")  # as `get` reads names
    if not callable(function):
        raise TypeError(f"function must be callable, got {type(function).__name__}.")
    if not overwrite and (key in _families or key in _aliases):
        raise ValueError(f"activation {name!r} exists already; choose another name or pass overwrite=True.")
    try:
        at = tuple(float(k) for k in kinks)
    except (TypeError, ValueError):
        at = (math.nan,)
    if not all(map(math.isfinite, at)):
        raise ValueError(f"kinks must be a sequence of finite numbers, such as (0.0,), got {kinks!r}.")
    activation = _from_callable(key, function, at)
    _aliases.pop(key, None)
    _families[key] = _fixed(activation)
    return activation


def _from_callable(name: str, function: Callable[..., Any], kinks: tuple[float, ...]) -> Activation:
    project = adaptive_projection(function, kinks, name)
    return Activation(name, function, project, "the user's function", "quadrature", kinks, own=function)


def _reduced(activation: Activation) -> tuple[Callable[..., Activation], tuple[Any, ...]]:
    """A name, or the user's function, for pickle: the functions of a record are often closures, which it refuses."""
    own, kinks = activation.own, activation.kinks
    if own is not None:
        with suppress(AttributeError, ImportError, ValueError):  # pickle itself does not find the results of jax.jit
            place = f"{own.__module__}:{own.__qualname__}"
            if pkgutil.resolve_name(place) is own:
                return _placed, (activation.name, place, kinks)
        return _from_callable, (activation.name, own, kinks)
    if activation.name.partition("(")[0] in _BUILT_IN:
        return _built_in, (activation.name,)
    return Activation, tuple(getattr(activation, f.name) for f in fields(activation))


def _built_in(name: str) -> Activation:
    """The built-in activation of a canonical name, whatever has been registered under that name since."""
    return _built(*_parse(name, _BUILT_IN))


def _placed(name: str, place: str, kinks: tuple[float, ...]) -> Activation:
    """The activation of a user's function that stands at "module:name"."""
    return _from_callable(name, pkgutil.resolve_name(place), kinks)


copyreg.pickle(Activation, _reduced)
