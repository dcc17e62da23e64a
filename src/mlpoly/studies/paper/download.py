"""Fetch MNIST and Fashion-MNIST into the user's cache: resumed if interrupted, checked, and whole or not there."""

from __future__ import annotations

import hashlib
import os
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit

from mlpoly.progress import progress
from mlpoly.studies.paper.data import cache_dir

__all__ = ["DownloadError", "download"]

_TIMEOUT = 30.0  # seconds without an answer
_SLOWEST = 1024  # bytes per second, over any _TIMEOUT seconds
_LARGEST = 1 << 30  # bytes of a file whose size is not known
_ATTEMPTS = 3  # at a file whose connection breaks
_BLOCK = 1 << 16
_KIB = 1024
_HANDLERS = (  # those of urllib for http and https alone, so that no redirection leads to a local file
    urllib.request.ProxyHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPRedirectHandler,
    urllib.request.HTTPErrorProcessor,
)


class DownloadError(RuntimeError):
    """A file could not be fetched; the message names its address and how to do without."""


class _Source(NamedTuple):
    url: str
    md5: dict[str, str]  # by file
    size: dict[str, int] = {}  # noqa: RUF012 - in bytes, by file, where it is known; never changed


_SOURCES = {
    "mnist": _Source(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
        {
            "train-images-idx3-ubyte.gz": 9_912_422,
            "train-labels-idx1-ubyte.gz": 28_881,
            "t10k-images-idx3-ubyte.gz": 1_648_877,
            "t10k-labels-idx1-ubyte.gz": 4_542,
        },
    ),
    # Its authors' own address, which answers to http alone; the checksums stand in for the encryption.
    "fashion-mnist": _Source(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
        {
            "train-images-idx3-ubyte.gz": 26_421_880,
            "train-labels-idx1-ubyte.gz": 29_515,
            "t10k-images-idx3-ubyte.gz": 4_422_102,
            "t10k-labels-idx1-ubyte.gz": 5_148,
        },
    ),
}


@dataclass(frozen=True)
class _File:
    """One file to fetch: from where, to where, and what it must be."""

    url: str
    path: Path
    md5: str
    most: int  # bytes

    @property
    def part(self) -> Path:
        """Holds what has come so far; only a process that was killed or interrupted leaves it behind."""
        return self.path.with_name(f"{self.path.name}.part")

    def failure(self, what: str) -> DownloadError:
        return DownloadError(
            f"{self.url} {what}. Try again later, or fetch the file by hand into {self.path.parent}, or name a folder "
            "that holds the four files with --data-dir."
        )


def download(
    name: str,
    cache: str | os.PathLike[str] | None = None,
    *,
    base_url: str | None = None,
    force: bool = False,
    show_progress: bool = True,
) -> Path:
    """Fetch the four files of a data set, those that are not there yet.

    Parameters
    ----------
    name : {"mnist", "fashion-mnist"}
    cache : path, optional
        Folder that gets a folder `name`; `cache_dir()` unless told otherwise.
    base_url : str, optional
        Address of a folder with the same files, http or https, in place of the usual one.
    force : bool
        Fetch also what is there already.
    show_progress : bool
        Draw a bar if stderr is a terminal.

    Returns
    -------
    Path
        The folder with the files.

    Raises
    ------
    DownloadError
        If a file cannot be fetched or written, or is not the one it should be; nothing half-done stays behind.
    """
    if name not in _SOURCES:
        hint = "; the digits come with scikit-learn" if name == "digits" else ""
        raise ValueError(f"name is {name!r}, but only {' and '.join(_SOURCES)} can be downloaded{hint}.")
    source = _SOURCES[name]
    base = source.url if base_url is None else base_url
    if urlsplit(base).scheme not in ("http", "https"):
        raise ValueError(f"base_url is {base!r}, but must start with https:// or http://.")
    folder = (cache_dir() if cache is None else Path(cache).expanduser()) / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, md5 in source.md5.items():
            most = source.size.get(file, _LARGEST)
            _ensure(_File(f"{base.rstrip('/')}/{file}", folder / file, md5, most), force, show_progress)
    except OSError as error:  # network trouble is a DownloadError by now, so this is the disk
        remedy = "look at its permissions and the free space, or choose another place with XDG_CACHE_HOME"
        raise DownloadError(f"the folder {folder} cannot be written to ({error}); {remedy}.") from error
    return folder


