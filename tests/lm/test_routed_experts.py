"""Moments, errors and grafts of experts: against the tokens that a hook on the whole mixture sees routed to each."""

import numpy as np
import pytest
import torch
import transformers
from support.backends import assert_close
from support.mixtures_of_experts import MIXTURES, D, mixtral, olmoe, qwen
from support.tiny_models import token_ids
from torch import nn

import mlpoly as mp
from mlpoly.importers.experts import is_expert
from mlpoly.lm import attribute, collect, convert, evaluate, graft


def routed(model, batches):
    """Inputs (n, d) of each expert and their positions (n,), from hooks on the modules of all experts."""
    seen = {}
    kept = np.zeros(0, bool)
    length = 0

    def keep(name):
        def hook(module, args):
            x, chosen = args[0].detach().double().numpy(), args[1].numpy()
            for number in range(len(module.down_proj)):
                rows = (chosen == number).any(1) & kept
                seen.setdefault(f"{name}.{number}", []).append((x[rows].copy(), np.arange(len(x))[rows] % length))

        return hook

    mixtures = [(n, m) for n, m in model.named_modules() if type(m).__name__.endswith("Experts")]
    handles = [module.register_forward_pre_hook(keep(name)) for name, module in mixtures]
    with torch.no_grad():
        for batch in batches:
            given = batch if isinstance(batch, dict) else {"input_ids": batch}
            kept = given.get("attention_mask", torch.ones_like(given["input_ids"])).flatten().numpy() != 0
            length = given["input_ids"].shape[1]
            model(**given)
    for handle in handles:
        handle.remove()
    parts = {name: tuple(np.concatenate(a) for a in zip(*found, strict=True)) for name, found in seen.items()}
    return {name: (x, positions) for name, (x, positions) in parts.items() if len(x)}


@pytest.mark.parametrize("make", MIXTURES)
def test_moments_are_those_of_the_routed_tokens(make):
    model, batches = make(), token_ids(8)
    found, expected = collect(model, batches, groups="first"), routed(model, batches)
    assert {name for name in found.names if ".experts." in name} == set(expected) and len(expected) >= 4
    assert found.tokens == 8 * 21
    for name, (rows, positions) in expected.items():
        assert sum(part.count for part in found.groups(name).values()) == len(rows)
        assert_close(found.gaussian(name).mean, rows.mean(0), 1e-5)  # sums over experts are rounded in another order
        assert_close(found.gaussian(name).cov, np.cov(rows, rowvar=False, bias=True), 1e-5)
        counts = {n: part.count for n, part in found.groups(name).items()}
        first = int((positions == 0).sum())
        assert sorted(counts.values()) == sorted(c for c in (first, len(rows) - first) if c)


def test_experts_without_tokens_are_left_out_with_a_warning():
    model, batches = olmoe(), [torch.tensor([[1, 2]])]
    with pytest.warns(UserWarning, match=r"none of the 2 tokens was routed to \d+ experts"):
        found = collect(model, batches)
    assert set(found.names) == set(routed(model, batches))
    with pytest.warns(UserWarning, match="none of the 2 tokens"):
        moments = collect(model, token_ids(8))
        made = convert(model, moments, degree=1, held_out=batches, closed_form=False)
    measured = {name for name, errors in made.errors.items() if errors.typical is not None}
    assert measured == set(found.names) < set(moments.names)


