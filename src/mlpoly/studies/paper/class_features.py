"""Eigenfeatures of every class, and single images taken apart (figure 1; MATH 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlpoly.arrays import (
    Array,
    as_float_array,
    as_integer,
    check_finite,
    check_shape,
    namespace,
    scalar,
    to_numpy,
    widen,
)
from mlpoly.features import eigenfeatures
from mlpoly.features.eigen import Metric
from mlpoly.inputs import Gaussian
from mlpoly.measures.arguments import checked_labels
from mlpoly.networks import Layer
from mlpoly.polynomials import DensePolynomial, Polynomial
from mlpoly.studies.paper.results import Contribution, Explanation, FeatureStep

__all__ = [
    "align",
    "as_labels",
    "check_degree",
    "check_fits",
    "choose_examples",
    "decisions",
    "explain",
    "feature_step",
    "quadratic_part",
]


def feature_step(
    step: int, linear: Polynomial, quadratic: Polynomial, k: int = 3, inputs: Gaussian | None = None
) -> list[FeatureStep]:
    """Strongest eigenvectors and linear coefficients of every class at one checkpoint.

    Parameters
    ----------
    step : int
        Step of the checkpoint.
    linear, quadratic : Polynomial
        Polynomials of degree 1 and 2 of one network.
    k : int
        Eigenvectors of each sign; fewer if there are fewer, where eigenvalues of the size of rounding have no sign.
    inputs : Gaussian, optional
        Rank features by what they change on such inputs (the metric "whitened" of `mlpoly.eigenfeatures`), and show
        the change of the pixels along each by one standard deviation. Pixels that hardly vary have coefficients that
        nothing holds, and would come first otherwise.

    Returns
    -------
    list of FeatureStep
        One per output, in NumPy's float32. Each took one eigendecomposition, in float64.
    """
    step, k = as_integer("step", step, 0), as_integer("k", k, 1)
    check_fits(linear, quadratic)
    part, coefficients = quadratic_part(quadratic), to_numpy(linear.coefficients().linear)
    like = quadratic.prototype
    # The fraction of the largest eigenvalue below which the others are rounding.
    floor = quadratic.dim_in * float(namespace(like=like).finfo(like.dtype).eps)
    found = []
    for label in range(quadratic.dim_out):
        values, _, patterns = _eigenpairs(part, label, inputs)
        least = floor * np.abs(values[0])
        up, down = np.flatnonzero(values > least)[:k], np.flatnonzero(values < -least)[:k]
        arrays = values[up], values[down], patterns[up], patterns[down], coefficients[label], np.sort(values)[::-1]
        found.append(FeatureStep(step, label, *(a.astype(np.float32) for a in arrays)))
    return found


def align(steps: Sequence[FeatureStep]) -> tuple[FeatureStep, ...]:
    """Turn eigenvectors, whose sign means nothing, so that a class looks the same way at successive steps.

    At the last step of a class the entry of largest magnitude is positive; from there backwards, every eigenvector
    correlates positively with the one of the same sign and rank one step later. Ranks are not matched otherwise.
    Steps may come in any order, of any number of classes, and keep it.
    """
    aligned: dict[int, FeatureStep] = {}
    later: dict[int, FeatureStep] = {}  # by class
    for place in sorted(range(len(steps)), key=lambda i: steps[i].step, reverse=True):
        now = steps[place]
        after = later.get(now.label)
        aligned[place] = later[now.label] = replace(
            now,
            positive_vectors=_turned(now.positive_vectors, None if after is None else after.positive_vectors),
            negative_vectors=_turned(now.negative_vectors, None if after is None else after.negative_vectors),
        )
    return tuple(aligned[place] for place in range(len(steps)))


def _turned(vectors: np.ndarray, after: np.ndarray | None) -> np.ndarray:
    """Rows with the signs of those one step later; where there are none, with a positive largest entry."""
    if after is not None and vectors.shape[1] != after.shape[1]:
        raise ValueError(
            f"steps hold eigenvectors of {vectors.shape[1]} and of {after.shape[1]} inputs; align one network only."
        )
    leading = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=1)[:, None], axis=1)[:, 0]
    if after is not None:
        shared = min(len(vectors), len(after))
        leading[:shared] = np.sum(vectors[:shared] * after[:shared], axis=1)
    return vectors * np.where(leading < 0, -1, 1).astype(vectors.dtype)[:, None]


def explain(
    net: Layer,
    quadratic: Polynomial,
    mean: Array,
    image: Array,
    label: int,
    output: int,
    k: int = 5,
    inputs: Gaussian | None = None,
) -> Explanation:
    """Take one logit of one image apart, in float64.

    About the mean image m the polynomial is p(m) + grad p(m).(x - m) + sum_j value_j (v_j.(x - m))^2, so that the
    features say what makes this image differ from the mean one.

    Parameters
    ----------
    net : Layer
    quadratic : Polynomial
        Polynomial of degree 2.
    mean, image : array (d,)
        The mean of the training images, and the image.
    label, output : int
        The class of the image, and the class whose logit is explained.
    k : int
        Contributions to keep: those of largest magnitude, strongest first.
    inputs : Gaussian, optional
        Take the features in the metric of these inputs, see `feature_step`; the covariance must not be singular, so
        that they say all about any image.
    """
    check_degree("quadratic", quadratic, 2)
    label, output, k = as_integer("label", label, 0), as_integer("output", output, 0), as_integer("k", k, 1)
    if output >= quadratic.dim_out:
        raise ValueError(f"output is {output}, but quadratic has {quadratic.dim_out} outputs; count them from 0.")
    m, x = _pixels("mean", mean, quadratic.dim_in), _pixels("image", image, quadratic.dim_in)
    namespace(mean=m, image=x, quadratic=quadratic.prototype)
    value, constant, mirrored = (scalar(quadratic(at)[output]) for at in (x, m, 2 * m - x))
    values, vectors, patterns = _eigenpairs(quadratic_part(quadratic), output, inputs)
    offset = to_numpy(x - m)
    if inputs is not None:  # in the coordinates of the eigenvectors: z with S^(1/2) z = offset
        root = to_numpy(inputs.root)
        offset = offset / root if root.ndim == 1 else np.linalg.solve(root, offset)
    amounts = values * (vectors @ offset) ** 2
    top = np.argsort(-np.abs(amounts), kind="stable")[:k]
    return Explanation(
        image=to_numpy(x).astype(np.float32),
        label=label,
        output=output,
        network=scalar(net(x)[output]),
        polynomial=value,
        constant=constant,
        linear=(value - mirrored) / 2,  # a quadratic's odd part about m is its linear part
        quadratic=float(np.sum(amounts)),
        top=tuple(Contribution(float(values[j]), float(amounts[j]), patterns[j].astype(np.float32)) for j in top),
    )


def choose_examples(net: Layer, images: Array, labels: Any, per_class: int = 1) -> list[int]:
    """Positions of images worth a look: of each class the first `per_class` that the network gets right, then wrong."""
    per_class = as_integer("per_class", per_class, 1)
    found, choices = as_labels(labels, images, net.dim_out), decisions(net, images)
    chosen: list[int] = []
    for label in range(net.dim_out):
        for right in (True, False):
            chosen += np.flatnonzero((found == label) & ((choices == label) == right))[:per_class].tolist()
    return chosen


# -- shared with the attacks -------------------------------------------------------------------------------------------


def decisions(net: Layer, images: Array) -> np.ndarray:
    """The network's choice for each image (n, d), as NumPy integers (n,)."""
    images = as_float_array("images", images)
    check_shape("images", images, (None, net.dim_in), "images in rows, as many columns as the network has inputs")
    return to_numpy(namespace(images=images).argmax(net(images), axis=-1)).astype(np.int64)


