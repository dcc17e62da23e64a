"""Causal checks: blocks that are squares of their features, behind which everything is linear, do as predicted."""

import math
from dataclasses import replace

import pytest
import torch
from support import tiny_models
from support.mistakes import assert_explained, mistakes
from support.tiny_models import VOCABULARY, D, token_ids
from torch import nn

import mlpoly as mp
from mlpoly.importers import find_blocks
from mlpoly.lm import (
    block_features,
    check_features,
    collect,
    convert,
    example_text,
    load_model,
    read_features,
    steer,
    token_batches,
    with_scores,
)
from mlpoly.lm.model.tracing import trace

FIRST, LAST = "model.layers.0.mlp", "model.layers.1.mlp"
TEXT = token_ids(3, b=4, t=12)


class HeldNorm(nn.Module):
    """A norm whose divisor is the same for every input, so that it is linear."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.3 * torch.randn(D))

    def forward(self, x):
        return self.weight * x / 0.7


def bilinear(**options):
    """A model of exactly quadratic blocks, in double precision, whose last norm is linear."""
    model = tiny_models.llama(hidden_act="linear", mlp_bias=True, initializer_range=0.3, **options)
    model.model.norm = HeldNorm()
    return model.double()


def squares(model):
    """Make the last block a sum of squares of uncorrelated coordinates; its Gaussian, polynomial and coordinates."""
    inputs = collect(model, TEXT).gaussian(LAST)
    rows = torch.linalg.qr(torch.randn(D, D, dtype=torch.float64))[0] @ torch.linalg.inv(
        torch.linalg.cholesky(torch.as_tensor(inputs.covariance).double())
    )
    block = model.get_submodule(LAST)
    with torch.no_grad():
        for part in (block.gate_proj, block.up_proj):
            part.weight.copy_(torch.cat([rows, torch.zeros(24 - D, D)]))
            part.bias.copy_(torch.cat([-rows @ inputs.mean, torch.zeros(24 - D)]))
    return inputs, mp.fit(find_blocks(model)[1].net(), inputs, 2), rows


def near(*scores):
    """All of them 1 to rounding, which differences of logits of order 10 leave at 1e-12 of the changes or so."""
    assert scores == pytest.approx([1.0] * len(scores), abs=1e-9)


def test_squares_before_a_linear_rest_do_exactly_what_is_predicted():
    model = bilinear()
    inputs, poly, rows = squares(model)
    features = block_features(poly, model, LAST, "direction", directions=rows[:3], inputs=inputs)
    found = check_features(model, features, TEXT, polys={LAST: poly})
    assert [(s.block, s.feature, s.tokens) for s in found] == [(LAST, f"direction {r}", 144) for r in range(3)]
    for s in found:
        near(s.correlation, s.slope)
        near(s.block_correlation, s.block_slope, s.square_correlation, s.square_slope)
        near(s.polynomial_block_correlation, s.polynomial_block_slope, s.direct_correlation, s.direct_slope)


def test_other_written_vectors_are_found_out():
    """With the vector of another feature correlation is the cosine of the two, and slopes tell a wrong length."""
    model = bilinear()
    inputs, poly, rows = squares(model)
    features = block_features(poly, model, LAST, "direction", directions=rows[:2], inputs=inputs)
    a, b = features.writes
    cosine = float(a @ b / (a.norm() * b.norm()))
    wrong, longer = check_features(
        model, [replace(features, writes=features.writes.flip(0)), replace(features, writes=4 * features.writes)], TEXT
    )[::3]
    assert abs(cosine) < 0.9
    assert [wrong.block_correlation, wrong.square_correlation] == pytest.approx([cosine] * 2, abs=1e-9)
    assert abs(wrong.correlation) < 0.95
    near(longer.correlation, longer.block_correlation)
    assert [longer.slope, longer.block_slope, longer.square_slope] == pytest.approx([0.25] * 3, abs=1e-9)


@pytest.mark.parametrize("block", [FIRST, LAST])
def test_whole_polynomials_of_quadratic_blocks_are_right_about_every_direction(block):
    model = bilinear()
    moments = collect(model, TEXT)
    poly = mp.fit(dict((b.name, b) for b in find_blocks(model))[block].net(), moments.gaussian(block), 2)
    features = block_features(poly, model, block, "random", 3)
    for s in check_features(model, features, TEXT, polys={block: poly}):
        near(s.polynomial_block_correlation, s.polynomial_block_slope, s.square_correlation, s.square_slope)
        # The square alone is a part of what the direction does; in the first block the rest of the model is not linear.
        assert abs(s.block_correlation) < 0.99
        assert (abs(s.direct_correlation - 1) < 1e-9) == (block == LAST)


@pytest.mark.parametrize("kind", ["form", "neuron"])
def test_what_is_changed_in_the_output_has_no_scores_of_the_block(kind):
    model = bilinear()
    poly = mp.fit(find_blocks(model)[1].net(), collect(model, TEXT).gaussian(LAST), 2)
    for s in check_features(model, block_features(poly, model, LAST, kind, 2), TEXT, polys={LAST: poly}):
        near(s.correlation, s.slope, s.direct_correlation)
        assert s.block_correlation is s.square_slope is s.polynomial_block_correlation is None


@pytest.mark.parametrize("make", [tiny_models.llama, tiny_models.gpt2, tiny_models.gemma2])
def test_scores_are_those_of_changes_laid_out_token_by_token(make):
    """The definition: logits without and with the feature, and the direct path at one token after the other."""
    model = tiny_models.shaken(make(initializer_range=0.3))
    name = find_blocks(model)[0].name
    poly = mp.fit(find_blocks(model)[0].net(), collect(model, TEXT).gaussian(name), 2)
    features = block_features(poly, model, name, "principal", 1)
    ids = TEXT[0][:2]
    weight = model.get_output_embeddings().weight.detach()
    predicted, measured = [], []
    for row in ids:
        seen = trace(model, row.tolist())
        with steer(model, features, 0.0):
            without = trace(model, row.tolist()).logits
        measured.append(without - seen.logits)
        change = -(features.values(seen.inputs[name]) ** 2) * features.writes
        for t in range(len(row)):
            rows = replace(seen.final, rates=seen.final.rates[t : t + 1]).pull(weight)
            if seen.after[name] is not None:
                rows = replace(seen.after[name], rates=seen.after[name].rates[t : t + 1]).pull(rows)
            predicted.append(rows @ change[t])
    p, m = torch.stack(predicted), torch.cat(measured)
    p, m = p - p.mean(1, keepdim=True), m - m.mean(1, keepdim=True)
    (found,) = check_features(model, features, [ids])
    assert found.correlation == pytest.approx(float((p * m).sum() / (p.norm() * m.norm())), abs=1e-9)
    assert found.slope == pytest.approx(float((p * m).sum() / (p * p).sum()), abs=1e-9)
    assert p.shape == (24, VOCABULARY)


def test_padding_does_not_count_and_tokens_are_limited():
    model = bilinear()
    poly = mp.fit(find_blocks(model)[0].net(), collect(model, TEXT).gaussian(FIRST), 2)
    features = block_features(poly, model, FIRST, "random", 1)
    ids = TEXT[0][:1]
    padded = {"input_ids": nn.functional.pad(ids, (0, 3)), "attention_mask": torch.tensor([[1] * 12 + [0] * 3])}
    (plain,), (same,) = (check_features(model, features, [batch]) for batch in (ids, padded))
    assert same.tokens == 12
    assert same.correlation == pytest.approx(plain.correlation, abs=1e-9)
    assert check_features(model, features, TEXT, tokens=20)[0].tokens == 20


def test_scores_stand_in_the_reading():
    model = bilinear()
    inputs, poly, rows = squares(model)
    features = block_features(poly, model, LAST, "direction", directions=rows[:2], inputs=inputs)
    readings, scores = read_features(model, features, TEXT), check_features(model, features, TEXT)
    made = with_scores(readings, scores)
    assert [r.causal for r in made] == list(scores) and readings[0].causal is None
    assert "correlation 1.00, slope 1.00" in str(made[0])
    assert "direction 1" in str(scores)
    with pytest.raises(ValueError, match="causal has scores of other features"):
        with_scores(readings, scores[::-1])


def prepared():
    model = bilinear()
    poly = mp.fit(find_blocks(model)[0].net(), mp.Gaussian.standard(D), 2)
    return model, block_features(poly, model, FIRST, "random", 1)


def of_the_other_block():
    model, features = prepared()
    poly = mp.fit(find_blocks(model)[1].net(), mp.Gaussian.standard(D), 2)
    return check_features(model, features, TEXT, polys={LAST: poly})


def of_another_model():
    features = prepared()[1]
    other = bilinear()
    nn.init.normal_(other.get_submodule(FIRST).down_proj.weight)
    return check_features(other, features, TEXT)


@mistakes([
    ("another model", of_another_model, ValueError, "features of 'model.layers.0.mlp'", "block_features"),
    ("no text", lambda: check_features(*prepared(), []), ValueError, "batches held no tokens", "iterator"),
    ("one batch", lambda: check_features(*prepared(), TEXT[0]), TypeError, "batches", "in a list"),
    ("no features", lambda: check_features(prepared()[0], [], TEXT), ValueError, "features is empty", "FeatureSet"),
    ("no tokens", lambda: check_features(*prepared(), TEXT, tokens=0), ValueError, "tokens", "1"),
    ("other polynomials", of_the_other_block, ValueError, "polys has no polynomial of 'model.layers.0.mlp'", "add it"),
])  # fmt: skip
def test_mistakes_are_explained(act, exception, patterns):
    assert_explained(act, exception, patterns)


def test_a_feature_that_writes_nothing_has_no_score():
    model, features = prepared()
    (found,) = check_features(model, replace(features, writes=0 * features.writes), TEXT[:1])
    assert math.isnan(found.correlation) and math.isnan(found.slope)


@pytest.mark.slow
def test_features_of_a_trained_model_beat_the_null():
    """What a principal feature writes is what the block does with its square, and a vector drawn at random is not."""
    model, tokenizer = load_model()
    text = list(token_batches(tokenizer, example_text(2_000), length=64, batch_size=16))
    name = "model.layers.1.mlp"
    moments = collect(model, text[:10], name)
    made = convert(model, moments, 3, bound=3.0, closed_form=False)
    features = block_features(made.polynomials[name], model, name, "principal", 4, inputs=moments.gaussian(name))
    noise = torch.randn(features.writes.shape, generator=torch.Generator().manual_seed(0))
    found = check_features(
        model, [features, replace(features, writes=noise.to(features.writes))], text[-1:], polys=made, tokens=512
    )
    right, null = found[:4], found[4:]
    assert min(s.polynomial_block_correlation for s in right) > 0.98
    # The correlation with a random vector of o outputs has a standard deviation of at most o^(-1/2).
    four_errors = 4 / math.sqrt(noise.shape[1])
    assert max(abs(s.square_correlation) for s in null) < four_errors < min(s.square_correlation for s in right)
    assert max(abs(s.block_correlation) for s in null) < four_errors
