"""Download MNIST and Fashion-MNIST into the user's cache: checked, from several mirrors, whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from mlpoly.extras import library
from mlpoly.files import make_folder
from mlpoly.progress import progress
from mlpoly.studies.paper.image_files import FILES
from mlpoly.studies.paper.images import cache_dir

__all__ = ["DownloadError", "download"]

_TIMEOUT = 30.0  # seconds without an answer

# Mirrors, in the order in which they are tried, and the MD5 checksums of FILES. The checksums make up for plain http.
_SOURCES = {
    "mnist": (
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        [
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ],
    ),
    "fashion-mnist": (
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        [
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ],
    ),
}


class DownloadError(RuntimeError):
    """A file could not be downloaded; the message names its addresses and how to do without."""


class _PoochBar:
    """The bar that pooch asks for, drawn by `mlpoly.progress`."""

    def __init__(self, show: Callable[[int, str], None]) -> None:
        self.show, self.done, self.total = show, 0, 0  # bytes; pooch sets the total

    def update(self, size: int) -> None:
        self.done += size
        self.show(self.done // 1024, f"of {self.total // 1024} KiB")

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass


def download(
    name: str, cache: str | os.PathLike[str] | None = None, *, force: bool = False, show_progress: bool = True
) -> Path:
    """Download the four files of a data set, those that are not there yet, and return their folder.

    Parameters
    ----------
    name : {"mnist", "fashion-mnist"}
    cache : path, optional
        Folder that gets a folder `name`, by default `cache_dir()`.
    force : bool
        Whether to download files that are there already.
    show_progress : bool
        Whether to draw a bar if stderr is a terminal.

    Raises
    ------
    DownloadError
        If a file cannot be downloaded or written, or has another checksum; nothing half-done stays behind.
    """
    if name not in _SOURCES:
        hint = "; the digits come with scikit-learn" if name == "digits" else ""
        raise ValueError(f"name is {name!r}, but only {' and '.join(_SOURCES)} can be downloaded{hint}.")
    pooch = library("pooch", "pooch", "mlpoly data download")
    pooch.get_logger().setLevel("WARNING")
    try:
        folder = make_folder((cache_dir() if cache is None else Path(cache).expanduser()) / name)
    except OSError as error:
        raise DownloadError(f"{error} The cache is below XDG_CACHE_HOME.") from error
    mirrors, checksums = _SOURCES[name]
    for file, checksum in zip((f"{file}.gz" for file in FILES), checksums, strict=True):
        if not force and (folder / file).is_file() and pooch.file_hash(folder / file, alg="md5") == checksum:
            continue
        failures = []
        for url in (mirror + file for mirror in mirrors):
            try:
                # Inside the folder, so that the move to its place is atomic.
                with TemporaryDirectory(dir=folder) as scratch, progress(f"{name}/{file}", None, show_progress) as show:
                    fetch = pooch.HTTPDownloader(progressbar=_PoochBar(show), timeout=_TIMEOUT)
                    whole = pooch.retrieve(url, f"md5:{checksum}", file, scratch, downloader=fetch)
                    os.replace(whole, folder / file)
                break
            except (OSError, ValueError) as error:  # of the network or the disk, or of the checksum
                failures.append(f"{url} cannot be downloaded ({error})")
        else:
            raise DownloadError(
                f"{'; '.join(failures)}. Try again later, or put the file into {folder} by hand, or name a folder that "
                f"holds the four files with --data-dir, or one that holds {name}/ with MLPOLY_DATA."
            )
    return folder
