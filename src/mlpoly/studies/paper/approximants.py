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
from mlpoly.studies.paper.bench import Bench

__all__ = ["Approximant", "approximants"]


class Approximant(NamedTuple):
    """A polynomial and how it was found."""

    inputs: str  # "standard", "gaussian", "mixture" or "paper", see `mlpoly.studies.paper.results.Point`
    poly: Any
    iterations: int
    seconds: float


def approximants(net: Layer, bench: Bench, start: Polynomial | None, seed: int) -> Iterator[Approximant]:
    """Linear and quadratic polynomials under N(0, I), N(mean, cov) and the mixture, then the paper's quadratic.

    Parameters
    ----------
    net : Layer
    bench : Bench
    start : Polynomial, optional
        Where the mixture solver begins.
    seed : int
        Of the samples of the paper's route.
    """
    for name, inputs in (("standard", bench.standard), ("gaussian", bench.gaussian)):
        quadratic, seconds = _timed(bench, fit, net, inputs, 2)
        # Under one Gaussian the best linear map is a part of the best quadratic.
        yield Approximant(name, quadratic.truncate(1), 0, seconds)
        yield Approximant(name, quadratic, 0, seconds)
    linear, seconds = _timed(bench, fit, net, bench.mixture, 1)
    yield Approximant("mixture", linear, 0, seconds)
    options = {"start": start, "tolerance": bench.config.tolerance, "show_progress": False}
    best, seconds = _timed(bench, fit, net, bench.mixture, 2, **options)
    yield Approximant("mixture", best, best.report.iterations, seconds)
    if bench.config.paper_steps:
        tuned, seconds = _timed(bench, _papers_route, net, bench, seed)
        yield Approximant("paper", tuned, bench.config.paper_steps, seconds)


def _papers_route(net: Layer, bench: Bench, seed: int) -> DensePolynomial:
    """The closed form under N(0, I), then schedule-free SGD on samples of the mixture (the paper's appendix B).

    In float32, as there: SGD is noisy by far more than rounding.
    """
    single = net.prototype.new_zeros((), dtype=torch.float32)
    start = to_dense(fit(net, bench.standard, 2), bench.mixture.mean).to(single)
    samples_of, steps = bench.mixture.like(start.constant), bench.config.paper_steps
    tuned = finetune(net.to(single), start, samples_of, steps=steps, seed=seed, show_progress=False)
    return tuned.to(net.prototype)


def _timed(bench: Bench, work: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, float]:
    """What a solver answers, and its seconds; an interrupt, which solvers answer with their best, ends the study."""
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = work(*arguments, **options)
    if bench.device != "cpu":
        torch.cuda.synchronize()
    if any("interrupted" in str(w.message) for w in caught):
        raise KeyboardInterrupt
    for w in caught:
        warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
    return made, time.perf_counter() - began
