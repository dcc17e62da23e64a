"""What a notebook shows of networks, inputs and results: tables with their numbers, and names that stay text."""

import math
from html.parser import HTMLParser

import jax
import numpy as np
import pandas
import pytest
from support.backends import JAX64, TORCH32, backends, make

import mlpoly as mp
from mlpoly.scores.number import FVU
from mlpoly.tables import Table

NAMES = ("age", "<script>alert(1)</script>", "x_1 & $y$", "d")


def made(rng):
    """One of each thing that a user may have as the last line of a cell."""
    W1, b1, W2, b2 = rng.normal(size=(6, 4)), rng.normal(size=6), rng.normal(size=(3, 6)), rng.normal(size=3)
    net, inputs = mp.MLP(W1, b1, W2, b2, "relu"), mp.Gaussian(np.arange(4.0), np.arange(1.0, 5), names=NAMES)
    poly, x = mp.fit(net, inputs, 3), inputs.sample(100)
    mixture = mp.GaussianMixture(np.array([0.5, 0.5]), np.stack([np.zeros(4), np.ones(4)]), names=NAMES)
    chain, deep = mp.Chain([net, mp.MLP(np.eye(3))]), mp.Chain([mp.MLP(np.eye(4))] * 6)
    behind, compared = mp.propagate(chain, inputs), mp.compare(net, poly, x, np.zeros(100, dtype=int))
    return {
        "MLP": net,
        "units": mp.MLP(W1),
        "GLU": mp.GLU(W1, b1, W1, None, W2, b2, "silu"),
        "Affine": mp.Affine(W1),
        "Residual": mp.Residual(mp.MLP(np.eye(4))),
        "Chain": chain,
        "deep": deep,
        "Gaussian": inputs,
        "standard": mp.Gaussian.standard(12),
        "full": mp.Gaussian(np.zeros(2), np.eye(2)),
        "GaussianMixture": mixture,
        "Samples": mp.Samples(x, names=NAMES),
        "FVU": mp.fvu(net, poly),
        "FVU on samples": compared.fvu,
        "Estimate": compared.kl,
        "Comparison": compared,
        "DegreeSpectrum": mp.degree_spectrum(net, inputs),
        "spectrum of a mixture": mp.degree_spectrum(net, mixture),
        "SecondMoment": mp.second_moment(net, inputs),
        "EigenFeatures": mp.eigenfeatures(poly, output=0),
        "SingularDirections": mp.singular_directions(poly),
        "Propagation": behind,
        "LayerMoments": behind[0],
        "report under a mixture": mp.fit(net, mixture, 2).report,
        "report on samples": mp.fit(net, mp.Samples(x), 2).report,
        "report of a deep fit": mp.fit(chain, inputs, 2).report,
        "report of a deep fit under a mixture": mp.fit(chain, mixture, 1).report,
        "Terms": poly.terms(k=40),
        "Explanation": mp.explain(net, x[0], inputs),
    }


