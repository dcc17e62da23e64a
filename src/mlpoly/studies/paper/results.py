"""What a reproduction found: plain records, one per measurement, that tables, figures and the report are made from.

Every number is a float, so that the records go to CSV and JSON as they are; images are arrays and go to safetensors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = [
    "Ablation",
    "Attack",
    "AttackPictures",
    "Claim",
    "Contribution",
    "Explanation",
    "FeatureStep",
    "Features",
    "Formula",
    "Point",
    "Results",
    "Spectrum",
    "Steering",
    "Term",
    "TrainingPoint",
]


@dataclass(frozen=True)
class TrainingPoint:
    """The network at one checkpoint."""

    seed: int
    step: int
    train_loss: float  # mean cross-entropy on the training images (a fixed part of them if they are many), in nats
    test_loss: float
    train_accuracy: float
    test_accuracy: float


@dataclass(frozen=True)
class Point:
    """One polynomial against the network at one checkpoint (figures 2 and 3).

    Attributes
    ----------
    seed, step, degree : int
    inputs : str
        What it was fitted under: "standard" is N(0, I), "gaussian" N(mean, cov) of the training images, "mixture" one
        Gaussian per class, "paper" the paper's own route to the mixture (N(0, I), then SGD on samples of it).
    fvu_own : float
        Closed form, under what it was fitted under; NaN for "paper", which was fitted on samples.
    fvu_mixture : float
        Closed form, under the class mixture.
    fvu_flattened : float
        The same in the convention of the paper's code (variance over the flattened logits).
    fvu_samples, fvu_samples_error : float
        On fresh samples of the mixture, with its standard error.
    fvu_test, fvu_test_error : float
        On the test images.
    kl_samples, kl_samples_error, kl_test, kl_test_error : float
        Mean KL(softmax f || softmax p), in nats.
    accuracy, agreement : float
        On the test images: how often right, how often the network's choice.
    iterations : int
        Of the mixture solver, or steps of SGD; 0 for closed forms.
    seconds : float
        That the fit took.
    """

    seed: int
    step: int
    degree: int
    inputs: str
    fvu_own: float
    fvu_mixture: float
    fvu_flattened: float
    fvu_samples: float
    fvu_samples_error: float
    fvu_test: float
    fvu_test_error: float
    kl_samples: float
    kl_samples_error: float
    kl_test: float
    kl_test_error: float
    accuracy: float
    agreement: float
    iterations: int
    seconds: float


@dataclass(frozen=True)
class Spectrum:
    """Shares of the network's variance by polynomial degree at one checkpoint; they sum to one."""

    seed: int
    step: int
    inputs: str  # "gaussian" or "mixture"
    shares: tuple[float, ...]  # degree 1, 2, ..., 6
    rest: float  # above
    between: float  # between the means of the classes; zero under one Gaussian


@dataclass(frozen=True)
class FeatureStep:
    """What one class reads at one checkpoint, by the quadratic and the linear polynomial under the mixture (figure 1).

    Attributes
    ----------
    step, label : int
    positive, negative : array (k,)
        Eigenvalues of largest magnitude of either sign, strongest first.
    positive_vectors, negative_vectors : array (k, d)
        Their patterns: unit eigenvectors, or, in the metric of the training images, the change of the pixels along a
        feature by one standard deviation.
    linear : array (d,)
        Coefficients of the best linear map.
    spectrum : array (d,) or fewer
        All eigenvalues, descending.
    """

    step: int
    label: int
    positive: np.ndarray
    negative: np.ndarray
    positive_vectors: np.ndarray
    negative_vectors: np.ndarray
    linear: np.ndarray
    spectrum: np.ndarray


@dataclass(frozen=True)
class Contribution:
    """What one eigenfeature added to one logit of one image: value * (vector . x)^2, about the mean image."""

    eigenvalue: float
    amount: float
    vector: np.ndarray  # (d,)


