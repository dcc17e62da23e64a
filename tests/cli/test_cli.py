"""The command line: what it prints, what it refuses, and what is left when it is stopped."""

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest
from support.small_studies import blobs, changed, save

from mlpoly import cli
from mlpoly.cli import commands, main
from mlpoly.codec import to_plain
from mlpoly.studies.paper import reproduce as reproduce_module
from mlpoly.studies.paper.options import DynamicsConfig, TrainConfig
from mlpoly.studies.paper.results import read_results
from mlpoly.studies.paper.training import TrainingRun

COMMANDS = list(cli._COMMANDS)
SMALL = ["--hidden", "8", "--steps", "4", "--batch-size", "32", "--samples", "100", "--paper-steps", "2"]
SMALL += ["--until", "training", "--quiet"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No test sees data of the machine it runs on, or leaves something there."""
    monkeypatch.delenv("MLPOLY_DATA", raising=False)
    monkeypatch.delenv("MLPOLY_TRACEBACK", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("mlpoly.progress_bars._PATIENCE", -1.0)  # a bar would come at once, where there is a terminal
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data(tmp_path):
    return str(save(blobs(), tmp_path / "tiny.npz"))


@pytest.fixture
def trained(data, tmp_path, capfd):
    """A study whose networks are trained."""
    assert main(["paper", "--data", data, "--out", str(tmp_path / "study"), *SMALL]) == 0
    capfd.readouterr()
    return tmp_path / "study"


def assert_fails(capfd, arguments, message):
    """One line on stderr, nothing on stdout, exit code 1."""
    assert main([str(a) for a in arguments]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("mlpoly: error: ")
    assert err.count("\n") == 1 and err.endswith("\n")
    assert re.search(message, err), err
    assert "Traceback" not in err


def started(arguments, **options):
    command = [sys.executable, "-m", "mlpoly", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finished(process, timeout=120):
    """Exit code, stdout and stderr."""
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out, err


def wait_for(process, path, timeout=120):
    ends = time.monotonic() + timeout
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends
        time.sleep(0.002)


def helped(capsys, arguments):
    """The help, without frames and line breaks."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
    out, err = capsys.readouterr()
    assert err == ""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", out).split())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_every_option(capsys, name):
    text, command = helped(capsys, [name, "--help"]), getattr(commands, cli._COMMANDS[name][0])
    assert " ".join(command.__doc__.split()) in text
    assert not re.search(r"\b(INT|FLOAT|STR|PATH)\b", text)  # metavars and not types
    flat = [f.name for f in fields(command)]
    if name == "paper":
        flat += [f.name for record in (TrainConfig, DynamicsConfig) for f in fields(record)]
    nested = {"train", "fits", "config"} | ({"name"} if name == "data" else {"model"})
    for option in {*flat} - nested - {"action"}:
        assert re.search(rf"--{option.replace('_', '-')}\b", text), option


QUICK = [
    (["--help"], ""),
    (["--version"], ""),
    (["nosuch"], ""),
    (["paper", "--help"], "tyro"),
    (["lm", "--help"], "tyro"),
    (["data", "where"], "tyro rich"),
]


@pytest.mark.process
@pytest.mark.parametrize(("words", "needed"), QUICK, ids=lambda case: " ".join(case) if isinstance(case, list) else "")
def test_extras_are_imported_when_they_are_needed(words, needed):
    """Help must come at once, and most of its time goes into what is imported: nothing that help does not need."""
    code = """
import sys
from mlpoly.cli import main
from mlpoly.codec import to_plain
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print("imported:", *sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    found = set(run.stdout.splitlines()[-1].split())
    heavy = {"torch", "jax", "tyro", "rich", "matplotlib", "transformers", "sklearn", "cattrs"}
    assert found & heavy <= set(needed.split())
    if not needed:
        ours = {f"mlpoly.{name}" for name in ("lm", "studies", "pages.toolkit", "charts")}
        assert not found & (ours | {"scipy.stats", "scipy.optimize"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "report, lm, paper, data"),
        (["nosuch"], "nosuch"),
        (["paper", "--nosuch"], "--nosuch"),
        (["paper", "--hidden", "x"], "--hidden"),
        (["paper", "--hidden", "0"], "hidden must be at least 1, got 0"),
        (["paper", "train"], "train"),
        (["paper", "--until", "tomorrow"], "tomorrow"),
        (["paper", "--activation", "rleu"], "unknown activation 'rleu'"),
        (["paper", "--shrinkage", "2"], "shrinkage must lie between 0 and 1"),
        (["data"], "{download,where}"),
        (["data", "download", "digits"], "digits"),
    ],
)
def test_wrong_options(capfd, tmp_path, arguments, message):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert message.lower() in " ".join(re.sub(r"[│╭╮╰╯─]", " ", err).split()).lower()
    assert "Traceback" not in err
    assert "tyro" not in err  # nor any other name that is none of the user's business
    if arguments and arguments[0] in COMMANDS:
        assert f"mlpoly {arguments[0]} --help" in err
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_missing_data(capfd, tmp_path):
    assert_fails(capfd, ["paper", "--data", "mnist"], r"no mnist in .*cache/mlpoly/mnist; get it with `mlpoly data d")
    assert_fails(capfd, ["paper", "--data", "minst"], "'minst', which is not a data set .digits, mnist, fashion-mnist")
    assert_fails(capfd, ["paper", "--data", "mnist", "--data-dir", tmp_path / "there"], str(tmp_path / "there"))
    (tmp_path / "a.npz").write_bytes(b"nonsense")
    assert_fails(capfd, ["paper", "--data", "a.npz"], "a.npz is not a whole .npz file")
    assert_fails(capfd, ["paper", "report", "--out", tmp_path / "nowhere"], "there is no study in .*nowhere")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("part", ["train", "train_labels", "test", "test_labels"])
def test_study_of_other_data(capfd, trained, data, part):
    """Otherwise networks of the old images are judged on the new ones, and nobody is told."""
    save(changed(blobs(), part), Path(data))
    before = everything(trained)
    message = "study holds a study with another data set; choose another --out"
    assert_fails(capfd, ["paper", "--data", data, "--out", trained, *SMALL], message)
    assert_fails(capfd, ["paper", "report", "--out", trained], "have changed since the study in")
    assert everything(trained) == before


def everything(folder):
    """Every file below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hidden", "9"], "holds a study with hidden 8, now 9; choose another --out"),
        (["--seeds", "0"], "seeds must be at least 1"),
        (["--label", "42"], "label is 42, but the classes of the data are 0, 1, 2"),
        (["--device", "nonsense"], "device 'nonsense' is not usable here .*; use cpu"),
    ],
)
def test_a_refused_command_changes_nothing(capfd, trained, data, options, message):
    before = everything(trained)
    assert_fails(capfd, ["paper", "--data", data, "--out", trained, *SMALL, *options], message)
    if options[0] != "--label":  # the options of the fits may change
        assert everything(trained) == before


