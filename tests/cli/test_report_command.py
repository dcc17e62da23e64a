"""mlpoly report: from a file of a model and a table of data to a page."""

import json
import re

import numpy as np
import pytest
import torch

import mlpoly as mp
from mlpoly.cli import main
from mlpoly.pages.toolkit.widgets import percent


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with one model and its data in several formats."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    torch.save(module.state_dict(), "model.pt")
    torch.save(module, "whole.pt")
    x = np.random.default_rng(0).standard_normal((40, 4))
    labels = np.arange(40) % 3
    np.savez("data.npz", x=x, y=labels)
    words = np.array(["setosa", "versicolor", "virginica"])[labels]
    lines = [",".join([*map(repr, row.tolist()), word]) for row, word in zip(x, words, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["long,wide,a <b>,d,species", *lines]), encoding="utf-8")
    return tmp_path


def test_a_state_dict_and_a_csv_file(folder, capfd):
    named = "--outputs setosa versicolor virginica --out new/page.html"
    assert main(f"report model.pt --data data.csv --activation relu {named}".split()) == 0
    out, err = capfd.readouterr()
    assert (out.split(), err) == (["report:", str(folder / "new" / "page.html")], "")
    page = (folder / "new" / "page.html").read_text(encoding="utf-8")
    assert "model.pt as a polynomial" in page and ">a &lt;b&gt;<" in page and "<span>virginica</span>" in page
    assert f"mlpoly report model.pt --data data.csv --activation relu {named}" in page
    state = torch.load("model.pt", weights_only=True)
    net = mp.MLP(*(state[key].double().numpy() for key in ("0.weight", "0.bias", "2.weight", "2.bias")), "relu")
    x = np.load("data.npz")["x"]
    linear = mp.fit(net, mp.Gaussian.from_samples(x), 1)
    assert percent(float(mp.fvu(net, linear, x)), None) in page


def test_options_reach_the_page(folder, capfd):
    words = "report model.pt --data data.npz --activation relu --image-shape 2 2 --degree 2 --outputs a b c --json"
    assert main([*words.split(), "--title", "My model", "--examples", "2"]) == 0
    assert json.loads(capfd.readouterr().out) == {"report": "report.html"}
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<h1>My model</h1>" in page and "pictures of 2 × 2 pixels" in page and "cubic polynomial" not in page
    assert "--image-shape 2 2 --degree 2 --outputs a b c --json --title &#39;My model&#39; --examples 2" in page
    assert page.count("of the data. For") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("model.pt --data data.csv", "--activation relu"),
        ("model.pt --data data.csv --activation relu", "--outputs NAME0 NAME1"),
        ("whole.pt --data data.csv --activation relu", r"would run code.*state_dict"),
        ("model.joblib --data data.csv", "would run"),
        ("none.pt --data data.csv --activation relu", "no file none.pt"),
        ("model.pt --data none.csv --activation relu", "no file none.csv"),
        ("model.pt --data data.csv --activation relu --labels kind", "no column 'kind'; its columns are long, wide"),
        ("model.pt --data data.csv --activation relu --image-shape 3 3", r"image_shape is \(3, 3\), but there are"),
        ("model.pt --data data.csv --activation relu --names a b", "names has 2 names"),
    ],
)
def test_mistakes(folder, capfd, words, message):
    (folder / "model.joblib").write_bytes(b"\x80\x04.")
    assert main(["report", *words.split()]) == 1
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("mlpoly: error: ") and err.count("\n") == 1
    assert re.search(message, err), err
    assert not (folder / "report.html").exists()
