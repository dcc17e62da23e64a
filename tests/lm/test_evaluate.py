"""Losses of models with their blocks replaced, against the models' own losses and plain least squares."""

import numpy as np
import pytest
import torch
import transformers
from support import tiny_models
from support.data import data_folder
from support.strong_models import VOCABULARY, D, bert, gpt2, llama, polynomials, strong, token_ids
from torch import nn

import mlpoly as mp
from mlpoly.importers import find_blocks
from mlpoly.lm.conversion.convert import convert
from mlpoly.lm.evaluation.baselines import BASELINES, baseline_modules
from mlpoly.lm.evaluation.losses import evaluate
from mlpoly.lm.model.graft import graft
from mlpoly.lm.model.loading import load_model
from mlpoly.lm.moments.collect import collect


@pytest.mark.parametrize("make", [llama, gpt2])
def test_nothing_replaced_is_the_models_own_loss(make):
    model, batches = make("relu"), token_ids()
    found = evaluate(model, {}, batches, baselines=())
    with torch.no_grad():
        own = sum(model(ids, labels=ids).loss.item() for ids in batches) / len(batches)
    assert found.original == pytest.approx(own, rel=1e-6)
    assert found.tokens == 2 * 3 * 6
    assert [(r.replaced, r.by, r.kl) for r in found.rows] == [("none", "", 0.0), ("all", "polynomial", 0.0)]


def test_padding_does_not_count():
    model, (ids, _) = llama("silu"), token_ids()
    name = find_blocks(model)[0].name
    polys = {name: mp.fit(find_blocks(model)[0].net(), mp.Gaussian.standard(D), 1)}
    padded = {"input_ids": nn.functional.pad(ids, (0, 4)), "attention_mask": nn.functional.pad(ids * 0 + 1, (0, 4))}
    plain, found = evaluate(model, polys, [ids]), evaluate(model, polys, [padded])
    assert found.tokens == plain.tokens
    for one, other in zip(plain.rows, found.rows, strict=True):
        assert (one.cross_entropy, one.kl) == pytest.approx((other.cross_entropy, other.kl), rel=1e-4, abs=1e-7)


def test_labels_of_a_masked_model():
    model, (ids, _) = bert("gelu"), token_ids()
    labels = torch.where(torch.arange(7) < 3, ids, -100)
    found = evaluate(model, {}, [{"input_ids": ids, "labels": labels}], baselines=(), next_token=False)
    with torch.no_grad():
        assert found.original == pytest.approx(model(ids, labels=labels).loss.item(), rel=1e-6)
    assert found.tokens == 9


def test_rows_of_an_evaluation():
    model, batches = llama("silu"), token_ids(4)
    conversion = convert(model, collect(model, batches), 4, closed_form=False)
    found = evaluate(model, conversion, batches, each=True)
    names = [b.name for b in find_blocks(model)]
    expected = [("none", ""), *(("all", by) for by in ("polynomial", *BASELINES)), *((n, "polynomial") for n in names)]
    assert [(r.replaced, r.by) for r in found.rows] == expected
    assert found.loss().kl < found.loss(by="linear").kl < found.loss(by="mean").kl
    assert found.loss(names[0]).kl > 0
    assert found.increase == found.loss().cross_entropy - found.original
    assert str(found).splitlines()[0].split() == ["replaced", "by", "degree", "cross_entropy", "kl", "change"]
    with pytest.raises(KeyError, match="no row"):
        found.loss("all", "magic")
    with pytest.raises(ValueError, match="baselines must be among"):
        evaluate(model, conversion, batches, baselines=("magic",))
    with pytest.raises(TypeError, match="batches must be an iterable"):
        evaluate(model, conversion, batches[0])


