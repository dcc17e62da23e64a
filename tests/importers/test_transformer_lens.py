"""Blocks with the parameters of TransformerLens; the modules compute the same as there."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import mlpoly as mp
from mlpoly.importers import find_blocks, from_torch

D, H = 5, 7


def gelu_new(x):
    """As TransformerLens defines it."""
    return 0.5 * x * (1.0 + torch.tanh((2.0 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))))


def normal(*shape):
    return nn.Parameter(torch.randn(*shape, dtype=torch.float64))


class PlainBlock(nn.Module):
    def __init__(self, act_fn=gelu_new):
        super().__init__()
        self.W_in, self.b_in, self.W_out, self.b_out = normal(D, H), normal(H), normal(H, D), normal(D)
        self.act_fn, self.hook_pre, self.hook_post = act_fn, nn.Identity(), nn.Identity()

    def forward(self, x):
        pre = self.hook_pre(x @ self.W_in + self.b_in)
        return self.hook_post(self.act_fn(pre)) @ self.W_out + self.b_out


class GatedBlock(PlainBlock):
    """The bias b_in is added to the product."""

    inside = False

    def __init__(self, act_fn=functional.silu):
        super().__init__(act_fn)
        self.W_gate = normal(D, H)

    def forward(self, x):
        gate, up = self.act_fn(x @ self.W_gate), x @ self.W_in
        return (gate * (up + self.b_in) if self.inside else gate * up + self.b_in) @ self.W_out + self.b_out


class BiasInside(GatedBlock):
    inside = True


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.blocks = nn.ModuleList([nn.ModuleDict({"mlp": kind()}) for _ in range(2)])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (PlainBlock, "MLP(5 -> 7 -> 5, gelu_tanh)"),
        (lambda: PlainBlock(functional.relu), "MLP(5 -> 7 -> 5, relu)"),
        (lambda: PlainBlock(nn.GELU()), "MLP(5 -> 7 -> 5, gelu)"),
        (GatedBlock, "GLU(5 -> 7 -> 5, silu)"),
        (BiasInside, "GLU(5 -> 7 -> 5, silu)"),
    ],
)
def test_blocks(make, shown):
    module, x = make(), torch.randn(30, D, dtype=torch.float64)
    net = from_torch(module)
    assert repr(net) == shown
    torch.testing.assert_close(net(x), module(x), rtol=1e-12, atol=1e-12)
    net(x).square().sum().backward()
    found = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    module(x).square().sum().backward()
    for grad, p in zip(found, module.parameters(), strict=True):
        torch.testing.assert_close(grad, p.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", [PlainBlock, GatedBlock])
def test_blocks_of_a_model(kind):
    model = Model(kind)
    blocks = find_blocks(model)
    assert [b.name for b in blocks] == ["blocks.0.mlp", "blocks.1.mlp"]
    assert blocks[0].entry is blocks[0].exit is model.blocks[0]["mlp"]
    x = torch.randn(3, 4, D, dtype=torch.float64)
    torch.testing.assert_close(blocks[1].net()(x), model.blocks[1]["mlp"](x).detach(), rtol=1e-12, atol=1e-12)


class Doubled(PlainBlock):
    def forward(self, x):
        return 2 * super().forward(x)


class Normed(PlainBlock):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(H)


def test_names_alone_are_not_enough():
    with pytest.raises(TypeError, match=r"named as in TransformerLens, but is not the block .*register_adapter"):
        from_torch(Doubled())
    with pytest.raises(TypeError, match="does not know Normed"):
        from_torch(Normed())
    with pytest.raises(TypeError, match="does not know the activation solu"):

        def solu(x):
            return x * x.softmax(-1)

        from_torch(PlainBlock(solu))

    def gelu_fast(x):  # not what it is called
        return x.relu()

    with pytest.raises(TypeError, match="but is not the block"):
        from_torch(PlainBlock(gelu_fast))
    assert isinstance(from_torch(PlainBlock()), mp.MLP)
