"""Polynomials and features through the hooks of TransformerLens and nnsight.

    pip install transformer-lens nnsight
    python examples/hooks.py

The model is the one of this package; `load_model` reads others. All that is needed of mlpoly are two functions of a
block's input: the block's polynomial, and the values of its features. Either library hands over that input and takes
the output back.
"""

from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.lm import FeatureSet, block_features, collect, convert, example_text, graft, load_model, token_batches


def with_nnsight(model: nn.Module, layer: int, poly: Any, features: FeatureSet, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Logits with a polynomial in place of a block, and values (n, k) of the block's features, in one trace."""
    from nnsight import NNsight

    traced = NNsight(model)
    with torch.no_grad(), traced.trace(ids):
        mlp = traced.model.layers[layer].mlp
        x = mlp.input
        values = features.values(x.flatten(0, 1)).save()
        mlp.output = poly(x)
        logits = traced.output.logits.save()
    return logits, values


def with_transformer_lens(
    bridge: Any, layer: int, poly: Any, features: FeatureSet, ids: Tensor
) -> tuple[Tensor, Tensor]:
    """The same with hooks at the input of the block and at `hook_mlp_out`."""
    seen: list[Tensor] = []

    def read(x: Tensor, hook: Any) -> None:
        seen.append(x)

    def replace(y: Tensor, hook: Any) -> Tensor:
        return poly(seen[-1])

    hooks = [(f"blocks.{layer}.mlp.hook_in", read), (f"blocks.{layer}.hook_mlp_out", replace)]
    with torch.no_grad():
        logits = bridge.run_with_hooks(ids, fwd_hooks=hooks)
    return logits, features.values(seen[0].flatten(0, 1))


def bridged(model: nn.Module) -> Any:
    """A model of transformers for TransformerLens, which puts its own modules into it."""
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    return build_bridge_from_module(model, type(model).__name__, hf_config=model.config)


def main() -> None:
    """Compare both libraries with `graft`, on one block."""
    model, tokenizer = load_model()
    batches = list(token_batches(tokenizer, example_text(2_000), length=64))
    layer, name, ids = 1, "model.layers.1.mlp", batches[-1][:1]

    # A block's polynomial and features, from its weights and the moments of its inputs.
    moments = collect(model, batches[:-1], name)
    poly = convert(model, moments, 3, closed_form=False).polynomials[name]
    features = block_features(poly, model, name, k=5)
    print(features)

    with torch.no_grad():
        before = model(ids).logits
        with graft(model, {name: poly}):
            expected = model(ids).logits
    print(f"a cubic for {name} changes the logits by up to {float((expected - before).abs().max()):.2g}")
    found = {"nnsight": with_nnsight(model, layer, poly, features, ids)}
    found["TransformerLens"] = with_transformer_lens(bridged(model), layer, poly, features, ids)
    for library, (logits, values) in found.items():
        (token, feature), gap = divmod(int(values.abs().argmax()), values.shape[1]), (logits - expected).abs().max()
        strongest = f"{features.names[feature]} with {float(values[token, feature]):.3g} standard deviations"
        print(f"{library}: as with graft, to {float(gap):.0e}; the strongest feature is {strongest}, at token {token}")


if __name__ == "__main__":
    main()
