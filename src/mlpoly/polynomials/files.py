"""Polynomials on disk: safetensors with a JSON header, never pickle."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpoly._version import __version__
from mlpoly.arrays import Array, constant, from_numpy, to_numpy
from mlpoly.errors import FileFormatError
from mlpoly.files import read_tensors, write_tensors
from mlpoly.polynomials.source import Source

if TYPE_CHECKING:
    from mlpoly.polynomials.base import Polynomial

__all__ = ["load", "save_polynomial"]

_LAYOUT, _PLAIN = 2, 1  # what is written with tails, which older versions do not know, and without
_LARGEST = sys.float_info.max
_MOST = 1000  # the highest exponent that a polynomial of fewer terms may have

# What a file of each kind holds: name of the tensor -> its shape in terms of the header; "?" marks an optional one.
_GATE = {"gate.directions": "h d", "gate.shifts": "h", "gate.slopes": "h", "gate.series": "n h"}
_TAILS = {"tails.slopes": "2 h", "tails.gate": "2 h"}
_KINDS: dict[str, dict[str, str]] = {
    "RidgePolynomial": {
        "directions": "h d",
        "shifts": "h",
        "scales": "h",
        "series": "m h",
        "readout?": "o h",
        "bias?": "o",
        **{f"{name}?": shape for name, shape in (_GATE | _TAILS).items()},
    },
    "DensePolynomial": {"center": "d", "constant": "o", "linear?": "o d", "quadratic?": "o d d"},
    "ChaosPolynomial": {"center": "d", "whitener": "r d", "exponents": "t r", "values": "o t"},
}


def save_polynomial(p: Any, path: str | PathLike[str]) -> None:
    """Write a polynomial; the file is whole or not there."""
    source = p.source
    if not source.inputs and p.inputs is not None:
        source = replace(source, inputs=p.inputs.fingerprint)
    header = {
        "format": "mlpoly",
        "kind": type(p).__name__,
        "layout": _PLAIN if getattr(p, "tails", None) is None else _LAYOUT,
        "version": __version__,
        "degree": p.degree,
        "dim_in": p.dim_in,
        "dim_out": p.dim_out,
        **({} if getattr(p, "tails", None) is None else {"bound": p.tails.bound}),
        **asdict(source),
    }
    tensors = {name.rstrip("?"): _attribute(p, name.rstrip("?")) for name in _KINDS[type(p).__name__]}
    arrays = {name: _numbers(a) for name, a in tensors.items() if a is not None}
    write_tensors(path, arrays, header)


def _numbers(a: Any) -> np.ndarray:
    return np.asarray(a, dtype=np.int64) if isinstance(a, tuple) else to_numpy(a)


def _attribute(p: Any, dotted: str) -> Array | None:
    for part in dotted.split("."):
        p = None if p is None else getattr(p, part)
    return p


def load(path: str | PathLike[str], library: str = "numpy", like: Array | None = None) -> Polynomial:
    """Read a polynomial written by `save`.

    Parameters
    ----------
    path : path
    library : {"numpy", "torch", "jax"}
        Array library of the result.
    like : array, optional
        Take library, dtype and device from this array instead.

    Raises
    ------
    FileNotFoundError
    FileFormatError
        If the file is corrupt, truncated or not one of ours.
    """
    from mlpoly import polynomials

    header, arrays = _read(Path(path))

    def convert(a: np.ndarray) -> Array:
        if a.dtype.kind == "i":
            return a  # exponents are structure, not numbers to compute with
        return from_numpy(a, library) if like is None else constant(a, like)

    made = {name: convert(a) for name, a in arrays.items()}
    gate = {name.removeprefix("gate."): made.pop(name) for name in _GATE if name in made}
    if gate:
        made["gate"] = polynomials.Gate(**gate)
    tails = {name.removeprefix("tails."): made.pop(name) for name in _TAILS if name in made}
    if tails:
        made["tails"] = polynomials.Tails(**tails, bound=float(header["bound"]))
    source = Source(**{k: str(header.get(k, "")) for k in ("activation", "method", "inputs")})
    built: Polynomial = getattr(polynomials, header["kind"])(**made, source=source)
    return built


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not path.is_file():
        raise FileNotFoundError(f"no polynomial file at {path}; polynomials are written with poly.save(path).")
    header, arrays = read_tensors(path)
    header = _checked(path, header)
    wrong = _misfit(header, arrays) or _odd_numbers(header, arrays)
    if wrong:
        raise FileFormatError(f"{path} has {wrong}; the file is damaged, save it again.")
    return header, arrays


def _checked(path: Path, header: dict[str, Any] | None) -> dict[str, Any]:
    """The header, if it is that of a polynomial in a layout that is known."""
    about: dict[str, Any] = header or {}
    kind, layout = about.get("kind"), about.get("layout", -1)
    if about.get("format") != "mlpoly" or not isinstance(kind, str) or kind not in _KINDS or not _is_size(layout):
        raise FileFormatError(f"{path} is a safetensors file but holds no mlpoly polynomial; was it written by save()?")
    if layout > _LAYOUT:
        raise FileFormatError(f"{path} has file layout {layout}, mlpoly {__version__} knows {_LAYOUT}; upgrade it.")
    if layout < _PLAIN:
        raise FileFormatError(f"{path} has file layout {layout}, which never was; the file is damaged, save it again.")
    for name in ("degree", "dim_in", "dim_out"):
        if not _is_size(about.get(name)):
            shown = f"{name} {repr(about.get(name))[:40]} in its header, which is no size"
            raise FileFormatError(f"{path} has {shown}; the file is damaged, save it again.")
    return about


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _misfit(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """What does not agree between the names and shapes of the arrays and the header; empty if all does."""
    kind = _KINDS[header["kind"]]
    shapes = {name.rstrip("?"): shape for name, shape in kind.items()}
    needed = {name for name in kind if not name.endswith("?")}
    needed |= set(_GATE) if set(_GATE) & set(arrays) else set()
    needed |= {"tails.slopes", "gate.series"} if "tails.gate" in arrays else set()
    if odd := sorted(needed - set(arrays)) or sorted(set(arrays) - set(shapes)):
        return f"missing or misshapen tensors ({odd[0]!r} is {'not there' if odd[0] in needed else 'unknown'})"
    sizes = {"d": header["dim_in"], "o": header["dim_out"], "2": 2}
    if header["kind"] == "RidgePolynomial":
        sizes |= {"n": header["degree"], "m": header["degree"] + 1}
        if "readout" not in arrays:  # the neurons are the outputs
            sizes["h"] = header["dim_out"]
    for name, a in arrays.items():
        letters = shapes[name].split()
        if a.ndim != len(letters) or any(sizes.setdefault(s, n) != n for s, n in zip(letters, a.shape, strict=True)):
            expected = ", ".join(str(sizes.get(s, s)) for s in letters)
            return f"missing or misshapen tensors ({name!r} is {a.shape}, expected ({expected}))"
    return ""


def _odd_numbers(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """Which numbers cannot be those of a polynomial; empty if all can."""
    for name, a in arrays.items():
        if a.dtype.kind != ("i" if name == "exponents" else "f"):
            return f"numbers of type {a.dtype} in {name!r}"
        if a.dtype.kind == "f" and not np.isfinite(a).all():
            return f"NaN or infinite numbers in {name!r}"
    degree = header["degree"]
    if header["kind"] == "RidgePolynomial":
        bound: Any = header.get("bound")
        number = isinstance(bound, float) or _is_size(bound)
        # An infinite one is that of tails that were made by hand; integers may be too large for a float.
        if "tails.slopes" in arrays and not (number and bound > 0 and (bound <= _LARGEST or bound == math.inf)):
            return f"the bound {repr(bound)[:40]}, which is no positive number"
        return "negative scales" if (arrays["scales"] < 0).any() else ""
    if header["kind"] == "DensePolynomial":
        found = 2 if "quadratic" in arrays else 1 if "linear" in arrays else 0
        for q in arrays.get("quadratic", ()):
            with np.errstate(over="ignore"):
                gap = np.abs(q - q.T).max(initial=0)
            if gap > math.sqrt(np.finfo(q.dtype).eps) * np.abs(q).max(initial=0):  # rounding leaves less
                return "a quadratic form that is not symmetric"
    else:
        exponents = arrays["exponents"]
        if not len(exponents):
            return "no terms"
        # The recurrences run up to the highest exponent: a damaged one must not make them run for years.
        if exponents.min(initial=0) < 0 or exponents.max(initial=0) > max(len(exponents), _MOST):
            return f"an exponent of {exponents.max(initial=0)} or below zero in a polynomial of {len(exponents)} terms"
        found = int(exponents.sum(axis=1).max())
    return "" if found == degree else f"the degree {degree} in its header, but terms of degree {found}"
