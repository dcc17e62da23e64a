"""Pictures of results: their descriptions hold the numbers of the results, and all of them are drawn."""

import math

import numpy as np
import pytest
import torch
from matplotlib import pyplot
from support.mistakes import assert_explained, mistakes

import mlpoly as mp
from mlpoly.charts import chart_of, eigenfeature_gallery, interaction_map, response_chart
from mlpoly.charts.chart import shortened
from mlpoly.charts.directions import direction_ranking
from mlpoly.features.monomials import interaction_effects
from mlpoly.fitting.report import FitReport
from mlpoly.records import replace

NAMES = ("age", "a $x$ & <b> very long name of an input", "bmi", "s1")
SHORT = [shortened(name) for name in NAMES]


@pytest.fixture(autouse=True)
def no_display():
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def case(put=np.asarray):
    """A network with four named inputs and three outputs, the inputs, and a cubic."""
    rng = np.random.default_rng(0)
    net = mp.MLP(*(put(rng.normal(size=s)) for s in ((7, 4), 7, (3, 7), 3)), "relu")
    root = rng.normal(size=(4, 4)) / 2
    inputs = mp.Gaussian(put(rng.normal(size=4)), put(root @ root.T), names=NAMES)
    return net, inputs, mp.fit(net, inputs, 3)


NET, INPUTS, POLY = case()
POINT = INPUTS.sample(1, seed=3)[0]


def results(net, inputs, poly):
    """One of each."""
    x = inputs.sample(200)
    compared = mp.compare(net, poly, x, np.arange(200) % 3)
    behind = mp.propagate(mp.Chain([net, mp.MLP(x[:4, :3])]), inputs)
    return {
        "terms": poly.terms(k=9),
        "explanation": mp.explain(net, x[0, :], inputs, degree=3),
        "interactions": interaction_map(poly),
        "response": response_chart(net, poly),
        "spectrum": mp.degree_spectrum(net, inputs),
        "eigenfeatures": mp.eigenfeatures(poly, output=1),
        "singular": mp.singular_directions(poly),
        "forms": mp.principal_forms(poly),
        "decomposition": mp.decompose(poly, 3),
        "fvu": compared.fvu,
        "estimate": compared.kl,
        "comparison": compared,
        "moments": mp.second_moment(net, inputs),
        "propagation": behind,
        "layer": behind[0],
        "solve": FitReport("a mixture", "", history=((1, 2.0), (2, 0.7), (3, 0.5))),
        "finetune": FitReport("fine-tuning", "", history=((0, 0.2), (10, 0.1), (20, 0.12)), details={"best_step": 10}),
        "similarity": mp.similarity(net, poly, inputs),
        "sensitivity": mp.sensitivity(net, inputs),
        "certificate": mp.certify(net, -1, 1, seconds=0),
        "shapley": mp.shapley(net, x[0, :], inputs),
        "dependence": mp.conditional_mean(net, inputs, 0),
    }  # fmt: skip


@pytest.mark.parametrize("put", [np.asarray, torch.tensor])
def test_every_result_draws_itself_once(put):
    pyplot.close("all")  # what tests before have left
    for name, result in results(*case(put)).items():
        figure = result.plot()
        assert len(pyplot.get_fignums()) == 1, name  # which plt.show() will show
        figure.draw_without_rendering()
        assert any(ax.patches or ax.lines or ax.containers or ax.images for ax in figure.axes), name
        mine, axes = pyplot.subplots(1, 2, layout="constrained")
        assert result.plot(ax=axes[1]) is mine, name
        mine.draw_without_rendering()
        assert len(pyplot.get_fignums()) == 2, name  # and no third one
        assert not axes[0].has_data() and axes[1].has_data(), name
        pyplot.close("all")


def marks(result, panel=0, **options):
    return result.chart(**options).panels[panel].marks


