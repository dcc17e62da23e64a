"""Directions that images are robbed of or moved along, in rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlpoly.arrays import Array, as_float_array, check_finite, check_shape, constant, to_numpy, widen
from mlpoly.features import eigenfeatures, singular_directions
from mlpoly.features.eigen import Metric
from mlpoly.inputs import Gaussian
from mlpoly.polynomials import Polynomial
from mlpoly.studies.paper.features import quadratic_part

__all__ = ["principal", "random_basis", "singular", "strongest", "unit"]


def singular(linear: Polynomial, count: int) -> Array:
    """The first singular directions of the linear coefficients."""
    vectors = singular_directions(linear).vectors
    if count > vectors.shape[0]:
        raise ValueError(f"components is {count}, but linear has {vectors.shape[0]} singular directions; lower it.")
    return vectors[:count, :]


def random_basis(rng: np.random.Generator, count: int, like: Array) -> Array:
    """Random orthonormal directions."""
    _check_count(count, like)
    return constant(np.linalg.qr(rng.standard_normal((like.shape[1], count)))[0].T, like)


def principal(covariance: Any, count: int, like: Array) -> Array:
    """The principal directions of a covariance (d, d), those of most variance first."""
    _check_count(count, like)
    if covariance is None:
        raise ValueError("directions='pca' needs covariance=, that of the training images (d, d).")
    covariance = as_float_array("covariance", covariance)
    check_shape("covariance", covariance, (like.shape[1], like.shape[1]), "that of the training images")
    check_finite("covariance", covariance)
    vectors = np.linalg.eigh(to_numpy(widen(covariance)))[1]
    return constant(vectors[:, ::-1][:, :count].T, like)


def _check_count(count: int, images: Array) -> None:
    if count > images.shape[1]:
        raise ValueError(f"components is {count}, but images have only {images.shape[1]} dimensions; lower it.")


def strongest(quadratic: Polynomial, inputs: Gaussian | None) -> np.ndarray:
    """The unit direction of the eigenfeature of largest magnitude of each output, (o, d)."""
    part = quadratic_part(quadratic)
    metric: Metric = "input" if inputs is None else "whitened"
    found = [eigenfeatures(part, output=c, k=1, metric=metric, inputs=inputs) for c in range(part.dim_out)]
    return unit(np.stack([to_numpy(f.directions[0, :]) for f in found]))


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length one."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
