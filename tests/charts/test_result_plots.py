"""Plots of results: what they draw is what the results hold, on axes of one's own or on a new figure of pyplot."""

import math
import re

import numpy as np
import pytest
from matplotlib import pyplot

import mlpoly as mp
from mlpoly.charts import (
    dependence_chart,
    explanation_waterfall,
    interaction_map,
    response_chart,
    sensitivity_chart,
    shapley_waterfall,
    term_ranking,
)
from mlpoly.charts.chart import Picture, shortened
from mlpoly.charts.directions import direction_ranking
from mlpoly.charts.terms import effect_map
from mlpoly.features.interactions import interaction_effects
from mlpoly.fitting.report import FitReport
from mlpoly.records import replace

NAMES = ("age", "a $x$ & <b> very long name of an input", "bmi", "s1")


@pytest.fixture(autouse=True)
def no_display(monkeypatch):
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


@pytest.fixture
def net(rng):
    return mp.MLP(rng.normal(size=(7, 4)), rng.normal(size=7), rng.normal(size=(3, 7)), rng.normal(size=3), "relu")


@pytest.fixture
def inputs(rng):
    root = rng.normal(size=(4, 4)) / 2
    return mp.Gaussian(rng.normal(size=4), root @ root.T, names=NAMES)


@pytest.fixture
def poly(net, inputs):
    return mp.fit(net, inputs, 3)


def results(net, poly, inputs):
    """One of each."""
    x = inputs.sample(200)
    labels = np.arange(200) % 3
    found = mp.compare(net, poly, x, labels)
    chain = mp.Chain([net, mp.MLP(np.eye(3))])
    behind = mp.propagate(chain, inputs)
    tuned = FitReport("fine-tuning", "", history=((0, 0.2), (10, 0.1), (20, 0.12)), details={"best_step": 10})
    return {
        "terms": poly.terms(k=9),
        "explanation": mp.explain(net, x[0], inputs, degree=3),
        "spectrum": mp.degree_spectrum(net, inputs),
        "eigenfeatures": mp.eigenfeatures(poly, output=1),
        "singular": mp.singular_directions(poly),
        "decomposition": mp.decompose(poly, 3),
        "fvu": found.fvu,
        "estimate": found.kl,
        "comparison": found,
        "moments": mp.second_moment(net, inputs),
        "propagation": behind,
        "layer": behind[0],
        "solve": FitReport("a mixture", "", history=((1, 2.0), (2, 0.7), (3, 0.5))),
        "finetune": tuned,
        "similarity": mp.similarity(net, poly, inputs),
        "sensitivity": mp.sensitivity(net, inputs),
        "shapley": mp.shapley(net, inputs, x[0]),
        "dependence": mp.conditional_mean(net, inputs, 0),
    }


def test_every_result_draws_itself_once(net, poly, inputs):
    for name, result in results(net, poly, inputs).items():
        before = pyplot.get_fignums()
        figure = result.plot()
        assert len(pyplot.get_fignums()) == len(before) + 1, name  # which plt.show() will show
        figure.draw_without_rendering()
        assert any(ax.patches or ax.lines or ax.containers for ax in figure.axes), name
        mine, axes = pyplot.subplots(1, 2, layout="constrained")
        open_now = pyplot.get_fignums()
        assert result.plot(ax=axes[1]) is mine, name
        mine.draw_without_rendering()
        assert pyplot.get_fignums() == open_now, name  # and no second one
        assert not axes[0].has_data() and axes[1].has_data(), name
        pyplot.close("all")


def bars(ax):
    return [(patch.get_x(), patch.get_width()) for patch in ax.patches]


def texts(ax):
    return [text.get_text() for text in ax.texts]


def tick_names(ax):
    return [label.get_text().replace(r"\$", "$") for label in ax.get_yticklabels()]


def test_terms(poly):
    terms = poly.terms(output=1, k=12)
    (ax,) = terms.plot().axes
    np.testing.assert_array_equal([width for _, width in bars(ax)], [term.effect for term in terms])
    assert tick_names(ax) == [shortened(term.name) for term in terms]
    assert [float(t.replace("−", "-")) for t in texts(ax)[:12]] == [float(f"{t.coefficient:.3g}") for t in terms]
    assert ax.get_title() == f"The 12 strongest of {math.comb(7, 3) - 1} terms of output 1"
    assert term_ranking(poly.terms(k=1000)).title == "All terms of output 0"
    assert term_ranking(poly.output(2).terms(k=1000)).title == "All terms"
    assert "direction" in term_ranking(poly.terms(output=np.ones(3))).title
    assert term_ranking(poly.terms(center="mean")).note


