"""Conversions of tiny models, in memory and on disk."""

import json
from typing import Any, get_args

import pytest
import torch
from support.strong_models import EXACT, llama, logits, state, token_ids
from support.tiny_models import recorded

import mlpoly as mp
from mlpoly.fitting.bounded import BOUNDS
from mlpoly.fitting.samples.neuronwise import SampleFit, best_of
from mlpoly.importers import find_blocks
from mlpoly.lm import TokenClusters
from mlpoly.lm.conversion import convert as convert_module
from mlpoly.lm.conversion.conversion import BlockErrors, Conversion
from mlpoly.lm.conversion.convert import Method, TokenFit, convert
from mlpoly.lm.model.graft import graft
from mlpoly.lm.moments.collect import collect
from mlpoly.polynomials import BoundedPolynomial


@pytest.mark.parametrize("method", get_args(Method))
@pytest.mark.parametrize(("make_model", "degree"), EXACT)
def test_exact_blocks_leave_nothing_unexplained(make_model, degree, method):
    model, batches = make_model(), token_ids(8)
    before, as_it_was = logits(model, batches[0]), state(model)
    found = convert(
        model, collect(model, batches), degree, method=method, batches=batches, held_out=token_ids(2, seed=9)
    )
    assert state(model) == as_it_was
    assert list(found.polynomials) == [b.name for b in find_blocks(model)]
    for errors in found.errors.values():
        assert errors.closed_form == pytest.approx(0, abs=1e-5)
        # The weight of the closed form keeps "samples" where it belongs too: that is exact as well.
        assert errors.held_out == errors.held_out_unbounded == pytest.approx(0, abs=1e-6)
        assert errors.seconds > 0
    with graft(model, found):
        torch.testing.assert_close(logits(model, batches[0]), before, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("coefficients", "bound"), [("readout", None), ("free", 2.0), ("auto", "auto")])
def test_neurons_are_fitted_to_tokens_together(coefficients, bound):
    """On the inputs of a block the answer satisfies the normal equations with the penalty that was chosen."""
    model, batches = llama("silu"), token_ids(40)
    block, x = find_blocks(model)[1], recorded(model, batches)["model.layers.1.mlp"]
    net, closed = block.net(), mp.fit(block.net(), collect(model, batches).gaussian(block.name), 2)
    starts = [closed] if bound is None else [closed.bounded(b) for b in (BOUNDS if bound == "auto" else [bound])]
    fit = TokenFit(net, starts, coefficients)
    for rows in x.split(100):
        fit.add(rows)
    fit.settle()
    for rows in x.split(100):
        fit.add_together(rows)
    poly, own = fit.polynomial(), best_of([SampleFit[Any](net, s).update(x) for s in starts]).polynomial()
    assert float(mp.fvu(net, poly, x)) < float(mp.fvu(net, own, x))
    best = min(fit._together, key=lambda each: each.error)
    assert coefficients in ("auto", best.features.kind) and poly.source.method.endswith(f", {best.features.kind}")
    functions = best.features.each(x).double()
    functions, gap = functions - functions.mean(0), (poly(x) - net(x)).double()
    change = poly.readout.double() - best.features.readout  # (o, m)
    left = functions.T @ gap / len(x) + best.shrinkage * functions.var(0, correction=0)[:, None] * change.T
    scale = functions.std(0)[:, None] * (own(x) - net(x)).double().std(0)
    assert bool((left.abs() <= 1e-3 * scale).all())  # values in float32, and functions that are alike


def test_passes_are_divided_where_memory_is_short(monkeypatch):
    model, batches = llama("silu"), token_ids(40)
    moments = collect(model, batches)
    whole = convert(model, moments, 2, method="samples", batches=iter(batches), closed_form=False)
    monkeypatch.setattr(convert_module, "_SUMS", 1)
    monkeypatch.setattr(convert_module, "_NUMBERS", 5000)
    parts = convert(model, moments, 2, method="samples", batches=batches, closed_form=False)
    ids = torch.randn(20, 16, generator=torch.Generator().manual_seed(0))
    for name, poly in whole.polynomials.items():
        torch.testing.assert_close(parts.polynomials[name](ids), poly(ids), rtol=1e-3, atol=1e-4)
    few = convert(model, moments, 2, method="samples", batches=batches[:2], closed_form=False)
    assert all("neuron by neuron" in poly.source.method for poly in few.polynomials.values())


