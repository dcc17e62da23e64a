"""Moments of block inputs: tiny models with random weights, against NumPy on the tensors that plain hooks record."""

import numpy as np
import pytest
import torch
import transformers
from support import tiny_models
from support.backends import assert_close
from support.mistakes import assert_explained, mistakes
from support.strong_models import strong
from support.tiny_models import D, Lookup, assert_same_moments, bert, gpt2, llama, t5, token_ids, vit, wav2vec2, whisper
from torch import nn

import mlpoly as mp
from mlpoly.files import read_tensors, write_tensors
from mlpoly.importers import find_blocks
from mlpoly.lm import Moments, NormOutliers, collect
from mlpoly.lm.moments import row_sums
from mlpoly.lm.moments.row_sums import RowSums


def recorded(model, batches):
    """Inputs (n, d) of every block."""
    return {name: x.double().numpy() for name, x in tiny_models.recorded(model, batches).items()}


def assert_moments(gaussian, rows, tolerance=1e-12):
    assert_close(gaussian.mean, rows.mean(0), tolerance)
    assert_close(gaussian.cov, np.cov(rows, rowvar=False, bias=True), tolerance)


def hooks(model):
    return sum(len(module._forward_pre_hooks) for module in model.modules())


@pytest.mark.parametrize("make", [llama, gpt2, bert])
def test_moments_are_those_of_the_hooked_inputs(make):
    model, batches = make(), token_ids(4)
    found = collect(model, batches)
    expected = recorded(model, batches)
    assert found.names == list(expected) and len(found.names) == 2
    assert found.tokens == 4 * 21
    for name, rows in expected.items():
        assert_moments(found.gaussian(name), rows)
        part = found.groups(name)[0]
        assert part.count == len(rows)


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def ones(*shape):
    return torch.ones(shape, dtype=torch.long)


WITHOUT_TOKENS = {
    "images": (vit, lambda i: {"pixel_values": noise(3, 3, 8, 8, seed=i)}),
    "sounds": (wav2vec2, lambda i: {"input_values": noise(2, 80, seed=i)}),
    "unpadded": (wav2vec2, lambda i: {"input_values": noise(2, 80, seed=i), "attention_mask": torch.ones(2, 80)}),
    "spectrograms": (whisper, lambda i: {"input_features": noise(2, 8, 20, seed=i), "decoder_input_ids": ids_of(i)}),
    "embeddings": (llama, lambda i: {"inputs_embeds": noise(2, 5, D, seed=i)}),
}


def ids_of(seed):
    return token_ids(1, b=2, t=5, seed=seed)[0]


@pytest.mark.parametrize("kind", WITHOUT_TOKENS)
def test_models_whose_inputs_are_no_token_ids(kind):
    make, batch = WITHOUT_TOKENS[kind]
    model, batches = make(), [batch(i) for i in range(20)]
    moments, rows = collect(model, batches, groups="first"), recorded(model, batches)
    assert moments.names == list(rows)
    for name, x in rows.items():
        assert_moments(moments.gaussian(name), x)
        samples = sum(len(next(iter(b.values()))) for b in batches)
        assert moments.groups(name)[1].count == samples  # the first position of each, a class token in ViT
    assert moments.tokens == len(rows[moments.names[0]])
    assert collect(model, batches[:-1]).provenance["data"] != moments.provenance["data"]


def test_an_encoder_of_sounds_runs_without_its_decoder():
    model, batches = whisper(), [{"input_features": noise(2, 8, 20, seed=i)} for i in range(4)]
    whole = [b | {"decoder_input_ids": ids_of(0)} for b in batches]
    name = "model.encoder.layers.0"
    assert_moments(collect(model, batches, name).gaussian(name), recorded(model, whole)[name])


def test_dtypes_of_distributions():
    moments, weight, name = collect(llama(), token_ids(4)), torch.ones(2).bfloat16(), "model.layers.0.mlp"
    for like, dtype in ((weight, torch.float32), (None, torch.float64)):
        assert moments.gaussian(name, like=like).cov.dtype == moments.mixture(name, like=like).means.dtype == dtype


