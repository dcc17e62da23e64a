"""Terms, formulas and explanations; what all forms of polynomials share is in the contract of polynomials."""

import itertools
import tracemalloc

import mpmath
import numpy as np
import pandas as pd
import pytest
import sympy
import torch
from support.backends import assert_close
from support.inputs import gaussian, grid
from support.mistakes import assert_explained, mistakes
from support.networks import chain, network

import mlpoly as mp
from mlpoly.features import monomials
from mlpoly.features.monomials import monomial_spread

FRAME = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)) + 1, columns=["age", "bmi", "blood pressure"])


def fitted(degree=2, names=True, d=3, seed=0, kind="MLP"):
    net = network(kind, "gelu", d, 6, 2, seed=seed)
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((d, d))
    return mp.fit(
        net, mp.Gaussian(rng.standard_normal(d), a @ a.T, names=list("abcdefgh")[:d] if names else None), degree
    )


def test_spreads_far_from_zero_keep_their_digits():
    """Against 60 digits: the variance of x^a is 16 orders of magnitude below its mean square."""
    mean, sd, rho = 1e6, 1e-2, 0.3
    cov = sd**2 * np.array([[1.0, rho], [rho, 1.0]])
    found = monomial_spread(mp.Gaussian(np.array([mean, 2 * mean]), cov), np.zeros(2))((), 2)
    with mpmath.workdps(60):
        a, b, s, c = mpmath.mpf(mean), mpmath.mpf(2 * mean), mpmath.mpf(cov[0, 0]), mpmath.mpf(cov[0, 1])
        # Var(xy) of two Gaussians, and Var(x^2)
        want = mpmath.sqrt(a**2 * s + b**2 * s + 2 * a * b * c + s * s + c**2)
        square = mpmath.sqrt(4 * a**2 * s + 2 * s**2)
    assert found[0, 1] == pytest.approx(float(want), rel=1e-14)
    assert found[0, 0] == pytest.approx(float(square), rel=1e-14)


def test_effects_on_samples_are_those_of_the_data(rng):
    x, weights = rng.normal(size=(50, 3)) + 2, rng.uniform(size=50)
    poly = fitted(4)
    for samples, w in ((mp.Samples(x), np.full(50, 0.02)), (mp.Samples(x, weights), weights / weights.sum())):
        for center in (None, "mean"):
            origin = 0 if center is None else samples.mean
            for term in poly.terms(k=1000, inputs=samples, center=center):
                values = term.coefficient * np.prod((x - origin)[:, list(term.inputs)], axis=1)
                assert abs(term.effect) == pytest.approx(np.sqrt(w @ (values - w @ values) ** 2), rel=1e-10)
                outputs = poly(x)[:, 0]
                assert term.fraction == pytest.approx(term.effect**2 / (w @ (outputs - w @ outputs) ** 2), rel=1e-10)


def test_names_come_from_the_columns_of_a_frame(tmp_path):
    net = network("MLP", "gelu", 3, 6, 2)
    for inputs in (
        mp.Gaussian.from_samples(FRAME),
        mp.Samples(FRAME),
        mp.GaussianMixture.from_labels(FRAME, ["a", "b"] * 100),
        mp.GaussianMixture.from_samples(FRAME, 2),
        mp.Gaussian.from_samples(FRAME.to_numpy(), names=FRAME.columns),
    ):
        assert inputs.names == tuple(FRAME.columns)
        poly = mp.fit(net, inputs, 2)
        for p in (poly, poly.output(1), 2 * poly, poly.in_units(3.0), poly.to(torch.zeros(1))):
            assert p.terms(k=1)[0].name.split("^")[0].split(" \N{MIDDLE DOT} ")[0] in FRAME.columns
        if not isinstance(inputs, mp.Samples):
            poly.save(tmp_path / "p.safetensors")
            assert mp.load(tmp_path / "p.safetensors").inputs.names == tuple(FRAME.columns)
        assert sympy.Symbol("blood pressure") in poly.to_sympy().free_symbols
        assert mp.explain(poly, FRAME.iloc[0].to_numpy()).names == tuple(FRAME.columns)
    assert poly.terms(k=2, names=["u", "v", "w"])[0].name[0] in "uvw"


