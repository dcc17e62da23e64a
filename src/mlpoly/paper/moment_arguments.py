"""Arguments of moments: arrays of one kind, shapes that broadcast, symmetric covariances."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlpoly.arrays import Array, as_float_array, check_finite, constant, namespace, promote, readable, to_numpy

_PLAIN = (int, float, list, tuple)


def together(**values: Any) -> tuple[Array, ...]:
    """Finite floating arrays of one library, device and dtype; plain numbers and lists follow the arrays among them."""
    arrays = {name: as_float_array(name, value) for name, value in values.items()}
    given = {name: a for name, a in arrays.items() if not isinstance(values[name], _PLAIN)}
    if given:
        namespace(**given)
        like = next(iter(given.values()))
        arrays = {name: a if name in given else constant(a, like) for name, a in arrays.items()}
    for name, a in arrays.items():
        check_finite(name, a)
    return promote(*arrays.values())


def batch_shape(**shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which leading axes broadcast."""
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        found = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ValueError(f"leading axes do not broadcast against each other: {found}.") from None


def symmetric(name: str, cov: Array) -> Array:
    """Covariances (..., d, d), checked for symmetry; the mean with the transpose keeps gradients symmetric too."""
    xp = namespace(cov=cov)
    flipped = xp.matrix_transpose(cov)
    if readable(cov) and 0 not in cov.shape:
        skew = xp.max(xp.abs(cov - flipped))
        if bool(skew > 100 * float(xp.finfo(cov.dtype).eps) * xp.max(xp.abs(cov))):
            raise ValueError(f"{name} is not symmetric (entries differ by {to_numpy(skew):.2e}); symmetrise it first.")
    return (cov + flipped) / 2


def check_not_negative(name: str, a: Array, remedy: str) -> None:
    """Raise if an array whose values can be read holds a negative number."""
    if readable(a) and bool(namespace(a=a).any(a < 0)):
        raise ValueError(f"{name} must not be negative; {remedy}.")