def test_explanations_add_up(net, poly, inputs):
    found = mp.explain(net, inputs.sample(1)[0], inputs, degree=3, k=3)
    assert found.network is not None
    for by in ("degrees", "terms", "features"):
        drawn = explanation_waterfall(found, by=by)
        assert sum(part.amount for part in drawn.parts) == pytest.approx(found.polynomial, rel=1e-12)
        assert drawn.totals == [("polynomial", found.polynomial), ("network", found.network)]
        (ax,) = found.plot(by=by).axes
        ends = [start + width for start, width in bars(ax)]
        assert ends[len(drawn.parts) - 1] == pytest.approx(found.polynomial)
        assert ends[-2:] == pytest.approx([found.polynomial, found.network])
    assert [p.label for p in explanation_waterfall(found, by="terms").parts[1:4]] == [
        shortened(t.name) for t in found.terms
    ]
    assert explanation_waterfall(found, by="terms").parts[-1].label == "other terms"


def test_explanation_of_an_image(poly, inputs):
    found = mp.explain(poly, inputs.sample(1)[0])
    drawn = explanation_waterfall(found, (2, 2))
    assert isinstance(drawn.picture, Picture) and len(drawn.totals) == 1
    np.testing.assert_array_equal(drawn.picture.image, found.point.reshape(2, 2))
    patterns = [part.image for part in drawn.parts if part.image is not None]
    np.testing.assert_array_equal(patterns, [feature.pattern.reshape(2, 2) for feature in found.features])
    assert len(found.plot(image_shape=(2, 2)).axes) == 2
    with pytest.raises(ValueError, match=r"image_shape is \(3, 3\), but there are 4 inputs; .* rows \* columns = 4"):
        found.plot(image_shape=(3, 3))
    with pytest.raises(ValueError, match="by must be 'degrees'"):
        found.plot(by="colour")


def test_features_are_named_by_their_largest_entries(poly):
    found = mp.eigenfeatures(poly, output=0)
    (ax,) = found.plot().axes
    np.testing.assert_array_equal([width for _, width in bars(ax)], found.values)
    vector = found.directions[0]
    first = NAMES[int(np.argmax(np.abs(vector)))]
    assert tick_names(ax)[0].startswith(f"{np.abs(vector).max():+.2g} {shortened(first, 16)}")
    assert mp.singular_directions(poly).plot(names=list("abcd")).axes[0].get_xlabel() == "singular value"
    with pytest.raises(ValueError, match="names has 2 entries, but there are 4 inputs"):
        found.plot(names=["a", "b"])
    many = direction_ranking(np.arange(40.0), np.eye(40), None, 12, "title", "eigenvalue")
    assert len(many.parts) == 12 and many.note == "and 28 more" and many.parts[3].label == "+1 x3"


def test_features_as_images(poly):
    found, directions = mp.eigenfeatures(poly, output=0), mp.singular_directions(poly)
    images = [ax.images[0].get_array() for ax in found.plot(image_shape=(2, 2)).axes if ax.images]
    assert len(images) == 4
    order = np.argsort(-found.values)
    positive = int(np.sum(found.values > 0))
    np.testing.assert_array_equal(images[0], found.directions[order[0]].reshape(2, 2))
    np.testing.assert_array_equal(images[min(positive, 3)], found.directions[order[-1]].reshape(2, 2))
    images = [ax.images[0].get_array() for ax in directions.plot(image_shape=(2, 2)).axes if ax.images]
    np.testing.assert_array_equal(images, directions.vectors.reshape(3, 2, 2))
    with pytest.raises(ValueError, match=r"image_shape is \(2, 3\), but there are 4 inputs"):
        directions.plot(image_shape=(2, 3))


def test_measures(net, poly, inputs):
    found = mp.compare(net, poly, inputs.sample(50), np.zeros(50, dtype=int))
    (ax,) = found.fvu.plot().axes
    np.testing.assert_array_equal([patch.get_height() for patch in ax.patches], found.fvu.per_output)
    (ax,) = found.plot().axes
    np.testing.assert_array_equal(
        [width for _, width in bars(ax)],
        [float(v) for v in (found.fvu, found.kl, found.agreement, found.accuracy, found.network_accuracy)],
    )
    assert float(re.match(r"[\d.e-]+", texts(ax)[1])[0]) == pytest.approx(float(found.kl), rel=0.01)
    one = mp.fvu(lambda x: net(x)[:, :1], lambda x: poly(x)[:, :1], samples=inputs.sample(50))
    assert len(one.plot().axes[0].patches) == 1


