"""Ciphertexts as records and files, and objects of SEAL as bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mlpoly._version import __version__
from mlpoly.files import write_tensors

CIPHERTEXT = "mlpoly-ciphertext"  # format of files


@dataclass(frozen=True)
class EncryptedRows:
    """Rows of inputs or outputs in one ciphertext.

    Attributes
    ----------
    ciphertext : tenseal.sealapi.Ciphertext
    rows : int
        Number of rows.
    key : str
        Fingerprint of the public key that encrypted them.
    """

    ciphertext: Any = field(repr=False)
    rows: int
    key: str

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file, to be sent to the server or back; `EncryptedSession.load` reads it."""
        header = {"format": CIPHERTEXT, "version": __version__, "rows": self.rows, "key": self.key}
        write_tensors(path, {"ciphertext": to_bytes(self.ciphertext)}, header)


def to_bytes(made: Any) -> np.ndarray:
    """An object of SEAL, which only knows files, as bytes."""
    with TemporaryDirectory() as folder:
        made.save(f"{folder}/object")
        return np.fromfile(f"{folder}/object", dtype=np.uint8)


def from_bytes(empty: Any, context: Any, stored: np.ndarray) -> None:
    """Fill an object of SEAL, which checks that the bytes are one of its kind in this context."""
    with TemporaryDirectory() as folder:
        stored.tofile(f"{folder}/object")
        empty.load(context, f"{folder}/object")
