"""scikit-learn: multilayer perceptrons, with the affine steps of a pipeline folded into their weights."""

import math
import warnings
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectorMixin
from sklearn.impute import SimpleImputer
from sklearn.model_selection._search import BaseSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted

from mlpoly.importers.sklearn_columns import encoding_of, first_step, parted
from mlpoly.networks import Affine, Chain, Network
from mlpoly.networks.assemble import Scaling, assemble, from_layers
from mlpoly.records import replace

_ACTIVATIONS = {"identity": "identity", "logistic": "sigmoid", "tanh": "tanh", "relu": "relu"}
_OUTPUTS = ("predict", "predict_proba", "_forward_pass_fast")  # methods of estimators that compute their outputs

Map = Scaling | Affine  # what a step of a pipeline does to rows


def from_sklearn(estimator: Any) -> Network:
    """Return a fitted multilayer perceptron of scikit-learn as a network in NumPy's float64.

    Parameters
    ----------
    estimator : MLPRegressor, MLPClassifier, Pipeline, search or TransformedTargetRegressor
        The earlier steps of a Pipeline must be affine: scalers, PCA, TruncatedSVD, feature selection, "passthrough",
        and a ColumnTransformer or Pipeline of such steps. They are folded into the first weights, so the network takes
        rows in the original units; the scaler of a TransformedTargetRegressor is folded into the last ones.

        A OneHotEncoder or OrdinalEncoder, also behind a SimpleImputer, may be the first step for some columns of a
        ColumnTransformer at the beginning: the network then takes the numbers that `mlpoly.importers.encoding` makes
        of rows.

        Names of the columns of a data frame are kept in `net.names`: data with other orders of them are refused.
        Classes that are words are kept in `net.output_names`, for ``output="Gentoo"``.

    Returns
    -------
    Affine, MLP or Chain
        Its outputs (n, o) are those of ``predict`` for a regressor; for ``loss="poisson"`` their logarithms, with a
        warning. For a classifier they are logits, whose softmax is ``predict_proba``; for two classes (one output, the
        logit of ``classes_[1]``) or several labels their sigmoid.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from sklearn.neural_network import MLPRegressor
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> model = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=8, max_iter=5000))
    >>> mp.from_sklearn(model.fit(x, x[:, 0] * x[:, 1]))
    MLP(3 -> 8 -> 1, relu)
    """
    net, coded = _network(estimator), encoding_of(first_step(estimator))
    names = getattr(estimator, "feature_names_in_", None) if coded is None else coded.names  # of data frames
    layers: list[Any] = list(net.layers if isinstance(net, Chain) else [net])
    layers[0] = replace(layers[0], names=None if names is None else tuple(names))
    layers[-1] = replace(layers[-1], output_names=_class_names(estimator, net.dim_out))
    return replace(net, layers=tuple(layers)) if isinstance(net, Chain) else layers[0]


def _class_names(estimator: Any, outputs: int) -> tuple[str, ...] | None:
    """The classes whose logits the outputs are, where they are words; numbers would read as places."""
    classes = np.asarray(getattr(estimator, "classes_", ()))
    if classes.ndim != 1 or classes.dtype.kind not in "OU":
        return None
    names = tuple(map(str, classes[1:] if outputs == 1 and len(classes) == 2 else classes))
    return names if len(names) == outputs else None


def _network(estimator: Any) -> Network:
    if isinstance(estimator, BaseSearchCV):
        estimator = getattr(_fitted(estimator), "best_estimator_", estimator)
    if isinstance(estimator, Pipeline):
        maps: list[Map] = []
        for i, (name, step) in enumerate(estimator.steps[:-1], 1):
            after = f"mlpoly.from_sklearn(pipeline[{i}:]) takes what comes after it"
            remedy = f"{after}, whose inputs are pipeline[:{i}].transform(x)"
            maps += _maps_of(step, f"step {name!r} of the pipeline", remedy)
        return assemble([*maps, _network(estimator.steps[-1][1])])
    if isinstance(estimator, TransformedTargetRegressor):
        net = _network(_fitted(estimator).regressor_)
        inverses = []
        for scaler in reversed(_maps_of(estimator.transformer_, "the transformer of the target")):
            if isinstance(scaler, Affine):
                raise TypeError("the transformer mixes targets; from_sklearn takes only scalers of the target.")
            inverses.append(_scaling(1 / scaler.scale, -scaler.shift / scaler.scale))
        return assemble([net, *inverses])
    kind = MLPRegressor if isinstance(estimator, MLPRegressor) else MLPClassifier
    overrides = any(getattr(type(estimator), name, None) is not getattr(kind, name, None) for name in _OUTPUTS)
    if not isinstance(estimator, kind) or overrides:
        raise TypeError(
            f"from_sklearn takes an MLPRegressor or MLPClassifier, also at the end of a Pipeline, in a search or in a "
            f"TransformedTargetRegressor, and no subclass that predicts in another way; got "
            f"{type(estimator).__name__}. For another model with weights, pass them: "
            f"mlpoly.MLP.from_layers([(W, b), ...], activation=...), mlpoly.Affine(W, b)."
        )
    layers = list(zip(_fitted(estimator).coefs_, estimator.intercepts_, strict=True))
    if estimator.out_activation_ == "exp":
        warnings.warn(
            f"from_sklearn leaves out the exponential at the end of {type(estimator).__name__}(loss='poisson'): the "
            f"network's outputs are the logarithms of the predictions.",
            stacklevel=3,
        )
    wide = [(np.asarray(W, np.float64), np.asarray(b, np.float64)) for W, b in layers]
    return from_layers(wide, _ACTIVATIONS[estimator.activation], layout="in_out")


