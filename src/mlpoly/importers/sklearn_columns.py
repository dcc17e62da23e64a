"""Columns of a table with categories as numbers: what the encoders of a ColumnTransformer make of them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from mlpoly.inputs import GaussianMixture, Inputs, Samples

_COMBINATIONS = 64  # of categories that a mixture may have as components


@dataclass(frozen=True)
class Encoding:
    """The inputs of a network that `mp.from_sklearn` made of a pipeline with encoders of categories.

    Called with rows of the original table, it returns a data frame of numbers: columns without an encoder as they are,
    a column with a OneHotEncoder as one of 0 and 1 for each category, "color=red", and one with an OrdinalEncoder as
    the number of its category.

    Attributes
    ----------
    names : tuple of str
        The inputs.
    groups : dict of str to tuple of str
        Inputs of every column of the table, for `groups` of `sensitivity` and `shapley`.

    Examples
    --------
    >>> import pandas, mlpoly as mp
    >>> from mlpoly.importers import encoding
    >>> from sklearn.compose import make_column_transformer
    >>> from sklearn.neural_network import MLPRegressor
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import OneHotEncoder, StandardScaler
    >>> table = pandas.DataFrame({"color": ["red", "blue", "red", "blue"], "size": [1.0, 2.0, 3.0, 4.0]})
    >>> columns = make_column_transformer((OneHotEncoder(), ["color"]), (StandardScaler(), ["size"]))
    >>> model = make_pipeline(columns, MLPRegressor(max_iter=5000)).fit(table, [1.0, 2.0, 1.0, 3.0])
    >>> encoding(model).names
    ('color=blue', 'color=red', 'size')
    >>> bool(abs(mp.from_sklearn(model)(encoding(model)(table))[:, 0] - model.predict(table)).max() < 1e-12)
    True
    """

    names: tuple[str, ...]
    groups: dict[str, tuple[str, ...]]
    step: Any = field(repr=False)
    places: dict[int, tuple[int, ...]] = field(repr=False)  # inputs of every column that is used
    coded: tuple[tuple[tuple[int, ...], tuple[Any, ...]], ...] = field(repr=False)  # columns and their encoders

    def __call__(self, x: Any) -> Any:
        """Numbers for rows of the table, a data frame with these `names`; other gaps than of categories stay NaN."""
        import pandas

        frame = pandas.DataFrame(x)
        out, done = np.full((len(frame), len(self.names)), np.nan), set[int]()
        for columns, encoders in self.coded:
            part: Any = frame.iloc[:, list(columns)]
            for encoder in encoders:
                part = encoder.transform(part)
            dense = part.toarray() if hasattr(part, "toarray") else np.asarray(part, dtype=float)
            out[:, [place for column in columns for place in self.places[column]]] = dense
            done |= set(columns)
        for column, places in self.places.items():
            if column not in done:
                out[:, places[0]] = np.asarray(frame.iloc[:, column], dtype=float)
        return pandas.DataFrame(out, columns=list(self.names), index=frame.index)

    def inputs(self, x: Any) -> Inputs:
        """A distribution of the inputs for rows of the table: one Gaussian for each combination of categories.

        Where a combination has fewer rows than there are inputs, or there are more than 64 of them, the rows
        themselves. One Gaussian for all rows would put most of its mass between the categories.
        """
        rows = self(x)
        categories = [name for columns, _ in self.coded for c in columns for name in self.at(c)]
        labels = rows.groupby(categories, sort=True).ngroup().to_numpy()
        counts = np.bincount(labels)
        if len(counts) > _COMBINATIONS or counts.min() <= len(self.names):
            return Samples(rows)
        return GaussianMixture.from_labels(rows, labels)

    def at(self, column: int) -> tuple[str, ...]:
        """Names of the inputs of a column."""
        return tuple(self.names[place] for place in self.places[column])


def encoding(estimator: Any) -> Encoding:
    """Return the `Encoding` of a fitted pipeline that begins with a ColumnTransformer with encoders."""
    found = encoding_of(first_step(estimator))
    if found is None:
        raise TypeError("the estimator has no ColumnTransformer with encoders as its first step; it takes numbers.")
    return found


def first_step(estimator: Any) -> Any:
    """What an estimator does first to rows."""
    if isinstance(estimator, BaseSearchCV):
        return first_step(getattr(estimator, "best_estimator_", None))
    if isinstance(estimator, TransformedTargetRegressor):
        return first_step(getattr(estimator, "regressor_", None))
    return first_step(estimator.steps[0][1]) if isinstance(estimator, Pipeline) else estimator


def parted(part: Any) -> tuple[tuple[Any, ...], Any]:
    """The encoders at the beginning of a transformer, with what comes before them, and the rest."""
    if isinstance(part, OneHotEncoder | OrdinalEncoder):
        return (part,), "passthrough"
    if isinstance(part, Pipeline):
        coded = [i for i, (_, step) in enumerate(part.steps) if isinstance(step, OneHotEncoder | OrdinalEncoder)]
        if coded:
            steps = [step for _, step in part.steps[: coded[-1] + 1] if not isinstance(step, str) and step is not None]
            return tuple(steps), part[coded[-1] + 1 :] if coded[-1] + 1 < len(part.steps) else "passthrough"
    return (), part


def encoding_of(step: Any) -> Encoding | None:
    """The encoding of a fitted ColumnTransformer; None without encoders."""
    if not isinstance(step, ColumnTransformer) or not hasattr(step, "transformers_"):
        return None
    names = [str(name) for name in getattr(step, "feature_names_in_", [f"x{i}" for i in range(step.n_features_in_)])]
    parts: dict[int, list[str]] = {}
    coded = []
    used = [(name, part) for name, part, _ in step.transformers_ if not (isinstance(part, str) and part == "drop")]
    uses = [i for name, _ in used for i in step._transformer_to_input_indices[name]]
    for name, part in used:
        columns = [int(i) for i in step._transformer_to_input_indices[name]]
        encoders = parted(part)[0]
        if encoders and columns:
            if twice := [names[i] for i in columns if uses.count(i) > 1]:
                raise TypeError(f"column {twice[0]!r} has an encoder and another transformer; give it to one of them.")
            coded.append((tuple(columns), encoders))
            last = encoders[-1]
            if not isinstance(last, OrdinalEncoder):  # its columns are "color=red"
                known = getattr(last, "feature_names_in_", [f"x{i}" for i in range(len(columns))])
                made = iter(last.get_feature_names_out())
                for i, prefix, count in zip(columns, known, last._n_features_outs, strict=True):
                    parts[i] = [f"{names[i]}={next(made)[len(prefix) + 1 :]}" for _ in range(count)]
    if not coded:
        return None
    places, listed = {}, list[str]()
    for i in sorted(set(uses)):
        own = parts.get(i, [names[i]])
        places[i] = tuple(range(len(listed), len(listed) + len(own)))
        listed += own
    groups = {names[i]: tuple(listed[p] for p in at) for i, at in places.items()}
    return Encoding(tuple(listed), groups, step, places, tuple(coded))
