"""The command line: what it prints, what it refuses, and what is left when it is stopped."""

import importlib
import importlib.metadata
import json
import re
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path

import pytest
import torch
from support.small_studies import ABSENT, altered, blobs, changed, save

import mlpoly
from mlpoly import cli
from mlpoly.cli import main
from mlpoly.studies.paper import reproduce as reproduce_module
from mlpoly.studies.paper.checkpoints import TrainingRun
from mlpoly.studies.paper.options import DynamicsConfig, TrainConfig
from mlpoly.studies.paper.results import read_results

COMMANDS = list(cli._COMMANDS)
SMALL = ["--hidden", "8", "--steps", "4", "--batch-size", "32", "--samples", "100", "--paper-steps", "2"]


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
def data(tmp_path) -> str:
    return str(save(blobs(), tmp_path / "tiny.npz"))


@pytest.fixture
def trained(data, tmp_path, capfd) -> Path:
    """A study whose networks are trained."""
    assert main(["train", "--data", data, "--out", str(tmp_path / "study"), *SMALL]) == 0
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


# -- help --------------------------------------------------------------------------------------------------------------


def helped(capsys, arguments) -> str:
    """The help, without frames and line breaks."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
    out, err = capsys.readouterr()
    assert err == ""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", out).split())


def command_class(name):
    module, kind, _ = cli._COMMANDS[name]
    return getattr(importlib.import_module(f"mlpoly.cli.{module}"), kind)


def options(command):
    """Name and default of every option that has one, those of nested records too."""
    for f in fields(command):
        made = f.default if f.default_factory is MISSING else f.default_factory()
        if is_dataclass(made) and made is not MISSING:
            yield from ((g.name, getattr(made, g.name)) for g in fields(made))
        elif made is not MISSING:
            yield f.name, made


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_every_option_with_its_default(capsys, name):
    text = helped(capsys, [name, "--help"])
    command = command_class(name)
    assert " ".join(command.__doc__.split()) in text
    found = dict(options(command))
    assert found
    for option, default in found.items():
        flag = f"--{option.replace('_', '-')}" if option != "name" else "{mnist,fashion-mnist,stories260K}"
        flag = "[MODEL]" if option == "model" else flag  # no flag, like the name
        said = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
        assert re.search(rf"{re.escape(flag)}[\] ,].*?\(default: {re.escape(said)}\)", text), option
    assert text.count("(default:") == len(found)
    if name in ("reproduce", "train"):
        assert {f.name for f in fields(TrainConfig)} | {f.name for f in fields(DynamicsConfig)} <= set(found)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_metavars_and_not_types(capsys, name):
    text = helped(capsys, [name, "--help"])
    assert not re.search(r"\b(INT|FLOAT|STR|PATH)\b", text)


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_the_commands(capsys, flag):
    assert main([flag]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [line.split()[0] for line in out.splitlines() if line.startswith("  ")] == COMMANDS


def test_lm_names_its_model(capsys):
    assert helped(capsys, ["lm", "--help"]).startswith("usage: mlpoly lm [-h] [OPTIONS] [MODEL]")


QUICK = [
    (["--help"], ""),
    (["--version"], ""),
    (["nosuch"], ""),
    (["train", "--help"], "tyro"),
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
        assert not found & {
            "mlpoly.lm",
            "mlpoly.studies",
            "mlpoly.pages.toolkit",
            "mlpoly.charts",
            "scipy.stats",
            "scipy.optimize",
        }


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(capsys, flag):
    assert main([flag]) == 0
    assert capsys.readouterr() == (f"mlpoly {mlpoly.__version__}\n", "")


@pytest.mark.process
def test_as_a_module_and_as_a_script():
    done = subprocess.run([sys.executable, "-m", "mlpoly", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"mlpoly {mlpoly.__version__}\n", "")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["mlpoly"] == "mlpoly.cli:main"


def test_installed_script(capsys):
    found = [e for e in importlib.metadata.entry_points(group="console_scripts") if e.name == "mlpoly"]
    if not found:
        pytest.skip("mlpoly was installed before it had a command line; install it again")
    assert found[0].load()(["--version"]) == 0


# -- wrong options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "reproduce, train, dynamics"),
        (["nosuch"], "nosuch"),
        (["train", "--nosuch"], "--nosuch"),
        (["train", "--hidden", "x"], "--hidden"),
        (["train", "--hidden"], "--hidden"),
        (["train", "--hidden", "0"], "hidden must be at least 1, got 0"),
        (["train", "--steps", "-1"], "steps must be at least 0"),
        (["train", "--activation", "rleu"], "unknown activation 'rleu'"),
        (["train", "--learning-rate", "nan"], "learning_rate must be a positive number"),
        (["reproduce", "--shrinkage", "2"], "shrinkage must lie between 0 and 1"),
        (["reproduce", "--tolerance", "-1"], "tolerance must be a number >= 0"),
        (["reproduce", "--samples", "1"], "samples must be at least 2"),
        (["data"], "{download,where}"),
        (["data", "upload"], "upload"),
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


# -- errors ------------------------------------------------------------------------------------------------------------


def test_missing_data(capfd, tmp_path):
    for command in ("train", "reproduce"):
        assert_fails(
            capfd, [command, "--data", "mnist"], r"no mnist in .*cache/mlpoly/mnist; get it with `mlpoly data d"
        )
    assert_fails(capfd, ["train", "--data", "minst"], "'minst', which is not a data set .digits, mnist, fashion-mnist")
    assert_fails(capfd, ["train", "--data", "mnist", "--data-dir", tmp_path / "there"], str(tmp_path / "there"))


def test_data_that_was_missing_is_not_what_the_folder_is_about(capfd, data, tmp_path):
    """A typing error must not cost the folder."""
    assert_fails(capfd, ["train", "--data", f"{data}x", "--out", tmp_path / "study", *SMALL], "tiny.npzx")
    assert main(["train", "--data", data, "--out", str(tmp_path / "study"), *SMALL]) == 0


def test_unreadable_data(capfd, tmp_path):
    folder = tmp_path / "idx"
    folder.mkdir()
    assert_fails(capfd, ["train", "--data", folder], "holds no train-images-idx3-ubyte")
    for kind in ("train", "t10k"):
        (folder / f"{kind}-images-idx3-ubyte").write_bytes(b"\x00\x00\x08\x03" + bytes(12) + b"more")
        (folder / f"{kind}-labels-idx1-ubyte").write_bytes(b"nonsense")
    assert_fails(capfd, ["train", "--data", folder], "train-images-idx3-ubyte is truncated or damaged")
    (tmp_path / "a.npz").write_bytes(b"nonsense")
    assert_fails(capfd, ["train", "--data", "a.npz"], "a.npz is not an .npz file")


@pytest.mark.parametrize("command", ["train", "reproduce"])
def test_folder_that_cannot_be_written(capfd, data, tmp_path, command):
    (tmp_path / "file").write_text("in the way")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        assert_fails(capfd, [command, "--data", data, "--out", out], "cannot be written to .*choose another")


def test_study_of_other_data(capfd, trained, data):
    for command in ("train", "reproduce"):
        message = r"study is a study of '.*tiny.npz', not of 'digits'; choose another --out"
        assert_fails(capfd, [command, "--out", trained, "--data", "digits", *SMALL], message)


def test_data_that_has_changed(capfd, trained, data, tmp_path):
    save(blobs(side=5), Path(data))
    message = r"the data '.*tiny.npz' is not what it was when the study in .*study was made"
    assert_fails(capfd, ["train", "--data", data, "--out", trained, *SMALL], message)
    assert_fails(capfd, ["dynamics", "--out", trained], message)


@pytest.mark.parametrize("part", ["train", "train_labels", "test", "test_labels"])
def test_data_of_the_same_shape_with_other_content_is_noticed(capfd, trained, data, part):
    """Otherwise networks of the old images are judged on the new ones, and nobody is told."""
    save(changed(blobs(), part), Path(data))
    before = everything(trained)
    message = r"is not what it was when the study in .*study was made: its images or labels have changed. Put the old"
    for arguments in (
        ["train", "--data", data, *SMALL],
        ["reproduce", "--data", data, *SMALL],
        ["dynamics"],
        ["report"],
    ):
        assert_fails(capfd, [*arguments, "--out", trained], message)
        assert everything(trained) == before
    save(blobs(), Path(data))  # and back again
    assert main(["train", "--data", data, "--out", str(trained), *SMALL]) == 0


def everything(folder):
    """Every file below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("options", [["--hidden", "9"], ["--seeds", "0"], ["--hidden", "9", "--seeds", "2"]])
