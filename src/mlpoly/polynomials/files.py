"""Polynomials on disk: safetensors with a JSON header, never pickle."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpoly._version import __version__
from mlpoly.arrays import Array, constant, from_numpy, to_numpy
from mlpoly.errors import FileFormatError
from mlpoly.polynomials.source import Source

if TYPE_CHECKING:
    from mlpoly.polynomials.ridge import RidgePolynomial

__all__ = ["load", "save_polynomial"]

_FORMAT = "mlpoly.ridge"
_LAYOUT = 1
_PLAIN = ("directions", "shifts", "scales", "series", "readout", "bias")
_GATE = ("directions", "shifts", "slopes", "series")


def save_polynomial(p: RidgePolynomial, path: str | PathLike[str]) -> None:
    """Write to a temporary file beside `path`, then rename, so that a crash leaves no half file."""
    from safetensors.numpy import save_file

    source = p.source
    if not source.inputs and p.inputs is not None:
        source = replace(source, inputs=p.inputs.fingerprint)
    header = {
        "format": _FORMAT,
        "layout": _LAYOUT,
        "version": __version__,
        "degree": p.degree,
        "dim_in": p.dim_in,
        "dim_out": p.dim_out,
        **asdict(source),
    }
    tensors = {name: getattr(p, name) for name in _PLAIN}
    if p.gate is not None:
        tensors |= {f"gate.{name}": getattr(p.gate, name) for name in _GATE}
    arrays = {name: np.ascontiguousarray(to_numpy(a)) for name, a in tensors.items() if a is not None}
    target = Path(path)
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        save_file(arrays, scratch, metadata={"mlpoly": json.dumps(header)})
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def load(path: str | PathLike[str], library: str = "numpy", like: Array | None = None) -> RidgePolynomial:
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
    from mlpoly.polynomials.ridge import Gate, RidgePolynomial

    header, arrays = _read(Path(path))

    def convert(a: np.ndarray) -> Array:
        return from_numpy(a, library) if like is None else constant(a, like)

    made = {name: convert(a) for name, a in arrays.items()}
    gate_parts = {name: made.pop(f"gate.{name}") for name in _GATE if f"gate.{name}" in made}
    source = Source(**{k: str(header.get(k, "")) for k in ("activation", "method", "inputs")})
    return RidgePolynomial(**made, gate=Gate(**gate_parts) if gate_parts else None, source=source)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"no polynomial file at {path}; polynomials are written with poly.save(path).")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, ValueError, OSError) as error:
        raise FileFormatError(f"{path} is no readable safetensors file ({error}); it may be truncated.") from error
    try:
        header = json.loads(metadata["mlpoly"])
        known = header["format"] == _FORMAT
    except (KeyError, TypeError, json.JSONDecodeError):
        known = False
    if not known:
        raise FileFormatError(f"{path} is a safetensors file but holds no mlpoly polynomial; was it written by save()?")
    if header["layout"] > _LAYOUT:
        raise FileFormatError(
            f"{path} has file layout {header['layout']}, mlpoly {__version__} knows layout {_LAYOUT}; upgrade it."
        )
    _check_arrays(path, header, arrays)
    return header, arrays


def _check_arrays(path: Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Names and shapes must agree with the header before anything is built from them."""
    needed = {"directions", "shifts", "scales", "series"}
    allowed = {*_PLAIN, *(f"gate.{name}" for name in _GATE)}
    gate = {name for name in arrays if name.startswith("gate.")}
    complete = needed <= set(arrays) <= allowed and len(gate) in (0, len(_GATE))
    if complete:
        h, d = arrays["directions"].shape if arrays["directions"].ndim == 2 else (-1, -1)
        n = header.get("degree", -1)
        expected = {"shifts": (h,), "scales": (h,), "series": (n + 1, h), "readout": (header.get("dim_out"), h)}
        expected |= {"bias": (header.get("dim_out"),), "directions": (h, header.get("dim_in"))}
        expected |= {"gate.directions": (h, d), "gate.shifts": (h,), "gate.slopes": (h,), "gate.series": (n, h)}
        complete = all(arrays[name].shape == expected[name] for name in arrays)
    if not complete:
        raise FileFormatError(
            f"{path} has missing or misshapen tensors; the file is damaged, save the polynomial again."
        )
