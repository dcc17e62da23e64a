"""Download data sets and a small model into the user's cache: checked, from several mirrors, whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from mlpoly.extras import library
from mlpoly.files import make_folder, replacing
from mlpoly.progress_bars import progress_bar
from mlpoly.studies.paper.image_files import FILES
from mlpoly.studies.paper.images import cache_dir

_TIMEOUT = 30.0  # seconds without an answer


class DataSource(NamedTuple):
    """Mirrors, in the order in which they are tried, and the checksum of every file; those make up for plain http."""

    mirrors: tuple[str, ...]
    checksums: dict[str, str]


def _idx(*md5: str) -> dict[str, str]:
    return {f"{file}.gz": f"md5:{checksum}" for file, checksum in zip(FILES, md5, strict=True)}


_SOURCES = {
    "mnist": DataSource(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        _idx(
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    "fashion-mnist": DataSource(
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        _idx(
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    "stories260K": DataSource(  # of Andrej Karpathy, MIT licence
        (
            "https://huggingface.co/karpathy/tinyllamas/resolve/0bd21da7698eaf29a0d7de3992de8a46ef624add/stories260K/",
            "https://huggingface.co/karpathy/tinyllamas/resolve/main/stories260K/",
        ),
        {
            "stories260K.bin": "sha256:b0a507e7ad0f626624f17112325e66691f9076d622e1d3274d103d00299f2696",
            "tok512.bin": "sha256:037cb335abb25d1fa9e8ecae30ed2a3a8ace9302862ebcdc05d51a6bbb10c312",
        },
    ),
}
_SAMPLE = (144, 256)  # sequences and tokens of the text that stories260K writes


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


def download(name: str, cache: str | os.PathLike[str] | None = None, *, force: bool = False) -> Path:
    """Download the files of a data set or model, those that are not there yet, and return their folder.

    stories260K is a trained Llama of 260 000 parameters and 1 MB. Beside the files of llama2.c the folder gets what
    `mlpoly.lm.load_model` reads, the texts of the tokens in vocab.json, and in tokens.npy (144, 256) stories that the
    model tells, for `mlpoly lm`.

    Parameters
    ----------
    name : {"mnist", "fashion-mnist", "stories260K"}
    cache : path, optional
        Folder that gets a folder `name`, by default `cache_dir()`.
    force : bool
        Whether to download files that are there already.

    Raises
    ------
    DownloadError
        If a file cannot be downloaded or written, or has another checksum; nothing half-done stays behind.
    """
    if name not in _SOURCES:
        hint = "; the digits come with scikit-learn" if name == "digits" else ""
        *first, last = _SOURCES
        raise ValueError(f"name is {name!r}, but only {', '.join(first)} and {last} can be downloaded{hint}.")
    pooch = library("pooch", "pooch", "mlpoly data download")
    if name == "stories260K":
        library("transformers", "transformers", "mlpoly data download stories260K")
    pooch.get_logger().setLevel("WARNING")
    try:
        folder = make_folder((cache_dir() if cache is None else Path(cache).expanduser()) / name)
    except OSError as error:
        raise DownloadError(f"{error} The cache is below XDG_CACHE_HOME.") from error
    mirrors, checksums = _SOURCES[name]
    for file, checksum in checksums.items():
        kind, known = checksum.split(":")
        if not force and (folder / file).is_file() and pooch.file_hash(folder / file, alg=kind) == known:
            continue
        failures = []
        for url in (mirror + file for mirror in mirrors):
            try:
                # Inside the folder, so that the move to its place is atomic.
                with TemporaryDirectory(dir=folder) as scratch, progress_bar(f"{name}/{file}", None) as show:
                    fetch = pooch.HTTPDownloader(progressbar=_PoochBar(show), timeout=_TIMEOUT)
                    whole = pooch.retrieve(url, checksum, file, scratch, downloader=fetch)
                    os.replace(whole, folder / file)
                break
            except (OSError, ValueError) as error:  # of the network or the disk, or of the checksum
                failures.append(f"{url} cannot be downloaded ({error})")
        else:
            rest = " and run this again."
            if file.endswith(".gz"):
                rest = ", or name a folder that holds the four files with --data-dir, or one that holds "
                rest += f"{name}/ with MLPOLY_DATA."
            said = f"{'; '.join(failures)}. Try again later, or put the file into {folder} by hand{rest}"
            raise DownloadError(said)
    if name == "stories260K" and (force or not (folder / "tokens.npy").is_file()):
        _unpack(folder, *checksums)
    return folder


def _unpack(folder: Path, checkpoint: str, vocabulary: str) -> None:
    """Write a model of llama2.c for transformers, and text of its own; tokens.npy comes last, when all is there."""
    from mlpoly.lm.model.llama2c import convert_llama2c
    from mlpoly.lm.text.generated import generate_tokens

    model = convert_llama2c(folder / checkpoint, folder / vocabulary, folder)
    tokens = generate_tokens(model, *_SAMPLE, start=model.config.bos_token_id)
    with replacing(folder / "tokens.npy") as scratch, scratch.open("wb") as file:
        np.save(file, tokens.astype(np.uint16))