@pytest.mark.parametrize("command", ["train", "reproduce"])
def test_a_refused_command_changes_nothing(capfd, trained, data, command, options):
    """Not even what the folder says of its fits, which the next command would use."""
    before = everything(trained)
    other = ["--shrinkage", "0.5", "--samples", "77"]
    assert_fails(capfd, [command, "--data", data, "--out", trained, *SMALL, *other, *options], "other options|seeds")
    assert everything(trained) == before


def test_a_refused_command_makes_no_folder(capfd, data, tmp_path):
    assert_fails(capfd, ["train", "--data", f"{data}x", "--out", tmp_path / "new"], "tiny.npzx")
    assert_fails(capfd, ["train", "--data", data, "--seeds", "0", "--out", tmp_path / "new"], "seeds")
    assert not (tmp_path / "new").exists()


def test_a_damaged_state_is_told_before_anything_is_changed(capfd, trained, data):
    altered(trained / "seed-0" / "checkpoints" / "state.safetensors", {"step": -5})
    before = everything(trained)
    longer = [*SMALL, "--steps", "8", "--samples", "77"]
    assert_fails(capfd, ["train", "--data", data, "--out", trained, *longer], "state.safetensors lacks a valid step")
    assert everything(trained) == before


def test_studies_of_versions_that_did_not_note_the_data_are_continued(trained, data):
    content = json.loads((trained / "study.json").read_text())
    fingerprint = content.pop("fingerprint")
    (trained / "study.json").write_text(json.dumps(content))
    assert main(["train", "--data", data, "--out", str(trained), *SMALL]) == 0
    assert json.loads((trained / "study.json").read_text())["fingerprint"] == fingerprint


