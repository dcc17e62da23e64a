"""Data of the studies: what is read and refused, and downloads from a local server that misbehaves on request."""

import gzip
import hashlib
import io
import os
import re
import sys
import threading
import time
import tracemalloc
import zipfile
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from mlpoly.errors import FileFormatError
from mlpoly.studies.paper import data as data_module
from mlpoly.studies.paper import download as download_module
from mlpoly.studies.paper.data import DATASETS, Images, cache_dir, load_images, load_mnist, read_idx
from mlpoly.studies.paper.download import DownloadError, download

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
KERAS, PLAIN = ("x_train", "y_train", "x_test", "y_test"), ("train", "train_labels", "test", "test_labels")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No test sees data of the machine it runs on, or asks a proxy for it."""
    real = os.environ.get("MLPOLY_DATA")
    monkeypatch.delenv("MLPOLY_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    return real


def idx(array):
    array = np.asarray(array, dtype=np.uint8)
    return b"\x00\x00\x08" + bytes([array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def arrays(classes=(0, 1, 2), train=12, test=6, shape=(4, 3)):
    """Training images and labels, test images and labels."""
    rng = np.random.default_rng(0)
    parts = []
    for n in (train, test):
        parts += [rng.integers(0, 256, (n, *shape), dtype=np.uint8), np.resize(np.array(classes, np.uint8), n)]
    return parts


def write_folder(folder, parts, suffix=".gz"):
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in zip(NAMES, parts, strict=True):
        content = idx(part)
        (folder / f"{name}{suffix}").write_bytes(gzip.compress(content) if suffix else content)
    return folder


def write_npz(path, parts, keys=KERAS, **more):
    np.savez(path, **dict(zip(keys, parts, strict=True)), **more)
    return path


def assert_holds(images, parts):
    x, y, test, test_y = parts
    np.testing.assert_array_equal(images.train, x.reshape(len(x), -1) / 255)
    np.testing.assert_array_equal(images.test, test.reshape(len(test), -1) / 255)
    np.testing.assert_array_equal(images.train_labels, y)
    np.testing.assert_array_equal(images.test_labels, test_y)
    assert images.train_labels.dtype == images.test_labels.dtype == np.int64
    assert images.train.dtype == images.test.dtype == np.float64


# -- what is read ------------------------------------------------------------------------------------------------------


def test_digits():
    pytest.importorskip("sklearn")
    images, again, other = load_images(), load_images("digits"), load_images("digits", seed=1)
    assert (images.train.shape, images.test.shape, images.shape) == ((1437, 64), (360, 64), (8, 8))
    assert (images.train.min(), images.train.max()) == (0, 1)
    assert (images.name, images.classes) == ("digits", tuple("0123456789"))
    shares = np.bincount(images.test_labels) / np.bincount(images.train_labels)
    assert np.ptp(shares) < 0.02  # 36 or so of each digit: one more or less is 0.007
    np.testing.assert_array_equal(images.test, again.test)
    assert not np.array_equal(images.test, other.test)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_folder_of_idx_files(tmp_path, suffix):
    parts = arrays()
    folder = write_folder(tmp_path / "mine.v1", parts, suffix)
    for name in (folder, str(folder), "mine.v1"):
        images = load_images(name)
        assert_holds(images, parts)
        assert (images.shape, images.name, images.classes) == ((4, 3), "mine.v1", ("0", "1", "2"))


@pytest.mark.parametrize("keys", [KERAS, PLAIN])
def test_npz(tmp_path, keys):
    parts = arrays()
    images = load_images(write_npz(tmp_path / "mine.npz", parts, keys, other=np.zeros(3)))
    assert_holds(images, parts)
    assert (images.shape, images.name) == ((4, 3), "mine")


@pytest.mark.parametrize(("pixels", "shape"), [(9, (3, 3)), (12, (1, 12))])
def test_flat_images(tmp_path, pixels, shape):
    parts = arrays(shape=(pixels,))
    images = load_images(write_npz(tmp_path / "flat.npz", parts))
    assert images.shape == shape
    assert_holds(images, parts)


def test_floats_are_not_rescaled(tmp_path):
    x, y, test, test_y = arrays()
    floats = (x.astype(np.float32) - 100, y, test.astype(np.float64), test_y)
    images = load_images(write_npz(tmp_path / "floats.npz", floats))
    np.testing.assert_array_equal(images.train, floats[0].reshape(12, -1))
    np.testing.assert_array_equal(images.test, floats[2].reshape(6, -1))
    assert images.train.dtype == images.test.dtype == np.float64


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.uint64])
def test_labels_with_gaps_become_classes(tmp_path, kind):
    x, y, test, test_y = arrays(classes=(9, 3, 7))
    parts = (x, y.astype(kind), test, test_y.astype(kind))
    images = load_images(write_npz(tmp_path / "gaps.npz", parts))
    assert images.classes == ("3", "7", "9")
    assert set(images.train_labels) == {0, 1, 2}
    np.testing.assert_array_equal(np.array([int(c) for c in images.classes])[images.train_labels], y)
    np.testing.assert_array_equal(np.array([int(c) for c in images.classes])[images.test_labels], test_y)


def test_negative_labels(tmp_path):
    x, _, test, _ = arrays()
    y, test_y = np.resize([-1, 1], 12), np.resize([1, -1], 6)
    images = load_images(write_npz(tmp_path / "signs.npz", (x, y, test, test_y)))
    assert images.classes == ("-1", "1")
    np.testing.assert_array_equal(images.train_labels, (y + 1) // 2)


def test_classes_of_clothes(tmp_path):
    write_folder(tmp_path / "all", arrays(classes=range(10), train=20, test=10))
    images = load_images("fashion-mnist", tmp_path / "all")
    assert images.name == "fashion-mnist"
    assert images.classes[0] == "T-shirt"
    assert images.classes[-1] == "Ankle boot"
    write_folder(tmp_path / "some", arrays(classes=(3, 8)))
    assert load_images("fashion-mnist", tmp_path / "some").classes == ("Dress", "Bag")
    assert load_images("mnist", tmp_path / "all").classes == tuple("0123456789")


def test_images_made_by_hand_need_no_names():
    images = Images(np.zeros((2, 4)), np.zeros(2), np.zeros((2, 4)), np.zeros(2), (2, 2))
    assert (images.name, images.classes) == ("", ())


# -- where it is looked for --------------------------------------------------------------------------------------------


def test_order_of_the_search(tmp_path, monkeypatch):
    """Each place holds one image more than the one before, and is taken while those before it are gone."""
    monkeypatch.setenv("MLPOLY_DATA", str(tmp_path / "shared"))
    given = tmp_path / "given"
    places = [given, given / "mnist", tmp_path / "shared" / "mnist", tmp_path / "cache" / "mlpoly" / "mnist"]
    for more, place in enumerate(places):
        write_folder(place, arrays(train=12 + more))
    for more, place in enumerate(places):
        assert len(load_mnist(given).train) == 12 + more
        (place / f"{NAMES[2]}.gz").unlink()  # incomplete: passed over
    with pytest.raises(FileNotFoundError) as caught:
        load_mnist(given)
    message = str(caught.value)
    for text in (*map(str, places), f"without {NAMES[2]}", "mlpoly data download mnist", "--data-dir", "MLPOLY_DATA"):
        assert text in message


def test_nothing_anywhere(tmp_path):
    with pytest.raises(FileNotFoundError, match="mlpoly data download fashion-mnist") as caught:
        load_images("fashion-mnist", tmp_path / "missing")
    assert str(tmp_path / "cache" / "mlpoly" / "fashion-mnist") in str(caught.value)
    assert "without" not in str(caught.value)


@pytest.mark.parametrize("value", [None, ""])
def test_cache_dir_in_the_home(tmp_path, monkeypatch, value):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    if value is None:
        monkeypatch.delenv("XDG_CACHE_HOME")
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert cache_dir() == tmp_path / "home" / ".cache" / "mlpoly"


@pytest.mark.parametrize("name", ["mnsit", "", "no/such/folder", "missing.npz"])
def test_unknown_name(name):
    with pytest.raises(ValueError, match="is no data set") as caught:
        load_images(name)
    assert all(known in str(caught.value) for known in DATASETS)


def test_incomplete_folder(tmp_path):
    folder = write_folder(tmp_path / "half", arrays())
    (folder / f"{NAMES[1]}.gz").unlink()
    with pytest.raises(FileNotFoundError, match=rf"half holds no {NAMES[1]} \(plain or \.gz\)"):
        load_images(folder)


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'mlpoly\[cli\]'"):
        load_images("digits")


# -- what is refused ---------------------------------------------------------------------------------------------------

WHOLE = idx(np.arange(24).reshape(2, 3, 4))
PACKED = gzip.compress(WHOLE)

BROKEN = {
    "truncated gz": ("a.gz", PACKED[:-12], r"a\.gz cannot be read"),
    "gz without its checksum": ("a.gz", PACKED[:-8], r"a\.gz cannot be read"),
    "damaged gz": ("a.gz", PACKED[:10] + b"\xff" * 20 + PACKED[30:], r"a\.gz cannot be read"),
    "no gz": ("a.gz", WHOLE, r"a\.gz cannot be read"),
    "empty gz": ("a.gz", b"", r"a\.gz is no IDX file"),
    "truncated": ("a", WHOLE[:-1], r"a is truncated or damaged: 23 values, shape \(2, 3, 4\)"),
    "too long": ("a", WHOLE + b"1", "a is truncated or damaged: more than 24 values"),
    "no more than a header": ("a", WHOLE[:10], "a is no IDX file"),
    "empty": ("a", b"", "a is no IDX file"),
    "wrong magic": ("a", b"\x00\x01" + WHOLE[2:], "a is no IDX file"),
    "floats": ("a", b"\x00\x00\x0d" + WHOLE[3:], "a is no IDX file of unsigned bytes"),
    "no axes": ("a", b"\x00\x00\x08\x00" + WHOLE[4:], "a is no IDX file"),
    "many axes": ("a", b"\x00\x00\x08\xff" + b"\x00\x00\x00\x01" * 255 + b"1", "a is no IDX file"),
    "shape whose product overflows": (
        "a",
        b"\x00\x00\x08\x03" + b"\x80\x00\x00\x00" * 2 + b"\x00\x00\x00\x04",
        "a is truncated",
    ),
    "absurd shape": ("a", b"\x00\x00\x08\x03" + b"\xff" * 12, "a is truncated or damaged: 16 bytes cannot hold"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_idx(tmp_path, case):
    name, content, message = BROKEN[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileFormatError, match=message) as caught:
        read_idx(tmp_path / name)
    assert "fetch it again" in str(caught.value)


def peak_of(call):
    """Bytes that Python and NumPy held at once while a call ran, and what it raised."""
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError) as caught:
            call()
        return tracemalloc.get_traced_memory()[1], str(caught.value)
    finally:
        tracemalloc.stop()


def test_unpacking_an_idx_file_stops_where_its_header_ends(tmp_path):
    """50 MB of zeros behind a header that promises 24 bytes."""
    (tmp_path / "a.gz").write_bytes(gzip.compress(WHOLE + bytes(50_000_000)))
    peak, message = peak_of(lambda: read_idx(tmp_path / "a.gz"))
    assert "a.gz is truncated or damaged: more than 24 values, shape (2, 3, 4)" in message
    assert peak < 2_000_000  # the packed file alone has 50 kB, and a block 64 kB


def test_unpacking_an_idx_file_that_promises_too_much(tmp_path, monkeypatch):
    claim = b"\x00\x00\x08\x03" + (10**6).to_bytes(4, "big") * 2 + (1).to_bytes(4, "big")
    (tmp_path / "a.gz").write_bytes(gzip.compress(claim + bytes(100)))
    peak, message = peak_of(lambda: read_idx(tmp_path / "a.gz"))
    assert "bytes cannot hold shape (1000000, 1000000, 1)" in message
    assert peak < 2_000_000
    # What could be true is weighed against the memory of the machine.
    (tmp_path / "b.gz").write_bytes(gzip.compress(idx(np.zeros((1000, 100, 100)))))
    monkeypatch.setattr(os, "sysconf", lambda name: 1000)
    peak, message = peak_of(lambda: read_idx(tmp_path / "b.gz"))
    assert "b.gz promises 10000000 numbers, which need 0 GiB in double precision, more than" in message
    assert peak < 2_000_000


def crafted_npz(path, header, content):
    """An .npz file whose first array has another header and content."""
    parts = dict(zip(KERAS, arrays(), strict=True))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            file = io.BytesIO()
            np.save(file, part)
            archive.writestr(f"{name}.npy", header + content if name == KERAS[0] else file.getvalue())
    return path


def npy_header(shape, length=None):
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x02\x00" + (len(text) if length is None else length).to_bytes(4, "little") + text


@pytest.mark.parametrize(
    ("header", "content", "message"),
    [
        (npy_header((12, 4, 3)), bytes(50_000_000), r"x_train has shape (12, 4, 3) of uint8, but 50000000 bytes"),
        (npy_header((10**9, 4)), bytes(100), r"x_train has shape (1000000000, 4) of uint8, but 100 bytes"),
        (npy_header((12, 4, 3), length=2**31), bytes(50_000_000), "cannot be read (EOF: reading array header"),
    ],
    ids=["more", "less", "header"],
)
def test_unpacking_an_npz_file_stops_where_its_header_ends(tmp_path, header, content, message):
    path = crafted_npz(tmp_path / "a.npz", header, content)
    peak, told = peak_of(lambda: load_images(path))
    assert message in told
    assert "write it anew with numpy.savez" in told
    assert peak < 5_000_000


def test_unpacking_an_npz_file_that_this_machine_has_no_room_for(tmp_path, monkeypatch):
    path = crafted_npz(tmp_path / "a.npz", npy_header((10_000, 50, 40)), bytes(20_000_000))
    monkeypatch.setattr(os, "sysconf", lambda name: 1000)
    peak, message = peak_of(lambda: load_images(path))
    assert re.search(r"a.npz promises 20\d{6} numbers, which need .* GiB in double precision, more than", message)
    assert peak < 2_000_000


def test_idx_that_is_no_file(tmp_path):
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_idx(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*missing"):
        read_idx(tmp_path / "missing")


def test_broken_file_in_a_folder_is_named(tmp_path):
    folder = write_folder(tmp_path / "mine", arrays())
    path = folder / f"{NAMES[2]}.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(FileFormatError, match=NAMES[2]):
        load_images(folder)


X, Y, TEST, TEST_Y = arrays()
NAN = np.where(np.arange(12)[:, None, None] == 3, np.nan, X)

MISFITS = {
    "one label short": ((X, Y[1:], TEST, TEST_Y), r"y_train of .* holds 11 labels for 12 images in x_train"),
    "one test image short": ((X, Y, TEST[1:], TEST_Y), r"y_test of .* holds 6 labels for 5 images in x_test"),
    "no images": ((X[:0], Y[:0], TEST, TEST_Y), "y_train of .* holds 0 labels for 0 images"),
    "no test images": ((X, Y, TEST[:0], TEST_Y[:0]), "y_test of .* holds 0 labels for 0 images"),
    "a scalar": ((np.float64(1), Y, TEST, TEST_Y), "12 labels for 0 images"),
    "labels are floats": ((X, Y / 2, TEST, TEST_Y), "y_train of .* type float64; labels are integers"),
    "labels are words": ((X, Y.astype(str), TEST, TEST_Y), "y_train of .* labels are integers"),
    "labels are one-hot": ((X, np.eye(3, dtype=int)[Y], TEST, TEST_Y), r"y_train of .* shape \(12, 3\)"),
    "one class": ((X, 0 * Y + 4, TEST, TEST_Y), "y_train of .* the class 4 alone; at least two"),
    "a class in the test alone": ((X, Y, TEST, TEST_Y + 1), r"y_test of .* no training image: \[3\]"),
    "images differ in shape": ((X, Y, TEST[:, 1:], TEST_Y), r"x_test of .* shape \(3, 3\), but x_train of .* \(4, 3\)"),
    "colours": ((X[..., None], Y, TEST[..., None], TEST_Y), r"x_train of .* shape \(12, 4, 3, 1\)"),
    "a single pixel each": ((X[:, 0, 0], Y, TEST[:, 0, 0], TEST_Y), r"x_train of .* shape \(12,\)"),
    "no pixels": ((X[:, :0], Y, TEST[:, :0], TEST_Y), r"x_train of .* shape \(12, 0, 3\)"),
    "pixels are integers": ((X.astype(int), Y, TEST, TEST_Y), "x_train of .* type int64; pixels are uint8 or floats"),
    "pixels are not finite": ((NAN, Y, TEST, TEST_Y), "x_train of .* NaN or infinite"),
    "test pixels are not finite": ((X, Y, np.full(TEST.shape, np.inf), TEST_Y), "x_test of .* NaN or infinite"),
    "pickled": ((X.astype(object), Y, TEST, TEST_Y), r"mine\.npz cannot be read .*numpy\.savez"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_misfits(tmp_path, case):
    parts, message = MISFITS[case]
    with pytest.raises(FileFormatError, match=message):
        load_images(write_npz(tmp_path / "mine.npz", parts))


def test_misfit_in_a_folder_names_the_file(tmp_path):
    folder = write_folder(tmp_path / "mine", (X, Y[1:], TEST, TEST_Y))
    with pytest.raises(FileFormatError, match=rf"{NAMES[1]}\.gz holds 11 labels for 12 images in .*{NAMES[0]}"):
        load_images(folder)


def test_npz_that_lacks_a_key(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, x_train=X, y_train=Y, test=TEST)
    with pytest.raises(
        FileFormatError, match=r"mine\.npz holds x_train, y_train, test, but .* x_test, y_test or train"
    ):
        load_images(path)


@pytest.mark.parametrize("damage", ["cut", "flipped", "npy", "empty", "text"])
def test_broken_npz(tmp_path, damage):
    path = tmp_path / "mine.npz"
    np.savez_compressed(path, **dict(zip(KERAS, arrays(), strict=True)))
    content = path.read_bytes()
    if damage == "npy":
        with path.open("wb") as file:
            np.save(file, X)
    else:
        flipped = content[:80] + bytes(b ^ 255 for b in content[80:140]) + content[140:]
        path.write_bytes({"cut": content[:-30], "flipped": flipped, "empty": b"", "text": b"hello"}[damage])
    with pytest.raises(FileFormatError, match=r"mine\.npz (is no \.npz file|cannot be read)"):
        load_images(path)


# -- real MNIST --------------------------------------------------------------------------------------------------------


@pytest.fixture
def real_mnist(elsewhere, monkeypatch):
    if elsewhere is None or not (Path(elsewhere) / "mnist").is_dir():
        pytest.skip("MNIST is not there: set MLPOLY_DATA to a folder that holds mnist/ with the four IDX files")
    monkeypatch.setenv("MLPOLY_DATA", elsewhere)
    return Path(elsewhere) / "mnist"


def test_real_mnist(real_mnist):
    images = load_images("mnist")
    assert (images.train.shape, images.test.shape, images.shape) == ((60_000, 784), (10_000, 784), (28, 28))
    assert (images.train.min(), images.train.max()) == (0, 1)
    assert np.bincount(images.train_labels).tolist()[:3] == [5923, 6742, 5958]  # as published
    assert (images.name, images.classes) == ("mnist", tuple("0123456789"))


def test_checksums_are_those_of_real_mnist(real_mnist):
    for name, expected in download_module._SOURCES["mnist"].md5.items():
        path = real_mnist / name
        if not path.is_file():
            pytest.skip(f"{name} is not there in its compressed form")
        assert hashlib.md5(path.read_bytes()).hexdigest() == expected
        assert path.stat().st_size == download_module._SOURCES["mnist"].size[name]


def test_tables_name_the_same_files():
    for source in download_module._SOURCES.values():
        assert tuple(source.md5) == tuple(f"{name}.gz" for name in data_module._IDX)
        assert all(len(md5) == 32 for md5 in source.md5.values())
        assert tuple(source.size) == tuple(source.md5)


# -- downloads ---------------------------------------------------------------------------------------------------------

FIRST = f"{NAMES[0]}.gz"


class Server(ThreadingHTTPServer):
    """Serves `files`, one way or another.

    `ranges`: whether it knows of Range. `cut`: bytes after which an answer breaks off, and `cuts`, how often it does.
    `status`: answers that in place of a file. `location`: redirects there. `chunked`: sends no Content-Length.
    `lie`: answers a Range with another one. `stalls`: says nothing until the event `stall`. `drip`: seconds between
    bytes. `endless`: goes on with zeros until nobody listens.
    """

    daemon_threads = False  # so that server_close waits for them

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.log = files, []
        self.ranges, self.chunked, self.lie = True, False, False
        self.cut, self.cuts, self.status, self.location = None, 10**9, None, None
        self.stalls, self.stall = False, threading.Event()
        self.drip, self.endless, self.sent = None, False, 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/data/"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server, name = self.server, self.path.rsplit("/", 1)[-1]
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and server.ranges else 0
        whole = server.files.get(name, b"")
        if server.location:
            self.answer(name, asked, 302, {"Location": server.location})
        elif server.status or name not in server.files or self.path != f"/data/{name}":
            self.answer(name, asked, server.status or 404)
        elif start and start >= len(whole):
            self.answer(name, asked, 416)
        elif start and server.lie:
            self.answer(name, asked, 206, {"Content-Range": f"bytes 0-{len(whole) - 1}/{len(whole)}"}, whole)
        elif start:
            content = {"Content-Range": f"bytes {start}-{len(whole) - 1}/{len(whole)}"}
            self.answer(name, asked, 206, content, whole[start:])
        else:
            self.answer(name, asked, 200, {}, whole)

    def answer(self, name, asked, status, headers=None, body=b""):
        server = self.server
        if server.stalls:
            server.stall.wait(10)
        sent = body
        if server.cut is not None and server.cuts > 0 and len(body) > server.cut:
            sent, server.cuts = body[: server.cut], server.cuts - 1
        server.log.append((name, asked, status, len(sent)))
        with suppress(ConnectionError):
            self.send_response(status)
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            if server.chunked:
                self.send_header("Transfer-Encoding", "chunked")
            elif not server.endless:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if server.drip is not None:
                for i in range(len(sent)):
                    self.wfile.write(sent[i : i + 1])
                    if server.stall.wait(server.drip):
                        break
                return
            while server.endless and server.sent < 10**9:
                server.sent += self.wfile.write(bytes(1 << 16))
            if server.chunked:
                end = b"0\r\n\r\n" if sent == body else b""
                sent = b"%x\r\n%s\r\n%s" % (len(sent), sent, end)
            self.wfile.write(sent)

    def log_message(self, format, *args):
        """Quiet."""


@pytest.fixture
def content():
    """A data set small enough to send often, compressed as the real ones are."""
    parts = arrays(train=60, test=30)
    return {f"{name}.gz": gzip.compress(idx(part)) for name, part in zip(NAMES, parts, strict=True)}


@pytest.fixture
def server(content, monkeypatch):
    md5 = {name: hashlib.md5(body).hexdigest() for name, body in content.items()}
    monkeypatch.setitem(download_module._SOURCES, "mnist", download_module._Source("http://unused.invalid/", md5))
    made = Server(dict(content))
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.stall.set()
    made.shutdown()
    thread.join()
    made.server_close()


def half(folder, content, keep=None):
    """What a killed process leaves behind: a part of the first file; its length."""
    folder.mkdir(parents=True)
    keep = len(content[FIRST]) // 2 if keep is None else keep
    (folder / f"{FIRST}.part").write_bytes(content[FIRST][:keep])
    return keep


def assert_complete(folder, content):
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content


def assert_fails(server, folder, message, present=()):
    """The download fails, tells the address and a remedy, and leaves only whole files."""
    with pytest.raises(DownloadError, match=message) as caught:
        download("mnist", base_url=server.url)
    text = str(caught.value)
    assert server.url in text
    assert f"by hand into {folder}" in text
    assert "--data-dir" in text
    assert {path.name for path in folder.iterdir()} == set(present)


@pytest.fixture
def folder():
    return cache_dir() / "mnist"


@pytest.mark.parametrize("chunked", [False, True])
def test_download(server, content, folder, capfd, chunked):
    server.chunked = chunked
    assert download("mnist", base_url=server.url) == folder
    assert_complete(folder, content)
    assert [entry[:3] for entry in server.log] == [(name, None, 200) for name in content]
    assert_holds(load_images("mnist"), arrays(train=60, test=30))
    assert capfd.readouterr() == ("", "")  # no bar where nobody watches


def test_usual_address_and_another_cache(server, content, tmp_path, monkeypatch):
    source = download_module._Source(server.url, download_module._SOURCES["mnist"].md5)
    monkeypatch.setitem(download_module._SOURCES, "mnist", source)
    assert download("mnist", tmp_path / "there", show_progress=False) == tmp_path / "there" / "mnist"
    assert_complete(tmp_path / "there" / "mnist", content)
    assert not cache_dir().exists()


def test_what_is_there_is_not_fetched_again(server, content, folder):
    download("mnist", base_url=server.url.rstrip("/"))
    server.log.clear()
    download("mnist", base_url=server.url)
    assert server.log == []
    (folder / FIRST).write_bytes(b"damaged")
    download("mnist", base_url=server.url)
    assert [entry[0] for entry in server.log] == [FIRST]
    assert_complete(folder, content)


def test_force(server, content, folder):
    download("mnist", base_url=server.url)
    server.log.clear()
    (folder / f"{FIRST}.part").write_bytes(b"old")
    download("mnist", base_url=server.url, force=True)
    assert [entry[:3] for entry in server.log] == [(name, None, 200) for name in content]
    assert_complete(folder, content)


def test_resume_after_a_killed_process(server, content, folder):
    keep = half(folder, content)
    download("mnist", base_url=server.url)
    assert server.log[0] == (FIRST, f"bytes={keep}-", 206, len(content[FIRST]) - keep)
    assert len(server.log) == 4
    assert_complete(folder, content)


def test_resume_where_the_server_knows_no_ranges(server, content, folder):
    server.ranges = False
    keep = half(folder, content)
    download("mnist", base_url=server.url)
    assert server.log[0] == (FIRST, f"bytes={keep}-", 200, len(content[FIRST]))
    assert_complete(folder, content)


@pytest.mark.parametrize("more", [0, 5])
def test_part_as_long_as_the_file_or_longer(server, content, folder, more):
    half(folder, content, keep=len(content[FIRST]))
    with (folder / f"{FIRST}.part").open("ab") as file:
        file.write(bytes(more))
    download("mnist", base_url=server.url)
    assert [entry[2] for entry in server.log[:2]] == [416, 200]
    assert_complete(folder, content)


def test_part_of_another_file_is_fetched_anew(server, content, folder):
    keep = half(folder, content)
    (folder / f"{FIRST}.part").write_bytes(bytes(keep))
    download("mnist", base_url=server.url)
    assert [entry[1:3] for entry in server.log[:2]] == [(f"bytes={keep}-", 206), (None, 200)]
    assert_complete(folder, content)


def test_answer_with_another_range_than_asked_for(server, content, folder):
    server.lie = True
    half(folder, content)
    download("mnist", base_url=server.url)
    assert [entry[2] for entry in server.log[:2]] == [206, 200]
    assert_complete(folder, content)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("ranges", [False, True])
def test_broken_connection_is_taken_up_again(server, content, folder, ranges, chunked):
    server.cut, server.cuts, server.ranges, server.chunked = 50, 2, ranges, chunked
    download("mnist", base_url=server.url)
    assert_complete(folder, content)
    assert len(server.log) == 6
    if ranges and not chunked:  # what comes of a chunk that broke off is left to http.client
        assert [entry[1] for entry in server.log[:3]] == [None, "bytes=50-", "bytes=100-"]


@pytest.mark.parametrize("ranges", [False, True])
def test_truncated(server, content, folder, ranges):
    server.cut, server.ranges = 50, ranges
    assert_fails(server, folder, "broke off before its end, 3 times")
    assert len(server.log) == 3


def test_wrong_bytes(server, content, folder):
    server.files[NAMES[1] + ".gz"] = b"something else"
    assert_fails(server, folder, r"labels.* is not the file it should be \(md5 \w{32}, expected \w{32}\)", [FIRST])


def test_wrong_bytes_after_a_resume(server, content, folder):
    half(folder, content)
    server.files[FIRST] = bytes(reversed(content[FIRST]))
    assert_fails(server, folder, "is not the file it should be")
    assert [entry[2] for entry in server.log] == [206, 200]


@pytest.mark.parametrize("status", [404, 403, 416, 500, 204])
def test_refusal(server, content, folder, status):
    server.status = status
    assert_fails(server, folder, f"cannot be fetched: the server answered {status}")


def test_refusal_leaves_no_half_file(server, content, folder):
    half(folder, content)
    del server.files[FIRST]
    assert_fails(server, folder, "answered 404")


def test_failure_keeps_the_file_that_was_there(server, content, folder):
    download("mnist", base_url=server.url)
    server.status = 404
    with pytest.raises(DownloadError, match="404"):
        download("mnist", base_url=server.url, force=True)
    assert_complete(folder, content)


def test_no_network(server, content, folder):
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_address[1]
    with pytest.raises(DownloadError, match=f"http://127.0.0.1:{port}/{FIRST} cannot be reached: .*by hand into"):
        download("mnist", base_url=f"http://127.0.0.1:{port}")
    assert list(folder.iterdir()) == []


def test_no_answer(server, content, folder, monkeypatch):
    monkeypatch.setattr(download_module, "_TIMEOUT", 0.1)
    server.stalls = True
    assert_fails(server, folder, "cannot be reached: .*(?i:timeout|timed out)")


def test_a_file_that_drips_is_given_up(server, content, folder, monkeypatch):
    """A byte every twentieth of a second never lets a read time out; at this pace the file would take a minute."""
    monkeypatch.setattr(download_module, "_TIMEOUT", 0.5)
    server.drip = 0.05
    began = time.monotonic()
    assert_fails(server, folder, r"comes too slowly \(\d+ bytes in \d+ seconds\)")
    assert time.monotonic() - began < 20
    assert len(server.log) == 1  # and is not tried again


def test_a_file_that_comes_slowly_but_steadily_is_fetched(server, content, folder, monkeypatch):
    monkeypatch.setattr(download_module, "_TIMEOUT", 0.1)
    monkeypatch.setattr(download_module, "_SLOWEST", 5)
    server.files = {name: body[:40] for name, body in content.items()}
    md5 = {name: hashlib.md5(body).hexdigest() for name, body in server.files.items()}
    monkeypatch.setitem(download_module._SOURCES, "mnist", download_module._Source("http://unused.invalid/", md5))
    server.drip = 0.01
    download("mnist", base_url=server.url)
    assert_complete(folder, server.files)


@pytest.mark.parametrize("known", [True, False])
def test_a_file_without_an_end_is_cut_off(server, content, folder, monkeypatch, known):
    source = download_module._SOURCES["mnist"]
    if known:
        sizes = {name: len(body) for name, body in content.items()}
        monkeypatch.setitem(download_module._SOURCES, "mnist", source._replace(size=sizes))
    else:
        monkeypatch.setattr(download_module, "_LARGEST", 10**6)
    server.endless = True
    most = len(content[FIRST]) if known else 10**6
    assert_fails(server, folder, f"is longer than the {most} bytes that it may have")
    assert server.sent < 10**8  # what stood in the buffers of the system


def test_files_of_known_size_are_fetched_to_their_last_byte(server, content, folder, monkeypatch):
    sizes = {name: len(body) for name, body in content.items()}
    source = download_module._SOURCES["mnist"]._replace(size=sizes)
    monkeypatch.setitem(download_module._SOURCES, "mnist", source)
    half(folder, content)
    download("mnist", base_url=server.url)
    assert_complete(folder, content)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("file:///etc/hostname", "Redirection to url .* is not allowed"),
        ("data:,text", "Redirection to url .* is not allowed"),
        ("ftp://127.0.0.1/file", "unknown url type: ftp"),
    ],
)
def test_redirection_to_what_is_no_web_address(server, folder, target, message):
    server.location = target
    assert_fails(server, folder, message)


def test_redirection(server, content, folder, monkeypatch):
    """A mirror that has moved, with a resume across the redirection."""
    moved = Server({})
    moved.location = server.url + FIRST
    thread = threading.Thread(target=moved.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    only = download_module._Source(moved.url, {FIRST: download_module._SOURCES["mnist"].md5[FIRST]})
    monkeypatch.setitem(download_module._SOURCES, "mnist", only)
    keep = half(folder, content)
    try:
        download("mnist")
    finally:
        moved.shutdown()
        thread.join()
        moved.server_close()
    assert server.log == [(FIRST, f"bytes={keep}-", 206, len(content[FIRST]) - keep)]
    assert_complete(folder, {FIRST: content[FIRST]})


def test_interrupt_keeps_the_part_for_the_next_call(server, content, folder, monkeypatch):
    @contextmanager
    def interrupted(title, total, show):
        def update(done, note):
            raise KeyboardInterrupt

        yield update

    with monkeypatch.context() as patch:
        patch.setattr(download_module, "_BLOCK", 64)
        patch.setattr(download_module, "progress", interrupted)
        with pytest.raises(KeyboardInterrupt):
            download("mnist", base_url=server.url)
    assert [path.name for path in folder.iterdir()] == [f"{FIRST}.part"]
    server.log.clear()
    download("mnist", base_url=server.url)
    assert server.log[0][1:3] == ("bytes=64-", 206)
    assert_complete(folder, content)


def test_progress_is_told_in_kib(server, content, monkeypatch):
    told = []

    @contextmanager
    def bar(title, total, show):
        told.append((title, total, show))
        yield lambda done, note: told.append((done, note))

    monkeypatch.setattr(download_module, "progress", bar)
    download("mnist", base_url=server.url, show_progress=False)
    size = len(content[FIRST]) // 1024
    assert told[:2] == [(f"fetching mnist/{FIRST}", size, False), (size, "KiB")]


def test_folder_that_cannot_be_written_to(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DownloadError, match=r"file/mnist cannot be written to .*XDG_CACHE_HOME"):
        download("mnist", tmp_path / "file", base_url=server.url)
    assert server.log == []


def test_file_that_cannot_be_written(server, folder):
    (folder / f"{FIRST}.part" / "something").mkdir(parents=True)
    with pytest.raises(DownloadError, match="cannot be written to"):
        download("mnist", base_url=server.url)


@pytest.mark.parametrize("base", ["file:///etc", "ftp://host/x", "host/x", ""])
def test_address_that_is_none_of_the_web(base):
    with pytest.raises(ValueError, match=r"base_url is .*, but must start with https:// or http://"):
        download("mnist", base_url=base)
    assert not cache_dir().exists()


def test_address_without_a_host():
    with pytest.raises(DownloadError, match="cannot be reached"):
        download("mnist", base_url="http://")


@pytest.mark.parametrize("name", ["digits", "cifar"])
def test_name_that_cannot_be_downloaded(name):
    with pytest.raises(ValueError, match=f"'{name}', but only mnist and fashion-mnist can be downloaded"):
        download(name)
