"""`mlpoly lm` from the outside: a tiny random model in a folder, token ids in a file, and what it leaves behind."""

import csv
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tokenizers
import transformers
from support.tiny_models import VOCABULARY, bert, llama, t5

from mlpoly.cli import main
from mlpoly.codec import to_plain
from mlpoly.lm.conversion.conversion import Conversion
from mlpoly.lm.conversion.convert import convert
from mlpoly.studies.language_model import stages
from mlpoly.studies.language_model.options import LmConfig
from mlpoly.studies.language_model.results import LmResults
from mlpoly.studies.language_model.run import study_lm

SMALL = ["--length", "16", "--tokens", "300", "--held-out-tokens", "60", "--degree", "2", "--degrees", "1", "2"]
SMALL += ["--bound", "1.5"]  # so that some of the few tokens lie beyond it
OPTIONS = {"length": 16, "tokens": 300, "held_out_tokens": 60, "degree": 2, "degrees": (1, 2), "bound": 1.5}
OPTIONS |= {"spectrum_degree": 2, "features_per_block": 2}  # the same for `study_lm`
FEW = ["--spectrum-degree", "2", "--features-per-block", "2", "--quiet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    llama(initializer_range=0.2).save_pretrained(place, safe_serialization=True)
    ids = np.random.default_rng(0).integers(1, VOCABULARY, size=(40, 16))
    np.save(place / "tokens.npy", ids.astype(np.int32))
    words = ["<unk>", *("abcdefghijklmnopqrstuvwxyz"[i % 26] + f"<{i}>" for i in range(31))]
    (place / "vocab.json").write_text(json.dumps(words), encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """The command in a process of its own, once for all tests that look at what it left."""
    out = tmp_path_factory.mktemp("out") / "study"
    text = str(folder / "tokens.npy")
    command = [sys.executable, "-W", "error", "-m", "mlpoly", "lm", str(folder), "--text", text, "--out", str(out)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, *SMALL, *FEW, "--json"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout)


@pytest.mark.process
def test_the_numbers_agree_with_one_another(run):
    out, printed = run
    results = LmResults.load(out)
    errors = results.errors
    assert [(e.block, e.degree) for e in errors] == [
        (f"model.layers.{i}.mlp", degree) for degree in (1, 2) for i in range(2)
    ]
    for low, high in zip(errors[:2], errors[2:], strict=True):
        assert high.closed_form < low.closed_form < 1
        assert high.held_out < low.held_out < 1
    whole = {(x.replaced, x.by): x for x in results.losses}
    assert printed["losses"][0]["cross_entropy"] == whole["none", ""].cross_entropy
    # The same polynomials without the lines beyond the bound stand beside them.
    unbounded = {x.degree: x for x in results.losses if x.by == "unbounded"}
    assert list(unbounded) == [1, 2]
    assert unbounded[2].kl != whole["all", "polynomial"].kl
    for e in errors:
        assert 0 < e.beyond < 0.4
        assert 0 < e.typical < 1.5
        assert e.held_out_unbounded != e.held_out
    assert whole["none", ""].kl == 0
    assert 0 < whole["all", "polynomial"].kl < whole["all", "removed"].kl
    assert ("model.layers.1.mlp", "polynomial") in whole
    saved = Conversion.load(out)
    assert saved.degree == 2 and list(saved.polynomials) == [e.block for e in errors[:2]]
    assert saved.errors["model.layers.0.mlp"].closed_form == pytest.approx(errors[2].closed_form)
    with (out / "tables/attribution.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["polynomial"]) == pytest.approx(results.attribution.parts[0, 0].sum())
    assert results.attribution.tokens[0].endswith(">")  # from vocab.json
    # Two features and five controls of each block, seen on the held-out text.
    assert [(f.block, f.kind) for f in results.features] == [
        (f"model.layers.{i}.mlp", kind) for i in range(2) for kind in ["principal"] * 2 + ["random"] * 5
    ]
    for feature in results.features:
        assert sum(feature.histogram) == pytest.approx(1) and feature.positive and feature.negative
        assert feature.causal.tokens == 64 and np.isfinite(feature.causal.correlation)
        assert feature.positive[0].value >= feature.positive[-1].value > feature.negative[0].value
    with (out / "tables/features.csv").open(encoding="utf-8") as file:
        assert [float(row["explained"]) for row in csv.DictReader(file)] == [f.explained for f in results.features]
    with (out / "tables/contexts.csv").open(encoding="utf-8") as file:
        assert "«" in next(csv.DictReader(file))["text"]


KILLED = """
import os, signal, sys
from mlpoly.cli import main
from mlpoly.studies.language_model import stages
real, calls = getattr(stages, sys.argv[1]), []
def dies(*args, **kwargs):
    calls.append(0)
    if len(calls) > int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **kwargs)
setattr(stages, sys.argv[1], dies)
main(sys.argv[3:])
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("function", "calls", "again"),
    [("evaluate", 1, [True]), pytest.param("block_features", 2, [False], marks=pytest.mark.slow)],
)
def test_a_killed_study_resumes_with_the_same_bits(run, folder, tmp_path, monkeypatch, function, calls, again):
    """Killed in the middle of the second degree, or while the features of the second block are made."""
    whole = LmResults.load(run[0])
    arguments = ["lm", str(folder), "--text", str(folder / "tokens.npy"), "--out", str(tmp_path), *SMALL, *FEW]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", KILLED, function, str(calls), *arguments], env=environment)
    assert done.returncode == -9
    half = LmResults.load(tmp_path)
    assert half.attribution is None and half.spectra == whole.spectra
    assert (len(half.errors), len(half.features)) == ((2, 0) if function == "evaluate" else (4, 0))

    measured = []  # whether the polynomials that are made now are measured, too
    monkeypatch.setattr(stages, "convert", lambda *a, **k: measured.append(bool(k["held_out"])) or convert(*a, **k))
    monkeypatch.setattr(stages, "block_spectra", None)
    assert main(arguments) == 0
    assert measured == again
    assert findings(LmResults.load(tmp_path)) == findings(whole)

    monkeypatch.setattr(stages, "convert", None)  # now everything is there
    assert findings(study_lm(folder, folder / "tokens.npy", tmp_path, **OPTIONS)) == findings(whole)


def findings(results):
    """All numbers and words of a study, apart from where it is and how long it took."""
    found = to_plain(results)
    found["errors"] = [errors | {"seconds": 0.0} for errors in found["errors"]]
    return found | {"about": {k: v for k, v in found["about"].items() if k not in ("command", "seconds", "machine")}}


@pytest.mark.process
def test_results_load_back(run, folder, tmp_path):
    found = study_lm(folder, folder / "tokens.npy", tmp_path, **OPTIONS)
    assert to_plain(LmResults.load(tmp_path)) == to_plain(found)
    assert findings(found) == findings(LmResults.load(run[0]))  # the command and the function do the same
    for name, other in vars(LmResults.load(tmp_path).attribution).items():
        np.testing.assert_array_equal(getattr(found.attribution, name), other)


@pytest.mark.process
def test_a_second_run_uses_the_moments(run, folder, tmp_path, capsys, monkeypatch):
    out = shutil.copytree(run[0], tmp_path / "copy")
    monkeypatch.setattr("mlpoly.lm.moments.collect.RowSums", None)  # nothing can be summed again
    before = (out / "moments/moments.safetensors").read_bytes()
    (out / "study.json").unlink()
    arguments = ["lm", str(folder), "--text", str(folder / "tokens.npy"), "--out", str(out), *SMALL, *FEW]
    assert main([*arguments, "--features-per-block", "0", "--no-single-blocks"]) == 0
    printed = capsys.readouterr().out
    assert "report:" in printed and "polynomial" in printed
    assert (out / "moments/moments.safetensors").read_bytes() == before


@pytest.mark.process
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"degree": 3}, "holds a study with degree 2, now 3; choose another --out, or replace it with --restart"),
        ({"single_blocks": False}, "holds a study with single_blocks True, now False; choose"),
        ({"tokens": 200}, "holds a study with tokens 300, now 200; choose"),
        ({"text": "other.npy"}, "holds a study with another text, another prompt; choose"),
        ({"prompt": [1, 2]}, "holds a study with another prompt; choose"),
        ({"model": "other"}, "holds a study with another model; choose"),
    ],
    ids=str,
)
def test_results_of_other_options_are_kept_and_the_study_refused(run, folder, tmp_path, monkeypatch, change, words):
    out = shutil.copytree(run[0], tmp_path / "out")
    llama(initializer_range=0.3).save_pretrained(tmp_path / "other")
    ids = np.random.default_rng(1).integers(1, VOCABULARY, size=(40, 16))
    np.save(tmp_path / "other.npy", ids.astype(np.int32))
    options = OPTIONS | {"model": folder, "text": folder / "tokens.npy"} | change
    options |= {name: tmp_path / value for name, value in change.items() if name in ("model", "text")}
    before = contents(out)
    monkeypatch.setattr("mlpoly.studies.language_model.run.collect", None)  # refused before the work begins
    with pytest.raises(ValueError, match=words):
        study_lm(out=out, **options)
    assert contents(out) == before


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.process
def test_restart_replaces_a_study(run, folder, tmp_path):
    """One block in place of two: nothing of the other is left."""
    out = shutil.copytree(run[0], tmp_path / "out")
    other = out / "mine" / "cfg.json"
    other.parent.mkdir()
    other.write_text("{}")
    options = OPTIONS | {"blocks": "layers.1.mlp", "degree": 1, "spectrum_degree": 0, "features_per_block": 0}
    found = study_lm(folder, folder / "tokens.npy", out, resume=False, **options)
    assert {errors.block for errors in found.errors} == {"model.layers.1.mlp"}
    saved = Conversion.load(out)
    assert list(saved.polynomials) == ["model.layers.1.mlp"] and saved.degree == 1
    assert {path.stem for path in (out / "tables").iterdir()} == {"fvu", "loss", "attribution"}
    assert other.read_text() == "{}"


@pytest.mark.process
def test_results_survive_another_machine_and_other_versions(run, folder, tmp_path, monkeypatch):
    out = shutil.copytree(run[0], tmp_path / "out")
    machine = {"device": "a processor", "system": "", "python": "", "torch": "", "numpy": "9.0"}
    monkeypatch.setattr("mlpoly.studies.study.describe_machine", lambda device: machine)
    monkeypatch.setattr(stages, "convert", None)  # nothing can be computed again
    with pytest.warns(UserWarning, match=r"are kept although .*numpy [\d.]+, now 9\.0.*--restart"):
        found = study_lm(folder, folder / "tokens.npy", out, **OPTIONS)
    assert findings(found) == findings(LmResults.load(run[0]))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (bert("BertModel"), "has no unembedding"),
        (bert("BertForSequenceClassification"), "has no unembedding"),
        (bert(), "not a causal language model"),
        (t5(), "not a causal language model"),
    ],
)
def test_models_that_do_not_predict_the_next_token_are_refused_at_once(model, words, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("mlpoly.studies.language_model.run.collect", None)
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(TypeError, match=words):
        study_lm(tmp_path / "model", folder / "tokens.npy", tmp_path / "out", **OPTIONS)


def test_a_length_that_the_model_does_not_take_is_refused(folder, tmp_path, monkeypatch, capsys):
    """The shipped model was trained on 64 tokens, as many as the one in the folder takes."""
    monkeypatch.setattr("mlpoly.studies.language_model.run.collect", None)
    message = "length is 65, but the model takes 64 tokens at most; use --length 64"
    with pytest.raises(ValueError, match=message):
        study_lm(folder, folder / "tokens.npy", tmp_path, length=65)
    assert main(["lm", "--length", "65", "--out", str(tmp_path), "--quiet"]) == 1
    assert message in capsys.readouterr().err


def test_the_length_is_by_default_what_the_model_takes(folder, tmp_path):
    long = np.random.default_rng(0).integers(1, VOCABULARY, size=(8, 100))
    np.save(tmp_path / "long.npy", long)
    options = {name: value for name, value in OPTIONS.items() if name != "length"} | {"degrees": (1,), "degree": 1}
    found = study_lm(folder, tmp_path / "long.npy", tmp_path / "out", **options)
    assert found.about["config"]["length"] == 64 and found.about["command"] == ""
    assert found.about["data"]["held_out"] == 64


def test_halves_of_surrogate_pairs_and_formulas_in_the_vocabulary_do_not_cost_the_work(folder, tmp_path, capsys):
    model = shutil.copytree(folder, tmp_path / "model")
    words = json.loads((model / "vocab.json").read_text(encoding="utf-8"))
    odd = ["\ud800", "=1+1", "@x", "\r", *words[4:]]
    (model / "vocab.json").write_text(json.dumps([odd[i % 4] + str(i) for i in range(len(words))]), encoding="utf-8")
    arguments = ["lm", str(model), "--text", str(model / "tokens.npy"), "--out", str(tmp_path / "out"), *SMALL, *FEW]
    assert main([*arguments, "--no-single-blocks"]) == 0
    assert "\\ud800" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "\\ud800" in (tmp_path / "out" / "results" / "attribution.json").read_text(encoding="utf-8")
    with (tmp_path / "out" / "tables" / "attribution.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["block"] for row in rows} == {"model.layers.0.mlp", "model.layers.1.mlp"}  # no row is broken
    assert not any(row["token"].startswith(("=", "@", "\r")) for row in rows)


def test_text_with_a_tokenizer_a_prompt_and_fits_to_tokens(folder, tmp_path):
    words = {f"w{i}": i for i in range(31)} | {"?": 31}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model = tmp_path / "model"
    shutil.copytree(folder, model)
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="?").save_pretrained(model)
    numbers = np.random.default_rng(1).integers(0, 31, size=(60, 10))
    text = "\n".join(" ".join(f"w{i}" for i in line) for line in numbers)
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    options = {"length": 16, "degree": 3, "degrees": (1,), "batch_size": 4}
    options |= {"spectrum_degree": 0, "features_per_block": 1}
    chosen = {"blocks": "layers.1.mlp", "method": "samples", "bound": 4.0}
    source, out = tmp_path / "text.txt", tmp_path / "out"
    found = study_lm(model, source, out, prompt="w1 w2 w3", **options, **chosen)
    assert found.about["data"] == {"text": "text.txt", "held_out": 48, "tokens": 528}
    assert found.attribution.tokens == ("w1", "w2", "w3") and found.attribution.blocks == ("model.layers.1.mlp",)
    assert Conversion.load(out).bound == 4.0
    assert [loss.degree for loss in found.losses if loss.by == "polynomial"] == [1, 3, 3]  # all of each, and one alone
    assert {fit.degree for fit in found.errors} == {1, 3} and not found.spectra
    again = study_lm(model, source, tmp_path / "two", held_out="w1 w2 w3 w4\n", **options)
    assert again.about["data"]["held_out"] == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--blocks", "layers.9.mlp"], "matches no feedforward block of LlamaForCausalLM. Its blocks (2) are"),
        (["--text", "missing.npy"], "no file missing.npy"),
        (["--prompt", "a text"], "prompt is text, which needs a tokenizer"),
    ],
)
def test_errors_are_one_line(folder, tmp_path, capsys, change, words):
    arguments = ["lm", str(folder), "--text", str(folder / "tokens.npy"), "--out", str(tmp_path / "out"), *SMALL, *FEW]
    assert main([*arguments, *change]) == 1
    printed = capsys.readouterr().err
    assert words in printed and "Traceback" not in printed


def test_texts_that_cannot_be_used(folder, tmp_path, capsys):
    def complaint(model, text):
        assert main(["lm", str(model), "--text", str(text), "--out", str(tmp_path / "out"), *FEW]) == 1
        return capsys.readouterr().err

    empty, short = tmp_path / "empty.txt", tmp_path / "short.npy"
    empty.write_text("", encoding="utf-8")
    np.save(short, np.zeros((1, 4), np.int64))
    assert "empty.txt is empty" in complaint(folder, empty)
    assert "has 1 sequences of 4 tokens; two are needed" in complaint(folder, short)
    text = tmp_path / "text.txt"
    text.write_text("one\ntwo\n", encoding="utf-8")
    assert "needs a tokenizer" in complaint(folder, text)
    assert "no config.json" in complaint(tmp_path, folder / "tokens.npy")


def test_wrong_options_are_refused_before_anything_is_loaded(capsys):
    with pytest.raises(ValueError, match="method must be one of 'gaussian', 'neuronwise', 'joint', 'samples'"):
        LmConfig(method="components")
    with pytest.raises(TypeError, match="no option 'degre'; there are degree"):
        study_lm("model", "text", "out", degre=2)
    with pytest.raises(SystemExit) as caught:
        main(["lm", "no-model", "--text", "no-text", "--degree", "0"])
    assert caught.value.code == 2 and "degree must be at least 1" in capsys.readouterr().err
