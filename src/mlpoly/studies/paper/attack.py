"""Adversarial attacks made from the polynomials, carried out on the network (figures 4 and 5; MATH 7).

One change is applied to all test images: directions are removed from them, or they are moved along a direction.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mlpoly.arrays import Array, constant, namespace, promote, scalar, to_numpy, widen
from mlpoly.features import ablate, singular_directions
from mlpoly.inputs import Gaussian
from mlpoly.networks import Layer
from mlpoly.polynomials import Polynomial
from mlpoly.scores import accuracy_of_outputs, fvu_of_outputs, kl_of_outputs
from mlpoly.studies.paper.class_features import decisions, eigenpairs, quadratic_part
from mlpoly.studies.paper.results import Ablation, AttackPictures, Steering

_STRENGTHS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
_ABLATION, _NOISE, _RANDOM = range(3)  # independent streams of random numbers for one seed


class AttackCase:
    """A network, its polynomials of degree 1 and 2, and images (n, d) with labels (n,)."""

    def __init__(self, net: Layer, linear: Polynomial, quadratic: Polynomial, images: Array, labels: Any) -> None:
        self.net, self.linear, self.quadratic, self.images = net, linear, quadratic, images
        self.labels = to_numpy(labels).astype(np.int64)
        self.base = widen(quadratic(images))  # (n, o), logits of the quadratic before the attack

    def accuracies(self, *logits: Array) -> list[float]:
        """Accuracy of each table of logits (n, o)."""
        return [float(accuracy_of_outputs(widen(table), self.labels)) for table in logits]


# -- ablation ----------------------------------------------------------------------------------------------------------


def ablation_curve(case: AttackCase, covariance: Array, *, seed: int, step: int = 0, draws: int = 3) -> list[Ablation]:
    """Accuracy on images without their first k directions, k = 0, 1, ..., as many as the linear map has.

    "singular" removes singular directions of the linear coefficients (the attack). The controls are "random",
    orthonormal directions, the mean over `draws` of them, and "pca", principal directions of the covariance (d, d) of
    the training images. Records come in this order.
    """
    found: list[Ablation] = []
    for name, bases in _bases(case, covariance, seed, draws).items():
        table = [[case.accuracies(case.net(x), case.linear(x), q) for x, q in _ablated(case, b)] for b in bases]
        mean = np.mean(table, axis=0)
        found += [Ablation(seed, name, k, f, p1, p2, step) for k, (f, p1, p2) in enumerate(mean.tolist())]
    return found


def _bases(case: AttackCase, covariance: Array, seed: int, draws: int) -> dict[str, list[Array]]:
    """Orthonormal directions (k, d) of every kind."""
    singular = singular_directions(case.linear).vectors
    count, d = singular.shape
    rng = np.random.default_rng([seed, _ABLATION])
    random = [np.linalg.qr(rng.standard_normal((d, count)))[0].T for _ in range(draws)]
    principal = np.linalg.eigh(to_numpy(widen(covariance)))[1]  # by ascending variance, in columns
    return {
        "singular": [singular],
        "random": [constant(basis, case.images) for basis in random],
        "pca": [constant(principal[:, ::-1][:, :count].T, case.images)],
    }


def _ablated(case: AttackCase, basis: Array) -> Iterator[tuple[Array, Array]]:
    """Images without the first 0, 1, ... rows of `basis`, and the quadratic's logits on them."""
    xp, (slopes, bends) = namespace(images=case.images), _along(case, basis)
    coordinates = widen(case.images) @ widen(basis).T
    for k in range(basis.shape[0] + 1):
        moves = -coordinates * constant(np.arange(basis.shape[0]) < k, coordinates)
        change = xp.sum((slopes + xp.tensordot(moves, bends, axes=1)) * moves[:, None, :], axis=-1)
        yield ablate(case.images, basis[:k, :]), case.base + change


