"""Figures of the reproduction: what is described equals the records, and files are the same on every writing."""

import math
from dataclasses import replace

import numpy as np
import pytest
from support.fake_results import FITS, SEEDS, SHAPE, STEPS, fake_results

from mlpoly.charts.chart import Area, Curve, Points
from mlpoly.charts.matplotlib import draw
from mlpoly.pages.toolkit.widgets import percent
from mlpoly.studies.paper.curves import (
    ablation_chart,
    accuracy_chart,
    curve_over_seeds,
    distance_chart,
    fit_name,
    spectrum_chart,
)
from mlpoly.studies.paper.figures import attack_gallery, training_gallery

CLASSES = [*"01234", "five", *"6789"]
MODELS = ("network", "linear", "quadratic")
DIRECTIONS = {"singular": "singular vectors", "random": "random directions", "pca": "principal components"}


@pytest.fixture(scope="module")
def results():
    return fake_results()


@pytest.fixture(scope="module")
def ablations(results):
    return [a for attack in results.attack for a in attack.ablations]


def of(rows, **wanted):
    return [r for r in rows if all(getattr(r, name) == value for name, value in wanted.items())]


def over(rows, quantity, x="step", statistic=np.mean):
    """A statistic over the seeds, at every x."""
    places = sorted({getattr(r, x) for r in rows})
    return [statistic([getattr(r, quantity) for r in rows if getattr(r, x) == place]) for place in places]


def panel(chart, *choice):
    (found,) = [p for p in chart.panels if p.choice == choice]
    return found


def mark(panel, label, kind=Curve):
    (found,) = [m for m in panel.marks if isinstance(m, kind) and m.label == label]
    return found


def labels(panel, kind=Curve):
    return [m.label for m in panel.marks if isinstance(m, kind)]


def test_curve_over_seeds(results):
    records = of(results.dynamics, degree=1, inputs="mixture")
    records[0] = replace(records[0], fvu_test=math.nan)
    found = curve_over_seeds(records, "step", "fvu_test", "a", colour="blue")
    assert tuple(found.x) == STEPS and (found.spread, found.colour) == (f"{len(SEEDS)} seeds", "blue")
    finite = [r for r in records if math.isfinite(r.fvu_test)]
    np.testing.assert_allclose(found.y, over(finite, "fvu_test"), rtol=1e-14)
    assert (found.low, found.high) == (over(finite, "fvu_test", statistic=min), over(finite, "fvu_test", statistic=max))
    assert curve_over_seeds(of(results.dynamics, inputs="paper"), "step", "fvu_own", "a").x == []
    alone = curve_over_seeds(of(records, seed=1), "step", "fvu_test", "a")
    assert (alone.low, alone.high, alone.spread) == ((), (), "")


@pytest.mark.parametrize(
    ("measure", "quantities"),
    [
        ("fvu", {"under the mixture": ("fvu_mixture", "fvu_samples"), "on test images": ("fvu_test", "fvu_test"),
                 "under its own inputs": ("fvu_own", ""), "paper’s convention": ("fvu_flattened", "")}),
        ("kl", {"on samples of the mixture": ("kl_samples", "kl_samples"), "on test images": ("kl_test", "kl_test")}),
    ],
)  # fmt: skip
def test_distances_are_the_records(results, measure, quantities):
    chart = distance_chart(results.dynamics, measure)
    assert [p.choice[0] for p in chart.panels] == list(quantities) and chart.scales
    for choice, (line, dots) in quantities.items():
        shown = panel(chart, choice)
        assert shown.y.scale == "log"
        drawn = [(d, i) for d, i in FITS if (line, i) != ("fvu_own", "paper")]  # it was fitted on samples
        assert sorted(labels(shown)) == sorted(fit_name(*fit) for fit in drawn)
        for degree, inputs in drawn:
            rows = of(results.dynamics, degree=degree, inputs=inputs)
            np.testing.assert_allclose(mark(shown, fit_name(degree, inputs)).y, over(rows, line))
        sampled = [(1, "mixture"), (2, "mixture"), (2, "paper")] if dots else []
        assert labels(shown, Points) == [fit_name(*fit) for fit in sampled]
        for degree, inputs in sampled:
            rows = of(results.dynamics, degree=degree, inputs=inputs)
            found = mark(shown, fit_name(degree, inputs), Points)
            np.testing.assert_allclose(found.y, over(rows, dots))
            np.testing.assert_allclose(found.error, 2 * np.array(over(rows, f"{dots}_error")))