def test_terms():
    terms = POLY.terms(output=1, k=12)
    chart = terms.chart()
    assert [part.amount for part in chart.parts] == [term.effect for term in terms]
    assert [part.label for part in chart.parts] == [shortened(term.name) for term in terms]
    coefficients = [f"{term.coefficient:.3g}".replace("-", "−") for term in terms]
    assert [part.remark for part in chart.parts] == coefficients
    assert chart.title == f"The 12 strongest of {math.comb(7, 3) - 1} terms of output 1"
    assert POLY.terms(k=1000).chart().title == "All terms of output 0"
    assert POLY.output(2).terms(k=1000).chart().title == "All terms"
    assert "direction" in POLY.terms(output=np.ones(3)).chart().title
    assert POLY.terms(center="mean").chart().note


def test_explanations_add_up():
    found = mp.explain(NET, POINT, INPUTS, degree=3, k=3)
    for by in ("degrees", "terms", "features"):
        chart = found.chart(by=by)
        assert sum(part.amount for part in chart.parts) == pytest.approx(found.polynomial, rel=1e-12)
        assert chart.totals == [("polynomial", found.polynomial), ("network", found.network)]
    parts = found.chart(by="terms").parts
    assert [part.label for part in parts[1:]] == [*(shortened(t.name) for t in found.terms), "other terms"]


def test_directions_are_named_by_their_largest_entries():
    found = mp.eigenfeatures(POLY, output=0)
    parts = found.chart().parts
    np.testing.assert_array_equal([part.amount for part in parts], found.values)
    vector = found.directions[0]
    first = NAMES[int(np.argmax(np.abs(vector)))]
    assert parts[0].label.startswith(f"{np.abs(vector).max():+.2g} {shortened(first, 16)}")
    assert mp.singular_directions(POLY).chart(names=list("abcd")).axis == "singular value"
    many = direction_ranking(np.arange(40.0), np.eye(40), None, 12, "title", "eigenvalue")
    assert len(many.parts) == 12 and many.note == "and 28 more" and many.parts[3].label == "+1 x3"


def test_measures():
    found = mp.compare(NET, POLY, INPUTS.sample(50), np.zeros(50, dtype=int))
    assert marks(found.fvu)[0].y == found.fvu.per_output.tolist()
    measures = (found.fvu, found.kl, found.agreement, found.accuracy, found.network_accuracy)
    assert [part.amount for part in found.chart().parts] == [float(value) for value in measures]
    assert found.chart().parts[1].remark == f"{float(found.kl):.3g} ± {found.kl.standard_error:.1g}"


@pytest.mark.parametrize("outputs", [3, 50])
def test_moments(rng, outputs):
    found = mp.second_moment(mp.MLP(rng.normal(size=(outputs, 4))), mp.Gaussian.standard(4))
    (mark,), spread = marks(found), np.sqrt(np.diagonal(found.cov))
    np.testing.assert_array_equal(mark.y, found.mean)
    np.testing.assert_allclose(mark.error if outputs < 40 else np.subtract(mark.high, mark.low) / 2, spread)


def test_propagation_and_histories(rng):
    behind = mp.propagate(mp.Chain([mp.MLP(rng.normal(size=(6, 6)) / 2) for _ in range(4)]), mp.Gaussian.standard(6))
    means, spreads = marks(behind)
    np.testing.assert_allclose(means.y, [np.sqrt(np.mean(layer.mean**2)) for layer in behind])
    np.testing.assert_allclose(spreads.y, [np.sqrt(np.trace(layer.cov) / 6) for layer in behind])
    assert marks(behind, 1)[0].y == [float(layer.excess) for layer in behind]
    found = results(NET, INPUTS, POLY)
    assert marks(found["solve"])[0].y == [2.0, 0.7, 0.5]
    (panel,) = found["finetune"].chart().panels
    assert list(panel.marks[0].x) == [0, 10, 20] and [place for place, _ in panel.x.guides] == [10]


