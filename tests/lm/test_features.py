"""Features of blocks: what they read and write, where they are large on text, and what steering them does."""

import numpy as np
import pytest
import torch
from support import tiny_models
from support.backends import assert_close
from support.mixtures_of_experts import mixtral
from support.tiny_models import VOCABULARY, D, recorded, shaken, token_ids

import mlpoly as mp
from mlpoly.importers import find_blocks
from mlpoly.lm import block_features, check_features, collect, graft, read_features, steer
from mlpoly.lm.model.tracing import trace
from mlpoly.lm.reading.block_features import logit_directions

BLOCK = "model.layers.1.mlp"
WORDS = [f"<w{i}>" for i in range(VOCABULARY)]
KINDS = ("principal", "token", "term", "form", "neuron", "direction", "pca", "random")
SQUARES = tuple(kind for kind in KINDS if kind not in ("form", "neuron"))


def model_and_polynomials(make=tiny_models.llama, degree=2):
    model = shaken(make(initializer_range=0.3))
    moments = collect(model, token_ids(4, b=4, t=12))
    return model, {b.name: mp.fit(b.net(), moments.gaussian(b.name), degree) for b in find_blocks(model)}


@pytest.fixture(scope="module")
def small():
    model, polys = model_and_polynomials()
    return model, polys[BLOCK]


def made(small, kind, k=4, **options):
    model, poly = small
    options |= {"token": {"token": 5}, "direction": {"directions": np.eye(D)[:k]}}.get(kind, {})
    return block_features(poly, model, BLOCK, kind, k, **options)


def seen_at_block(model, batch, outputs=False):
    """What enters or leaves the block (b, t, d)."""
    ids = batch["input_ids"] if isinstance(batch, dict) else batch
    return recorded(model, [batch], {BLOCK: model.get_submodule(BLOCK)}, outputs)[BLOCK].unflatten(0, ids.shape)


def inputs_of(model, batch):
    return seen_at_block(model, batch)


def block_output(model, batch):
    return seen_at_block(model, batch, outputs=True)


@pytest.mark.parametrize("make", [tiny_models.llama, tiny_models.gpt2, tiny_models.gemma2])
def test_what_a_token_feature_writes_to_its_own_logit_is_its_eigenvalue(make):
    model, polys = model_and_polynomials(make)
    name, poly = list(polys.items())[1]
    weight = model.get_output_embeddings().weight.detach()
    u = logit_directions(model, name, weight[5])
    expected = mp.eigenfeatures(poly, output=u, k=3, metric="whitened")
    found = block_features(poly, model, name, "token", 3, token=5)
    assert_close(found.writes @ u, expected.values, 1e-10)
    assert_close(found.directions.abs(), expected.directions.abs(), 1e-9)
    readings = read_features(model, found, token_ids(3), tokens=VOCABULARY, wiring=trace(model, [0]))
    seen = sorted({i for batch in token_ids(3) for i in batch.flatten().tolist()})
    assert 5 in seen
    changes = logit_directions(model, name, weight[seen]) @ found.writes.T
    for r, reading in enumerate(readings):
        scores = {t.id: t.score for t in reading.raises}
        assert scores[5] == pytest.approx(float(expected.values[r] - changes[:, r].mean()), abs=1e-10)
        assert [t.id for t in reading.lowers] == [t.id for t in reversed(reading.raises)]


def test_directions_of_logits_in_llama_are_those_computed_by_hand(small):
    model, poly = small
    weight, scale = model.lm_head.weight.detach(), model.model.norm.weight.detach()
    u = (weight[5] - weight[6]) * scale
    assert_close(logit_directions(model, BLOCK, weight[5] - weight[6]), u, 1e-12)
    found = block_features(poly, model, BLOCK, "token", 2, difference=(5, 6))
    expected = mp.eigenfeatures(poly, output=u, k=2, metric="whitened").values
    assert_close(found.writes @ u, expected, 1e-10)
    assert found.names == ("towards #5 − #6, 0", "towards #5 − #6, 1")


@pytest.mark.parametrize("kind", SQUARES)
def test_values_have_mean_zero_and_variance_one_under_the_moments(small, kind):
    found, inputs = made(small, kind), small[1].inputs
    covariance = torch.as_tensor(inputs.covariance)
    assert_close(found.center, inputs.mean, 1e-12)
    assert_close((found.functionals @ covariance * found.functionals).sum(1), torch.ones(4), 1e-9)
    assert_close(found.directions, found.functionals @ covariance, 1e-9)  # the regression of the input on the value
    x = torch.randn(5, D, dtype=torch.float64)
    assert_close(found.values(x), (x - found.center) @ found.functionals.T, 1e-12)
    assert_close(found.amounts(x), found.values(x) ** 2 - 1, 1e-12)


