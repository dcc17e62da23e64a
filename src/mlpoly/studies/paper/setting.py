"""The setting that all checkpoints of a study share: the inputs of the fits, and the images that they are judged on."""

from __future__ import annotations

import hashlib

import torch

from mlpoly.inputs import Gaussian, GaussianMixture
from mlpoly.networks import Layer
from mlpoly.studies.paper.checkpoints import TrainingRun
from mlpoly.studies.paper.images import Images
from mlpoly.studies.paper.options import DynamicsConfig

__all__ = ["Setting"]


class Setting:
    """Inputs of the fits, and images that they are judged on, as tensors on a device.

    Attributes
    ----------
    mixture, gaussian, standard : inputs
    metric : Gaussian
        All training images as one Gaussian, shrunk like the classes, by which features are ranked.
    test, test_labels : tensor (n, d) and array (n,)
    fingerprint : str
        SHA-256 of the mixture and the test images.
    dim, outputs : int
        Numbers of pixels and classes.
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

    def net(self, run: TrainingRun, step: int) -> Layer:
        """The network at a checkpoint of a run, whose shape must be that of the data."""
        return run.net(step, self.device, self.dim, self.outputs)
