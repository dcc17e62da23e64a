"""Adversarial attacks made from the polynomials, carried out on the network (figures 4 and 5; MATH 7).

One change is applied to all test images: directions are removed from them, or they are moved along a direction. What
that does to the quadratic polynomial follows from one evaluation, see `mlpoly.studies.paper.moves`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

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
from mlpoly.features import ablate, singular_directions
from mlpoly.inputs import Gaussian
from mlpoly.measures import accuracy_of_outputs, fvu_of_outputs, kl_of_outputs
from mlpoly.networks import Layer
from mlpoly.polynomials import Polynomial
from mlpoly.studies.paper.directions import principal, random_basis, singular, strongest, unit
from mlpoly.studies.paper.features import as_labels, check_degree, check_fits, decisions
from mlpoly.studies.paper.moves import Line, noise_lines, span, universal_lines
from mlpoly.studies.paper.results import Ablation, AttackPictures, Steering

__all__ = ["Directions", "ablation_curve", "ablation_pictures", "steering_curve"]

Directions = Literal["singular", "random", "pca"]

_STRENGTHS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
_ABLATION, _NOISE, _RANDOM = range(3)  # independent streams of random numbers for one seed


class _Case(NamedTuple):
    """What is attacked, and the quadratic's logits before."""

    net: Layer
    linear: Polynomial
    quadratic: Polynomial
    images: Array  # (n, d)
    labels: np.ndarray  # (n,)
    base: Array  # (n, o), float64


def ablation_curve(
    net: Layer,
    linear: Polynomial,
    quadratic: Polynomial,
    images: Array,
    labels: Any,
    *,
    seed: int,
    directions: Directions,
    components: int | None = None,
    draws: int = 3,
    covariance: Array | None = None,
    step: int = 0,
) -> list[Ablation]:
    """Accuracy on test images without their first k directions, k = 0, 1, ..., `components`.

    Parameters
    ----------
    net : Layer
    linear, quadratic : Polynomial
        Its polynomials of degree 1 and 2.
    images : array (n, d)
    labels : integers (n,)
    seed : int
        Of the random directions; goes to the records.
    directions : {"singular", "random", "pca"}
        Singular directions of the linear coefficients (the attack); random orthonormal ones, the mean over `draws` of
        them; principal directions of `covariance`.
    components : int, optional
        By default the number of outputs.
    draws : int
        Of the random directions.
    covariance : array (d, d), optional
        Of the training images; needed for "pca".
    step : int
        Of the checkpoint; goes to the records.

    Returns
    -------
    list of Ablation
        `components` + 1 of them.
    """
    case = _case(net, linear, quadratic, images, labels)
    seed, draws = as_integer("seed", seed, 0), as_integer("draws", draws, 1)
    count = net.dim_out if components is None else as_integer("components", components, 1)
    if directions not in get_args(Directions):
        raise ValueError(f"directions must be one of {get_args(Directions)}, got {directions!r}.")
    if directions == "singular":
        bases = [singular(linear, count)]
    elif directions == "random":
        rng = np.random.default_rng([seed, _ABLATION])
        bases = [random_basis(rng, count, case.images) for _ in range(draws)]
    else:
        bases = [principal(covariance, count, case.images)]
    mean = np.mean([_accuracies_without(case, basis) for basis in bases], axis=0)
    return [
        Ablation(seed, directions, k, network, first, second, step)
        for k, (network, first, second) in enumerate(mean.tolist())
    ]


