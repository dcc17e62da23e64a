"""Reading blocks: parts by degree that add up, the direct path to a logit, spectra."""

import numpy as np
import pytest
import torch
import transformers
from support import tiny_models
from support.backends import assert_close
from support.strong_models import logits
from support.tiny_models import VOCABULARY, D, recorded, shaken, token_ids
from torch import nn

import mlpoly as mp
from mlpoly.importers import find_blocks
from mlpoly.lm import collect, convert, evaluate
from mlpoly.lm.model.tracing import trace
from mlpoly.lm.reading.attribution import attribute, degree_parts, polynomials_of
from mlpoly.lm.reading.block_spectra import block_spectra
from mlpoly.lm.text.tokens import token_text
from mlpoly.polynomials import BoundedPolynomial

PROMPT = [3, 9, 27, 17, 1, 4]
IDS = torch.tensor([PROMPT])
BLOCK = "model.layers.1.mlp"


def llama():
    return shaken(tiny_models.llama(initializer_range=0.3))


def gpt2():
    return shaken(tiny_models.gpt2(initializer_range=0.3))


def gemma2():
    return shaken(tiny_models.gemma2(initializer_range=0.3))


def polynomials(model, degree=3):
    moments = collect(model, token_ids(4, b=4, t=12))
    return {block.name: mp.fit(block.net(), moments.gaussian(block.name), degree) for block in find_blocks(model)}


def networks(rng):
    W, V, R = rng.normal(size=(9, 5)), rng.normal(size=(9, 5)), rng.normal(size=(4, 9))
    b, c, d = rng.normal(size=9), rng.normal(size=9), rng.normal(size=4)
    return [mp.MLP(W, b, R, d, "gelu"), mp.GLU(W, b, V, c, R, d, "silu")]


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("bound", [None, 1.5])
def test_parts_add_up(rng, degree, bound):
    inputs = mp.Gaussian(rng.normal(size=5), np.diag(rng.uniform(0.5, 2, 5)))
    x, u = 2 * rng.normal(size=(7, 5)), rng.normal(size=4)
    for net in networks(rng):
        poly = mp.fit(net, inputs, degree)
        if bound is not None:
            poly = poly.bounded(bound)
        parts = degree_parts(poly, x, u)
        assert parts.shape == (7, degree + 1)
        assert_close(parts.sum(-1), poly(x) @ u, 1e-10)


def test_a_part_is_what_its_degree_adds_to_the_best_polynomial(rng):
    inputs = mp.Gaussian(rng.normal(size=5))
    x, u = rng.normal(size=(6, 5)), rng.normal(size=(6, 4))  # a direction of its own for every input
    for net in networks(rng):
        parts = degree_parts(mp.fit(net, inputs, 3), x, u)
        fits = [(mp.fit(net, inputs, k)(x) * u).sum(-1) for k in range(4)]
        assert_close(parts, np.stack([fits[0], *np.diff(fits, axis=0)], -1), 1e-10)


def test_parts_of_wrong_arguments(rng):
    poly = mp.fit(networks(rng)[0], mp.Gaussian.standard(5), 2)
    with pytest.raises(ValueError, match=r"direction has 3 weights, expected 4"):
        degree_parts(poly, np.zeros((2, 5)), np.zeros(3))
    with pytest.raises(TypeError, match="poly must be a polynomial"):
        degree_parts("poly", np.zeros((2, 5)), np.zeros(4))


def test_contributions_in_llama_are_those_computed_by_hand():
    model, target = llama(), 5
    found = attribute(model, polynomials(model), PROMPT, target)
    layers = model.model.layers
    modules = {"0": layers[0].mlp, "1": layers[1].mlp, "embed": model.model.embed_tokens}
    ours = recorded(model, [IDS], modules | {"a0": layers[0].self_attn, "a1": layers[1].self_attn}, outputs=True)
    h = recorded(model, [IDS], {"norm": model.model.norm})["norm"]
    # transformers computes the divisor in float32
    rate = (h.float().pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps).rsqrt().double()
    direction = model.lm_head.weight[target] * model.model.norm.weight * rate
    for i in range(2):
        assert_close(found.actual[i], (ours[str(i)] * direction).sum(-1).detach(), 1e-6)
    # With attention and embedding the contributions are the whole logit.
    others = sum((ours[name] * direction).sum(-1) for name in ("embed", "a0", "a1"))
    assert_close(found.actual.sum(0) + others.detach().numpy(), logits(model, IDS)[0, :, target], 1e-6)
    assert_close(found.logits, logits(model, IDS)[0, :, target], 1e-12)