def test_conditional_means_are_curves():
    mean = mp.conditional_mean(NET, INPUTS, "bmi")
    (panel,) = mean.chart(span=2.0).panels
    center, spread = INPUTS.mean[2], np.sqrt(INPUTS.cov[2, 2])
    np.testing.assert_allclose(panel.x.limits, [center - 2 * spread, center + 2 * spread])
    np.testing.assert_allclose([curve.y for curve in panel.marks], mean(np.asarray(panel.marks[0].x)[:, None]).T)
    assert panel.x.title == "bmi" and panel.x.guides == [(center, "mean")]
    assert marks(mean, output=1)[0].y == marks(mean)[1].y
    two = mp.conditional_mean(NET, INPUTS, ["s1", NAMES[1]])
    curves = marks(two, output=2)
    for curve, deviations in zip(curves, (-2, -1, 0, 1, 2), strict=True):
        second = INPUTS.mean[1] + deviations * np.sqrt(INPUTS.cov[1, 1])
        assert curve.label.startswith(SHORT[1])
        np.testing.assert_allclose(curve.y, two(np.stack([curve.x, np.full(len(curve.x), second)], axis=1))[:, 2])


def test_sensitivity():
    found = mp.sensitivity(NET, INPUTS)
    bars, order = marks(found, output=1), np.argsort(-found.shapley[:, 1])
    np.testing.assert_allclose(
        [bar.y for bar in bars], [a[order, 1] for a in (found.first, found.shapley, found.total)]
    )
    assert [name for _, name in found.chart(output=1).panels[0].x.ticks] == [shortened(NAMES[i], 21) for i in order]
    together = marks(found)[1].y
    np.testing.assert_allclose(sorted(together), sorted(found.shapley @ found.variance / found.variance.sum()))
    assert sum(together) == pytest.approx(1)
    drawn = mp.sensitivity(NET, INPUTS, permutations=4)
    strongest = np.argsort(-drawn.shapley[:, 0])[:2]
    np.testing.assert_allclose(marks(drawn, output=0, k=2)[-1].error, drawn.standard_error[strongest, 0])
    assert drawn.chart(k=2).panels[0].x.title == "the strongest 2 of 4 groups"


def test_shapley_values_add_up():
    found = mp.shapley(NET, POINT, INPUTS)
    chart = found.chart(output=2, k=2)
    assert [part.label for part in chart.parts][::3] == ["expected output", "2 others"]
    assert sum(part.amount for part in chart.parts) == pytest.approx(chart.totals[0][1], rel=1e-12)
    assert chart.totals == [("prediction", found.prediction[2])] and found.chart(output=-1).totals == chart.totals
    sampled = mp.shapley(NET, POINT, INPUTS, permutations=4)
    assert all(part.remark.startswith("±") for part in sampled.chart().parts[1:])


def test_similarity_by_degree_and_output():
    found = mp.similarity(NET, POLY, INPUTS)
    distance, cosine = found.chart().panels
    assert distance.marks[0].y == found.by_degree.distance.tolist()
    assert cosine.marks[0].y == found.by_degree.cosine.tolist()
    assert [text for _, text in distance.x.ticks][:2] == ["0", "1"] and distance.x.ticks[-1][1].startswith("> ")
    assert marks(found, by="outputs")[0].y == found.per_output.distance.tolist()
    assert len(marks(ALIKE)[0].y) == 3  # samples have no degrees


def test_interactions_are_the_effects_of_products():
    """Against the terms themselves, which find coefficients and standard deviations in another way."""
    poly = mp.fit(NET, INPUTS, 2)
    effects = interaction_effects(poly, 1)
    np.testing.assert_array_equal(effects, effects.T)
    for term in poly.terms(output=1, k=100, center="mean"):
        if len(term.inputs) == 2:
            assert effects[term.inputs] == pytest.approx(term.effect, rel=1e-10)
    heat = interaction_map(poly, 1)
    np.testing.assert_array_equal(heat.values, effects)
    assert heat.scale == np.abs(effects).max() and tuple(heat.rows) == NAMES