def test_accuracy(results):
    chart = accuracy_chart(results.training, results.dynamics)
    right, agree, loss = chart.panels
    for part in ("test", "train"):
        np.testing.assert_allclose(mark(right, f"network, {part} images").y, over(results.training, f"{part}_accuracy"))
        np.testing.assert_allclose(mark(loss, f"network, {part} images").y, over(results.training, f"{part}_loss"))
    rows = of(results.dynamics, degree=2, inputs="mixture")
    np.testing.assert_allclose(mark(right, fit_name(2, "mixture")).y, over(rows, "accuracy"))
    np.testing.assert_allclose(mark(agree, fit_name(2, "mixture")).y, over(rows, "agreement"))
    assert len(labels(right)) == len(FITS) + 2 and len(labels(agree)) == len(FITS)
    assert f"quadratic {percent(over(rows, 'accuracy')[-1])}" in chart.note
    alone = accuracy_chart(results.training, [])
    assert [p.choice for p in alone.panels] == [("accuracy",), ("loss of the network",)]


@pytest.mark.parametrize(("inputs", "words"), [("gaussian", "N(mean, cov)"), ("mixture", "mixture of the classes")])
def test_spectra(results, inputs, words):
    chart, rows = spectrum_chart(results.spectra), of(results.spectra, inputs=inputs)
    left = panel(chart, words, "left above each degree")
    assert left.y.scale == "log" and len(left.marks) == 6
    want = [np.mean([sum(r.shares[2:]) + r.rest for r in of(rows, step=s)]) for s in STEPS]
    np.testing.assert_allclose(mark(left, "above degree 2").y, want)
    every = panel(chart, words, "all degrees")
    degrees = [*(f"degree {k}" for k in range(1, 7)), "rest, above degree 6"]
    assert labels(every, Area) == ["between classes"] * (inputs == "mixture") + degrees
    np.testing.assert_allclose(np.sum([m.y for m in every.marks], axis=0), 1, atol=1e-12)
    want = [np.mean([r.shares[2] for r in of(rows, step=s)]) for s in STEPS]
    np.testing.assert_allclose(mark(every, "degree 3", Area).y, want)
    higher = panel(chart, words, "above degree 1")
    assert labels(higher, Area) == degrees[1:]
    assert chart.panels[0].choice == ("N(mean, cov)", "left above each degree")  # where the differences are seen


def test_ablation(ablations):
    chart = ablation_chart(ablations, 5)
    assert [p.choice[0] for p in chart.panels] == ["step 16384"] * 3 + ["step 512"] * 3
    for step in (16384, 512):
        for kind, words in DIRECTIONS.items():
            shown, rows = panel(chart, f"step {step}", words), of(ablations, step=step, directions=kind)
            for model in MODELS:
                assert list(mark(shown, model).x) == list(range(11))
                np.testing.assert_allclose(mark(shown, model).y, over(rows, model, "k"))
            controls = ["network, random directions", "network, principal components"] if kind == "singular" else []
            assert labels(shown) == [*MODELS, *controls]
            if controls:
                pca = of(ablations, step=step, directions="pca")
                np.testing.assert_allclose(mark(shown, controls[1]).y, over(pca, "network", "k"))
            assert [value for value, _ in shown.y.guides] == [0.5, 0.2]
    alone = ablation_chart(of(ablations, directions="singular", step=512), 10)
    assert labels(alone.panels[0]) == [*MODELS] and len(alone.panels) == 1


def test_nothing_is_cut_off(results, ablations):
    """Every text lies inside the page."""
    steps = results.features.steps
    figures = [
        draw(distance_chart(results.dynamics, "kl"), title="KL divergence"),
        draw(accuracy_chart(results.training, results.dynamics)),
        draw(spectrum_chart(of(results.spectra, inputs="mixture"))),
        draw(training_gallery(steps, 3, SHAPE)),
        draw(training_gallery(steps, 3, SHAPE, columns=2)),
        draw(ablation_chart(ablations, 10)),
        draw(attack_gallery(results.attack[0].pictures, CLASSES, SHAPE, 11)),
    ]
    for figure in figures:
        figure.draw_without_rendering()
        box, page = figure.get_tightbbox(), figure.get_size_inches()
        assert box.x0 > -0.01 and box.y0 > -0.01 and box.x1 < page[0] + 0.01 and box.y1 < page[1] + 0.01


def test_one_checkpoint_is_enough(results):
    for chart in (
        distance_chart(of(results.dynamics, step=0), "fvu"),
        accuracy_chart(of(results.training, step=4), of(results.dynamics, step=4)),
        spectrum_chart(of(results.spectra, step=4)),
        training_gallery(of(results.features.steps, step=4), 3, SHAPE),
    ):
        figure = draw(chart)
        figure.draw_without_rendering()
        assert figure.axes
