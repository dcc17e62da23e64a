"""One polynomial for each kind of token: the right one for every token, in the model and on disk."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported; nothing is downloaded here

import pytest
from support.backends import assert_close

import mlpoly as mp

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from support.strong_models import llama, logits, token_ids  # noqa: E402 - after importorskip

from mlpoly.integrations import find_blocks  # noqa: E402
from mlpoly.lm import NormOutliers, attribute, collect, convert, evaluate, graft, load_conversion  # noqa: E402
from mlpoly.lm.convert.conversion import Conversion  # noqa: E402
from mlpoly.lm.convert.switch import Switch  # noqa: E402
from mlpoly.lm.moments.groups import as_components  # noqa: E402
from mlpoly.measures.second_moments import gaussian_error  # noqa: E402
from mlpoly.polynomials import BoundedPolynomial  # noqa: E402


def even(x: Any, positions: Any, tokens: Any) -> Any:
    return tokens % 2


def nobody(x: Any, positions: Any, tokens: Any) -> Any:
    return (positions + tokens * 0 == 99).long()


def model_of_lengths() -> Any:
    """A model whose norms do not give all tokens the same length."""
    model = llama("silu")
    for name, weight in model.named_parameters():
        if "layernorm" in name:
            weight.data = torch.linspace(0.1, 3.0, weight.shape[0])
    return model


KINDS: dict[str, Any] = {"first": "first", "norm": NormOutliers(1.2), "function": even}


def converted(model: Any, kind: str, bound: float | None = None, degree: int = 3) -> Any:
    batches = token_ids(8, b=4)
    moments = collect(model, batches, components=KINDS[kind])
    function = even if kind == "function" else None
    return convert(
        model,
        moments,
        degree,
        method="components",
        bound=bound,
        components=function,
        held_out=token_ids(2, seed=9),
    )


def remember(x: list[Any], f: list[Any], module: Any, args: Any, out: Any) -> None:
    x.append(args[0])
    f.append(out)


def weighted(mixture: Any) -> list[tuple[Any, Any]]:
    return list(zip(mixture.weights, mixture.components, strict=True))


def inputs_of(model: Any, found: Any, ids: Any, **others: Any) -> dict[str, tuple[Any, Any]]:
    """Inputs and outputs of the grafted switches while the model runs."""
    seen: dict[str, tuple[Any, Any]] = {}
    handles = [
        module.register_forward_hook(lambda m, args, out, name=name: seen.update({name: (args[0], out)}))
        for name, module in found.grafts.items()
    ]
    with graft(model, found), torch.no_grad():
        model(input_ids=ids, **others)
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.parametrize("bound", [None, 2.0])
@pytest.mark.parametrize("kind", list(KINDS))
def test_every_token_has_the_polynomial_of_its_kind(kind: str, bound: float | None) -> None:
    model = model_of_lengths()
    found, ids = converted(model, kind, bound), token_ids(1, seed=5)[0]
    assert all(isinstance(module, Switch) for module in found.grafts.values())
    assert all(isinstance(p, BoundedPolynomial) == (bound is not None) for p in found.polynomials.values())
    for name, (x, values) in inputs_of(model, found, ids).items():
        kinds = set()
        for b, t in torch.cartesian_prod(torch.arange(ids.shape[0]), torch.arange(ids.shape[1])).tolist():
            row = x[b, t][None]
            number = int(found.components.numbers(name, row, torch.tensor([t]), ids[b, t][None]))
            poly = found.apart[name].get(number, found.polynomials[name])
            kinds.add(poly is found.polynomials[name])
            assert_close(values[b, t], poly(row)[0], 1e-5)
        assert kinds == {True, False}


def test_each_polynomial_is_the_best_of_its_own_component() -> None:
    model = llama("silu")
    moments = collect(model, token_ids(8, b=4), components="first")
    found = convert(model, moments, 2, method="components")
    for block in find_blocks(model):
        parts = moments.components(block.name)
        assert parts[0].count > parts[1].count
        mixture = moments.mixture(block.name, like=next(block.module.parameters()))
        for number, gaussian in enumerate(mixture.components):
            poly = found.polynomials[block.name] if number == 0 else found.apart[block.name][1]
            best = mp.fit(block.net(), gaussian, 2)
            x = gaussian.sample(30)
            assert_close(poly(x), best(x), 1e-5)
        closed, net = found.quality[block.name].closed_form, block.net()
        single = mp.fit(net, mixture, 2, method="neuronwise")
        own, common = (
            sum(
                float(w) * float(gaussian_error(net, p or mp.fit(net, g, 2), g).miss.sum())
                for w, g in weighted(mixture)
            )
            for p in (None, single)
        )
        spread = common / float(mp.fvu(net, single, mixture).total)
        assert closed == pytest.approx(own / spread, rel=1e-4)
        # One polynomial for both kinds cannot be better than one for each.
        assert closed < common / spread


def test_padding_and_a_cache_do_not_move_the_first_token() -> None:
    model = llama("silu")
    found, ids = converted(model, "first"), token_ids(1, seed=5)[0]
    padded = torch.cat([torch.zeros_like(ids[:, :2]), ids], 1)
    mask = torch.ones_like(padded)
    mask[:, :2] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with graft(model, found), torch.no_grad():
        whole = model(input_ids=ids).logits
        left = model(input_ids=padded, attention_mask=mask, position_ids=positions).logits[:, 2:]
        start = model(input_ids=ids[:, :3], use_cache=True)
        rest = model(input_ids=ids[:, 3:], past_key_values=start.past_key_values, use_cache=True).logits
    assert_close(left, whole, 1e-4)
    assert_close(rest, whole[:, 3:], 1e-4)


def told(model: Any, found: Any, call: Any) -> list[list[list[int]]]:
    """Positions that the first switch is told, pass by pass."""
    first = next(iter(found.grafts.values()))
    seen: list[list[list[int]]] = []
    handle = first.register_forward_pre_hook(lambda m, args: seen.append(m.told.positions.tolist()))
    with graft(model, found), torch.no_grad():
        call()
    handle.remove()
    assert first.told is None
    return seen


def test_every_way_to_call_a_model_tells_the_positions() -> None:
    model = llama("silu")
    found, ids = converted(model, "first"), token_ids(1, b=2, t=4, seed=5)[0]
    padded = torch.cat([torch.zeros_like(ids[:, :2]), ids], 1)
    mask = torch.ones_like(padded)
    mask[:, :2] = 0
    plain, left = [[0, 1, 2, 3]] * 2, [[-1, -1, 0, 1, 2, 3]] * 2
    embeddings = model.get_input_embeddings()(padded)
    assert told(model, found, lambda: model(ids)) == [plain]
    assert told(model, found, lambda: model.model(padded, mask)) == [left]
    assert told(model, found, lambda: model(inputs_embeds=embeddings, attention_mask=mask)) == [left]
    steps = [left, [[4]] * 2, [[5]] * 2]
    options = {"attention_mask": mask, "max_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    assert told(model, found, lambda: model.generate(padded, **options)) == steps
    static = told(model, found, lambda: model.generate(padded, cache_implementation="static", **options))
    # Here padding has the position of the first token, which it is computed with; nobody looks at what comes of it.
    assert [row[-4:] for row in static[0]] == plain and static[1:] == steps[1:]
    wrapper = torch.nn.ModuleDict({"inner": model})
    inside = Conversion(
        {f"inner.{name}": poly for name, poly in found.polynomials.items()},
        {f"inner.{name}": quality for name, quality in found.quality.items()},
        apart={f"inner.{name}": parts for name, parts in found.apart.items()},
        components=found.components,
    )
    assert told(wrapper, inside, lambda: wrapper["inner"].generate(padded, **options)) == steps


def test_a_model_that_flattens_its_batch() -> None:
    """OPT computes its blocks on (b t, d)."""
    config = transformers.OPTConfig(
        vocab_size=32, hidden_size=16, ffn_dim=24, num_hidden_layers=2, num_attention_heads=2
    )
    torch.manual_seed(0)
    model = transformers.OPTForCausalLM(config).eval()
    for weight in model.parameters():
        weight.data = weight.data * 5
    found, ids = converted(model, "first"), token_ids(1, b=3, seed=5)[0] % 32
    with graft(model, found), torch.no_grad():
        whole = model(input_ids=ids).logits
        alone = torch.cat([model(input_ids=row[None]).logits for row in ids])
    assert_close(whole, alone, 1e-4)


def test_encoder_and_decoder_have_tokens_of_their_own() -> None:
    options = {"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**options, decoder_start_token_id=0)).eval()
    blocks = [block.name for block in find_blocks(model)]
    switch = {name: Switch(name, torch.nn.Identity(), {}, as_components("first")) for name in blocks}
    seen: dict[str, list[Any]] = {name: [] for name in blocks}
    for name, module in switch.items():
        module.register_forward_pre_hook(lambda m, args, name=name: seen[name].append(m.told.positions.tolist()))
    ids = token_ids(1, b=1, t=4)[0] % 32
    with graft(model, switch), torch.no_grad():
        model.generate(ids, max_new_tokens=3, do_sample=False, eos_token_id=None)
    encoder = next(name for name in blocks if "encoder" in name)
    decoder = next(name for name in blocks if "decoder" in name)
    assert seen[encoder] == [[[0, 1, 2, 3]]]
    assert seen[decoder] == [[[0]], [[1]], [[2]]]


def test_tokens_apart_count_by_their_own_polynomial_as_beyond() -> None:
    model = llama("silu")
    found = converted(model, "first", bound=2.0)
    for block in find_blocks(model):
        name, x = block.name, []
        handle = block.module.register_forward_hook(partial(remember, x, []))
        with torch.no_grad():
            for ids in token_ids(2, seed=9):
                model(input_ids=ids)
        handle.remove()
        rows = torch.cat(x)
        first, rest = rows[:, :1].flatten(0, 1), rows[:, 1:].flatten(0, 1)
        out = [
            (p.units.standardise(p.forms_at(r)[0]).abs() > 2).sum()
            for p, r in ((found.apart[name][1], first), (found.polynomials[name], rest))
        ]
        total = (first.shape[0] + rest.shape[0]) * found.polynomials[name].units.size
        assert found.quality[name].beyond == pytest.approx(float(sum(out)) / total)


def test_afterwards_the_model_is_as_it_was() -> None:
    model = llama("silu")
    ids = token_ids(1)[0]
    before, hooks = logits(model, ids), len(model._forward_pre_hooks)
    found = converted(model, "first")
    with graft(model, found):
        assert not torch.equal(logits(model, ids), before)
    assert torch.equal(logits(model, ids), before)
    assert len(model._forward_pre_hooks) == hooks
    assert all(module.told is None for module in found.grafts.values())


def test_evaluation_and_held_out_errors_agree_with_the_switch() -> None:
    model = llama("silu")
    found, batches = converted(model, "first", degree=5), token_ids(2, seed=9)
    losses = evaluate(model, found, batches, baselines=())
    assert losses.loss().kl < 0.1 * evaluate(model, {}, batches, baselines=["removed"]).rows[0].cross_entropy
    for block in find_blocks(model):
        name, x, f = block.name, [], []
        handle = block.module.register_forward_hook(partial(remember, x, f))
        with torch.no_grad():
            for ids in batches:
                model(input_ids=ids)
        handle.remove()
        p = [found.grafts[name](one) for one in x]
        miss = sum(float(((a - b) ** 2).sum()) for a, b in zip(f, p, strict=True))
        rows = torch.cat(f).flatten(0, 1)
        assert found.quality[name].held_out == pytest.approx(miss / float(((rows - rows.mean(0)) ** 2).sum()), rel=1e-3)


@pytest.mark.parametrize("kind", list(KINDS))
def test_files_bring_the_switch_back(kind: str, tmp_path: Path) -> None:
    model, ids = llama("silu"), token_ids(1, seed=5)[0]
    found = converted(model, kind, bound=3.0)
    found.save(tmp_path)
    if kind == "function":
        with pytest.raises(ValueError, match="pass it as components="):
            load_conversion(tmp_path)
    read = load_conversion(tmp_path, components=even if kind == "function" else None)
    with graft(model, found):
        expected = logits(model, ids)
    with graft(model, read):
        assert_close(logits(model, ids), expected, 1e-6)


def test_attribution_takes_the_polynomial_of_the_token() -> None:
    model, ids = llama("silu"), token_ids(1, seed=5)[0][0]
    found = converted(model, "first")
    told = attribute(model, found, ids)
    plain = attribute(model, {name: poly for name, poly in found.polynomials.items()}, ids)
    assert_close(told.parts[:, 1:], plain.parts[:, 1:], 0)
    other = attribute(model, {name: parts[1] for name, parts in found.apart.items()}, ids)
    assert_close(told.parts[:, 0], other.parts[:, 0], 1e-5)  # products of other shapes, in float32
    assert abs(told.parts[:, 0] - plain.parts[:, 0]).max() > 1e-3 * abs(plain.parts[:, 0]).max()


def test_what_cannot_be_told_apart_says_so() -> None:
    model, batches = llama("silu"), token_ids(2)
    by_function = collect(model, batches, components=even)
    with pytest.raises(ValueError, match="pass it as components="):
        convert(model, by_function, 2, method="components")
    with pytest.raises(ValueError, match="told apart by 'function even'"):
        convert(model, by_function, 2, method="components", components=nobody)
    with pytest.raises(ValueError, match="is for method='components'"):
        convert(model, by_function, 2, components=even)
    alone = collect(model, batches, components=nobody)
    found = convert(model, alone, 2, method="components", components=nobody)
    assert found.apart == {}  # one component: one polynomial
    lengths = [collect(model_of_lengths(), [b], components=NormOutliers(1.2)) for b in batches]
    with pytest.raises(ValueError, match="different medians"):
        convert(model_of_lengths(), lengths[0].merge(lengths[1]), 2, method="components")
    rare = collect(model, [batches[0][:1, :3]], components="first")
    with pytest.raises(ValueError, match="one token only"):
        convert(model, rare, 2, method="components")
    with pytest.raises(ValueError, match="does not tell components apart"):
        convert(model, by_function, 2, method="components", sequential=True, batches=batches)
    switch = converted(model, "function").grafts[find_blocks(model)[0].name]
    with pytest.raises(ValueError, match="asks for token ids"):
        switch(torch.zeros(2, 3, find_blocks(model)[0].net().dim_in))
