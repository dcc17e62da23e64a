"""What the checkpoints of a study share: the inputs they are fitted under, and the images they are judged on."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch

from mlpoly.arrays import as_integer
from mlpoly.inputs import Gaussian, GaussianMixture
from mlpoly.networks import Layer
from mlpoly.studies.paper.checkpoints import Run
from mlpoly.studies.paper.data import Images

__all__ = ["Bench", "DynamicsConfig"]


@dataclass(frozen=True)
class DynamicsConfig:
    """How to fit and judge.

    Attributes
    ----------
    shrinkage : float
        Of the class covariances towards a multiple of the identity. Those of MNIST are singular, and without it the
        optimum under the mixture has no reason to behave on test images, which leave the range of a class.
    samples : int
        Of the mixture, drawn afresh for every checkpoint, for the sampled curves.
    tolerance : float
        Of the mixture solver, see `mlpoly.fit`.
    max_degree : int
        Degrees told apart in the spectrum.
    paper_steps : int
        Steps of SGD on the paper's own route to the quadratic under the mixture; 0 leaves it out.
    """

    shrinkage: float = 0.01
    samples: int = 20_000
    tolerance: float = 1e-3
    max_degree: int = 6
    paper_steps: int = 200

    def __post_init__(self) -> None:
        for name, least in (("samples", 2), ("max_degree", 1), ("paper_steps", 0)):
            as_integer(name, getattr(self, name), least)
        if not 0 <= self.shrinkage <= 1:
            raise ValueError(f"shrinkage must lie between 0 and 1, got {self.shrinkage}.")
        if not (self.tolerance >= 0 and math.isfinite(self.tolerance)):
            raise ValueError(f"tolerance must be a number >= 0, got {self.tolerance}.")


class Bench:
    """What all checkpoints of a study share: the inputs they are fitted under, and the images they are judged on.

    Attributes
    ----------
    mixture, gaussian, standard : inputs
    metric : Gaussian
        All training images as one Gaussian, shrunk like the classes, by which features are ranked.
    test, test_labels : tensor (n, d) and (n,)
    fingerprint : str
        Of training and test images.
    """

    def __init__(self, images: Images, config: DynamicsConfig, device: str = "cpu") -> None:
        self.config, self.device = config, device
        train = torch.tensor(images.train, dtype=torch.float64, device=device)
        self.mixture = GaussianMixture.from_labels(train, images.train_labels, shrinkage=config.shrinkage)
        self.gaussian = Gaussian.from_samples(train)
        self.metric = Gaussian.from_samples(train, shrinkage=config.shrinkage)
        self.standard = Gaussian.standard(train.shape[1], like=train)
        self.test = torch.tensor(images.test, dtype=torch.float64, device=device)
        self.test_labels = images.test_labels
        judged_on = images.test.tobytes() + images.test_labels.tobytes()
        self.fingerprint = hashlib.sha256(self.mixture.fingerprint.encode() + judged_on).hexdigest()
        self.dim, self.outputs = train.shape[1], int(images.train_labels.max()) + 1

    def net(self, run: Run, step: int) -> Layer:
        """The network at a checkpoint of a run, whose shape must be that of the data."""
        return run.net(step, self.device, self.dim, self.outputs)
