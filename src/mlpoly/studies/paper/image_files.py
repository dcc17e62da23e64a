"""IDX and .npz files of images and labels, read without trust in what their headers promise."""

from __future__ import annotations

import gzip
import io
import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlpoly.errors import FileFormatError

# Training images and labels, then test images and labels; every reader below keeps this order.
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_NPZ = (("x_train", "y_train", "x_test", "y_test"), ("train", "train_labels", "test", "test_labels"))

_CHUNK = 1 << 16
_RATIO = 1032  # most bytes that one byte of a gzip file can stand for


class RawArray(NamedTuple):
    """An array as it was read, and its source, for messages."""

    values: np.ndarray
    source: str


def find_file(folder: Path, name: str) -> Path | None:
    """The file of this name in a folder, plain or .gz."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def read_folder(folder: Path) -> list[RawArray]:
    """Read the four IDX files of a folder."""
    raws = []
    for name in FILES:
        path = find_file(folder, name)
        if path is None:
            raise FileNotFoundError(f"{folder} holds no {name} (plain or .gz); all of {', '.join(FILES)} are needed.")
        raws.append(RawArray(read_idx(path), str(path)))
    return raws


@contextmanager
def _reading(path: Path, remedy: str) -> Iterator[None]:
    """Make every error of reading a file a FileFormatError that ends with the remedy."""
    try:
        yield
    except FileFormatError as error:
        raise FileFormatError(f"{error}; {remedy}.") from None
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise FileFormatError(f"{path} cannot be read ({error}); {remedy}.") from error


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes with one to three axes, plain or .gz; never more than its header promises."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; fetch it.")
    with _reading(path, "fetch it again"), path.open("rb") as raw:
        file: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        head = file.read(4)
        axes = head[3] if len(head) == 4 and head[:3] == b"\x00\x00\x08" else 0
        sizes = file.read(4 * axes) if 1 <= axes <= 3 else b""
        if not sizes or len(sizes) != 4 * axes:
            raise FileFormatError(f"{path} is not an IDX file of unsigned bytes with one to three axes")
        shape = tuple(int.from_bytes(sizes[i : i + 4], "big") for i in range(0, len(sizes), 4))
        size, count = path.stat().st_size, math.prod(shape)
        if count > size * (_RATIO if path.suffix == ".gz" else 1):
            raise FileFormatError(f"{path} is truncated or damaged: {size} bytes cannot hold shape {shape}")
        _check_memory(path, count)
        # In small chunks, so that a false promise costs no memory; one byte more shows that there is more.
        values = bytearray()
        while len(values) <= count and (chunk := file.read(min(_CHUNK, count + 1 - len(values)))):
            values += chunk
        if len(values) != count:
            found = f"more than {count}" if len(values) > count else len(values)
            raise FileFormatError(f"{path} is truncated or damaged: {found} values, shape {shape}")
    return np.frombuffer(values, np.uint8).reshape(shape)


def read_npz(path: Path) -> list[RawArray]:
    """Read the four arrays of an .npz file, if they are as long as their headers promise."""
    if not zipfile.is_zipfile(path):
        raise FileFormatError(f"{path} is not an .npz file, or a truncated one; write it with numpy.savez.")
    with (
        _reading(path, "write it anew with numpy.savez"),
        path.open("rb") as file,
        np.load(file, allow_pickle=False) as archive,
    ):
        keys = next((keys for keys in _NPZ if set(keys) <= set(archive.files)), ())
        if not keys:
            wanted = " or ".join(", ".join(keys) for keys in _NPZ)
            found = ", ".join(archive.files) or "nothing"
            raise FileFormatError(f"{path} holds {found}, but the arrays {wanted} are needed")
        _check_memory(path, sum(_promised(path, archive.zip, key) for key in keys))
        return [RawArray(archive[key], f"{key} of {path}") for key in keys]


def _promised(path: Path, archive: zipfile.ZipFile, key: str) -> int:
    """How many numbers an array in an .npz file has, from its header, if its length fits."""
    member = archive.getinfo(f"{key}.npy" if f"{key}.npy" in archive.namelist() else key)
    with archive.open(member) as file:
        head = io.BytesIO(file.read(_CHUNK))  # a header is a hundred bytes; NumPy would read as many as it claims
    first = np.lib.format.read_magic(head)[0] == 1
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(head)
    there = member.file_size - head.tell()
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize != there:
        raise FileFormatError(f"{path} is damaged: {key} has shape {shape} of {dtype}, but {there} bytes")
    return math.prod(shape)


def _check_memory(path: Path, numbers: int) -> None:
    """Refuse to unpack more than the memory of this machine holds; pixels become floats of eight bytes."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # only POSIX tells
        return
    if 8 * numbers > memory:
        raise FileFormatError(
            f"{path} promises {numbers} numbers, which need {8 * numbers / 2**30:.0f} GiB in double precision, more "
            f"than the {memory / 2**30:.0f} GiB of this machine: it is damaged, or too large"
        )