@pytest.mark.parametrize("given", ["float32", "float64"])
@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("enough", [1, 64, 4096])
def test_sums_do_not_depend_on_how_rows_come(precision, enough, given, monkeypatch):
    monkeypatch.setattr(row_sums, "_ENOUGH", enough)
    monkeypatch.setattr(row_sums, "_AT_MOST", 2 * enough)
    rng = np.random.default_rng(0)
    # A mean of 1000 spreads: without the shift, float32 products would keep no digit of the covariance.
    wide = (1000 + rng.normal(size=(400, 5)) @ rng.normal(size=(5, 5))).astype(given)
    sums = RowSums(precision)
    for piece in np.array_split(wide, [3, 4, 100, 130, 300]):
        sums.add(torch.from_numpy(piece))
    result, wide = sums.result(), wide.astype(np.float64)
    assert result.count == 400
    assert_close(result.mean, wide.mean(0), 1e-12 if precision == "double" else 1e-9)
    covariance = np.cov(wide, rowvar=False, bias=True)
    assert_close(result.scatter / 400, covariance, 1e-12 if precision == "double" else 1e-5)
    assert torch.equal(result.scatter, result.scatter.T)


def test_sums_keep_a_copy_of_what_waits_and_are_exact_under_autocast():
    rows = noise(500, 8)
    plain, cast = RowSums("single"), RowSums("single")
    plain.add(rows)
    before, expected = torch.backends.cuda.matmul.fp32_precision, plain.result()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast.add(rows)
        rows += 5
        result = cast.result()
    assert torch.equal(result.mean, expected.mean) and torch.equal(result.scatter, expected.scatter)
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_half_precision_model():
    model, batches = llama().to(torch.bfloat16), token_ids(3)
    found = collect(model, batches)
    for name, rows in recorded(model, batches).items():
        assert_moments(found.gaussian(name), rows)
    assert found.provenance["dtype"] == "bfloat16"


def test_padding_is_left_out():
    model = llama()
    ids = token_ids(1)[0]
    attention = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [0, 0] + [1] * 5])
    batch = {"input_ids": ids, "attention_mask": attention, "labels": ids, "token_type_ids": torch.zeros_like(ids)}
    found = collect(model, [batch], groups="first")
    kept = attention.flatten().bool().numpy()
    first = np.zeros(21, bool)
    first[[0, 7, 16]] = True  # of the third sequence, the first token behind the padding
    assert found.tokens == 16
    rows = recorded(model, [{"input_ids": ids, "attention_mask": attention}])
    for name, all_rows in rows.items():
        parts = found.groups(name)
        assert_close(parts[1].mean, all_rows[first].mean(0))
        assert_close(parts[0].mean, all_rows[kept & ~first].mean(0))
        assert (parts[0].count, parts[1].count) == (13, 3)
        assert_moments(found.gaussian(name), all_rows[kept])


def test_fingerprint_depends_on_sequences_alone():
    ids = torch.cat(token_ids(2))
    whole, parts = (collect(gpt2(), b).provenance["data"] for b in ([ids], list(ids.split(2))))
    padded = {"input_ids": nn.functional.pad(ids, (0, 2)), "attention_mask": nn.functional.pad(ids * 0 + 1, (0, 2))}
    lists = [transformers.BatchEncoding({"input_ids": ids.tolist()})]
    for same in ([padded], lists, [ids.numpy()]):
        assert whole == parts == collect(gpt2(), same).provenance["data"]
    assert whole != collect(gpt2(), [ids.flip(0)]).provenance["data"]
    assert whole != collect(gpt2(), [ids.reshape(3, 14)]).provenance["data"]


