"""Download data sets into the user's cache, with checksums, from the first mirror that answers."""

import os
from pathlib import Path
from typing import NamedTuple

from mlpoly.extras import library
from mlpoly.files import make_folder
from mlpoly.progress_bars import progress_bar

# Training images and labels, then test images and labels.
IDX_FILES = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
_TIMEOUT = 30.0  # seconds without an answer


class DataSource(NamedTuple):
    """Mirrors, in the order in which they are tried, and the checksum of every file; those make up for plain http."""

    mirrors: tuple[str, ...]
    checksums: dict[str, str]


def _idx(*checksums: str) -> dict[str, str]:
    return {f"{file}.gz": f"md5:{checksum}" for file, checksum in zip(IDX_FILES, checksums, strict=True)}


_SOURCES = {
    "mnist": DataSource(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        _idx("f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432",
             "9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "fashion-mnist": DataSource(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
         "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"),
        _idx("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe",
             "bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
}  # fmt: skip


class DownloadError(RuntimeError):
    """A file could not be downloaded; the message names its addresses and how to do without."""


def cache_dir() -> Path:
    """Folder for downloaded data: ``mlpoly`` below XDG_CACHE_HOME, or below ~/.cache where that is not set."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "mlpoly"


def searched_folders(name: str, data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """Folders in which a named data set is looked for, in this order."""
    first = [] if data_dir is None else [Path(data_dir).expanduser(), Path(data_dir).expanduser() / name]
    shared = [Path(os.environ["MLPOLY_DATA"]) / name] if os.environ.get("MLPOLY_DATA") else []
    return [*first, *shared, cache_dir() / name]


def download(name: str, cache: str | os.PathLike[str] | None = None, *, force: bool = False) -> Path:
    """Download the files of a data set, those that are not there yet, and return their folder.

    With `force`, files that are there are downloaded again; `cache` is a folder that gets a folder `name`, by default
    `cache_dir()`.
    """
    if name not in _SOURCES:
        hint = "; the digits come with scikit-learn" if name == "digits" else ""
        raise ValueError(f"name is {name!r}, but only {', '.join(_SOURCES)} can be downloaded{hint}.")
    pooch = library("pooch", "pooch", "mlpoly data download")
    pooch.get_logger().setLevel("WARNING")
    source, folder = _SOURCES[name], (cache_dir() if cache is None else Path(cache).expanduser()) / name
    try:
        make_folder(folder)
    except OSError as error:
        raise DownloadError(f"{error} The cache is below XDG_CACHE_HOME.") from error
    downloader = pooch.HTTPDownloader(timeout=_TIMEOUT)
    with progress_bar(name, len(source.checksums)) as bar:
        for number, file in enumerate(source.checksums):
            bar(number, file)
            if force:
                (folder / file).unlink(missing_ok=True)
            failures = []
            for mirror in source.mirrors:
                try:
                    pooch.create(folder, mirror, registry=source.checksums).fetch(file, downloader=downloader)
                    break
                except (OSError, ValueError) as error:  # of the network or the disk, or of the checksum
                    failures.append(f"{mirror}{file} cannot be downloaded ({error})")
            else:
                raise DownloadError(
                    f"{'; '.join(failures)}. Try again later, or put the file into {folder} by hand and run this "
                    f"again; images can also be in a folder that --data-dir names, or in {name}/ below MLPOLY_DATA."
                )
    return folder
