"""Figures of the reproduction: what is drawn equals the records, and files are the same on every writing."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from mlpoly.plots import save_figure, style
from mlpoly.studies.paper import results
from mlpoly.studies.paper.figures_attack import plot_ablation, plot_ablation_pictures, plot_steering
from mlpoly.studies.paper.figures_dynamics import plot_accuracy, plot_dynamics, plot_spectra
from mlpoly.studies.paper.figures_training_features import (
    plot_explanation,
    plot_spectrum_of_class,
    plot_training_features,
)

SEEDS = (0, 1, 2)
STEPS = (0, *(2**i for i in range(15)))  # 16 checkpoints, 0 to 16384
PLACES = np.maximum(STEPS, 0.5)
SHAPE = (4, 5)
PIXELS = 20
SETTINGS = [(d, i) for i in ("standard", "gaussian", "mixture", "paper") for d in (1, 2) if (d, i) != (1, "paper")]


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(1)

    def point(seed, step, degree, inputs):
        level = {"standard": 0.5, "gaussian": 0.03, "mixture": 0.01, "paper": 0.012}[inputs] / degree**3
        positive = {f.name: level * rng.lognormal(0, 0.1) for f in dataclasses.fields(results.Point)[4:15]}
        positive |= {name: value / 30 for name, value in positive.items() if name.endswith("_error")}
        return results.Point(
            seed,
            step,
            degree,
            inputs,
            **positive,
            accuracy=rng.uniform(),
            agreement=rng.uniform(),
            iterations=3,
            seconds=1,
        )

    return [point(seed, step, *setting) for seed in SEEDS for step in STEPS for setting in SETTINGS]


@pytest.fixture(scope="module")
def training():
    rng = np.random.default_rng(2)
    return [results.TrainingPoint(seed, step, *rng.uniform(size=4)) for seed in SEEDS for step in STEPS]


@pytest.fixture(scope="module")
def spectra():
    rng = np.random.default_rng(3)
    rows = []
    for seed in SEEDS:
        for step in STEPS:
            for inputs in ("gaussian", "mixture"):
                parts = rng.uniform(0.5, 1.5, 8) * 4.0 ** -np.arange(8)
                parts[7] *= inputs == "mixture"
                parts /= parts.sum()
                rows.append(results.Spectrum(seed, step, inputs, tuple(parts[:6]), parts[6], parts[7]))
    return rows


def feature_step(step, label, rng, k=3):
    basis = np.linalg.qr(rng.standard_normal((PIXELS, PIXELS)))[0]
    values = np.sort(rng.standard_normal(PIXELS))[::-1] * (1 + step) ** 0.3
    up, down = values[:k], values[::-1][:k]
    linear = rng.standard_normal(PIXELS)
    return results.FeatureStep(step, label, up, down, basis[:k], basis[::-1][:k], linear, values)


@pytest.fixture(scope="module")
def features():
    rng = np.random.default_rng(4)
    return [feature_step(step, label, rng) for step in STEPS for label in (3, 8)]


@pytest.fixture(scope="module")
def explanation():
    rng = np.random.default_rng(5)
    top = tuple(
        results.Contribution(v, a, rng.standard_normal(PIXELS)) for v, a in ((2.0, 1.5), (-1.0, -0.7), (0.1, 0.2))
    )
    return results.Explanation(rng.uniform(size=PIXELS), 3, 8, -3.1, -2.5, -1.0, -3.0, 1.5, top)


@pytest.fixture(scope="module")
def ablations():
    rng = np.random.default_rng(6)
    kinds = ("singular", "random", "pca")
    return [results.Ablation(s, d, k, *rng.uniform(size=3)) for s in SEEDS for d in kinds for k in range(11)]


@pytest.fixture(scope="module")
def steering():
    rng = np.random.default_rng(7)
    return [
        results.Steering(seed, direction, strength, *rng.uniform(0.1, 1, size=5))
        for seed in SEEDS
        for direction in ("eigenvector", "noise", "random")
        for strength in np.linspace(0, 2, 9)
    ]


@pytest.fixture(scope="module")
def pictures():
    rng = np.random.default_rng(8)
    ladder, digits = rng.uniform(size=(10, PIXELS)), rng.uniform(size=(7, PIXELS))
    ladder[3:] -= 1.5
    choices = (5, 5, 5, 5, 2, 2, 2, 9, 9, 9)
    return results.AttackPictures(ladder, 5, choices, digits, digits - 0.5, tuple(range(7)), (0, 1, 9, 9, 4, 9, 9))


def line(ax, label):
    (found,) = [item for item in ax.lines if item.get_label() == label]
    return found


def drawn(ax):
    """Labels of the curves: guides, breaks and the like begin with an underscore."""
    return [item.get_label() for item in ax.lines if not item.get_label().startswith("_")]


def mean(rows, quantity, x="step"):
    """Over the seeds, at every x."""
    return [np.mean([getattr(r, quantity) for r in rows if getattr(r, x) == place]) for place in x_of(rows, x)]


def x_of(rows, x):
    return sorted({getattr(r, x) for r in rows})


def of(rows, **wanted):
    return [r for r in rows if all(getattr(r, name) == value for name, value in wanted.items())]


def images(figure):
    return [ax for ax in figure.axes if ax.images]


def legend(figure):
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts() if text.get_text()]


# -- over training -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measure", "quantities"), [("fvu", ("fvu_mixture", "fvu_test")), ("kl", ("kl_samples", "kl_test"))]
)
def test_dynamics_draws_the_means_over_seeds(points, measure, quantities):
    figure = plot_dynamics(points, measure)
    for ax, quantity in zip(figure.axes, quantities, strict=True):
        assert len(drawn(ax)) == len(SETTINGS)
        assert ax.get_yscale() == "log"
        for degree, inputs in SETTINGS:
            curve = line(ax, f"{('linear', 'quadratic')[degree - 1]}, {inputs}")
            np.testing.assert_array_equal(curve.get_xdata(), PLACES)
            np.testing.assert_allclose(curve.get_ydata(), mean(of(points, degree=degree, inputs=inputs), quantity))


def test_dynamics_points_have_two_standard_errors(points):
    left = plot_dynamics(points).axes[0]
    assert len(left.containers) == 2  # linear and quadratic, under the mixture alone
    for degree, container in zip((1, 2), left.containers, strict=True):
        rows = of(points, degree=degree, inputs="mixture")
        centres, errors = np.array(mean(rows, "fvu_samples")), np.array(mean(rows, "fvu_samples_error"))
        np.testing.assert_allclose(container.lines[0].get_ydata(), centres)
        ends = np.array([segment[:, 1] for segment in container.lines[2][0].get_segments()])
        np.testing.assert_allclose(ends, np.stack([centres - 2 * errors, centres + 2 * errors], axis=1))


def test_dynamics_bands_are_the_range_over_seeds(points):
    left = plot_dynamics(points).axes[0]
    bands = [c for c in left.collections if hasattr(c, "get_paths") and c.get_alpha() is not None]
    assert len(bands) == 2
    rows = of(points, degree=1, inputs="mixture", step=64)
    low, high = min(r.fvu_mixture for r in rows), max(r.fvu_mixture for r in rows)
    corners = bands[0].get_paths()[0].vertices
    at = np.unique(corners[corners[:, 0] == 64, 1])
    np.testing.assert_allclose(at, [low, high])
    assert "range over 3 seeds" in legend(plot_dynamics(points))
    alone = plot_dynamics(of(points, seed=0))
    assert not any(c.get_alpha() for c in alone.axes[0].collections) and len(legend(alone)) == 8


def test_step_axis(points):
    for ax in plot_dynamics(points).axes:
        assert ax.get_xscale() == "log"
        assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "4", "16", "64", "256", "1k", "4k", "16k"]
        np.testing.assert_array_equal(ax.get_xticks(), [0.5, *(4.0**i for i in range(8))])
        guides = [item.get_xdata()[0] for item in ax.lines if item.get_label() == "_guide"]
        assert guides == [500, 1000, 4000]
    short = plot_dynamics([p for p in points if 0 < p.step <= 16])
    assert [t.get_text() for t in short.axes[0].get_xticklabels()] == ["1", "2", "4", "8", "16"]
    assert not any(item.get_label() in ("_guide", "_break") for item in short.axes[0].lines)
    assert not any(text.startswith("step") for text in legend(short))


def test_legend_names_what_is_there(points):
    entries = legend(plot_dynamics(of(points, seed=0, inputs="mixture", degree=1)))
    assert entries == ["linear", "fit under the mixture, exact", "sampled, ± 2 standard errors", "step 500, 1000, 4000"]
    assert len(legend(plot_dynamics(points, "kl"))) == 9


def test_accuracy(training, points):
    figure = plot_accuracy(training, points, title="Accuracy")
    right, agree = figure.axes
    assert drawn(right) == ["network", "linear", "quadratic"] and drawn(agree) == ["linear", "quadratic"]
    np.testing.assert_allclose(line(right, "network").get_ydata(), mean(training, "test_accuracy"))
    rows = of(points, degree=2, inputs="mixture")
    np.testing.assert_allclose(line(right, "quadratic").get_ydata(), mean(rows, "accuracy"))
    np.testing.assert_allclose(line(agree, "quadratic").get_ydata(), mean(rows, "agreement"))
    assert f"quadratic, {100 * mean(rows, 'accuracy')[-1]:.1f} % right at the end" in legend(figure)
    assert figure.get_suptitle() == "Accuracy"
    assert drawn(plot_accuracy(training, of(points, degree=1)).axes[0]) == ["network", "linear"]


@pytest.mark.parametrize("inputs", ["gaussian", "mixture"])
def test_spectra(spectra, inputs):
    figure = plot_spectra(spectra, inputs)
    stack, above = figure.axes
    rows = of(spectra, inputs=inputs)
    layers = [*(f"degree {k}" for k in range(1, 7)), "above 6"]
    if inputs == "mixture":
        layers = ["between classes", *layers]
    assert legend(figure) == layers[::-1]  # as they are stacked
    assert len(stack.collections) == len(layers)
    edge = stack.collections[-2].get_paths()[0].vertices[:, 1].max()  # the top of the last degree
    assert edge == pytest.approx(max(1 - np.mean([r.rest for r in rows if r.step == s]) for s in STEPS))
    assert above.get_yscale() == "log" and len(drawn(above)) == 6
    want = [np.mean([sum(r.shares[2:]) + r.rest for r in rows if r.step == s]) for s in STEPS]
    np.testing.assert_allclose(line(above, "above degree 2").get_ydata(), want)


def test_one_checkpoint_is_enough(training, points, spectra, features):
    assert drawn(plot_accuracy(of(training, step=4), of(points, step=4)).axes[0])
    assert legend(plot_spectra(of(spectra, step=4)))
    assert len(images(plot_training_features(of(features, step=4), 3, SHAPE))) == 4
    assert len(plot_dynamics(of(points, step=0)).axes) == 2


# -- features ----------------------------------------------------------------------------------------------------------


def test_training_features(features):
    figure = plot_training_features(features, 8, SHAPE, columns=5, positive=2, negative=1)
    grid = np.array(figure.axes).reshape(4, 5)
    assert len(images(figure)) == 20
    assert {text.get_text() for text in grid[0, 0].texts} == {"largest\neigenvalue", "0", "step"}
    steps = [ax.texts[-1].get_text() for ax in grid[0, 1:]]
    assert steps == ["8", "128", "1024", "16384"]  # evenly spread to the last
    last = of(features, label=8, step=16384)[0]
    assert grid[1, -1].get_title() == style.two_digits(last.positive[1])
    assert grid[2, -1].get_title() == style.two_digits(last.negative[0])
    np.testing.assert_array_equal(grid[3, -1].images[0].get_array(), last.linear.reshape(SHAPE))
    low, high = grid[3, -1].images[0].get_clim()
    assert -low == high == np.abs(last.linear).max()
    assert "scaled by its own largest pixel" in figure.get_supxlabel()
    assert [ax.texts[-1].get_text().split("\n")[0] for ax in grid[1:, 0]] == ["2nd largest", "lowest", "linear"]


def test_eigenvectors_keep_their_sign_over_training(features):
    """A vector and its negative are the same eigenvector, so a column shows the one nearer to the next column."""
    vectors = [features[0].positive_vectors * (-1) ** i for i in range(4)]
    steps = [dataclasses.replace(features[0], step=i, positive_vectors=v) for i, v in enumerate(vectors)]
    row = plot_training_features(steps, 3, SHAPE, positive=1, negative=0).axes[:4]
    shown = [ax.images[0].get_array() for ax in row]
    for image in shown:
        np.testing.assert_array_equal(image, shown[0])
    assert shown[0].flat[np.abs(shown[0]).argmax()] > 0


def test_missing_eigenvectors_leave_a_gap(features):
    steps = of(features, label=3)[:2]
    steps[0] = dataclasses.replace(steps[0], negative=np.zeros(0), negative_vectors=np.zeros((0, PIXELS)))
    figure = plot_training_features(steps, 3, SHAPE)
    assert len(figure.axes) == 8 and len(images(figure)) == 7
    assert len(images(plot_spectrum_of_class(steps[:1], 3, SHAPE))) == 3


def test_spectrum_of_class(features):
    figure = plot_spectrum_of_class(features, 3, SHAPE, columns=2)
    assert [ax.get_title()[0] for ax in images(figure)] == ["+", "+", "\N{MINUS SIGN}", "\N{MINUS SIGN}"]
    ranks, moves = (ax for ax in figure.axes if not ax.images)
    steps = of(features, label=3)
    values = steps[-1].spectrum
    np.testing.assert_array_equal(line(ranks, "positive").get_ydata(), values[values > 0])
    np.testing.assert_array_equal(line(ranks, "negative").get_ydata(), -values[values < 0][::-1])
    assert drawn(moves) == ["positive 1", "positive 2", "negative 1", "negative 2"]
    np.testing.assert_array_equal(line(moves, "negative 2").get_ydata(), [s.negative[1] for s in steps])
    np.testing.assert_array_equal(line(moves, "negative 2").get_xdata(), PLACES)


def test_explanation_adds_up(explanation):
    figure = plot_explanation(explanation, SHAPE)
    picture, bars, *small = figure.axes[:2] + figure.axes[1].child_axes
    np.testing.assert_array_equal(picture.images[0].get_array(), explanation.image.reshape(SHAPE))
    assert len(small) == 3  # one eigenvector for each of the strongest contributions
    widths = [bar.get_width() for bar in bars.patches]
    np.testing.assert_allclose(widths, [-1.0, -3.0, 1.5, -0.7, 0.2, 0.5, -2.5])
    assert sum(widths[:-1]) == pytest.approx(explanation.polynomial)
    starts = [bar.get_x() for bar in bars.patches]
    np.testing.assert_allclose(starts[1:6], np.cumsum(widths)[:5])  # each starts where the one above ends
    np.testing.assert_allclose(line(bars, "network").get_xdata(), [explanation.network])
    names = [t.get_text() for t in bars.get_yticklabels()]
    assert names[:3] == ["constant", "linear", "eigenvalue +2.0"]
    assert names[-3:] == ["other quadratic", "polynomial", "network"]


# -- attacks -----------------------------------------------------------------------------------------------------------


def test_ablation(ablations):
    figure = plot_ablation(ablations, chance=0.2)
    (ax,) = figure.axes
    assert set(drawn(ax)) == {
        *(f"{model}, singular" for model in ("network", "linear", "quadratic")),
        "network, random",
        "network, pca",
    }
    for model in ("network", "linear", "quadratic"):
        curve = line(ax, f"{model}, singular")
        assert curve.get_marker() == "o"
        np.testing.assert_array_equal(curve.get_xdata(), np.arange(11))
        np.testing.assert_allclose(curve.get_ydata(), mean(of(ablations, directions="singular"), model, "k"))
    np.testing.assert_allclose(
        line(ax, "network, pca").get_ydata(), mean(of(ablations, directions="pca"), "network", "k")
    )
    assert [item.get_ydata()[0] for item in ax.lines if item.get_label() == "_level"] == [0.5, 0.2]
    assert len(ax.collections) == 5 and len(legend(figure)) == 6
    alone = plot_ablation(of(ablations, directions="singular", seed=1))
    assert len(alone.axes[0].collections) == 0 and len(legend(alone)) == 3


def test_ablation_pictures(pictures):
    figure = plot_ablation_pictures(pictures, SHAPE)
    grid = np.array(figure.axes[:30]).reshape(3, 10)
    assert len(images(figure)) == 10 + 7 + 7
    assert [ax.get_title() for ax in grid[0]] == [str(k) for k in range(10)]
    assert grid[0, 4].get_xlabel() == "→ 2" and grid[2, 1].get_xlabel() == "→ 1"
    wrong = [to_rgb(ax.xaxis.label.get_color()) == to_rgb(style.POSITIVE) for ax in grid[2, :7]]
    assert wrong == [False, False, True, True, False, True, True]
    np.testing.assert_array_equal(grid[2, 3].images[0].get_array(), pictures.ablated[3].reshape(SHAPE))
    limit = max(pictures.digits.max(), pictures.ladder[0].max())
    assert {ax.images[0].get_clim() for ax in grid.flat if ax.images} == {(-limit, limit)}  # one scale


def test_a_long_ladder_is_thinned(pictures):
    ladder = np.repeat(pictures.ladder, 4, axis=0)
    long = dataclasses.replace(pictures, ladder=ladder, ladder_choices=(5,) * 40)
    titles = [ax.get_title() for ax in plot_ablation_pictures(long, SHAPE).axes[:11]]
    assert titles[0] == "0" and titles[-1] == "39" and len(set(titles)) == 11


def test_steering(steering):
    figure = plot_steering(steering)
    accuracy, fvu, kl = figure.axes
    assert len(drawn(accuracy)) == 9 and len(drawn(fvu)) == len(drawn(kl)) == 3
    assert fvu.get_yscale() == kl.get_yscale() == "log" and accuracy.get_yscale() == "linear"
    for direction in ("eigenvector", "noise", "random"):
        rows = of(steering, direction=direction)
        want = mean(rows, "linear", "strength")
        np.testing.assert_allclose(line(accuracy, f"linear, {direction}").get_ydata(), want)
        np.testing.assert_allclose(line(kl, f"kl, {direction}").get_ydata(), mean(rows, "kl", "strength"))
    few = plot_steering([s for s in steering if s.direction != "random"])
    assert "along a random direction" not in legend(few) and len(drawn(few.axes[1])) == 2


# -- files and errors --------------------------------------------------------------------------------------------------


def check_files(make, folder):
    """Two writings of one figure, and one of a figure made anew."""
    figure = make()
    once, twice, anew = (save_figure(f, folder / str(i), "name") for i, f in enumerate((figure, figure, make())))
    assert [path.name for path in once] == ["name.png", "name.pdf"]
    for a, b, c in zip(once, twice, anew, strict=True):
        assert a.read_bytes() == b.read_bytes() == c.read_bytes()
    assert once[0].read_bytes()[:4] == b"\x89PNG" and once[1].read_bytes()[:5] == b"%PDF-"
    assert b"Date" not in once[1].read_bytes() and b"matplotlib" not in once[0].read_bytes()


def test_figures_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    figure = Figure()
    save_figure(figure, tmp_path, "name")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def half_of_it(self, target, **options):
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", half_of_it)
    with pytest.raises(OSError, match=r"name.png could not be written \(No space left"):
        save_figure(figure, tmp_path, "name")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_files_are_the_same_on_every_writing(points, tmp_path):
    check_files(lambda: plot_dynamics(points), tmp_path)


@pytest.mark.slow
def test_files_of_images_are_the_same_on_every_writing(features, explanation, pictures, tmp_path):
    check_files(lambda: plot_training_features(features, 3, SHAPE, columns=3), tmp_path)
    check_files(lambda: plot_spectrum_of_class(features, 3, SHAPE), tmp_path)
    check_files(lambda: plot_explanation(explanation, SHAPE), tmp_path)
    check_files(lambda: plot_ablation_pictures(pictures, SHAPE), tmp_path)


def test_nothing_is_cut_off(points, training, spectra, features, explanation, ablations, steering, pictures):
    """Every text lies inside the page."""
    figures = [
        plot_dynamics(points, "kl", title="KL divergence"),
        plot_accuracy(training, points),
        plot_spectra(spectra, "mixture"),
        plot_training_features(features, 3, SHAPE),
        plot_training_features(features, 3, SHAPE, columns=2),
        plot_spectrum_of_class(features, 3, SHAPE),
        plot_explanation(explanation, SHAPE),
        plot_ablation(ablations),
        plot_ablation_pictures(pictures, SHAPE),
        plot_steering(steering),
    ]
    for figure in figures:
        figure.draw_without_rendering()
        box, page = figure.get_tightbbox(), figure.get_size_inches()
        assert box.x0 > -0.01 and box.y0 > -0.01 and box.x1 < page[0] + 0.01 and box.y1 < page[1] + 0.01


def test_numbers_with_two_digits():
    given = [0.1, -0.6, 16, -1234.5, 0, 1.26e-5]
    assert [style.two_digits(v) for v in given] == ["+0.10", "−0.60", "+16", "−1234", "+0.0", "+1.3e−5"]


def test_bad_input(points, training, spectra, features, explanation, pictures):
    for draw, name in (
        (lambda: plot_dynamics([]), "points"),
        (lambda: plot_accuracy([], points), "training"),
        (lambda: plot_accuracy(training, of(points, inputs="gaussian")), "points"),
        (lambda: plot_spectra([]), "spectra"),
        (lambda: plot_training_features([], 3, SHAPE), "steps"),
        (lambda: plot_spectrum_of_class([], 3, SHAPE), "steps"),
        (lambda: plot_ablation([]), "ablations"),
        (lambda: plot_steering([]), "steering"),
    ):
        with pytest.raises(ValueError, match=f"{name} is empty"):
            draw()
    with pytest.raises(ValueError, match=r"measure must be one of \['fvu', 'kl'\], got 'mse'"):
        plot_dynamics(points, "mse")
    with pytest.raises(ValueError, match="inputs='standard', only"):
        plot_spectra(spectra, "standard")
    with pytest.raises(ValueError, match=r"label=5, only of \[3, 8\]"):
        plot_training_features(features, 5, SHAPE)
    with pytest.raises(ValueError, match="columns must be at least 1"):
        plot_training_features(features, 3, SHAPE, columns=0)
    with pytest.raises(ValueError, match=r"20 pixels, which do not fill an image of shape \(4, 4\)"):
        plot_training_features(features, 3, (4, 4))
    with pytest.raises(ValueError, match=r"explanation\.image has 20 pixels"):
        plot_explanation(explanation, (3, 3))
    with pytest.raises(ValueError, match="pictures has 20 pixels"):
        plot_ablation_pictures(pictures, (3, 3))


def test_figures_for_files_are_not_kept_by_pyplot(points, tmp_path):
    """A study draws dozens; pyplot would hold them all, and warn at the twenty-first."""
    from matplotlib import pyplot

    style.save_figure(plot_dynamics(points, "fvu"), tmp_path, "figure")
    assert pyplot.get_fignums() == []
