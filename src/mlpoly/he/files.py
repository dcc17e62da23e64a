"""Circuits and ciphertexts as files: safetensors with a JSON header; a circuit is checked in full when it is read."""

import math
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mlpoly._version import __version__
from mlpoly.errors import FileFormatError
from mlpoly.files import read_tensors, write_tensors
from mlpoly.he.circuit import Circuit, EncryptedLayer, LinearTerm, Vector
from mlpoly.records import arrays_of

_FORMAT = "mlpoly-circuit"
CIPHERTEXT = "mlpoly-ciphertext"
_LARGEST_DEGREE = 1024  # in a file; the time and memory of a bound grow with the square


def save_circuit(circuit: Circuit, path: str | PathLike[str]) -> None:
    """Write a circuit as a safetensors file with a JSON header; `load_circuit` reads it."""

    def listed(terms: tuple[LinearTerm, ...]) -> list[list[Any]]:
        return [list(term.vector) for term in terms]

    layers = [
        {"forms": listed(r.forms), "gates": listed(r.gates), "degree": r.degree, "radius": r.radius, "name": r.name}
        for r in circuit.layers
    ]
    header = {"format": _FORMAT, "version": __version__, "layers": layers, "outputs": listed(circuit.outputs)}
    write_tensors(path, arrays_of(circuit), header)


def read_format(path: str | PathLike[str], kind: str, what: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a file of a given format; errors say `what` was expected."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"no file {path}; expected {what}.")
    header, arrays = read_tensors(path)
    if header is None or header.get("format") != kind:
        raise FileFormatError(f"{path} is not {what}.")
    return header, arrays


def load_circuit(path: str | PathLike[str]) -> Circuit:
    """Read a circuit written by `save_circuit`; it is checked in full.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np, mlpoly as mp
    >>> poly = mp.fit(mp.MLP(np.eye(3), activation="gelu"), mp.Gaussian.standard(3), degree=4)
    >>> with TemporaryDirectory() as folder:
    ...     mp.he.save_circuit(poly.to_he(), f"{folder}/circuit.safetensors")
    ...     print(mp.he.load_circuit(f"{folder}/circuit.safetensors").levels)
    4
    """
    header, arrays = read_format(path, _FORMAT, "a circuit, as mlpoly.he.save_circuit(poly.to_he(), path) writes it")

    def terms(listed: list[list[Any]], name: str) -> tuple[LinearTerm, ...]:
        return tuple(LinearTerm(arrays[f"{name}.{i}.matrix"], *Vector(*vector)) for i, vector in enumerate(listed))

    try:
        layers = [
            EncryptedLayer(
                terms(layer["forms"], f"layers.{i}.forms"),
                terms(layer["gates"], f"layers.{i}.gates"),
                *(layer[key] for key in ("degree", "radius", "name")),
            )
            for i, layer in enumerate(header["layers"])
        ]
        circuit = Circuit(tuple(layers), terms(header["outputs"], "outputs"))
        _check(circuit)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration) as error:
        raise FileFormatError(f"{path} is damaged ({error!r:.80}); save the circuit again.") from None
    return circuit


def _check(circuit: Circuit) -> None:
    """Raise ValueError unless the circuit is one that `Circuit` and `EncryptedLayer` describe."""
    sizes = [circuit.dim_in + 1, *(layer.size for layer in circuit.layers)]
    if min(*sizes, circuit.dim_out + 1) < 2:
        raise ValueError("a vector is empty")
    for layer in circuit.layers:
        if type(layer.degree) is not int or not 1 <= layer.degree <= _LARGEST_DEGREE:
            raise ValueError(f"degree {layer.degree!r:.20}")
        if type(layer.radius) is not float or not 0 < layer.radius < math.inf or type(layer.name) is not str:
            raise ValueError(f"radius {layer.radius!r:.20} or name")
    powers = [1, *(layer.degree for layer in circuit.layers)]
    # By place: the rows of a sum's matrices, and what its last entry is; that of an output can be anything.
    sums = [(i, sizes[i], 1.0, layer.forms) for i, layer in enumerate(circuit.layers, 1)]
    sums += [(i, sizes[i], 0.0, layer.gates) for i, layer in enumerate(circuit.layers, 1) if layer.gates]
    for place, rows, last, terms in [*sums, (len(sizes), circuit.dim_out, None, circuit.outputs)]:
        if len({term.vector for term in terms}) < len(terms):
            raise ValueError("a vector comes twice in a sum")
        for term in terms:
            whole = type(term.layer) is int and type(term.power) is int and type(term.gated) is bool
            if not whole or not 0 <= term.layer < place or not 1 <= term.power + term.gated <= powers[term.layer]:
                raise ValueError(f"no vector {term.vector}")
            if term.gated and (term.layer == 0 or not circuit.layers[term.layer - 1].gates):
                raise ValueError(f"layer {term.layer} has no gate")
            right = term.matrix.shape == (rows, sizes[term.layer]) and term.matrix.dtype == np.float64
            if not right or not np.isfinite(term.matrix).all():
                raise ValueError(f"matrix of {term.vector}")
        bottom = np.concatenate([term.matrix[-1] for term in terms])
        ones = sum(float(term.matrix[-1, -1]) for term in terms if not term.gated)
        if last is not None and (ones != last or np.count_nonzero(bottom) != last):
            raise ValueError(f"the last entry of a vector of layer {place} is not {last:.0f}")


@dataclass(frozen=True)
class EncryptedRows:
    """Rows of inputs or outputs in one ciphertext of SEAL, with the fingerprint of the key that encrypted them."""

    ciphertext: Any = field(repr=False)
    rows: int
    key: str

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file, to be sent to the server or back; `EncryptedSession.load` reads it."""
        header = {"format": CIPHERTEXT, "version": __version__, "rows": self.rows, "key": self.key}
        write_tensors(path, {"ciphertext": to_bytes(self.ciphertext)}, header)


def to_bytes(value: Any) -> np.ndarray:
    """An object of SEAL, which only knows files, as bytes."""
    with TemporaryDirectory() as folder:
        value.save(f"{folder}/object")
        return np.fromfile(f"{folder}/object", dtype=np.uint8)


def from_bytes(empty: Any, context: Any, stored: np.ndarray) -> None:
    """Fill an object of SEAL, which checks that the bytes are one of its kind in this context."""
    with TemporaryDirectory() as folder:
        stored.tofile(f"{folder}/object")
        empty.load(context, f"{folder}/object")
