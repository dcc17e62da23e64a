"""Eigenfeatures of every class over training (figure 1; MATH 6)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlpoly.arrays import namespace, to_numpy, widen
from mlpoly.features import eigenfeatures
from mlpoly.inputs import Gaussian
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
    forms = widen(quadratic.coefficients().quadratic)  # eigenvectors of nearby eigenvalues need the digits
    part = DensePolynomial(forms[0, 0, :] * 0, forms[:, 0, 0] * 0, None, forms)
    coefficients, like = to_numpy(linear.coefficients().linear), quadratic.prototype
    # The fraction of the largest eigenvalue below which the others are rounding.
    floor = quadratic.dim_in * float(namespace(like=like).finfo(like.dtype).eps)
    found = []
    for label in range(quadratic.dim_out):
        metric: Any = "input" if inputs is None else "whitened"
        features = eigenfeatures(part, label, k=part.dim_in, metric=metric, inputs=inputs)
        values, patterns = to_numpy(features.values), to_numpy(features.directions)
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
        now, turned = steps[place], dict[str, Any]()
        for side in ("positive_vectors", "negative_vectors"):
            vectors, after = getattr(now, side), getattr(later.get(now.label), side, None)
            leading = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=1)[:, None], axis=1)[:, 0]
            if after is not None:
                shared = min(len(vectors), len(after))
                leading[:shared] = np.sum(vectors[:shared] * after[:shared], axis=1)
            turned[side] = vectors * np.where(leading < 0, -1, 1).astype(vectors.dtype)[:, None]
        aligned[place] = later[now.label] = replace(now, **turned)
    return tuple(aligned[place] for place in range(len(steps)))