@pytest.mark.parametrize("budget", [1, 21, 22, 50])
def test_budget_is_exact(budget):
    model, batches = gpt2(), token_ids(5)
    read = []

    def watched():
        for number, batch in enumerate(batches):
            read.append(number)
            yield batch

    found = collect(model, watched(), tokens=budget)
    assert found.tokens == budget
    assert read == list(range(-(-budget // 21)))  # not one batch more than needed
    for name, rows in recorded(model, batches).items():
        assert found.groups(name)[0].count == budget
        assert_moments(found.gaussian(name), rows[:budget])


def test_mask_of_the_user():
    model, batches = gpt2(), token_ids(2)
    found = collect(model, batches, mask=lambda ids: ids > 10)
    kept = np.concatenate([b.flatten().numpy() > 10 for b in batches])
    for name, rows in recorded(model, batches).items():
        assert_moments(found.gaussian(name), rows[kept])
    # A batch without a token that counts is passed over.
    assert collect(model, [ones(2, 3), *batches], mask=lambda ids: ids > 10).tokens == kept.sum()


def test_the_first_token_in_a_group_of_its_own():
    model, batches = llama(), token_ids(3)
    found = collect(model, batches, groups="first")
    first = np.tile(np.arange(7) == 0, 9)
    for name, rows in recorded(model, batches).items():
        mixture = found.mixture(name)
        assert_close(mixture.weights, [54 / 63, 9 / 63])
        for part, chosen in zip(mixture.components, (~first, first), strict=True):
            assert_moments(part, rows[chosen])
        assert_moments(found.gaussian(name), rows)
        assert_close(mixture.covariance, found.gaussian(name).cov)


def test_norm_outliers_in_groups_of_their_own():
    table = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    table /= table.norm(dim=1, keepdim=True)
    lengths = torch.tensor([1.0, 1.1, 0.9, 1.0, 1.9, 0.6, 2.2, 5.0, 0.4, 0.1])
    model = Lookup(table * lengths[:, None])
    calm = torch.tensor([[0, 1, 2, 3, 0]])
    batches = [calm, torch.arange(10).reshape(2, 5)]
    found = collect(model, batches, groups="norm").groups("mlp")
    assert {n: p.count for n, p in found.items()} == {0: 11, 1: 2, 2: 2}
    wider = NormOutliers(3)
    moments = collect(model, batches, groups=wider)
    assert {n: p.count for n, p in moments.groups("mlp").items()} == {0: 13, 1: 1, 2: 1}
    assert moments.provenance["groups"]["kind"] == "norm 3"
    assert moments.provenance["groups"]["medians"]["mlp"] == pytest.approx(1.0)
    # The next model has lengths of its own.
    assert list(collect(Lookup(100 * table), batches, groups=wider).groups("mlp")) == [0]
    for bad in (1, 0.5, float("nan"), float("inf"), "2"):
        with pytest.raises(ValueError, match="factor must be a number above 1"):
            NormOutliers(bad)


def test_groups_of_the_user():
    model, batches = llama(), token_ids(2)
    seen = []

    def by_token(x, positions, tokens):
        seen.append((tuple(x.shape), positions.tolist(), tokens.tolist()))
        return tokens % 3 - 1

    found = collect(model, batches, groups=by_token)
    assert seen[0] == ((21, D), list(range(7)) * 3, batches[0].flatten().tolist())
    groups = torch.cat(batches).flatten().numpy() % 3 - 1
    for name, rows in recorded(model, batches).items():
        assert list(found.groups(name)) == [-1, 0, 1]
        for number, part in found.groups(name).items():
            assert_close(part.mean, rows[groups == number].mean(0))
    assert "by_token" in found.provenance["groups"]["kind"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_name_block_and_batch(value):
    model = Lookup(torch.ones(10, 4))
    model.embedding.weight.data[7, 2] = value
    batches = [torch.zeros(1, 3, dtype=torch.long), torch.tensor([[0, 7, 0]])]
    with pytest.raises(ValueError, match=r"'mlp' is NaN or infinite in batch 1\. .*bfloat16"):
        collect(model, batches)
    # In padding they do no harm.
    masked = {"input_ids": batches[1], "attention_mask": torch.tensor([[1, 0, 1]])}
    assert collect(model, [masked]).gaussian("mlp").mean.tolist() == [1.0] * 4
    assert hooks(model) == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, torch.OutOfMemoryError])
def test_hooks_and_modes_after_an_error(error):
    model = llama()
    model.train()
    model.model.layers[0].eval()
    before = [module.training for module in model.modules()]

    def batches():
        yield token_ids(1)[0]
        raise error("stop")

    with pytest.raises((error, MemoryError)):
        collect(model, batches())
    assert hooks(model) == 0
    assert [module.training for module in model.modules()] == before
    assert torch.is_grad_enabled()


def test_training_mode_is_off_inside_and_restored():
    model = llama(attention_dropout=0.5)
    model.train()
    modes = []
    model.model.layers[0].register_forward_hook(
        lambda module, args, output: modes.append((module.training, torch.is_grad_enabled()))
    )
    found = collect(model, token_ids(1))
    assert modes == [(False, False)]
    assert model.training and model.model.layers[0].training and torch.is_grad_enabled()
    assert_same_moments(found, collect(llama(), token_ids(1)))


FULL = r"out of memory.*smaller batches.*shorter sequences.*fewer blocks.*single"


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), MemoryError, FULL),
        (RuntimeError("HIP out of memory"), MemoryError, FULL),
        (RuntimeError("something else"), RuntimeError, r"^something else$"),
    ],
)
def test_full_memory_is_explained_and_other_errors_pass(error, kind, message):
    model = gpt2()

    def fail(module, args):
        raise error

    handle = model.transformer.h[1].mlp.register_forward_pre_hook(fail)
    with pytest.raises(kind, match=message):
        collect(model, token_ids(1))
    handle.remove()
    assert hooks(model) == 0