def test_other_options_in_the_folder(capfd, trained, data):
    arguments = ["train", "--data", data, "--out", trained, *SMALL, "--hidden", "9"]
    assert_fails(capfd, arguments, r"holds a run of other options \(hidden is 9, there 8\); choose another folder")


@pytest.mark.parametrize("command", ["dynamics", "features", "attack", "report"])
def test_no_study(capfd, tmp_path, command):
    message = r"nowhere holds no study; make one with `mlpoly train --out .*nowhere` first"
    assert_fails(capfd, [command, "--out", tmp_path / "nowhere"], message)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("command", ["features", "attack"])
def test_step_before_the_one_it_needs(capfd, trained, command):
    message = r"fits lacks the fits of steps 0, 1, 2, 4; run `mlpoly dynamics --out .*study` first"
    assert_fails(capfd, [command, "--out", trained], message)


def test_report_of_a_study_that_was_killed_at_once(capfd, trained):
    (trained / "results.json").unlink()
    assert_fails(capfd, ["report", "--out", trained], r"no results in .*study; run `mlpoly train --out .*study` first")


DAMAGED = [
    "",
    "[]",
    "null",
    '{"data": 1}',
    '{"data": "digits", "data_dir": null}',
    '{"data": "digits", "data_dir": null, "dynamics": null}',
    '{"data": "digits", "data_dir": null, "dynamics": []}',
    '{"data": "digits", "data_dir": null, "dynamics": {"a": 1}}',
    '{"data": "digits", "data_dir": null, "dynamics": {"samples": "many"}}',
    '{"data": "digits", "data_dir": null, "dynamics": {"tolerance": "small"}}',
    '{"data": "digits", "data_dir": null, "dynamics": {"tolerance": 1%s}}' % ("0" * 400),
    '{"data": "digits", "data_dir": null, "dynamics": {"samples": 1%s}}' % ("0" * 5000),
    '{"data": "digits", "data_dir": 3, "dynamics": {}}',
    '{"data": null, "data_dir": null, "dynamics": {}}',
    '{"data": "digits", "data_dir": null, "dynamics": {}, "fingerprint": 3}',
    "[" * 100_000,
]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_study(capfd, trained, data, content):
    (trained / "study.json").write_text(content)
    for arguments in (["report"], ["train", "--data", data]):
        assert_fails(capfd, [*arguments, "--out", trained], r"study.json is (not a readable JSON|damaged)")