@pytest.mark.parametrize("make", [llama, gpt2, gemma2])
def test_degrees_add_up_to_the_polynomials_outputs(make):
    model = make()
    polys = polynomials(model)
    found = attribute(model, polys, PROMPT, 7)
    wires = trace(model, PROMPT)
    rows, entering = model.get_output_embeddings().weight[7].detach().expand(len(PROMPT), D), recorded(model, [IDS])
    for i, (name, poly) in enumerate(polys.items()):
        assert torch.equal(wires.inputs[name], entering[name])
        direction = wires.final.pull(rows)
        direction = direction if wires.after[name] is None else wires.after[name].pull(direction)
        assert_close(found.parts[i].sum(-1), (poly(wires.inputs[name]) * direction).sum(-1), 1e-10)
    assert found.parts.shape == (2, len(PROMPT), 4)
    assert found.blocks == tuple(polys)


def test_a_centred_norm_and_a_bias():
    model = gpt2()
    found = attribute(model, polynomials(model, 1), PROMPT, 7)
    ln = model.transformer.ln_f
    h = recorded(model, [IDS], {"ln": ln})["ln"]
    y = recorded(model, [IDS], {"0": model.transformer.h[0].mlp}, outputs=True)["0"]
    rate = (h.var(-1, correction=0) + ln.eps).rsqrt()
    by_hand = rate * ((y - y.mean(-1, keepdim=True)) * ln.weight * model.lm_head.weight[7]).sum(-1)
    assert_close(found.actual[0], by_hand.detach(), 1e-9)
    assert trace(model, PROMPT).final.centred


def test_a_norm_behind_the_block():
    model = gemma2()
    found = attribute(model, polynomials(model, 1), PROMPT, 7)
    behind = model.model.layers[0].post_feedforward_layernorm
    h = recorded(model, [IDS], {"norm": model.model.norm})["norm"]
    after = recorded(model, [IDS], {"after": behind}, outputs=True)["after"]
    rate = (h.float().pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps).rsqrt().double()
    direction = model.lm_head.weight[7] * (1 + model.model.norm.weight) * rate  # Gemma stores the weight less one
    assert_close(found.actual[0], (after * direction).sum(-1).detach(), 1e-6)
    assert trace(model, PROMPT).after["model.layers.0.mlp"].module is behind


def test_targets_and_centred_logits():
    model = llama()
    polys = polynomials(model, 1)
    following = attribute(model, polys, PROMPT, tokenizer=[f"t{i}" for i in range(VOCABULARY)])
    own = logits(model, IDS)[0].numpy()
    assert following.targets == (*PROMPT[1:], int(own[-1].argmax()))
    assert following.tokens[:2] == ("t3", "t9") and following.target_tokens[0] == "t9"
    centred = attribute(model, polys, PROMPT, 7, centred=True)
    every = [attribute(model, polys, PROMPT, i) for i in range(VOCABULARY)]
    assert_close(centred.parts, every[7].parts - np.mean([e.parts for e in every], 0), 1e-9)
    assert_close(centred.logits, own[:, 7] - own.mean(1), 1e-12)
    row = centred.rows()[len(PROMPT) + 2]
    assert row["block"] == BLOCK and row["position"] == 2 and row["actual"] == centred.actual[1, 2]
    assert row["polynomial"] == pytest.approx(row["degree_0"] + row["degree_1"])


