"""The digits study end to end, with few steps: files, results, determinism; and the figure it draws."""

import io
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import mlpoly as mp

for extra in ("torch", "sklearn", "matplotlib", "rich"):
    pytest.importorskip(extra)

from matplotlib.figure import Figure  # noqa: E402 - after importorskip
from matplotlib.image import imread  # noqa: E402
from rich.console import Console  # noqa: E402

from mlpoly.plots import plot_eigenfeatures  # noqa: E402
from mlpoly.studies import digits  # noqa: E402

# -- the study ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder and what was printed."""
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    text = io.StringIO()
    digits.run(out, hidden=32, steps=200, console=Console(file=text, width=100))
    return out, text.getvalue()


def test_results(demo):
    results = json.loads((demo[0] / "results.json").read_text())
    assert (results["seed"], results["hidden"], results["steps"], results["held_out"]) == (0, 32, 200, 360)
    assert results["network_accuracy"] > 0.9
    fits = results["fits"]
    assert [f["degree"] for f in fits] == [1, 2, 3]
    unexplained = [f["fvu"] for f in fits]
    assert unexplained == sorted(unexplained, reverse=True)
    assert 0 < unexplained[-1] < unexplained[0] < 0.2
    assert all(f["agreement"] > 0.9 and f["accuracy"] > 0.85 and f["milliseconds"] > 0 for f in fits)


def test_files(demo):
    out, _ = demo
    assert {p.name for p in out.iterdir()} == {
        "results.json",
        "quadratic.safetensors",
        "eigenfeatures.png",
        "spectrum.png",
    }
    poly = mp.load(out / "quadratic.safetensors")
    assert (poly.degree, poly.dim_in, poly.dim_out) == (2, 64, 10)
    assert poly.directions.dtype == np.float64
    height, width = imread(out / "eigenfeatures.png").shape[:2]
    assert width == 1200
    assert 500 < height < 1000


def test_polynomial_in_the_file_is_the_one_measured(demo):
    out, _ = demo
    data = digits.load_data(0)
    choice = mp.load(out / "quadratic.safetensors")(data.test_x.numpy()).argmax(axis=1)
    accuracy = json.loads((out / "results.json").read_text())["fits"][1]["accuracy"]
    assert np.mean(choice == data.test_y.numpy()) == pytest.approx(accuracy)


def test_what_is_printed(demo):
    out, text = demo
    assert "step 50 of 200" in text
    assert "degree 3" in text
    assert "The quadratic polynomial agrees with the network on" in text
    assert str(out) in text
    assert "\x1b" not in text  # no colours where nobody watches


def test_data():
    data = digits.load_data(3)
    assert (len(data.train_y), len(data.test_y)) == (1437, 360)
    assert float(data.train_x.min()) == 0
    assert float(data.train_x.max()) == 1
    again, other = digits.load_data(3), digits.load_data(4)
    assert bool((data.test_x == again.test_x).all())
    assert not bool((data.test_x == other.test_x).all())


def test_same_seed_same_results(tmp_path):
    torch = pytest.importorskip("torch")
    quiet = Console(file=io.StringIO())

    def numbers(seed):
        torch.rand(3)  # the global generator plays no part
        results = digits.run(tmp_path, seed=seed, hidden=8, steps=20, console=quiet)
        return [(f.accuracy, f.agreement, f.fvu) for f in results.fits]

    assert numbers(1) == numbers(1) != numbers(2)


def test_progress_bar_on_a_terminal(tmp_path):
    text = io.StringIO()
    digits.run(tmp_path, hidden=8, steps=5, console=Console(file=text, force_terminal=True, width=100))
    assert "training the network" in text.getvalue()
    assert "step 5" not in text.getvalue()


def test_command_line(tmp_path):
    command = [sys.executable, "-m", "mlpoly.studies.digits", "--out", str(tmp_path), "--steps", "3", "--hidden", "4"]
    done = subprocess.run([*command, "--seed", "5"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "results.json").read_text())["seed"] == 5


