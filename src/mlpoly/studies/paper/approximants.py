"""The polynomials of one checkpoint, exact under three inputs and by the paper's own route, and their setting."""

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from mlpoly.datasets import Images
from mlpoly.fitting import finetune, fit
from mlpoly.fitting.methods import Exact
from mlpoly.inputs import Gaussian, GaussianMixture
from mlpoly.networks import Layer
from mlpoly.polynomials import DensePolynomial, Polynomial
from mlpoly.polynomials.dense import to_dense
from mlpoly.studies.paper.checkpoints import TrainingRun
from mlpoly.studies.paper.options import DynamicsConfig


class Setting:
    """Inputs of the fits of a study, and images that they are judged on, as tensors on a device."""

    def __init__(self, images: Images, config: DynamicsConfig, device: str = "cpu") -> None:
        self.config, self.device = config, device
        train = torch.tensor(images.train, dtype=torch.float64, device=device)
        self.mixture = GaussianMixture.from_labels(train, images.train_labels, shrinkage=config.shrinkage)
        self.gaussian = Gaussian.from_samples(train)
        self.standard = Gaussian.standard(train.shape[1], like=train)
        # All training images as one Gaussian, shrunk like the classes, by which features are ranked.
        self.metric = Gaussian.from_samples(train, shrinkage=config.shrinkage)
        self.test = torch.tensor(images.test, dtype=torch.float64, device=device)  # (n, d)
        self.test_labels = images.test_labels
        judged_on = images.test.tobytes() + images.test_labels.tobytes()
        self.fingerprint = hashlib.sha256(self.mixture.fingerprint.encode() + judged_on).hexdigest()

    def net(self, run: TrainingRun, step: int) -> Layer:
        """The network at a checkpoint of a run."""
        return run.net(step, self.device)


class Fit(NamedTuple):
    """A polynomial, the inputs that it was fitted under (see `Point.inputs`), and the seconds that it took."""

    poly: Any
    inputs: str
    seconds: float


def approximants(net: Layer, setting: Setting, start: Polynomial | None, seed: int) -> Iterator[Fit]:
    """Linear and quadratic polynomials under N(0, I), N(mean, cov) and the mixture, then the paper's quadratic.

    `start` is where the mixture solver begins; `seed` is that of the samples of the paper's route.
    """
    for name, inputs in (("standard", setting.standard), ("gaussian", setting.gaussian)):
        quadratic, seconds = _timed(fit, net, inputs, 2)
        # Under one Gaussian the best linear map is a part of the best quadratic.
        yield Fit(quadratic.truncate(1), name, seconds)
        yield Fit(quadratic, name, seconds)
    linear, seconds = _timed(fit, net, setting.mixture, 1)
    yield Fit(linear, "mixture", seconds)
    method = Exact(setting.config.tolerance, start=start)
    quadratic, seconds = _timed(fit, net, setting.mixture, 2, method=method)
    yield Fit(quadratic, "mixture", seconds)
    if setting.config.paper_steps:
        tuned, seconds = _timed(_papers_route, net, setting, seed)
        yield Fit(tuned, "paper", seconds)


def _papers_route(net: Layer, setting: Setting, seed: int) -> DensePolynomial:
    """The closed form under N(0, I), then schedule-free SGD on samples of the mixture (the paper's appendix B).

    In float32, as there: SGD is noisy by far more than rounding.
    """
    single = net.prototype.new_zeros((), dtype=torch.float32)
    start = to_dense(fit(net, setting.standard, 2), setting.mixture.mean).to(single)
    samples_of, steps = setting.mixture, setting.config.paper_steps
    tuned = finetune(net.to(single), start, samples_of, steps=steps, seed=seed)
    assert isinstance(tuned, DensePolynomial)  # as the start is
    return tuned.to(net.prototype)


def _timed(work: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, float]:
    """A solver's answer and its seconds; an interrupt, which solvers answer with their best, ends the study."""
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = work(*arguments, **options)
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    if any("interrupted" in str(w.message) for w in caught):
        raise KeyboardInterrupt
    for w in caught:
        warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
    return made, time.perf_counter() - began
