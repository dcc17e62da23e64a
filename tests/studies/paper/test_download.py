"""Downloads from local servers that misbehave on request."""

import hashlib
import json
import os
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from mlpoly.studies.paper import download as download_module
from mlpoly.studies.paper.download import DataSource, DownloadError, download
from mlpoly.studies.paper.image_files import FILES
from mlpoly.studies.paper.images import cache_dir

FIRST = f"{FILES[0]}.gz"
CONTENT = {f"{name}.gz": name.encode() * 100 for name in FILES}
CHECKSUMS = {name: f"md5:{hashlib.md5(body).hexdigest()}" for name, body in CONTENT.items()}


class Server(ThreadingHTTPServer):
    """Serves `files`, one way or another.

    `cut`: bytes after which an answer breaks off. `status`: answers that in place of a file. `location`: redirects
    there. `chunked`: sends no Content-Length. `stalls`: is silent until the event `stall`.
    """

    daemon_threads = False  # so that server_close waits for them

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.log = dict(CONTENT), []
        self.cut, self.status, self.location, self.chunked = None, None, None, False
        self.stalls, self.stall = False, threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/data/"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server, name = self.server, self.path.removeprefix("/data/")
        server.log.append(name)
        if server.stalls:
            server.stall.wait(10)
        body = server.files.get(name)
        status = 302 if server.location else server.status or (404 if body is None else 200)
        sent = b"" if status != 200 else body[: server.cut]
        with suppress(ConnectionError):
            self.send_response(status)
            if server.location:
                self.send_header("Location", server.location)
            if server.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                sent = b"%x\r\n%s\r\n%s" % (len(sent), sent, b"0\r\n\r\n" if server.cut is None else b"")
            else:
                self.send_header("Content-Length", str(len(body) if status == 200 else 0))
            self.end_headers()
            self.wfile.write(sent)

    def log_message(self, format, *args):
        """Quiet."""


@contextmanager
def running():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.stall.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No test writes to the cache of the machine it runs on, or asks a proxy."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def server(monkeypatch):
    with running() as made:
        monkeypatch.setitem(download_module._SOURCES, "mnist", DataSource((made.url,), CHECKSUMS))
        yield made


@pytest.fixture
def folder():
    return cache_dir() / "mnist"


def assert_complete(folder, content=CONTENT):
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content


def assert_fails(server, folder, message, present=()):
    """The download fails, names the address and the remedies, and leaves only whole files."""
    with pytest.raises(DownloadError, match=message) as caught:
        download("mnist")
    text = str(caught.value)
    for part in (server.url, f"into {folder} by hand", "--data-dir", "MLPOLY_DATA"):
        assert part in text
    assert {path.name for path in folder.iterdir()} == set(present)


@pytest.mark.parametrize("chunked", [False, True])
def test_download(server, folder, capfd, chunked):
    server.chunked = chunked
    assert download("mnist") == folder
    assert_complete(folder)
    assert server.log == list(CONTENT)
    assert capfd.readouterr() == ("", "")  # no bar and no log where nobody watches


def test_another_cache(server, tmp_path):
    assert download("mnist", tmp_path / "there") == tmp_path / "there" / "mnist"
    assert_complete(tmp_path / "there" / "mnist")
    assert not cache_dir().exists()


def test_what_is_there_is_not_fetched_again(server, folder):
    download("mnist")
    server.log.clear()
    download("mnist")
    assert server.log == []
    (folder / FIRST).write_bytes(CONTENT[FIRST][:-1])  # half a file does not pass as a whole one
    download("mnist")
    assert server.log == [FIRST]
    assert_complete(folder)


def test_force(server, folder):
    download("mnist")
    server.log.clear()
    download("mnist", force=True)
    assert server.log == list(CONTENT)
    assert_complete(folder)


def test_the_next_mirror_is_asked(server, folder, monkeypatch):
    with running() as broken:
        broken.files[FIRST] = b"something else"
        monkeypatch.setitem(download_module._SOURCES, "mnist", DataSource((broken.url, server.url), CHECKSUMS))
        download("mnist")
        assert broken.log == list(CONTENT)
    assert server.log == [FIRST]
    assert_complete(folder)


def test_all_mirrors_are_named(server, folder, monkeypatch):
    with running() as other:
        other.status = server.status = 404
        monkeypatch.setitem(download_module._SOURCES, "mnist", DataSource((other.url, server.url), CHECKSUMS))
        assert_fails(server, folder, rf"{other.url}{FIRST} cannot be downloaded .*404")


def test_redirection(server, folder, monkeypatch):
    with running() as moved:
        moved.location = server.url + FIRST
        same = dict.fromkeys(CHECKSUMS, CHECKSUMS[FIRST])
        monkeypatch.setitem(download_module._SOURCES, "mnist", DataSource((moved.url,), same))
        download("mnist")
    assert_complete(folder, dict.fromkeys(CONTENT, CONTENT[FIRST]))


@pytest.mark.parametrize("target", ["file:///etc/hostname", "data:,text", "ftp://127.0.0.1/file"])
def test_redirection_to_what_is_not_a_web_address(server, folder, target):
    server.location = target
    assert_fails(server, folder, "cannot be downloaded")


@pytest.mark.parametrize("chunked", [False, True])
def test_truncated(server, folder, chunked):
    server.cut, server.chunked = 50, chunked
    assert_fails(server, folder, "cannot be downloaded")


