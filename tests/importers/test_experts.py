"""Experts of mixtures as blocks: their networks and their order, against the model's own arithmetic."""

import pytest
import torch
import transformers
from support.mixtures_of_experts import MIXTURES, D, mixtral

import mlpoly as mp
from mlpoly.importers.experts import Expert, unrolled


@pytest.mark.parametrize("make", MIXTURES)
def test_networks_of_the_experts_add_up_to_the_mixture(make):
    model = make()
    stacked = {n: m for n, m in model.named_modules() if type(m).__name__.endswith("Experts")}
    blocks = {block.name: block for block in mp.find_blocks(model)}
    generator = torch.Generator().manual_seed(0)
    for name, module in stacked.items():
        count = len(module.down_proj)
        nets = [blocks[f"{name}.{i}"].net() for i in range(count)]
        x = 3 * torch.randn(20, D, generator=generator)
        chosen = torch.stack([torch.randperm(count, generator=generator)[:2] for _ in range(20)])
        weights = torch.rand(20, 2, generator=generator)
        expected = sum(
            weights[:, k, None] * torch.stack([nets[i](row) for i, row in zip(chosen[:, k], x, strict=True)])
            for k in range(2)
        )
        torch.testing.assert_close(module(x, chosen, weights).detach(), expected, atol=1e-5, rtol=1e-4)


def test_experts_that_do_something_else_are_refused():
    model = mixtral()
    experts = model.model.layers[0].mlp.experts
    forward = experts.forward
    block = mp.find_blocks(model)[0]
    experts.forward = lambda x, chosen, weights: forward(x.clamp(-50, 50), chosen, weights)
    with pytest.raises(TypeError, match="an expert of MixtralExperts has weights as in Mixtral"):
        block.net()
    experts.forward = lambda x, chosen, weights: forward(x * weights[:, :1], chosen, weights)
    with pytest.raises(TypeError, match="one by one, weighted, do not add up"), unrolled(model, [block.module]):
        pass
    assert isinstance(model.model.layers[0].mlp.experts, type(experts))
    config = transformers.GptOssConfig(
        vocab_size=32, hidden_size=D, intermediate_size=24, num_hidden_layers=1, num_local_experts=4,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, pad_token_id=0,
    )  # fmt: skip
    with pytest.raises(TypeError, match=r"'layers.0.mlp' is a mixture of experts.*of a kind that is not known"):
        mp.find_blocks(transformers.GptOssModel(config))


@pytest.mark.parametrize("make", MIXTURES)
def test_an_unrolled_model_computes_the_same_and_is_restored(make):
    model = make()
    ids = torch.arange(1, 15).reshape(2, 7)
    before = [(name, id(module)) for name, module in model.named_modules()]
    experts = [b.module for b in mp.find_blocks(model) if isinstance(b.module, Expert)]
    with torch.no_grad():
        expected = model(ids).logits
        with unrolled(model, experts[:1]), unrolled(model, experts):
            assert len([m for m in model.modules() if isinstance(m, Expert)]) == len(experts)
            assert [b.name for b in mp.find_blocks(model)] == [b.name for b in mp.find_blocks(make())]
            torch.testing.assert_close(model(ids).logits, expected, atol=1e-6, rtol=1e-5)
        assert torch.equal(model(ids).logits, expected)
    assert [(name, id(module)) for name, module in model.named_modules()] == before
