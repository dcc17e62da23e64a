"""Images and labels for the studies: scikit-learn's digits, MNIST and Fashion-MNIST on disk, or files of the user's."""

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

__all__ = ["DATASETS", "Images", "cache_dir", "load_images", "load_mnist", "read_idx"]

DATASETS = ("digits", "mnist", "fashion-mnist")

# Training images and labels, then test images and labels; every reader below keeps this order.
_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_NPZ = (("x_train", "y_train", "x_test", "y_test"), ("train", "train_labels", "test", "test_labels"))

_BLOCK = 1 << 16
_RATIO = 1032  # a byte of a compressed file stands for no more than so many

_CLOTHES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


class Images(NamedTuple):
    """Training and test images as rows of pixels, in [0, 1] unless a file holds other floats, with their labels."""

    train: np.ndarray  # (n, d)
    train_labels: np.ndarray  # (n,), 0 to c - 1
    test: np.ndarray
    test_labels: np.ndarray
    shape: tuple[int, int]  # of one image
    name: str = ""
    classes: tuple[str, ...] = ()  # what the labels stand for, c of them

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
    """An array as it was read, and where from, for messages."""

    values: np.ndarray
    source: str


def load_images(
    name: str | os.PathLike[str] = "digits", data_dir: str | os.PathLike[str] | None = None, seed: int = 0
) -> Images:
    """Training and test images with their labels.

    Parameters
    ----------
    name : str or path
        "digits" (1797 images of 8 x 8 pixels that come with scikit-learn, split 80/20 with equal shares of every
        digit), "mnist", "fashion-mnist", a folder with the four IDX files (plain or .gz), or an .npz file with
        x_train, y_train, x_test, y_test (or train, train_labels, test, test_labels) and without pickles. Bytes are
        divided by 255, floats are not rescaled. Flat images of no square length count as one row.
    data_dir : path, optional
        Where to look for "mnist" and "fashion-mnist" before MLPOLY_DATA and the user's cache: the folder of the files,
        or one above it.
    seed : int
        Of the split of the digits. It is no training seed: leave it, and all networks see the same split.

    Raises
    ------
    ValueError
        If `name` is neither a known name nor a path.
    FileNotFoundError
        With the places that were searched.
    FileFormatError
        If a file is damaged or the images and labels do not fit together.
    """
    if name == "digits":
        try:
            from sklearn.datasets import load_digits
            from sklearn.model_selection import train_test_split
        except ImportError as error:
            remedy = "pip install 'mlpoly[cli]'"
            raise ImportError(f"the digits need scikit-learn, which is not installed: {remedy}.") from error
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
    raise ValueError(f"name is {str(name)!r}, which is no data set ({known}) and no folder of IDX files or .npz file.")


def load_mnist(data_dir: str | os.PathLike[str] | None = None) -> Images:
    """MNIST from IDX files: `load_images("mnist", data_dir)`."""
    return load_images("mnist", data_dir)


def cache_dir() -> Path:
    """Folder for downloaded data: ``mlpoly`` below XDG_CACHE_HOME, or below ~/.cache where that is not set."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "mlpoly"


# -- files -------------------------------------------------------------------------------------------------------------


def _find(name: str, data_dir: str | os.PathLike[str] | None) -> Path:
    """The first folder that holds all files of a named data set."""
    places = []
    if data_dir is not None:
        given = Path(data_dir).expanduser()
        places += [given, given / name]
    if os.environ.get("MLPOLY_DATA"):
        places.append(Path(os.environ["MLPOLY_DATA"]) / name)
    places.append(cache_dir() / name)
    searched = []
    for place in places:
        missing = [file for file in _IDX if _file(place, file) is None]
        if not missing:
            return place
        # A folder with some of the files is where the user will look for the mistake.
        searched.append(f"{place} (without {', '.join(missing)})" if len(missing) < len(_IDX) else str(place))
    raise FileNotFoundError(
        f"no {name} in {', '.join(searched)}; get it with `mlpoly data download {name}`, or name a folder that holds "
        f"the four IDX files with --data-dir, or one that holds {name}/ with MLPOLY_DATA."
    )


def _file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _read_folder(folder: Path) -> tuple[_Raw, ...]:
    raws = []
    for name in _IDX:
        path = _file(folder, name)
        if path is None:
            raise FileNotFoundError(f"{folder} holds no {name} (plain or .gz); all of {', '.join(_IDX)} are needed.")
        raws.append(_Raw(read_idx(path), str(path)))
    return tuple(raws)


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes with one to three axes, plain or compressed.

    Of a compressed file no more is unpacked than its header promises.
    """
    try:
        with path.open("rb") as raw:
            file: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            head = file.read(4)
            axes = head[3] if len(head) == 4 else 0
            sizes = file.read(4 * axes) if 1 <= axes <= 3 else b""
            if head[:3] != b"\x00\x00\x08" or not sizes or len(sizes) != 4 * axes:
                raise FileFormatError(
                    f"{path} is no IDX file of unsigned bytes with one to three axes; fetch it again."
                )
            shape = tuple(int.from_bytes(sizes[i : i + 4], "big") for i in range(0, len(sizes), 4))
            size = path.stat().st_size
            if math.prod(shape) > size * (_RATIO if path.suffix == ".gz" else 1):
                claim = f"{size} bytes cannot hold shape {shape}"
                raise FileFormatError(f"{path} is truncated or damaged: {claim}; fetch it again.")
            _check_memory(path, math.prod(shape))
            # In small blocks, so that a false promise costs no memory; one byte more shows that there is more.
            values, wanted = bytearray(), math.prod(shape) + 1
            while len(values) < wanted and (block := file.read(min(_BLOCK, wanted - len(values)))):
                values += block
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no file {path}; fetch it.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError(f"{path} cannot be read ({error}); fetch it again.") from error
    if len(values) != wanted - 1:
        found = f"more than {wanted - 1}" if len(values) == wanted else len(values)
        raise FileFormatError(f"{path} is truncated or damaged: {found} values, shape {shape}; fetch it again.")
    return np.frombuffer(values, np.uint8).reshape(shape)