def ablation_pictures(
    net: Layer, linear: Polynomial, images: Array, labels: Any, *, label: int = 3, components: int | None = None
) -> AttackPictures:
    """Images without singular directions of the linear polynomial, in NumPy's float32.

    Every class is shown by the first image that the network gets right, or by its first image if there is none.

    Parameters
    ----------
    net : Layer
    linear : Polynomial
        Of degree 1.
    images : array (n, d)
    labels : integers (n,)
    label : int
        Class of the image that loses 0, 1, ..., `components` directions.
    components : int, optional
        By default the number of outputs.
    """
    check_degree("linear", linear, 1)
    count = net.dim_out if components is None else as_integer("components", components, 1)
    images, label = as_float_array("images", images), as_integer("label", label, 0)
    found, choices = as_labels(labels, images, net.dim_out), decisions(net, images)
    # Right ones first, and in the order given among these.
    order = np.argsort(choices != found, kind="stable")
    first = {int(c): int(order[np.argmax(found[order] == c)]) for c in np.unique(found)}
    if label not in first:
        raise ValueError(f"label is {label}, but no image has it; choose one of {sorted(first)}.")
    xp, basis = namespace(images=images), singular(linear, count)
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
) -> list[Steering]:
    """Accuracy and fidelity on test images that are all moved by one length.

    "eigenvector" moves all images along the strongest eigenvector of one class, and is the mean over all classes and
    both ways; the controls are "noise", a Gaussian vector of its own for each image, scaled to the same length, and
    "random", one random vector for all images, each the mean over `draws` of them.

    Parameters
    ----------
    net : Layer
    linear, quadratic : Polynomial
        Its polynomials of degree 1 and 2.
    images : array (n, d)
        The noise evaluates the quadratic on all of them 2 `draws` times; pass fewer if time matters.
    labels : integers (n,)
    seed : int
        Of the controls; goes to the records.
    strengths : sequence of float
        Lengths, in units of the mean distance of the images from their mean.
    draws : int
    inputs : Gaussian, optional
        Take the strongest eigenfeature in the metric of these inputs, see `mlpoly.studies.paper.features.feature_step`.

    Returns
    -------
    list of Steering
        "eigenvector" for each strength, then "noise", then "random".
    """
    case = _case(net, linear, quadratic, images, labels)
    seed, draws, lengths = as_integer("seed", seed, 0), as_integer("draws", draws, 1), tuple(map(float, strengths))
    if not lengths or not all(0 <= s < np.inf for s in lengths):
        raise ValueError(f"strengths must be lengths of at least 0, got {lengths}.")
    xp, wide = namespace(images=case.images), widen(case.images)
    radius = scalar(xp.mean(xp.sqrt(xp.sum((wide - xp.mean(wide, axis=0)) ** 2, axis=1))))
    universal = unit(np.random.default_rng([seed, _RANDOM]).standard_normal((draws, net.dim_in)))
    noise = np.random.default_rng([seed, _NOISE])
    seen = (quadratic, case.images)
    attacks = {
        "eigenvector": ((1, -1), universal_lines(*seen, radius * strongest(quadratic, inputs))),
        "noise": ((1,), noise_lines(*seen, case.base, radius, noise, draws)),
        "random": ((1,), universal_lines(*seen, radius * universal)),
    }
    found: list[Steering] = []
    for name, (signs, lines) in attacks.items():
        table = [[_measured(case, line, sign * s) for s in lengths] for line in lines for sign in signs]
        means = np.mean(table, axis=0)
        for s, row in zip(lengths, means, strict=True):
            network, first, second, unexplained, divergence = (float(a) for a in row)
            found.append(Steering(seed, name, s, network, first, second, unexplained, divergence))
    return found


# -- what comes in -----------------------------------------------------------------------------------------------------


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


# -- measuring ---------------------------------------------------------------------------------------------------------


def _accuracies_without(case: _Case, basis: Array) -> list[list[float]]:
    """Accuracies of network, linear and quadratic without the first 0, 1, ... rows of `basis`."""
    within, coordinates = span(case.quadratic, case.images, basis), widen(case.images) @ widen(basis).T
    found = []
    for k in range(basis.shape[0] + 1):
        left = ablate(case.images, basis[:k, :])
        removed = coordinates * constant(np.arange(basis.shape[0]) < k, coordinates)
        found.append(_accuracies(case, case.net(left), case.linear(left), case.base + within.change(-removed)))
    return found


def _measured(case: _Case, line: Line, t: float) -> list[float]:
    """Accuracies of network, linear and quadratic, FVU and KL of the quadratic, t along the line."""
    moved = case.images + t * line.move
    logits, quadratic = widen(case.net(moved)), case.base + t * line.slope + t**2 * line.bend
    fidelity = [float(fvu_of_outputs(logits, quadratic)), float(kl_of_outputs(logits, quadratic))]
    return _accuracies(case, logits, case.linear(moved), quadratic) + fidelity


def _accuracies(case: _Case, *logits: Array) -> list[float]:
    """Accuracy of each table of logits (n, o)."""
    return [float(accuracy_of_outputs(widen(table), case.labels)) for table in logits]