def test_head_and_cache_are_spared():
    model = llama()

    def never(module, args):
        raise AssertionError("the head was run")

    caches = []
    model.lm_head.register_forward_pre_hook(never)
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: caches.append(kwargs["use_cache"]), with_kwargs=True
    )
    collect(model, token_ids(2))
    assert caches == [False, False]


def of(make, batches, *blocks, **options):
    return lambda: collect(make(), batches, *blocks, **options)


@mistakes([
    ("nothing", of(gpt2, []), ValueError, "batches held no tokens"),
    ("a tensor", of(gpt2, ones(2, 3)), TypeError, "put one batch in a list"),
    ("two lengths", of(gpt2, [[[1, 2], [3]]]), TypeError, "all sequences of one length"),
    ("no ids", of(gpt2, [{"pixels": 1}]), ValueError, r"neither 'input_ids' .* only \['pixels'\]"),
    ("large ids", of(gpt2, [99 * ones(1, 3)]), ValueError, "ids from 99 to 99, but the model knows 0 to 31"),
    ("a short mask", of(gpt2, [{"input_ids": ones(1, 2), "attention_mask": ones(1, 3)}]), ValueError,
     r"attention_mask of batch 0 has shape \(1, 3\), expected that of input_ids, \(1, 2\)"),
    ("tokens", of(gpt2, token_ids(1), tokens=0), ValueError, "tokens must be at least 1"),
    ("mask of ids", of(gpt2, token_ids(1), mask=lambda ids: ids), ValueError, "one boolean per token"),
    ("a mask", of(gpt2, token_ids(1), mask=ones(3, 7)), TypeError, "mask must be a function"),
    ("groups of rows", of(gpt2, token_ids(1), groups=lambda x, p, t: x), ValueError,
     "expected one integer for each of the 21 inputs"),
    ("no groups", of(gpt2, token_ids(1), groups="last"), ValueError, "groups must be 'none', 'first'"),
    ("no patterns", of(llama, token_ids(1), []), ValueError, "blocks is empty"),
    ("images", of(vit, [{"pixel_values": noise(2, 3, 8, 8)}], tokens=5), ValueError,
     r"has no 'input_ids'.*tokens= and mask= do not apply"),
    ("labels", of(vit, [{"labels": torch.ones(2)}]), ValueError, "neither 'input_ids' nor another input"),
    ("padded sounds", of(wav2vec2, [
        {"input_values": noise(2, 80), "attention_mask": torch.arange(80).expand(2, -1) < 50}]), ValueError,
     r"attention_mask \(2, 80\), the model 38 positions.*pass samples without padding"),
])  # fmt: skip
def test_mistakes_are_explained(act, exception, patterns):
    assert_explained(act, exception, patterns)


def test_block_that_is_never_reached_or_sees_other_rows():
    model = Lookup(torch.ones(10, 4))
    model.spare = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 2))
    with pytest.raises(ValueError, match=r"'spare' was never reached.*blocks="):
        collect(model, [torch.zeros(1, 3, dtype=torch.long)])

    class Halved(Lookup):
        def forward(self, ids):
            return super().forward(ids[:, :2])

    with pytest.raises(ValueError, match=r"'mlp' was given 2 inputs in batch 0, which has 3 tokens \(1 x 3\)"):
        collect(Halved(torch.ones(10, 4)), [torch.zeros(1, 3, dtype=torch.long)])


@pytest.mark.parametrize("length", [7, 4])
def test_a_decoder_has_tokens_and_padding_of_its_own(length):
    """Of the same shape as the encoder's, which must not be taken for them, or of another."""
    model, ids = strong(t5()), token_ids(1)[0]
    mask = torch.ones_like(ids)
    mask[0, 4:] = 0
    decoder_ids = torch.arange(3 * length).reshape(3, length) % 31 + 1
    decoder_mask = torch.ones_like(decoder_ids)
    decoder_mask[2, 2:] = 0
    batch = {"input_ids": ids, "attention_mask": mask}
    batch |= {"decoder_input_ids": decoder_ids, "decoder_attention_mask": decoder_mask}
    blocks, seen = find_blocks(model), tiny_models.recorded(model, [batch])
    moments = collect(model, [batch])
    by_token = collect(model, [batch], groups=lambda x, positions, tokens: tokens)
    assert len(blocks) == 2
    other = collect(model, [batch | {"decoder_input_ids": decoder_ids.flip(1)}])
    assert other.provenance["data"] != moments.provenance["data"]
    for block, own_ids, own_mask in zip(blocks, (ids, decoder_ids), (mask, decoder_mask), strict=True):
        rows = seen[block.name][own_mask.flatten() != 0].double()
        torch.testing.assert_close(moments.gaussian(block.name).mean, rows.mean(0))
        torch.testing.assert_close(moments.gaussian(block.name).cov, torch.cov(rows.T, correction=0))
        assert set(by_token.groups(block.name)) == set(own_ids[own_mask != 0].tolist())
    assert collect(model, [batch], "encoder.*").tokens == int(mask.sum())
    assert collect(model, [ids], "encoder.*").tokens == 21
    with pytest.raises(ValueError, match=r"without tokens for its decoder.*'decoder_input_ids', or choose blocks of"):
        collect(model, [ids])