@pytest.mark.parametrize("outputs", [3, 50])
def test_moments(rng, outputs):
    net, inputs = mp.MLP(rng.normal(size=(outputs, 4))), mp.Gaussian.standard(4)
    found = mp.second_moment(net, inputs)
    (ax,) = found.plot().axes
    spread = np.sqrt(np.diagonal(found.cov))
    if outputs > 40:
        corners = ax.collections[0].get_paths()[0].vertices
        low, high = found.mean - spread, found.mean + spread
        np.testing.assert_allclose([corners[:, 1].min(), corners[:, 1].max()], [low.min(), high.max()])
    else:
        segments = ax.containers[0].lines[2][0].get_segments()
        np.testing.assert_allclose([s[:, 1] for s in segments], np.stack([found.mean - spread, found.mean + spread], 1))


def test_propagation(rng):
    net = mp.Chain([mp.MLP(rng.normal(size=(6, 6)) / 2) for _ in range(4)])
    behind = mp.propagate(net, mp.Gaussian.standard(6))
    left, right = behind.plot().axes
    means, spreads = (line.get_ydata() for line in left.lines)
    np.testing.assert_allclose(means, [np.sqrt(np.mean(layer.mean**2)) for layer in behind])
    np.testing.assert_allclose(spreads, [np.sqrt(np.trace(layer.cov) / 6) for layer in behind])
    np.testing.assert_allclose(right.lines[0].get_ydata(), [float(layer.excess) for layer in behind])


def test_histories(net, poly, inputs):
    found = results(net, poly, inputs)
    (ax,) = found["solve"].plot().axes
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [2.0, 0.7, 0.5])
    (ax,) = found["finetune"].plot().axes
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [0, 10, 20])
    assert [line.get_xdata()[0] for line in ax.lines if line.get_label() == "_guide"] == [10]
    direct = mp.fit(net, mp.GaussianMixture(np.array([0.5, 0.5]), np.eye(2, 4)), 2).report
    assert direct.iterations == 0
    with pytest.raises(ValueError, match="no history to draw"):
        direct.plot()


def test_conditional_means_are_curves(net, inputs):
    mean = mp.conditional_mean(net, inputs, "bmi")
    (ax,) = mean.plot(span=2.0).axes
    x = ax.lines[0].get_xdata()
    center, spread = inputs.mean[2], np.sqrt(inputs.cov[2, 2])
    np.testing.assert_allclose(x[[0, -1]], [center - 2 * spread, center + 2 * spread])
    curves = [line.get_ydata() for line in ax.lines if line.get_label() != "_guide"]
    np.testing.assert_allclose(curves, mean(x[:, None]).T)
    assert ax.get_xlabel() == "bmi" and len(ax.lines) == 4  # three outputs, and the mean of the input
    chart = dependence_chart(mean, output=1)
    np.testing.assert_allclose(chart.panels[0].marks[0].y, mean(np.asarray(chart.panels[0].marks[0].x)[:, None])[:, 1])
    two = mp.conditional_mean(net, inputs, ["s1", NAMES[1]])
    chart = dependence_chart(two, output=2)
    assert len(chart.panels[0].marks) == 5 and chart.panels[0].x.title == "s1"
    for curve, deviations in zip(chart.panels[0].marks, (-2, -1, 0, 1, 2), strict=True):
        second = inputs.mean[1] + deviations * np.sqrt(inputs.cov[1, 1])
        assert curve.label.startswith(shortened(NAMES[1]))
        at = np.stack([curve.x, np.full(len(curve.x), second)], axis=1)
        np.testing.assert_allclose(curve.y, two(at)[:, 2])
    two.plot().draw_without_rendering()
    with pytest.raises(ValueError, match="given 3 inputs has no curve"):
        mp.conditional_mean(net, inputs, [0, 1, 2]).plot()
    with pytest.raises(ValueError, match="output is 3, but there are 3 outputs"):
        mean.plot(output=3)
    with pytest.raises(ValueError, match="span must be a positive number"):
        mean.plot(span=0)
    still = mp.Gaussian(inputs.mean, np.array([1.0, 0.0, 1.0, 1.0]))
    with pytest.raises(ValueError, match="input x1 does not vary"):
        mp.conditional_mean(net, still, 1).plot()


