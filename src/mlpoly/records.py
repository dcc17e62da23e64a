"""Records: frozen dataclasses of arrays, and the operations that follow from knowing their fields."""

import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial, wraps
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")

_records: list[type] = []
_registered: set[type] = set()


def static(**options: Any) -> Any:
    """Return a record field that is not an array (a name, a flag): JAX treats it as part of the structure."""
    return field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(static, field))
def record(cls: type[T]) -> type[T]:
    """Make a frozen dataclass that passes through jax.jit, jax.grad and jax.vmap as a pytree."""
    made: Any = dataclass(frozen=True, eq=False, repr=False)(cls)
    made.__copy__ = replace
    # Copies the arrays and shares the rest, which never changes; cached properties are not copied.
    made.__deepcopy__ = lambda value, memo: replace(
        value, **{name: _copied(getattr(value, name), memo) for name in value._moving}
    )
    # Plain tuples of names, which torch.compile can follow; it stops at dataclasses.fields.
    made._names = tuple(f.name for f in fields(made))
    made._moving = tuple(f.name for f in fields(made) if not f.metadata.get("static"))
    made._fixed = tuple(f.name for f in fields(made) if f.metadata.get("static"))
    build = made.__init__

    @wraps(build)
    def build_and_register(self: Any, *values: Any, **named: Any) -> None:
        # The arrays may be JAX's, and the next thing that happens to the record may be jax.jit.
        if "jax" in sys.modules and made not in _registered:
            register_pytrees()
        build(self, *values, **named)

    made.__init__ = build_and_register
    _records.append(made)
    return made


def trusted(kind: type[T], **values: Any) -> T:
    """Return a record of these fields without its checks: right by construction, or unreadable, as under jit."""
    names = _names(kind)
    for name in values:
        if name not in names:
            raise TypeError(f"{kind.__name__} has no field {name!r}; it has {', '.join(names)}.")
    made: T = object.__new__(kind)
    for name in names:
        object.__setattr__(made, name, values[name] if name in values else getattr(kind, name, None))
    return made


def replace(value: T, **changes: Any) -> T:
    """Return a copy with some fields changed, without running the checks again, so that traced arrays pass."""
    return trusted(type(value), **{name: getattr(value, name) for name in _names(type(value))} | changes)


def _names(kind: Any) -> Sequence[str]:
    return kind._names if hasattr(kind, "_names") else [f.name for f in fields(kind)]


def map_arrays(value: T, change: Callable[[Any], Any]) -> T:
    """Return the record with a function applied to each of its arrays, those of nested records and tuples included."""
    if value is None:
        return value
    if isinstance(value, tuple):
        return tuple([map_arrays(item, change) for item in value])  # type: ignore[return-value]
    if not hasattr(value, "_moving"):
        made: T = change(value)
        return made
    kind: Any = type(value)
    return replace(value, **{name: map_arrays(getattr(value, name), change) for name in kind._moving})


def arrays_of(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return the arrays of a record by name: "field.name" within a nested record, "field.0" within a tuple."""
    if value is None:
        return {}
    if isinstance(value, tuple):
        parts = {str(i): item for i, item in enumerate(value)}
    elif hasattr(value, "_moving"):
        parts = {name: getattr(value, name) for name in value._moving}
    else:
        return {prefix: value}
    dot = f"{prefix}." if prefix else ""
    return {name: a for key, item in parts.items() for name, a in arrays_of(item, dot + key).items()}


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_copied(item, memo) for item in value)
    # PyTorch refuses to copy results of a differentiable computation. Like a pickle of them, this copy is detached.
    if getattr(value, "grad_fn", None) is not None and id(value) not in memo:
        memo[id(value)] = value.detach().clone().requires_grad_()
    return copy.deepcopy(value, memo)


def register_pytrees() -> None:
    """Register every record with JAX; called once JAX is imported, so that the core never imports it."""
    import jax

    def flatten(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        moving, fixed = ([getattr(value, name) for name in names] for names in (value._moving, value._fixed))
        return tuple(moving), tuple(fixed)

    def unflatten(cls: Any, meta: Sequence[Any], data: Sequence[Any]) -> Any:
        # JAX rebuilds records around placeholders, so the checks of __post_init__ must not run here.
        return trusted(cls, **dict(zip([*cls._moving, *cls._fixed], [*data, *meta], strict=True)))

    for cls in _records:
        if cls not in _registered:
            _registered.add(cls)
            jax.tree_util.register_pytree_node(cls, flatten, partial(unflatten, cls))
