"""Which array library is in use, where an array lives, and whether its values can be read."""

import sys
from typing import Any

import array_api_compat as compat

from mlpoly.records import register_pytrees

Array = Any  # an array of any supported library; there is no common static type for them


def namespace(**arrays: Array) -> Any:
    """Return the array-API namespace of arrays, which must be of one library on one device; None is ignored."""
    given = {name: a for name, a in arrays.items() if a is not None}
    libraries = [namespace_of(a) for a in given.values()]
    xp = libraries[0]
    if any(other is not xp for other in libraries):  # a set of them would stop torch.compile
        found = ", ".join(f"{name} is {type(a).__module__.split('.')[0]}" for name, a in given.items())
        raise TypeError(
            f"arguments come from different array libraries ({found}); convert them to one, arrays and DataFrames with "
            f"torch.as_tensor(numpy.asarray(x)) or numpy.asarray(x), and networks, inputs and polynomials with "
            f".to(array), which takes library, dtype and device from an array such as net.prototype or numpy.zeros(1)."
        )
    places = {name: device(a) for name, a in given.items() if not is_tracer(a)}
    if len({str(p) for p in places.values()}) > 1:
        found = ", ".join(f"{name} on {place}" for name, place in places.items())
        raise TypeError(f"arguments live on different devices ({found}); move them to one device first.")
    if compat.is_jax_namespace(xp):
        register_pytrees()
    return xp


_namespaces: dict[type, Any] = {}  # torch.compile can trace a dictionary, but not the caches of array-api-compat


def namespace_of(a: Array) -> Any:
    """Array-API namespace of one array, cached by its type."""
    kind = type(a)
    if kind not in _namespaces:
        _namespaces[kind] = compat.array_namespace(a)
    return _namespaces[kind]


def is_torch(a: Array) -> bool:
    """Whether this is a torch tensor."""
    return bool(namespace_of(a).__name__ == "array_api_compat.torch")


def device(a: Array) -> Any:
    """Device of an array."""
    return a.device if is_torch(a) else compat.device(a)


def on_cpu(a: Array) -> bool:
    """Whether an array lives in the memory of the host, where float32 products run twice as fast as float64."""
    return is_tracer(a) or str(device(a)).split(":")[0].lower() in ("cpu", "tfrt_cpu_0")


def differentiated(a: Array) -> bool:
    """Whether gradients may flow to an array; under jax.jit and torch.func nobody can tell, and the answer is yes."""
    if is_torch(a):
        torch = sys.modules["torch"]
        return torch.is_grad_enabled() and (a.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(a))
    return is_tracer(a)


def interchangeable(a: Array | None, b: Array | None) -> bool:
    """Whether two arrays are the same, or equal and without gradients, which would otherwise flow to the wrong one."""
    if a is b or a is None or b is None:
        return a is b
    return a.shape == b.shape and not differentiated(a) and not differentiated(b) and bool((a == b).all())


def readable(*arrays: Array) -> bool:
    """Whether values can be looked at now: False under jax.jit, torch.func, torch.compile and on the meta device."""
    for a in arrays:
        if is_tracer(a):
            return False
        if is_torch(a):
            torch = sys.modules["torch"]
            if a.is_meta or torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(a):
                return False
    jax = sys.modules.get("jax")
    # Under jax.jit every result is traced, even that of constants. JAX has no public test for this, but the result of
    # any operation shows it.
    return jax is None or not any(map(compat.is_jax_array, arrays)) or not is_tracer(jax.numpy.negative(1.0))


def decidable(*arrays: Array) -> bool:
    """Whether comparisons of values can be looked at: as `readable`, but also under jax.grad outside jax.jit."""
    traced = [a for a in arrays if is_tracer(a)]
    if not traced:
        return readable(*arrays)
    try:
        # Comparisons have no derivative, so that jax.grad computes them at once, and jax.jit does not.
        return all(bool((a == a).all()) for a in traced)
    except sys.modules["jax"].errors.ConcretizationTypeError:
        return False


def is_tracer(a: Array) -> bool:
    """Whether JAX is tracing through this array, so that it has no values."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(a, jax.core.Tracer)


def known_type(a: Any) -> bool:
    """Whether an array of this type has been seen before."""
    return type(a) in _namespaces