@pytest.mark.parametrize("method", get_args(Method))
def test_bounds_are_chosen_for_each_block(method, tmp_path):
    model, batches = llama("silu"), token_ids(40)
    moments = collect(model, batches, "layers.1.mlp", groups=TokenClusters(3))
    options = {"method": method, "batches": batches, "held_out": batches}
    found = convert(model, moments, 2, bound="auto", **options)
    fixed = {b: convert(model, moments, 2, bound=b, closed_form=False, **options) for b in BOUNDS}
    found.save(tmp_path)
    assert repr(Conversion.load(tmp_path)).endswith("bound=auto)")
    for name, poly in found.polynomials.items():
        assert isinstance(poly, BoundedPolynomial)
        own = float(poly.bounds[0])
        same = fixed[own].errors[name].held_out
        assert found.errors[name].held_out == pytest.approx(same, rel=1e-3)
        assert same <= max(each.errors[name].held_out or 0 for each in fixed.values())
        assert json.loads((tmp_path / name / "cfg.json").read_text())["bound"] == own


def test_the_held_out_error_is_that_of_fvu():
    model, batches = llama("silu"), token_ids(4)
    moments = collect(model, batches)
    found = convert(model, moments, 2, "layers.1.mlp", bound=1.0, held_out=batches, closed_form=False)
    best = convert(model, moments, 2, "layers.1.mlp", closed_form=False)
    block = find_blocks(model, "layers.1.mlp")[0]
    errors = found.errors[block.name]
    poly, samples = found.polynomials[block.name], recorded(model, batches)[block.name]
    assert isinstance(poly, BoundedPolynomial)
    for error, judged in ((errors.held_out, poly), (errors.held_out_unbounded, best.polynomials[block.name])):
        assert error == pytest.approx(float(mp.fvu(block.net(), judged, samples).total), rel=1e-4)
    assert errors.held_out != errors.held_out_unbounded
    assert best.bound is None and found.bound == 1.0
    assert errors.closed_form is None


def test_saved_and_loaded(tmp_path):
    model, batches = llama("silu"), token_ids(8)
    options = {"method": "samples", "batches": batches, "held_out": batches, "bound": 4.0}
    found = convert(model, collect(model, batches), 2, **options)
    found.save(tmp_path / "out")
    names = [b.name for b in find_blocks(model)]
    for name in names:
        assert sorted(p.name for p in (tmp_path / "out" / name).iterdir()) == ["cfg.json", "polynomial.safetensors"]
    cfg = json.loads((tmp_path / "out" / names[1] / "cfg.json").read_text())
    assert (cfg["errors"]["degree"], cfg["bound"], cfg["method"], cfg["d_in"]) == (2, 4.0, "samples", 16)
    assert cfg["errors"]["held_out"] == found.errors[names[1]].held_out
    loaded = Conversion.load(tmp_path / "out")
    assert list(loaded.polynomials) == names and loaded.bound == 4.0 and loaded.degree == 2
    assert loaded.table() == found.table() and loaded.provenance == json.loads(json.dumps(found.provenance))
    with graft(model, found):
        expected = logits(model, batches[0])
    with graft(model, loaded):
        assert torch.equal(logits(model, batches[0]), expected)


def test_folders_that_hold_something_else(tmp_path):
    model, batches = llama("silu"), token_ids(4)
    with pytest.raises(FileNotFoundError, match="no conversion in"):
        Conversion.load(tmp_path)
    moments = collect(model, batches)
    convert(model, moments, 1, "layers.0.mlp", closed_form=False).save(tmp_path)
    convert(model, moments, 2, "layers.1.mlp", closed_form=False).save(tmp_path)
    with pytest.raises(mp.FileFormatError, match="several conversions"):
        Conversion.load(tmp_path)
    (tmp_path / "model.layers.0.mlp" / "cfg.json").write_text(
        '{"format": "mlpoly-conversion", "version": 9, "number": 0}'
    )
    with pytest.raises(mp.FileFormatError, match="version 9"):
        Conversion.load(tmp_path)


