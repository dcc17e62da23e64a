"""The only module that knows which array library is in use (NumPy, PyTorch, JAX).

Everything else asks :func:`namespace` for the array-API namespace of its arguments and writes one formula.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import array_api_compat as compat
import numpy as np

from mlpoly.extras import explain_missing
from mlpoly.records import record, register_pytrees, static

Array = Any  # an array of any supported library; there is no common static type for them

__all__ = [
    "Array",
    "accumulate_product",
    "add_at",
    "add_product",
    "as_float_array",
    "as_integer",
    "astype",
    "blocks",
    "cast_like",
    "cast_result",
    "check_finite",
    "check_shape",
    "constant",
    "constant_index",
    "device",
    "erf",
    "erfc",
    "eye",
    "from_numpy",
    "is_low_precision",
    "namespace",
    "no_gradients",
    "on",
    "on_cpu",
    "positive_semidefinite",
    "promote",
    "readable",
    "record",
    "relu",
    "rounding_error",
    "safe_inverse",
    "scalar",
    "start_copy",
    "static",
    "take_rows",
    "to_numpy",
    "triangular_factor",
    "widen",
]


# ---------------------------------------------------------------------------------------------------------------------
# What came in
# ---------------------------------------------------------------------------------------------------------------------


def namespace(**arrays: Array) -> Any:
    """Array-API namespace shared by all keyword arguments (None is passed over).

    Raises
    ------
    TypeError
        If the arguments come from different array libraries or live on different devices.
    """
    given = {name: a for name, a in arrays.items() if a is not None}
    libraries = [_namespace_of(a) for a in given.values()]
    xp = libraries[0]
    if any(other is not xp for other in libraries):  # a set of them would stop torch.compile
        found = ", ".join(f"{name} is {_library(a)}" for name, a in given.items())
        raise TypeError(f"arguments come from different array libraries ({found}); convert them to one of these.")
    _check_devices(given)
    if compat.is_jax_namespace(xp):
        register_pytrees()
    return xp


_namespaces: dict[type, Any] = {}  # torch.compile follows a dictionary, but warns of the caches of array-api-compat


def _namespace_of(a: Array) -> Any:
    """Array-API namespace of one array, remembered by its type."""
    kind = type(a)
    if kind not in _namespaces:
        _namespaces[kind] = compat.array_namespace(a)
    return _namespaces[kind]


def _is_torch(a: Array) -> bool:
    return bool(_namespace_of(a).__name__ == "array_api_compat.torch")


def _check_devices(given: dict[str, Array]) -> None:
    places = {name: device(a) for name, a in given.items() if not _is_tracer(a)}
    if len({str(p) for p in places.values()}) > 1:
        found = ", ".join(f"{name} on {place}" for name, place in places.items())
        raise TypeError(f"arguments live on different devices ({found}); move them to one device first.")


def _library(a: Array) -> str:
    return type(a).__module__.split(".")[0]


def device(a: Array) -> Any:
    """Device an array lives on."""
    return a.device if _is_torch(a) else compat.device(a)


def on_cpu(a: Array) -> bool:
    """Whether an array lives in the memory of the host, where float32 products run twice as fast as float64."""
    return _is_tracer(a) or str(device(a)).split(":")[0].lower() in ("cpu", "tfrt_cpu_0")


def as_float_array(name: str, value: Any, *, integers: bool = False) -> Array:
    """Check that `value` is a real floating array; plain Python numbers and lists become NumPy float64.

    With `integers`, for data, arrays of integers become float64 too. Integer weights stay refused: they are most
    often quantised, and mean nothing without their scales.

    Raises
    ------
    TypeError
        For torch modules, boolean, complex, masked and sparse arrays, and anything that is no array.
    """
    if isinstance(value, (int, float, list, tuple)) and not isinstance(value, bool):
        value = _from_python(name, value)
    if type(value) not in _namespaces and not compat.is_array_api_obj(value):
        found = [method for method in ("to_numpy", "toarray") if hasattr(value, method)]  # data frames, SciPy's sparse
        hint = f"; use {name}.{found[0]}()" if found else ""
        raise TypeError(f"{name} must be an array of NumPy, PyTorch or JAX, got {type(value).__name__}{hint}.")
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, and masks are not supported; drop the rows with masked entries, or fill them "
            f"with {name}.filled(value)."
        )
    xp = _namespace_of(value)
    if _is_torch(value) and str(value.layout) != "torch.strided":
        raise TypeError(f"{name} is a sparse tensor ({value.layout}); use {name}.to_dense().")
    if integers and xp.isdtype(value.dtype, "integral"):
        return widen(value)
    if not xp.isdtype(value.dtype, "real floating") and not is_low_precision(value.dtype):
        raise TypeError(
            f"{name} must hold real floating-point numbers, got dtype {value.dtype}; "
            f"convert it first, for example with {name}.astype('float64') or {name}.double()."
        )
    return value


def _from_python(name: str, value: Any) -> Array:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be an array or a regular nested list of numbers.") from None


def as_integer(name: str, value: Any, minimum: int) -> int:
    """Check that `value` is an integer of at least `minimum` and return it as int."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}.")
    return int(value)


