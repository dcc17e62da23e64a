"""Results on disk and back again, tables of them, and the words for a terminal."""

import csv
import dataclasses
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from support.fake_results import fake_results
from support.records import assert_equal

from mlpoly.cli.printing import show
from mlpoly.codec import save_results, write_table
from mlpoly.errors import FileFormatError
from mlpoly.files import write_tensors
from mlpoly.studies.paper.figures import write_tables
from mlpoly.studies.paper.results import Claim, ImageExplanation, Point, Results, Spectrum, TrainingPoint, read_results


@pytest.fixture(scope="module")
def results():
    return fake_results()


@pytest.fixture(scope="module")
def folder(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    save_results(folder / "results.json", results)
    return folder


def rewrite(folder, tmp_path, change):
    """A copy of the results whose JSON was changed by a function."""
    content = json.loads((folder / "results.json").read_text())
    changed = change(content)
    (tmp_path / "results.json").write_text(json.dumps(content if changed is None else changed))
    (tmp_path / "results.safetensors").write_bytes((folder / "results.safetensors").read_bytes())
    return tmp_path


# -- there and back ----------------------------------------------------------------------------------------------------


def test_round_trip(results, folder):
    assert_equal(read_results(folder), results)
    assert any(math.isnan(p.fvu_own) for p in results.dynamics)  # the invented ones have one of everything
    assert any(c.holds is None for c in results.claims)
    assert sorted(p.name for p in folder.iterdir()) == ["results.json", "results.safetensors"]


def test_numbers_are_readable_and_images_are_not_among_them(folder):
    content = json.loads((folder / "results.json").read_text())
    assert content["dynamics"][2]["fvu_own"] is None
    assert content["features"]["steps"][0]["linear"] == {"array": "features.steps.0.linear"}
    assert (folder / "results.json").stat().st_size < 500_000


def test_parts_that_are_not_there_yet(tmp_path, results):
    for part in (
        Results({"seconds": {}}, (), (), ()),
        dataclasses.replace(results, features=None, attack=(), claims=()),
    ):
        save_results(tmp_path / "results.json", part)
        assert_equal(read_results(tmp_path), part)


def test_saving_again_replaces(tmp_path, results):
    save_results(tmp_path / "results.json", results)
    less = dataclasses.replace(results, features=None, attack=())
    save_results(tmp_path / "results.json", less)
    assert_equal(read_results(tmp_path), less)


def test_numbers_of_numpy(tmp_path):
    made = Results({"n": np.int64(3), "x": np.float32(0.5), "path": Path("a/b"), "inf": math.inf}, (), (), ())
    save_results(tmp_path / "results.json", made)
    assert read_results(tmp_path).about == {"n": 3, "x": 0.5, "path": "a/b", "inf": None}


# -- other versions ----------------------------------------------------------------------------------------------------


def test_unknown_fields(results, folder, tmp_path):
    def newer(content):
        content["new"] = [1, 2]
        content["claims"][0]["new"] = "x"
        content["features"]["steps"][0]["new"] = {"array": "not there"}

    assert_equal(read_results(rewrite(folder, tmp_path, newer)), results)


def test_missing_optional_fields(results, folder, tmp_path):
    def older(content):
        del content["claims"], content["attack"][0]["step"]
        for a in content["attack"][0]["ablations"]:
            del a["step"]

    found = read_results(rewrite(folder, tmp_path, older))
    assert found.claims == ()
    assert {found.attack[0].step, *(a.step for a in found.attack[0].ablations)} == {0}
    assert_equal(found.attack[1:], results.attack[1:])


def test_files_of_version_0_1(tmp_path):
    """As that version wrote them, with a step of the attack missing, and null for NaN."""
    write_tensors(tmp_path / "results.safetensors", {"features.explanations.0.image": np.ones(4, np.float32)}, {})
    explained = {"label": 0, "output": 1, "network": 1.0, "polynomial": 2, "constant": 0.5, "linear": 1.0}
    explained |= {"image": {"array": "features.explanations.0.image"}, "quadratic": None, "top": []}
    content = {
        "about": {
            "version": "0.1.0",
            "seconds": {"training": 1},
            "data": {"classes": ["a", "b"], "image_shape": [2, 2]},
        },
        "training": [
            {"seed": 0, "step": 1, "train_loss": 1.5, "test_loss": None, "train_accuracy": 1, "test_accuracy": 0.5}
        ],
        "dynamics": [],
        "spectra": [{"seed": 0, "step": 1, "inputs": "gaussian", "shares": [0.75], "rest": 0.25, "between": 0.0}],
        "features": {"seed": 0, "steps": [], "explanations": [explained]},
    }
    (tmp_path / "results.json").write_text(json.dumps(content))
    found = read_results(tmp_path)
    assert_equal(found.training[0], TrainingPoint(0, 1, 1.5, math.nan, 1.0, 0.5))
    assert_equal(found.spectra[0], Spectrum(0, 1, "gaussian", (0.75,), 0.25, 0.0))
    image = np.ones(4, np.float32)
    assert_equal(found.features.explanations[0], ImageExplanation(image, 0, 1, 1.0, 2.0, 0.5, 1.0, math.nan, ()))


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("training") and None,
        lambda content: content["dynamics"][3].pop("fvu_test") and None,
        lambda content: content["features"]["steps"][0].update(linear={"array": "nowhere"}),
        lambda content: content["features"]["steps"][0].update(linear=3),
        lambda content: content.update(dynamics=None),
        lambda content: content.update(dynamics=[1]),
        lambda content: content["dynamics"][0].update(fvu_test="text"),
        lambda content: [1, 2],
        lambda content: 3,
        lambda content: content.update(about=[]),
        lambda content: content.update(about=None),
        lambda content: content["about"].pop("data") and None,
        lambda content: content["about"].update(data=[]),
        lambda content: content["about"]["data"].update(classes=3),
        lambda content: content["about"]["data"].update(classes=[]),
        lambda content: content["about"]["data"].update(image_shape=[8]),
        lambda content: content["about"]["data"].update(image_shape=[8, 9]),
        lambda content: content["about"]["data"].update(image_shape=["8", "8"]),
        lambda content: content["about"].update(seconds=[]),
        lambda content: content["about"].update(seconds={"training": "long"}),
        lambda content: content["about"].update(config=[1]),
        lambda content: content["about"].update(command={}),
        lambda content: content["dynamics"][0].update(step="4"),
        lambda content: content["dynamics"][0].update(step=True),
        lambda content: content["dynamics"][0].update(step=None),
        lambda content: content["dynamics"][0].update(inputs=None),
        lambda content: content["dynamics"][0].update(fvu_test=10**400),
        lambda content: content["dynamics"][0].update(fvu_test=True),
        lambda content: content["spectra"][0].update(shares="abc"),
        lambda content: content["spectra"][0].update(shares={"1": 2}),
        lambda content: content["features"]["steps"][0].update(label=10**6),
        lambda content: content["features"]["formulas"][0].update(label=10**6),
        lambda content: content["features"]["formulas"][0]["small"][1].update(pixels=[10**6]),
        lambda content: content["features"]["steps"][0].update(linear={"array": "features.steps.0.positive"}),
        lambda content: content["features"]["steps"][0].update(linear={"array": "attack.0.pictures.digits"}),
        lambda content: content["features"]["steps"][0].update(positive_vectors={"array": "attack.0.pictures.digits"}),
        lambda content: content["features"]["explanations"][0].update(image={"array": "features.steps.0.positive"}),
        lambda content: content["features"]["explanations"][0].update(output=-1),
        lambda content: content["attack"][0]["pictures"].update(ladder={"array": "features.steps.0.linear"}),
        lambda content: content["attack"][0]["pictures"]["choices"].__setitem__(0, 10),
        lambda content: content["features"]["steps"][0].update(linear={"array": ["a"]}),
        lambda content: content["features"]["explanations"][0].update(top=None),
        lambda content: content["attack"][0]["pictures"].update(choices=[1]),
        lambda content: content["attack"][0]["pictures"].update(ladder_choices=["a"]),
        lambda content: content["claims"][0].update(holds="yes"),
        lambda content: content["claims"][0].update(measured=3),
    ],
)
def test_of_another_version(folder, tmp_path, change):
    with pytest.raises(FileFormatError, match=r"results.json is damaged or of another version .*run the study again"):
        read_results(rewrite(folder, tmp_path, change))


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("name", ["results.json", "results.safetensors"])
def test_truncated(folder, tmp_path, name, share):
    rewrite(folder, tmp_path, lambda content: None)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(FileFormatError, match=rf"{name} is not a readable .* file .*truncated"):
        read_results(tmp_path)


