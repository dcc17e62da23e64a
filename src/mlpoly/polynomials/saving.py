"""Polynomials on disk: safetensors with a JSON header, never pickle.

The header has the tree of records that a polynomial is made of, with {"array": name} where a tensor stands. Reading
calls the constructors of these records, and no others: they check what they are given.
"""

import math
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mlpoly._version import __version__
from mlpoly.activations import Activation, get
from mlpoly.arrays import Array, Library, check_finite, check_names, from_numpy, to_numpy
from mlpoly.errors import FileFormatError, UnknownActivationError
from mlpoly.files import read_tensors, write_tensors
from mlpoly.inputs import Gaussian, GaussianMixture
from mlpoly.polynomials.base import Polynomial
from mlpoly.polynomials.bounded import BoundedPolynomial
from mlpoly.polynomials.chaos import ChaosPolynomial
from mlpoly.polynomials.composed import ComposedPolynomial
from mlpoly.polynomials.dense import DensePolynomial
from mlpoly.polynomials.fields import Source
from mlpoly.polynomials.ridge import RidgePolynomial
from mlpoly.records import arrays_of, map_arrays, replace
from mlpoly.units import Gate, Series, Units

_LAYOUT = 6  # other layouts are refused
_FORMS = (RidgePolynomial, BoundedPolynomial, DensePolynomial, ChaosPolynomial, ComposedPolynomial)
_INPUTS = (Gaussian, GaussianMixture)  # of other inputs a file holds only the fingerprint, in the source
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (*_FORMS, *_INPUTS, Units, Gate, Series, Source)}
_LEFT_OUT = ("report", "neutral", "sample_dtype")  # fields that a file does not hold


def save_polynomial(p: Polynomial, path: str | PathLike[str]) -> None:
    """Write a polynomial, whole or not at all."""
    if p.inputs is not None:
        p = replace(p, source=replace(p.source, inputs=p.inputs.fingerprint))
    arrays: dict[str, np.ndarray] = {}
    header = {"format": "mlpoly", "layout": _LAYOUT, "version": __version__, "polynomial": _tree(p, "", arrays)}
    write_tensors(path, arrays, header)


def _tree(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """A value in terms of JSON, with its arrays in `arrays` under dotted names."""
    kind, dot = type(value).__name__, f"{name}." if name else ""
    if _KINDS.get(kind) is type(value):
        values = {f.name: getattr(value, f.name) for f in fields(value) if f.name not in _LEFT_OUT}
        if isinstance(value, ChaosPolynomial):
            values["exponents"] = value.table
        if isinstance(value, Polynomial) and not isinstance(value.inputs, _INPUTS):
            values["inputs"] = None
        return {"kind": kind, **{key: _tree(item, dot + key, arrays) for key, item in values.items()}}
    if isinstance(value, Activation):
        return value.name if registered(value.name) == value else None
    if isinstance(value, tuple):
        return [_tree(item, f"{dot}{i}", arrays) for i, item in enumerate(value)]
    if value is None or isinstance(value, str | bool):
        return value
    arrays[name] = to_numpy(value)
    return {"array": name}


def registered(name: Any) -> Activation | None:
    """The activation of that name, or None if there is none."""
    try:
        return get(name) if name else None
    except (UnknownActivationError, ValueError):
        return None


def load(path: str | PathLike[str], library: Library = "numpy", like: Array | None = None) -> Polynomial:
    """Read a polynomial written by `save`, with the inputs that it was fitted under if the file holds them.

    A corrupt, truncated or foreign file raises a `FileFormatError`.

    Parameters
    ----------
    path : path
    library : {"numpy", "torch", "jax"}
        Array library of the result.
    like : array, optional
        Take library, dtype and device from this array instead; inputs are in float64 where the library has it.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np, mlpoly as mp
    >>> poly = mp.fit(mp.MLP(np.eye(2), activation="relu"), mp.Gaussian.standard(2), degree=3)
    >>> with TemporaryDirectory() as folder:
    ...     poly.save(f"{folder}/poly.safetensors")
    ...     mp.load(f"{folder}/poly.safetensors").inputs
    Gaussian(dim=2, identity covariance)
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no polynomial file at {path}; polynomials are written with poly.save(path).")
    header, arrays = read_tensors(path)
    if header is None or header.get("format") != "mlpoly":
        raise FileFormatError(f"{path} is a safetensors file but holds no mlpoly polynomial; was it written by save()?")
    if header.get("layout") != _LAYOUT:
        raise FileFormatError(
            f"{path} has the file layout {header.get('layout')!r:.20}, but mlpoly {__version__} reads {_LAYOUT}; read "
            f"it with the version that wrote it, {header.get('version')!r:.20}, or fit and save again."
        )
    try:
        with np.errstate(all="ignore"):  # damaged numbers may overflow before they are refused
            poly = _built(header.get("polynomial"), arrays)
            if not isinstance(poly, Polynomial):
                raise FileFormatError(f"a {type(poly).__name__} is not a polynomial")
            if arrays:
                raise FileFormatError(f"tensor {next(iter(arrays))!r} belongs to nothing")
            _check_numbers(poly)
    except (TypeError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is damaged: {str(error).rstrip('.')}. Save it again.") from error
    return map_arrays(poly, lambda a: from_numpy(a, library)) if like is None else poly.to(like)


def _built(node: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The value of a tree; its tensors are taken out of `arrays`."""
    match node:
        case None | bool() | str():
            return node
        case list():
            return tuple(_built(item, arrays) for item in node)
        case {"array": str(name)} if name in arrays:
            return arrays.pop(name)
        case {"array": str(name)}:
            raise FileFormatError(f"tensor {name!r} is missing")
        case {"kind": str(kind)} if kind in _KINDS:
            items = {key: item for key, item in node.items() if key != "kind"}
        case _:
            raise FileFormatError(f"its header has {node!r:.60}, which is no part of a polynomial")
    if odd := {f.name for f in fields(_KINDS[kind]) if f.name not in _LEFT_OUT} ^ set(items):
        raise FileFormatError(f"the {kind} in its header has no {min(odd)!r}, or should not have it")
    values = {key: _built(item, arrays) for key, item in items.items()}
    if "activation" in values and kind != "Source":
        values["activation"] = registered(values.get("activation"))
    if kind == "GaussianMixture" and isinstance(values.get("covs"), tuple):  # one per component, in different forms
        parts = zip(values["means"], values["covs"], strict=True)
        return GaussianMixture.of(values["weights"], [Gaussian(m, c, names=values["names"]) for m, c in parts])
    return _KINDS[kind](**values)


def _check_numbers(poly: Polynomial) -> None:
    """Raise if a polynomial or its inputs have numbers that none can have, or another number of names."""
    check_names(poly.output_names, poly.dim_out, "output")
    for name, a in arrays_of(poly).items():
        field = name.split(".")[-1]
        if field == "bounds" and not (a > 0).all():
            raise ValueError(f"{name} has entries that are not positive")
        if field != "bounds":
            check_finite(name, a)
        if field in ("scales", "spreads") and (a < 0).any():
            raise ValueError(f"{name} has negative entries")
        if field == "quadratic":
            gap = np.abs(a - np.swapaxes(a, 1, 2)).max(initial=0)
            if not gap <= math.sqrt(np.finfo(a.dtype).eps) * np.abs(a).max(initial=0):
                raise ValueError(f"{name} has forms that are not symmetric")
