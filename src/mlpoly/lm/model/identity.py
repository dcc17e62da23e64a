"""Identities of models, of the versions that made a result, and of functions: by what they do, not by their names."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

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
    """Return a SHA-256 of a function's bytecode, and of the values that it depends on.

    These are its constants and defaults, what it closes over, and the globals that it names, functions and objects of
    its own module among them likewise. Functions of other modules, and anything else that has no contents to compare,
    count with their names. Another version of Python gives another hash.
    """
    digest = hashlib.sha256(platform.python_version().rpartition(".")[0].encode())
    written: Any = function
    while isinstance(written, partial):
        written = written.func
    for part in _parts(function, str(getattr(written, "__module__", "")), ()):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _parts(value: Any, module: str, outer: tuple[int, ...]) -> Iterator[bytes]:
    """Give the parts of a value; `outer` are those that it is a part of, so that circles come to an end."""
    yield type(value).__qualname__.encode()
    if id(value) in outer:
        return
    inner: list[Any] = []
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        yield repr(value).encode()
    elif isinstance(value, CodeType):
        inner = [value.co_code, value.co_names, value.co_varnames, value.co_freevars, value.co_consts]
    elif isinstance(value, FunctionType) and str(value.__module__) == module:
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]  # an empty one has none
        named = [value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__]
        inner = [value.__code__, value.__defaults__, value.__kwdefaults__, cells, named]
    elif isinstance(value, MethodType):
        inner = [value.__func__, getattr(value.__self__, "__dict__", {})]
    elif isinstance(value, partial):
        inner = [value.func, value.args, value.keywords]
    elif isinstance(value, (list, tuple)):
        inner = list(value)
    elif isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, (set, frozenset)):
        inner = sorted(value, key=repr)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode() + value.tobytes()
    elif isinstance(value, Tensor):
        yield f"{value.dtype} {tuple(value.shape)}".encode()
        if not value.is_meta and value.layout == torch.strided:
            yield value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    elif isinstance(value, nn.Module):
        yield weights_fingerprint(value).encode()
        inner = [type(value).forward]
    elif type(value).__module__ == module:
        inner = [getattr(type(value), "__call__", None), getattr(value, "__dict__", {})]  # noqa: B004
    else:  # modules, classes, functions written in C or elsewhere: their name, if they have one
        yield str(getattr(value, "__qualname__", getattr(value, "__name__", ""))).encode()
    for part in inner:
        yield from _parts(part, module, (*outer, id(value)))


def _names(code: CodeType) -> list[str]:
    """Return names of globals (and attributes, which look the same) in a function and the functions inside it."""
    inside = [name for const in code.co_consts if isinstance(const, CodeType) for name in _names(const)]
    return [*code.co_names, *inside]
