"""The page about any network: its numbers are the library's, and it is alive in a real browser, whatever the names."""

import html
import re
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from scipy import stats
from sklearn import neural_network as neural
from sklearn import pipeline
from sklearn.preprocessing import StandardScaler
from support.networks import chain, network
from support.pages import NASTY, assert_harmless, island, sections

import mlpoly as mp
from mlpoly.pages.network.fits import fit_degrees
from mlpoly.pages.network.subject import check_subject
from mlpoly.pages.toolkit.widgets import number, percent

SECTIONS = [
    "importance", "shapes", "formula", "degrees", "terms", "interactions", "features", "responses", "examples",
    "method", "rerun"
]  # fmt: skip
NAMES = ("a<b>", NASTY, "$x^2$ & %{y}", "naïve π", "long " * 30)
OUTPUTS = ("<img src=x onerror=window.hacked=3>", "%{x}", "c &lt; d")


def data(n: int = 200, d: int = 5, seed: int = 1) -> np.ndarray:
    """Rows with correlated columns, each with a mean and a scale of its own."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) * np.logspace(-1, 1, d) + np.arange(d)


def of_two(n: int, d: int) -> mp.GaussianMixture:
    return mp.GaussianMixture.from_labels(data(n, d), np.arange(n) % 2)


def words(markup: str) -> str:
    return re.sub(r"<[^>]+>", "", markup)


def section(page: str, anchor: str) -> str:
    return re.search(rf'<section id="{anchor}".*?</section>', page, re.S)[0]


def tile(name: str, fraction: float) -> str:
    return f'<dt>{name}</dt><dd class="value">{percent(fraction, None)}</dd>'


def written(tmp_path, *arguments: Any, **options: Any) -> str:
    return mp.report(*arguments, out=tmp_path / "report.html", **options).read_text(encoding="utf-8")


def test_degrees_and_errors_are_those_of_the_library(tmp_path):
    net, x = network(d=5, h=7, o=2), data()
    page = written(tmp_path, net, x)
    assert sections(page) == SECTIONS
    inputs = mp.Gaussian.from_samples(x)
    spectrum = mp.degree_spectrum(net, inputs, 8)
    bars, *stacked = island(page, "plot-spectrum-data")["traces"]
    assert bars["y"][:8] == pytest.approx(spectrum.overall, rel=1e-12) and sum(bars["y"]) == pytest.approx(1)
    assert [bar["y"][1] for bar in stacked[:8]] == pytest.approx(spectrum.variance[:, 1] / spectrum.total[1])
    lines = {trace["name"]: trace["y"] for trace in island(page, "plot-error-data")["traces"] if "name" in trace}
    assert lines["under the inputs of the fit"] == pytest.approx(spectrum.unexplained, rel=1e-9)
    polys = [mp.fit(net, inputs, k) for k in (1, 2, 3)]
    assert lines["on the data"] == pytest.approx([float(mp.fvu(net, p, x)) for p in polys], rel=1e-9)
    cells = words(section(page, "degrees"))
    for poly in polys:
        assert percent(float(mp.fvu(net, poly)), None) in cells
        assert percent(float(mp.fvu(net, poly).per_output[1]), None) in cells
    assert tile("of the variance is linear", float(spectrum.overall[0])) in page


def test_the_first_words_say_what_matters(tmp_path):
    """3 a - 2 b + a c / 2 with independent inputs of variance one: 9, 4 and 0.25 of the variance, half of it each."""
    x = data(4000, 3)
    x = np.linalg.solve(np.linalg.cholesky(np.cov(x.T, bias=True)), (x - x.mean(axis=0)).T).T
    first, last = np.array([[3.0, -2, 0], [1, 0, 1], [1, 0, -1]]), np.array([[1.0, 0.125, -0.125]])
    squares = mp.GLU(first, np.zeros(3), first * [[0], [1], [1]], np.array([1.0, 0, 0]), last, None, "identity")
    page = written(tmp_path, squares, x, names=["age", "bmi", "dose"])
    lead = words(re.search(r'<p class="lead">.*?</p>', page, re.S)[0]).replace("\u202f", " ")
    shares = "69 % and 30 % of the variance under a Gaussian; it rises with age, and it falls with bmi"
    assert f"The network’s output depends most on age and bmi, which explain {shares}." in lead
    assert (
        f"interactions make up {percent(0.25 / 13.25, None)} of the variance, above all those of age and dose".replace(
            "\u202f", " "
        )
        in lead
    )
    effects = mp.sensitivity(squares, mp.Gaussian.from_samples(x)).shapley[:, 0]
    assert effects == pytest.approx(np.array([9.125, 4, 0.125]) / 13.25)
    for effect in effects[:2]:
        assert number(100 * effect) in section(page, "importance")


def test_curves_are_those_of_the_additive_model(tmp_path):
    """Its values, the fraction under the Gaussian and that on the rows; a deep network has it on the rows alone."""
    net, x = network(d=4, h=7, o=1), data(300, 4)
    page = written(tmp_path, net, x)
    model, cells = mp.additive(net, mp.Gaussian.from_samples(x)), words(section(page, "shapes"))
    curves = [trace["y"] for trace in island(page, "plot-shapes-data")["traces"] if trace.get("name") == "g"]
    z = model.center[:, None] + model.scale[:, None] * np.linspace(-3, 3, 61)
    expected = [model.shape(i)(z[i])[:, 0] for i in np.argsort(-model.importance[:, 0])]
    assert np.concatenate(curves) == pytest.approx(np.concatenate(expected), rel=1e-3, abs=1e-3)
    values = net(x)
    left = np.sum((values - model(x)) ** 2) / np.sum((values - values.mean(axis=0)) ** 2)
    assert f"it explains {percent(float(model.additive[0]), None)}; on the rows" in cells
    assert f"themselves, {percent(1 - left, None)}." in cells
    deep = words(section(written(tmp_path, chain(sizes=(4, 6, 5, 1)), x), "shapes"))
    assert "on the rows of data, it explains" in deep and "polynomials of degree 8" in deep


def test_unseen_rows_are_unseen():
    net, x = network(d=4, h=6, o=2), data(60, 4)
    fits = fit_degrees(check_subject(net, x), 2, lambda note: None)
    for errors in fits.errors:
        halves = ((x[0::2], x[1::2]), (x[1::2], x[0::2]))
        by_hand = [
            float(mp.fvu(net, mp.fit(net, mp.Gaussian.from_samples(known), errors.degree), new))
            for known, new in halves
        ]
        assert errors.on_unseen == pytest.approx(np.mean(by_hand), rel=1e-9)
        assert errors.on_unseen != pytest.approx(float(errors.on_data), rel=1e-3)


def test_the_whole_formula_of_a_quadratic_network(tmp_path):
    """All five terms stand on the page, in both units, with the derivatives at the mean as coefficients."""
    net = network(activation="square", d=2, h=3, o=1)
    x = data(100, 2)
    page = written(tmp_path, net, x, names=["age", "bmi"])
    poly, mean, s = mp.fit(net, mp.Gaussian.from_samples(x), 2), x.mean(axis=0), x.std(axis=0)
    g, bend = poly.gradient(mean)[0], poly.hessian(mean)[0]
    wanted = {"age": g[0], "bmi": g[1], "age2": bend[0, 0] / 2, "bmi2": bend[1, 1] / 2, "age·bmi": bend[0, 1]}
    scales = {"age": s[0], "bmi": s[1], "age2": s[0] ** 2, "bmi2": s[1] ** 2, "age·bmi": s[0] * s[1]}
    formulas = [words(text).replace(" ", "") for text in re.findall(r'<p class="formula".*?</p>', page)]
    for text, units in zip(formulas, (scales, dict.fromkeys(scales, 1.0)), strict=True):
        assert text.startswith("p=" + number(float(net(mean)[0])).replace("\u202f", ""))
        terms = dict((name, sign + size) for sign, size, name in re.findall(r"([+−])([\d.]+)·([a-z2·]+)", text))
        assert set(terms) == set(wanted)
        for name, value in wanted.items():
            shown = float(terms[name].replace("−", "-"))
            assert shown == pytest.approx(value * units[name], rel=5.01e-3), name  # three digits
    assert "This is the whole polynomial" in page and "The network is a polynomial: of degree 2" in page
    assert tile("unexplained by the cubic polynomial", 0.0) in page


def test_terms_and_interactions(tmp_path):
    net, x = network(d=5, h=7, o=2), data()
    page = written(tmp_path, net, x, names=list("abcde"))
    inputs = mp.Gaussian.from_samples(x)
    poly = mp.fit(net, inputs, 3)
    for output in (0, 1):
        pairs = poly.truncate(2).terms(output, list("abcde"), 8, "mean", interactions=True)
        for place, terms in (("terms", poly.terms(output, list("abcde"), center="mean")), ("interactions", pairs)):
            for term in terms:
                remark = f"coefficient {number(term.coefficient)}, {percent(term.fraction, None)} of variance"
                seen = abs(term.effect) > 0.04 * abs(terms[0].effect)
                assert (f">{term.name}<small>{remark}<" in section(page, place)) == seen, term
    # Of jointly Gaussian deviations, Var u_i u_j = S_ii S_jj + S_ij^2; the mean Hessian by quadrature-free averages.
    traces = island(page, "plot-interactions-data")["traces"]
    cov, bend = inputs.covariance, poly.truncate(2).hessian(x.mean(axis=0))
    spread = np.sqrt(np.outer(np.diag(cov), np.diag(cov)) + cov**2)
    for output in (0, 1):
        effect = bend[output] * spread * (1 - np.eye(5) / 2)
        np.testing.assert_allclose(traces[output]["z"], effect, rtol=1e-3, atol=1e-9)
        assert traces[output]["names"]["rows"] == list("abcde")


def test_responses_are_the_values_along_the_lines(tmp_path):
    net, x = network(d=3, h=6, o=2), data(100, 3)
    page = written(tmp_path, net, x, names=["a", "b", "c"], degree=2)
    found = island(page, "plot-responses-data")
    options = re.findall(r"<span>([^<]*)</span>", section(page, "responses"))
    ways = options[2:]
    mean, s = x.mean(axis=0), x.std(axis=0)
    t = np.array(found["traces"][0]["x"])
    for j, name in enumerate("abc"):
        view = next(v for v in found["views"] if v["choice"] == [1, ways.index(f"{name} alone")])
        curves = {found["traces"][i]["name"]: found["traces"][i]["y"] for i in view["traces"]}
        points = mean + t[:, None] * s[j] * np.eye(3)[j]
        np.testing.assert_allclose(curves["network"], net(points)[:, 1], rtol=1e-3, atol=1e-3)
        quadratic = mp.fit(net, mp.Gaussian.from_samples(x), 2)
        np.testing.assert_allclose(curves["degree 2"], quadratic(points)[:, 1], rtol=1e-3, atol=1e-3)


def test_predictions_add_up_to_the_polynomial(tmp_path):
    net, x = network(d=3, h=6, o=1), data(100, 3)
    page = section(written(tmp_path, net, x, labels=x[:, 0]), "examples")
    blocks = re.findall(r'<ol class="waterfall.*?</ol>', page, re.S)
    assert len(blocks) == 4
    poly = mp.fit(net, mp.Gaussian.from_samples(x), 3)
    rows = [int(row) for row in re.findall(r"Row (\d+) of the data", page)]
    apart = np.abs(poly(x) - net(x))[:, 0]
    assert rows[1] == apart.argmax() and rows[2:] == [net(x)[:, 0].argmax(), net(x)[:, 0].argmin()]
    for row, block in zip(rows, blocks, strict=True):
        found = re.findall(r'<li class="(\w+)">.*?class="amount">([^<]+)<', block, re.S)
        amounts = [(kind, float(text.replace("−", "-").replace("\u202f", ""))) for kind, text in found]
        parts = [value for kind, value in amounts if kind != "total"]
        polynomial, net_value, label = [value for kind, value in amounts if kind == "total"]
        assert sum(parts) == pytest.approx(polynomial, abs=0.006 * sum(map(abs, parts)))  # three digits of each
        assert polynomial == pytest.approx(float(poly(x[row])[0]), rel=5e-3)
        assert net_value == pytest.approx(float(net(x[row])[0]), rel=5e-3) and label == pytest.approx(x[row, 0], 5e-3)


def test_scores_with_labels(tmp_path):
    net, x = network(d=5, h=7, o=3), data()
    labels = np.random.default_rng(0).integers(0, 3, len(x))
    poly = mp.fit(net, mp.Gaussian.from_samples(x), 2)
    cells = words(section(written(tmp_path, net, x, labels, degree=2), "degrees"))
    right, same = poly(x).argmax(axis=1) == labels, poly(x).argmax(axis=1) == net(x).argmax(axis=1)
    assert percent(right.mean()) + percent(same.mean()) in cells
    assert f"the network itself––––{percent((net(x).argmax(axis=1) == labels).mean())}–" in cells
    one = network(d=5, h=7, o=1)
    y = one(x)[:, 0] + np.random.default_rng(0).standard_normal(len(x))
    square = np.sum((y - mp.fit(one, mp.Gaussian.from_samples(x), 1)(x)[:, 0]) ** 2) / np.sum((y - y.mean()) ** 2)
    page = words(section(written(tmp_path, one, x, y, degree=1), "degrees"))
    assert "R² with labels" in page and number(1 - square) in page


def test_a_probability_is_compared_with_one_half(tmp_path):
    x, net = data(), network(d=5, h=7, o=1)
    labels = np.random.default_rng(0).integers(0, 2, len(x))
    half = -np.median(net(x), axis=0)
    logit = mp.Chain([net, mp.Affine(np.eye(1), half)])
    probability = mp.Chain([net, mp.MLP(np.eye(1), half, activation="sigmoid")])
    right = percent(((logit(x)[:, 0] > 0) == labels).mean())
    for judged in (logit, probability):
        cells = words(section(written(tmp_path, judged, x, labels, degree=1), "degrees"))
        assert f"the network itself––––{right}–" in cells


def test_a_network_that_is_no_better_than_a_constant(tmp_path):
    """As on data in units that it was not trained on."""
    hint, x = "no better than a constant on these data: was it trained on scaled inputs or targets?", data()
    for net, labels in ((network(d=5, o=1), lambda f: f[:, 0]), (network(d=5, o=2), lambda f: f.argmax(axis=1))):
        right = labels(net(x))
        wrong = 100 + 10 * right if net.dim_out == 1 else 1 - right
        assert hint not in words(written(tmp_path, net, x, right, degree=1))
        assert hint in words(written(tmp_path, net, x, wrong, degree=1))
        assert hint not in words(written(tmp_path, net, x, degree=1))
    frequent = np.where(np.arange(len(x)) < 150, 1, 0)  # always "1" is right for three in four
    biased = mp.Affine(np.zeros((2, 5)) + 1e-9 * np.eye(2, 5), np.array([0.0, 1.0]))
    assert hint in words(written(tmp_path, biased, x, frequent, degree=1))
    assert hint not in words(written(tmp_path, biased, x, np.ones(len(x), int), degree=1))  # all right


def test_data_that_are_not_like_the_gaussian(tmp_path):
    """Rare events, and units that are nearly always off."""
    hint, rng = "Trust the numbers on the data, and use a fit on them, mp.fit(net, x, 2)", np.random.default_rng(1)
    x = (rng.random((20_000, 24)) < rng.uniform(0.01, 0.04, 24)).astype(float)
    W1, b1 = 2.5 * rng.normal(size=(6, 24)), -4 + rng.normal(size=6)
    net = mp.MLP(W1, b1, rng.normal(size=(2, 6)), None, "sigmoid")
    with pytest.warns(mp.DataWarning):
        assert hint in words(written(tmp_path, net, x, degree=2))
    assert hint not in words(written(tmp_path, network(d=5, o=1), data(), degree=2))


def test_images(tmp_path):
    x = data(80, 12)
    x[:, 3] = 0.0  # a pixel that is always the same
    page = written(tmp_path, network(d=12, o=2), x.reshape(80, 3, 4), np.arange(80) % 2)
    assert sections(page) == SECTIONS[2:]  # pixels have no curves of their own
    assert "pictures of 3 × 4 pixels" in page and "plot-interactions-data" not in page
    assert section(page, "formula").count("<img") == 2 and section(page, "interactions").count("<img") == 4
    quadratic = mp.fit(network(d=12, o=2), mp.Gaussian.from_samples(x), 2)
    values = [mp.eigenfeatures(quadratic, output=i, k=6, metric="whitened").values for i in range(2)]
    seen = sum(int(np.sum(np.abs(v) > 0.01 * np.abs(v[0]))) for v in values)  # the others are too weak to show
    assert section(page, "features").count("<img") == seen and section(page, "examples").count("<img") > 4
    same = written(tmp_path, network(d=12, o=2), x, np.arange(80) % 2, image_shape=(3, 4))
    without_times = [re.sub(r"[\d.]+\u202fs<", "", text) for text in (page, same)]
    assert without_times[0] == without_times[1]


def test_torch_networks_data_frames_and_integers(tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    frame = pandas.DataFrame((10 * data(60, 3)).astype(int), columns=["age", "bmi", "dose"])
    page = written(tmp_path, module, frame, pandas.Series(np.arange(60) % 2))
    assert ">age<" in page and "MLP(3 -&gt; 6 -&gt; 2, relu)" in page
    assert module[0].weight.grad is None and module[0].weight.requires_grad
    tensors = torch.tensor(frame.to_numpy(), dtype=torch.float32)
    assert ">x0<" in section(written(tmp_path, module, tensors), "importance")


@pytest.mark.parametrize("kind", ["module and frame", "module and tensor", "pipeline and frame", "network and array"])
def test_the_code_on_the_page_runs(tmp_path, kind, capsys):
    torch.manual_seed(0)
    array = data(60, 3)
    module = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    frame = pandas.DataFrame(array, columns=["age", "bmi", "dose"], index=np.arange(60) + 7)
    small = neural.MLPRegressor(hidden_layer_sizes=4, solver="lbfgs", max_iter=5000, alpha=1, random_state=0)
    name, value, x = {
        "module and frame": lambda: ("module", module, frame),
        "module and tensor": lambda: ("module", module, torch.tensor(array, dtype=torch.float32)),
        "pipeline and frame": lambda: (
            "pipeline", pipeline.make_pipeline(StandardScaler(), small).fit(frame, array[:, 0]), frame
        ),
        "network and array": lambda: ("net", network(d=3), array),
    }[kind]()  # fmt: skip
    page = section(written(tmp_path, value, x), "method")
    space = {name: value, "x": x}
    exec(html.unescape(re.search(r"<code>(.*?)</code>", page, re.S)[1]), space)
    assert float(mp.fvu(space["net"], space["poly"])) < 1
    assert ("age" in capsys.readouterr().out) == (x is frame)
    np.testing.assert_allclose(space["rows"], array, rtol=1e-6)  # the tensor is in float32


def test_deep_networks_say_that_they_are_not_exact(tmp_path):
    net, x = chain(sizes=(4, 6, 5, 2)), data(100, 4)
    page = written(tmp_path, net, x)
    assert "Not exact: this network has several hidden layers" in page and "plot-spectrum-data" not in page
    lines = {t["name"]: t["y"] for t in island(page, "plot-error-data")["traces"] if "name" in t}
    polys = [mp.fit(net, mp.Gaussian.from_samples(x), k) for k in (1, 2)]
    assert lines["on the data"] == pytest.approx([float(mp.fvu(net, p, x)) for p in polys])
    first, second = (float(mp.fvu(net, p)) for p in polys)
    assert tile("of the variance is linear", 1 - first) in page
    assert tile("of the variance is quadratic", first - second) in page


@pytest.mark.parametrize(
    ("net", "x", "options"),
    [
        pytest.param(network(d=1, h=5, o=1), data(50, 1), {}, id="one input and one output"),
        pytest.param(network(d=5), np.c_[data(50, 4), np.full(50, 7.0)], {}, id="a constant input"),
        pytest.param(network(d=30), data(20, 30), {}, id="fewer rows than inputs"),
        pytest.param(network(d=5), data(50), {"degree": 1}, id="degree 1"),
        pytest.param(network("GLU", "silu", d=3), data(50, 3), {"degree": 4}, id="gated, degree 4"),
        pytest.param(network(d=3), data(50, 3), {"inputs": mp.Gaussian.standard(3)}, id="other inputs"),
        pytest.param(network(d=3), data(50, 3), {"inputs": mp.Samples(data(50, 3))}, id="samples"),
        pytest.param(network(d=2), data(50, 2), {"inputs": mp.Independent([stats.uniform(-1, 2)] * 2)}, id="box"),
        pytest.param(network(d=3), data(50, 3), {"inputs": of_two(50, 3)}, id="mixture"),
        pytest.param(network(d=40), data(90, 40), {"inputs": of_two(90, 40), "degree": 3}, id="too many monomials"),
        pytest.param(mp.Affine([[1.0, 2.0, 3.0]], [1.0]), data(50, 3), {}, id="linear"),
        pytest.param(network(d=3, o=40), data(50, 3), {"examples": 0}, id="many outputs, no examples"),
    ],
)  # fmt: skip
def test_a_page_for(tmp_path, net, x, options):
    page = written(tmp_path, net, x, **options)
    found = sections(page)
    assert found == [name for name in SECTIONS if name in found]
    assert {"formula", "degrees", "terms", "method", "rerun"} <= set(found)
    assert ">nan" not in page.lower().split("<script>")[0] and "NaN" not in island(page, "plot-error-data")
    inputs = options.get("inputs") or mp.Gaussian.from_samples(x)
    linear = float(mp.fvu(net, mp.fit(net, inputs, 1), x))
    shown = percent(linear if linear > 1e-10 else 0.0, None)
    assert shown in words(section(page, "degrees"))


def test_many_outputs_show_those_of_largest_variance():
    net, x = network(d=3, o=40), data(50, 3)
    fits = fit_degrees(check_subject(net, x), 1, lambda note: None)
    assert len(fits.shown) == 12 and set(fits.shown) == set(np.argsort(net(x).var(axis=0))[-12:].tolist())


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    net, x = network(d=5, h=7, o=3), data()
    folder = tmp_path_factory.mktemp("page")
    labels = np.array(OUTPUTS)[np.arange(len(x)) % 3]
    return mp.report(net, x, labels, names=NAMES, outputs=OUTPUTS, title=NASTY, out=folder / "report.html")


def test_names_stay_text(path):
    page = path.read_text(encoding="utf-8")
    assert_harmless(page)
    assert "<b>" not in page.split("<script>")[0]
    assert path.stat().st_size < 8.5e6


@pytest.fixture
def browser(window, path):
    window.resize(1400, 900)
    window.open(path)
    window.wait("return document.querySelectorAll('.js-plotly-plot').length === 5")
    yield window
    window.assert_calm()


def test_the_pointer_reads_whole_names_in_the_heat_map(browser):
    browser.run("Plotly.Fx.hover(document.querySelector('#plot-interactions .space'), [{xval: 1, yval: 4}], ['xy'])")
    browser.run("document.querySelector('#plot-interactions').scrollIntoView()")
    browser.wait("return document.querySelector('#plot-interactions .hovertext')")
    text = browser.run("return document.querySelector('#plot-interactions .hovertext').textContent")
    assert NASTY in text and NAMES[4].strip() in text and "effect" in text
    ticks = browser.run("return [...document.querySelectorAll('#plot-interactions .ytick')].map(t => t.textContent)")
    assert ticks[0] == "a<b>" and ticks[2] == "$x^2$ & %{y}" and "…" in ticks[4]


def test_buttons_change_outputs_and_units(browser):
    def formulas():
        script = "return [...document.querySelectorAll('.formula')].filter(f => f.offsetParent).map(f => f.textContent)"
        return browser.run(script)

    first = formulas()
    assert len(first) == 1 and "<img src=x" in first[0]
    browser.run('document.querySelector(\'input[name="formula-0"][value="1"]\').click()')
    units = formulas()
    browser.run('document.querySelector(\'input[name="formula-output"][value="1"]\').click()')
    other = formulas()
    assert len(units) == len(other) == 1 and len({*first, *units, *other}) == 3
    z = "return document.querySelector('#plot-interactions .space').data[0].z[0][1]"
    before = browser.run(z)
    browser.run('document.querySelector(\'input[name="plot-interactions-0"][value="2"]\').click()')
    browser.wait(f"{z} !== {before}")
    legend = "return [...document.querySelectorAll('#plot-responses .legendtext')].map(t => t.textContent)"
    assert browser.run(legend) == ["network", "degree 1", "degree 2", "degree 3"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_nothing_sticks_out(browser, width, scheme):
    browser.prefer(prefers_color_scheme=scheme)
    browser.resize(width, 900)
    browser.run(
        "for (const one of document.querySelectorAll('.tiles .value')) one.textContent = '6.08\u00a0×\u00a010⁻⁵\u202f%'"
    )
    values = "[...document.querySelectorAll('.tiles .value')]"
    assert browser.run(f"return {values}.every(one => one.scrollWidth <= one.clientWidth)")
    browser.wait("return document.documentElement.scrollWidth <= innerWidth")
    browser.prefer()
