"""The polynomials of one checkpoint: exact under three inputs, and by the paper's own route."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from mlpoly.fitting import finetune, fit
from mlpoly.networks import Layer
from mlpoly.polynomials import DensePolynomial, Polynomial
from mlpoly.polynomials.dense import to_dense
from mlpoly.studies.paper.setting import Setting

__all__ = ["approximants"]


class _Fit(NamedTuple):
    poly: Any
    inputs: str  # "standard", "gaussian", "mixture" or "paper", see `mlpoly.studies.paper.results.Point`
    seconds: float


def approximants(net: Layer, setting: Setting, start: Polynomial | None, seed: int) -> Iterator[_Fit]:
    """Linear and quadratic polynomials under N(0, I), N(mean, cov) and the mixture, then the paper's quadratic.

    `start` is where the mixture solver begins; `seed` is that of the samples of the paper's route.
    """
    for name, inputs in (("standard", setting.standard), ("gaussian", setting.gaussian)):
        quadratic, seconds = _timed(fit, net, inputs, 2)
        # Under one Gaussian the best linear map is a part of the best quadratic.
        yield _Fit(quadratic.truncate(1), name, seconds)
        yield _Fit(quadratic, name, seconds)
    linear, seconds = _timed(fit, net, setting.mixture, 1)
    yield _Fit(linear, "mixture", seconds)
    options = {"start": start, "tolerance": setting.config.tolerance, "show_progress": False}
    quadratic, seconds = _timed(fit, net, setting.mixture, 2, **options)
    yield _Fit(quadratic, "mixture", seconds)
    if setting.config.paper_steps:
        tuned, seconds = _timed(_papers_route, net, setting, seed)
        yield _Fit(tuned, "paper", seconds)


def _papers_route(net: Layer, setting: Setting, seed: int) -> DensePolynomial:
    """The closed form under N(0, I), then schedule-free SGD on samples of the mixture (the paper's appendix B).

    In float32, as there: SGD is noisy by far more than rounding.
    """
    single = net.prototype.new_zeros((), dtype=torch.float32)
    start = to_dense(fit(net, setting.standard, 2), setting.mixture.mean).to(single)
    samples_of, steps = setting.mixture.like(start.constant), setting.config.paper_steps
    tuned = finetune(net.to(single), start, samples_of, steps=steps, seed=seed, show_progress=False)
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
