"""Images and labels: scikit-learn's digits, MNIST and Fashion-MNIST on disk, or files of the user."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlpoly.errors import FileFormatError
from mlpoly.extras import explain_missing

__all__ = ["DATASETS", "FILES", "Images", "cache_dir", "load_images", "read_idx", "searched_folders"]

DATASETS = ("digits", "mnist", "fashion-mnist")

# Training images and labels, then test images and labels; every reader below keeps this order.
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_NPZ = (("x_train", "y_train", "x_test", "y_test"), ("train", "train_labels", "test", "test_labels"))

_CHUNK = 1 << 16
_RATIO = 1032  # most bytes that one byte of a gzip file can stand for

_CLOTHES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


class Images(NamedTuple):
    """Training and test images as rows of pixels, in [0, 1] unless a file holds other floats, with their labels."""

    train: np.ndarray  # (n, d)
    train_labels: np.ndarray  # (n,), 0 to c - 1
    test: np.ndarray
    test_labels: np.ndarray
    shape: tuple[int, int]  # of one image
    name: str = ""
    classes: tuple[str, ...] = ()  # names of the labels, c of them

    @property
    def training_fingerprint(self) -> str:
        """SHA-256 of the training images and labels, which a trained network depends on."""
        return _fingerprint(self.train, self.train_labels)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all images and labels."""
        return _fingerprint(self.train, self.train_labels, self.test, self.test_labels)


