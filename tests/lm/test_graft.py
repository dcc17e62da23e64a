"""Grafts and evaluations: blocks that are polynomials themselves, so that replacing them must change nothing."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported; nothing is downloaded here

import pytest

import mlpoly as mp

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from support.strong_models import EXACT, VOCABULARY, D, bert, gpt2, llama, logits, state, strong, token_ids  # noqa: E402
from torch import nn  # noqa: E402 - after importorskip

from mlpoly.integrations import find_blocks  # noqa: E402
from mlpoly.lm.convert.convert import convert  # noqa: E402
from mlpoly.lm.evaluate.baselines import BASELINES, baseline_modules  # noqa: E402
from mlpoly.lm.evaluate.losses import evaluate  # noqa: E402
from mlpoly.lm.model.graft import Constant, graft  # noqa: E402
from mlpoly.lm.moments.collect import collect  # noqa: E402


def polynomials(model: nn.Module, degree: int) -> dict[str, Any]:
    return {b.name: mp.fit(b.net(), mp.Gaussian.standard(D), degree) for b in find_blocks(model)}


@pytest.mark.parametrize(("make", "degree"), EXACT)
def test_an_exact_polynomial_changes_nothing(make: Any, degree: int) -> None:
    model, (ids, _) = make(), token_ids()
    before, as_it_was = logits(model, ids), state(model)
    polys = polynomials(model, degree)
    with graft(model, polys) as inside:
        assert inside is model
        assert state(model) != as_it_was
        torch.testing.assert_close(logits(model, ids), before, atol=1e-5, rtol=1e-5)
    assert state(model) == as_it_was
    assert torch.equal(logits(model, ids), before)


@pytest.mark.parametrize(("make", "degree"), EXACT)
def test_another_polynomial_changes_something(make: Any, degree: int) -> None:
    model, (ids, _) = make(), token_ids()
    before = logits(model, ids)
    with graft(model, polynomials(model, degree - 1)):
        assert (logits(model, ids) - before).abs().max() > 1e-3


def test_the_block_itself_does_not_run() -> None:
    model, (ids, _) = llama(), token_ids()
    name = find_blocks(model)[0].name
    calls = []
    handle = find_blocks(model)[0].module.register_forward_hook(lambda *_: calls.append(1))
    with graft(model, {name: Constant(torch.zeros(D))}):
        logits(model, ids)
    assert not calls
    logits(model, ids)
    assert calls
    handle.remove()


@pytest.mark.parametrize("make", [llama, bert])
def test_the_inner_of_two_grafts_counts(make: Any) -> None:
    model, (ids, _) = make(), token_ids()
    as_it_was = state(model)
    first, second = (b.name for b in find_blocks(model))
    zero, one = Constant(torch.zeros(D)), Constant(torch.ones(D))
    with graft(model, {first: one}):
        only_one = logits(model, ids)
    with graft(model, {first: one, second: one}):
        both = logits(model, ids)
    with graft(model, {first: zero}):
        only_zero = logits(model, ids)
        with graft(model, {first: one}):
            assert torch.equal(logits(model, ids), only_one)
            with graft(model, {second: one}):
                assert torch.equal(logits(model, ids), both)
        assert torch.equal(logits(model, ids), only_zero)
    assert state(model) == as_it_was


@pytest.mark.parametrize("make", [llama, bert])
def test_an_error_leaves_the_model_as_it_was(make: Any) -> None:
    model, (ids, _) = make(), token_ids()
    as_it_was = state(model)

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ArithmeticError("broken")

    names = [b.name for b in find_blocks(model)]
    with pytest.raises(ArithmeticError, match="broken"), graft(model, {n: Broken() for n in names}):
        logits(model, ids)
    assert state(model) == as_it_was


@pytest.mark.parametrize("make", [llama, bert])
def test_grafts_may_be_left_in_any_order(make: Any) -> None:
    model, (ids, _) = make(), token_ids()
    as_it_was, first = state(model), find_blocks(model)[0].name
    zero, one = Constant(torch.zeros(D)), Constant(torch.ones(D))
    with graft(model, {first: one}):
        only_one = logits(model, ids)
    for again in (one, zero):  # the same module may stand in both
        outer, inner = graft(model, {first: again}), graft(model, {first: one})
        outer.__enter__()
        inner.__enter__()
        outer.__exit__(None, None, None)
        assert torch.equal(logits(model, ids), only_one)
        inner.__exit__(None, None, None)
        assert state(model) == as_it_was


def test_a_module_in_two_places_is_replaced_in_both() -> None:
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    model = nn.Sequential(mlp, mlp)
    with graft(model, {"0": Constant(torch.ones(4))}):
        assert model[0] is model[1] is not mlp
    assert model[0] is model[1] is mlp


def test_a_model_that_is_its_own_block() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    with graft(model, {"": Constant(torch.ones(4))}):
        assert torch.equal(model(torch.zeros(2, 4)), torch.ones(2, 4))
    assert not torch.equal(model(torch.zeros(2, 4)), torch.ones(2, 4))


def test_wrong_names_and_kinds() -> None:
    model = llama()
    with pytest.raises(ValueError, match=r"'layers.9.mlp', which .* does not have; its blocks are model.layers.0.mlp"):
        graft(model, {"layers.9.mlp": Constant(torch.zeros(D))}).__enter__()
    with pytest.raises(TypeError, match="must be a Conversion, or map names"):
        graft(model, 3).__enter__()
    with pytest.raises(TypeError, match=r"must be a polynomial or a torch\.nn\.Module, got int"):
        graft(model, {"model.layers.0.mlp": 3}).__enter__()


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [llama, gpt2])
def test_nothing_replaced_is_the_models_own_loss(make: Any) -> None:
    model, batches = make("relu"), token_ids()
    found = evaluate(model, {}, batches, baselines=())
    with torch.no_grad():
        own = sum(model(ids, labels=ids).loss.item() for ids in batches) / len(batches)
    assert found.original == pytest.approx(own, rel=1e-6)
    assert found.tokens == 2 * 3 * 6
    assert [(r.replaced, r.by, r.kl) for r in found.rows] == [("none", "", 0.0), ("all", "polynomial", 0.0)]


def test_padding_does_not_count() -> None:
    model, (ids, _) = llama("silu"), token_ids()
    name = find_blocks(model)[0].name
    polys = {name: mp.fit(find_blocks(model)[0].net(), mp.Gaussian.standard(D), 1)}
    padded = {"input_ids": nn.functional.pad(ids, (0, 4)), "attention_mask": nn.functional.pad(ids * 0 + 1, (0, 4))}
    plain, found = evaluate(model, polys, [ids]), evaluate(model, polys, [padded])
    assert found.tokens == plain.tokens
    for one, other in zip(plain.rows, found.rows, strict=True):
        assert (one.cross_entropy, one.kl) == pytest.approx((other.cross_entropy, other.kl), rel=1e-4, abs=1e-7)


def test_labels_of_a_masked_model() -> None:
    model, (ids, _) = bert("gelu"), token_ids()
    labels = torch.where(torch.arange(7) < 3, ids, -100)
    found = evaluate(model, {}, [{"input_ids": ids, "labels": labels}], baselines=(), next_token=False)
    with torch.no_grad():
        assert found.original == pytest.approx(model(ids, labels=labels).loss.item(), rel=1e-6)
    assert found.tokens == 9


def test_rows_of_an_evaluation() -> None:
    model, batches = llama("silu"), token_ids(4)
    conversion = convert(model, collect(model, batches), 4, closed_form=False)
    found = evaluate(model, conversion, batches, each=True)
    names = [b.name for b in find_blocks(model)]
    expected = [
        ("none", ""),
        ("all", "polynomial"),
        *(("all", b) for b in BASELINES),
        *((n, "polynomial") for n in names),
    ]
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


def test_models_that_add_to_a_blocks_output_in_place() -> None:
    """Falcon adds the attention's output to that of the block, in the block's memory."""
    torch.manual_seed(0)
    options = {"vocab_size": VOCABULARY, "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 2}
    model, batches = strong(transformers.FalconForCausalLM(transformers.FalconConfig(**options))), token_ids(4)
    found = evaluate(model, convert(model, collect(model, batches), 3, closed_form=False), batches)
    assert [row.by for row in found.rows] == ["", "polynomial", *BASELINES]
    again = evaluate(model, polynomials(model, 3), batches)
    assert found.rows[2:] == again.rows[2:]  # nothing was left in the constants' memory


@pytest.mark.parametrize("shape", [(2, 5, 4), (1, 1, 4), (4,)])
def test_constants_come_in_memory_of_their_own(shape: tuple[int, ...]) -> None:
    module = Constant(torch.ones(3))
    made = module(torch.zeros(shape))
    made += 1
    assert torch.equal(made, torch.full((*shape[:-1], 3), 2.0))
    assert torch.equal(module.value, torch.ones(3))


def test_the_linear_baseline_is_least_squares() -> None:
    model, batches = llama("silu"), token_ids(6)
    block = find_blocks(model)[1]
    rows: list[torch.Tensor] = []
    handle = block.entry.register_forward_pre_hook(lambda m, args: rows.append(args[0].reshape(-1, D).double()))
    for ids in batches:
        logits(model, ids)
    handle.remove()
    x = torch.cat(rows)
    y = block.net()(x.float()).double()
    made = baseline_modules(model, {block.name: None}, batches, ("linear", "mean"))
    solved = torch.linalg.lstsq(torch.cat([x, torch.ones(len(x), 1)], 1), y).solution
    torch.testing.assert_close(made["linear"][block.name].weight.double(), solved[:-1].T, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(made["mean"][block.name].value.double(), y.mean(0), atol=1e-6, rtol=1e-5)


def test_a_model_without_logits_is_refused() -> None:
    model, batches = llama("silu"), token_ids()
    with pytest.raises(TypeError, match="not logits"):
        evaluate(model.model, {}, batches, baselines=())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_models_in_sixteen_bits_have_all_baselines(dtype: torch.dtype) -> None:
    """The linear map is computed in float32, and its values are the model's."""
    model = llama("silu")
    expected = evaluate(model, polynomials(model, 3), token_ids(3))
    narrow = model.to(dtype)
    found = evaluate(narrow, {name: p.to_torch() for name, p in polynomials(narrow, 3).items()}, token_ids(3))
    assert [row.by for row in found.rows] == ["", "polynomial", "removed", "mean", "linear"]
    for row, other in zip(found.rows, expected.rows, strict=True):
        assert row.cross_entropy == pytest.approx(other.cross_entropy, rel=0.02)  # 8 bits, all the way through