def test_response_curves_are_values_of_network_and_polynomials():
    direction = np.array([1.0, 2.0, 0.0, -1.0])
    chart = response_chart(NET, POLY, directions={"bmi": 2, "mix": direction}, output=2, points=7)
    unit, t = direction / np.linalg.norm(direction), np.linspace(-3, 3, 7)
    steps = [np.eye(4)[2] * np.sqrt(INPUTS.cov[2, 2]), unit * np.sqrt(unit @ INPUTS.cov @ unit)]
    for panel, step in zip(chart.panels, steps, strict=True):
        x = INPUTS.mean + t[:, None] * step
        assert [curve.label for curve in panel.marks] == ["network", "degree 1", "degree 2", "degree 3"]
        for curve, function in zip(panel.marks, [NET, POLY.truncate(1), POLY.truncate(2), POLY], strict=True):
            np.testing.assert_allclose(curve.y, function(x)[:, 2], rtol=1e-12)
            np.testing.assert_allclose(curve.x, t)
        low, high = panel.y.limits
        assert low < min(panel.marks[0].y) and max(panel.marks[0].y) < high
    assert [panel.choice for panel in chart.panels] == [("bmi",), ("mix",)] and chart.groups == ("Direction",)
    assert [curve.label for curve in response_chart(None, [POLY]).panels[0].marks] == ["degree 3"]
    flat = response_chart(NET, 0 * POLY, INPUTS)  # no direction is the strongest
    assert [panel.title for panel in flat.panels] == [f"input {np.argmax(np.diagonal(INPUTS.cov))}"]


WHY, ALIKE = mp.explain(POLY, POINT), mp.similarity(NET, POLY, mp.Samples(INPUTS.sample(50)))
FEATURES = mp.eigenfeatures(POLY, output=0)
MEAN = mp.conditional_mean(NET, INPUTS, "bmi")
STILL = mp.Gaussian(INPUTS.mean, np.array([1.0, 0.0, 1.0, 1.0]))


def line(direction):
    return lambda: response_chart(NET, POLY, directions={"up": direction})


@mistakes([
    ("no result", lambda: chart_of(3), TypeError, "an? int has no picture"),
    ("options of a picture", lambda: interaction_map(POLY).plot(title="x"), TypeError, "title belongs to the function"),
    ("image", lambda: WHY.plot(image_shape=(3, 3)), ValueError, r"image_shape is \(3, 3\), but there are 4"),
    ("image of features", lambda: FEATURES.plot(image_shape=(6,)), ValueError, r"image_shape is \(6,\), but"),
    ("parts", lambda: WHY.plot(by="colour"), ValueError, "by must be 'degrees'"),
    ("names", lambda: FEATURES.plot(names=["a", "b"]), ValueError, "names has 2 entries, but there are 4 inputs"),
    ("no features", lambda: eigenfeature_gallery({}, (2, 2)), ValueError, "features is empty"),
    ("two metrics", lambda: eigenfeature_gallery({0: FEATURES, 1: mp.eigenfeatures(POLY, metric="whitened")}, (2, 2)),
     ValueError, "one metric for all"),
    ("axes without a place", lambda: FEATURES.plot(pyplot.figure().add_axes((0, 0, 1, 1)), image_shape=(2, 2)),
     ValueError, r"ax must come from plt.subplots"),
    ("no history", lambda: FitReport("direct", "").plot(), ValueError, "no history to draw"),
    ("three inputs", lambda: mp.conditional_mean(NET, INPUTS, [0, 1, 2]).plot(), ValueError, "has no curve"),
    ("no spread", lambda: mp.conditional_mean(NET, STILL, 1).plot(), ValueError, "input x1 does not vary"),
    ("bars of a similarity", lambda: ALIKE.plot(by="layers"), ValueError, "by must be 'degrees'"),
    ("degrees on samples", lambda: ALIKE.plot(by="degrees"), ValueError, "has no degrees; take by='outputs'"),
    ("interactions of a line", lambda: interaction_map(POLY.truncate(1)), ValueError, "degree 1 and no quadratic part"),
    ("unknown inputs", lambda: interaction_map(replace(POLY, inputs=None)), ValueError, "inputs are needed, because"),
    ("no direction", line(np.zeros(4)), ValueError, "direction 'up' must be a vector of 4 finite numbers"),
    ("an input too many", line(4), ValueError, "direction 'up' is input 4, but there are 4 inputs"),
    ("no polynomial", lambda: response_chart(NET, []), ValueError, "polys is empty"),
])  # fmt: skip
def test_mistakes_are_explained(act, exception, patterns):
    assert_explained(act, exception, patterns)
