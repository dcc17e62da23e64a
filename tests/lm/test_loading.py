"""Models from disk: tiny checkpoints written here, stories260K and SmolLM2 where they are at hand."""

import json
import sys

import numpy as np
import pytest
import torch
import transformers
from support.tiny_models import bert, llama
from support.tokenizers import word_tokenizer

from mlpoly.lm import collect, example_text, load_model, token_batches


@pytest.fixture
def folder(tmp_path):
    llama().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def test_folder_with_safetensors(folder):
    model, tokenizer = load_model(folder)
    assert type(model).__name__ == "LlamaForCausalLM" and not model.training
    assert tokenizer is None
    assert model.dtype == torch.float32
    assert torch.equal(model.lm_head.weight, llama().lm_head.weight)
    assert load_model(str(folder), dtype="bfloat16")[0].dtype == torch.bfloat16
    assert load_model(folder, dtype=torch.float64)[0].dtype == torch.float64
    # Provenance names the folder, but not where on this machine it is.
    assert collect(model, [torch.ones(1, 2, dtype=torch.long)]).provenance["model"] == "tiny"


def test_folder_with_a_tokenizer(folder):
    word_tokenizer(bos=True).save_pretrained(folder)
    _, tokenizer = load_model(folder)
    assert tokenizer.encode("to be") == [1, 2, 3]


def test_class_of_the_checkpoint_is_used(tmp_path):
    bert().save_pretrained(tmp_path)
    model, _ = load_model(tmp_path)
    assert type(model).__name__ == "BertForMaskedLM"


def test_pickles_are_refused(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"no weights in safetensors\. Get a safetensors version"):
        load_model(folder)
    torch.save(llama().state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"only pickles \(pytorch_model\.bin\), which can run code"):
        load_model(folder)


def test_code_in_a_checkpoint_is_not_run(folder):
    config = json.loads((folder / "config.json").read_text())
    config |= {"auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}, "model_type": "evil"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('the code was run')")
    with pytest.raises(ValueError, match=r"brings model code of its own.*trust_remote_code=True"):
        load_model(folder)


def test_damaged_tokenizer(folder):
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"the tokenizer in .* could not be loaded"):
        load_model(folder)


def test_damaged_checkpoints(folder):
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


def test_a_checkpoint_without_its_head(tmp_path):
    """As sentence encoders are published: the configuration names the masked model that they were trained as."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    body = transformers.BertModel(transformers.BertConfig(vocab_size=20, **sizes), add_pooling_layer=False).eval()
    body.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"architectures": ["BertForMaskedLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.warns(UserWarning, match="no weights for the head of BertForMaskedLM: the BertModel alone is taken"):
        model, tokenizer = load_model(tmp_path)
    assert tokenizer is None
    ids = torch.arange(20).reshape(2, 10)
    torch.testing.assert_close(model(ids).last_hidden_state, body(ids).last_hidden_state, rtol=0, atol=0)


def test_names_that_lead_nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        FileNotFoundError, match="'nobody/nothing' is not a local folder, and the model could not be fetched"
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
def test_missing_packages_for_gguf(package, tmp_path, monkeypatch):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, package, None)  # makes the import fail
    with pytest.raises(ImportError, match=rf"GGUF file model\.gguf needs {package}.*'mlpoly\[transformers\]'"):
        load_model(tmp_path / "model.gguf")


def write_gguf(path, begins):
    """A Llama of one block with random weights and five tokens, as llama.cpp writes it."""
    gguf = pytest.importorskip("gguf")
    d, h, words = 16, 24, ["<s>", "a", "b", "c", "ab"]
    writer = gguf.GGUFWriter(path, "llama")
    sizes = {"block_count": 1, "context_length": 64, "embedding_length": d, "feed_forward_length": h, "head_count": 2}
    for name, value in (sizes | {"head_count_kv": 2, "vocab_size": len(words), "layer_norm_rms_eps": 1e-5}).items():
        getattr(writer, f"add_{name}")(value)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    if begins is not None:
        writer.add_add_bos_token(begins)
    shapes = {"token_embd": (len(words), d), "output": (len(words), d), "output_norm": (d,)}
    inner = {"attn_norm": (d,), "ffn_norm": (d,), "ffn_gate": (h, d), "ffn_up": (h, d), "ffn_down": (d, h)}
    inner |= {f"attn_{name}": (d, d) for name in ("q", "k", "v", "output")}
    shapes |= {f"blk.0.{name}": shape for name, shape in inner.items()}
    draw = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", draw.standard_normal(shape).astype(np.float32))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()


@pytest.mark.parametrize("begins", [True, False, None])
def test_a_gguf_that_says_so_begins_every_sequence_with_its_token(begins, tmp_path):
    pytest.importorskip("accelerate")
    write_gguf(tmp_path / "tiny.gguf", begins)
    model, tokenizer = load_model(tmp_path / "tiny.gguf")
    first = [0] if begins else []
    assert tokenizer.encode("abc") == [*first, 4, 3]
    rows = torch.cat(list(token_batches(tokenizer, "ab" * 30, length=6)))
    assert rows.shape[0] >= 5 and (rows[:, 0] == (0 if begins else 4)).all() and (rows[:, 1:] == 4).all()
    assert type(model).__name__ == "LlamaForCausalLM"


def test_a_tokenizer_that_ignores_what_the_gguf_says_is_warned_of(tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    write_gguf(tmp_path / "tiny.gguf", True)
    real = transformers.AutoTokenizer.from_pretrained

    def ignores(*args, add_bos_token, **options):
        return real(*args, **options)

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", ignores)
    with pytest.warns(UserWarning, match=r"tiny\.gguf says that a text begins .* adds none: losses will be too high"):
        load_model(tmp_path / "tiny.gguf")


def test_the_shipped_model():
    model, tokenizer = load_model()
    batches = token_batches(tokenizer, example_text(1_000), length=64, batch_size=16, tokens=4096)
    moments = collect(model, batches, "model.layers.*.mlp", groups="first")
    assert len(moments.names) == 3 and moments.tokens == 4096
    assert {n: p.count for n, p in moments.groups(moments.names[0]).items()} == {0: 4032, 1: 64}
    # The first token is always <s>: in the first block, all inputs of that component are one point.
    assert float(moments.groups(moments.names[0])[1].scatter.abs().max()) < 64e-12
    assert len(tokenizer) == model.config.vocab_size
    assert tokenizer.decode(next(iter(batches))[0, 1:]) in " ".join(example_text(1_000).split())


@pytest.mark.parametrize("name", ["/nowhere/model", "./nowhere", "~/nowhere", "a/b/c"])
def test_a_path_that_is_not_there_is_no_hub_name(name):
    with pytest.raises(FileNotFoundError, match=r"no folder .* with a model"):
        load_model(name)