@pytest.mark.parametrize("kind", [kind for kind in SQUARES if kind != "term"])
def test_a_square_writes_what_the_quadratic_says_along_its_direction(small, kind):
    """Whatever else the polynomial does, its second difference along the direction is twice what is written."""
    found, poly = made(small, kind), small[1]
    x = torch.randn(1, D, dtype=torch.float64)
    second = poly(x + found.directions) + poly(x - found.directions) - 2 * poly(x)
    assert_close(second / 2, found.writes, 1e-9)
    assert_close(found.strengths, 2**0.5 * torch.linalg.vector_norm(found.writes, dim=1), 1e-12)


def test_forms_are_the_part_of_degree_two_along_principal_directions(small):
    found, poly = made(small, "form"), small[1]
    forms = mp.principal_forms(poly, 2, 4)
    x = torch.randn(7, D, dtype=torch.float64)
    part = (poly(x) - poly.truncate(1)(x)) @ torch.as_tensor(forms.outputs).T
    scales = torch.as_tensor(forms.values).sqrt()
    assert_close(found.values(x), part / scales, 1e-9)
    assert_close(found.amounts(x) @ found.writes, part @ torch.as_tensor(forms.outputs), 1e-9)


def test_neurons_are_hidden_units_and_write_their_columns(small):
    model, poly = small
    found, mlp = made(small, "neuron"), model.get_submodule(BLOCK)
    inputs, n = poly.inputs, 100_000
    noise = torch.randn(n, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = torch.as_tensor(inputs.mean) + noise @ torch.linalg.cholesky(torch.as_tensor(inputs.covariance)).T
    with torch.no_grad():
        hidden = mlp.act_fn(mlp.gate_proj(x)) * mlp.up_proj(x)
    values = found.values(x)
    for r, name in enumerate(found.names):
        unit = int(name.removeprefix("neuron "))
        assert abs(np.corrcoef(values[:, r], hidden[:, unit])[0, 1]) > 1 - 1e-9
        slope = (hidden[1, unit] - hidden[0, unit]) / (values[1, r] - values[0, r])
        assert_close(found.writes[r], slope * mlp.down_proj.weight[:, unit].detach(), 1e-6)
        # The mean is exact under the Gaussian; the spread is that of the quadratic, which misses what is above.
        assert abs(float(values[:, r].mean())) < 5 * float(values[:, r].std()) / n**0.5
        assert 0.99 < float(values[:, r].std()) < 1.5
    assert found.strengths.tolist() == sorted(found.strengths.tolist(), reverse=True)


def test_principal_features_are_eigenvectors_of_principal_forms_each_direction_once(small):
    found, forms = made(small, "principal", 6), mp.principal_forms(small[1], 2, 6)
    whitened = found.functionals @ torch.as_tensor(small[1].inputs.root)
    overlap = (whitened @ whitened.T).abs() - torch.eye(6)
    assert float(overlap.max()) < 0.9
    for r, name in enumerate(found.names):
        form, place = (int(word) for word in name.replace("form ", "").replace("eigenvector ", "").split(", "))
        vector = torch.as_tensor(forms.features(form, 3).vectors)[place]
        assert abs(float(vector @ whitened[r])) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_slices_are_the_same_features(small, kind):
    found, x = made(small, kind), torch.randn(3, D, dtype=torch.float64)
    for chosen, places in ((found[1], [1]), (found[-1], [3]), (found[1:3], [1, 2]), (found[[2, 0]], [2, 0])):
        assert chosen.names == tuple(found.names[i] for i in places) and len(chosen) == len(places)
        assert_close(chosen.values(x), found.values(x)[:, places], 1e-12)
        assert_close(chosen.amounts(x) @ chosen.writes, found.amounts(x)[:, places] @ found.writes[places], 1e-12)


@pytest.mark.parametrize("make", [tiny_models.bert, tiny_models.albert])
def test_a_head_that_transforms_the_residual_stream_has_no_logits_of_features(make):
    """The rows of the unembedding are no directions of the residual stream there; in ALBERT not even of its width."""
    model, polys = model_and_polynomials(make)
    name, poly = list(polys.items())[-1]
    features, batches = block_features(poly, model, name, k=3), token_ids(2)
    found = read_features(model, features, batches, tokenizer=WORDS)
    assert all(reading.raises == reading.lowers == () and reading.positive for reading in found)
    assert "raises and lowers: the head does not read the residual stream" in str(found[0])
    assert str(found).splitlines()[2:]  # it prints as a table all the same
    for refused in (
        lambda: check_features(model, features, batches),
        lambda: block_features(poly, model, name, "token", token=5),
    ):
        with pytest.raises(ValueError, match="no direct path to its logits"):
            refused()


def padded(n):
    """Batches with padding on the left or on the right of some sequences."""
    batches = []
    for number, ids in enumerate(token_ids(n, b=4, t=9, seed=3)):
        mask = torch.ones_like(ids)
        for row, count in enumerate((0, 2, 5, 1)):
            if count:
                mask[row, slice(0, count) if number % 2 else slice(-count, None)] = 0
        batches.append({"input_ids": ids * mask, "attention_mask": mask})
    return batches


@pytest.mark.parametrize("kind", ["principal", "neuron"])
def test_contexts_distributions_and_explained_variance_against_brute_force(small, kind):
    model, _ = small
    found, batches = made(small, kind), padded(3)
    readings = read_features(model, found, batches, tokenizer=WORDS, contexts=5, window=(2, 1))
    sequences = []  # of tokens that count, with the values there
    rows = []
    for batch in batches:
        x = inputs_of(model, batch)
        for ids, inside, keep in zip(batch["input_ids"], x, batch["attention_mask"].bool(), strict=True):
            sequences.append((ids[keep].tolist(), found.values(inside[keep])))
            rows.append(inside[keep])
    x = torch.cat(rows)
    values, amounts = found.values(x), found.amounts(x)
    with torch.no_grad():
        y = model.get_submodule(BLOCK)(x)
    for r, reading in enumerate(readings):
        assert (reading.block, reading.kind, reading.name, reading.rank) == (BLOCK, kind, found.names[r], r)
        for sign, side in ((1, reading.positive), (-1, reading.negative)):
            peaks = sorted(((float(sign * v[:, r].max() if sign > 0 else v[:, r].min()), i)
                            for i, (_, v) in enumerate(sequences)), key=lambda pair: -sign * pair[0])[:5]  # fmt: skip
            assert len(side) == 5
            for context, (value, i) in zip(side, peaks, strict=True):
                ids, own = sequences[i]
                place = int((sign * own[:, r]).argmax())
                begin = max(0, place - 2)
                assert context.value == pytest.approx(value, rel=1e-5)
                assert context.tokens == tuple(WORDS[j] for j in ids[begin : place + 2])
                assert context.values == pytest.approx(own[begin : place + 2, r].tolist(), rel=1e-5, abs=1e-6)
                assert context.peak == place - begin
        expected, _ = np.histogram(values[:, r].clamp(-7.999, 7.999), bins=64, range=(-8, 8))
        assert reading.histogram == pytest.approx((expected / len(x)).tolist())
        assert reading.active == pytest.approx(float((values[:, r].abs() > 2).double().mean()))
        left = (y - amounts[:, [r]] * found.writes[r]).var(0).sum() / y.var(0).sum()
        assert reading.explained == pytest.approx(1 - float(left), abs=1e-9)


def test_tokens_that_the_text_does_not_have_are_left_out(small):
    few = [torch.tensor([[3, 4, 5, 6, 7, 3, 4]])]
    for reading in read_features(small[0], made(small, "principal"), few, tokens=VOCABULARY):
        assert {t.id for t in reading.raises} == {t.id for t in reading.lowers} == {3, 4, 5, 6, 7}
        assert sum(t.score for t in reading.raises) == pytest.approx(0, abs=1e-10)
        assert len(reading.positive) == 1  # there is one sequence


def test_batches_do_not_matter(small):
    found, ids = made(small, "principal"), token_ids(1, b=12)[0]
    whole = read_features(small[0], found, [ids], contexts=4)
    for one, other in zip(whole, read_features(small[0], found, list(ids.split(5)), contexts=4), strict=True):
        assert [c.tokens for c in one.positive] == [c.tokens for c in other.positive]
        assert one.histogram == other.histogram
        assert one.explained == pytest.approx(other.explained, abs=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_steering_sets_values_and_leaves_the_model_as_it_was(small, kind):
    model, found, ids = small[0], made(small, kind), token_ids(1)[0]
    with torch.no_grad():
        before, x, y = model(ids).logits, inputs_of(model, ids), block_output(model, ids)
        for chosen in (found[1], found[[0, 2]], found):
            with steer(model, chosen, 1.0):
                assert_close(model(ids).logits, before, 1e-9)
            for factor in (0.0, 2.0):
                with steer(model, chosen, factor):
                    if chosen.squares:
                        assert_close(chosen.values(inputs_of(model, ids)), factor * chosen.values(x), 1e-8)
                    else:
                        change = (factor - 1) * chosen.amounts(x.flatten(0, 1)) @ chosen.writes
                        assert_close(block_output(model, ids), y + change.reshape(y.shape), 1e-9)
            with steer(model, chosen, 0.7, "add"):
                assert_close(block_output(model, ids), y + 0.7 * chosen.writes.sum(0), 1e-9)
                assert_close(inputs_of(model, ids), x, 1e-12)
    with pytest.raises(KeyboardInterrupt), steer(model, found, 0.0):
        raise KeyboardInterrupt
    with torch.no_grad():
        assert torch.equal(model(ids).logits, before)


def test_steering_inside_a_graft_steers_the_polynomial(small):
    model, poly = small
    found, ids = made(small, "principal"), token_ids(1)[0]
    with graft(model, {BLOCK: poly}), steer(model, found[0], 0.0), torch.no_grad():
        x = inputs_of(model, ids)
        assert_close(found[0].values(x), torch.zeros(*x.shape[:-1], 1), 1e-9)
        assert_close(block_output(model, ids), poly(x), 1e-9)
    with steer(model, found[0], 0.0), graft(model, {BLOCK: poly}), pytest.raises(RuntimeError, match="inside graft"):
        model(ids)
    other = {"model.layers.0.mlp": poly}
    with steer(model, found[0], 0.0), graft(model, other), torch.no_grad():
        assert_close(found[0].values(inputs_of(model, ids)), torch.zeros(*x.shape[:-1], 1), 1e-9)


def test_an_expert_is_steered_at_its_own_tokens():
    model, (ids,) = mixtral(), token_ids(1)
    name = "model.layers.1.mlp.experts.2"
    moments = collect(model, token_ids(40), name)
    (block,) = find_blocks(model, name)
    inputs = moments.gaussian(name)
    poly = mp.fit(block.net(), inputs, 2)
    features = block_features(poly, model, name, k=3, inputs=inputs)
    modules = [(name, id(module)) for name, module in model.named_modules()]
    chosen = []
    handle = model.model.layers[1].mlp.experts.register_forward_pre_hook(lambda _, args: chosen.append(args[1]))
    with torch.no_grad():
        before = model(ids).logits
        handle.remove()
        with steer(model, features, 0.0):
            after = model(ids).logits
        assert torch.equal(model(ids).logits, before)
    assert [(name, id(module)) for name, module in model.named_modules()] == modules
    moved = ((after - before).abs().amax(-1) > 1e-3).flatten()  # the last layer: nothing spreads from token to token
    assert torch.equal(moved, (chosen[0] == 2).any(1)) and 0 < moved.sum() < len(moved)
    with pytest.raises(ValueError, match=r"'model.layers.1.mlp.experts.2' is an expert; a router weights"):
        read_features(model, features, token_ids(1))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"kind": "token"}, ValueError, "give one of token"),
        ({"kind": "token", "token": 1, "difference": (1, 2)}, ValueError, "give one of token"),
        ({"kind": "token", "token": 99}, ValueError, "knows the tokens 0 to 31"),
        ({"kind": "direction"}, ValueError, "give directions"),
        ({"kind": "direction", "directions": np.zeros((2, 3))}, ValueError, r"shape \(2, 3\), expected \(m, 16\)"),
        ({"kind": "other"}, ValueError, "kind must be one of 'principal'"),
        ({"block": "other"}, ValueError, r"no block 'other'; its blocks are .*model\.layers\.0\.mlp"),
        ({"inputs": "moments"}, TypeError, "inputs must be a Gaussian"),
    ],
)
def test_wrong_features_say_what_to_do(small, options, error, words):
    with pytest.raises(error, match=words):
        block_features(small[1], small[0], **({"block": BLOCK} | options))


def test_features_of_another_model_and_texts_without_tokens(small):
    model, found = small[0], made(small, "principal")
    torch.manual_seed(9)
    other = shaken(tiny_models.llama(initializer_range=0.3))
    other.model.layers[1].mlp.up_proj.weight.data += 0.1
    for use in (lambda: read_features(other, found, token_ids(1)), lambda: steer(other, found).__enter__()):
        with pytest.raises(ValueError, match="belong to a block with other weights"):
            use()
    with pytest.raises(ValueError, match=r"no block 'model\.layers\.1\.mlp'; its blocks are transformer\.h\.0\.mlp"):
        read_features(tiny_models.gpt2(), found, token_ids(1))
    with pytest.raises(ValueError, match="batches held no tokens"):
        read_features(model, found, [])
    with pytest.raises(ValueError, match="features is empty"):
        read_features(model, [], token_ids(1))
    with pytest.raises(TypeError, match="features must be a FeatureSet"):
        read_features(model, ["principal"], token_ids(1))
    with pytest.raises(ValueError, match="amount must be a number"), steer(model, found, float("nan")):
        pass
    with pytest.raises(ValueError, match="how must be"), steer(model, found, 0.0, "multiply"):
        pass
