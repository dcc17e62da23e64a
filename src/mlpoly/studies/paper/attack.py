"""Adversarial attacks made from the polynomials, carried out on the network (figures 4 and 5; MATH 7).

One change is applied to all test images: directions are removed from them, or they are moved along a direction. Its
effect on the quadratic polynomial follows from one evaluation, see `mlpoly.studies.paper.quadratic_moves`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from mlpoly.arrays import (
    Array,
    as_float_array,
    as_integer,
    check_finite,
    check_shape,
    constant,
    namespace,
    scalar,
    to_numpy,
    widen,
)
from mlpoly.features import ablate, eigenfeatures, singular_directions
from mlpoly.inputs import Gaussian
from mlpoly.measures import accuracy_of_outputs, fvu_of_outputs, kl_of_outputs
from mlpoly.networks import Layer
from mlpoly.polynomials import Polynomial
from mlpoly.studies.paper.class_features import as_labels, check_degree, check_fits, decisions, quadratic_part
from mlpoly.studies.paper.quadratic_moves import Line, noise_lines, span, unit, universal_lines
from mlpoly.studies.paper.results import Ablation, AttackPictures, Steering

__all__ = ["Directions", "ablation_curve", "ablation_pictures", "steering_curve"]

Directions = Literal["singular", "random", "pca"]

_STRENGTHS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
_ABLATION, _NOISE, _RANDOM = range(3)  # independent streams of random numbers for one seed


@dataclass(frozen=True)
class _Case:
    """The models that are attacked, the images, and the quadratic's logits before."""

    net: Layer
    linear: Polynomial
    quadratic: Polynomial
    images: Array  # (n, d)
    labels: np.ndarray  # (n,)
    base: Array  # (n, o), float64

    def accuracies(self, *logits: Array) -> list[float]:
        """Accuracy of each table of logits (n, o)."""
        return [float(accuracy_of_outputs(widen(table), self.labels)) for table in logits]


def _case(net: Layer, linear: Polynomial, quadratic: Polynomial, images: Any, labels: Any) -> _Case:
    check_fits(linear, quadratic)
    if (quadratic.dim_in, quadratic.dim_out) != (net.dim_in, net.dim_out):
        raise ValueError(
            f"quadratic maps {quadratic.dim_in} -> {quadratic.dim_out}, but net maps {net.dim_in} -> {net.dim_out}; "
            f"was it fitted to another network?"
        )
    images = as_float_array("images", images)
    check_shape("images", images, (None, net.dim_in), "images in rows, as many columns as the network has inputs")
    if images.shape[0] == 0:
        raise ValueError("images is empty; an accuracy needs at least one image.")
    check_finite("images", images)
    return _Case(net, linear, quadratic, images, as_labels(labels, images, net.dim_out), widen(quadratic(images)))


# -- ablation ----------------------------------------------------------------------------------------------------------


def ablation_curve(
    net: Layer,
    linear: Polynomial,
    quadratic: Polynomial,
    images: Array,
    labels: Any,
    *,
    seed: int,
    directions: Directions,
    count: int | None = None,
    draws: int = 3,
    covariance: Array | None = None,
    step: int = 0,
) -> list[Ablation]:
    """Accuracy on test images without their first k directions, k = 0, 1, ..., `count`.

    Parameters
    ----------
    net : Layer
    linear, quadratic : Polynomial
        Its polynomials of degree 1 and 2.
    images : array (n, d)
    labels : integers (n,)
    seed : int
        Seed of the random directions; goes to the records.
    directions : {"singular", "random", "pca"}
        Singular directions of the linear coefficients (the attack); random orthonormal ones, the mean over `draws` of
        them; principal directions of `covariance`.
    count : int, optional
        Number of directions, by default the number of outputs.
    draws : int
        Number of draws of the random directions.
    covariance : array (d, d), optional
        Covariance of the training images; needed for "pca".
    step : int
        Step of the checkpoint; goes to the records.
    """
    case = _case(net, linear, quadratic, images, labels)
    seed, draws = as_integer("seed", seed, 0), as_integer("draws", draws, 1)
    count = net.dim_out if count is None else as_integer("count", count, 1)
    bases = _bases(case, directions, count, draws if directions == "random" else 1, seed, covariance)
    mean = np.mean([_accuracies_without(case, basis) for basis in bases], axis=0)
    return [Ablation(seed, directions, k, f, p1, p2, step) for k, (f, p1, p2) in enumerate(mean.tolist())]


