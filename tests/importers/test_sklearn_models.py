"""Fitted models of scikit-learn in: each network against the model's own predictions in the original units."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectKBest, VarianceThreshold, f_regression
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)
from support.mistakes import assert_explained, mistakes

import mlpoly as mp
from mlpoly.records import replace

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 5)) * [1, 10, 0.1, 3, 2] + [0, 40, 1, -3, 5]
Y = X[:, 0] * X[:, 3] + np.sin(X[:, 1])


def regressor(hidden=(6,), activation="tanh", **options):
    return MLPRegressor(hidden_layer_sizes=hidden, activation=activation, max_iter=30, random_state=0, **options)


def classifier(hidden=(6,), **options):
    return MLPClassifier(hidden_layer_sizes=hidden, max_iter=30, random_state=0, **options)


def fitted(model, x=X, y=Y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x, y)


def assert_same(found, expected):
    expected = expected.reshape(len(found), -1)
    assert found.shape == expected.shape
    assert expected.std() > 1e-3
    assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
@pytest.mark.parametrize(
    ("hidden", "shown"), [((6,), "MLP(5 -> 6 -> "), ((6, 5, 4), "Chain(5 -> 6 -> 5 -> 4 -> "), ((), "Affine(5 -> ")]
)
def test_regressors(hidden, shown, activation):
    for y in (Y, np.stack([Y, X[:, 1]], 1)):
        model = fitted(regressor(hidden, activation), y=y)
        net = mp.from_sklearn(model)
        assert repr(net).startswith(shown) and net.dim_out == y[0].size
        assert net.prototype.dtype == np.float64
        assert_same(net(X), model.predict(X))
    single = fitted(regressor(hidden, activation), X.astype(np.float32), Y.astype(np.float32))
    net = mp.from_sklearn(single)
    assert net.prototype.dtype == np.float64
    np.testing.assert_allclose(net(X)[:, 0], single.predict(X), rtol=1e-10)


def test_logits_of_classifiers():
    two, three = (Y > 0).astype(int), np.digitize(Y, [-3, 3])
    names = np.array(["low", "middle", "high"])[three]
    labels = np.stack([Y > 0, X[:, 1] > 40], 1)
    for y, size, probability in ((two, 1, expit), (three, 3, softmax), (names, 3, softmax), (labels, 2, expit)):
        model = fitted(classifier(), y=y)
        net = mp.from_sklearn(model)
        assert net.dim_out == size
        found = softmax(net(X), axis=1) if probability is softmax else expit(net(X))
        expected = model.predict_proba(X)
        assert_same(found, expected[:, 1] if size == 1 else expected)


STEPS = {
    "standard": StandardScaler(),
    "min max": MinMaxScaler((-1, 2)),
    "robust": RobustScaler(),
    "max abs": MaxAbsScaler(),
    "pca": PCA(3, svd_solver="full"),
    "whitened": PCA(3, whiten=True, svd_solver="full"),
    "svd": TruncatedSVD(3, random_state=0),
    "passthrough": "passthrough",
    "no function": FunctionTransformer(),
    "selection": SelectKBest(f_regression, k=2),
    "variances": VarianceThreshold(0.5),
    "imputer": SimpleImputer(),
    "pipeline": make_pipeline(MinMaxScaler(), PCA(2, svd_solver="full")),
    "columns": ColumnTransformer([
        ("both", make_pipeline(StandardScaler(), PCA(2, svd_solver="full")), [3, 1]),
        ("none", "drop", [0]),
        ("one", MinMaxScaler(), slice(2, 3)),
        ("empty", StandardScaler(), []),
        ("mask", "passthrough", np.array([True, False, False, True, False])),
    ], remainder="passthrough"),
    "weighted columns": ColumnTransformer([
        ("one", StandardScaler(), [3, 1]),
        ("two", PCA(2, svd_solver="full"), [0, 2, 3]),
        ("mask", "passthrough", [False, False, False, True, False]),
    ], remainder=MinMaxScaler(), transformer_weights={"one": 10.0, "two": -0.3, "mask": 0.5, "remainder": 2.0}),
}  # fmt: skip


@pytest.mark.parametrize("steps", [*([name] for name in STEPS), ["standard", "pca"], ["svd", "whitened", "min max"],
                                   ["selection", "robust"], ["pca", "pca"]], ids=str)  # fmt: skip
def test_steps_of_pipelines(steps):
    model = fitted(make_pipeline(*(clone(STEPS[name], safe=False) for name in steps), regressor()))
    net = mp.from_sklearn(model)
    assert repr(net) == "MLP(5 -> 6 -> 1, tanh)"
    assert_same(net(X), model.predict(X))


def test_deep_networks_and_affine_ones_take_steps_too():
    for hidden, shown in (((6, 4), "Chain(5 -> 6 -> 4 -> 1)"), ((), "Affine(5 -> 1)")):
        model = fitted(make_pipeline(StandardScaler(), PCA(4, svd_solver="full"), regressor(hidden)))
        net = mp.from_sklearn(model)
        assert repr(net) == shown
        assert_same(net(X), model.predict(X))


@pytest.mark.parametrize("columns", [["d", "a"], slice("b", "d"), slice("c", None), slice(None, "b"), slice(-2, None),
                                     lambda frame: ["e", "a"]])  # fmt: skip
@pytest.mark.parametrize("remainder", [MinMaxScaler(), "drop"])
def test_columns_of_data_frames(columns, remainder):
    frame = pd.DataFrame(X, columns=list("abcde"))
    chosen = ColumnTransformer([("some", StandardScaler(), columns)], remainder=remainder)
    model = fitted(make_pipeline(chosen, regressor()), x=frame)
    assert_same(mp.from_sklearn(model)(X), model.predict(frame))


SWAPPED = {
    "fit": lambda net, poly, inputs: mp.fit(net, inputs, 2),
    "fvu": lambda net, poly, inputs: mp.fvu(net, poly, inputs),
    "fvu of another network": lambda net, poly, inputs: mp.fvu(replace(net, names=None), poly, inputs),
    "fvu of a nameless polynomial": lambda net, poly, inputs: mp.fvu(net, poly - poly, inputs),
    "similarity": lambda net, poly, inputs: mp.similarity(net, net, inputs),
    "similarity of two": lambda net, poly, inputs: mp.similarity(replace(net, names=None), poly, inputs),
    "sensitivity": lambda net, poly, inputs: mp.sensitivity(net, inputs),
    "sensitivity of a polynomial": lambda net, poly, inputs: mp.sensitivity(poly, inputs),
    "spectrum": lambda net, poly, inputs: mp.degree_spectrum(net, inputs, 2),
    "propagate": lambda net, poly, inputs: mp.propagate(net, inputs),
    "explain": lambda net, poly, inputs: mp.explain(net, X[0], inputs),
}


@pytest.mark.parametrize("act", SWAPPED.values(), ids=SWAPPED)
@pytest.mark.parametrize("hidden", [(6,), (6, 4)], ids=str)
@pytest.mark.parametrize("kind", [mp.Gaussian.from_samples, mp.Samples])
def test_inputs_whose_columns_are_in_another_order_are_refused(kind, hidden, act):
    frame = pd.DataFrame(X, columns=list("abcde"))
    net = mp.from_sklearn(fitted(make_pipeline(StandardScaler(), regressor(hidden)), x=frame))
    assert net.names == net.to(np.zeros(1, np.float32)).names == tuple("abcde")
    poly = mp.fit(net, mp.Gaussian.from_samples(frame), 2)
    try:
        act(net, poly, kind(frame))
    except TypeError:  # some measures take only one hidden layer, or no samples
        return
    act(net, poly, kind(X))
    act(net, poly, kind(frame.set_axis(list("fghij"), axis=1)))
    with pytest.raises(ValueError, match=r"'b' at place 0, but that is input 1 of .*\[list\(.*\.names\)\]"):
        act(net, poly, kind(frame[list("bacde")]))


@pytest.mark.parametrize("hidden", [(6,), (6, 4)], ids=str)
def test_outputs_have_the_names_of_the_classes(hidden, tmp_path):
    words = np.array(["Adelie", "Gentoo", "Chinstrap"])[np.digitize(Y, np.quantile(Y, [0.3, 0.6]))]
    net = mp.from_sklearn(fitted(make_pipeline(StandardScaler(), classifier(hidden)), y=words))
    assert net.output_names == ("Adelie", "Chinstrap", "Gentoo")
    inputs = mp.Gaussian.from_samples(X)
    poly = mp.fit(net, inputs, 2)
    poly.save(tmp_path / "poly")
    for p in (poly, poly.truncate(1), -poly, poly + poly, poly.in_units(2.0), mp.load(tmp_path / "poly")):
        assert p.output_names == net.output_names and p.output("Gentoo").output_names == ("Gentoo",)
    for act in (
        lambda output: poly.terms(output),
        lambda output: poly.output(output).coefficients().linear.tolist(),
        lambda output: poly.to_sympy(output, digits=3),
        lambda output: mp.explain(net, X[0], inputs, output=output),
        lambda output: mp.eigenfeatures(poly, output),
        lambda output: mp.additive(net, inputs).chart(output=output),
    ):
        assert str(act("Gentoo")) == str(act(2)) == str(act(-1)) != str(act("Adelie"))
    assert "terms of Gentoo" in str(poly.terms("Gentoo"))
    assert (np.eye(3) @ poly).output_names is None
    with pytest.raises(ValueError, match="no output 'Emperor'; the outputs are Adelie, Chinstrap, Gentoo"):
        poly.terms("Emperor")
    with pytest.raises(ValueError, match="output_names has 1 entries, but there are 2 outputs"):
        mp.MLP(np.eye(2), output_names=["one"])


def test_the_only_logit_is_that_of_the_second_class():
    model = fitted(classifier(), y=np.where(Y > 0, "benign", "malignant"))
    net = mp.from_sklearn(model)
    assert net.output_names == ("malignant",)
    assert "terms of malignant" in str(mp.fit(net, X, 2).terms())
    assert str(mp.shapley(net, X[0], mp.Gaussian.from_samples(X))).splitlines()[1].split() == ["inputs", "malignant"]
    assert mp.from_sklearn(fitted(classifier(), y=(Y > 0).astype(int))).output_names is None


@pytest.mark.parametrize(
    "scaler", [RobustScaler(), make_pipeline(MaxAbsScaler(), MinMaxScaler((1, 3)), StandardScaler()), None]
)
def test_scaled_targets(scaler):
    for y in (Y, np.stack([10 * Y + 3, X[:, 1]], 1)):
        model = fitted(
            make_pipeline(StandardScaler(), TransformedTargetRegressor(regressor(), transformer=scaler)), y=y
        )
        net = mp.from_sklearn(model)
        assert repr(net).startswith("MLP(5 -> 6 -> ")
        assert_same(net(X), model.predict(X))


@pytest.mark.skipif("loss" not in MLPRegressor().get_params(), reason="this scikit-learn has no poisson loss")
def test_logarithms_of_poisson_regressions():
    model = fitted(regressor(loss="poisson"), x=X / 40, y=np.abs(Y))
    with pytest.warns(UserWarning, match="the logarithms of the predictions"):
        net = mp.from_sklearn(model)
    assert_same(np.exp(net(X / 40)), model.predict(X / 40))


class Squared(StandardScaler):
    """A scaler that does something else."""

    def transform(self, X):
        return super().transform(X) ** 2


class Doubled(MLPRegressor):
    """A network whose predictions are twice its outputs."""

    def predict(self, X):
        return 2 * super().predict(X)


def piped(*steps):
    return lambda: mp.from_sklearn(fitted(make_pipeline(*steps, regressor())))


@mistakes(
    [
        ("unfitted", lambda: mp.from_sklearn(regressor()), ValueError, "MLPRegressor is not fitted", r"fit\(x, y\)"),
        ("unfitted pipeline", lambda: mp.from_sklearn(make_pipeline(StandardScaler(), regressor())), ValueError,
         "not fitted"),
        ("polynomial", piped(StandardScaler(), PolynomialFeatures()), TypeError,
         r"step 'polynomialfeatures' of the pipeline: PolynomialFeatures\(\) is not affine",
         r"from_sklearn\(pipeline\[2:\]\) takes what comes after it, whose inputs are pipeline\[:2\]\.transform\(x\)"),
        ("clipped", piped(MinMaxScaler(clip=True)), TypeError, "not affine with these options"),
        ("zero is missing", piped(SimpleImputer(missing_values=0)), TypeError, "not affine with these options",
         r"; mlpoly\.from_sklearn\(pipeline\[1:\]\) takes what comes after it"),
        ("function", piped(FunctionTransformer(np.arcsinh)), TypeError, "not affine with these options"),
        ("subclass", piped(Squared()), TypeError, "not affine in its inputs"),
        ("subclass of a network", lambda: mp.from_sklearn(fitted(Doubled(max_iter=30))), TypeError,
         "no subclass that predicts in another way; got Doubled"),
        ("columns", piped(ColumnTransformer([("a", PowerTransformer(), [0, 1])])), TypeError,
         "'a' of step 'columntransformer' of the pipeline", r"pipeline\[1:\]"),
        ("inside", piped(make_pipeline(StandardScaler(), PowerTransformer())), TypeError,
         "step 'powertransformer' of step 'pipeline'"),
        ("target", lambda: mp.from_sklearn(fitted(TransformedTargetRegressor(regressor(), func=np.arcsinh,
                                                                             inverse_func=np.sinh))), TypeError,
         "the transformer of the target"),
        ("rotated target", lambda: mp.from_sklearn(fitted(TransformedTargetRegressor(regressor(), transformer=PCA()),
                                                          y=X[:, :2])), TypeError, "mixes targets"),
        ("another model", lambda: mp.from_sklearn(Ridge().fit(X, Y)), TypeError, "got Ridge", "MLP.from_layers"),
        ("not converted", lambda: mp.fit(fitted(regressor()), mp.Gaussian.standard(5)), TypeError, "got MLPRegressor",
         r"convert it first with mlpoly\.from_sklearn\(pipeline\)"),
        ("no model", lambda: mp.from_sklearn(X), TypeError, "got ndarray"),
    ]
)  # fmt: skip
def test_mistakes(act, exception, patterns):
    assert_explained(act, exception, patterns)


def test_the_best_of_a_search_has_a_remedy_that_works():
    search = GridSearchCV(regressor(), {"alpha": [1e-4, 1.0]}, cv=2)
    assert_same(mp.from_sklearn(fitted(search))(X), search.predict(X))


def test_the_remedy_is_code_that_works():
    pipeline = fitted(make_pipeline(StandardScaler(), PolynomialFeatures(), PCA(3), regressor()))
    net = mp.from_sklearn(pipeline[2:])
    assert_same(net(pipeline[:2].transform(X)), pipeline.predict(X))