def test_models_that_add_to_a_blocks_output_in_place():
    """Falcon adds the attention's output to that of the block, in the block's memory."""
    torch.manual_seed(0)
    options = {"vocab_size": VOCABULARY, "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 2}
    model, batches = strong(transformers.FalconForCausalLM(transformers.FalconConfig(**options))), token_ids(4)
    found = evaluate(model, convert(model, collect(model, batches), 3, closed_form=False), batches)
    assert [row.by for row in found.rows] == ["", "polynomial", *BASELINES]
    again = evaluate(model, polynomials(model, 3), batches)
    assert found.rows[2:] == again.rows[2:]  # nothing was left in the constants' memory


def test_the_linear_baseline_is_least_squares():
    model, batches = llama("silu"), token_ids(6)
    block = find_blocks(model)[1]
    x = tiny_models.recorded(model, batches)[block.name].double()
    y = block.net()(x.float()).double()
    made = baseline_modules(model, {block.name: None}, batches, ("linear", "mean"))
    solved = torch.linalg.lstsq(torch.cat([x, torch.ones(len(x), 1)], 1), y).solution
    torch.testing.assert_close(made["linear"][block.name].weight.double(), solved[:-1].T, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(made["mean"][block.name].value.double(), y.mean(0), atol=1e-6, rtol=1e-5)


def images(count):
    draw = torch.Generator().manual_seed(0)
    shape = (6, 3, 8, 8)
    return [{"pixel_values": torch.randn(shape, generator=draw), "labels": torch.arange(6) % 3} for _ in range(count)]


def texts(count):
    mask = torch.ones(3, 7, dtype=torch.long)
    mask[0, 4:] = 0
    return [{"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([0, 2, 1])} for ids in token_ids(count)]


def without_labels(batches):
    return [{name: value for name, value in batch.items() if name != "labels"} for batch in batches]


def text_classifier():
    return tiny_models.bert("BertForSequenceClassification", num_labels=3)


def image_classifier():
    return tiny_models.vit("ViTForImageClassification", num_labels=3)


def bars(found):
    """Lengths of the bars of an evaluation's plot."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    try:
        return [bar.get_width() for bar in found.plot().axes[0].patches]
    finally:
        pyplot.close("all")


def converted(model, batches):
    return convert(model, collect(model, batches), 2, closed_form=False)


@pytest.mark.parametrize(("make", "batches"), [(image_classifier, images(4)), (text_classifier, texts(8))])
def test_classifiers_are_measured_by_the_divergence_of_their_classes(make, batches):
    model = strong(make())
    polys = converted(model, batches)
    found = evaluate(model, polys, batches, baselines=("removed",))
    plain = without_labels(batches)
    with torch.no_grad():
        f = torch.cat([model(**batch).logits for batch in plain]).double()
        with graft(model, polys):
            p = torch.cat([model(**batch).logits for batch in plain]).double()
        labels = torch.cat([batch["labels"] for batch in batches])
        kl = nn.functional.kl_div(p.log_softmax(1), f.log_softmax(1), log_target=True, reduction="batchmean")
        entropies = [float(nn.functional.cross_entropy(logits, labels)) for logits in (f, p)]
    assert 1e-8 < found.loss().kl == pytest.approx(float(kl), rel=1e-6)
    assert [row.cross_entropy for row in found.rows[:2]] == pytest.approx(entropies, rel=1e-6)
    assert found.loss().kl < found.loss(by="removed").kl and found.tokens == len(labels)
    again = evaluate(model, polys, plain, baselines=())  # the classes are not known
    assert again.loss().kl == found.loss().kl and np.isnan(again.original)
    assert str(again).splitlines()[0].split() == ["replaced", "by", "degree", "kl"]
    assert "nan" not in f"{again!r}"
    assert bars(again) == [again.loss().kl]


MODELS = {
    "BertModel": (lambda: tiny_models.bert("BertModel"), without_labels(texts(8))),
    "LlamaModel": (lambda: tiny_models.llama().model, token_ids(8)),
    "ViTModel": (tiny_models.vit, without_labels(images(4))),
    "Wav2Vec2Model": (tiny_models.wav2vec2, [{"input_values": torch.linspace(-3, 3, 160).sin().reshape(2, 80)}]),
}


@pytest.mark.parametrize("kind", MODELS)
def test_models_without_a_head_are_measured_by_the_cosine_of_their_hidden_states(kind):
    make, batches = MODELS[kind]
    model = strong(make())
    polys = converted(model, batches)
    found = evaluate(model, polys, batches, baselines=("removed",))

    def hidden():
        rows = []
        for batch in batches:
            given = batch if isinstance(batch, dict) else {"input_ids": batch}
            out = model(**given).last_hidden_state
            rows.append(out[given["attention_mask"] != 0] if "attention_mask" in given else out.flatten(0, 1))
        return torch.cat(rows).double()

    with torch.no_grad():
        f = hidden()
        with graft(model, polys):
            p = hidden()
    expected = ((f * p).sum(1) / (f.norm(dim=1) * p.norm(dim=1))).mean()
    assert found.loss().cosine == pytest.approx(float(expected), abs=1e-9) and found.loss("none", "").cosine == 1.0
    assert found.loss(by="removed").cosine < found.loss().cosine < 1
    assert found.tokens == len(f)
    assert str(found).splitlines()[0].split() == ["replaced", "by", "degree", "cosine"]
    assert bars(found) == [1 - row.cosine for row in found.rows[1:]]


def test_an_encoder_decoder_predicts_the_tokens_of_its_decoder():
    model = strong(tiny_models.t5())
    source, labels = token_ids(2)
    shifted = torch.cat([torch.zeros(3, 1, dtype=torch.long), labels[:, :-1]], 1)  # 0 begins a text
    given = {"input_ids": source, "decoder_input_ids": shifted}
    with torch.no_grad():
        out = model(input_ids=source, labels=labels)
        following = nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1), shifted[:, 1:].flatten())
    found = evaluate(model, {}, [given | {"labels": labels}], baselines=())
    assert found.original == pytest.approx(float(out.loss), rel=1e-6) and found.tokens == 21
    found = evaluate(model, {}, [given], baselines=())
    assert found.original == pytest.approx(float(following), rel=1e-6) and found.tokens == 18
    polys = converted(model, [given])
    assert evaluate(model, polys, [given], baselines=()).loss().kl > 0


def test_sounds_to_text():
    """Whisper's decoder predicts tokens; of the positions of a sound that CTC labels, the targets are not known."""
    features = {"input_features": torch.linspace(-9, 9, 320).sin().reshape(2, 8, 20), "decoder_input_ids": IDS}
    whisper = strong(tiny_models.whisper())
    found = evaluate(whisper, converted(whisper, [features]), [features], baselines=())
    assert found.tokens == 8 and found.loss().kl > 0 and found.original > 0
    ctc, sound = strong(tiny_models.wav2vec2("Wav2Vec2ForCTC")), {"input_values": torch.linspace(-3, 3, 80)[None].sin()}
    found = evaluate(ctc, converted(ctc, [sound]), [sound], baselines=())
    assert found.tokens == 19 and found.loss().kl > 0 and np.isnan(found.original)


IDS = torch.arange(10).reshape(2, 5)


def test_outputs_that_cannot_be_compared_are_refused():
    batches = without_labels(texts(1))
    expected = r"not logits \(b, t, v\), logits \(b, v\) of two classes at least, or last"
    for kind, options in (("BertForSequenceClassification", {"num_labels": 1}), ("BertForQuestionAnswering", {})):
        with pytest.raises(TypeError, match=expected):
            evaluate(tiny_models.bert(kind, **options), {}, batches, baselines=())
    tagger = tiny_models.bert("BertForTokenClassification", num_labels=2)
    with pytest.raises(ValueError, match=r"go up to \d+, but BertForTokenClassification has 2 classes"):
        evaluate(tagger, {}, batches, baselines=())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_models_in_sixteen_bits_have_all_baselines(dtype):
    """The linear map is computed in float32, and its values are the model's."""
    model = llama("silu")
    expected = evaluate(model, polynomials(model, 3), token_ids(3))
    narrow = model.to(dtype)
    found = evaluate(narrow, {name: p.to_torch() for name, p in polynomials(narrow, 3).items()}, token_ids(3))
    assert [row.by for row in found.rows] == ["", "polynomial", "removed", "mean", "linear"]
    for row, other in zip(found.rows, expected.rows, strict=True):
        assert row.cross_entropy == pytest.approx(other.cross_entropy, rel=0.02)  # 8 bits, all the way through


@pytest.mark.data
def test_cubics_in_place_of_the_blocks_of_stories260k():
    """Cubics in place of all blocks, from the moments of 20 480 tokens, on 16 384 others."""
    folder = data_folder("stories260K")
    model, _ = load_model(folder)
    ids = torch.from_numpy(np.load(folder / "tokens.npy").astype(np.int64))
    train, held_out = list(ids[:80].split(16)), list(ids[-64:].split(16))
    moments = collect(model, train)
    for bound, cost in ((3.0, 0.0067), (None, 0.0208)):
        made = convert(model, moments, 3, bound=bound, closed_form=False)
        found = evaluate(model, made, held_out, baselines=())
        assert found.increase == pytest.approx(cost, abs=6e-5)
        assert [row.degree for row in found.rows] == [0, 3]