def _bases(case: _Case, directions: str, count: int, draws: int, seed: int, covariance: Any) -> list[Array]:
    """Orthonormal directions (count, d), `draws` times where they are random."""
    d = case.images.shape[1]
    if directions == "singular":
        return [_singular(case.linear, count)]
    if directions not in get_args(Directions):
        raise ValueError(f"directions must be one of {get_args(Directions)}, got {directions!r}.")
    if count > d:
        raise ValueError(f"count is {count}, but images have only {d} dimensions; lower it.")
    if directions == "random":
        rng = np.random.default_rng([seed, _ABLATION])
        return [constant(np.linalg.qr(rng.standard_normal((d, count)))[0].T, case.images) for _ in range(draws)]
    if covariance is None:
        raise ValueError("directions='pca' needs covariance=, that of the training images (d, d).")
    covariance = as_float_array("covariance", covariance)
    check_shape("covariance", covariance, (d, d), "that of the training images")
    check_finite("covariance", covariance)
    vectors = np.linalg.eigh(to_numpy(widen(covariance)))[1]  # by ascending variance, in columns
    return [constant(vectors[:, ::-1][:, :count].T, case.images)]


def _singular(linear: Polynomial, count: int) -> Array:
    vectors = singular_directions(linear).vectors
    if count > vectors.shape[0]:
        raise ValueError(f"count is {count}, but linear has {vectors.shape[0]} singular directions; lower it.")
    return vectors[:count, :]


def _accuracies_without(case: _Case, basis: Array) -> list[list[float]]:
    """Accuracies of network, linear and quadratic without the first 0, 1, ... rows of `basis`."""
    within, coordinates = span(case.quadratic, case.images, basis), widen(case.images) @ widen(basis).T
    found = []
    for k in range(basis.shape[0] + 1):
        left = ablate(case.images, basis[:k, :])
        removed = coordinates * constant(np.arange(basis.shape[0]) < k, coordinates)
        found.append(case.accuracies(case.net(left), case.linear(left), case.base + within.change(-removed)))
    return found


def ablation_pictures(
    net: Layer, linear: Polynomial, images: Array, labels: Any, *, label: int = 3, count: int | None = None
) -> AttackPictures:
    """Images without singular directions of the linear polynomial, in NumPy's float32.

    Every class is shown by the first image that the network gets right, or by its first image if there is none. The
    one of the class `label` loses 0, 1, ..., `count` directions (by default the number of outputs).
    """
    check_degree("linear", linear, 1)
    count = net.dim_out if count is None else as_integer("count", count, 1)
    images, label = as_float_array("images", images), as_integer("label", label, 0)
    found, choices = as_labels(labels, images, net.dim_out), decisions(net, images)
    # Right ones first, and in the order given among these.
    order = np.argsort(choices != found, kind="stable")
    first = {int(c): int(order[np.argmax(found[order] == c)]) for c in np.unique(found)}
    if label not in first:
        raise ValueError(f"label is {label}, but no image has it; choose one of {sorted(first)}.")
    xp, basis = namespace(images=images), _singular(linear, count)
    ladder = xp.stack([ablate(images[first[label], :], basis[:k, :]) for k in range(count + 1)])
    digits = xp.stack([images[i, :] for i in first.values()])
    ablated = ablate(digits, singular_directions(linear).vectors)
    return AttackPictures(
        ladder=to_numpy(ladder).astype(np.float32),
        ladder_label=label,
        ladder_choices=tuple(decisions(net, ladder).tolist()),
        digits=to_numpy(digits).astype(np.float32),
        ablated=to_numpy(ablated).astype(np.float32),
        labels=tuple(first),
        choices=tuple(decisions(net, ablated).tolist()),
    )