@dataclass(frozen=True)
class Explanation:
    """One image taken apart: constant + linear + all quadratic contributions = the polynomial's logit.

    Attributes
    ----------
    image : array (d,)
    label, output : int
        The class it is, and the class whose logit is explained.
    network, polynomial : float
        The logits.
    constant, linear, quadratic : float
        Parts of the polynomial's logit, expanded about the mean of the training images; they sum to it.
    top : tuple of Contribution
        The quadratic contributions of largest magnitude.
    """

    image: np.ndarray
    label: int
    output: int
    network: float
    polynomial: float
    constant: float
    linear: float
    quadratic: float
    top: tuple[Contribution, ...]


@dataclass(frozen=True)
class Term:
    """A monomial of a polynomial in pixels, each minus its mean over the training images."""

    pixels: tuple[int, ...]  # none for the constant, one, or two; the same twice for a square
    coefficient: float
    effect: float  # standard deviation of the term over the training images, taken as one Gaussian


@dataclass(frozen=True)
class Formula:
    """The quadratic of one class at the last checkpoint, written out."""

    label: int
    count: int  # number of all its terms
    strongest: tuple[Term, ...]  # of one pixel and of two, by effect
    strongest_fvu: float  # fraction of the logit's variance that these leave unexplained
    small: tuple[Term, ...]  # every term of the best quadratic in a few pixels
    small_fvu: float


@dataclass(frozen=True)
class Features:
    """Figure 1 for every class, a few images explained, and the quadratics at the last checkpoint written out."""

    seed: int
    steps: tuple[FeatureStep, ...]
    explanations: tuple[Explanation, ...]
    formulas: tuple[Formula, ...] = ()


@dataclass(frozen=True)
class Ablation:
    """Accuracy on test images without k directions (figure 5)."""

    seed: int
    directions: str  # "singular" (of the linear polynomial), "random" (control, the mean over draws) or "pca" (control)
    k: int
    network: float  # accuracies
    linear: float
    quadratic: float
    step: int = 0  # of the checkpoint


@dataclass(frozen=True)
class Steering:
    """Accuracy when every test image is moved by `strength` along an eigenvector, or by noise of the same length.

    Attributes
    ----------
    strength : float
        Length of the move, in units of the mean distance of test images from their mean.
    direction : str
        "eigenvector" (the strongest of one class, the mean over all classes and both ways), or a control, the mean over
        several draws: "noise" (a vector of its own for each image) or "random" (one random vector for all images).
    network, linear, quadratic : float
        Accuracies.
    fvu, kl : float
        Of the quadratic against the network on the moved images.
    """

    seed: int
    direction: str
    strength: float
    network: float
    linear: float
    quadratic: float
    fvu: float
    kl: float
    step: int = 0


@dataclass(frozen=True)
class AttackPictures:
    """Figure 4."""

    ladder: np.ndarray  # (k + 1, d), one image with 0, 1, ..., k directions removed
    ladder_label: int
    ladder_choices: tuple[int, ...]  # what the network calls each of them
    digits: np.ndarray  # (c, d), one image of each class
    ablated: np.ndarray  # (c, d), the same without all singular directions
    labels: tuple[int, ...]  # their classes
    choices: tuple[int, ...]  # what the network calls the ablated ones


@dataclass(frozen=True)
class Attack:
    """Figures 4 and 5 and the steering attack, of one checkpoint."""

    ablations: tuple[Ablation, ...]
    steering: tuple[Steering, ...]
    pictures: AttackPictures
    step: int = 0


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper beside what was measured."""

    name: str  # short, for the table
    paper: str  # what the paper says, in our words, with its section
    measured: str  # one sentence with the numbers, over all seeds
    holds: bool | None  # None where it cannot be judged on this data or length of training
    figure: str  # anchor of the figure in the report that shows it: "fvu", "kl", "features", "attack", "spectrum"


@dataclass(frozen=True)
class Results:
    """Everything, in the order of the pipeline.

    Attributes
    ----------
    about : dict
        JSON-ready: "version", "command" (to rerun it), "config" (every option), "data" (name, counts, "image_shape",
        "classes"), "machine", "seconds" (by stage).
    """

    about: dict[str, Any]
    training: tuple[TrainingPoint, ...]
    dynamics: tuple[Point, ...]
    spectra: tuple[Spectrum, ...]
    features: Features | None = None
    attack: tuple[Attack, ...] = ()  # of every seed and attacked checkpoint, the last checkpoint first
    claims: tuple[Claim, ...] = field(default=())
