"""Images and labels for the studies: scikit-learn's digits, and MNIST where it is on disk."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mlpoly.errors import FileFormatError

__all__ = ["Images", "load_mnist", "read_idx"]

_MNIST = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


class Images(NamedTuple):
    """Training and test images as rows of pixels in [0, 1], with their labels."""

    train: np.ndarray  # (n, d)
    train_labels: np.ndarray  # (n,)
    test: np.ndarray
    test_labels: np.ndarray
    shape: tuple[int, int]  # of one image


def load_mnist(data_dir: str | os.PathLike[str] | None = None) -> Images:
    """MNIST from IDX files (plain or .gz) in `data_dir`, or in ``mnist`` below MLPOLY_DATA or the user's cache.

    Raises
    ------
    FileNotFoundError
        With the places that were searched.
    """
    folder = _find(data_dir)
    arrays = []
    for images, labels in _MNIST.values():
        pixels = read_idx(_file(folder, images))
        arrays += [pixels.reshape(len(pixels), -1) / 255.0, read_idx(_file(folder, labels)).astype(np.int64)]
    train, train_labels, test, test_labels = arrays
    return Images(train, train_labels, test, test_labels, (pixels.shape[1], pixels.shape[2]))


def _find(data_dir: str | os.PathLike[str] | None) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mlpoly"
    places = [Path(data_dir)] if data_dir is not None else []
    if "MLPOLY_DATA" in os.environ:
        places.append(Path(os.environ["MLPOLY_DATA"]) / "mnist")
    places.append(cache / "mnist")
    for place in places:
        if any(place.glob("train-images-idx3-ubyte*")):
            return place
    searched = ", ".join(str(p) for p in places)
    raise FileNotFoundError(f"no MNIST files in {searched}; put the four IDX files there or set MLPOLY_DATA.")


def _file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise FileNotFoundError(f"{folder} holds no {name} (plain or .gz); the data set is incomplete.")


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes, plain or compressed."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise FileFormatError(f"{path} is no readable gzip file ({error}); fetch it again.") from error
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise FileFormatError(f"{path} is no IDX file of unsigned bytes; fetch it again.")
    axes = raw[3]
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes))
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * axes)
    if values.size != int(np.prod(shape)):
        raise FileFormatError(f"{path} is truncated: {values.size} values for the shape {shape}; fetch it again.")
    return values.reshape(shape)
