"""Downloads, with a folder in place of the network."""

import hashlib
import shutil
from urllib.parse import urlsplit

import numpy as np
import pooch
import pytest
from support.data import data_folder

from mlpoly.datasets import DownloadError, cache_dir, download, load_images
from mlpoly.datasets.sources import _SOURCES, IDX_FILES, DataSource

FIRST = f"{IDX_FILES[0]}.gz"
CONTENT = {f"{name}.gz": name.encode() * 100 for name in IDX_FILES}


@pytest.fixture
def offered(tmp_path, monkeypatch):
    """A folder that downloads copy from, as a function that offers files under the name of a data set."""
    folder = tmp_path / "offered"
    folder.mkdir()

    def offer(name, contents):
        for file, content in contents.items():
            (folder / file).write_bytes(content)
        sums = {file: f"sha256:{hashlib.sha256(content).hexdigest()}" for file, content in contents.items()}
        source = DataSource(("https://here.invalid/gone/", "https://here.invalid/"), sums)
        monkeypatch.setitem(_SOURCES, name, source)
        return folder

    def copy(url, path, pooch):
        shutil.copy(folder / urlsplit(url).path[1:], path)

    monkeypatch.setattr(pooch, "HTTPDownloader", lambda **options: copy)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MLPOLY_DATA", raising=False)
    return offer


def test_files_come_from_the_first_mirror_that_has_them(offered, capfd):
    mirror, folder = offered("mnist", CONTENT), download("mnist")
    assert folder == cache_dir() / "mnist"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT
    assert capfd.readouterr().out == ""
    (folder / FIRST).write_bytes(b"half")  # a file that is damaged is fetched again
    assert (download("mnist") / FIRST).read_bytes() == CONTENT[FIRST]
    (mirror / FIRST).unlink()  # what is there is not asked for again
    assert download("mnist") == folder
    with pytest.raises(DownloadError):
        download("mnist", force=True)


def test_another_checksum_leaves_nothing_behind(offered, tmp_path):
    (offered("mnist", CONTENT) / FIRST).write_bytes(b"something else")
    with pytest.raises(DownloadError, match=rf"{FIRST} cannot be downloaded .*--data-dir.*MLPOLY_DATA"):
        download("mnist", tmp_path / "mine")
    assert list((tmp_path / "mine" / "mnist").iterdir()) == []


@pytest.mark.parametrize("name", ["digits", "nosuch"])
def test_name_that_cannot_be_downloaded(name):
    with pytest.raises(ValueError, match=f"'{name}', but only mnist, fashion-mnist can be downloaded"):
        download(name)


@pytest.mark.data
def test_real_mnist():
    folder = data_folder("mnist")
    for name, expected in _SOURCES["mnist"].checksums.items():
        if (folder / name).is_file():  # in its compressed form
            assert f"md5:{hashlib.md5((folder / name).read_bytes()).hexdigest()}" == expected
    images = load_images("mnist", folder)
    assert (images.train.shape, images.test.shape, images.shape) == ((60_000, 784), (10_000, 784), (28, 28))
    assert (images.train.min(), images.train.max()) == (0, 1)
    assert np.bincount(images.train_labels).tolist()[:3] == [5923, 6742, 5958]  # as published
    assert (images.name, images.classes) == ("mnist", tuple("0123456789"))
