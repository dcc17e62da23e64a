"""Records of what a reproduction found, one per measurement; tables, figures and the report are made from them."""

from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np

from mlpoly.studies.study import Study


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

    `inputs` are those it was fitted under: "standard" is N(0, I), "gaussian" N(mean, cov) of the training images,
    "mixture" one Gaussian per class, "paper" the paper's own route to the mixture (N(0, I), then SGD on samples of it).
    """

    seed: int
    step: int
    degree: int
    inputs: str
    fvu_own: float  # closed form, under the inputs of the fit; NaN for "paper", which was fitted on samples
    fvu_mixture: float  # closed form, under the class mixture
    fvu_flattened: float  # the same in the convention of the paper's code (variance over the flattened logits)
    fvu_samples: float  # on fresh samples of the mixture
    fvu_samples_error: float  # standard error
    fvu_test: float  # on the test images
    fvu_test_error: float
    kl_samples: float  # mean KL(softmax f || softmax p), in nats
    kl_samples_error: float
    kl_test: float
    kl_test_error: float
    accuracy: float  # fraction of the test images that it gets right
    agreement: float  # fraction of the test images on which it chooses the same class as the network
    iterations: int  # of the mixture solver, or steps of SGD; 0 for closed forms
    seconds: float  # of the fit


@dataclass(frozen=True)
class Spectrum:
    """Fractions of the network's variance by polynomial degree at one checkpoint; they sum to one."""

    seed: int
    step: int
    inputs: str  # "gaussian" or "mixture"
    shares: tuple[float, ...]  # degree 1, 2, ..., 6
    rest: float  # above
    between: float  # between the means of the classes; zero under one Gaussian


@dataclass(frozen=True)
class FeatureStep:
    """Features of one class at one checkpoint, by its polynomials under the mixture (figure 1)."""

    step: int
    label: int
    positive: np.ndarray  # (k,), eigenvalues of largest magnitude, strongest first
    negative: np.ndarray
    # (k, d), their patterns: the change of the pixels along a feature by one standard deviation of the training images
    positive_vectors: np.ndarray
    negative_vectors: np.ndarray
    linear: np.ndarray  # (d,), coefficients of the best linear map
    spectrum: np.ndarray  # (d,) or fewer: all eigenvalues, descending


@dataclass(frozen=True)
class Features:
    """Figure 1 for every class."""

    seed: int
    steps: tuple[FeatureStep, ...]


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
class AttackPictures:
    """Figure 4."""

    ladder: np.ndarray  # (k + 1, d), one image with 0, 1, ..., k directions removed
    ladder_label: int
    ladder_choices: tuple[int, ...]  # the network's choice for each of them
    digits: np.ndarray  # (c, d), one image of each class
    ablated: np.ndarray  # (c, d), the same without all singular directions
    labels: tuple[int, ...]  # their classes
    choices: tuple[int, ...]  # the network's choices for the ablated ones


@dataclass(frozen=True)
class Attack:
    """Figures 4 and 5, of one checkpoint."""

    ablations: tuple[Ablation, ...]
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
    """All results, in the order of the pipeline; pictures and labels are those of the data in `about`."""

    about: dict[str, Any] = field(default_factory=dict)  # see `mlpoly.studies.study.Study`
    training: tuple[TrainingPoint, ...] = ()
    dynamics: tuple[Point, ...] = ()
    spectra: tuple[Spectrum, ...] = ()
    features: Features | None = None
    attack: tuple[Attack, ...] = ()  # of every seed and attacked checkpoint, the last checkpoint first
    claims: tuple[Claim, ...] = ()


def read_results(folder: str | PathLike[str]) -> Results:
    """Read the results of a study, finished or not, from its folder."""
    return Study.open(folder, Results).results