@pytest.mark.filterwarnings("ignore:none of the 6 tokens")
def test_a_pass_that_stopped_before_some_experts_were_reached_resumes(tmp_path):
    model, batches = olmoe(), [torch.tensor([[1, 2]]), torch.tensor([[5, 7]]), torch.tensor([[9, 3]])]

    def stops():
        yield batches[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(model, stops(), save_to=tmp_path / "stopped", save_every=0)
    resumed = collect(model, batches, save_to=tmp_path / "stopped", save_every=0)
    whole = collect(model, batches, save_to=tmp_path / "whole", save_every=0)
    assert resumed.names == whole.names and 2 < len(whole.names) < 16
    for name in whole.names:
        assert torch.equal(resumed.gaussian(name).mean, whole.gaussian(name).mean)
        assert torch.equal(resumed.gaussian(name).cov, whole.gaussian(name).cov)


@pytest.mark.parametrize("make", MIXTURES)
def test_grafting_the_exact_networks_changes_nothing(make):
    model, (ids,) = make(), token_ids(1)
    blocks = mp.find_blocks(model)
    modules = [(name, id(module)) for name, module in model.named_modules()]

    class Exact(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x)

    with torch.no_grad():
        before = model(ids).logits
        with graft(model, {block.name: Exact(block.net()) for block in blocks}):
            torch.testing.assert_close(model(ids).logits, before, atol=2e-5, rtol=2e-5)
        one = next(block for block in blocks if ".experts." in block.name)
        with graft(model, {one.name: Exact(one.net())}):
            assert len(mp.find_blocks(model)) == len(blocks) - 1
            torch.testing.assert_close(model(ids).logits, before, atol=2e-5, rtol=2e-5)
        assert torch.equal(model(ids).logits, before)
    assert [(name, id(module)) for name, module in model.named_modules()] == modules


def test_a_graft_reaches_the_tokens_of_its_expert_alone():
    model, (ids,) = mixtral(), token_ids(1)
    name = "model.layers.1.mlp.experts.2"  # of the last layer, so that nothing spreads from token to token
    chosen = []
    handle = model.model.layers[1].mlp.experts.register_forward_pre_hook(lambda _, args: chosen.append(args[1]))
    with torch.no_grad():
        before = model(ids).logits
        handle.remove()
        with graft(model, {name: nn.Identity()}):
            after = model(ids).logits
            with graft(model, {name: mp.find_blocks(mixtral(), name)[0].module}):
                torch.testing.assert_close(model(ids).logits, before, atol=1e-5, rtol=1e-5)
    changed = ((after - before).abs().amax(-1) > 1e-3).flatten()
    assert torch.equal(changed, (chosen[0] == 2).any(1)) and 0 < changed.sum() < len(changed)


def test_degrees_of_the_experts_come_closer():
    model, train, held_out = qwen(), token_ids(40), token_ids(10, seed=1)
    moments = collect(model, train)
    costs = []
    for degree in (1, 5):
        made = convert(
            model, moments, degree, method="samples", batches=train, held_out=held_out, closed_form=degree == 1
        )
        assert set(made.polynomials) == set(moments.names) and len(moments.names) == 6
        assert all((errors.closed_form is None) == (degree > 1) for errors in made.errors.values())
        found = evaluate(model, made, held_out, calibration=train)
        costs.append(found.loss().kl)
        experts = [errors.held_out for name, errors in made.errors.items() if is_expert(name)]
        assert max(experts) < (0.9 if degree == 1 else 0.2)
    assert costs[1] < 0.1 * costs[0]
    with pytest.raises(ValueError, match=r"'model.layers.1.mlp.experts.0' is an expert; a router weights"):
        attribute(model, made, [1, 2])


def test_experts_of_models_with_modules_of_their_own():
    config = transformers.SwitchTransformersConfig(
        vocab_size=32, d_model=D, d_ff=24, d_kv=8, num_layers=2, num_decoder_layers=1, num_heads=2, num_experts=3,
        num_sparse_encoder_layers=1, num_sparse_decoder_layers=0, pad_token_id=0, decoder_start_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.SwitchTransformersForConditionalGeneration(config).eval()
    experts = [b for b in mp.find_blocks(model, "encoder.*") if is_expert(b.name)]
    assert len(experts) >= 3
    x = torch.randn(5, D)
    torch.testing.assert_close(experts[0].net()(x), experts[0].module(x).detach())
    with pytest.raises(ValueError, match=r"is an expert of a mixture that was given \d+ of the 21 tokens in batch 0"):
        collect(model, token_ids(1), "encoder.*")


def test_a_study_of_a_mixture(tmp_path):
    from mlpoly.lm import study_lm

    model = qwen()
    model.save_pretrained(tmp_path / "model")
    np.save(tmp_path / "ids.npy", torch.cat(token_ids(20, t=12)).numpy())
    options = {
        "tokens": 480,
        "held_out_tokens": 72,
        "degrees": (1,),
        "degree": 2,
        "length": 12,
        "features_per_block": 1,
    }
    found = study_lm(tmp_path / "model", tmp_path / "ids.npy", tmp_path / "out", **options)
    assert {s.block for s in found.spectra} == {b.name for b in mp.find_blocks(model)}
    assert {f.block for f in found.features} == {"model.layers.0.mlp"} == set(found.attribution.blocks)
    assert (tmp_path / "out" / "report.html").is_file()
