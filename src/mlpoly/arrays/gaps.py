"""Operations that the array-API standard leaves out."""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import array_api_compat as compat
import numpy as np

from mlpoly.arrays.namespace import Array, differentiated, is_torch, is_tracer, namespace_of
from mlpoly.arrays.placement import eye

_UNROLLED = 12  # steps of a loop that JAX may compile one by one


def erf(a: Array) -> Array:
    """Error function, elementwise."""
    return _special_functions(a).erf(a)


def erfc(a: Array) -> Array:
    """Complementary error function, elementwise."""
    return _special_functions(a).erfc(a)


def _special_functions(a: Array) -> Any:
    if is_torch(a):
        return sys.modules["torch"].special
    if compat.is_jax_array(a):
        import jax.scipy.special

        return jax.scipy.special
    import scipy.special

    return scipy.special


def relu(a: Array) -> Array:
    """Positive part, elementwise."""
    xp = namespace_of(a)
    return xp.clip(a, 0, None) if not compat.is_torch_namespace(xp) else a.relu()


def safe_inverse(a: Array) -> Array:
    """1 / a where a is positive, elsewhere zero, with a zero gradient."""
    xp = namespace_of(a)
    positive = a > 0
    return xp.where(positive, 1 / xp.where(positive, a, 1.0), 0.0)


def safe_root(a: Array) -> Array:
    """Square root where a is positive, elsewhere zero, with a zero gradient."""
    xp = namespace_of(a)
    positive = a > 0
    if not differentiated(a):
        return xp.sqrt(xp.where(positive, a, 0.0))
    return xp.where(positive, xp.sqrt(xp.where(positive, a, 1.0)), 0.0)


def triangular_factor(a: Array) -> Array:
    """R of the QR decomposition of matrices (..., m, n), without Q, which the standard's `qr` would compute as well."""
    if is_torch(a):  # a gradient needs Q as well
        return sys.modules["torch"].linalg.qr(a, mode="reduced" if a.requires_grad else "r").R
    if compat.is_jax_array(a):
        import jax.numpy as jnp

        return jnp.linalg.qr(a, mode="r")
    return np.linalg.qr(a, mode="r")


def add_product(start: Array, left: Array, right: Array, factor: float = 1.0) -> Array:
    """`start + factor * left * right`, elementwise, with as few passes over the memory as the library allows."""
    if is_torch(left):
        return sys.modules["torch"].addcmul(start, left, right, value=factor)
    product = left * right
    # In place on a new array; JAX, whose arrays are immutable, makes new ones and fuses the operations.
    if factor != 1.0:
        product *= factor
    product += start
    return product


def add_scaled(start: Array, other: Array, factor: float) -> Array:
    """`start + factor * other`, elementwise, in one pass where the library allows."""
    return sys.modules["torch"].add(start, other, alpha=factor) if is_torch(start) else start + factor * other


def accumulate_product(total: Array, left: Array, right: Array, factor: float = 1.0) -> Array:
    """`total + factor * left @ right`, in the memory of `total` where the library allows: use only the result."""
    if is_torch(total):
        return total.addmm_(left, right, alpha=factor)
    product = left @ right
    if factor != 1.0:
        product *= factor
    total += product
    return total


def add_at(array: Array, index: Any, values: Array) -> Array:
    """Add values at an index, in the memory of `array` where the library allows: use only the result."""
    if hasattr(array, "at"):
        return array.at[index].add(values)
    array[index] += values
    return array


def scan(step: Callable[..., tuple[Any, Any]], state: Any, *rows: Sequence[Any] | Array) -> tuple[Any, Array]:
    """The last state of `state, output = step(state, *row)`, row after row, and the outputs, stacked, or None.

    Where JAX traces, which compiles every operation, many rows become one loop: it compiles in the time of one row. The
    state is an array or a tuple of them.
    """
    first = state[0] if isinstance(state, tuple) else state
    if len(rows[0]) > _UNROLLED and is_tracer(first):
        import jax

        arrays = [jax.numpy.asarray(row, first.dtype) for row in rows]
        # A gradient computes each step again from its state: all that the steps compute would fill the memory.
        return jax.lax.scan(jax.checkpoint(lambda state, row: step(state, *row)), state, arrays)
    outputs, output = [], None
    for row in zip(*rows, strict=True):
        state, output = step(state, *row)
        outputs.append(output)
    return state, None if output is None else namespace_of(first).stack(outputs)


def no_gradients(like: Array) -> AbstractContextManager[Any]:
    """Return a context without recording for differentiation; only PyTorch records unless told not to."""
    return sys.modules["torch"].no_grad() if is_torch(like) else nullcontext()


def stop_gradient(a: Array) -> Array:
    """The same values, constant under differentiation."""
    if is_torch(a):
        return a.detach()
    if compat.is_jax_array(a):
        import jax.lax

        return jax.lax.stop_gradient(a)
    return a


def positive_semidefinite(matrix: Array, tolerance: float) -> bool:
    """Whether matrix + tolerance * I has a Cholesky factor."""
    xp = namespace_of(matrix)
    shifted = matrix + tolerance * eye(matrix.shape[0], matrix)
    if compat.is_torch_namespace(xp):
        return int(sys.modules["torch"].linalg.cholesky_ex(shifted.detach()).info) == 0
    try:
        factor = xp.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        return False
    return bool(xp.all(xp.isfinite(factor)))  # JAX returns NaN where NumPy raises


def chunks(length: int, size: int) -> list[slice]:
    """Return consecutive slices of at most `size` that cover range(length); one empty slice if length is zero."""
    return [slice(i, min(i + size, length)) for i in range(0, max(length, 1), size)]