def test_sensitivity_bars(net, inputs):
    found = mp.sensitivity(net, inputs)
    (ax,) = found.plot(output=1).axes
    order = np.argsort(-found.shapley[:, 1])
    heights = np.array([patch.get_height() for patch in ax.patches]).reshape(3, 4)
    np.testing.assert_allclose(heights, [a[order, 1] for a in (found.first, found.shapley, found.total)])
    names = [label.get_text() for label in ax.get_xticklabels()]
    assert names == [shortened(NAMES[i], 21).replace("$", r"\$") for i in order]
    weights = found.variance / found.variance.sum()
    bars_of_all = [m for m in sensitivity_chart(found).panels[0].marks if m.label == "Shapley effect"]
    np.testing.assert_allclose(sorted(bars_of_all[0].y), sorted(found.shapley @ weights))
    assert sum(bars_of_all[0].y) == pytest.approx(1)
    drawn = mp.sensitivity(net, inputs, permutations=4)
    points = sensitivity_chart(drawn, output=0, k=2).panels[0].marks[-1]
    strongest = np.argsort(-drawn.shapley[:, 0])[:2]
    np.testing.assert_allclose(points.error, drawn.standard_error[strongest, 0])
    assert drawn.plot(k=2).axes[0].get_xlabel() == "the strongest 2 of 4 groups"
    with pytest.raises(ValueError, match="output is 7, but there are 3 outputs"):
        found.plot(output=7)


def test_shapley_values_add_up_in_the_picture(net, inputs):
    found = mp.shapley(net, inputs, inputs.sample(1)[0])
    drawn = shapley_waterfall(found, output=2, k=2)
    assert [part.label for part in drawn.parts][::3] == ["mean", "2 others"]
    assert sum(part.amount for part in drawn.parts) == pytest.approx(drawn.totals[0][1], rel=1e-12)
    assert drawn.totals == [("prediction", found.prediction[2])]
    (ax,) = found.plot(output=2).axes
    assert len(ax.patches) == 6
    sampled = mp.shapley(net, inputs, inputs.sample(1)[0], permutations=4)
    assert all(part.remark.startswith("±") for part in shapley_waterfall(sampled).parts[1:])
    with pytest.raises(ValueError, match="output is 3"):
        found.plot(output=3)


def test_similarity_by_degree_and_output(net, poly, inputs):
    found = mp.similarity(net, poly, inputs, max_degree=3)
    left, right = found.plot().axes
    np.testing.assert_allclose([p.get_height() for p in left.patches], found.by_degree.distance, atol=1e-15)
    np.testing.assert_allclose([p.get_height() for p in right.patches], found.by_degree.cosine)
    assert [label.get_text() for label in left.get_xticklabels()] == ["0", "1", "2", "3", "> 3"]
    left, _ = found.plot(by="outputs").axes
    np.testing.assert_allclose([p.get_height() for p in left.patches], found.per_output.distance)
    samples = mp.similarity(net, poly, mp.Samples(inputs.sample(50)))
    assert len(samples.plot().axes[0].patches) == 3
    with pytest.raises(ValueError, match="has no degrees; take by='outputs'"):
        samples.plot(by="degrees")
    with pytest.raises(ValueError, match="by must be 'degrees' or 'outputs'"):
        found.plot(by="layers")


def test_interactions_are_the_effects_of_products(net, inputs):
    """Against the terms themselves, which find coefficients and standard deviations in another way."""
    poly = mp.fit(net, inputs, 2)
    effects = interaction_effects(poly, 1)
    np.testing.assert_array_equal(effects, effects.T)
    for term in poly.terms(output=1, k=100, center="mean"):
        if len(term.inputs) == 2:
            assert effects[term.inputs] == pytest.approx(term.effect, rel=1e-10)
    ax = interaction_map(poly, 1).plot().axes[0]
    np.testing.assert_array_equal(ax.images[0].get_array(), effects)
    limit = np.abs(effects).max()
    assert ax.images[0].get_clim() == (-limit, limit)
    assert tick_names(ax) == [shortened(name, 20) for name in NAMES]


def test_heat_map_of_the_strongest():
    effects = np.zeros((9, 9))
    effects[2, 7] = effects[7, 2] = 3.0
    effects[0, 4] = effects[4, 0] = -1.0
    effects[5, 5] = 9.0  # a square is no interaction
    found = effect_map(effects, k=4)
    assert list(found.rows) == list(found.columns) == ["x0", "x2", "x4", "x7"]
    assert found.values[1, 3] == 3.0 and found.values[0, 2] == -1.0 and found.note
    assert effect_map(np.zeros((1, 1))).scale == 1.0


