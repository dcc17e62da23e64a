"""Files that are whole or not there: what is written comes back, and what goes wrong leaves nothing behind."""

import csv
import math
import os
import secrets

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlpoly.errors import FileFormatError
from mlpoly.files import (
    make_folder,
    read_json,
    read_tensors,
    replacing,
    write_csv,
    write_json,
    write_tensors,
    write_text,
)

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([1, -2], dtype=np.int64), "c": np.float32(2.5).reshape(())}
WRITERS = {
    "text": lambda path: write_text(path, "text"),
    "json": lambda path: write_json(path, {"a": 1}),
    "csv": lambda path: write_csv(path, [{"a": 1}]),
    "tensors": lambda path: write_tensors(path, ARRAYS, {"a": 1}),
}


@pytest.fixture(params=WRITERS)
def write(request):
    return WRITERS[request.param]


def test_tables_have_all_columns_of_all_rows(tmp_path):
    write_csv(tmp_path / "a.csv", [{"a": 1, "b": "x, y"}, {"a": float("nan"), "c": "a\nb"}])
    assert (tmp_path / "a.csv").read_bytes() == b'a,b,c\n1,"x, y",\nnan,,"a\nb"\n'


def test_text_and_json(tmp_path):
    write_text(tmp_path / "a.txt", "Größe: 3 × 4\n")
    assert (tmp_path / "a.txt").read_bytes() == "Größe: 3 × 4\n".encode()
    content = {"a": [1, 0.1, None, True, "ü"], "b": {"c": []}}
    write_json(tmp_path / "a.json", content)
    assert read_json(tmp_path / "a.json") == content
    assert (tmp_path / "a.json").read_text().endswith("\n")


def test_tensors(tmp_path):
    header = {"format": "ours", "n": [1, 2.5, None]}
    written = ARRAYS | {"turned": ARRAYS["a"].T, "part": ARRAYS["a"][:, ::2]}
    write_tensors(tmp_path / "a", written, header)
    found, arrays = read_tensors(tmp_path / "a")
    assert found == header and arrays.keys() == written.keys()
    for name, a in written.items():
        np.testing.assert_array_equal(arrays[name], a, strict=True)  # shape and dtype too, also of a single number
    write_tensors(tmp_path / "a", {}, header)
    assert read_tensors(tmp_path / "a") == (header, {})


@pytest.mark.parametrize(
    "metadata", [None, {"other": "x"}, *({"mlpoly": text} for text in ("{broken", "[1]", "[" * 100_000, "1" * 5000))]
)
def test_header_that_is_not_ours(tmp_path, metadata):
    safetensors.numpy.save_file({"a": ARRAYS["a"]}, tmp_path / "a", metadata=metadata)
    header, arrays = read_tensors(tmp_path / "a")
    assert header is None
    np.testing.assert_array_equal(arrays["a"], ARRAYS["a"])


def test_file_is_replaced(write, tmp_path):
    (tmp_path / "file").write_text("an older and much longer content " * 100)
    os.link(tmp_path / "file", tmp_path / "old")
    write(tmp_path / "file")
    once = (tmp_path / "file").read_bytes()
    assert b"older" not in once
    assert b"older" in (tmp_path / "old").read_bytes()  # it takes its place, and does not write into it
    write(str(tmp_path / "file"))
    assert (tmp_path / "file").read_bytes() == once
    assert {*os.listdir(tmp_path)} == {"file", "old"}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("before", [{}, {"file": "before"}])
def test_exception_in_the_middle(tmp_path, error, before):
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(error), replacing(tmp_path / "file") as scratch:
        scratch.write_text("half of it")
        assert scratch.parent == tmp_path
        raise error
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_full_disk(tmp_path):
    with pytest.raises(OSError, match=r"file could not be written \(No space left.*check free space"):  # noqa: SIM117
        with replacing(tmp_path / "file") as scratch:
            scratch.write_text("half of it")
            raise OSError(28, "No space left on device")
    assert os.listdir(tmp_path) == []


def test_what_json_cannot_express(tmp_path):
    write_json(tmp_path / "file", {"a": 1.0})
    for number in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="JSON compliant"):
            write_json(tmp_path / "file", {"a": number})
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_tensors(tmp_path / "file", ARRAYS, {"a": object()})
    assert os.listdir(tmp_path) == ["file"]
    assert read_json(tmp_path / "file") == {"a": 1.0}