def test_save_and_load(tmp_path):
    moments = collect(llama(), token_ids(2), groups="first")
    file = moments.save(tmp_path / "one.safetensors")
    folder = moments.save(tmp_path / "new" / "folder")
    assert folder == tmp_path / "new" / "folder" / "moments.safetensors"
    for path in (file, folder, folder.parent):
        again = Moments.load(path)
        assert_same_moments(moments, again, 0)
        assert again.provenance == moments.provenance
        assert again.gaussian(again.names[0]).fingerprint == moments.gaussian(again.names[0]).fingerprint
    assert repr(again) == "Moments(LlamaForCausalLM, 2 blocks, 42 tokens, 2 groups)"


def test_files_that_hold_no_moments(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"make them with mlpoly.lm.collect"):
        Moments.load(tmp_path)
    file = collect(gpt2(), token_ids(1)).save(tmp_path)
    whole = file.read_bytes()
    for end in (0, 20, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:end])
        with pytest.raises(mp.FileFormatError, match="truncated"):
            Moments.load(file)
    poly = mp.fit(mp.MLP(np.eye(2), None, np.eye(2), None, "relu"), mp.Gaussian.standard(2))
    poly.save(tmp_path / "poly.safetensors")
    with pytest.raises(mp.FileFormatError, match="holds no moments"):
        Moments.load(tmp_path / "poly.safetensors")


FIRST = "transformer.h.0.mlp"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, a: h["blocks"][FIRST].update({"0": -1}), "count must be"),
        (lambda h, a: h.update(blocks=[]), ""),
        (lambda h, a: a[f"{FIRST}/0/mean"].fill(np.nan), "mean"),
        (lambda h, a: a.pop(f"{FIRST}/0/mean"), "mean"),
    ],
)
def test_damaged_moments_are_refused_and_the_error_names_what_is_wrong(change, message, tmp_path):
    path = collect(gpt2(), token_ids(1)).save(tmp_path)
    header, arrays = read_tensors(path)
    change(header, arrays)
    write_tensors(path, arrays, header or {})
    with pytest.raises(mp.FileFormatError, match=rf"moments.safetensors is damaged.*{message}.*collect again"):
        Moments.load(path)


def test_merge_equals_the_whole():
    model, batches = llama(), token_ids(5)
    whole = collect(model, batches, groups="first")
    one, other = (collect(model, b, groups="first") for b in (batches[:2], batches[2:]))
    before = one.gaussian(one.names[0]).fingerprint
    merged = one.merge(other)
    assert_same_moments(merged, whole)
    assert merged.tokens == whole.tokens
    assert one.gaussian(one.names[0]).fingerprint == before
    assert [p["tokens"] for p in merged.provenance["merged"]] == [42, 63]
    assert merged.provenance["model"] == "LlamaForCausalLM" and "data" not in merged.provenance
    assert len(merged.merge(one).provenance["merged"]) == 3