def _read_npz(path: Path) -> tuple[_Raw, ...]:
    if not zipfile.is_zipfile(path):
        raise FileFormatError(f"{path} is no .npz file or a truncated one; give an .npz file or a folder of IDX files.")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            keys = next((keys for keys in _NPZ if set(keys) <= set(archive.files)), ())
            _check_memory(path, sum(_promised(path, archive.zip, key) for key in keys))
            raws = tuple(_Raw(archive[key], f"{key} of {path}") for key in keys)
            found = ", ".join(archive.files) or "nothing"
    except FileFormatError:
        raise
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise FileFormatError(f"{path} cannot be read ({error}); write it anew with numpy.savez.") from error
    if not raws or not all(isinstance(raw.values, np.ndarray) for raw in raws):
        wanted = " or ".join(", ".join(keys) for keys in _NPZ)
        raise FileFormatError(f"{path} holds {found}, but the arrays {wanted} are needed; write it with these names.")
    return raws


def _promised(path: Path, archive: zipfile.ZipFile, key: str) -> int:
    """How many numbers an array in an .npz file has, from its header, if its length fits."""
    names = archive.namelist()
    member = archive.getinfo(f"{key}.npy" if f"{key}.npy" in names else key)
    with archive.open(member) as file:
        head = io.BytesIO(file.read(_BLOCK))  # a header is a hundred bytes; NumPy would read as many as it claims
    if np.lib.format.read_magic(head)[0] == 1:
        shape, _, dtype = np.lib.format.read_array_header_1_0(head)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(head)
    there = member.file_size - head.tell()
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize != there:
        promise = f"shape {shape} of {dtype}, but {there} bytes"
        raise FileFormatError(f"{path} is damaged: {key} has {promise}; write it anew with numpy.savez.")
    return math.prod(shape)


def _check_memory(path: Path, numbers: int) -> None:
    """Refuse to unpack what this machine has no room for; pixels become floats of eight bytes."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # only POSIX tells
        return
    if 8 * numbers > memory:
        raise FileFormatError(
            f"{path} promises {numbers} numbers, which need {8 * numbers / 2**30:.0f} GiB in double precision, more "
            f"than the {memory / 2**30:.0f} GiB of this machine; the file is damaged, or must be cut: fetch it again."
        )


# -- what they hold ----------------------------------------------------------------------------------------------------


def _assemble(raws: tuple[_Raw, ...], name: str, names: tuple[str, ...] = ()) -> Images:
    """Check four arrays against one another and put them together; `names` are those of the labels 0, 1, ..."""
    train, train_labels, test, test_labels = raws
    known = _check_labels(train_labels, train)
    if len(known) < 2:
        raise FileFormatError(f"{train_labels.source} holds the class {known[0]} alone; at least two are needed.")
    strange = np.setdiff1d(_check_labels(test_labels, test), known)
    if len(strange):
        raise FileFormatError(f"{test_labels.source} holds classes that have no training image: {strange.tolist()}.")
    shape, other = _image_shape(train), _image_shape(test)
    if shape != other:
        raise FileFormatError(f"{test.source} holds images of shape {other}, but {train.source} of {shape}; resize.")
    return Images(
        _pixels(train),
        np.searchsorted(known, train_labels.values).astype(np.int64),
        _pixels(test),
        np.searchsorted(known, test_labels.values).astype(np.int64),
        shape,
        name,
        tuple(names[k] if 0 <= k < len(names) else str(k) for k in known.tolist()),
    )


def _check_labels(labels: _Raw, images: _Raw) -> np.ndarray:
    """The distinct labels, sorted."""
    values = labels.values
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
        raise FileFormatError(
            f"{labels.source} has shape {values.shape} and type {values.dtype}; labels are integers, one per image."
        )
    count = len(images.values) if images.values.ndim else 0
    if not count or len(values) != count:
        raise FileFormatError(
            f"{labels.source} holds {len(values)} labels for {count} images in {images.source}; "
            "each image needs one label."
        )
    return np.unique(values)


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