def _fitted(estimator: Any) -> Any:
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        raise ValueError(f"the {type(estimator).__name__} is not fitted; call its fit(x, y) first.") from None
    return estimator


def _maps_of(step: Any, place: str, remedy: str = "use one that is affine") -> list[Map]:
    """The affine maps that a fitted transformer applies to rows; a TypeError with `remedy` for any other map."""
    if step is None or (isinstance(step, str) and step == "passthrough"):
        return []
    _fitted(step)
    if isinstance(step, Pipeline):
        return [m for name, s in step.steps for m in _maps_of(s, f"step {name!r} of {place}", remedy)]
    if isinstance(step, ColumnTransformer) and type(step).transform is ColumnTransformer.transform:
        rows, bias = list[np.ndarray](), list[np.ndarray]()  # of its transformers one after the other
        coded = encoding_of(step)
        for name, part, _ in step.transformers_:
            here = step._transformer_to_input_indices[name]  # its columns may be labels, slices, masks or a function
            if (isinstance(part, str) and part == "drop") or not len(here):
                continue
            start = _selection(here, step)
            if coded is not None:
                _, part = parted(part)
                start = Affine(np.eye(len(coded.names))[[place for i in here for place in coded.places[int(i)]]])
            block: Any = assemble([start, *_maps_of(part, f"{name!r} of {place}", remedy)])
            weight = (step.transformer_weights or {}).get(name, 1.0)
            rows.append(weight * block.W)
            bias.append(weight * (np.zeros(block.dim_out) if block.b is None else block.b))
        return [Affine(np.concatenate(rows), np.concatenate(bias))]
    reason = "is not affine in its inputs"
    for kind, maps in _KNOWN.items():
        if isinstance(step, kind) and type(step).transform is kind.transform:
            if (found := maps(step)) is not None:
                return found
            reason = "is not affine with these options"
    raise TypeError(f"from_sklearn cannot take {place}: {step!r} {reason}; {remedy}.")


def _selection(columns: Any, step: Any) -> Affine:
    return Affine(np.eye(step.n_features_in_)[columns])


def _scaling(scale: Any, shift: Any) -> Scaling:
    return Scaling(np.asarray(scale, np.float64), np.asarray(shift, np.float64), np.dtype(np.float64))


def _centred(step: Any, mean: Any, scale: Any) -> list[Map]:
    """The map x -> (x - mean) / scale, where None stands for no mean or scale."""
    scale = np.ones(step.n_features_in_) if scale is None else 1 / np.asarray(scale, np.float64)
    return [_scaling(scale, 0 * scale if mean is None else -scale * mean)]


def _principal(step: Any) -> list[Map]:
    W = np.asarray(step.components_, np.float64)
    if step.whiten:
        deviation = np.sqrt(step.explained_variance_)
        W = W / np.maximum(deviation, np.finfo(deviation.dtype).eps)[:, None]  # as scikit-learn does
    return [Affine(W, -W @ step.mean_)]


def _imputed(step: Any) -> list[Map] | None:
    """The columns that an imputer could learn, as nothing is missing in inputs; None if it takes numbers for that."""
    numeric = isinstance(step.missing_values, Real) and math.isfinite(step.missing_values)
    if step.add_indicator or numeric or not np.issubdtype(step.statistics_.dtype, np.floating):
        return None
    kept = np.isfinite(step.statistics_) | step.keep_empty_features
    return [] if kept.all() else [_selection(kept, step)]


# None for options with which the step is not affine.
_KNOWN: dict[type[Any], Callable[[Any], list[Map] | None]] = {
    StandardScaler: lambda s: _centred(s, s.mean_ if s.with_mean else None, s.scale_ if s.with_std else None),
    RobustScaler: lambda s: _centred(s, s.center_ if s.with_centering else None, s.scale_ if s.with_scaling else None),
    MinMaxScaler: lambda s: None if s.clip else [_scaling(s.scale_, s.min_)],
    MaxAbsScaler: lambda s: None if getattr(s, "clip", False) else _centred(s, None, s.scale_),
    PCA: _principal,
    IncrementalPCA: _principal,
    TruncatedSVD: lambda s: [Affine(np.asarray(s.components_, np.float64))],
    FunctionTransformer: lambda s: [] if s.func is None else None,
    SimpleImputer: _imputed,
    SelectorMixin: lambda s: [_selection(s.get_support(), s)],
}
