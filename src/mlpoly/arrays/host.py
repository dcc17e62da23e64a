"""JAX arrays in the memory of the host whose values are known: NumPy computes with them, because it compiles nothing.

JAX compiles every operation for every shape, which takes seconds where the work takes milliseconds. Under jax.jit,
jax.grad and jax.vmap, and on other devices, the operations are JAX's.
"""

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from mlpoly.arrays.namespace import is_tracer

F = TypeVar("F", bound=Callable[..., Any])

_PLAIN = (type(None), str, int, float, bool, type, np.generic)


class _NotHereError(Exception):
    """An argument needs the operations of its own library."""


def by_value(function: F) -> F:
    """Decorate a function that returns records: for JAX arrays with values it computes with NumPy arrays."""

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        jax = sys.modules.get("jax")
        if jax is None or _compiling():
            return function(*args, **named)
        there = _There(jax)
        try:
            values, options = there.to_numpy(args), there.to_numpy(named)
        except _NotHereError:
            return function(*args, **named)
        if not there.devices:
            return function(*args, **named)
        return there.back(function(*values, **options))

    return call  # type: ignore[return-value]


def _compiling() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


class _There:
    """The way to NumPy and back; what was passed comes back as the same object."""

    def __init__(self, jax: Any) -> None:
        self.jax, self.devices = jax, set[Any]()
        self.originals: dict[int, tuple[Any, Any]] = {}  # by the id of the copy, which is kept alive

    def to_numpy(self, value: Any) -> Any:
        """The same with NumPy arrays; raises where that would not do."""
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, self.jax.Array):
            return self._remember(self._values(value), value)
        if not _walkable(value) or not _takes_numpy(getattr(value, "activation", None)):
            raise _NotHereError
        if getattr(value, "neutral", False):  # it belongs to no library
            return value
        return self._remember(_mapped(value, self.to_numpy), value)

    def _values(self, a: Any) -> np.ndarray:
        if is_tracer(a) or a.dtype.name not in ("float32", "float64", "int32", "int64", "bool"):
            raise _NotHereError
        self.devices |= a.devices()
        if len(self.devices) > 1 or any(d.platform != "cpu" for d in self.devices):
            raise _NotHereError
        return np.asarray(a)

    def _remember(self, copy: Any, original: Any) -> Any:
        if copy is not original:
            self.originals[id(copy)] = copy, original
        return copy

    def back(self, value: Any) -> Any:
        """The same with JAX arrays."""
        if id(value) in self.originals:
            return self.originals[id(value)][1]
        if isinstance(value, np.ndarray | np.floating):
            return self.jax.device_put(np.asarray(value), *self.devices)
        return _mapped(value, self.back) if _walkable(value) else value


def _walkable(value: Any) -> bool:
    """Whether arrays are looked for in its parts."""
    return isinstance(value, tuple | list | dict) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same value with its parts changed; itself if none of them is."""
    if isinstance(value, dict):
        made = {key: change(part) for key, part in value.items()}
        return made if any(made[key] is not part for key, part in value.items()) else value
    if isinstance(value, tuple | list):
        parts = [change(part) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    names = getattr(value, "_moving", None) or [f.name for f in dataclasses.fields(value)]
    # The rows of data that inputs remember are no field.
    changed = {name: (part, change(part)) for name in (*names, "rows") if (part := vars(value).get(name)) is not None}
    if all(new is old for old, new in changed.values()):
        return value
    fields = {f.name for f in dataclasses.fields(value)} | {"rows"}
    made = object.__new__(type(value))
    for name, part in vars(value).items():
        if name in fields:
            object.__setattr__(made, name, changed[name][1] if name in changed else part)
    return made


def _takes_numpy(activation: Any) -> bool:
    """Whether an activation computes with NumPy arrays: all but functions of users, which may or may not."""
    own = getattr(activation, "own", None)
    if own is None:
        return True
    try:
        return isinstance(own(np.zeros(1)), np.ndarray)
    except Exception:  # whatever another library raises for an array that it does not know
        return False
