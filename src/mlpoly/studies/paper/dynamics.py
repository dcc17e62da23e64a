"""How the network's polynomials change while it is trained (the paper's sections 4.1 and 4.2, figures 2 and 3).

The polynomials of a checkpoint are exact under three inputs, and found by the paper's own route. Finished checkpoints
are on disk at once: a killed study resumes after the last one.
"""

import hashlib
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mlpoly.arrays import scalar, to_numpy
from mlpoly.codec import from_plain, to_plain
from mlpoly.datasets import Images
from mlpoly.files import make_folder, read_json, write_json
from mlpoly.fitting import finetune, fit
from mlpoly.fitting.methods import Exact
from mlpoly.inputs import Gaussian, GaussianMixture
from mlpoly.measures import compare, degree_spectrum, fvu
from mlpoly.networks import Layer
from mlpoly.polynomials import Polynomial, load
from mlpoly.polynomials.dense import to_dense
from mlpoly.progress_bars import progress_bar
from mlpoly.records import replace
from mlpoly.studies.paper.options import DynamicsConfig
from mlpoly.studies.paper.results import Point, Spectrum
from mlpoly.studies.paper.training import TrainingRun


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
        # The closed form under N(0, I), then schedule-free SGD on samples of the mixture (the paper's appendix B); in
        # float32, as there: SGD is noisy by far more than rounding.
        single = net.prototype.new_zeros((), dtype=torch.float32)

        def papers_route() -> Polynomial:
            start = to_dense(fit(net, setting.standard, 2), setting.mixture.mean).to(single)
            return finetune(net.to(single), start, setting.mixture, steps=setting.config.paper_steps, seed=seed)

        tuned, seconds = _timed(papers_route)
        yield Fit(tuned.to(net.prototype), "paper", seconds)


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


@dataclass(frozen=True)
class _Judged:
    """One checkpoint on disk, with all that its numbers depend on."""

    origin: dict[str, Any]
    points: tuple[Point, ...]
    spectra: tuple[Spectrum, ...]


def dynamics(run: TrainingRun, setting: Setting, folder: str | Path) -> tuple[list[Point], list[Spectrum]]:
    """Fit and judge every checkpoint of a run, in a folder for one JSON file and two polynomials of each.

    Checkpoints that are finished there, of the same weights, data and options, are read and not computed again.
    """
    folder = make_folder(folder)
    points: list[Point] = []
    spectra: list[Spectrum] = []
    with progress_bar(f"dynamics, seed {run.seed}", len(run.steps)) as update:
        for done, step in enumerate(run.steps):
            update(done, f"step {step}")
            weights = hashlib.sha256(run.path(step).read_bytes()).hexdigest()
            origin = {"checkpoint": weights, "data": setting.fingerprint, "config": asdict(setting.config)}
            record = folder / f"step-{step:07d}.json"  # written when the polynomials are there
            found = from_plain(_Judged, read_json(record)) if record.is_file() else None
            if found is None or found.origin != origin:
                found = _judged(origin, run, step, setting, folder)
            points += found.points
            spectra += found.spectra
    return points, spectra


def load_fits(folder: Path, step: int, device: str = "cpu") -> tuple[Polynomial, Polynomial]:
    """The linear and the quadratic polynomial under the mixture, of a checkpoint that `dynamics` has finished."""
    like = torch.zeros((), dtype=torch.float64, device=device)
    return load(_file(folder, step, 1), like=like), load(_file(folder, step, 2), like=like)


def _file(folder: Path, step: int, degree: int) -> Path:
    return folder / f"step-{step:07d}-{'linear' if degree == 1 else 'quadratic'}.safetensors"


def _judged(origin: dict[str, Any], run: TrainingRun, step: int, setting: Setting, folder: Path) -> _Judged:
    """Fit, measure, write."""
    net = run.net(step, setting.device)
    samples = setting.mixture.sample(setting.config.samples, seed=_seed(run.seed, step))
    # The quadratic of the checkpoint before, from which the solver has less far to go.
    before = [s for s in run.steps if s < step and _file(folder, s, 2).is_file()]
    start = load(_file(folder, before[-1], 2), like=setting.test) if before else None
    points, spectra, kept = [], [], {}
    for found in approximants(net, setting, start, run.seed):
        points.append(_point(run.seed, step, net, found, setting, samples))
        if found.inputs == "mixture":
            kept[found.poly.degree] = found.poly
    for name in ("gaussian", "mixture"):
        by_degree = degree_spectrum(net, getattr(setting, name), setting.config.max_degree)
        shares, total = tuple(float(s) for s in to_numpy(by_degree.overall)), float(by_degree.total.sum())
        rest, between = float(by_degree.remainder.sum()) / total, float(by_degree.between.sum()) / total
        spectra.append(Spectrum(run.seed, step, name, shares, rest, between))
    record = folder / f"step-{step:07d}.json"
    record.unlink(missing_ok=True)  # that of an earlier origin must not stand beside these fits
    for degree, poly in kept.items():
        # In float32, and without the mixture, which is larger than the polynomial and the same for all of them.
        single = net.prototype.new_zeros((), dtype=torch.float32)
        replace(poly, inputs=None).to(single).save(_file(folder, step, degree))
    judged = _Judged(origin, tuple(points), tuple(spectra))
    write_json(record, to_plain(judged))
    return judged


def _point(seed: int, step: int, net: Layer, found: Fit, setting: Setting, samples: Tensor) -> Point:
    """The measures of one polynomial."""
    poly, inputs, seconds = found
    mixture = fvu(net, poly, setting.mixture)
    own = fvu(net, poly) if inputs in ("standard", "gaussian") else mixture
    solver = poly.report.iterations if (inputs, poly.degree) == ("mixture", 2) else 0
    drawn, test = compare(net, poly, samples), compare(net, poly, setting.test, setting.test_labels)
    return Point(
        seed=seed,
        step=step,
        degree=poly.degree,
        inputs=inputs,
        fvu_own=math.nan if inputs == "paper" else scalar(own.total),
        fvu_mixture=scalar(mixture.total),
        fvu_flattened=scalar(mixture.flattened),
        fvu_samples=scalar(drawn.fvu.total),
        fvu_samples_error=_number(drawn.fvu.standard_error),
        fvu_test=scalar(test.fvu.total),
        fvu_test_error=_number(test.fvu.standard_error),
        kl_samples=scalar(drawn.kl.mean),
        kl_samples_error=scalar(drawn.kl.standard_error),
        kl_test=scalar(test.kl.mean),
        kl_test_error=scalar(test.kl.standard_error),
        accuracy=_number(test.accuracy),
        agreement=float(test.agreement),
        iterations=setting.config.paper_steps if inputs == "paper" else solver,
        seconds=seconds,
    )


def _number(a: Any) -> float:
    return math.nan if a is None else float(a)


def _seed(seed: int, step: int) -> int:
    """Seed of the samples: another one for every checkpoint, so that errors of the curve's points are independent."""
    return int.from_bytes(hashlib.sha256(f"{seed} {step}".encode()).digest()[:4], "big")