@pytest.mark.parametrize("wrong", [{"hidden": 0}, {"steps": 0}])
def test_wrong_numbers(tmp_path, wrong):
    with pytest.raises(ValueError, match="must be at least 1"):
        digits.run(tmp_path, **wrong)


# -- the figure --------------------------------------------------------------------------------------


def features(values, d=6, **more):
    vectors = np.linalg.qr(np.random.default_rng(0).standard_normal((d, d)))[0][: len(values)]
    return SimpleNamespace(values=np.array(values), vectors=vectors, **more)


def images(figure):
    return [ax.images[0] for ax in figure.axes if ax.images]


def test_figure_shows_the_top_of_each_sign():
    record = features([-3.0, 2.0, -1.0, 0.5, 0.0, -0.1])
    figure = plot_eigenfeatures({"a": record}, (2, 3), title="Title", columns=2)
    assert isinstance(figure, Figure)
    assert figure.get_figwidth() == 10
    shown = [np.asarray(i.get_array()).ravel() for i in images(figure)]
    np.testing.assert_allclose(shown, record.vectors[[1, 3, 0, 2]])
    titles = [ax.get_title() for ax in figure.axes if ax.images]
    assert titles == ["+2.0", "+0.5", "−3.0", "−1.0"]
    bars = next([p.get_height() for p in ax.patches] for ax in figure.axes if len(ax.patches) == 6)
    assert bars == sorted(record.values, reverse=True)


def test_figure_has_one_scale_centred_at_zero():
    figure = plot_eigenfeatures({"a": features([1.0, -1.0]), "b": features([5.0])}, (3, 2))
    limits = {i.get_clim() for i in images(figure)}
    assert len(limits) == 1
    (low, high) = limits.pop()
    assert low == -high < 0
    assert len(images(figure)) == 3
    assert any("unit eigenvectors" in ax.get_xlabel() for ax in figure.axes)


@pytest.mark.parametrize("values", [[1.0], [-1.0], [0.0, 0.0], [1e-9, -1e-9], [1e9]])
def test_figure_of_odd_spectra(values, tmp_path):
    plot_eigenfeatures({0: features(values)}, (2, 3)).savefig(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_figure_of_library_records(library):
    net = mp.MLP(np.eye(6), None, np.array([[1.0, -2, 3, -4, 5, -6]]), None, "square")
    poly = mp.fit(net, mp.Gaussian(np.zeros(6), np.arange(1.0, 7)), degree=2)
    if library == "torch":
        poly = poly.to_torch().polynomial
        record = mp.eigenfeatures(poly, output=0, k=6)
        label = "unit eigenvectors"
    else:
        record = mp.eigenfeatures(poly, output=0, k=6, metric="whitened")
        label = "standard deviation"
    figure = plot_eigenfeatures({"a": record}, (2, 3))
    np.testing.assert_allclose(
        np.abs(np.asarray(images(figure)[0].get_array()).ravel()).argmax(),
        4,  # the input of the largest positive eigenvalue
    )
    assert any(label in ax.get_xlabel() for ax in figure.axes)


def test_figure_errors():
    with pytest.raises(ValueError, match="empty"):
        plot_eigenfeatures({}, (2, 3))
    with pytest.raises(ValueError, match=r"features of 'a' have 2 values .* need vectors of shape \(2, 9\)"):
        plot_eigenfeatures({"a": features([1.0, 2.0])}, (3, 3))
    with pytest.raises(ValueError, match="columns must be at least 1"):
        plot_eigenfeatures({"a": features([1.0])}, (2, 3), columns=0)
    mixed = {"a": features([1.0], metric="input"), "b": features([1.0], metric="whitened")}
    with pytest.raises(ValueError, match="one metric"):
        plot_eigenfeatures(mixed, (2, 3))
