"""Polynomials on disk: safetensors with a JSON header, never pickle."""

from __future__ import annotations

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
    _check_arrays(path, header, arrays)
    return header, arrays


def _checked(path: Path, header: dict[str, Any] | None) -> dict[str, Any]:
    try:
        known = header is not None and header["format"] == "mlpoly" and header["kind"] in _KINDS
        known = known and isinstance(header["layout"], int)  # type: ignore[index]
    except (KeyError, TypeError):
        known = False
    if header is None or not known:
        raise FileFormatError(f"{path} is a safetensors file but holds no mlpoly polynomial; was it written by save()?")
    if header["layout"] > _LAYOUT:
        raise FileFormatError(
            f"{path} has file layout {header['layout']}, mlpoly {__version__} knows layout {_LAYOUT}; upgrade it."
        )
    return header


def _check_arrays(path: Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Names and shapes must agree with the header, and with each other, before anything is built from them."""
    kind = _KINDS[header["kind"]]
    shapes = {name.rstrip("?"): shape for name, shape in kind.items()}
    needed = {name for name in kind if not name.endswith("?")}
    gates = sum(name in arrays for name in _GATE)
    sizes = {"d": header.get("dim_in"), "o": header.get("dim_out"), "2": 2}
    if header["kind"] == "RidgePolynomial":
        sizes |= {"n": header.get("degree", -1), "m": header.get("degree", -1) + 1}
    fits = needed <= set(arrays) <= set(shapes) and gates in (0, len(_GATE))
    fits = fits and ("tails.gate" not in arrays or {"tails.slopes", "gate.series"} <= set(arrays))
    fits = fits and ("tails.slopes" not in arrays or isinstance(header.get("bound"), (int, float)))
    for name, a in arrays.items() if fits else ():
        letters = shapes[name].split()
        fits &= a.ndim == len(letters) and all(
            sizes.setdefault(s, n) == n for s, n in zip(letters, a.shape, strict=False)
        )
    if fits and "exponents" in arrays:
        exponents = arrays["exponents"]
        fits = exponents.dtype.kind == "i" and bool((exponents >= 0).all())
    if not fits:
        raise FileFormatError(f"{path} has missing or misshapen tensors; the file is damaged, save it again.")
