"""Checks of user input; each message says what to do."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import array_api_compat as compat
import numpy as np

from mlpoly.arrays.namespace import Array, is_torch, known_type, namespace, namespace_of, readable
from mlpoly.arrays.placement import is_low_precision, to_numpy, widen


def as_float_array(name: str, value: Any, *, integers: bool = False) -> Array:
    """Check that `value` is a real floating array; plain Python numbers and lists become NumPy float64.

    With `integers`, meant for data, integer arrays and data frames become float64 too. Integer weights are refused:
    most often they are quantised, and mean nothing without their scales.
    """
    if isinstance(value, (int, float, list, tuple)) and not isinstance(value, bool):
        try:
            value = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"{name} must be an array or a regular nested list of numbers.") from None
    if integers and not known_type(value) and hasattr(value, "to_numpy"):
        value = _frame_values(name, value)
    if not known_type(value) and not compat.is_array_api_obj(value):
        found = [method for method in ("to_numpy", "toarray") if hasattr(value, method)]  # data frames, SciPy's sparse
        hint = f"; use {name}.{found[0]}()" if found else ""
        raise TypeError(f"{name} must be an array of NumPy, PyTorch or JAX, got {type(value).__name__}{hint}.")
    if isinstance(value, np.ma.MaskedArray):
        remedy = f"drop the rows with masked entries, or fill them with {name}.filled(value)"
        raise TypeError(f"{name} is a masked array, and masks are not supported; {remedy}.")
    xp = namespace_of(value)
    if is_torch(value) and str(value.layout) != "torch.strided":
        raise TypeError(f"{name} is a sparse tensor ({value.layout}); use {name}.to_dense().")
    if integers and xp.isdtype(value.dtype, "integral"):
        return widen(value)
    if not xp.isdtype(value.dtype, "real floating") and not is_low_precision(value.dtype):
        remedy = f"convert it first, for example with {name}.astype('float64') or {name}.double()"
        raise TypeError(f"{name} must hold real floating-point numbers, got dtype {value.dtype}; {remedy}.")
    return value


def column_names(value: Any) -> tuple[str, ...] | None:
    """Names of the columns of a data frame (pandas, Polars), or None for anything else."""
    if not hasattr(value, "columns") or not hasattr(value, "to_numpy"):
        return None
    return tuple(str(column) for column in value.columns)


def check_names(names: Any, count: int, of: str = "input") -> tuple[str, ...] | None:
    """Return the names of the inputs, or outputs, as a tuple; None stays None. They are `count` different ones."""
    if names is None:
        return None
    argument = "names" if of == "input" else f"{of}_names"
    if isinstance(names, str):
        raise TypeError(f"{argument} is the text {names!r}; pass one name for each of the {count} {of}s, in a list.")
    found = tuple(str(name) for name in names)
    if len(found) != count:
        raise ValueError(f"{argument} has {len(found)} entries, but there are {count} {of}s; pass one name for each.")
    twice = [name for name in dict.fromkeys(found) if found.count(name) > 1] if len(set(found)) < count else []
    if twice:
        raise ValueError(f"{argument} has {twice[0]!r} more than once; every {of} needs a name of its own.")
    return found


def check_columns(name: str, value: Any, names: Sequence[str] | None, code: str = "inputs.names") -> None:
    """Raise if a data frame, or a row of one, has an input at another place than `names`, which `code` gives."""
    columns = getattr(value, "columns", getattr(value, "index", ())) if hasattr(value, "to_numpy") else ()
    places = {each: i for i, each in enumerate(names or ())}
    for i, column in enumerate(map(str, columns)):
        if places.get(column, i) != i:
            raise ValueError(
                f"{name} has {column!r} at place {i}, but that is input {places[column]}; put the columns in order, "
                f"{name}[list({code})], or pass {name}.to_numpy() if the order is right."
            )


def _frame_values(name: str, frame: Any) -> np.ndarray:
    """The numbers of a data frame or of one column or row of it; columns of text are refused by name."""
    values = np.asarray(frame.to_numpy())
    if values.dtype.kind in "fiu":
        return values
    odd = []
    for column in getattr(frame, "columns", ()):
        try:
            np.asarray(frame[column].to_numpy()).astype(np.float64)
        except (TypeError, ValueError):
            odd.append(str(column))
    if odd:
        remedy = "drop them, or turn each category into a column of zeros and ones with pandas.get_dummies"
        raise TypeError(f"{name} has columns that are not numbers ({', '.join(odd)}); {remedy}.")
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        word = next((value for value in values.flat if isinstance(value, str)), values.flat[0])
        remedy = "mlpoly.importers.encoding(pipeline)(table) has numbers for the categories of a pipeline"
        raise TypeError(f"{name} holds values that are not numbers, such as {word!r:.40}; {remedy}.") from None


def as_integer(name: str, value: Any, minimum: int) -> int:
    """Check that `value` is an integer of at least `minimum` and return it as int."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}.")
    return int(value)


def as_number(
    name: str, value: Any, kind: str, low: float = -math.inf, high: float = math.inf, edge: bool = False
) -> float:
    """Check that `value` is a number between `low` and `high`, or `low` itself with `edge`, and return it as float."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not (low < value < high or (edge and value == low)):
        raise ValueError(f"{name} must be {kind}, got {value!r}.")
    return float(value)


def check_output(output: Any, outputs: int, names: Sequence[str] | None = None) -> int:
    """Check an output, given by its name or its index, which may count from the last, and return its index."""
    if isinstance(output, str):
        if output not in (names or ()):
            known = f"the outputs are {', '.join(names)}" if names else "the outputs have no names; use an index"
            raise ValueError(f"there is no output {output!r}; {known}.")
        return list(names or ()).index(output)
    index = as_integer("output", output, -outputs)
    if index >= outputs:
        raise ValueError(f"output is {index}, but there are {outputs} outputs, numbered from 0 to {outputs - 1}.")
    return index % outputs


def check_shape(name: str, a: Array, shape: tuple[int | None, ...], meaning: str) -> None:
    """Raise unless an array has the expected shape (None matches any length)."""
    given = tuple(a.shape)
    if len(given) != len(shape) or not all(want in (None, have) for want, have in zip(shape, given, strict=True)):
        wanted = "(" + ", ".join("any" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
        raise ValueError(f"{name} has shape {given}, expected {wanted}: {meaning}.")


def check_finite(name: str, a: Array) -> None:
    """Raise if an array whose values can be read holds NaN or infinity."""
    if a is None or not readable(a):
        return
    xp = namespace_of(a)
    # A finite sum proves all entries finite without a temporary array; only if it is not are they counted.
    with np.errstate(over="ignore", invalid="ignore"):
        if bool(xp.isfinite(xp.sum(a))):
            return
    bad = int(np.count_nonzero(to_numpy(~xp.isfinite(a))))
    if bad:
        raise ValueError(f"{name} holds {bad} NaN or infinite entries; clean or drop them first.")


def check_points(x: Any, dim: int, **like: Array) -> Array:
    """Return points (..., dim) as floats, or raise unless they are in the library and on the device of `like`."""
    x = as_float_array("x", x, integers=True)
    namespace(x=x, **like)
    if len(x.shape) < 1 or x.shape[-1] != dim:
        raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., {dim}): the last axis holds the inputs.")
    return x