def _fingerprint(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for a in arrays:
        digest.update(f"{a.shape} {a.dtype}".encode())
        digest.update(np.ascontiguousarray(a).data)
    return digest.hexdigest()


class _Raw(NamedTuple):
    """An array as it was read, and its source, for messages."""

    values: np.ndarray
    source: str


def load_images(
    name: str | os.PathLike[str] = "digits", data_dir: str | os.PathLike[str] | None = None, seed: int = 0
) -> Images:
    """Return training and test images with their labels.

    Parameters
    ----------
    name : str or path
        "digits" (1797 images of 8 x 8 pixels that come with scikit-learn, split 80/20 with equal fractions of every
        digit), "mnist", "fashion-mnist", a folder with the four IDX files (plain or .gz), or an .npz file with
        x_train, y_train, x_test, y_test (or train, train_labels, test, test_labels) and without pickles. Bytes are
        divided by 255, floats are not rescaled. Flat images whose length is not a square count as one row.
    data_dir : path, optional
        Folder of the files of "mnist" or "fashion-mnist", or the one above it; searched before MLPOLY_DATA and the
        user's cache.
    seed : int
        Seed of the split of the digits. It is not a training seed: leave it, and all networks see the same split.

    Raises
    ------
    ValueError
        If `name` is neither a known name nor a path.
    FileNotFoundError
        If there are no such files; the message lists the folders that were searched.
    FileFormatError
        If a file is damaged or the images and labels do not fit together.
    """
    if name == "digits":
        with explain_missing("the data set digits", "scikit-learn"):
            from sklearn.datasets import load_digits
            from sklearn.model_selection import train_test_split
        x, y = load_digits(return_X_y=True)
        parts = train_test_split(x / 16, y, test_size=0.2, random_state=seed, stratify=y)
        train, test, train_labels, test_labels = (_Raw(part, "scikit-learn's digits") for part in parts)
        return _assemble((train, train_labels, test, test_labels), name)
    if isinstance(name, str) and name in DATASETS:
        return _assemble(_read_folder(_find(name, data_dir)), name, _CLOTHES if name == "fashion-mnist" else ())
    path = Path(name).expanduser()
    if name and path.is_dir():
        return _assemble(_read_folder(path), path.resolve().name)
    if path.is_file():
        return _assemble(_read_npz(path), path.stem)
    known = ", ".join(DATASETS)
    raise ValueError(f"name is {str(name)!r}, which is not a data set ({known}), folder of IDX files, or .npz file.")


def cache_dir() -> Path:
    """Folder for downloaded data: ``mlpoly`` below XDG_CACHE_HOME, or below ~/.cache where that is not set."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "mlpoly"


def searched_folders(name: str, data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """Folders in which a named data set is looked for, in this order."""
    given = [] if data_dir is None else [Path(data_dir).expanduser(), Path(data_dir).expanduser() / name]
    shared = [Path(os.environ["MLPOLY_DATA"]) / name] if os.environ.get("MLPOLY_DATA") else []
    return [*given, *shared, cache_dir() / name]


# -- files -------------------------------------------------------------------------------------------------------------


def _find(name: str, data_dir: str | os.PathLike[str] | None) -> Path:
    """The first folder that holds all files of a named data set."""
    searched = []
    for place in searched_folders(name, data_dir):
        missing = [file for file in FILES if _file(place, file) is None]
        if not missing:
            return place
        # A folder with some of the files is where the user will look for the mistake.
        searched.append(f"{place} (without {', '.join(missing)})" if len(missing) < len(FILES) else str(place))
    raise FileNotFoundError(
        f"no {name} in {', '.join(searched)}; get it with `mlpoly data download {name}`, or name a folder that holds "
        f"the four IDX files with --data-dir, or one that holds {name}/ with MLPOLY_DATA."
    )


def _file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _read_folder(folder: Path) -> tuple[_Raw, ...]:
    raws = []
    for name in FILES:
        path = _file(folder, name)
        if path is None:
            raise FileNotFoundError(f"{folder} holds no {name} (plain or .gz); all of {', '.join(FILES)} are needed.")
        raws.append(_Raw(read_idx(path), str(path)))
    return tuple(raws)


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes with one to three axes, plain or .gz; never more than its header promises."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; fetch it.")
    try:
        with path.open("rb") as raw:
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
    except FileFormatError as error:
        raise FileFormatError(f"{error}; fetch it again.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError(f"{path} cannot be read ({error}); fetch it again.") from error
    return np.frombuffer(values, np.uint8).reshape(shape)


def _read_npz(path: Path) -> tuple[_Raw, ...]:
    if not zipfile.is_zipfile(path):
        raise FileFormatError(f"{path} is not an .npz file, or a truncated one; write it with numpy.savez.")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            keys = next((keys for keys in _NPZ if set(keys) <= set(archive.files)), ())
            _check_memory(path, sum(_promised(path, archive.zip, key) for key in keys))
            raws = tuple(_Raw(archive[key], f"{key} of {path}") for key in keys)
            found = ", ".join(archive.files) or "nothing"
    except FileFormatError as error:
        raise FileFormatError(f"{error}; write it anew with numpy.savez.") from None
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise FileFormatError(f"{path} cannot be read ({error}); write it anew with numpy.savez.") from error
    if not raws or not all(isinstance(raw.values, np.ndarray) for raw in raws):
        wanted = " or ".join(", ".join(keys) for keys in _NPZ)
        raise FileFormatError(f"{path} holds {found}, but the arrays {wanted} are needed; write it with these names.")
    return raws


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


# -- contents ----------------------------------------------------------------------------------------------------------


def _assemble(raws: tuple[_Raw, ...], name: str, names: tuple[str, ...] = ()) -> Images:
    """Check four arrays against one another and put them together; `names` are those of the labels 0, 1, ..."""
    train, train_labels, test, test_labels = raws
    for images, named in ((train, train_labels), (test, test_labels)):
        given, count = named.values, len(images.values) if images.values.ndim else 0
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise FileFormatError(
                f"{named.source} has shape {given.shape} and type {given.dtype}; labels are integers, one per image."
            )
        if not count or len(given) != count:
            raise FileFormatError(
                f"{named.source} holds {len(given)} labels for {count} images in {images.source}; "
                f"each image needs one label."
            )
    known = np.unique(train_labels.values)
    if len(known) < 2:
        raise FileFormatError(f"{train_labels.source} holds the class {known[0]} alone; at least two are needed.")
    strange = np.setdiff1d(test_labels.values, known)
    if len(strange):
        raise FileFormatError(f"{test_labels.source} holds classes that have no training image: {strange.tolist()}.")
    shape, other = _image_shape(train), _image_shape(test)
    if shape != other:
        raise FileFormatError(f"{test.source} holds images of shape {other}, but {train.source} of {shape}; resize.")
    labels = [np.searchsorted(known, y.values).astype(np.int64) for y in (train_labels, test_labels)]
    classes = tuple(names[k] if 0 <= k < len(names) else str(k) for k in known.tolist())
    return Images(_pixels(train), labels[0], _pixels(test), labels[1], shape, name, classes)


def _image_shape(images: _Raw) -> tuple[int, int]:
    shape = images.values.shape
    if len(shape) not in (2, 3) or 0 in shape:
        raise FileFormatError(f"{images.source} has shape {shape}; images are (n, height, width) or (n, pixels).")
    if len(shape) == 3:
        return shape[1], shape[2]
    side = math.isqrt(shape[1])
    return (side, side) if side * side == shape[1] else (1, shape[1])


def _pixels(images: _Raw) -> np.ndarray:
    """Rows (n, d) in double precision."""
    values = images.values.reshape(len(images.values), -1)
    if values.dtype == np.uint8:
        return values / 255.0
    if not np.issubdtype(values.dtype, np.floating):
        raise FileFormatError(f"{images.source} has type {values.dtype}; pixels are uint8 or floats: convert them.")
    if not np.isfinite(values).all():
        raise FileFormatError(f"{images.source} holds NaN or infinite pixels; remove these images.")
    return values.astype(np.float64)
