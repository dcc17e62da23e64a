"""What a notebook shows of networks, inputs and results: tables with their numbers, and names that stay text."""

from html.parser import HTMLParser

import numpy as np
import pytest
from support.backends import JAX64, TORCH32, backends, make

import mlpoly as mp
from mlpoly.scores.number import FVU, Number

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


class Whole(HTMLParser):
    """Check that every tag is closed, and collect texts and tags."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.text = set(), [], ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + "\n"


def test_everything_shows_itself(rng):
    for name, thing in made(rng).items():
        shown = Whole(thing._repr_html_())
        assert "table" in shown.tags and "script" not in shown.tags, name
        frame = thing.to_pandas()
        assert len(frame) >= 1 and len(frame.columns) >= 2, name
        assert all(len(line) < 250 for line in str(thing).splitlines()), name
        assert "array(" not in str(thing) + repr(thing) + shown.text, name


def test_names_are_shown_as_they_are(rng):
    things = made(rng)
    for name in ("Gaussian", "GaussianMixture", "Samples", "EigenFeatures", "SingularDirections", "Terms"):
        assert "<script>alert(1)</script>" in Whole(things[name]._repr_html_()).text, name
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
    assert "x ~ N(m, I)" in Whole(mp.Gaussian.standard(30)._repr_html_()).text
    assert len(mp.Gaussian.standard(30).to_pandas()) == 30
    assert "and 20 more rows" in mp.Gaussian.standard(30)._repr_html_()


def test_formulas_of_networks(rng):
    formulas = {
        "MLP": "f(x) = W_2 relu(W_1 x + b_1) + b_2",
        "units": "f(x) = relu(W_1 x)",
        "GLU": "f(x) = W_down [silu(W_gate x + b_gate) * (W_up x)] + b_down",
        "Affine": "f(x) = W x",
        "Residual": "f(x) = x + relu(W_1 x)",
        "Chain": "f(x) = f_2(f_1(x))",
        "deep": "f(x) = f_6(... f_2(f_1(x)))",
    }
    things = made(rng)
    for name, formula in formulas.items():
        assert things[name]._table().formula == formula
        assert str(things[name]) == repr(things[name])
    assert things["MLP"].to_pandas()["shape"].tolist() == ["6 x 4", "6", "3 x 6", "3"]
    assert things["Chain"].to_pandas()["numbers"].tolist() == [24 + 6 + 18 + 3, 9]


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


def test_every_number_behaves(rng):
    things = made(rng)
    for name in ("FVU", "FVU on samples", "Estimate"):
        number = things[name]
        value = float(number)
        assert isinstance(number, Number) and isinstance(value, float)
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
        assert Whole(theirs._repr_html_()).tags == Whole(ours._repr_html_()).tags
        for column, values in ours.to_pandas().items():
            if values.dtype.kind == "f":
                size = backend.tolerance * max(np.abs(values).max(), 1.0)
                np.testing.assert_allclose(theirs.to_pandas()[column].astype(float), values, rtol=0, atol=size)


def test_traced_things_keep_their_repr():
    import jax

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