def test_columns_in_another_order_are_refused():
    net, other = network("MLP", "gelu", 3, 6, 2), FRAME[FRAME.columns[::-1]]
    inputs = mp.Gaussian.from_samples(FRAME)
    poly, given = mp.fit(net, inputs, 2), mp.conditional_mean(net, inputs, ["age", "bmi"])
    for name, code, act in (
        ("x", "inputs.names", lambda: mp.explain(net, other.iloc[0], inputs)),
        ("x", "inputs.names", lambda: mp.explain(poly, other.iloc[0])),
        ("x", "inputs.names", lambda: mp.shapley(net, other.iloc[0], inputs)),
        ("center", "inputs.names", lambda: poly.terms(center=other.mean())),
        ("x", "mean.names", lambda: given(other[["bmi", "age"]])),
    ):
        with pytest.raises(ValueError, match=rf"^{name} has '.*' at place 0, but .* {name}\[list\({code}\)\], or"):
            act()
    for measure in (mp.fvu, mp.kl, mp.compare):
        with pytest.raises(ValueError, match=r"^inputs have '.*' at place 0, but .* x\[list\(poly.names\)\], or"):
            measure(net, poly, other)
    ours = list(poly.inputs.names)
    assert float(mp.fvu(net, poly, other[ours])) == float(mp.fvu(net, poly, FRAME))
    assert mp.explain(poly, other.iloc[0][ours]).polynomial == mp.explain(poly, FRAME.iloc[0]).polynomial


def test_frames_are_data_everywhere():
    net = network("MLP", "gelu", 3, 6, 2)
    poly = mp.fit(net, mp.Samples(FRAME), 2)
    np.testing.assert_array_equal(poly(FRAME), poly(FRAME.to_numpy()))
    assert float(mp.fvu(net, poly, FRAME)) == float(mp.fvu(net, poly, FRAME.to_numpy()))
    np.testing.assert_array_equal(poly(FRAME.iloc[3]), poly(FRAME.to_numpy()[3]))
    assert float(mp.fvu(net, poly, FRAME.rename(columns={"age": "years"}))) < 1  # another name for an input
    assert mp.explain(poly, FRAME.iloc[3]).point.tolist() == FRAME.iloc[3].tolist()
    with pytest.raises(TypeError, match="x holds values that are not numbers, such as 'a'"):
        poly(pd.Series(["a", "b", "c"]))
    with pytest.raises(ValueError, match=r"^there is no output 'class_1'; the outputs have no names"):
        poly.terms(output="class_1")
    with pytest.raises(ValueError, match=r"^output is 5, but"):
        poly.terms(output=5)
    mixed = FRAME.assign(age=FRAME["age"].astype(int), smoker=True)
    assert mp.Samples(mixed).x.dtype == np.float64 and mp.Samples(mixed).names[-1] == "smoker"
    with pytest.raises(TypeError, match=r"columns that are not numbers \(town, job\).*get_dummies"):
        mp.Gaussian.from_samples(FRAME.assign(town="Rome", job="baker"))
    with pytest.raises(TypeError, match=r"columns that are not numbers \(7\)"):  # a name that is no text
        mp.Samples(FRAME.assign(**{"7": "Rome"}).rename(columns={"7": 7}))


def test_tables_and_formulas():
    poly = fitted(2)
    terms = poly.terms(1, k=3)
    assert str(terms) == repr(terms) and "The 3 strongest of 9 terms of output 1" in str(terms)
    one = poly.output(1)  # which is no longer a second output, nor a first one
    assert str(one.terms(k=3)) == str(terms).replace(" of output 1", "")
    x = np.ones(poly.dim_in)
    title = str(mp.explain(poly, x, poly.inputs, output=1)).splitlines()[0]
    assert str(mp.explain(one, x, poly.inputs)).splitlines()[0] == title.replace(" of output 1", "")
    assert list(terms.to_pandas().columns) == ["term", "degree", "coefficient", "effect", "fraction of variance"]
    assert terms.to_pandas()["effect"].tolist() == [t.effect for t in terms]
    assert terms[0].name in terms._repr_html_()
    centred = network("MLP", "gelu", 3, 6, 2).preceded_by(mp.Affine(np.eye(3), np.full(3, -30.0)))
    far = mp.fit(centred, mp.Gaussian(np.full(3, 30.0)), 2)
    assert "center='mean'" in str(far.terms()) and "center='mean'" not in str(far.terms(center="mean"))
    square = mp.MLP(np.array([[1.0, 2.0]]), None, np.ones((1, 1)), np.ones(1), "square")
    whole = mp.fit(square, mp.Gaussian.standard(2), 2)
    assert str(1.0 * whole.truncate(2)).startswith("p = 1 ")
    assert str(fitted(1, names=False)).count("\n") == 1 and "x2" in str(fitted(1, names=False))
    assert str(fitted(4, d=6)) == repr(fitted(4, d=6))
    written = mp.polynomials.DensePolynomial(np.zeros(1), np.ones(1), np.array([[-0.5]]), np.array([[[2e-7]]]))
    assert str(written).replace("\N{MINUS SIGN}", "-") == "p = 1 - 0.5 x0 + 2e-07 x0^2"