def as_labels(labels: Any, images: Array, classes: int) -> np.ndarray:
    """Labels as NumPy integers (n,), one per image, each one of the classes."""
    found = to_numpy(checked_labels(labels, images))
    if found.size and not 0 <= found.min() <= found.max() < classes:
        raise ValueError(
            f"labels run from {found.min()} to {found.max()}, but the network's classes from 0 to "
            f"{classes - 1}; number them from 0."
        )
    return found.astype(np.int64)


def check_degree(name: str, poly: Any, degree: int) -> None:
    """Raise unless `poly` is a polynomial of exactly that degree."""
    if not isinstance(poly, Polynomial):
        raise TypeError(f"{name} must be a polynomial made by mlpoly.fit or mlpoly.load, got {type(poly).__name__}.")
    if poly.degree != degree:
        raise ValueError(f"{name} has degree {poly.degree}, expected {degree}; fit it with degree={degree}.")


def check_fits(linear: Any, quadratic: Any) -> None:
    """Raise unless these are polynomials of degree 1 and 2 with the same inputs and outputs."""
    check_degree("linear", linear, 1)
    check_degree("quadratic", quadratic, 2)
    if (linear.dim_in, linear.dim_out) != (quadratic.dim_in, quadratic.dim_out):
        raise ValueError(
            f"linear maps {linear.dim_in} -> {linear.dim_out}, but quadratic maps {quadratic.dim_in} -> "
            f"{quadratic.dim_out}; pass two fits of one network."
        )


def quadratic_part(poly: Polynomial) -> DensePolynomial:
    """The quadratic terms alone, in float64: the eigenvectors of nearby eigenvalues need the digits."""
    forms = widen(poly.coefficients().quadratic)
    return DensePolynomial(forms[0, 0, :] * 0, forms[:, 0, 0] * 0, None, forms)


def _eigenpairs(
    part: DensePolynomial, output: int, inputs: Gaussian | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All eigenvalues (d,) of one output by descending magnitude, eigenvectors (d, d), and their patterns of pixels."""
    metric: Metric = "input" if inputs is None else "whitened"
    found = eigenfeatures(part, output=output, k=part.dim_in, metric=metric, inputs=inputs)
    return to_numpy(found.values), to_numpy(found.vectors), to_numpy(found.directions)


def _pixels(name: str, value: Any, dim: int) -> Array:
    made = as_float_array(name, value)
    check_shape(name, made, (dim,), "one image, as many pixels as the polynomial has inputs")
    check_finite(name, made)
    return widen(made)
