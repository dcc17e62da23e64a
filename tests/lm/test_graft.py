"""Grafts: blocks that are polynomials themselves, so that replacing them must change nothing."""

import copy

import pytest
import torch
from support.strong_models import EXACT, D, bert, llama, logits, polynomials, state, token_ids
from torch import nn

import mlpoly as mp
from mlpoly.importers import find_blocks
from mlpoly.lm import collect
from mlpoly.lm.model.graft import Constant, graft


@pytest.mark.parametrize(("make", "degree"), EXACT)
def test_an_exact_polynomial_changes_nothing(make, degree):
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
def test_another_polynomial_changes_something(make, degree):
    model, (ids, _) = make(), token_ids()
    before = logits(model, ids)
    with graft(model, polynomials(model, degree - 1)):
        assert (logits(model, ids) - before).abs().max() > 1e-3


class Layer(nn.Module):
    """A residual block of a class of its own, or as a part of the layer."""

    def __init__(self, part):
        super().__init__()
        self.part = part
        if part:  # as in OPT
            self.self_attn, self.activation_fn = nn.Identity(), nn.GELU()
            self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 4)
        else:
            self.mlp = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))

    def forward(self, x):
        return x + (self.fc2(self.activation_fn(self.fc1(x))) if self.part else self.mlp(x))


@pytest.mark.parametrize(
    ("place", "part"), [("model", False), ("layer", False), ("block", False), ("model", True), ("layer", True)]
)
def test_compiled_models_have_their_blocks_under_their_names(place, part):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Embedding(10, 4), Layer(part), Layer(part))
    model = copy.deepcopy(plain)
    if place == "block":
        model[1].mlp = torch.compile(model[1].mlp, backend="eager")
    elif place == "layer":
        model[1] = torch.compile(model[1], backend="eager")
    else:
        model = torch.compile(model, backend="eager")
    ids = torch.arange(10).reshape(2, 5)
    with torch.no_grad():
        before = model(ids)  # compiled code without any hooks
        names = ["1", "2"] if part else ["1.mlp", "2.mlp"]
        assert [block.name for block in find_blocks(model)] == names
        assert [block.name for block in find_blocks(model, names[0])] == names[:1]
        poly = mp.fit(find_blocks(model)[0].net(), mp.Gaussian.standard(4), 2)
        with graft(model, {names[0]: poly}), graft(plain, {names[0]: poly}):
            assert torch.equal(model(ids), plain(ids))
            assert not torch.allclose(model(ids), before)
        assert torch.equal(model(ids), before)
    found, expected = (collect(m, [ids]) for m in (model, plain))
    for name in names:
        assert torch.equal(found.gaussian(name).cov, expected.gaussian(name).cov)


@pytest.mark.parametrize("make", [llama, bert])
def test_the_inner_of_two_grafts_counts(make):
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
def test_an_error_leaves_the_model_as_it_was(make):
    model, (ids, _) = make(), token_ids()
    as_it_was = state(model)

    class Broken(nn.Module):
        def forward(self, x):
            raise ArithmeticError("broken")

    names = [b.name for b in find_blocks(model)]
    with pytest.raises(ArithmeticError, match="broken"), graft(model, {n: Broken() for n in names}):
        logits(model, ids)
    assert state(model) == as_it_was


def test_a_module_in_two_places_is_replaced_in_both():
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    model = nn.Sequential(mlp, mlp)
    with graft(model, {"0": Constant(torch.ones(4))}):
        assert model[0] is model[1] is not mlp
    assert model[0] is model[1] is mlp


def test_a_model_that_is_its_own_block():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    with graft(model, {"": Constant(torch.ones(4))}):
        assert torch.equal(model(torch.zeros(2, 4)), torch.ones(2, 4))
    assert not torch.equal(model(torch.zeros(2, 4)), torch.ones(2, 4))


def test_wrong_names_and_kinds():
    model = llama()
    with pytest.raises(ValueError, match=r"'layers.9.mlp', which .* does not have; its blocks are model.layers.0.mlp"):
        graft(model, {"layers.9.mlp": Constant(torch.zeros(D))}).__enter__()
    with pytest.raises(TypeError, match="must be a Conversion, or map names"):
        graft(model, 3).__enter__()
    with pytest.raises(TypeError, match=r"must be a polynomial or a torch\.nn\.Module, got int"):
        graft(model, {"model.layers.0.mlp": 3}).__enter__()