def test_interactions_are_the_products_among_the_terms():
    for degree in (1, 2, 3, 4):
        poly = fitted(degree, d=3)
        every = [term for term in poly.terms(k=100) if len(set(term.inputs)) > 1]
        found = poly.terms(k=100, interactions=True)
        assert list(found) == every and found.total == len(every)
        assert f"of {len(every)} interactions" in str(found)


def test_in_units_commutes_with_scaling_the_data(rng):
    """Fitting a network on standardised data and undoing the scaler is fitting the scaled network on the data."""
    x = rng.normal(size=(300, 4)) @ rng.normal(size=(4, 4)) * [1, 20, 0.1, 5] + [3, -200, 0.5, 0]
    scale, shift = x.std(axis=0), x.mean(axis=0)
    labels = rng.integers(2, size=300)
    for kind in ("MLP", "GLU"):
        net = network(kind, "gelu", 4, 8, 2)
        raw = net.preceded_by(mp.Affine(np.diag(1 / scale), -shift / scale))
        for make in (mp.Gaussian.from_samples, lambda data: mp.GaussianMixture.from_labels(data, labels), mp.Samples):
            for degree in (1, 2, 3):
                there = mp.fit(net, make((x - shift) / scale), degree).in_units(scale, shift)
                here = mp.fit(raw, make(x), degree)
                size = np.abs(here(x)).max()
                np.testing.assert_allclose(there(x), here(x), atol=1e-12 * size)


def test_explain_compares_with_the_network(rng):
    net, g = network("GLU", "silu", 3, 6, 2), mp.Gaussian.from_samples(FRAME)
    x0 = rng.normal(size=3)
    for degree in (1, 2, 3, 4):
        found = mp.explain(net, x0, g, output=1, degree=degree, k=3)
        assert found.network == pytest.approx(net(x0)[1], rel=1e-14)
        assert found.polynomial == pytest.approx(mp.fit(net, g, degree)(x0)[1], rel=1e-12)
        assert abs(found.parts.sum() - found.polynomial) <= 1e-12 * np.abs(found.parts).max()
        assert found.parts[1:].sum() == pytest.approx(sum(t.amount for t in found.terms) + found.other_terms)
        few = mp.explain(net, x0, g, output=1, degree=degree, k=1)
        assert (str(few).count("all others") == 2) == (degree > 1)
        if degree > 1:
            assert few.parts[2] == pytest.approx(few.features[0].amount + few.other_features)
            assert str(found).count("all others") == 1  # where all features are listed, only terms have others
        assert len(found.features) == (3 if degree > 1 else 0) and found.part_names[1] == "linear"
    difference = mp.explain(net, x0, g, output=np.array([1.0, -1.0]))
    assert difference.network == pytest.approx(net(x0)[0] - net(x0)[1]) and difference.output is None
    assert "polynomial" in str(found) and "age" in found._repr_html_()
    torch_net = mp.MLP(*(torch.randn(*s) for s in ((4, 3), (4,), (1, 4), (1,))), activation="relu")
    found = mp.explain(torch_net, torch.ones(3), mp.Gaussian.standard(3))
    assert found.network == pytest.approx(float(torch_net(torch.ones(3))[0]), rel=1e-6)
    deep = mp.Chain([network("MLP", "gelu", 3, 5, 4), network("MLP", "gelu", 4, 5, 1)])
    assert mp.explain(deep, x0, g).parts.shape == (3,)


def test_features_of_an_explanation_say_what_was_squared():
    """x0^2 - 3 x1^2 under unequal variances: two features along the axes."""
    net = mp.MLP(np.eye(2), None, np.array([[1.0, -3.0]]), None, "square")
    g = mp.Gaussian(np.zeros(2), np.array([4.0, 1.0]))
    first, second = sorted(mp.explain(net, np.array([1.0, 2.0]), g).features, key=lambda f: -abs(f.eigenvalue))
    assert (first.eigenvalue, first.amount) == (pytest.approx(4.0), pytest.approx(1.0))
    assert (second.eigenvalue, second.amount) == (pytest.approx(-3.0), pytest.approx(-12.0))
    np.testing.assert_allclose(np.abs(first.pattern), [2.0, 0.0], atol=1e-12)


