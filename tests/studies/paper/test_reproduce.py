"""The whole reproduction: everything is there, computed once, and the same whichever way it was run."""

import csv
import json
import re
import shlex
from dataclasses import replace

import pytest
from support.records import assert_equal
from support.small_studies import blobs, changed, save

from mlpoly import cli
from mlpoly.codec import to_plain
from mlpoly.errors import FileFormatError
from mlpoly.studies.paper import dynamics as dynamics_module
from mlpoly.studies.paper import reproduce as reproduce_module
from mlpoly.studies.paper import training as training_module
from mlpoly.studies.paper.dynamics import approximants
from mlpoly.studies.paper.options import DynamicsConfig, TrainConfig
from mlpoly.studies.paper.reproduce import reproduce, write_up
from mlpoly.studies.paper.results import read_results

TRAIN = TrainConfig(hidden=8, steps=2, batch_size=32, learning_rate=0.0123456789, warmup=8)
FITS = DynamicsConfig(samples=100, paper_steps=2, max_degree=3)
FIGURES = (
    "accuracy", "figure-1-features", "figure-2-fvu", "figure-3-kl", "figure-4-ablated-2",
    "figure-5-attack-2", "spectrum",
)  # fmt: skip
TABLES = ("ablation", "claims", "dynamics", "spectra", "training")


def content(folder):
    """All results but the clock."""
    found = to_plain(read_results(folder))
    del found["about"]["seconds"], found["about"]["command"]
    for p in found["dynamics"]:
        del p["seconds"]
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three classes, in a folder whose name a shell would split."""
    folder = tmp_path_factory.mktemp("data") / "my data"
    folder.mkdir()
    return save(blobs(), folder / "tiny.npz")


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A finished reproduction, with its figures."""
    folder = tmp_path_factory.mktemp("whole") / "study"
    found = reproduce(folder, str(data), train=TRAIN, fits=FITS)
    assert_equal(found, read_results(folder))
    return folder


@pytest.fixture
def quick(monkeypatch):
    """Without figures and the page about the network, which take most of the time."""
    monkeypatch.setattr(reproduce_module, "write_figures", lambda *arguments: [])
    monkeypatch.setattr(reproduce_module, "write_page", lambda subject, fits, path, title: path)


@pytest.fixture
def never(monkeypatch):
    """No training and no fits from here on."""

    def fails(*arguments, **options):
        raise AssertionError("computed again")

    monkeypatch.setattr(dynamics_module, "approximants", fails)
    monkeypatch.setattr(training_module, "_Trainer", fails)


@pytest.fixture
def calls(monkeypatch):
    """Seeds of the checkpoints that were fitted."""
    seeds = []

    def counting(net, setting, start, seed):
        seeds.append(seed)
        return approximants(net, setting, start, seed)

    monkeypatch.setattr(dynamics_module, "approximants", counting)
    return seeds


def assert_complete(folder, figures):
    """Report, results, tables that parse, and figures in both formats."""
    results = read_results(folder)
    for name in figures:
        assert (folder / "figures" / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert (folder / "figures" / f"{name}.pdf").read_bytes()[:5] == b"%PDF-"
    assert {p.stem for p in (folder / "figures").iterdir()} == set(figures)
    counts = {"training": len(results.training), "dynamics": len(results.dynamics), "claims": len(results.claims)}
    assert {p.stem for p in (folder / "tables").iterdir()} == set(TABLES)
    for name in TABLES:
        with (folder / "tables" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, strict=True))
        assert len(rows) == counts.get(name, len(rows)) > 0
        assert all(None not in row and None not in row.values() for row in rows)  # as many cells as columns
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert len(results.claims) >= 12
    for claim in results.claims:
        assert claim.name in report
    assert not [p for p in folder.rglob(".*")]  # nothing half-written


def test_everything_is_there(whole):
    assert_complete(whole, FIGURES)
    results = read_results(whole)
    assert [p.step for p in results.training] == [0, 1, 2]
    assert len(results.dynamics) == 3 * 7
    assert len(results.spectra) == 3 * 2
    assert results.features is not None
    assert [(s.step, s.label) for s in results.features.steps] == [(s, c) for s in (0, 1, 2) for c in range(3)]
    assert [a.step for a in results.attack] == [2]
    assert results.attack[0].pictures.ladder_label == 2  # the last of three classes for the default of 3
    assert "<h1>The network as a polynomial</h1>" in (whole / "network.html").read_text(encoding="utf-8")
    report = (whole / "report.html").read_text(encoding="utf-8")
    assert all(words in report for words in ('href="network.html"', 'id="formula"', 'id="examples"'))


