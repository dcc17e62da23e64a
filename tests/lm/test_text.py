"""Text into batches of token ids, and texts of tokens."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.tokenizers import Letters, word_tokenizer

import mlpoly as mp
from mlpoly.lm import split_text, token_batches
from mlpoly.lm.text.tokens import vocabulary


def flat(batches):
    return "".join(chr(i) for batch in batches for i in batch.flatten().tolist())


def test_text_is_cut_into_equal_sequences(tmp_path):
    text = "".join(f"line {i}\n" for i in range(50))
    batches = token_batches(Letters(), text, length=16, batch_size=3)
    shapes = [tuple(b.shape) for b in batches]
    whole = len(text) // 16
    assert shapes == [(3, 16)] * (whole // 3) + ([(whole % 3, 16)] if whole % 3 else [])
    assert all(b.dtype == torch.int64 for b in batches)
    assert flat(batches) == flat(batches) == text[: 16 * whole]
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    for source in (file, [file], [text]):
        assert flat(token_batches(Letters(), source, length=16)) == text[: 16 * whole]
    assert flat(token_batches(Letters(), [file, text], length=16)) == (2 * text)[: 2 * len(text) // 16 * 16]


def test_text_is_read_in_chunks(monkeypatch, tmp_path):
    monkeypatch.setattr("mlpoly.lm.text.token_batches._CHUNK", 30)
    text = "".join(f"äöü line {i}\n" for i in range(50))
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    for source in (text, tmp_path / "a.txt"):
        tokenizer = Letters()
        assert flat(token_batches(tokenizer, source, length=10, bos=False)) == text[: len(text) // 10 * 10]
        assert len(tokenizer.texts) > 10
        assert all(chunk.endswith("\n") for chunk in tokenizer.texts)


def test_special_tokens_are_put_around_every_sequence():
    tokenizer = Letters(before=(1,), after=(2, 3))
    rows = torch.cat(list(token_batches(tokenizer, "abcdefgh", length=6, batch_size=2)))
    assert rows.tolist() == [[1, *map(ord, "abc"), 2, 3], [1, *map(ord, "def"), 2, 3]]
    assert flat(token_batches(tokenizer, "abcdefgh", length=4, bos=False)) == "abcdefgh"
    with pytest.raises(ValueError, match=r"length is 3, but the tokenizer puts 3 tokens around.*bos=False"):
        list(token_batches(tokenizer, "abcdefgh", length=3))


@pytest.mark.parametrize("bos", [True, False])
def test_tokenizers_of_transformers(bos):
    tokenizer = word_tokenizer(bos)
    rows = torch.cat(list(token_batches(tokenizer, "to be or not to be", length=4)))
    assert rows.tolist() == ([[1, 2, 3, 4], [1, 5, 2, 3]] if bos else [[2, 3, 4, 5]])


def test_budget_and_order():
    text = "".join(chr(97 + i) * 4 for i in range(20))
    assert flat(token_batches(Letters(), text, length=4, batch_size=3, tokens=17)) == text[:20]
    one, again, other = (flat(token_batches(Letters(), text, length=4, seed=s)) for s in (1, 1, 2))
    assert one == again != other
    assert sorted(one) == sorted(other) == sorted(text) and one != text


def test_text_shorter_than_a_sequence_is_one():
    assert [b.tolist() for b in token_batches(Letters(before=(1,)), "ab", length=8)] == [[[1, 97, 98]]]


def test_arrays_of_tokens(tmp_path):
    ids = np.arange(30, dtype=np.uint16).reshape(5, 6)
    np.save(tmp_path / "ids.npy", ids)
    batches = list(token_batches(None, tmp_path / "ids.npy", batch_size=2))
    assert [tuple(b.shape) for b in batches] == [(2, 6), (2, 6), (1, 6)]
    assert torch.cat(batches).tolist() == ids.tolist()
    assert torch.cat(list(token_batches(None, tmp_path / "ids.npy", length=4))).tolist() == ids[:, :4].tolist()
    np.save(tmp_path / "stream.npy", ids.ravel())
    assert (
        torch.cat(list(token_batches(None, tmp_path / "stream.npy", length=10))).tolist() == ids.reshape(3, 10).tolist()
    )
    # Rows of different lengths stand in different batches.
    np.save(tmp_path / "short.npy", ids[:2, :3])
    both = token_batches(None, [tmp_path / "ids.npy", tmp_path / "short.npy"], batch_size=4)
    assert [tuple(b.shape) for b in both] == [(4, 6), (1, 6), (2, 3)]


def test_text_that_cannot_be_read(tmp_path):
    (tmp_path / "empty.txt").touch()
    for empty in (tmp_path / "empty.txt", ""):
        with pytest.raises(ValueError, match="it is empty"):
            list(token_batches(Letters(), empty))
    (tmp_path / "latin.txt").write_bytes("äöü".encode("latin-1"))
    with pytest.raises(mp.FileFormatError, match=r"latin\.txt is not text in UTF-8 .* at byte 0"):
        list(token_batches(Letters(), tmp_path / "latin.txt"))
    for missing in (tmp_path / "missing", tmp_path / "missing.txt"):
        with pytest.raises(FileNotFoundError, match="no file"):
            token_batches(Letters(), missing)
    with pytest.raises(ValueError, match=r"the text 'some words', which needs a tokenizer"):
        token_batches(None, "some words")
    with pytest.raises(ValueError, match="empty list"):
        token_batches(Letters(), [])
    with pytest.raises(ValueError, match="length must be at least 1"):
        token_batches(Letters(), "text", length=0)
    np.save(tmp_path / "floats.npy", np.zeros((2, 2)))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(mp.FileFormatError, match=r"integer token ids \(n, t\), got float64 of shape \(2, 2\)"):
        list(token_batches(None, tmp_path / "floats.npy"))
    with pytest.raises(mp.FileFormatError, match="without pickles"):
        list(token_batches(None, tmp_path / "objects.npy"))
    np.save(tmp_path / "damaged.npy", np.zeros((2, 2), np.int64))
    content = (tmp_path / "damaged.npy").read_bytes().replace(b"(2, 2)", b"(99999999999999, 2)")
    (tmp_path / "damaged.npy").write_bytes(content.replace(b" " * 13 + b"\n", b"\n"))  # the header is as long as before
    with pytest.raises(mp.FileFormatError, match=r"damaged.npy is not a readable"):
        list(token_batches(None, tmp_path / "damaged.npy"))


def test_a_string_is_text_and_a_path_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("words", "two words"):
        Path(name).write_text("the text of a file", encoding="utf-8")
    assert flat(token_batches(Letters(), Path("words"), length=4)) == "the text of a fi"
    for name in ("words", "two words", "corpus.jsonl", "Folder/Corpus.TXT", str(tmp_path / "words")):
        for text in (name, ["some text", name]):
            with pytest.raises(ValueError, match=rf"text is the name of a file, .*pass pathlib\.Path\('{name}'\)"):
                token_batches(Letters(), text)
    for text in ("word", "words\n", "see corpus.jsonl", "a\0b", "x" * 5000, "files.txt\nmore.txt"):
        assert flat(token_batches(Letters(), text, length=1)) == text


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5, 0.9, 0.99])
def test_split_text_at_a_line_end(fraction):
    text = "".join(f"{i}: {'x' * (i % 13)}\n" for i in range(100))
    first, second = split_text(text, fraction)
    assert first + second == text
    assert first.endswith("\n") and second
    assert abs(len(second) / len(text) - fraction) < 18 / len(text)  # one line


def test_split_text_of_few_lines():
    assert split_text("one\ntwo", 0.01) == ("one\n", "two")
    assert split_text("one\ntwo\n", 0.99) == ("one\n", "two\n")
    for text in ("", "one line", "one line\n"):
        with pytest.raises(ValueError, match="no line end to cut at"):
            split_text(text)
    for bad in (0, 1, -0.1, True, "0.1"):
        with pytest.raises(ValueError, match="held_out must be a fraction between 0 and 1"):
            split_text("one\ntwo\n", bad)


@pytest.mark.parametrize("content", [["a", "b", "ä"], {"0": "a", "1": "b", "2": "ä"}, {"b": 1, "ä": 2, "a": 0}])
def test_vocabulary(content, tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps(content), encoding="utf-8")
    assert vocabulary(tmp_path) == vocabulary(tmp_path / "vocab.json") == ["a", "b", "ä"]


BROKEN = ["{", "3", "[1, 2]", "{}", '{"a": "b"}', '{"a": 1000000000000}', "[" * 100_000, '{"a": 1%s}' % ("0" * 5000)]


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_vocabulary(content, tmp_path):
    (tmp_path / "vocab.json").write_text(content)
    with pytest.raises(mp.FileFormatError, match="is not a vocabulary"):
        vocabulary(tmp_path)
    with pytest.raises(FileNotFoundError, match="no vocabulary"):
        vocabulary(tmp_path / "missing.json")