def test_a_singular_covariance_has_features_of_its_own_space(rng):
    """Where the inputs vary in a plane, features see the part of a point in that plane."""
    base = rng.normal(size=(2, 4))
    g = mp.Gaussian(np.zeros(4), base.T @ base)
    net = network("MLP", "gelu", 4, 6, 1)
    x0 = np.array([1.0, -2.0]) @ base
    found = mp.explain(net, x0, g)
    assert sum(f.amount for f in found.features) == pytest.approx(found.parts[2], rel=1e-8)
    np.testing.assert_allclose(g.inverse_root, np.linalg.pinv(g.root, rcond=1e-6), atol=1e-8)
    assert g.inverse_root is g.inverse_root  # computed once
    np.testing.assert_allclose(mp.Gaussian(np.zeros(2), np.array([4.0, 0.0])).inverse_root, [0.5, 0.0])


POLY = fitted(2)
BARE = mp.fit(network("MLP", "gelu", 3, 6, 2), mp.Gaussian.standard(3), 2)
UNKNOWN = BARE + fitted(2)  # fitted under different inputs


@mistakes(
    [
        ("names", lambda: POLY.terms(names=["a"]), ValueError, "names has 1 entries, but there are 3 inputs"),
        ("equal names", lambda: POLY.terms(names=["a", "b", "a"]), ValueError, "names has 'a' more than once"),
        ("a text", lambda: POLY.to_sympy(names="abc"), TypeError, "names is the text 'abc'"),
        ("names of inputs", lambda: mp.Gaussian(np.zeros(2), names=["a"]), ValueError, "names has 1 entries"),
        ("names of samples", lambda: mp.Samples(np.zeros((2, 2)), names="a"), TypeError, "names is the text"),
        ("output", lambda: POLY.terms(2), ValueError, "there are 2 outputs, numbered from 0 to 1"),
        ("center", lambda: POLY.terms(center="median"), ValueError, "center must be an array"),
        ("long center", lambda: POLY.terms(center=np.zeros(4)), ValueError, r"center has shape \(4,\)"),
        ("no inputs", lambda: UNKNOWN.terms(), ValueError, "does not know what it was fitted under; pass inputs="),
        ("other inputs", lambda: POLY.terms(inputs=mp.Gaussian.standard(2)), ValueError, "inputs have dimension 2"),
        ("data", lambda: POLY.terms(inputs="x"), TypeError, "inputs must be a Gaussian"),
        ("zero scale", lambda: POLY.in_units(np.array([1.0, 0.0, 1.0])), ValueError, "scale has a zero"),
        ("scale", lambda: POLY.in_units(np.ones(2)), ValueError, r"scale has shape \(2,\)"),
        ("shift", lambda: POLY.in_units(1.0, np.full(3, np.nan)), ValueError, "shift holds 3 NaN"),
        ("explain without inputs", lambda: mp.explain(UNKNOWN, np.zeros(3)), ValueError, "pass inputs="),
        ("a network", lambda: mp.explain(network("MLP"), np.zeros(3)), ValueError, "a network needs them"),
        ("a point", lambda: mp.explain(POLY, np.zeros((1, 3))), ValueError, r"x has shape \(1, 3\)"),
        ("infinity", lambda: mp.explain(POLY, np.full(3, np.inf)), ValueError, "x holds 3 NaN or infinite"),
        ("a function", lambda: mp.explain(np.sum, np.zeros(3)), TypeError, "MLP, GLU, Affine"),
    ]
)
def test_mistakes(act, exception, patterns):
    assert_explained(act, exception, patterns)


def test_too_many_monomials_name_a_remedy():
    net = network("MLP", "gelu", 300, 4, 1)
    poly = mp.fit(net, mp.Gaussian.standard(300), 5)
    with pytest.raises(mp.TooLargeError, match=r"monomials.*terms\(degree=2\)"):
        poly.terms()
    with pytest.raises(mp.TooLargeError, match=r"monomials.*terms"):
        poly.truncate(3).to_sympy()
    assert "RidgePolynomial" in str(poly)
    composed = mp.fit(
        mp.Chain([network("MLP", "gelu", 2, 3, 2), network("MLP", "gelu", 2, 3, 1)]),
        mp.Gaussian.standard(2),
        5,
        method="composed",
    )
    with pytest.raises(ValueError, match=r"degree 25.*explain one of at most 12"):
        mp.explain(composed, np.zeros(2))