# -- steering ----------------------------------------------------------------------------------------------------------


def steering_curve(
    net: Layer,
    linear: Polynomial,
    quadratic: Polynomial,
    images: Array,
    labels: Any,
    *,
    seed: int,
    strengths: Sequence[float] = _STRENGTHS,
    draws: int = 3,
    inputs: Gaussian | None = None,
    step: int = 0,
) -> list[Steering]:
    """Accuracy and fidelity on test images that are all moved by one length.

    "eigenvector" moves all images along the strongest eigenvector of one class, and is the mean over all classes and
    both signs; the controls are "noise", a Gaussian vector of its own for each image, scaled to the same length, and
    "random", one random vector for all images, each the mean over `draws` of them. Records come in this order.

    Parameters
    ----------
    net : Layer
    linear, quadratic : Polynomial
        Its polynomials of degree 1 and 2.
    images : array (n, d)
        The noise evaluates the quadratic on all of them 2 `draws` times; pass fewer if time matters.
    labels : integers (n,)
    seed : int
        Seed of the controls; goes to the records.
    strengths : sequence of float
        Lengths, in units of the mean distance of the images from their mean.
    draws : int
        Number of draws of the controls.
    inputs : Gaussian, optional
        Inputs in whose metric the strongest eigenfeature is taken, see
        `mlpoly.studies.paper.class_features.feature_step`.
    step : int
        Step of the checkpoint; goes to the records.
    """
    case = _case(net, linear, quadratic, images, labels)
    seed, draws, lengths = as_integer("seed", seed, 0), as_integer("draws", draws, 1), tuple(map(float, strengths))
    if not lengths or not all(0 <= s < np.inf for s in lengths):
        raise ValueError(f"strengths must be lengths of at least 0, got {lengths}.")
    xp, wide, part = namespace(images=case.images), widen(case.images), quadratic_part(quadratic)
    radius = scalar(xp.mean(xp.sqrt(xp.sum((wide - xp.mean(wide, axis=0)) ** 2, axis=1))))
    metric: Literal["input", "whitened"] = "input" if inputs is None else "whitened"
    features = [eigenfeatures(part, output=c, k=1, metric=metric, inputs=inputs) for c in range(net.dim_out)]
    strongest = unit(np.stack([to_numpy(f.directions[0, :]) for f in features]))
    universal = unit(np.random.default_rng([seed, _RANDOM]).standard_normal((draws, net.dim_in)))
    noise = np.random.default_rng([seed, _NOISE])
    attacks = {
        "eigenvector": ((1, -1), universal_lines(quadratic, case.images, radius * strongest)),
        "noise": ((1,), noise_lines(quadratic, case.images, case.base, radius, noise, draws)),
        "random": ((1,), universal_lines(quadratic, case.images, radius * universal)),
    }
    found: list[Steering] = []
    for name, (signs, lines) in attacks.items():
        table = [[_measured(case, line, sign * s) for s in lengths] for line in lines for sign in signs]
        means = np.mean(table, axis=0).tolist()
        for s, (network, first, second, fvu, kl) in zip(lengths, means, strict=True):
            found.append(Steering(seed, name, s, network, first, second, fvu, kl, step))
    return found


def _measured(case: _Case, line: Line, t: float) -> list[float]:
    """Accuracies of network, linear and quadratic, FVU and KL of the quadratic, t along the line."""
    moved = case.images + t * line.move
    logits, quadratic = widen(case.net(moved)), case.base + t * line.slope + t**2 * line.bend
    fidelity = [float(fvu_of_outputs(logits, quadratic)), float(kl_of_outputs(logits, quadratic))]
    return case.accuracies(logits, case.linear(moved), quadratic) + fidelity
