"""Precision and placement: from one dtype, device or library to another."""

import sys
from collections.abc import Callable
from typing import Any, Literal

import array_api_compat as compat
import numpy as np

from mlpoly.arrays.namespace import Array, device, is_torch, is_tracer, namespace_of
from mlpoly.extras import explain_missing

Library = Literal["numpy", "torch", "jax"]


def is_low_precision(dtype: Any) -> bool:
    """Whether this is a 16-bit float, which is for storing numbers and not for computing with them."""
    return str(dtype).split(".")[-1] in ("float16", "bfloat16")


def widen(a: Array) -> Array:
    """The same numbers in float64 where the library and device have it, else in float32."""
    xp = namespace_of(a)
    if compat.is_jax_namespace(xp):
        import jax

        return xp.astype(a, xp.float64 if jax.config.read("jax_enable_x64") else xp.float32)
    if compat.is_torch_namespace(xp) and a.device.type == "mps":
        return xp.astype(a, xp.float32)
    return xp.astype(a, xp.float64, copy=False)


def astype(a: Array, dtype: Any) -> Array:
    """Cast without a copy where none is needed."""
    return namespace_of(a).astype(a, dtype, copy=False)


def cast_like(a: Array, like: Array) -> Array:
    """Cast to the dtype of `like`."""
    return astype(a, like.dtype)


def cast_result(a: Array, like: Array) -> Array:
    """Cast a result to the dtype of `like`, but not below float32."""
    return astype(a, namespace_of(like).float32 if is_low_precision(like.dtype) else like.dtype)


def promote(*arrays: Array) -> tuple[Array, ...]:
    """Cast arrays of one library to their common dtype (16-bit floats count as float32)."""
    xp = namespace_of(arrays[0])
    dtypes = [xp.float32 if is_low_precision(a.dtype) else a.dtype for a in arrays]
    common = dtypes[0]
    for d in dtypes[1:]:
        common = xp.result_type(common, d)
    return tuple(astype(a, common) for a in arrays)


def rounding_error(a: Array) -> float:
    """Relative rounding error of computations with an array; 16-bit floats are computed with in float32."""
    xp = namespace_of(a)
    return float(xp.finfo(xp.float32 if is_low_precision(a.dtype) else a.dtype).eps)


def constant(values: Any, like: Array) -> Array:
    """Python or NumPy numbers as an array with the library, dtype and device of `like`."""
    xp = namespace_of(like)
    if is_tracer(like):
        return xp.asarray(values, dtype=like.dtype)
    if compat.is_torch_namespace(xp) and isinstance(values, np.ndarray):
        values = values.copy()  # torch warns when it is handed a read-only buffer
    return xp.asarray(values, dtype=like.dtype, device=device(like))


def eye(n: int, like: Array) -> Array:
    """Identity matrix with the library, dtype and device of `like`."""
    xp = namespace_of(like)
    return xp.eye(n, dtype=like.dtype) if is_tracer(like) else xp.eye(n, dtype=like.dtype, device=device(like))


def counts(n: int, like: Array) -> Array:
    """1, 2, ..., n as a column (n, 1, ...) for `like` (n, ...), made on its device: a copy there would wait for it."""
    xp = namespace_of(like)
    options = {} if is_tracer(like) else {"device": device(like)}
    return xp.reshape(xp.arange(1, n + 1, dtype=like.dtype, **options), (-1, *[1] * (len(like.shape) - 1)))


def on(a: Array, like: Array) -> Array:
    """Move an array to the library, dtype and device of `like`; within one library gradients flow through."""
    if is_torch(a) and is_torch(like):
        return a.to(like.device, like.dtype)
    if namespace_of(a) is namespace_of(like) and (is_tracer(a) or is_tracer(like) or device(a) == device(like)):
        return astype(a, like.dtype)
    return constant(to_numpy(a), like)


def to_numpy(a: Array) -> np.ndarray:
    """Copy to a NumPy array on the host (16-bit floats become float32)."""
    if compat.is_torch_array(a):
        a = a.detach().cpu()
        a = a.float() if is_low_precision(a.dtype) else a
    elif is_low_precision(a.dtype):
        a = namespace_of(a).astype(a, "float32")
    return np.asarray(a)


def scalar(a: Array) -> float:
    """The value of a one-element array as a float, detached from autograd."""
    return float(to_numpy(a))


def start_copy(a: Array) -> Callable[[], np.ndarray]:
    """Begin to copy to the host; calling the result waits for the copy, but not for work queued after it."""
    if not (is_torch(a) and a.is_cuda):
        return lambda: to_numpy(a)
    there = a.detach().to("cpu", non_blocking=True)
    cuda = sys.modules["torch"].cuda
    done = cuda.Event()
    done.record(cuda.current_stream(a.device))  # of the array's device, which need not be the current one

    def wait() -> np.ndarray:
        done.synchronize()
        return to_numpy(there)

    return wait


def from_numpy(a: np.ndarray, library: Library) -> Array:
    """Turn a NumPy array into one of `library`: 'numpy', 'torch' or 'jax'."""
    if library == "numpy":
        return a
    if library == "torch":
        with explain_missing('library="torch"'):
            import torch
        return torch.from_numpy(a.copy())
    if library == "jax":
        with explain_missing('library="jax"'):
            import jax.numpy as jnp
        return jnp.asarray(a)
    raise ValueError(f"library must be 'numpy', 'torch' or 'jax', got {library!r}.")


def take_rows(a: Array, index: np.ndarray) -> Array:
    """Rows of `a` at integer positions."""
    return namespace_of(a).take(a, constant_index(index, a), axis=0)


def constant_index(index: np.ndarray, like: Array) -> Array:
    """Integer positions in the library and on the device of `like`."""
    xp = namespace_of(like)
    if compat.is_numpy_namespace(xp) or is_tracer(like):
        return index
    positions = index if compat.is_jax_namespace(xp) else index.astype(np.int64)
    return xp.asarray(positions, device=device(like))
