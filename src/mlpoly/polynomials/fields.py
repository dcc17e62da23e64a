"""What the constructors of polynomials share: their source, and checks of the arrays that they are given."""

from dataclasses import dataclass
from typing import Any

from mlpoly.arrays import Array, as_float_array, check_shape, namespace, promote
from mlpoly.records import arrays_of, map_arrays

_WORDS = {"d": "inputs", "o": "outputs", "h": "units", "k": "coefficients", "r": "linear forms", "t": "terms"}


@dataclass(frozen=True)
class Source:
    """Provenance of a fitted polynomial, kept in its file; empty where unknown.

    It has the network's activation, the method, for example "least squares under a Gaussian", and the fingerprint of
    the inputs it was fitted under.
    """

    activation: str = ""
    method: str = ""
    inputs: str = ""

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.activation, self.method, self.inputs)):
            raise TypeError(
                f"a source is made of three texts, got {self.activation!r}, {self.method!r}, {self.inputs!r}."
            )

    def __str__(self) -> str:
        return ", ".join(part for part in (self.activation, self.method) if part) or "of unknown source"


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
    """Raise unless arrays of a record have the given shapes, a letter for each axis, such as ``linear="o d"``.

    `sizes` has those of some letters; the others are read off the arrays in turn, and added. Fields that may be None
    are not checked then. `of` is the name of the record within another, for errors.
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