class Wrapper(nn.Module):
    """Passes everything on, as wrappers for several GPUs do."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


def test_wrapped_model_gets_the_attention_mask():
    batch = {"input_ids": token_ids(1)[0], "attention_mask": torch.tensor([[1] * 7, [0] * 3 + [1] * 4, [0] + [1] * 6])}
    plain, wrapped = collect(bert(), [batch]), collect(Wrapper(bert()), [batch])
    for name in plain.names:
        assert_close(wrapped.gaussian(f"module.{name}").cov, plain.gaussian(name).cov)


def test_merge_refuses_what_does_not_belong_together():
    model, batches = llama(), token_ids(1)
    one = collect(model, batches)
    with pytest.raises(ValueError, match=r"different blocks, 'model.layers.1.mlp' among them"):
        one.merge(collect(model, batches, "*.0.mlp"))
    with pytest.raises(ValueError, match="chosen by different rules, 'none' and 'first'"):
        one.merge(collect(model, batches, groups="first"))
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight += 0.1
    with pytest.raises(ValueError, match="different models: LlamaForCausalLM"):
        one.merge(collect(model, batches))
    with pytest.raises(TypeError, match="other must be Moments"):
        one.merge(3)
    with pytest.raises(KeyError, match=r"no moments of 'mlp'; there are those of model.layers.0.mlp"):
        one.gaussian("mlp")


class Counted:
    """Counts the batches that a model runs."""

    def __init__(self, model):
        self.calls = 0
        model.register_forward_pre_hook(self.count)

    def count(self, module, args):
        self.calls += 1


def interrupted(batches, after):
    yield from batches[:after]
    raise KeyboardInterrupt


@pytest.mark.parametrize("groups", ["none", "first", "norm", "clusters"])
def test_an_interrupted_pass_is_resumed(groups, tmp_path):
    model, batches = gpt2(), token_ids(6)
    assert_same_moments(
        whole := collect(model, batches, groups=groups, save_to=tmp_path / "whole", save_every=0),
        collect(model, batches, groups=groups),
    )
    folder = tmp_path / "in two"
    options = {"groups": groups, "save_to": folder, "save_every": 0}
    for after in (2, 4):
        with pytest.raises(KeyboardInterrupt):
            collect(model, interrupted(batches, after), **options)
        assert [p.name for p in folder.iterdir()] == ["partial-0-of-1.safetensors"]
    counted = Counted(model.transformer)
    resumed = collect(model, iter(batches), **options)
    assert counted.calls == 2  # of six batches, the last two
    assert resumed.provenance == whole.provenance
    assert [p.name for p in folder.iterdir()] == ["moments.safetensors"]
    # What is finished is not done again; what is added is. All of it to the bit.
    for again in (resumed, Moments.load(folder), collect(model, batches, **options)):
        assert_same_moments(again, whole, 0)
    assert counted.calls == 2
    more = collect(model, [*batches, *token_ids(1, seed=9)], **options)
    assert counted.calls == 3 and more.tokens == 7 * 21


def test_resume_refuses_other_data_options_and_models(tmp_path):
    model, batches = gpt2(), token_ids(4)
    options = {"save_to": tmp_path, "save_every": 0}
    with pytest.raises(KeyboardInterrupt):
        collect(model, interrupted(batches, 2), **options)
    for other in (token_ids(4, seed=1), batches[:1], [torch.cat(batches[:2]), *batches[2:]]):
        with pytest.raises(ValueError, match=r"not that of the pass to be resumed.*resume=False"):
            collect(model, other, **options)
    with pytest.raises(ValueError, match="with other options: tokens was None, now it is 30"):
        collect(model, batches, tokens=30, **options)
    with pytest.raises(ValueError, match="with other options: groups was 'none', now it is 'first'"):
        collect(model, batches, groups="first", **options)
    with pytest.raises(ValueError, match="with other options: model weights was"):
        collect(llama(), batches, **options)
    with pytest.raises(ValueError, match="with other options: blocks was"):
        collect(model, batches, "*.0.mlp", **options)
    with pytest.raises(ValueError, match="cannot be seen; start again with resume=False"):
        by_function = options | {"groups": lambda x, positions, tokens: tokens % 2, "save_to": tmp_path / "function"}
        for _ in range(2):
            collect(model, batches, **by_function)
    (tmp_path / "partial-0-of-1.safetensors").rename(tmp_path / "partial-1-of-2.safetensors")
    with pytest.raises(ValueError, match="holds a pass of 2 processes, now there are 1"):
        collect(model, batches, **options)
    fresh = collect(model, batches, resume=False, **options)
    assert_same_moments(fresh, collect(model, batches))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["function", "moments.safetensors"]


def test_resume_with_a_budget(tmp_path):
    model, batches = gpt2(), token_ids(5)
    options = {"save_to": tmp_path, "save_every": 0, "tokens": 70}
    with pytest.raises(KeyboardInterrupt):
        collect(model, interrupted(batches, 2), **options)
    found = collect(model, batches, **options)
    assert found.tokens == 70
    assert_same_moments(found, collect(model, batches, tokens=70))
    assert_same_moments(collect(model, batches, **options), found)