def ablation_pictures(case: AttackCase, label: int = 3) -> AttackPictures:
    """Images without singular directions of the linear polynomial, in NumPy's float32.

    Every class is shown by the first image that the network gets right, or by its first image if there is none. The
    one of the class `label` loses the directions one by one.
    """
    net, images = case.net, case.images
    # Right ones first, and in the order given among these.
    order = np.argsort(decisions(net, images) != case.labels, kind="stable")
    first = {int(c): int(order[np.argmax(case.labels[order] == c)]) for c in np.unique(case.labels)}
    xp, basis = namespace(images=images), singular_directions(case.linear).vectors
    ladder = xp.stack([ablate(images[first[label], :], basis[:k, :]) for k in range(basis.shape[0] + 1)])
    digits = xp.stack([images[i, :] for i in first.values()])
    ablated = ablate(digits, basis)
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
    case: AttackCase,
    inputs: Gaussian | None = None,
    *,
    seed: int,
    step: int = 0,
    draws: int = 3,
    strengths: Sequence[float] = _STRENGTHS,
) -> list[Steering]:
    """Accuracy and fidelity on images that are all moved by one length.

    "eigenvector" moves all images along the strongest eigenvector of one class, in the metric of `inputs`, and is the
    mean over all classes and both signs. The controls are "noise", a Gaussian vector of its own for each image, scaled
    to the same length, and "random", one random vector for all images, each the mean over `draws`. Records come in this
    order. `strengths` are lengths in units of the mean distance of the images from their mean.
    """
    xp, wide, part = namespace(images=case.images), widen(case.images), quadratic_part(case.quadratic)
    radius = scalar(xp.mean(xp.sqrt(xp.sum((wide - xp.mean(wide, axis=0)) ** 2, axis=1))))
    strongest = _unit(np.stack([eigenpairs(part, c, 1, inputs)[2][0] for c in range(part.dim_out)]))
    universal = _unit(np.random.default_rng([seed, _RANDOM]).standard_normal((draws, part.dim_in)))
    noise = np.random.default_rng([seed, _NOISE])
    attacks = {
        "eigenvector": ((1, -1), _universal_lines(case, radius * strongest)),
        "noise": ((1,), _noise_lines(case, radius, noise, draws)),
        "random": ((1,), _universal_lines(case, radius * universal)),
    }
    found: list[Steering] = []
    for name, (signs, lines) in attacks.items():
        table = [[_measured(case, line, sign * s) for s in strengths] for line in lines for sign in signs]
        for s, (network, first, second, fvu, kl) in zip(strengths, np.mean(table, axis=0).tolist(), strict=True):
            found.append(Steering(seed, name, s, network, first, second, fvu, kl, step))
    return found


def _measured(case: AttackCase, line: "_Line", t: float) -> list[float]:
    """Accuracies of network, linear and quadratic, FVU and KL of the quadratic, t along the line."""
    moved = case.images + t * line.move
    logits, quadratic = widen(case.net(moved)), case.base + t * line.slope + t**2 * line.bend
    fidelity = [float(fvu_of_outputs(logits, quadratic)), float(kl_of_outputs(logits, quadratic))]
    return case.accuracies(logits, case.linear(moved), quadratic) + fidelity


# -- the quadratic on moved images -------------------------------------------------------------------------------------


def _along(case: AttackCase, rows: Array) -> tuple[Array, Array]:
    """Slopes (n, o, k) of the quadratic at each image along directions (k, d), and its bends (k, o, k) between them.

    The quadratic is evaluated on all images once; what one change of all images does to it is then known exactly,
    p(x + a B) = p(x) + a (B grad p(x)) + a (B Q B') a' for directions B and coordinates a (k,), so that curves over
    many directions, draws and strengths cost little more than one evaluation.
    """
    poly, xp, wide = case.quadratic, namespace(images=case.images), widen(case.images)
    centre = xp.mean(wide, axis=0)
    forms, rows = promote(poly.coefficients().quadratic, widen(rows))
    turned = forms @ rows.T  # (o, d, k)
    # The gradient at the centre along the directions: the odd part of a quadratic about it.
    at_centre = (poly(centre + rows) - poly(centre - rows)) / 2  # (k, o)
    slopes = 2 * xp.tensordot(wide - centre, turned, axes=([1], [1])) + at_centre.T
    return slopes, xp.tensordot(rows, turned, axes=([1], [1]))


class _Line(NamedTuple):
    """Images moved along a line, and how the quadratic changes: slope t + bend t^2 at images + t move."""

    move: Array  # (d,) or (n, d)
    slope: Array  # (n, o)
    bend: Array  # (o,) or (n, o)


def _universal_lines(case: AttackCase, moves: np.ndarray) -> Iterator[_Line]:
    """One line for each row of `moves` (k, d), the same for all images."""
    rows = constant(moves, case.images)
    slopes, bends = _along(case, rows)
    for j in range(moves.shape[0]):
        yield _Line(rows[j, :], slopes[:, :, j], bends[j, :, j])


def _noise_lines(case: AttackCase, length: float, rng: np.random.Generator, draws: int) -> Iterator[_Line]:
    """A line of its own for every image, along a Gaussian vector scaled to `length`, `draws` times."""
    for _ in range(draws):
        move = constant(length * _unit(rng.standard_normal(tuple(case.images.shape))), case.images)
        # Three points on a line determine the quadratic there.
        up, down = (widen(case.quadratic(case.images + sign * move)) for sign in (1, -1))
        yield _Line(move, (up - down) / 2, (up + down) / 2 - case.base)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
