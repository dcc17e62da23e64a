"""Images: what is read, where it is looked for, and what is refused."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlpoly.datasets import DATASETS, load_images, read_idx
from mlpoly.errors import FileFormatError

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
KERAS, PLAIN = ("x_train", "y_train", "x_test", "y_test"), ("train", "train_labels", "test", "test_labels")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No test sees data of the machine it runs on."""
    monkeypatch.delenv("MLPOLY_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


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


def test_digits():
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


@pytest.mark.parametrize(("kind", "shift"), [(np.uint8, 0), (np.int64, -5), (np.uint64, 0)])
def test_labels_with_gaps_become_classes(tmp_path, kind, shift):
    x, y, test, test_y = arrays(classes=(9, 3, 7))
    y, test_y = ((labels.astype(int) + shift).astype(kind) for labels in (y, test_y))
    images = load_images(write_npz(tmp_path / "gaps.npz", (x, y, test, test_y)))
    names = np.array([int(c) for c in images.classes])
    assert names.tolist() == [3 + shift, 7 + shift, 9 + shift] and set(images.train_labels) == {0, 1, 2}
    np.testing.assert_array_equal(names[images.train_labels], y)
    np.testing.assert_array_equal(names[images.test_labels], test_y)


def test_classes_of_clothes(tmp_path):
    write_folder(tmp_path / "all", arrays(classes=range(10), train=20, test=10))
    assert load_images("fashion-mnist", tmp_path / "all").classes[-1] == "Ankle boot"
    assert load_images("mnist", tmp_path / "all").classes == tuple("0123456789")


def test_order_of_the_search(tmp_path, monkeypatch):
    """Each place holds one image more than the one before, and is taken while those before it are gone."""
    monkeypatch.setenv("MLPOLY_DATA", str(tmp_path / "shared"))
    given = tmp_path / "given"
    places = [given, given / "mnist", tmp_path / "shared" / "mnist", tmp_path / "cache" / "mlpoly" / "mnist"]
    for more, place in enumerate(places):
        write_folder(place, arrays(train=12 + more))
    for more, place in enumerate(places):
        assert len(load_images("mnist", given).train) == 12 + more
        (place / f"{NAMES[2]}.gz").unlink()  # incomplete: passed over
    with pytest.raises(FileNotFoundError) as caught:
        load_images("mnist", given)
    message = str(caught.value)
    for text in (*map(str, places), f"without {NAMES[2]}", "mlpoly data download mnist", "--data-dir", "MLPOLY_DATA"):
        assert text in message
    with pytest.raises(FileNotFoundError, match=rf"holds no {NAMES[2]} \(plain or \.gz\)"):
        load_images(given)


@pytest.mark.parametrize("name", ["mnsit", "", "no/such/folder", "missing.npz"])
def test_unknown_name(name):
    with pytest.raises(ValueError, match="is not a data set") as caught:
        load_images(name)
    assert all(known in str(caught.value) for known in DATASETS)


@settings(max_examples=60)
@given(place=st.integers(0, 10_000), new=st.integers(0, 255), cut=st.booleans(), packed=st.booleans())
def test_a_damaged_idx_file_is_refused_or_has_the_size_it_promises(tmp_path_factory, place, new, cut, packed):
    values = np.arange(24).reshape(2, 3, 4)
    content = gzip.compress(idx(values), mtime=0) if packed else idx(values)
    place %= len(content)
    path = tmp_path_factory.mktemp("idx") / ("a.gz" if packed else "a")
    path.write_bytes(content[:place] if cut else content[:place] + bytes([new]) + content[place + 1 :])
    try:
        assert read_idx(path).size == 24 and not cut
    except FileFormatError as error:
        assert "fetch it again" in str(error)


@pytest.mark.parametrize("damage", ["cut", "npy", "empty", "text"])
def test_broken_npz(tmp_path, damage):
    path = tmp_path / "mine.npz"
    np.savez_compressed(path, **dict(zip(KERAS, arrays(), strict=True)))
    content = path.read_bytes()
    if damage == "npy":
        with path.open("wb") as file:
            np.save(file, X)
    else:
        path.write_bytes({"cut": content[:-30], "empty": b"", "text": b"hello"}[damage])
    with pytest.raises(FileFormatError, match=r"mine\.npz is not a whole \.npz file"):
        load_images(path)


X, Y, TEST, TEST_Y = arrays()
NAN = np.where(np.arange(12)[:, None, None] == 3, np.nan, X)

MISFITS = {
    "one label short": ((X, Y[1:], TEST, TEST_Y), r"y_train of .* holds 11 labels for 12 images in x_train"),
    "labels are floats": ((X, Y / 2, TEST, TEST_Y), "y_train of .* type float64; labels are integers"),
    "labels are one-hot": ((X, np.eye(3, dtype=int)[Y], TEST, TEST_Y), r"y_train of .* shape \(12, 3\)"),
    "one class": ((X, 0 * Y + 4, TEST, TEST_Y), "y_train of .* the class 4 alone; at least two"),
    "a class in the test alone": ((X, Y, TEST, TEST_Y + 1), r"y_test of .* no training image: \[3\]"),
    "images differ in shape": ((X, Y, TEST[:, 1:], TEST_Y), r"x_test of .* shape \(3, 3\), but x_train of .* \(4, 3\)"),
    "colours": ((X[..., None], Y, TEST[..., None], TEST_Y), r"x_train of .* shape \(12, 4, 3, 1\)"),
    "pixels are integers": ((X.astype(int), Y, TEST, TEST_Y), "x_train of .* type int64; pixels are uint8 or floats"),
    "pixels are not finite": ((NAN, Y, TEST, TEST_Y), "x_train of .* NaN or infinite"),
    "pickled": ((X.astype(object), Y, TEST, TEST_Y), r"mine\.npz is not a whole .*numpy\.savez"),
}


def test_a_misfit_names_its_file_or_key(tmp_path):
    folder = write_folder(tmp_path / "mine", (X, Y[1:], TEST, TEST_Y))
    with pytest.raises(FileFormatError, match=rf"{NAMES[1]}\.gz holds 11 labels for 12 images in .*{NAMES[0]}"):
        load_images(folder)
    path = folder / f"{NAMES[2]}.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(FileFormatError, match=NAMES[2]):
        load_images(folder)
    np.savez(tmp_path / "some.npz", x_train=X, y_train=Y, test=TEST)
    message = r"some\.npz holds x_train, y_train, test, but .* x_test, y_test or train"
    with pytest.raises(FileFormatError, match=message):
        load_images(tmp_path / "some.npz")


@pytest.mark.parametrize("case", MISFITS)
def test_misfits(tmp_path, case):
    parts, message = MISFITS[case]
    with pytest.raises(FileFormatError, match=message):
        load_images(write_npz(tmp_path / "mine.npz", parts))