def test_damaged_results(capfd, trained):
    (trained / "results.json").write_text("{")
    assert_fails(capfd, ["report", "--out", trained], r"results.json is not a readable JSON file .*truncated")


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"my": "own numbers"}', '{"about": {}, "fits": [], "losses": []}', '{"about": []}']
)
def test_results_that_are_damaged_or_of_somebody_else_are_never_replaced(capfd, trained, data, content):
    (trained / "results.json").write_text(content)
    before = everything(trained)
    for arguments in (["train", "--data", data, *SMALL, "--samples", "77"], ["dynamics"], ["report"]):
        message = r"results.json is (not a readable JSON|damaged or of another version).*Move results.json"
        assert_fails(capfd, [*arguments, "--out", trained], message)
        assert everything(trained) == before


def test_crafted_checkpoints_are_one_line(capfd, trained, data):
    path = trained / "seed-0" / "checkpoints" / "step-0000004.safetensors"
    whole = path.read_bytes()
    for name in ("config", "config.seed", "config.activation", "config.gated", "step"):
        altered(path, {name: ABSENT})
        for arguments in (["train", "--data", data, *SMALL], ["dynamics"], ["report"]):
            message = rf"step-0000004.safetensors has no valid {name.split('.')[-1]} in its header"
            assert_fails(capfd, [*arguments, "--out", trained], message)
        path.write_bytes(whole)


def test_damaged_checkpoint(capfd, trained):
    path = trained / "seed-0" / "checkpoints" / "step-0000002.safetensors"
    path.write_bytes(path.read_bytes()[:50])
    assert_fails(capfd, ["dynamics", "--out", trained], r"step-0000002.safetensors is not a readable .*truncated")


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is such a device")
def test_device_that_is_not_there(capfd, trained, data, tmp_path):
    message = "device 'cuda' is not usable here .*; use cpu"
    assert_fails(capfd, ["train", "--data", data, "--out", tmp_path / "new", "--device", "cuda"], message)
    assert not (tmp_path / "new").exists()
    assert_fails(capfd, ["dynamics", "--out", trained, "--device", "cuda"], message)
    assert_fails(capfd, ["dynamics", "--out", trained, "--device", "nonsense"], "device 'nonsense' is not usable")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("seeds", "0", "seeds must be at least 1"),
        ("label", "-1", "label must be at least 0"),
        ("label", "42", "label is 42, but the classes of the data are 0, 1, 2"),
    ],
)
def test_values_that_cannot_be(capfd, data, tmp_path, option, value, message):
    assert_fails(capfd, ["reproduce", "--data", data, "--out", tmp_path / "new", *SMALL, f"--{option}", value], message)
    assert not (tmp_path / "new" / "seed-0").exists()  # before any work


@pytest.mark.parametrize("command", ["attack", "report"])
def test_class_that_the_data_has_not(capfd, trained, command):
    message = "label is 3, but the classes of the data are 0, 1, 2"
    assert_fails(capfd, [command, "--out", trained, "--label", "3"], message)


