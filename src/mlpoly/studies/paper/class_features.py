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
    check_shape,
    namespace,
    scalar,
    to_numpy,
    widen,
)
from mlpoly.features import eigenfeatures, explain
from mlpoly.inputs import Gaussian
from mlpoly.networks import Layer
from mlpoly.polynomials import DensePolynomial, Polynomial
from mlpoly.scores.classifiers import checked_labels
from mlpoly.studies.paper.results import FeatureAmount, FeatureStep, ImageExplanation


def feature_step(
    step: int, linear: Polynomial, quadratic: Polynomial, k: int = 3, inputs: Gaussian | None = None
) -> list[FeatureStep]:
    """The k strongest eigenvectors of each sign, and linear coefficients, of every class, in NumPy's float32.

    There are fewer eigenvectors where fewer eigenvalues are larger than rounding. With `inputs`, features are ranked by
    what they change on such inputs (the metric "whitened" of `mlpoly.eigenfeatures`) and shown as the change of the
    pixels along each by one standard deviation; otherwise pixels that hardly vary, whose coefficients nothing holds,
    would come first.
    """
    step, k = as_integer("step", step, 0), as_integer("k", k, 1)
    check_fits(linear, quadratic)
    part, coefficients = quadratic_part(quadratic), to_numpy(linear.coefficients().linear)
    like = quadratic.prototype
    # The fraction of the largest eigenvalue below which the others are rounding.
    floor = quadratic.dim_in * float(namespace(like=like).finfo(like.dtype).eps)
    found = []
    for label in range(quadratic.dim_out):
        values, _, patterns = eigenpairs(part, label, part.dim_in, inputs)
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
        now, after = steps[place], later.get(steps[place].label)
        sides = ("positive_vectors", "negative_vectors")
        turned: Any = {side: _turned(getattr(now, side), getattr(after, side, None)) for side in sides}
        aligned[place] = later[now.label] = replace(now, **turned)
    return tuple(aligned[place] for place in range(len(steps)))


def _turned(vectors: np.ndarray, after: np.ndarray | None) -> np.ndarray:
    """Rows with the signs of those one step later; where there are none, with a positive largest entry."""
    leading = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=1)[:, None], axis=1)[:, 0]
    if after is not None:
        if vectors.shape[1] != after.shape[1]:
            raise ValueError(
                f"steps hold eigenvectors of {vectors.shape[1]} and of {after.shape[1]} inputs; align one network only."
            )
        shared = min(len(vectors), len(after))
        leading[:shared] = np.sum(vectors[:shared] * after[:shared], axis=1)
    return vectors * np.where(leading < 0, -1, 1).astype(vectors.dtype)[:, None]


def explain_image(
    net: Layer, quadratic: Polynomial, inputs: Gaussian, image: Array, label: int, output: int, k: int = 5
) -> ImageExplanation:
    """Take the logit `output` of one image (d,) of class `label` apart, in float64, about the mean of `inputs`.

    `mlpoly.explain` does it; the k eigenfeatures that moved the logit most are kept.
    """
    _check_degree("quadratic", quadratic, 2)
    label, output = as_integer("label", label, 0), as_integer("output", output, 0)
    found = explain(quadratic, image, inputs, output=output, k=k)
    constant, linear, bend = found.parts.tolist()
    features = ((f.eigenvalue or 0.0, f.amount, np.asarray(f.pattern, np.float32)) for f in found.features)
    return ImageExplanation(
        image=found.point.astype(np.float32),
        label=label,
        output=output,
        network=scalar(net(widen(image))[output]),
        polynomial=found.polynomial,
        constant=constant,
        linear=linear,
        quadratic=bend,
        top=tuple(FeatureAmount(*feature) for feature in features),
    )


def choose_examples(net: Layer, images: Array, labels: Any) -> list[int]:
    """Positions of images worth a look: the first of each class that the network gets right, and the first wrong."""
    found, choices = as_labels(labels, images, net.dim_out), decisions(net, images)
    chosen: list[int] = []
    for label in range(net.dim_out):
        for right in (True, False):
            chosen += np.flatnonzero((found == label) & ((choices == label) == right))[:1].tolist()
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


def _check_degree(name: str, poly: Any, degree: int) -> None:
    if not isinstance(poly, Polynomial):
        raise TypeError(f"{name} must be a polynomial made by mlpoly.fit or mlpoly.load, got {type(poly).__name__}.")
    if poly.degree != degree:
        raise ValueError(f"{name} has degree {poly.degree}, expected {degree}; fit it with degree={degree}.")


def check_fits(linear: Any, quadratic: Any) -> None:
    """Raise unless these are polynomials of degree 1 and 2 with the same inputs and outputs."""
    _check_degree("linear", linear, 1)
    _check_degree("quadratic", quadratic, 2)
    if (linear.dim_in, linear.dim_out) != (quadratic.dim_in, quadratic.dim_out):
        raise ValueError(
            f"linear maps {linear.dim_in} -> {linear.dim_out}, but quadratic maps {quadratic.dim_in} -> "
            f"{quadratic.dim_out}; pass two fits of one network."
        )


def quadratic_part(poly: Polynomial) -> DensePolynomial:
    """The quadratic terms alone, in float64: the eigenvectors of nearby eigenvalues need the digits."""
    forms = widen(poly.coefficients().quadratic)
    return DensePolynomial(forms[0, 0, :] * 0, forms[:, 0, 0] * 0, None, forms)


def eigenpairs(
    part: DensePolynomial, output: int, k: int, inputs: Gaussian | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The k eigenvalues (k,) of largest magnitude of one output, eigenvectors (k, d), and their patterns of pixels."""
    found = eigenfeatures(part, output, k=k, metric="input" if inputs is None else "whitened", inputs=inputs)
    return to_numpy(found.values), to_numpy(found.vectors), to_numpy(found.directions)