def one_block(folder, name="mlp"):
    """The cfg.json of a saved conversion of one block."""
    net = mp.MLP(torch.eye(4), None, torch.eye(4), None, "gelu")
    poly = mp.fit(net, mp.Gaussian.standard(4), 1)
    return Conversion({name: poly}, {name: BlockErrors(name, 1)}).save(folder) / (name or "_") / "cfg.json"


@pytest.mark.parametrize(
    "change",
    [
        {"number": "0"},
        {"errors": {"block": "mlp", "degree": 1, "closed_form": "small"}},
        {"errors": {"block": "mlp", "degree": 1, "more": 1.0}},
        {"errors": {"block": "other", "degree": 1}},
        {"bound": float("nan")},
        {"provenance": None},
        {"d_in": 3},
        {"version": 2},
    ],
    ids=lambda change: str(change)[:40],
)
def test_crafted_conversions_are_refused(change, tmp_path):
    path = one_block(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(mp.FileFormatError, match="convert again"):
        Conversion.load(tmp_path)


@pytest.mark.parametrize("name", ["../../escaped", "..", "/tmp/escaped", "..\\escaped", "C:escaped"])
def test_names_of_blocks_do_not_lead_out_of_the_folder(name, tmp_path):
    path = one_block(tmp_path / "out")
    content = json.loads(path.read_text())
    content["block"] = content["errors"]["block"] = name
    path.write_text(json.dumps(content))
    with pytest.raises(mp.FileFormatError, match="is a path"):
        Conversion.load(tmp_path / "out")
    with pytest.raises(ValueError, match="is a path"):
        one_block(tmp_path / "deep" / "again", name)
    assert not (tmp_path / "deep").exists()


def test_what_is_wrong_is_said():
    model, batches = llama("silu"), token_ids(2)
    moments = collect(model, batches, "layers.0.mlp")
    assert list(convert(model, moments, 1, closed_form=False).polynomials) == ["model.layers.0.mlp"]
    with pytest.raises(ValueError, match=r"'layers.7.mlp' matches no .* model.layers.0.mlp, model.layers.1.mlp"):
        convert(model, moments, 2, "layers.7.mlp")
    with pytest.raises(ValueError, match=r"no moments of 'model.layers.1.mlp', only of model.layers.0.mlp"):
        convert(model, moments, 2, ["layers.1.mlp"])
    with pytest.raises(ValueError, match="blocks is empty"):
        convert(model, moments, 2, [])
    with pytest.raises(ValueError, match="method must be one of"):
        convert(model, moments, 2, method="magic")
    with pytest.raises(ValueError, match="method='samples' needs data"):
        convert(model, moments, 2, method="samples")
    with pytest.raises(ValueError, match="bound must be a positive number"):
        convert(model, moments, 2, bound=0)
    with pytest.raises(TypeError, match="moments must be Moments"):
        convert(model, None, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batches held no tokens"):
        convert(model, moments, 2, method="samples", batches=iter([]))


def test_inputs_that_are_no_numbers_and_blocks_that_are_never_reached_are_named():
    model, batches = llama("silu"), token_ids(3)
    moments = collect(model, batches)
    passes = [{"method": "samples", "batches": batches}, {"held_out": batches}]
    model.model.layers[1].forward = lambda x, *args, **kwargs: x
    for options in passes:
        with pytest.raises(ValueError, match=r"'model.layers.1.mlp' was never reached"):
            convert(model, moments, 2, closed_form=False, **options)
    model.model.embed_tokens.weight.data[int(batches[0][0, 0])] = float("nan")
    for options in passes:
        with pytest.raises(ValueError, match=r"an input of 'model.layers.0.mlp' is NaN or infinite in batch 0"):
            convert(model, moments, 2, closed_form=False, **options)
