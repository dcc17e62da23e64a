"""Tables with categories: networks of pipelines with encoders against the predictions of the pipelines."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from support.backends import assert_close

import mlpoly as mp
from mlpoly.importers import encoding
from mlpoly.pages.network.subject import check_subject
from mlpoly.sklearn import MissingValues

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": RNG.normal(50, 10, 120),
        "color": RNG.choice(["red", "green", "blue"], 120),
        "weight": RNG.normal(70, 8, 120),
        "size": RNG.choice(["S", "M", "L"], 120),
        "town": RNG.choice(["A", "B"], 120),
        "note": ["text"] * 120,
    }
)
Y = TABLE["age"] / 10 + (TABLE["color"] == "red") * TABLE["weight"] / 20
NUMBERS = make_pipeline(SimpleImputer(), StandardScaler(), PCA(2))
SIZES = OrdinalEncoder(categories=[["S", "M", "L"]])
KNOWN = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
COLUMNS = {
    "all kinds": make_column_transformer(
        (NUMBERS, ["weight", "age"]), (KNOWN, ["color"]), (make_pipeline(SIZES, StandardScaler()), ["size"])
    ),
    "dropped categories": make_column_transformer(
        (OneHotEncoder(drop="first"), ["town", "color"]), ("passthrough", ["age"])
    ),
    "rare categories": make_column_transformer((OneHotEncoder(max_categories=2), ["color"]), ("passthrough", ["age"])),
    "scaled categories": ColumnTransformer(
        [("c", make_pipeline(OneHotEncoder(sparse_output=False), StandardScaler()), ["color"]), ("a", "drop", ["age"])],
        transformer_weights={"c": 2.0},
    ),
}


def fitted(columns, start=MLPRegressor, y=Y):
    return make_pipeline(columns, start(hidden_layer_sizes=6, max_iter=40, random_state=0)).fit(TABLE, y)


@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
def test_predictions(columns):
    model = fitted(columns)
    net, coded = mp.from_sklearn(model), encoding(model)
    assert net.names == coded.names
    assert_close(net(coded(TABLE))[:, 0], model.predict(TABLE), 1e-12)
    assert [name for group in coded.groups.values() for name in group] == list(coded.names)


def test_names_groups_and_gaps():
    """Names say category and column; a missing category is what the imputer takes it for, a missing number a gap."""
    coded = encoding(fitted(COLUMNS["all kinds"]))
    assert coded.names == ("age", "color=blue", "color=green", "color=red", "weight", "size")
    assert coded.groups["color"] == ("color=blue", "color=green", "color=red")
    rows = TABLE.head(3).copy()
    rows.loc[0, "color"], rows.loc[1, "color"], rows.loc[2, "age"] = np.nan, "violet", np.nan
    found = coded(rows)
    assert found.iloc[0, 1:4].sum() == 1 and found.iloc[1, 1:4].sum() == 0 and np.isnan(found.loc[2, "age"])
    classes = fitted(COLUMNS["all kinds"], MLPClassifier, TABLE["town"])
    logits = mp.from_sklearn(classes)(encoding(classes)(TABLE))
    assert_close(1 / (1 + np.exp(-logits[:, 0])), classes.predict_proba(TABLE)[:, 1], 1e-12)


def test_measures_by_column():
    """Groups go straight to sensitivity and shapley; the inputs are a Gaussian for each combination of categories."""
    model = fitted(COLUMNS["rare categories"])
    net, coded = mp.from_sklearn(model), encoding(model)
    mix = coded.inputs(TABLE)
    assert isinstance(mix, mp.GaussianMixture) and len(mix.components) == 2
    assert_close(mix.mean, coded(TABLE).to_numpy().mean(axis=0), 1e-12)
    found = mp.sensitivity(net, mix, groups=coded.groups)
    assert found.groups == ("age", "color") and abs(found.shapley.sum() - 1) < 1e-6
    values = mp.shapley(net, coded(TABLE).iloc[0], mix, groups=coded.groups)
    assert_close(values.values.sum(axis=0), values.prediction - values.mean, 1e-10)
    wide = encoding(fitted(COLUMNS["all kinds"]))
    assert isinstance(wide.inputs(TABLE), (mp.Samples, mp.GaussianMixture))
    assert isinstance(wide.inputs(TABLE.head(20)), mp.Samples)


def test_pages(tmp_path):
    """From a table with categories to a page, on the rows."""
    page = mp.report(fitted(COLUMNS["all kinds"]), TABLE, Y, out=tmp_path / "page.html").read_text(encoding="utf-8")
    assert "color=red" in page and "on the rows of data" in page and "encoding(pipeline)(x)" in page
    lead = page.partition('<p class="lead">')[2].partition("</p>")[0]
    assert "color=" in lead and not re.search("up and down with [^,;.]*color=", lead)  # between two values
    assert lead.partition("above all those of")[2].count("color=") < 2  # two colors never occur together
    holes = TABLE.assign(age=TABLE["age"].where(TABLE["age"] > TABLE["age"].min()))
    model = fitted(COLUMNS["rare categories"])
    with pytest.raises(ValueError, match=r"1 of .* rows with NaN .* whole = x.notna\(\).all\(axis=1\)"):
        mp.report(model, holes, Y, out=tmp_path / "page.html")
    with pytest.raises(TypeError, match="has encoders of categories"):
        MissingValues(model).fit(holes)


def test_one_gaussian_warns():
    """Of 0 and 1 it knows the mean and the variance, and nothing else."""
    model = fitted(COLUMNS["rare categories"])
    with pytest.warns(mp.DataWarning, match="between the categories"):
        check_subject(model, TABLE, inputs=mp.Gaussian.from_samples(encoding(model)(TABLE)))


def test_mistakes():
    with pytest.raises(TypeError, match="takes numbers"):
        encoding(make_pipeline(StandardScaler(), MLPRegressor(max_iter=5)).fit(TABLE[["age"]], Y))
    both = make_column_transformer((OneHotEncoder(), ["town"]), (OrdinalEncoder(), ["town"]), ("passthrough", ["age"]))
    with pytest.raises(TypeError, match=r"town.*give it to one"):
        mp.from_sklearn(fitted(both))
