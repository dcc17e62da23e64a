"""Conversions on the hub: what goes up comes down, files of a conversion alone, and errors that say what to do."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported; the only hub here is a local one

import pytest
from support.hub_server import Hub, running_hub

torch = pytest.importorskip("torch")
pytest.importorskip("huggingface_hub")
yaml = pytest.importorskip("yaml")
from support.tiny_models import llama, token_ids  # noqa: E402 - after importorskip

from mlpoly.lm.conversion.conversion import Conversion  # noqa: E402
from mlpoly.lm.conversion.convert import convert  # noqa: E402
from mlpoly.lm.conversion.hub import model_card  # noqa: E402
from mlpoly.lm.model.graft import graft  # noqa: E402
from mlpoly.lm.moments.collect import collect  # noqa: E402

REPO = "someone/tiny-cubic"


@pytest.fixture(scope="module")
def model() -> Any:
    return llama()


@pytest.fixture(scope="module")
def conversion(model: Any) -> Conversion:
    moments = collect(model, token_ids(4))
    found = convert(model, moments, 3, bound=2.0, held_out=token_ids(2, seed=9))
    return replace(found, provenance={**found.provenance, "model": "someone/tiny"})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    with running_hub(monkeypatch, tmp_path / "cache") as hub:
        yield hub


def logits(model: Any, conversion: Conversion) -> Any:
    with torch.no_grad(), graft(model, conversion):
        return model(token_ids(1, seed=5)[0]).logits


def test_what_goes_up_comes_down(hub: Hub, model: Any, conversion: Conversion) -> None:
    url = conversion.push_to_hub(REPO, private=True, commit_message="Cubics", token="hf_secret", license="mit")
    assert url.endswith(REPO)
    assert hub.created[0].get("private") is True or hub.created[0].get("visibility") == "private"
    assert hub.messages == ["Cubics"] and hub.tokens == ["Bearer hf_secret"] * 2
    blocks = {f"{name}/{file}" for name in conversion.polynomials for file in ("cfg.json", "polynomial.safetensors")}
    assert set(hub.files(REPO)) == blocks | {"README.md", ".gitattributes", "notes.txt"}
    again = Conversion.load_from_hub(REPO)
    assert set(hub.downloads) == blocks  # not the notes, not even the card
    assert (again.errors, again.provenance) == (conversion.errors, conversion.provenance)
    torch.testing.assert_close(logits(model, again), logits(model, conversion), rtol=0, atol=0)
    double = Conversion.load_from_hub(REPO, like=torch.zeros((), dtype=torch.float64))
    assert all(poly.prototype.dtype == torch.float64 for poly in double.polynomials.values())


def test_the_code_of_the_card_runs(
    hub: Hub, model: Any, conversion: Conversion, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    conversion.push_to_hub(REPO)
    ids = token_ids(1, seed=5)[0]
    loaded = {"someone/tiny": (model, lambda text, return_tensors: {"input_ids": ids})}
    monkeypatch.setattr("mlpoly.lm.load_model", loaded.__getitem__)
    names: dict[str, Any] = {}
    exec(hub.files(REPO)["README.md"].decode().split("```python\n")[1].split("```")[0], names)
    assert "model.layers.0.mlp" in capsys.readouterr().out
    torch.testing.assert_close(names["logits"], logits(model, conversion), rtol=0, atol=0)


def test_a_repository_holds_one_conversion_and_keeps_the_earlier_ones(hub: Hub, conversion: Conversion) -> None:
    conversion.push_to_hub(REPO)
    first, *_ = conversion.polynomials
    plain = {first: conversion.polynomials[first].polynomial}
    smaller = replace(conversion, polynomials=plain, provenance={**conversion.provenance, "bound": None})
    smaller.push_to_hub(REPO)
    assert sorted(n for n in hub.files(REPO) if n.endswith(".json")) == [f"{first}/cfg.json"]
    assert hub.files(REPO)["notes.txt"] == b"mine"
    found = Conversion.load_from_hub(REPO)
    assert list(found.polynomials) == [first] and found.bound is None
    from huggingface_hub import HfApi

    sha = HfApi().model_info(REPO).sha
    assert sha is not None
    assert list(Conversion.load_from_hub(REPO, revision=sha).polynomials) == [first]


def test_the_cache_is_enough(hub: Hub, conversion: Conversion, monkeypatch: pytest.MonkeyPatch) -> None:
    conversion.push_to_hub(REPO)
    Conversion.load_from_hub(REPO)
    hub.downloads.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert list(Conversion.load_from_hub(REPO).polynomials) == list(conversion.polynomials)
    assert hub.downloads == []


def test_errors_say_what_to_do(hub: Hub, conversion: Conversion, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="no repository someone/nothing that you can read; check the name"):
        Conversion.load_from_hub("someone/nothing")
    hub.repos["someone/other"] = [{"config.json": b"{}", "model.safetensors": b"", "weights.pkl": b"bad"}]
    with pytest.raises(FileNotFoundError, match=r"someone/other holds no conversion; write one with .*push_to_hub"):
        Conversion.load_from_hub("someone/other")
    assert hub.downloads == []
    with pytest.raises(FileNotFoundError, match="someone/other has no revision 'v9'; name a branch"):
        Conversion.load_from_hub("someone/other", revision="v9")
    with pytest.raises(ValueError, match="namespace/repo_name"):
        Conversion.load_from_hub("a/b/c")
    hub.refuses = 403
    with pytest.raises(PermissionError, match=r"refuses access to someone/tiny-cubic; log in .* or give token="):
        conversion.push_to_hub(REPO)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for act in (conversion.push_to_hub, Conversion.load_from_hub):
        with pytest.raises(ConnectionError, match=r"cannot be reached.*HF_ENDPOINT and HF_HUB_OFFLINE"):
            act(REPO)


def test_nobody_listens(hub: Hub, conversion: Conversion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    for act in (conversion.push_to_hub, Conversion.load_from_hub):
        with pytest.raises(ConnectionError, match="the hub cannot be reached"):
            act(REPO)


def test_the_card(conversion: Conversion) -> None:
    _, header, body = model_card(conversion, REPO, "apache-2.0").split("---\n", 2)
    assert yaml.safe_load(header) == {
        "library_name": "mlpoly",
        "tags": ["mlpoly", "polynomial", "interpretability"],
        "license": "apache-2.0",
        "base_model": "someone/tiny",
    }
    assert "straight lines beyond 2 standard deviations" in body and "| method | gaussian |" in body
    for name, errors in conversion.errors.items():
        assert errors.held_out is not None
        assert f"| {name} | 3 | {errors.closed_form:.4g} | {errors.held_out:.4g} |" in body
    local = replace(conversion, provenance={"model": 'odd: "name"'})
    assert "base_model" not in yaml.safe_load(model_card(local, REPO).split("---\n")[1])
