"""Checks of weights, common to all networks."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import Array, as_float_array, check_finite, check_names, check_shape, namespace


def check_weight(name: str, value: Any, shape: tuple[int | None, ...], meaning: str) -> Array:
    """Return a weight, or raise unless it is a finite floating array of the given shape."""
    weight = as_float_array(name, value)
    check_shape(name, weight, shape, meaning)
    check_finite(name, weight)
    return weight


def check_bias(name: str, value: Any, length: int, hint: str = "") -> Array | None:
    """Return an optional bias vector, checked like a weight."""
    if value is None:
        return None
    return check_weight(name, value, (length,), "one entry per row of its weight matrix" + hint)


def layout_hint(first: str, weight: Array, bias: Any, last: str, readout: Any) -> str:
    """Hint for an error about shapes, if the weights would fit together once transposed, else the empty string.

    Right are a `weight` (h, d) of the name `first`, a `bias` (h,) or None, and a `readout` (o, h) or None, the `last`.
    """
    rows, columns = weight.shape
    length, shape = tuple(getattr(bias, "shape", ())), tuple(getattr(readout, "shape", ()))
    transposed = []
    if len(shape) == 2 and shape[1] != rows:
        if shape[0] == columns and length in ((), (columns,)):
            transposed = [first, last]
        elif shape[0] == rows:
            transposed = [last]
    elif length == (columns,):
        transposed = [first]
    if not transposed:
        return ""
    remedy = " and ".join(f"{name}.T" for name in transposed)
    return f"; these look transposed: {first} is (h, d) and {last} (o, h) as in PyTorch; use {remedy}"


def set_weights(net: Any, weights: dict[str, Array | None], names: Any, output_names: Any, **static: Any) -> None:
    """Fill the fields of a network with weights of one array library, device and dtype; it needs inputs and outputs."""
    namespace(**weights)
    dtypes = {name: w.dtype for name, w in weights.items() if w is not None}
    if len(set(dtypes.values())) > 1:
        kinds = ", ".join(f"{name} is {dtype}" for name, dtype in dtypes.items())
        raise TypeError(f"weights have different dtypes ({kinds}); convert them to one.")
    for name, value in {**weights, **static}.items():
        object.__setattr__(net, name, value)
    if net.dim_in == 0 or net.dim_out == 0:  # without hidden units it is a constant
        raise ValueError(f"{net!r} has no {'inputs' if net.dim_in == 0 else 'outputs'}; a network needs at least one.")
    object.__setattr__(net, "names", check_names(names, net.dim_in))
    object.__setattr__(net, "output_names", check_names(output_names, net.dim_out, "output"))
