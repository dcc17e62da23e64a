"""Eigenfeatures of every class over training (figure 1; MATH 6)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlpoly.arrays import Array, namespace, to_numpy, widen
from mlpoly.features import eigenfeatures
from mlpoly.inputs import Gaussian
from mlpoly.networks import Layer
from mlpoly.polynomials import DensePolynomial, Polynomial
from mlpoly.studies.paper.results import FeatureStep


def feature_step(
    step: int, linear: Polynomial, quadratic: Polynomial, k: int = 3, inputs: Gaussian | None = None
) -> list[FeatureStep]:
    """The k strongest eigenvectors of each sign, and linear coefficients, of every class, in NumPy's float32.

    There are fewer where fewer eigenvalues are larger than rounding. With `inputs`, features are ranked by what they
    change on such inputs (the metric "whitened") and shown as the change of the pixels along each by one standard
    deviation; otherwise pixels that hardly vary, whose coefficients nothing holds, would come first.
    """
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
    correlates positively with the one of the same sign and rank one step later.
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
        shared = min(len(vectors), len(after))
        leading[:shared] = np.sum(vectors[:shared] * after[:shared], axis=1)
    return vectors * np.where(leading < 0, -1, 1).astype(vectors.dtype)[:, None]


# -- shared with the attacks -------------------------------------------------------------------------------------------


def decisions(net: Layer, images: Array) -> np.ndarray:
    """The network's choice for each image (n, d), as NumPy integers (n,)."""
    return to_numpy(namespace(images=images).argmax(net(images), axis=-1)).astype(np.int64)


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
