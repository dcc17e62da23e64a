"""A scikit-learn estimator around a perceptron that takes rows with missing values."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score
from sklearn.neural_network import MLPRegressor
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from mlpoly.importers.sklearn import from_sklearn
from mlpoly.importers.sklearn_columns import encoding_of, first_step
from mlpoly.inputs import require_gaussians
from mlpoly.inputs.conditioning import Given
from mlpoly.inputs.incomplete import gaussian_with_gaps
from mlpoly.measures.conditional import conditional

__all__ = ["MissingValues"]


class MissingValues(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A perceptron of scikit-learn that predicts rows with missing values (NaN): what it says on average, given them.

    `predict` of a regressor is the mean of its outputs given the observed inputs of the row, in closed form, and
    `return_std` adds their standard deviation over what is missing; noise of the target is not in it.

    Probabilities of classes are softmax(m_k / sqrt(1 + pi s_k^2 / 8)) with mean m_k and standard deviation s_k of the
    logits (MacKay 1992), for two classes the sigmoid of that; without gaps they are those of the perceptron.

    Parameters
    ----------
    estimator : MLPRegressor, MLPClassifier, or a Pipeline that `mlpoly.from_sklearn` takes, with one hidden layer
        One that is fitted is used as it is, and `fit` only collects moments. Otherwise it is fitted to the rows, whose
        gaps are replaced by their means given the row. By default an MLPRegressor.
    inputs : Gaussian or GaussianMixture, optional
        Distribution of the inputs; by default the Gaussian that `fit` estimates, by EM where rows have gaps.

    Attributes
    ----------
    estimator_ : the fitted estimator
    inputs_ : Gaussian or GaussianMixture
    rounds_ : int
        Rounds of EM; 0 where no row had gaps.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neural_network import MLPRegressor
    >>> from mlpoly.sklearn import MissingValues
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> x[:, 1] = x[:, 0]  # a copy
    >>> model = MLPRegressor(hidden_layer_sizes=8, max_iter=2000, random_state=0).fit(x, x[:, 0])
    >>> robust = MissingValues(model).fit(x)
    >>> bool(np.allclose(robust.predict([[0.7, np.nan]]), model.predict([[0.7, 0.7]])))
    True
    """

    def __init__(self, estimator: Any = None, inputs: Any = None) -> None:
        self.estimator = estimator
        self.inputs = inputs

    def fit(self, X: Any, y: Any = None) -> "MissingValues":
        """Collect the moments of rows X (n, d), NaN for gaps; fit the estimator to y if it is not fitted."""
        start = self._start()
        fitted = _is_fitted(start)
        if y is None and not fitted:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        if encoding_of(first_step(start)) is not None:
            raise TypeError(
                "estimator has encoders of categories, and MissingValues takes numbers; use mlpoly.conditional("
                "mlpoly.from_sklearn(estimator), coded.inputs(complete rows), coded(rows)) with coded = "
                "mlpoly.importers.encoding(estimator)."
            )
        options = {"ensure_all_finite": "allow-nan", "dtype": np.float64}
        if y is None:
            x = validate_data(self, X, **options)
        else:
            x, y = validate_data(self, X, y, multi_output=True, y_numeric=not is_classifier(start), **options)
        found, self.rounds_ = gaussian_with_gaps(x)
        self.inputs_ = found if self.inputs is None else require_gaussians(self.inputs)
        if not fitted:  # gaps are replaced by their means given the row
            filled, seen = x.copy(), ~np.isnan(x)
            for pattern in np.unique(seen, axis=0):
                rows, known = np.flatnonzero((seen == pattern).all(axis=1)), np.flatnonzero(pattern)
                if len(known) < x.shape[1]:
                    means = Given(found, known).mean(x[np.ix_(rows, known)])
                    filled[rows] = np.where(seen[rows], x[rows], means)
            start = clone(start).fit(filled, y)
        self.estimator_ = start
        self.net_ = from_sklearn(self.estimator_)
        if hasattr(self.estimator_, "classes_"):
            self.classes_ = self.estimator_.classes_
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictions (n,) or (n, o) for rows X (n, d) with gaps; of regressors also the standard deviations."""
        if is_classifier(self._start()):
            if return_std:
                raise ValueError("return_std is for regressors; predict_proba of a classifier has what is uncertain.")
            probabilities = self.predict_proba(X)
            return (probabilities > 0.5).astype(int) if self._labels() else self.classes_[probabilities.argmax(axis=1)]
        found = self._outputs(X)
        mean, std = (a[:, 0] if a.shape[1] == 1 else a for a in (found.mean, found.std))
        return (mean, std) if return_std else mean

    @available_if(lambda self: is_classifier(self._start()))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, c) of the classes, or of the labels, for rows X (n, d) with gaps."""
        found = self._outputs(X)
        logits = found.mean / np.sqrt(1 + np.pi * found.std**2 / 8)
        if self._labels():
            return 1 / (1 + np.exp(-logits))
        if logits.shape[1] == 1:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        power = np.exp(logits - logits.max(axis=1, keepdims=True))
        return power / power.sum(axis=1, keepdims=True)

    def score(self, X: Any, y: Any) -> float:
        """Accuracy of a classifier, R² of a regressor."""
        measure = accuracy_score if is_classifier(self._start()) else r2_score
        return float(measure(y, self.predict(X)))

    def _labels(self) -> bool:
        """Whether there are several labels, each with its own probability."""
        last = self.estimator_[-1] if hasattr(self.estimator_, "steps") else self.estimator_
        return last.out_activation_ == "logistic" and last.n_outputs_ > 1

    def _outputs(self, X: Any) -> Any:
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        return conditional(self.net_, self.inputs_, x)

    def _start(self) -> Any:
        return MLPRegressor() if self.estimator is None else self.estimator

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self._start())
        tags.estimator_type, tags.target_tags = inner.estimator_type, inner.target_tags
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.target_tags.required = not _is_fitted(self._start())
        tags.input_tags.allow_nan = True
        return tags


def _is_fitted(estimator: Any) -> bool:
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True