def _ensure(file: _File, force: bool, show: bool) -> None:
    """Have the file in its place, unless that is so already."""
    if not force and file.path.is_file() and _md5(file.path) == file.md5:
        return
    if force:
        file.part.unlink(missing_ok=True)
    try:
        resumed = _complete(file, show)
        if resumed and _md5(file.part) != file.md5:
            file.part.unlink()  # the two halves are of different files: once more, in one piece
            _complete(file, show)
        found = _md5(file.part)
        if found != file.md5:
            raise file.failure(f"is not the file it should be (md5 {found}, expected {file.md5})")
        os.replace(file.part, file.path)
    except Exception:  # not KeyboardInterrupt: the next call goes on from there
        with suppress(OSError):  # the first error is the one to tell
            file.part.unlink(missing_ok=True)
        raise


def _md5(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


# -- over the network --------------------------------------------------------------------------------------------------


def _complete(file: _File, show: bool) -> bool:
    """Bring the .part file to its full length; say whether it was put together from more than one answer."""
    for _ in range(_ATTEMPTS):
        response, start = _open(file, file.part.stat().st_size if file.part.exists() else 0)
        with response:
            if _receive(response, file, start, show):
                return start > 0
    raise file.failure(f"broke off before its end, {_ATTEMPTS} times")


def _receive(response: HTTPResponse, file: _File, start: int, show: bool) -> bool:
    """Write an answer to the .part file from byte `start` on; say whether it came to its end.

    Raises
    ------
    DownloadError
        If more comes than the file can have, or if it comes too slowly.
    """
    length = response.headers.get("Content-Length", "")
    total = start + int(length) if length.isdecimal() else None
    title = f"fetching {file.path.parent.name}/{file.path.name}"
    with (
        file.part.open("ab" if start else "wb") as out,
        progress(title, total and total // _KIB, show) as update,
    ):
        since, before = time.monotonic(), out.tell()
        while True:
            try:
                block = response.read1(_BLOCK)  # what is there; `read` would wait for the whole block
            except (OSError, HTTPException):
                return False
            if not block:
                return total in (None, out.tell())
            if out.tell() + len(block) > file.most:
                raise file.failure(f"is longer than the {file.most} bytes that it may have")
            out.write(block)  # outside the try: trouble with the disk is no trouble with the network
            update(out.tell() // _KIB, "KiB")
            if (waited := time.monotonic() - since) > _TIMEOUT:
                if out.tell() - before < _SLOWEST * waited:
                    raise file.failure(f"comes too slowly ({out.tell() - before} bytes in {waited:.0f} seconds)")
                since, before = time.monotonic(), out.tell()


def _open(file: _File, offset: int) -> tuple[HTTPResponse, int]:
    """Ask for the file from byte `offset` on; give the answer and the byte that it starts from."""
    headers = {"User-Agent": "mlpoly"} | ({"Range": f"bytes={offset}-"} if offset else {})
    opener = urllib.request.OpenerDirector()
    for handler in _HANDLERS:
        opener.add_handler(handler())
    try:
        response = opener.open(urllib.request.Request(file.url, headers=headers), timeout=_TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == 416 and offset:  # the .part file is longer than the file
            return _open(file, 0)
        raise file.failure(f"cannot be fetched: the server answered {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise file.failure(f"cannot be reached: {str(getattr(error, 'reason', error)) or repr(error)}") from error
    if response.status == 200:
        return response, 0
    if response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
        return response, offset
    response.close()
    if offset:
        return _open(file, 0)
    raise file.failure(f"cannot be fetched: the server answered {response.status} {response.reason}")
