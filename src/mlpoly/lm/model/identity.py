"""Identities of models, of the versions that made a result, and of functions: by what they do, not by their names."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
from torch import Tensor, nn

from mlpoly.arrays import to_numpy

_SAMPLED = 64  # values of each parameter that enter the fingerprint


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Return name, class, revision, dtype and a fingerprint of the weights."""
    config = getattr(model, "config", None)
    first = next(model.parameters(), None)
    name = str(getattr(config, "_name_or_path", "") or "")
    if name and Path(name).exists():  # the last part alone, which means the same on every machine
        name = Path(name).resolve().name
    return {
        "model": name or type(model).__name__,
        "architecture": type(model).__name__,
        "commit": getattr(config, "_commit_hash", None),
        "dtype": None if first is None else str(first.dtype).removeprefix("torch."),
        "weights": weights_fingerprint(model),
    }


def weights_fingerprint(model: nn.Module) -> str:
    """Return a SHA-256 over names, shapes and a few values of every parameter: cheap, and changed by any training."""
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        digest.update(f"{name}{tuple(weight.shape)}{weight.dtype}".encode())
        if weight.is_meta or weight.numel() == 0:
            continue
        flat = weight.detach().reshape(-1)
        step = max(flat.shape[0] // _SAMPLED, 1)
        digest.update(flat[::step][:_SAMPLED].cpu().double().numpy().tobytes())
    return digest.hexdigest()


def function_fingerprint(function: Callable[..., Any]) -> str:
    """Return a SHA-256 of a function's bytecode, constants and defaults, and of what it closes over or is bound to.

    Globals that it names count with their names alone. Another version of Python gives another hash.
    """
    contents = (platform.python_version_tuple()[:2], _contents(function, ()))
    return hashlib.sha256(repr(contents).encode()).hexdigest()


def _contents(value: Any, outer: tuple[int, ...]) -> Any:
    """A value as nested tuples of numbers, strings and bytes; `outer` are those that it is a part of."""
    if id(value) in outer:  # a function that calls itself closes over itself
        return "itself"

    def inner(*parts: Any) -> tuple[Any, ...]:
        return (type(value).__qualname__, *(_contents(part, (*outer, id(value))) for part in parts))

    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return value
    if isinstance(value, CodeType):
        return inner(value.co_code, value.co_names, value.co_consts)
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]  # an empty one has none
        return inner(value.__code__, value.__defaults__, value.__kwdefaults__, cells)
    if isinstance(value, MethodType):
        return inner(value.__func__, getattr(value.__self__, "__dict__", None))
    if isinstance(value, partial):
        return inner(value.func, value.args, value.keywords)
    if isinstance(value, (list, tuple)):
        return inner(*value)
    if isinstance(value, dict):
        return inner(*value.items())
    if isinstance(value, (set, frozenset)):
        return inner(*sorted(value, key=repr))
    if isinstance(value, (np.ndarray, Tensor)):
        array = to_numpy(value)
        return inner(str(value.dtype), array.shape, array.tobytes())
    if callable(value) and hasattr(value, "__dict__") and not isinstance(value, type):
        return inner(getattr(type(value), "__call__", None), vars(value))  # noqa: B004
    return getattr(value, "__qualname__", type(value).__qualname__)
