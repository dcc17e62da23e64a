"""Checks of the arrays that constructors of polynomials are given."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import Array, as_float_array, check_shape, namespace, promote
from mlpoly.records import arrays_of, map_arrays

_WORDS = {"d": "inputs", "o": "outputs", "h": "units", "k": "coefficients", "r": "linear forms", "t": "terms"}


def store_floats(record: Any, *names: str) -> None:
    """Store the arrays of some fields of a record as floats of one library, in float32 at least."""
    found: dict[str, Array] = {}
    for name in names:
        value = getattr(record, name)
        found |= {part: as_float_array(part, a) for part, a in arrays_of(value, name).items()}
        floats = map_arrays(value, lambda a, name=name: promote(as_float_array(name, a))[0])  # type: ignore[misc]
        object.__setattr__(record, name, floats)
    if found:
        namespace(**found)


def check_shapes(record: Any, sizes: dict[str, int], /, of: str = "", **shapes: str) -> None:
    """Raise unless arrays of a record have the given shapes; those that may be absent may be None.

    Parameters
    ----------
    record : record
    sizes : dict from letter to size
        Known sizes; those of other letters are read off the arrays in turn, and added.
    of : str
        Name of the record within another, for errors.
    **shapes : str
        A letter for each axis, such as ``linear="o d"``.
    """
    for name, letters in shapes.items():
        a, axes, title = getattr(record, name), letters.split(), f"{of}.{name}" if of else name
        if a is None and type(record).__dataclass_fields__[name].default is None:
            continue
        if not hasattr(a, "shape"):
            raise TypeError(f"{title} must be an array, got {type(a).__name__}.")
        for axis, n in zip(axes, a.shape, strict=False):
            sizes.setdefault(axis, int(n))
        meaning = ", ".join(_WORDS.get(axis, axis) for axis in axes)
        check_shape(title, a, tuple(sizes.get(axis) for axis in axes), f"({meaning})")