def check_shape(name: str, a: Array, shape: tuple[int | None, ...], meaning: str) -> None:
    """Compare a shape with what is expected (None matches any length)."""
    given = tuple(a.shape)
    fits = len(given) == len(shape) and all(want in (None, have) for want, have in zip(shape, given, strict=True))
    if not fits:
        wanted = "(" + ", ".join("any" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
        raise ValueError(f"{name} has shape {given}, expected {wanted}: {meaning}.")


def check_finite(name: str, a: Array) -> None:
    """Raise if an array whose values can be read holds NaN or infinity."""
    if a is None or not readable(a):
        return
    xp = _namespace_of(a)
    # One finite sum proves all entries finite without a temporary; only a failed sum needs the full look.
    with np.errstate(over="ignore", invalid="ignore"):
        if bool(xp.isfinite(xp.sum(a))):
            return
    bad = int(xp.sum(xp.astype(~xp.isfinite(a), xp.int64)))
    if bad:
        raise ValueError(f"{name} holds {bad} NaN or infinite entries; clean or drop them first.")


def scalar(a: Array) -> float:
    """The value of a one-element array, without a word from autograd."""
    return float(to_numpy(a))


def readable(*arrays: Array) -> bool:
    """Whether values can be looked at now: False under jax.jit, torch.func, torch.compile and on the meta device."""
    return not any(_is_tracer(a) or _is_torch_traced(a) for a in arrays) and not _jax_is_tracing(*arrays)


def _is_tracer(a: Array) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(a, jax.core.Tracer)


def _jax_is_tracing(*arrays: Array) -> bool:
    """Whether whatever is computed from these arrays is traced: under jax.jit that holds for constants too."""
    jax = sys.modules.get("jax")
    # JAX has no public question for this, but the result of any operation shows it.
    return jax is not None and any(map(compat.is_jax_array, arrays)) and _is_tracer(jax.numpy.negative(1.0))


def _is_torch_traced(a: Array) -> bool:
    if not _is_torch(a):
        return False
    torch = sys.modules["torch"]
    return bool(a.is_meta or torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(a))


# ---------------------------------------------------------------------------------------------------------------------
# Precision and place
# ---------------------------------------------------------------------------------------------------------------------


def is_low_precision(dtype: Any) -> bool:
    """Whether this is one of the 16-bit floats, which are for storing numbers and not for computing with them."""
    return str(dtype).split(".")[-1] in ("float16", "bfloat16")


def widen(a: Array) -> Array:
    """The same numbers in float64 where the library and device have it, else in float32.

    Scalar maths runs on a few numbers per neuron, so precision there costs nothing.
    """
    xp = _namespace_of(a)
    if compat.is_jax_namespace(xp):
        import jax

        return xp.astype(a, xp.float64 if jax.config.read("jax_enable_x64") else xp.float32)
    if compat.is_torch_namespace(xp) and a.device.type == "mps":
        return xp.astype(a, xp.float32)
    return xp.astype(a, xp.float64, copy=False)


def astype(a: Array, dtype: Any) -> Array:
    """Cast without a copy where none is needed."""
    return _namespace_of(a).astype(a, dtype, copy=False)


def cast_like(a: Array, like: Array) -> Array:
    """Cast to the dtype of `like`."""
    return astype(a, like.dtype)


def cast_result(a: Array, like: Array) -> Array:
    """Cast what was computed to the dtype of `like`, but no narrower than float32."""
    return astype(a, _namespace_of(like).float32 if is_low_precision(like.dtype) else like.dtype)


def promote(*arrays: Array) -> tuple[Array, ...]:
    """Cast arrays of one library to their common dtype (16-bit floats count as float32)."""
    xp = _namespace_of(arrays[0])
    dtypes = [xp.float32 if is_low_precision(a.dtype) else a.dtype for a in arrays]
    common = dtypes[0]
    for d in dtypes[1:]:
        common = xp.result_type(common, d)
    return tuple(astype(a, common) for a in arrays)


def rounding_error(a: Array) -> float:
    """Relative rounding error of the numbers of an array; 16-bit ones are computed with in float32."""
    xp = _namespace_of(a)
    return float(xp.finfo(xp.float32 if is_low_precision(a.dtype) else a.dtype).eps)


def constant(values: Any, like: Array) -> Array:
    """Python or NumPy numbers as an array with the library, dtype and device of `like`."""
    xp = _namespace_of(like)
    if _is_tracer(like):
        return xp.asarray(values, dtype=like.dtype)
    if compat.is_torch_namespace(xp) and isinstance(values, np.ndarray):
        values = values.copy()  # torch warns when it is handed a read-only buffer
    return xp.asarray(values, dtype=like.dtype, device=device(like))


def eye(n: int, like: Array) -> Array:
    """Identity matrix with the library, dtype and device of `like`."""
    xp = _namespace_of(like)
    return xp.eye(n, dtype=like.dtype) if _is_tracer(like) else xp.eye(n, dtype=like.dtype, device=device(like))


def on(a: Array, like: Array) -> Array:
    """Move an array to the library, dtype and device of `like`."""
    return constant(to_numpy(a), like)


def to_numpy(a: Array) -> np.ndarray:
    """Copy to a NumPy array on the host (16-bit floats become float32)."""
    if compat.is_torch_array(a):
        a = a.detach().cpu()
        a = a.float() if is_low_precision(a.dtype) else a
    elif is_low_precision(a.dtype):
        a = _namespace_of(a).astype(a, "float32")
    return np.asarray(a)


def start_copy(a: Array) -> Callable[[], np.ndarray]:
    """Begin to copy to the host. Calling what is returned waits for the copy, not for work that was queued since."""
    if not (_is_torch(a) and a.is_cuda):
        return lambda: to_numpy(a)
    there = a.detach().to("cpu", non_blocking=True)
    cuda = sys.modules["torch"].cuda
    done = cuda.Event()
    done.record(cuda.current_stream(a.device))  # which need not be the current device

    def wait() -> np.ndarray:
        done.synchronize()
        return to_numpy(there)

    return wait


def from_numpy(a: np.ndarray, library: str) -> Array:
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
    return _namespace_of(a).take(a, constant_index(index, a), axis=0)


def constant_index(index: np.ndarray, like: Array) -> Array:
    """Integer positions in the library and on the device of `like`."""
    xp = _namespace_of(like)
    if compat.is_numpy_namespace(xp) or _is_tracer(like):
        return index
    positions = index if compat.is_jax_namespace(xp) else index.astype(np.int64)
    return xp.asarray(positions, device=device(like))


# ---------------------------------------------------------------------------------------------------------------------
# Operations that the array-API standard leaves out
# ---------------------------------------------------------------------------------------------------------------------


def erf(a: Array) -> Array:
    """Error function, elementwise."""
    if compat.is_torch_array(a):
        return sys.modules["torch"].special.erf(a)
    if compat.is_jax_array(a):
        import jax.scipy.special

        return jax.scipy.special.erf(a)
    import scipy.special

    return scipy.special.erf(a)


def erfc(a: Array) -> Array:
    """Complementary error function, elementwise."""
    if _is_torch(a):
        return sys.modules["torch"].special.erfc(a)
    if compat.is_jax_array(a):
        import jax.scipy.special

        return jax.scipy.special.erfc(a)
    import scipy.special

    return scipy.special.erfc(a)


def relu(a: Array) -> Array:
    """Positive part, elementwise."""
    xp = _namespace_of(a)
    return xp.clip(a, 0, None) if not compat.is_torch_namespace(xp) else a.relu()


def safe_inverse(a: Array) -> Array:
    """1 / a where a is positive, elsewhere zero, with a zero gradient."""
    xp = _namespace_of(a)
    positive = a > 0
    return xp.where(positive, 1 / xp.where(positive, a, 1.0), 0.0)


def triangular_factor(a: Array) -> Array:
    """R of the QR decomposition of matrices (..., m, n), without Q, which the standard's `qr` would make."""
    if _is_torch(a):  # a gradient needs Q as well
        return sys.modules["torch"].linalg.qr(a, mode="reduced" if a.requires_grad else "r").R
    if compat.is_jax_array(a):
        import jax.numpy as jnp

        return jnp.linalg.qr(a, mode="r")
    return np.linalg.qr(a, mode="r")


def add_product(start: Array, left: Array, right: Array, factor: float = 1.0) -> Array:
    """Start + factor * left * right, elementwise, with as few passes over the memory as the library allows."""
    if _is_torch(left):
        return sys.modules["torch"].addcmul(start, left, right, value=factor)
    made = left * right
    # In place on an array that was made here; JAX, whose arrays do not change, makes new ones and fuses them.
    if factor != 1.0:
        made *= factor
    made += start
    return made


def accumulate_product(total: Array, left: Array, right: Array, factor: float = 1.0) -> Array:
    """Total + factor * left @ right, in the memory of `total` where the library allows: use only what is returned."""
    if _is_torch(total):
        return total.addmm_(left, right, alpha=factor)
    made = left @ right
    if factor != 1.0:
        made *= factor
    total += made
    return total


def add_at(array: Array, index: Any, values: Array) -> Array:
    """The array with values added in some places, in its own memory where the library allows: use what is returned."""
    if hasattr(array, "at"):
        return array.at[index].add(values)
    array[index] += values
    return array


def no_gradients(like: Array) -> AbstractContextManager[Any]:
    """Nothing inside is recorded for differentiation; only PyTorch records what it is not asked for."""
    return sys.modules["torch"].no_grad() if _is_torch(like) else nullcontext()


def positive_semidefinite(matrix: Array, tolerance: float) -> bool:
    """Whether matrix + tolerance * I has a Cholesky factor."""
    xp = _namespace_of(matrix)
    shifted = matrix + tolerance * eye(matrix.shape[0], matrix)
    if compat.is_torch_namespace(xp):
        torch = sys.modules["torch"]
        return int(torch.linalg.cholesky_ex(shifted.detach()).info) == 0
    try:
        factor = xp.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        return False
    return bool(xp.all(xp.isfinite(factor)))  # JAX answers with NaN where NumPy raises


def blocks(length: int, size: int) -> list[slice]:
    """Consecutive slices of at most `size` that cover range(length); one empty slice if that is empty."""
    return [slice(i, min(i + size, length)) for i in range(0, max(length, 1), size)]