def test_cache_that_cannot_be_written(capfd, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert_fails(capfd, ["data", "download"], "cannot be written to .*XDG_CACHE_HOME")


def test_traceback_on_request(monkeypatch, tmp_path):
    monkeypatch.setenv("MLPOLY_TRACEBACK", "1")
    with pytest.raises(FileNotFoundError):
        main(["report", "--out", str(tmp_path)])


# -- what it prints ----------------------------------------------------------------------------------------------------


def test_train(data, tmp_path, capfd):
    arguments = ["train", "--data", data, "--out", str(tmp_path / "study"), *SMALL, "--seeds", "2", "--seed", "5"]
    assert main([*arguments, "--json"]) == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert err == ""
    folders = [tmp_path / "study" / f"seed-{seed}" / "checkpoints" for seed in (5, 6)]
    assert found["checkpoints"] == [str(f) for f in folders]
    assert [(n["seed"], n["step"]) for n in found["networks"]] == [(5, 4), (6, 4)]
    assert [TrainingRun.open(f).steps for f in folders] == [[0, 1, 2, 4]] * 2
    training = read_results(tmp_path / "study").training
    assert (
        found["networks"][0]["test_accuracy"] == next(p for p in training if (p.seed, p.step) == (5, 4)).test_accuracy
    )
    assert main(arguments) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert f"checkpoints: {folders[0]}\n" in out
    assert "test accuracy" in out


def test_bars_on_a_terminal_alone(data, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    arguments = ["train", "--data", data, *SMALL, "--json"]
    assert main([*arguments, "--out", str(tmp_path / "loud")]) == 0
    out, err = capfd.readouterr()
    assert "training, seed 0" in err
    json.loads(out)
    assert main([*arguments, "--out", str(tmp_path / "quiet"), "--quiet"]) == 0
    assert capfd.readouterr().err == ""


def test_steps_one_by_one(trained, capfd, monkeypatch):
    monkeypatch.setattr(reproduce_module, "write_figures", lambda *arguments: [])
    printed = {}
    for command in ("dynamics", "features", "attack", "report"):
        assert main([command, "--out", str(trained), "--json"]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        printed[command] = json.loads(out)
    assert {(p["step"], p["inputs"]) for p in printed["dynamics"]["points"]} == {
        (4, name) for name in ("standard", "gaussian", "mixture", "paper")
    }
    assert [row["class"] for row in printed["features"]["eigenvalues"]] == [0, 1, 2]
    assert {row["directions"] for row in printed["attack"]["ablation"]} == {"singular"}
    assert printed["report"]["report"] == str(trained / "report.html")
    assert (trained / "report.html").is_file()
    assert printed["report"]["claims"][0]["name"] == "Degrees in order"
    for command in ("dynamics", "features"):  # and as tables
        assert main([command, "--out", str(trained)]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        assert out.strip()


def test_where_data_is_looked_for(capfd, tmp_path, monkeypatch):
    places = [str(tmp_path / "cache" / "mlpoly" / "mnist")]
    assert main(["data", "where", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"searched": places}
    monkeypatch.setenv("MLPOLY_DATA", "")
    assert main(["data", "where"]) == 0
    assert capfd.readouterr().out == f"searched: {places[0]}\n"
    monkeypatch.setenv("MLPOLY_DATA", "/shared")
    assert main(["data", "where", "fashion-mnist", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["searched"][0] == "/shared/fashion-mnist"


# -- stopped -----------------------------------------------------------------------------------------------------------


def test_interrupt(data, tmp_path, capfd, monkeypatch):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduce_module, "study_dynamics", stopped)
    assert main(["reproduce", "--data", data, "--out", str(tmp_path / "study"), *SMALL, "--quiet"]) == 130
    assert capfd.readouterr() == ("", "mlpoly: interrupted; the same command resumes where it was.\n")
    assert len(read_results(tmp_path / "study").training) == 4  # what was finished is kept


@pytest.mark.process
def test_interrupted_process(data, tmp_path, capfd):
    """SIGINT in the middle of a training; the same command finishes it."""
    out = tmp_path / "study"
    arguments = ["train", "--data", data, "--out", str(out), "--hidden", "8", "--steps", "1500", "--json"]
    process = started(arguments)
    checkpoints = out / "seed-0" / "checkpoints"
    wait_for(process, checkpoints / "step-0000128.safetensors")
    process.send_signal(signal.SIGINT)
    assert finished(process) == (130, "", "mlpoly: interrupted; the same command resumes where it was.\n")
    assert 128 in TrainingRun.open(checkpoints).steps
    assert 1500 not in TrainingRun.open(checkpoints).steps
    assert main(arguments) == 0
    assert json.loads(capfd.readouterr().out)["networks"][0]["step"] == 1500


@pytest.mark.process
@pytest.mark.slow
def test_reproduce_interrupted_and_killed(data, tmp_path):
    """SIGINT, then SIGKILL, in the middle of the fits; at the third time it finishes, with nothing done twice."""
    out = tmp_path / "study"
    arguments = [
        "reproduce",
        "--data",
        data,
        "--out",
        out,
        "--hidden",
        "8",
        "--steps",
        "64",
        "--samples",
        "500",
        "--json",
    ]
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
        first, second = (json.loads((folder / "results.json").read_text())[name] for folder in (out, whole))
        assert first == second
