"""TransformerLens and nnsight, where they are installed: what examples/hooks.py does, against `graft`."""

import importlib.util
from pathlib import Path

import pytest
import torch
from support.tiny_models import llama, token_ids

import mlpoly as mp
from mlpoly.lm import block_features, collect, convert, graft

NAME = "model.layers.1.mlp"


@pytest.fixture(scope="module")
def example():
    path = Path(__file__).parents[2] / "examples" / "hooks.py"
    spec = importlib.util.spec_from_file_location("hooks_example", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("library", ["nnsight", "transformer_lens"])
def test_hooks_of_others_do_what_graft_does(example, library):
    pytest.importorskip(library, reason=f"{library} is not installed; it is no dependency of this library")
    model, (ids,) = llama(), token_ids(1)
    with torch.no_grad():
        for weight in model.parameters():  # strong enough that a quadratic is not the block
            weight.mul_(10)
    poly = convert(model, collect(model, token_ids(20), NAME), 2, closed_form=False).polynomials[NAME]
    features = block_features(poly, model, NAME, k=3)
    inputs = []
    block = mp.find_blocks(model, NAME)[0]
    handle = block.entry.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    with torch.no_grad():
        before = model(ids).logits
        handle.remove()
        with graft(model, {NAME: poly}):
            expected = model(ids).logits
    assert (expected - before).abs().max() > 1e-3
    if library == "nnsight":
        logits, values = example.with_nnsight(model, 1, poly, features, ids)
    else:
        bridge = example.bridged(model)
        logits, values = example.with_transformer_lens(bridge, 1, poly, features, ids)
        own = mp.find_blocks(bridge)[1].net()  # the block inside the modules of TransformerLens
        assert torch.equal(own.W_up, block.net().W_up)
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(values, features.values(inputs[0].flatten(0, 1)), atol=1e-4, rtol=1e-4)


def test_modules_that_wrap_others_are_seen_through():
    """Wrappers as TransformerLens makes them, which hold the original beside lists of hooks."""

    class Wrapper(torch.nn.Module):
        def __init__(self, original):
            super().__init__()
            self._original_component, self.fwd_hooks = original, [1]

        def forward(self, *args):
            return self._original_component(*args)

    model = llama()
    mlp = model.model.layers[0].mlp
    expected = mp.from_torch(mlp)
    for name in ("gate_proj", "up_proj", "down_proj"):
        setattr(mlp, name, Wrapper(getattr(mlp, name)))
    mlp.some_hooks = []
    for module in (mlp, Wrapper(mlp)):
        assert torch.equal(mp.from_torch(module).W_down, expected.W_down)