def test_interactions_of_bad_input(net, inputs, poly):
    with pytest.raises(ValueError, match="names has 2 entries, but there are 4 inputs"):
        interaction_map(poly, names=["a", "b"]).plot()
    with pytest.raises(ValueError, match="has degree 1 and no quadratic part"):
        interaction_map(poly.truncate(1)).plot()
    with pytest.raises(ValueError, match="output is 3, but there are 3 outputs"):
        interaction_map(poly, 3).plot()
    with pytest.raises(ValueError, match="inputs are needed, because"):
        interaction_map(replace(poly, inputs=None)).plot()


def test_response_curves_are_values_of_network_and_polynomials(net, poly, inputs):
    direction = np.array([1.0, 2.0, 0.0, -1.0])
    chart = response_chart(net, poly, directions={"bmi": 2, "mix": direction}, output=2, points=7)
    unit, t = direction / np.linalg.norm(direction), np.linspace(-3, 3, 7)
    steps = [np.eye(4)[2] * np.sqrt(inputs.cov[2, 2]), unit * np.sqrt(unit @ inputs.cov @ unit)]
    for panel, step in zip(chart.panels, steps, strict=True):
        x = inputs.mean + t[:, None] * step
        functions = [net, poly.truncate(1), poly.truncate(2), poly]
        assert [curve.label for curve in panel.marks] == ["network", "degree 1", "degree 2", "degree 3"]
        for curve, function in zip(panel.marks, functions, strict=True):
            np.testing.assert_allclose(curve.y, function(x)[:, 2], rtol=1e-12)
            np.testing.assert_allclose(curve.x, t)
        low, high = panel.y.limits
        assert low < min(panel.marks[0].y) and max(panel.marks[0].y) < high
    assert [panel.choice for panel in chart.panels] == [("bmi",), ("mix",)] and chart.groups == ("Direction",)
    figure = response_chart(None, [poly], directions={"bmi": 2}).plot()
    assert len(figure.axes) == 1 and len(figure.axes[0].lines) == 1
    assert len(response_chart(net, poly).plot().axes[0].lines) == 4
    flat = response_chart(net, 0 * poly, inputs)  # no direction is the strongest
    assert [panel.title for panel in flat.panels] == [f"input {np.argmax(np.diagonal(inputs.cov))}"]


def test_response_of_bad_input(net, poly):
    for direction in (np.zeros(4), np.ones(3), np.array([1.0, np.nan, 0.0, 0.0])):
        with pytest.raises(ValueError, match="direction 'up' must be a vector of 4 finite numbers"):
            response_chart(net, poly, directions={"up": direction})
    with pytest.raises(ValueError, match="direction 'up' is input 4, but there are 4 inputs"):
        response_chart(net, poly, directions={"up": 4})
    with pytest.raises(ValueError, match="output is 7"):
        response_chart(net, poly, output=7)
    with pytest.raises(ValueError, match="inputs are needed, because"):
        response_chart(net, replace(poly, inputs=None))
    with pytest.raises(ValueError, match="polys is empty"):
        response_chart(net, [])


def test_several_axes_need_a_place(poly):
    figure = pyplot.figure()
    with pytest.raises(ValueError, match=r"ax must come from plt.subplots"):
        mp.eigenfeatures(poly, output=0).plot(ax=figure.add_axes((0, 0, 1, 1)), image_shape=(2, 2))


def test_torch_results_are_drawn(net, inputs):
    import torch

    weights = torch.tensor(net.W1, dtype=torch.float32).requires_grad_()
    there = mp.MLP(weights, None, torch.tensor(net.W2, dtype=torch.float32))
    poly = mp.fit(there, inputs.to(weights), 2)
    drawn = [
        poly.terms(k=3),
        mp.eigenfeatures(poly, output=0),
        mp.singular_directions(poly),
        mp.decompose(poly, 2),
        mp.fvu(there, poly),
        mp.degree_spectrum(there, inputs.to(weights), 3),
        mp.second_moment(there, inputs.to(weights)),
        mp.similarity(there, poly, inputs.to(weights)),
        mp.sensitivity(there, inputs.to(weights)),
        mp.shapley(there, inputs.to(weights), torch.zeros(4)),
        mp.conditional_mean(there, inputs.to(weights), 0),
    ]
    for result in drawn:
        assert result.plot().axes[0].has_data()
    assert interaction_map(poly).plot().axes[0].has_data() and response_chart(there, poly).plot().axes[0].has_data()
