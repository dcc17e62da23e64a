"""Images and labels: scikit-learn's digits, MNIST and Fashion-MNIST on disk, or files of the user."""

import gzip
import hashlib
import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mlpoly.datasets.sources import IDX_FILES, searched_folders
from mlpoly.errors import FileFormatError
from mlpoly.extras import explain_missing

DATASETS = ("digits", "mnist", "fashion-mnist")

_NPZ = (("x_train", "y_train", "x_test", "y_test"), ("train", "train_labels", "test", "test_labels"))
_CLOTHES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


class _Array(NamedTuple):
    """An array as it was read, and its source, for messages."""

    values: np.ndarray
    source: str


class Images(NamedTuple):
    """Training and test images as rows of pixels, in [0, 1] unless a file holds other floats, with their labels."""

    train: np.ndarray  # (n, d)
    train_labels: np.ndarray  # (n,), 0 to c - 1
    test: np.ndarray
    test_labels: np.ndarray
    shape: tuple[int, int]  # of one image
    name: str = ""
    classes: tuple[str, ...] = ()  # names of the labels, c of them

    def __repr__(self) -> str:
        size = "{} x {}".format(*self.shape)
        return f"Images({self.name!r}, {len(self.train)} + {len(self.test)} of {size} pixels, {self.outputs} classes)"

    @property
    def outputs(self) -> int:
        """Number of classes."""
        return int(self.train_labels.max()) + 1

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
    """
    if name == "digits":
        with explain_missing("the data set digits", "scikit-learn"):
            from sklearn.datasets import load_digits
            from sklearn.model_selection import train_test_split
        x, y = load_digits(return_X_y=True)
        parts = train_test_split(x / 16, y, test_size=0.2, random_state=seed, stratify=y)
        train, test, train_labels, test_labels = (_Array(part, "scikit-learn's digits") for part in parts)
        return _assemble([train, train_labels, test, test_labels], name)
    if isinstance(name, str) and name in DATASETS:
        searched = []
        for folder in searched_folders(name, data_dir):
            missing = [file for file in IDX_FILES if _idx_file(folder, file) is None]
            if not missing:
                return _assemble(_read_folder(folder), name, _CLOTHES if name == "fashion-mnist" else ())
            # A folder with some of the files is where the user will look for the mistake.
            searched.append(f"{folder} (without {', '.join(missing)})" if len(missing) < 4 else str(folder))
        raise FileNotFoundError(
            f"no {name} in {', '.join(searched)}; get it with `mlpoly data download {name}`, or name a folder that "
            f"holds the four IDX files with --data-dir, or one that holds {name}/ with MLPOLY_DATA."
        )
    path = Path(name).expanduser()
    if name and path.is_dir():
        return _assemble(_read_folder(path), path.resolve().name)
    if path.is_file():
        return _assemble(_read_npz(path), path.stem)
    known = ", ".join(DATASETS)
    raise ValueError(f"name is {str(name)!r}, which is not a data set ({known}), folder of IDX files, or .npz file.")


def _idx_file(folder: Path, name: str) -> Path | None:
    """The file of this name in a folder, plain or .gz."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _read_folder(folder: Path) -> list[_Array]:
    paths = [_idx_file(folder, name) for name in IDX_FILES]
    if None in paths:
        missing = IDX_FILES[paths.index(None)]
        names = ", ".join(IDX_FILES)
        raise FileNotFoundError(f"{folder} holds no {missing} (plain or .gz); all of {names} are needed.")
    return [_Array(read_idx(path), str(path)) for path in paths if path is not None]


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes, plain or .gz: 0, 0, 8, number of axes, their sizes (big-endian), content."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        kind, axes = content[:3], content[3]
        shape = np.frombuffer(content, ">i4", axes, offset=4)
        if kind != b"\x00\x00\x08":
            raise ValueError("it does not begin as a file of unsigned bytes does")
        return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)
    except FileNotFoundError:
        raise
    except (OSError, EOFError, zlib.error, ValueError, IndexError) as error:
        raise FileFormatError(f"{path} is not a whole IDX file of unsigned bytes ({error}); fetch it again.") from error


def _read_npz(path: Path) -> list[_Array]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            keys = next((keys for keys in _NPZ if set(keys) <= set(archive.files)), None)
            if keys is not None:
                return [_Array(archive[key], f"{key} of {path}") for key in keys]
            wanted = " or ".join(", ".join(keys) for keys in _NPZ)
            present = ", ".join(archive.files) or "nothing"
    except (OSError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise FileFormatError(f"{path} is not a whole .npz file ({error}); write it with numpy.savez.") from error
    raise FileFormatError(f"{path} holds {present}, but the arrays {wanted} are needed.")


def _assemble(raws: list[_Array], name: str, names: tuple[str, ...] = ()) -> Images:
    """Check four arrays against one another and put them together; `names` are those of the labels 0, 1, ..."""
    train, train_labels, test, test_labels = raws
    (rows, shape), (test_rows, test_shape) = _rows(train, train_labels), _rows(test, test_labels)
    if shape != test_shape:
        raise FileFormatError(
            f"{test.source} holds images of shape {test_shape}, but {train.source} of {shape}; resize."
        )
    known = np.unique(train_labels.values)
    if len(known) < 2:
        raise FileFormatError(f"{train_labels.source} holds the class {known[0]} alone; at least two are needed.")
    strange = np.setdiff1d(test_labels.values, known)
    if len(strange):
        raise FileFormatError(f"{test_labels.source} holds classes that have no training image: {strange.tolist()}.")
    y, test_y = (np.searchsorted(known, labels.values).astype(np.int64) for labels in (train_labels, test_labels))
    classes = tuple(names[k] if 0 <= k < len(names) else str(k) for k in known.tolist())
    return Images(rows, y, test_rows, test_y, shape, name, classes)


def _rows(images: _Array, labels: _Array) -> tuple[np.ndarray, tuple[int, int]]:
    """Images, checked with their labels, as rows (n, d) in double precision, and the shape of one of them."""
    (values, source), given = images, labels.values
    count, shape = len(values) if values.ndim else 0, values.shape
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise FileFormatError(
            f"{labels.source} has shape {given.shape} and type {given.dtype}; labels are integers, one per image."
        )
    if not count or len(given) != count:
        raise FileFormatError(
            f"{labels.source} holds {len(given)} labels for {count} images in {source}; each image needs one label."
        )
    if len(shape) not in (2, 3) or 0 in shape:
        raise FileFormatError(f"{source} has shape {shape}; images are (n, height, width) or (n, pixels).")
    if values.dtype != np.uint8 and not np.issubdtype(values.dtype, np.floating):
        raise FileFormatError(f"{source} has type {values.dtype}; pixels are uint8 or floats: convert them.")
    if not np.isfinite(values).all():
        raise FileFormatError(f"{source} holds NaN or infinite pixels; remove these images.")
    rows = values.reshape(count, -1)
    side = math.isqrt(rows.shape[1])
    flat = (side, side) if side * side == rows.shape[1] else (1, rows.shape[1])
    return rows / 255.0 if rows.dtype == np.uint8 else rows.astype(np.float64), flat if len(shape) == 2 else shape[1:]