@pytest.mark.parametrize("content", ["{", "[]", '{"my": "own numbers"}', '{"kind": "LmResults", "seconds": {}}'])
def test_studies_of_something_else_are_never_replaced(capfd, trained, data, content):
    (trained / "study.json").write_text(content)
    before = everything(trained)
    for words in (["paper", "--data", data, *SMALL], ["paper", "report"]):
        assert_fails(capfd, [*words, "--out", trained], "study.json is not a readable JSON|a study of another kind")
        assert everything(trained) == before


def test_cache_that_cannot_be_written(capfd, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert main(["data", "download"]) == 1
    out, err = capfd.readouterr()
    assert out == "" and re.search("cannot be written to .*XDG_CACHE_HOME", err)
    assert "MLPOLY_TRACEBACK=1" in err  # which is said where it may be a mistake of ours


def test_training_alone(data, tmp_path, capfd):
    arguments = ["paper", "--data", data, "--out", str(tmp_path / "study"), *SMALL, "--seeds", "2", "--seed", "5"]
    assert main([*arguments, "--json"]) == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert err == ""
    folders = [tmp_path / "study" / f"seed-{seed}" / "checkpoints" for seed in (5, 6)]
    assert [(n["seed"], n["step"]) for n in found["networks"]] == [(5, 4), (6, 4)]
    assert [TrainingRun.open(f).steps for f in folders] == [[0, 1, 2, 4]] * 2
    training = read_results(tmp_path / "study").training
    expected = next(p for p in training if (p.seed, p.step) == (5, 4)).test_accuracy
    assert found["networks"][0]["test_accuracy"] == expected and found["report"] is None
    assert main(arguments) == 0
    assert "test accuracy" in capfd.readouterr().out


def test_interrupt(data, tmp_path, capfd, monkeypatch):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduce_module, "study_dynamics", stopped)
    words = ["--until", "dynamics"]
    assert main(["paper", "--data", data, "--out", str(tmp_path / "study"), *SMALL, *words]) == 130
    assert capfd.readouterr() == ("", "mlpoly: interrupted; the same command resumes where it was.\n")
    assert len(read_results(tmp_path / "study").training) == 4  # what was finished is kept


@pytest.mark.process
@pytest.mark.slow
def test_interrupted_and_killed(data, tmp_path):
    """SIGINT, then SIGKILL, in the middle of the fits; at the third time it finishes, with nothing done twice."""
    out = tmp_path / "study"
    arguments = ["paper", "--data", data, "--out", out, "--hidden", "8", "--steps", "64", "--samples", "500"]
    arguments += ["--json", "--quiet"]
    fits = out / "seed-0" / "fits"
    process = started(arguments)
    wait_for(process, fits / "step-0000000.json")
    process.send_signal(signal.SIGINT)
    assert finished(process) == (130, "", "mlpoly: interrupted; the same command resumes where it was.\n")
    assert not (fits / "step-0000064.json").exists()
    process = started(arguments)
    wait_for(process, fits / "step-0000008.json")
    process.send_signal(signal.SIGKILL)
    code, printed, err = finished(process)
    assert (code, printed, err) == (-signal.SIGKILL, "", "")
    kept = {p: p.stat().st_mtime_ns for p in fits.glob("*.json")}
    assert len(kept) < 8
    code, printed, err = finished(started(arguments))
    assert (code, err) == (0, "")
    assert json.loads(printed)["report"] == str(out / "report.html")
    assert {p: p.stat().st_mtime_ns for p in kept} == kept
    whole = tmp_path / "whole"
    code, printed, err = finished(started([str(whole) if a == out else a for a in arguments]))
    assert (code, err) == (0, "")
    for name in ("training", "spectra", "attack", "claims"):
        first, second = (to_plain(getattr(read_results(folder), name)) for folder in (out, whole))
        assert first == second