def test_bounded_polynomials_and_their_modules_are_taken():
    model = llama()
    plain = polynomials(model)
    bounded = {name: poly.bounded(1.0) for name, poly in plain.items()}
    modules = {name: poly.to_torch() for name, poly in bounded.items()}
    found, same, free = (attribute(model, polys, PROMPT, 7) for polys in (bounded, modules, plain))
    assert_close(same.parts, found.parts, 1e-12)
    assert found.parts.shape == free.parts.shape and np.abs(found.parts - free.parts).max() > 1e-4
    assert polynomials_of(bounded)[BLOCK] is bounded[BLOCK]
    assert isinstance(polynomials_of(modules)[BLOCK], BoundedPolynomial)


def test_wrong_arguments_say_what_to_do():
    model = llama()
    polys = polynomials(model, 1)
    with pytest.raises(ValueError, match="prompt is text, which needs a tokenizer"):
        attribute(model, polys, "a text")
    with pytest.raises(ValueError, match="target is 99, but the model knows the tokens 0 to 31"):
        attribute(model, polys, PROMPT, 99)
    with pytest.raises(ValueError, match="no block 'other'; its blocks are model"):
        attribute(model, {"other": polys[BLOCK]}, PROMPT)
    with pytest.raises(ValueError, match="prompt has no tokens"):
        attribute(model, polys, [])
    with pytest.raises(TypeError, match="holds no polynomial"):
        attribute(model, {BLOCK: nn.Identity()}, PROMPT)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=D, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2
    )
    bert = transformers.BertForMaskedLM(config).double().eval()
    with pytest.raises(ValueError, match="no direct path"):
        attribute(bert, polynomials(bert, 1), PROMPT)


def test_texts_of_tokens():
    class Pieces:
        pieces = ("▁the", "Ġa", "<0xE2>", None)

        def convert_ids_to_tokens(self, i):
            return self.pieces[i]

        def decode(self, ids):
            return {1: " a", 2: "\ufffd"}[ids[0]]

    assert [token_text(Pieces())(i) for i in range(4)] == [" the", " a", "<0xE2>", "#3"]
    assert token_text(None)(3) == "#3" and token_text(["x"])(0) == "x" and token_text(["x"])(1) == "#1"


def test_spectra_say_what_fits_leave_unexplained():
    model = llama()
    moments = collect(model, token_ids(4, b=4, t=12))
    rows = block_spectra(model, moments, 3)
    assert [row.block for row in rows] == moments.names
    for row, block in zip(rows, find_blocks(model), strict=True):
        assert sum(row.fractions) + row.rest == pytest.approx(1, abs=1e-12)
        poly = mp.fit(block.net(), moments.gaussian(block.name), 2)
        assert 1 - sum(row.fractions[:2]) == pytest.approx(float(mp.fvu(block.net(), poly).total), abs=1e-7)


def test_results_draw_themselves_and_show_in_notebooks():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    model, words = llama(), [f"<w{i}>" for i in range(VOCABULARY)]
    moments = collect(model, token_ids(4))
    converted = convert(model, moments, degree=2, bound=None)
    found = attribute(model, converted, PROMPT, tokenizer=words)
    spectra, losses = block_spectra(model, moments, 2), evaluate(model, converted, token_ids(4))
    try:
        for result in (converted, losses, found, spectra):
            html = result._repr_html_()
            assert "<table>" in html and "<w" not in html
            figure, (_, right) = pyplot.subplots(1, 2)
            assert result.plot(ax=right) is figure and right.has_data()
        image = found.plot().axes[0].images[0].get_array()
        np.testing.assert_allclose(image.sum(0), found.parts.sum((0, 2)))
        tops = [bar.get_y() + bar.get_height() for bar in spectra.plot().axes[0].patches]
        assert max(tops) == pytest.approx(1)
        changes = [bar.get_width() for bar in losses.plot().axes[0].patches]
        np.testing.assert_allclose(changes, [row.cross_entropy - losses.original for row in losses.rows[1:]])
        widths = [bar.get_width() for bar in converted.plot().axes[0].patches]
        np.testing.assert_allclose(widths, [errors.closed_form for errors in converted.errors.values()])
    finally:
        pyplot.close("all")