def test_missing(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*results.json; run the study that makes it first"):
        read_results(tmp_path)
    rewrite(folder, tmp_path, lambda content: None)
    (tmp_path / "results.safetensors").unlink()
    with pytest.raises(FileFormatError, match=r"results.safetensors"):
        read_results(tmp_path)


def test_folder_that_is_missing(results, tmp_path):
    with pytest.raises(FileNotFoundError, match="create it before saving"):
        save_results(tmp_path / "missing" / "results.json", results)


# -- tables ------------------------------------------------------------------------------------------------------------


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_tables(results, tmp_path):
    written = write_tables(results, tmp_path / "tables")
    assert [p.stem for p in written] == ["training", "dynamics", "spectra", "ablation", "steering", "claims"]
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


def test_tables_of_nothing(tmp_path):
    assert write_tables(Results({}, (), (), ()), tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_tuples_of_unequal_length(tmp_path):
    write_table(
        tmp_path / "a.csv", [Spectrum(0, 1, "gaussian", (0.5,), 0.5, 0.0), Spectrum(0, 2, "x", (0.5, 0.25), 0.25, 0)]
    )
    rows = read(tmp_path / "a.csv")
    assert [row["shares_2"] for row in rows] == ["", "0.25"]


# -- words -------------------------------------------------------------------------------------------------------------


def shown(result):
    console = Console(file=io.StringIO(), width=100, highlight=False)
    show(result, console)
    return console.file.getvalue()


def test_words(results):
    text = shown(
        {
            "report": Path("out/report.html"),
            "seconds": {"training": 1.23456, "report": 2},
            "points": results.training[:2],
            "folders": [Path("a"), Path("b")],
            "nothing": [],
            "claims": (Claim("First", "p", "measured 1", True, "fvu"), Claim("Second", "p", "m", None, "fvu")),
        }
    )
    assert f"report: {Path('out/report.html').resolve()}\n" in text
    assert "seconds: training 1.235, report 2\n" in text
    assert "folders: a\nfolders: b\n" in text
    assert "test accuracy" in text
    assert f"{results.training[1].test_loss:.4g}" in text
    assert "measured 1" in text
    assert "yes" in text
    assert "cannot be judged" in text


@pytest.mark.parametrize("name", ["[red]a", "[/b]", "a[1]"])
def test_brackets_are_no_markup(name):
    """A folder may have any name."""
    claim = Claim(name, "p", name, False, "fvu")
    text = shown({"report": Path(name), "list": [Path(name)], "rows": [{"x": name}], "one": {"y": name}, "c": [claim]})
    assert text.count(name) == 6


def test_long_paths_are_not_broken():
    path = Path("/".join(["folder"] * 40))
    assert f"report: {path.resolve()}\n" in shown({"report": path})
