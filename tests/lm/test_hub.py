"""Conversions on the hub, with a folder in place of the hub: what goes up comes down, and the card is true."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
import yaml
from support.tiny_models import llama, token_ids

from mlpoly.lm import Conversion, collect, convert, graft
from mlpoly.lm.conversion.model_card import model_card

REPO = "someone/tiny-cubic"


@pytest.fixture(scope="module")
def model() -> Any:
    return llama()


@pytest.fixture(scope="module")
def conversion(model: Any) -> Conversion:
    found = convert(model, collect(model, token_ids(4)), 3, bound=2.0, held_out=token_ids(2, seed=9))
    return replace(found, provenance={**found.provenance, "model": "someone/tiny"})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[Path, MagicMock]]:
    """The files of the repository, and the calls of the hub's own client."""
    stored, api = tmp_path / "repository", MagicMock()
    stored.mkdir()
    (stored / "notes.txt").write_text("mine")

    def upload(*, folder_path: str, delete_patterns: list[str], **options: Any) -> None:
        for path in [p for p in stored.rglob("*") if p.is_file()]:
            if any(fnmatch(path.relative_to(stored).as_posix(), pattern) for pattern in delete_patterns):
                path.unlink()
        shutil.copytree(folder_path, stored, dirs_exist_ok=True)

    def download(repo_id: str, *, allow_patterns: list[str], **options: Any) -> str:
        for pattern in allow_patterns:
            for path in stored.glob(pattern):
                target = tmp_path / "cache" / path.relative_to(stored)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
        return str(tmp_path / "cache")

    api.return_value.upload_folder.side_effect = upload
    api.return_value.create_repo.side_effect = lambda repo_id, **options: f"https://huggingface.co/{repo_id}"
    monkeypatch.setattr("huggingface_hub.HfApi", api)
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    yield stored, api


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def logits(model: Any, conversion: Conversion) -> Any:
    with torch.no_grad(), graft(model, conversion):
        return model(token_ids(1, seed=5)[0]).logits


def test_what_goes_up_comes_down(hub: Any, model: Any, conversion: Conversion, tmp_path: Path) -> None:
    stored, api = hub
    assert conversion.push_to_hub(REPO, private=True, commit_message="Cubics", token="hf_secret").endswith(REPO)
    api.assert_called_once_with(token="hf_secret")
    api.return_value.create_repo.assert_called_once_with(REPO, private=True, exist_ok=True)
    assert api.return_value.upload_folder.call_args.kwargs["commit_message"] == "Cubics"
    blocks = {f"{name}/{file}" for name in conversion.polynomials for file in ("cfg.json", "polynomial.safetensors")}
    assert files(stored) == blocks | {"README.md", "notes.txt"}
    again = Conversion.load_from_hub(REPO)
    assert files(tmp_path / "cache") == blocks  # not the notes, not even the card
    assert (again.errors, again.provenance) == (conversion.errors, conversion.provenance)
    torch.testing.assert_close(logits(model, again), logits(model, conversion), rtol=0, atol=0)
    double = Conversion.load_from_hub(REPO, like=torch.zeros((), dtype=torch.float64))
    assert all(poly.prototype.dtype == torch.float64 for poly in double.polynomials.values())


def test_the_code_of_the_card_runs(hub: Any, model: Any, conversion: Conversion, monkeypatch: Any, capsys: Any) -> None:
    conversion.push_to_hub(REPO)
    loaded = {"someone/tiny": (model, lambda text, return_tensors: {"input_ids": token_ids(1, seed=5)[0]})}
    monkeypatch.setattr("mlpoly.lm.load_model", loaded.__getitem__)
    names: dict[str, Any] = {}
    exec((hub[0] / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0], names)
    assert "model.layers.0.mlp" in capsys.readouterr().out
    torch.testing.assert_close(names["logits"], logits(model, conversion), rtol=0, atol=0)


def test_a_repository_holds_one_conversion(hub: Any, conversion: Conversion) -> None:
    with pytest.raises(FileNotFoundError, match="no conversion in"):
        Conversion.load_from_hub(REPO)
    conversion.push_to_hub(REPO)
    first, *_ = conversion.polynomials
    replace(conversion, polynomials={first: conversion.polynomials[first]}).push_to_hub(REPO)
    assert sorted(name for name in files(hub[0]) if name.endswith(".json")) == [f"{first}/cfg.json"]
    assert list(Conversion.load_from_hub(REPO).polynomials) == [first]


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
        assert f"| {name} | 3 | {errors.closed_form:.4g} | {errors.held_out:.4g} |" in body
    local = replace(conversion, provenance={"model": 'odd: "name"'})
    assert "base_model" not in yaml.safe_load(model_card(local, REPO).split("---\n")[1])
