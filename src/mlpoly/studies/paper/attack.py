"""Adversarial attacks made from the polynomials, carried out on the network (figures 4 and 5; MATH 7).

One change is applied to all test images: directions are removed from them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from mlpoly.arrays import Array, constant, namespace, promote, to_numpy, widen
from mlpoly.features import ablate, singular_directions
from mlpoly.networks import Layer
from mlpoly.polynomials import Polynomial
from mlpoly.scores import accuracy_of_outputs
from mlpoly.studies.paper.results import Ablation, AttackPictures


class AttackCase:
    """A network, its polynomials of degree 1 and 2, and images (n, d) with labels (n,)."""

    def __init__(self, net: Layer, linear: Polynomial, quadratic: Polynomial, images: Array, labels: Any) -> None:
        self.net, self.linear, self.quadratic, self.images = net, linear, quadratic, images
        self.labels = to_numpy(labels).astype(np.int64)


def ablation_curve(case: AttackCase, covariance: Array, *, seed: int, step: int = 0, draws: int = 3) -> list[Ablation]:
    """Accuracy on images without their first k directions, k = 0, 1, ..., as many as the linear map has.

    "singular" removes singular directions of the linear coefficients (the attack). The controls are "random",
    orthonormal directions, the mean over `draws` of them, and "pca", principal directions of the covariance (d, d) of
    the training images. Records come in this order.
    """
    singular = singular_directions(case.linear).vectors
    count, d = singular.shape
    rng = np.random.default_rng([seed, 0])
    random = [np.linalg.qr(rng.standard_normal((d, count)))[0].T for _ in range(draws)]
    principal = np.linalg.eigh(to_numpy(widen(covariance)))[1]  # by ascending variance, in columns
    bases = {
        "singular": [singular],
        "random": [constant(basis, case.images) for basis in random],
        "pca": [constant(principal[:, ::-1][:, :count].T, case.images)],
    }
    found: list[Ablation] = []
    for name, group in bases.items():
        table = [
            [
                [float(accuracy_of_outputs(widen(f), case.labels)) for f in (case.net(x), case.linear(x), quadratic)]
                for x, quadratic in _ablated(case, basis)
            ]
            for basis in group
        ]
        mean = np.mean(table, axis=0)
        found += [Ablation(seed, name, k, f, p1, p2, step) for k, (f, p1, p2) in enumerate(mean.tolist())]
    return found


def _ablated(case: AttackCase, basis: Array) -> Iterator[tuple[Array, Array]]:
    """Images without the first 0, 1, ... rows of `basis` (k, d), and the quadratic's logits on them.

    The quadratic is evaluated on all images once; what one change of all images does to it is then known exactly,
    p(x + a B) = p(x) + a (B grad p(x)) + a (B Q B') a' for directions B and coordinates a (k,).
    """
    poly, images, xp = case.quadratic, case.images, namespace(images=case.images)
    base, wide = widen(poly(images)), widen(images)
    centre = xp.mean(wide, axis=0)
    forms, rows = promote(poly.coefficients().quadratic, widen(basis))
    turned = forms @ rows.T  # (o, d, k)
    # The gradient at the centre along the directions: the odd part of a quadratic about it.
    at_centre = (poly(centre + rows) - poly(centre - rows)) / 2  # (k, o)
    slopes = 2 * xp.tensordot(wide - centre, turned, axes=([1], [1])) + at_centre.T  # (n, o, k)
    bends = xp.tensordot(rows, turned, axes=([1], [1]))  # (k, o, k)
    coordinates = wide @ widen(basis).T
    for k in range(basis.shape[0] + 1):
        moves = -coordinates * constant(np.arange(basis.shape[0]) < k, coordinates)
        change = xp.sum((slopes + xp.tensordot(moves, bends, axes=1)) * moves[:, None, :], axis=-1)
        yield ablate(images, basis[:k, :]), base + change


def ablation_pictures(case: AttackCase, label: int = 3) -> AttackPictures:
    """Images without singular directions of the linear polynomial, in NumPy's float32.

    Every class is shown by the first image that the network gets right, or by its first image if there is none. The
    one of the class `label` loses the directions one by one.
    """
    images, xp = case.images, namespace(images=case.images)

    def choices(x: Array) -> np.ndarray:
        return to_numpy(xp.argmax(case.net(x), axis=-1)).astype(np.int64)

    # Right ones first, and in the order given among these.
    order = np.argsort(choices(images) != case.labels, kind="stable")
    first = {int(c): int(order[np.argmax(case.labels[order] == c)]) for c in np.unique(case.labels)}
    basis = singular_directions(case.linear).vectors
    ladder = xp.stack([ablate(images[first[label], :], basis[:k, :]) for k in range(basis.shape[0] + 1)])
    digits = xp.stack([images[i, :] for i in first.values()])
    ablated = ablate(digits, basis)
    return AttackPictures(
        ladder=to_numpy(ladder).astype(np.float32),
        ladder_label=label,
        ladder_choices=tuple(choices(ladder).tolist()),
        digits=to_numpy(digits).astype(np.float32),
        ablated=to_numpy(ablated).astype(np.float32),
        labels=tuple(first),
        choices=tuple(choices(ablated).tolist()),
    )