def test_command_to_do_it_again(data, tmp_path, quick, monkeypatch):
    """The command in the results is the one that was typed, and asks for the same to the last digit."""
    words = ["paper", "--data", str(data), "--out", str(tmp_path / "a b"), "--hidden", "8", "--steps", "1"]
    words += ["--learning-rate", "0.0123456789", "--warmup", "8", "--samples", "100", "--paper-steps", "2"]
    assert cli.main([*words, "--until", "training", "--quiet"]) == 0
    results = read_results(tmp_path / "a b")
    assert shlex.split(results.about["command"]) == ["mlpoly", *words, "--until", "training", "--quiet"]
    assert results.about["config"]["learning_rate"] == 0.0123456789


def test_stages_one_by_one_are_the_same(whole, data, tmp_path, quick):
    for until in ("training", "dynamics", "features", "attack", "report"):
        found = reproduce(tmp_path, str(data), train=TRAIN, fits=FITS, until=until)
        assert list(found.about["seconds"])[-1] == until
    assert content(tmp_path) == content(whole)
    assert_equal(read_results(tmp_path).features, read_results(whole).features)


def test_report_alone(data, tmp_path, quick):
    """A report can be made at any time, of what there is."""
    reproduce(tmp_path, str(data), train=TRAIN, fits=FITS, until="training")
    found = write_up(tmp_path)
    assert found.claims == found.dynamics == () and (tmp_path / "report.html").is_file()
    assert {p.name for p in (tmp_path / "tables").iterdir()} == {"training.csv"}
    save(changed(blobs(), "test"), tmp_path / "other.npz")
    study = json.loads((tmp_path / "study.json").read_text())
    study["data"]["name"] = str(tmp_path / "other.npz")
    (tmp_path / "study.json").write_text(json.dumps(study))
    with pytest.raises(ValueError, match="have changed since the study in"):
        write_up(tmp_path)


def test_damaged_results_are_not_replaced(data, tmp_path, quick):
    options = {"train": replace(TRAIN, steps=1), "fits": FITS, "until": "training"}
    reproduce(tmp_path, str(data), **options)
    path = tmp_path / "results" / "training.json"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FileFormatError, match=r"training.json is not a readable .*run the study again"):
        reproduce(tmp_path, str(data), **options)


def test_second_call_finds_everything(whole, data, quick, never):
    before = content(whole)
    reproduce(whole, str(data), train=TRAIN, fits=FITS)
    assert content(whole) == before


def test_one_seed_then_two(data, tmp_path, quick, calls):
    train = replace(TRAIN, steps=1)
    reproduce(tmp_path / "parts", str(data), train=train, fits=FITS)
    assert calls == [0] * 2
    first = {p.name: p.read_bytes() for p in (tmp_path / "parts" / "seed-0").rglob("*") if p.is_file()}
    calls.clear()
    reproduce(tmp_path / "parts", str(data), train=train, fits=FITS, seeds=2)
    assert calls == [1] * 2
    assert {p.name: p.read_bytes() for p in (tmp_path / "parts" / "seed-0").rglob("*") if p.is_file()} == first
    reproduce(tmp_path / "direct", str(data), train=train, fits=FITS, seeds=2)
    assert content(tmp_path / "parts") == content(tmp_path / "direct")
    assert {a.ablations[0].seed for a in read_results(tmp_path / "parts").attack} == {0, 1}
    calls.clear()
    reproduce(tmp_path / "parts", str(data), train=train, fits=FITS, seeds=1)  # both are still there
    assert calls == []
    assert content(tmp_path / "parts") == content(tmp_path / "direct")


@pytest.mark.parametrize("stage", ["dynamics", "feature_step", "ablation_curve", "judge_claims", "write_report"])
def test_interrupt_at_every_stage(whole, data, tmp_path, quick, stage):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduce_module, stage, stopped)
        with pytest.raises(KeyboardInterrupt):
            reproduce(tmp_path, str(data), train=TRAIN, fits=FITS)
    if stage != "dynamics":
        assert len(read_results(tmp_path).dynamics) == 21  # what was finished is kept
    else:
        assert read_results(tmp_path).training and not read_results(tmp_path).dynamics
    if stage in ("ablation_curve", "judge_claims"):  # and can be read
        assert {'id="features"', 'id="fvu"'} <= set(re.findall(r'id="\w+"', (tmp_path / "report.html").read_text()))
    reproduce(tmp_path, str(data), train=TRAIN, fits=FITS)
    assert content(tmp_path) == content(whole)


@pytest.mark.parametrize(
    "options", [{"steps": 0}, {"activation": "square"}, {"gated": True, "activation": "silu"}], ids=str
)
def test_other_networks(data, tmp_path, quick, options):
    """One that was not trained, one that is its own quadratic (nothing is left to divide by), and a gated one."""
    found = reproduce(tmp_path, str(data), train=replace(TRAIN, **{"steps": 1} | options), fits=FITS)
    assert options.items() <= found.about["config"].items()
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert {c.holds for c in found.claims} >= {True, None}