class Shown(HTMLParser):
    """Tags, all of them closed, texts, and the texts of cells by row."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.rows, self.text = set(), [], [], ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + "\n"
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_everything_shows_itself(rng):
    for name, thing in made(rng).items():
        shown = Shown(thing._repr_html_())
        assert "table" in shown.tags and "script" not in shown.tags, name
        frame = thing.to_pandas()
        assert len(frame) >= 1 and len(frame.columns) >= 2, name
        assert all(len(line) < 250 for line in str(thing).splitlines()), name
        assert "array(" not in str(thing) + repr(thing) + shown.text, name


def test_names_are_shown_as_they_are(rng):
    things = made(rng)
    for name in ("Gaussian", "GaussianMixture", "Samples", "EigenFeatures", "SingularDirections", "Terms"):
        assert "<script>alert(1)</script>" in Shown(things[name]._repr_html_()).text, name
        assert "<script>" not in things[name]._repr_html_(), name
    assert things["Gaussian"].to_pandas()["input"].tolist() == list(NAMES)


def test_inputs(rng):
    x = rng.normal(size=(50, 3)) * [1.0, 2.0, 0.0] + 5
    weights = rng.uniform(size=50)
    classes = np.arange(50) % 2
    for inputs in (
        mp.Gaussian.from_samples(x),
        mp.GaussianMixture.from_labels(x, classes),
        mp.Samples(x),
        mp.Samples(x, weights),
        mp.Gaussian(np.ones(3), np.arange(1.0, 4)),
        mp.Gaussian.standard(3),
    ):
        frame = inputs.to_pandas()
        np.testing.assert_allclose(frame["mean"], inputs.mean, atol=1e-12)
        np.testing.assert_allclose(frame["standard deviation"] ** 2, np.diagonal(inputs.covariance), atol=1e-12)
        assert str(inputs) == repr(inputs)  # one line in messages
    assert len(mp.Gaussian.standard(30).to_pandas()) == 30
    assert "and 20 more rows" in mp.Gaussian.standard(30)._repr_html_()


def test_numbers_of_results(rng):
    things = made(rng)
    spectrum = things["spectrum of a mixture"]
    frame = spectrum.to_pandas()
    assert frame["fraction"].sum() == pytest.approx(1) and frame["degree"].iloc[-1] == "between components"
    np.testing.assert_allclose(frame["fraction"][:8], spectrum.overall)
    fvu = things["FVU"]
    np.testing.assert_allclose(fvu.to_pandas().iloc[:, 1], [float(fvu), *fvu.per_output])
    compared = things["Comparison"]
    head, _, *lines = str(compared).splitlines()
    assert head.split() == ["measure", "value", "standard", "error"]
    assert [line.split()[0] for line in lines] == ["fvu", "kl", "agreement", "accuracy", "network_accuracy"]
    assert float(lines[1].split()[1]) == pytest.approx(float(compared.kl), rel=1e-3)
    moments = things["SecondMoment"]
    np.testing.assert_allclose(moments.to_pandas()["standard deviation"] ** 2, np.diagonal(moments.cov))
    np.testing.assert_allclose(things["EigenFeatures"].to_pandas()["eigenvalue"], things["EigenFeatures"].values)
    assert "+- " in str(things["FVU on samples"]) and str(things["Estimate"]) == repr(things["Estimate"])


def test_numbers_compare_and_format_like_floats(rng):
    things = made(rng)
    for number in (things["FVU"], things["FVU on samples"], things["Estimate"]):
        value = float(number)
        assert f"{number:.3f}" == f"{value:.3f}" and f"{number}" == repr(number)
        assert number < value + 1 and number <= value and number > value - 1 and number >= value
        assert not number < number and number <= number and value + 1 > number


@backends(TORCH32, slow=(JAX64,))
def test_other_libraries_show_the_same(rng, backend):
    W1, W2 = (rng.normal(size=s) for s in ((5, 3), (2, 5)))

    def table(put):
        net, inputs = mp.MLP(put(W1), None, put(W2)), mp.Gaussian(put(np.zeros(3)), put(np.arange(1.0, 4)))
        poly = mp.fit(net, inputs, 2)
        return [net, inputs, mp.fvu(net, poly), mp.eigenfeatures(poly, output=0), mp.degree_spectrum(net, inputs, 3)]

    for ours, theirs in zip(table(np.asarray), table(lambda a: make(a, backend)), strict=True):
        assert Shown(theirs._repr_html_()).tags == Shown(ours._repr_html_()).tags
        for column, values in ours.to_pandas().items():
            if values.dtype.kind == "f":
                size = backend.tolerance * max(np.abs(values).max(), 1.0)
                np.testing.assert_allclose(theirs.to_pandas()[column].astype(float), values, rtol=0, atol=size)


def test_traced_things_keep_their_repr():
    seen = []

    def look(W):
        net = mp.MLP(W)
        inputs = mp.Gaussian(W[0])
        number = FVU(W[0, 0], W[0], W[0, 0])
        seen.extend((str(thing), thing._repr_html_()) for thing in (net, inputs, number))
        return W

    jax.jit(look)(np.eye(2))
    assert [html for _, html in seen] == [None] * 3
    assert [text.split("(")[0] for text, *_ in seen] == ["MLP", "Gaussian", "FVU"]


NASTY = "<script>alert('a & b')</script> 50% {x}_1^2 $y$ #~|\\"
TABLE = Table(
    ("name", "value", "count"),
    (("first", -0.000123456, 3), ("a long name", 1234567.0, None), (NASTY, math.nan, np.int64(7))),
    "Title & more",
    note="a note",
)


def test_html_is_escaped_and_whole():
    html = TABLE.html()
    found = Shown(html)
    assert found.tags == {"div", "strong", "table", "thead", "tbody", "tr", "th", "td", "small"}
    assert found.rows[0] == list(TABLE.columns)
    assert found.rows[1] == ["first", "−0.0001235", "3"]
    assert found.rows[3][0] == NASTY
    assert "Title &amp; more" in html
    assert "color" not in html  # the notebook's own, light or dark
    assert "mathjax_ignore" in html  # a dollar in a name begins no formula


def test_dataframe_has_all_rows():
    short = Table(("a", "b"), tuple((i, i / 3) for i in range(30)), limit=4)
    assert str(short).splitlines()[-1] == "... and 26 more rows" and len(str(short).splitlines()) == 7
    assert len(Shown(short.html()).rows) == 5
    frame = short.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame.columns) == ["a", "b"]
    np.testing.assert_array_equal(frame["b"], np.arange(30) / 3)