def test_terms_of_many_independent_inputs_need_no_matrix():
    """Of 20 000 inputs a matrix has 3.2 GB, and there are too many products of two to look at."""
    d, rng = 20_000, np.random.default_rng(0)
    inputs = mp.Gaussian(np.zeros(d), rng.uniform(0.5, 2, d))
    net = mp.MLP(rng.standard_normal((3, d)) / d**0.5, None, np.ones((1, 3)), None, "gelu")
    poly = mp.fit(net, inputs, 2)
    tracemalloc.start()
    terms = poly.truncate(1).terms(k=2)
    with pytest.raises(mp.TooLargeError, match=r"200030000 monomials, .*terms\(degree=1\)"):
        poly.terms()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * 8 * d
    effects = poly.truncate(1).coefficients().linear[0] * np.sqrt(inputs.cov)
    assert [t.inputs[0] for t in terms] == np.argsort(-np.abs(effects))[:2].tolist()
    assert [t.effect for t in terms] == pytest.approx(effects[[t.inputs[0] for t in terms]], rel=1e-12)


def test_fractions_of_a_composed_polynomial_state_their_sampling_error():
    """Its variance is from samples of the inputs: within four standard errors of that on an exact grid."""
    rng = np.random.default_rng(1)
    layer = mp.MLP(rng.standard_normal((4, 2)), rng.standard_normal(4), activation="gelu")
    net = mp.Chain([layer, mp.MLP(rng.standard_normal((3, 4)), None, rng.standard_normal((1, 3)), None, "gelu")])
    inputs = mp.Gaussian(rng.standard_normal(2), np.diag([0.5, 2.0]))
    poly = mp.fit(net, inputs, 2, method="composed")
    terms = poly.terms()
    x, w = grid(inputs, 10)  # exact for the square of a polynomial of degree 4
    values = poly(x)[:, 0]
    exact = w @ (values - w @ values) ** 2
    error = terms.sampling_error
    assert 0.001 < error < 0.1
    assert abs(terms[0].effect ** 2 / terms[0].fraction / exact - 1) < 4 * error
    assert f"from samples of the inputs, with a standard error of {error:.1%}" in str(terms)
    single = mp.fit(layer, inputs, 2).terms()
    assert single.sampling_error == 0 and "standard error" not in str(single)
    assert poly.terms(inputs=mp.Samples(inputs.sample(500))).sampling_error == 0


@pytest.mark.parametrize("degree", [3, 6])
def test_spreads_from_a_table_of_moments(degree, monkeypatch):
    """Against the recursion over factors at degree 3, and Gauss-Hermite at degree 6, about two centers."""
    g = gaussian(2, 2, ridge=0.2)
    x, w = np.polynomial.hermite_e.hermegauss(8)
    grid = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2) @ np.linalg.cholesky(g.cov).T + g.mean
    weights = np.outer(w, w).ravel() / w.sum() ** 2
    monkeypatch.setattr(monomials, "_RECURSIVE", 2)
    for center in (np.zeros(2), g.mean):
        spread, y = monomials.monomial_spread(g, center), grid - center
        for lead in itertools.combinations_with_replacement(range(2), degree - 2):
            values = np.prod(y[:, list(lead)], axis=1)[:, None, None] * y[:, :, None] * y[:, None, :]
            mean = np.tensordot(weights, values, axes=1)
            assert_close(spread(lead, degree), np.sqrt(np.tensordot(weights, (values - mean) ** 2, axes=1)), 1e-11)


def test_terms_of_composed_polynomials_up_to_a_degree():
    """Degree 27 in nine inputs has 94 million monomials: those up to 3 are the first of all, as of a smaller one."""
    net, g = chain("tanh", (9, 8, 6, 5, 1)), mp.Gaussian.standard(9)
    poly = mp.fit(net, g, 3, method="composed")
    found = poly.terms(k=5, degree=2)
    quadratic = poly.coefficients().quadratic[0]
    for term in found:
        if term.degree == 2:
            i, j = term.inputs
            assert term.coefficient == pytest.approx(quadratic[i, j] * (1 if i == j else 2), rel=1e-9)
    assert "Terms up to degree 2, of 27." in str(found) and found.total == 54
    small = mp.fit(chain("tanh", (3, 4, 4, 1)), mp.Gaussian.standard(3), 3, method="composed")
    whole = small.terms(k=219)
    assert whole.total == 219 and max(term.degree for term in whole) == 9
    kept = [term.name for term in whole if term.degree <= 4]
    assert [term.name for term in small.terms(k=34, degree=4)] == kept
    x = np.random.default_rng(0).standard_normal((6, 3))
    values = whole.constant + sum(t.coefficient * np.prod(x[:, list(t.inputs)], axis=1) for t in whole)
    assert_close(values, small(x)[:, 0], 1e-9)
