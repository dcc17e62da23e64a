"""Results on disk and back again, tables of them, and the words for a terminal."""

import csv
import dataclasses
import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console
from support.fake_results import fake_results
from support.records import assert_equal

from mlpoly.cli.printing import show
from mlpoly.studies.paper.results import Claim, Point, Results, read_results
from mlpoly.studies.study import Study


@pytest.fixture(scope="module")
def results():
    return fake_results()


@pytest.fixture(scope="module")
def folder(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    study = Study.create(folder, Results, {}, {})
    study.about |= results.about | {"seconds": {}}
    with study.stage("training") as found:
        found |= {"training": results.training[:3]}
    with study.stage("everything else") as found:
        found |= {f.name: getattr(results, f.name) for f in dataclasses.fields(results) if f.name != "about"}
        found["training"] = results.training[3:]
    return folder


def test_round_trip(results, folder):
    assert_equal(dataclasses.replace(read_results(folder), about={}), dataclasses.replace(results, about={}))
    assert any(math.isnan(p.fvu_own) for p in results.dynamics)  # the invented ones have one of everything
    assert any(c.holds is None for c in results.claims)
    names = ["everything-else.json", "everything-else.safetensors", "training.json"]
    assert sorted(p.name for p in (folder / "results").iterdir()) == names


def test_numbers_are_readable_and_images_are_not_among_them(folder):
    content = json.loads((folder / "results" / "everything-else.json").read_text())
    assert content["dynamics"][2]["fvu_own"] is None
    assert content["features"]["steps"][0]["linear"] == {"array": "features.steps.0.linear"}


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_tables(results, tmp_path):
    kinds = {name: getattr(results, name) for name in ("training", "dynamics", "spectra", "claims")}
    Study(tmp_path, Results, {}).write_tables(kinds | {"nothing": []})
    assert sorted(p.stem for p in (tmp_path / "tables").iterdir()) == sorted(kinds)
    rows = read(tmp_path / "tables" / "dynamics.csv")
    assert len(rows) == len(results.dynamics)
    assert list(rows[0]) == [f.name for f in dataclasses.fields(Point)]
    for row, p in zip(rows, results.dynamics, strict=True):
        assert row["inputs"] == p.inputs
        assert float(row["fvu_mixture"]) == p.fvu_mixture  # every digit
        assert row["fvu_own"] == ("" if math.isnan(p.fvu_own) else repr(p.fvu_own))
    claims = read(tmp_path / "tables" / "claims.csv")
    assert [c["measured"] for c in claims] == [c.measured for c in results.claims]  # with commas and quotes
    assert [c["holds"] for c in claims] == ["" if c.holds is None else str(c.holds) for c in results.claims]
    spectra = read(tmp_path / "tables" / "spectra.csv")
    assert [float(spectra[1][f"shares_{i}"]) for i in range(1, 7)] == list(results.spectra[1].shares)


def shown(result):
    console = Console(file=io.StringIO(), width=100, highlight=False)
    show(result, console)
    return console.file.getvalue()


@pytest.mark.parametrize("name", ["[red]a", "[/b]", "a[1]"])
def test_brackets_are_no_markup(name):
    """A folder may have any name."""
    claim = Claim(name, "p", name, False, "fvu")
    text = shown({"report": Path(name), "list": [Path(name)], "rows": [{"x": name}], "one": {"y": name}, "c": [claim]})
    assert text.count(name) == 6


def test_long_paths_are_not_broken():
    path = Path("/".join(["folder"] * 40))
    assert f"report: {path.resolve()}\n" in shown({"report": path})