def test_folder_that_is_missing(write, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the folder .*missing does not exist; create it before saving"):
        write(tmp_path / "missing" / "file")


def test_places_that_cannot_be_written(write, tmp_path):
    (tmp_path / "file").mkdir()
    for name in ("file", "x" * 256):
        with pytest.raises(OSError, match=r"could not be written .*permissions"):
            write(tmp_path / name)
    assert os.listdir(tmp_path) == ["file"]


@settings(max_examples=40)
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7), cut=st.booleans())
def test_damaged_tensors_are_refused_or_changed_numbers(tmp_path_factory, place, bit, cut):
    path = tmp_path_factory.mktemp("damaged") / "a.safetensors"
    write_tensors(path, ARRAYS, {"a": 1})
    content = bytearray(path.read_bytes())
    place %= len(content)
    content[place] ^= 1 << bit
    path.write_bytes(content[:place] if cut else content)
    try:
        header, arrays = read_tensors(path)
        assert not cut and (header is None or isinstance(header, dict)) and len(arrays) == 3
    except FileFormatError as error:
        assert "a.safetensors is not a readable" in str(error) or "unknown to NumPy" in str(error)


def test_tensors_that_are_none(tmp_path):
    (tmp_path / "text").write_text("not at all " * 10)
    for name in ("text", "missing", "."):
        with pytest.raises(FileFormatError, match="not a readable safetensors file"):
            read_tensors(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"\xff\xfe\x00", b"[" * 100_000, b"1" * 5000])
def test_damaged_json(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"a.json is not a readable JSON file .*truncated"):
        read_json(tmp_path / "a.json")
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "missing.json")


def test_make_folder(tmp_path):
    for _ in range(2):
        assert make_folder(str(tmp_path / "a" / "b")) == tmp_path / "a" / "b"
        assert os.listdir(tmp_path / "a" / "b") == []  # the probe is gone


def test_folder_below_a_file(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for below in ("file", "file/a", "file/a/b"):
        with pytest.raises(OSError, match=r"cannot be written to .*; choose another"):
            make_folder(tmp_path / below)


@pytest.mark.skipif(os.name != "posix", reason="links need rights elsewhere")
def test_links_in_the_folder_are_not_followed(write, tmp_path, monkeypatch):
    """The name of the temporary file cannot be guessed; and if it could, a link of that name would be refused."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / f".file.{os.getpid()}.tmp").symlink_to(victim)  # the process's number is no secret
    write(folder / "file")
    monkeypatch.setattr(secrets, "token_hex", lambda size: "guessed")
    (folder / ".mlpoly-guessed.tmp").symlink_to(victim)
    with pytest.raises(OSError, match="could not be written"):
        write(folder / "file")
    assert victim.read_text() == "precious"


def test_text_that_utf8_has_no_bytes_for(tmp_path):
    """Vocabularies hold halves of surrogate pairs; they must not cost the work that was done."""
    write_text(tmp_path / "a.txt", "a\ud800b")
    assert (tmp_path / "a.txt").read_bytes() == b"a\\ud800b"
    write_json(tmp_path / "a.json", {"token": "a\ud800b"})
    assert read_json(tmp_path / "a.json") == {"token": "a\ud800b"}
    write_csv(tmp_path / "a.csv", [{"token": "a\ud800b"}])
    assert (tmp_path / "a.csv").read_bytes() == b"token\na\\ud800b\n"
    write_tensors(tmp_path / "a", ARRAYS, {"token": "a\ud800b"})
    assert read_tensors(tmp_path / "a")[0] == {"token": "a\ud800b"}


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_text_is_no_formula_in_a_spreadsheet(tmp_path, start):
    text = f'{start}HYPERLINK("http://example.org","x")'
    write_csv(tmp_path / "a.csv", [{"text": text, "later": f"a{start}", "number": -1.5, "whole": -2}])
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row == {"text": f"'{text}", "later": f"a{start}", "number": "-1.5", "whole": "-2"}


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_numbers_that_numpy_has_no_type_for(tmp_path, kind):
    safetensors.torch.save_file({"a": torch.zeros(2).to(getattr(torch, kind))}, tmp_path / "a")
    with pytest.raises(FileFormatError, match="holds numbers of a type unknown to NumPy"):
        read_tensors(tmp_path / "a")
