"""Fine-tuning of a fitted polynomial by schedule-free descent on samples (the paper's appendix B)."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, TypeVar

from mlpoly.arrays import as_integer, namespace
from mlpoly.extras import library
from mlpoly.fitting.report import FitReport
from mlpoly.fitting.tuning.descent import Descent, Plan
from mlpoly.fitting.tuning.draws import draws
from mlpoly.fitting.tuning.judge import Bridge, Judge
from mlpoly.inputs import Inputs, in_library
from mlpoly.networks import Layer, check_network
from mlpoly.polynomials import Polynomial, Source
from mlpoly.polynomials.base import map_polynomial
from mlpoly.records import replace

P = TypeVar("P", bound=Polynomial)

_SURE = 3.0  # standard errors of a gain: by chance alone the best of some twenty evaluations is ahead by one or two
_ADVICE = {
    "diverged": "fine-tuning diverged; lower learning_rate. The best polynomial so far is returned.",
    "interrupted": "fine-tuning was interrupted; the best polynomial so far is returned.",
}


def finetune(
    net: Layer,
    poly: P,
    data: Any,
    *,
    steps: int = 200,
    batch_size: int = 1024,
    optimizer: Literal["sgd", "adamw"] = "sgd",
    learning_rate: float | None = None,
    momentum: float = 0.9,
    loss: Literal["mse", "kl"] = "mse",
    validation: Any = None,
    validation_size: int = 4096,
    evaluate_every: int | None = None,
    patience: int | None = None,
    seed: int = 0,
) -> P:
    """Improve a polynomial on samples of inputs that are not Gaussian, by schedule-free gradient descent.

    It starts at the given polynomial, monitors the error on held-out samples, and returns the best iterate if that
    beats the start by more than three standard errors of the difference; otherwise the start. So the result is never
    worse on the held-out samples, and an optimal start is not traded for noise. Needs PyTorch and the package
    ``schedulefree``, whatever the array library of the polynomial. For a Gaussian mixture, ``fit`` finds the optimum
    directly.

    Parameters
    ----------
    net : Layer
        Network in the array library and on the device of the polynomial.
    poly : Polynomial
        Start of the descent. All its coefficients are trained; the directions of a ridge polynomial are fixed.
    data : Gaussian, GaussianMixture, Samples, array (n, d) or callable
        Source of the batches: fresh draws at each step, random rows, or the result of ``data(n, seed)``.
    steps : int
        Number of steps.
    batch_size : int
        Samples in each step.
    optimizer : {"sgd", "adamw"}
        Schedule-free SGD, or schedule-free AdamW without weight decay.
    learning_rate : float, optional
        For "sgd" in units of 1 / (largest curvature of the loss on a batch): plain SGD is stable up to 2, schedule-free
        SGD up to several times that. For "adamw" in units of the step that would change an output by its own spread if
        all coefficients were independent. Both units are measured once, at the start, for each group of coefficients,
        in coordinates standardised with samples of `data`; so they do not depend on the units of inputs and outputs.
        By default 5 for "sgd" (2 for a ridge polynomial, which is not linear in its coefficients) and 0.1 for "adamw";
        each time the default diverges, it is divided by four and the descent resumes from the best iterate.
    momentum : float
        Momentum between 0 and 1; beta1 of AdamW.
    loss : {"mse", "kl"}
        Squared error, or divergence of the softmax of the polynomial from that of the network; of the sigmoid for a
        network with one output.
    validation : like `data`, optional
        Source of the held-out samples; an array is used whole. By default `data`: a separate draw, or up to a fifth of
        the rows of an array, which are then excluded from training.
    validation_size : int
        Number of held-out samples.
    evaluate_every : int, optional
        Steps between two evaluations on the held-out samples; by default a twentieth of all steps.
    patience : int, optional
        Number of evaluations in a row without a new best after which it stops.
    seed : int
        Seed of samples and batches: equal seeds give equal results on one machine.

    Returns
    -------
    polynomial of the same form
        In the array library, dtype and device of `poly`, with a report of the held-out samples. A ridge polynomial
        comes back with the shifts and scales of `data`.

    Warns
    -----
    RuntimeWarning
        If the descent diverged, or was interrupted from the keyboard: the best so far is returned.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> rng = np.random.default_rng(0)
    >>> net = mp.MLP(rng.standard_normal((8, 3)), None, rng.standard_normal((1, 8)), None, "relu")
    >>> x = rng.uniform(-2, 3, (5000, 3))
    >>> better = mp.finetune(net, mp.fit(net, mp.Gaussian.standard(3)), x, steps=50)
    >>> better.report.fvu < 0.5 * better.report.details["fvu_before"]
    True
    """
    plan = Plan(
        as_integer("steps", steps, 1),
        as_integer("batch_size", batch_size, 1),
        optimizer,
        learning_rate,
        momentum,
        loss,
        as_integer("evaluate_every", max(steps // 20, 1) if evaluate_every is None else evaluate_every, 1),
        None if patience is None else as_integer("patience", patience, 1),
        as_integer("seed", seed, 0),
    )
    if not isinstance(poly, Polynomial):
        raise TypeError(
            f"poly must be a polynomial, got {type(poly).__name__}; the order is finetune(net, poly, data)."
        )
    check_network(net)
    if (net.dim_in, net.dim_out) != (poly.dim_in, poly.dim_out):
        raise ValueError(
            f"net maps {net.dim_in} -> {net.dim_out}, but poly maps {poly.dim_in} -> {poly.dim_out}; "
            f"was the polynomial fitted to another network?"
        )
    namespace(poly=poly.prototype, net=net.prototype)
    torch = library("torch", "torch", "finetune")
    optimizers = library("schedulefree", "schedulefree", "finetune")
    size = as_integer("validation_size", validation_size, 2)
    bridge = Bridge(torch, net, poly.prototype)
    draw, held_out = draws(data, validation, size, plan.seed, net.dim_in, poly.prototype, bridge.place)
    judge = Judge(bridge, held_out, loss)
    with torch.enable_grad():
        descent = Descent(bridge, poly, draw, judge, plan, optimizers)
        run = descent.run()
    if run.reason in _ADVICE:
        warnings.warn(f"{_ADVICE[run.reason]} (step {run.steps})", RuntimeWarning, stacklevel=2)
    # The best iterate, if it is significantly better in the caller's dtype too, else the start.
    before = bridge.apply(poly, judge.x)
    made, after, step, error = poly, before, 0, 0.0
    if run.best is not None:
        best = map_polynomial(descent.problem.polynomial(run.best), bridge.outward)
        values = bridge.apply(best, judge.x)
        gain, error = judge.gain(before, values)
        if gain > _SURE * error:
            inputs = in_library(data, poly.prototype) if isinstance(data, Inputs) else None
            source = Source(poly.source.activation, f"{poly.source.method or 'unknown start'}, then fine-tuned")
            made, after, step = replace(best, inputs=inputs, source=source), values, run.best_step
    details: dict[str, Any] = {
        "fvu_before": judge.fvu(before),
        "best_step": step,
        "reason": run.reason,
        "standard_error": error if math.isfinite(error) else math.inf,
        "learning_rate": run.rate,
    }
    if loss == "kl":
        details |= {"kl_before": judge.kl(before), "kl": judge.kl(after)}
    fvu, early = judge.fvu(after), "" if run.reason == "steps" else f", stopped early ({run.reason})"
    report = FitReport(
        "fine-tuning",
        f"FVU {details['fvu_before']:.4g} -> {fvu:.4g}, best at step {step} of {run.steps}{early}",
        fvu=fvu,
        converged=run.reason == "steps",
        iterations=run.steps,
        history=tuple(run.history),
        details=details,
    )
    return replace(made, report=report)