def test_wrong_bytes(server, folder):
    server.files[f"{FILES[1]}.gz"] = b"something else"
    assert_fails(server, folder, "labels.* cannot be downloaded .*hash", [FIRST])


@pytest.mark.parametrize("status", [404, 403, 416, 500, 204])
def test_refusal(server, folder, status):
    server.status = status
    assert_fails(server, folder, "cannot be downloaded" if status == 204 else f"cannot be downloaded .*{status}")


def test_failure_keeps_the_file_that_was_there(server, folder):
    download("mnist")
    server.status = 404
    with pytest.raises(DownloadError, match="404"):
        download("mnist", force=True)
    assert_complete(folder)


def test_no_network(folder, monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        url = f"http://127.0.0.1:{closed.server_address[1]}/"
    monkeypatch.setitem(download_module._SOURCES, "mnist", DataSource((url,), CHECKSUMS))
    with pytest.raises(DownloadError, match=f"{url}{FIRST} cannot be downloaded .*--data-dir.*MLPOLY_DATA"):
        download("mnist")
    assert list(folder.iterdir()) == []


def test_no_answer(server, folder, monkeypatch):
    monkeypatch.setattr(download_module, "_TIMEOUT", 0.1)
    server.stalls = True
    began = time.monotonic()
    assert_fails(server, folder, "cannot be downloaded .*(?i:timeout|timed out)")
    assert time.monotonic() - began < 5


def watched(monkeypatch, update):
    """The arguments of the progress bar, whose updates go to a function."""
    told = []

    @contextmanager
    def bar(title, total, show):
        told.append((title, show))
        yield update

    monkeypatch.setattr(download_module, "progress", bar)
    return told


def test_interrupt_leaves_nothing_half_done(server, folder, monkeypatch):
    def stopped(done, note):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        watched(patch, stopped)
        with pytest.raises(KeyboardInterrupt):
            download("mnist")
    assert list(folder.iterdir()) == []
    download("mnist")
    assert_complete(folder)


def test_progress_is_told_in_kib(server, monkeypatch):
    seen = []
    told = watched(monkeypatch, lambda done, note: seen.append((done, note)))
    download("mnist")
    size = len(CONTENT[FIRST]) // 1024
    assert told[0] == (f"mnist/{FIRST}", False)
    assert (size, f"of {size} KiB") in seen


def test_folder_that_cannot_be_written_to(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DownloadError, match=r"file/mnist cannot be written to .*XDG_CACHE_HOME"):
        download("mnist", tmp_path / "file")
    assert server.log == []


@pytest.mark.parametrize("name", ["digits", "cifar"])
def test_name_that_cannot_be_downloaded(name):
    with pytest.raises(ValueError, match=f"'{name}', but only mnist, fashion-mnist and stories260K can be downloaded"):
        download(name)


@pytest.mark.data
def test_checksums_are_those_of_real_mnist():
    folder = Path(os.environ.get("MLPOLY_DATA", "missing")) / "mnist"
    for name, expected in download_module._SOURCES["mnist"].checksums.items():
        if not (folder / name).is_file():
            pytest.skip(f"{name} is not there in its compressed form: set MLPOLY_DATA to a folder that holds mnist/")
        assert f"md5:{hashlib.md5((folder / name).read_bytes()).hexdigest()}" == expected


def test_stories(server, tmp_path, monkeypatch):
    """A model of llama2.c with random weights, from a local server, is unpacked once and whole."""
    import torch
    from support.llama2c_files import checkpoint_bytes, vocabulary_bytes
    from support.tiny_models import VOCABULARY, llama

    from mlpoly.lm import load_model

    model = llama(tie_word_embeddings=True, rms_norm_eps=1e-5)
    pieces = [f"piece {i}".encode() for i in range(VOCABULARY)]
    server.files = {"stories260K.bin": checkpoint_bytes(model), "tok512.bin": vocabulary_bytes(pieces)}
    sums = {name: f"sha256:{hashlib.sha256(body).hexdigest()}" for name, body in server.files.items()}
    monkeypatch.setitem(download_module._SOURCES, "stories260K", DataSource((server.url,), sums))
    monkeypatch.setattr(download_module, "_SAMPLE", (3, 5))
    whole, server.files["tok512.bin"] = server.files["tok512.bin"], b"something else"
    with pytest.raises(DownloadError, match=r"tok512.bin cannot be downloaded .*by hand and run this again"):
        download("stories260K")
    assert [path.name for path in (cache_dir() / "stories260K").iterdir()] == ["stories260K.bin"]
    server.files["tok512.bin"] = whole
    folder = download("stories260K")
    read, tokenizer = load_model(folder)
    ids = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        torch.testing.assert_close(read(ids).logits, model(ids).logits, atol=1e-6, rtol=1e-5)
    assert tokenizer is None and json.loads((folder / "vocab.json").read_text()) == [p.decode() for p in pieces]
    tokens = np.load(folder / "tokens.npy")
    assert tokens.shape == (3, 5) and (tokens[:, 0] == 1).all() and tokens.max() < VOCABULARY
    server.log.clear()
    changed = (folder / "tokens.npy").stat().st_mtime_ns
    download("stories260K")
    assert server.log == [] and (folder / "tokens.npy").stat().st_mtime_ns == changed
