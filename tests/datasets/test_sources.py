"""Downloads from a local server."""

import hashlib
import json
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from support.llama2c_files import checkpoint_bytes, vocabulary_bytes
from support.tiny_models import VOCABULARY, llama

from mlpoly.datasets import DownloadError, cache_dir, download, load_images
from mlpoly.datasets.sources import _SOURCES, IDX_FILES, DataSource
from mlpoly.lm import load_model

FIRST = f"{IDX_FILES[0]}.gz"
CONTENT = {f"{name}.gz": name.encode() * 100 for name in IDX_FILES}


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A folder that a server on this machine serves, with its address; the cache is elsewhere."""
    folder = tmp_path / "served"
    folder.mkdir()
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    sums = {name: f"md5:{hashlib.md5(content).hexdigest()}" for name, content in CONTENT.items()}
    monkeypatch.setitem(_SOURCES, "mnist", DataSource((f"{address}gone/", address), sums))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("MLPOLY_DATA", raising=False)
    yield folder, address
    server.shutdown()
    server.server_close()


def test_files_come_from_the_first_mirror_that_has_them(served, capfd):
    folder = download("mnist")
    assert folder == cache_dir() / "mnist"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT
    assert capfd.readouterr().out == ""
    (served[0] / FIRST).unlink()  # what is there is not asked for again
    assert download("mnist") == folder
    with pytest.raises(DownloadError):
        download("mnist", force=True)


def test_a_file_that_is_damaged_is_fetched_again(served):
    folder = download("mnist")
    (folder / FIRST).write_bytes(b"half")
    assert (download("mnist") / FIRST).read_bytes() == CONTENT[FIRST]


def test_another_checksum_leaves_nothing_behind(served, tmp_path):
    (served[0] / FIRST).write_bytes(b"something else")
    with pytest.raises(DownloadError, match=rf"{served[1]}{FIRST} cannot be downloaded .*--data-dir.*MLPOLY_DATA"):
        download("mnist", tmp_path / "mine")
    assert list((tmp_path / "mine" / "mnist").iterdir()) == []


def test_a_folder_that_cannot_be_written(served, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DownloadError, match=r"cannot be written to .*XDG_CACHE_HOME"):
        download("mnist", tmp_path / "file")


@pytest.mark.parametrize("name", ["digits", "nosuch"])
def test_name_that_cannot_be_downloaded(name):
    with pytest.raises(ValueError, match=f"'{name}', but only mnist, fashion-mnist, stories260K can be downloaded"):
        download(name)


@pytest.mark.data
def test_checksums_are_those_of_real_mnist():
    folder = Path(os.environ.get("MLPOLY_DATA", "missing")) / "mnist"
    for name, expected in _SOURCES["mnist"].checksums.items():
        if not (folder / name).is_file():
            pytest.skip(f"{name} is not there in its compressed form: set MLPOLY_DATA to a folder that holds mnist/")
        assert f"md5:{hashlib.md5((folder / name).read_bytes()).hexdigest()}" == expected
    assert len(load_images("mnist", folder).train) == 60_000


def test_stories(served, monkeypatch):
    """A model of llama2.c with random weights is unpacked once and whole."""
    model = llama(tie_word_embeddings=True, rms_norm_eps=1e-5)
    pieces = [f"piece {i}".encode() for i in range(VOCABULARY)]
    files = {"stories260K.bin": checkpoint_bytes(model), "tok512.bin": vocabulary_bytes(pieces)}
    for name, content in files.items():
        (served[0] / name).write_bytes(content)
    sums = {name: f"sha256:{hashlib.sha256(body).hexdigest()}" for name, body in files.items()}
    monkeypatch.setitem(_SOURCES, "stories260K", DataSource((served[1],), sums))
    monkeypatch.setattr("mlpoly.datasets.sources._SAMPLE", (3, 5))
    folder = download("stories260K")
    read, tokenizer = load_model(folder)
    ids = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        torch.testing.assert_close(read(ids).logits, model(ids).logits, atol=1e-6, rtol=1e-5)
    assert tokenizer is None and json.loads((folder / "vocab.json").read_text()) == [p.decode() for p in pieces]
    tokens = np.load(folder / "tokens.npy")
    assert tokens.shape == (3, 5) and (tokens[:, 0] == 1).all() and tokens.max() < VOCABULARY
    changed = (folder / "tokens.npy").stat().st_mtime_ns
    download("stories260K")
    assert (folder / "tokens.npy").stat().st_mtime_ns == changed
