"""Fine-tuning: from a closed form onwards, with schedule-free descent on samples (the paper's appendix B)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mlpoly.arrays import Array, as_integer, blocks, library, namespace, on, to_numpy
from mlpoly.fitting.draws import CALIBRATION, TRAINING, Draw, draws, stream_seed
from mlpoly.fitting.trainable import Tensor, Trainable, moved, trainable
from mlpoly.inputs import Gaussian, GaussianMixture
from mlpoly.layers import GLU, MLP
from mlpoly.polynomials import Polynomial, RidgePolynomial
from mlpoly.polynomials.base import replace_fields
from mlpoly.progress import progress

__all__ = ["FinetuneReport", "finetune"]

_ROWS = 4096  # samples evaluated at a time, and those that scales are taken from
_SURE = 3.0  # standard errors of a gain: the best of some twenty looks is ahead by one or two through chance alone
_ITERATIONS = 10  # of the power method: the largest curvature is needed to a few per cent
# Default learning rates, found on MNIST's mixture at d = 196 and on small networks. Dense and chaos forms diverge from
# about 12 on; a ridge form is a product of readout and series, whose curvature grows on the way.
_RATES = {("sgd", True): 5.0, ("sgd", False): 2.0, ("adamw", True): 0.1, ("adamw", False): 0.1}
_WARMUP = 20  # one step in so many raises the learning rate from zero
_HOPELESS = 100.0  # an error of so many times the start's, or the variance, is taken for divergence
_RETRIES, _RETREAT = 6, 4.0  # a default learning rate that diverges is divided by four, and tried again


@dataclass(frozen=True)
class FinetuneReport:
    """Record of a fine-tuning.

    Attributes
    ----------
    fvu_before, fvu_after : float
        Fraction of variance unexplained on the held-out samples, of the polynomials given and returned.
    steps : int
        Steps taken.
    best_step : int
        The step whose averaged iterate is returned; 0 is the polynomial that was given.
    reason : str
        Why it ended: "steps", "patience", "diverged" or "interrupted".
    history : tuple of (int, float)
        Step, and what was compared: FVU on the held-out samples, or with ``loss="kl"`` the divergence in nats.
    standard_error : float
        Of the gain of the best iterate over the start, in the same unit, from the differences sample by sample.
    learning_rate : float
        That was used last, in the units of `finetune`.
    kl_before, kl_after : float or None
        With ``loss="kl"``.
    """

    fvu_before: float
    fvu_after: float
    steps: int
    best_step: int
    reason: str
    history: tuple[tuple[int, float], ...]
    standard_error: float
    learning_rate: float
    kl_before: float | None = None
    kl_after: float | None = None

    @property
    def stopped_early(self) -> bool:
        """Whether it ended before all steps were taken."""
        return self.reason != "steps"

    def __str__(self) -> str:
        early = f", stopped early ({self.reason})" if self.stopped_early else ""
        return (
            f"fine-tuning: FVU {self.fvu_before:.4g} -> {self.fvu_after:.4g}, "
            f"best at step {self.best_step} of {self.steps}{early}"
        )


def finetune(
    poly: Polynomial,
    net: MLP | GLU,
    data: Any,
    *,
    steps: int = 200,
    batch_size: int = 1024,
    optimizer: str = "sgd",
    learning_rate: float | None = None,
    momentum: float = 0.9,
    loss: str = "mse",
    validation: Any = None,
    validation_size: int = 4096,
    evaluate_every: int | None = None,
    patience: int | None = None,
    seed: int = 0,
    show_progress: bool = True,
) -> Any:
    """Improve a polynomial on samples of inputs that are no Gaussian, by schedule-free gradient descent.

    It starts at the polynomial given, watches the error on held-out samples, and returns the best iterate if that is
    better than the start by more than three standard errors of the difference; otherwise the start. So the result is
    never worse on the held-out samples, and a start that is optimal is not traded for their noise. Needs PyTorch and
    the package ``schedulefree``, whatever the array library of the polynomial. For a Gaussian mixture, ``fit`` finds
    the optimum itself.

    Parameters
    ----------
    poly : RidgePolynomial, DensePolynomial or ChaosPolynomial
        All its coefficients are trained; the directions of a ridge polynomial stay.
    net : MLP or GLU
        In the array library and on the device of the polynomial.
    data : Gaussian, GaussianMixture, array (n, d) or callable
        Where batches come from: drawn afresh at each step, random rows, or the result of ``data(n, seed)``.
    steps, batch_size : int
    optimizer : {"sgd", "adamw"}
        Schedule-free SGD, or schedule-free AdamW without weight decay.
    learning_rate : float, optional
        For "sgd" in units of 1 / (largest curvature of the loss on a batch): plain SGD is stable up to 2, schedule-free
        SGD some times beyond. For "adamw" in units of the step after which an output has changed by its own spread,
        were all coefficients independent. Both are measured once, at the start, for each group of coefficients, in
        coordinates standardised with samples of `data`; so they do not depend on the units of inputs and outputs. By
        default 5 for "sgd" (2 for a ridge polynomial, which is not linear in its coefficients), 0.1 for "adamw", and a
        quarter of it, from the best so far, each time that this diverges.
    momentum : float
        Between 0 and 1; beta1 of AdamW.
    loss : {"mse", "kl"}
        Squared error, or divergence of the softmax of the polynomial from that of the network.
    validation : like `data`, optional
        Where held-out samples come from; an array is used whole. By default `data`: a separate draw, or up to a fifth
        of the rows of an array, which are then left out of the training.
    validation_size : int
        Number of held-out samples.
    evaluate_every : int, optional
        Steps between two looks at the held-out samples; by default a twentieth of all.
    patience : int, optional
        Stop after so many looks in a row without a new best.
    seed : int
        Of samples and batches: equal seeds give equal results on one machine.
    show_progress : bool
        Whether long work on a terminal draws a progress bar.

    Returns
    -------
    polynomial of the same form
        In the array library, dtype and device of `poly`, with a `FinetuneReport` as ``.report``. A ridge polynomial
        comes back with the shifts and scales of `data`.

    Warns
    -----
    RuntimeWarning
        If the descent diverged, or was interrupted from the keyboard: the best so far is returned.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.fitting.finetune import finetune
    >>> rng = np.random.default_rng(0)
    >>> net = mp.MLP(rng.standard_normal((8, 3)), None, rng.standard_normal((1, 8)), None, "relu")
    >>> x = rng.uniform(-2, 3, (5000, 3))
    >>> better = finetune(mp.fit(net, mp.Gaussian.standard(3)), net, x, steps=50)
    >>> better.report.fvu_after < 0.5 * better.report.fvu_before
    True
    """
    plan = _Plan(
        as_integer("steps", steps, 1),
        as_integer("batch_size", batch_size, 1),
        optimizer,
        learning_rate,
        momentum,
        loss,
        as_integer("evaluate_every", max(steps // 20, 1) if evaluate_every is None else evaluate_every, 1),
        None if patience is None else as_integer("patience", patience, 1),
        as_integer("seed", seed, 0),
        show_progress,
    )
    _check(plan)
    _check_functions(poly, net)
    torch = library("torch", "torch", "finetune")
    optimizers = library("schedulefree", "schedulefree", "finetune")
    size = as_integer("validation_size", validation_size, 2)
    draw, held_out = draws(data, validation, size, plan.seed, net.dim_in, poly.sample_array)
    bridge = _Bridge(torch, net, poly.sample_array)
    judge = _Judge(bridge, bridge.samples(held_out), plan.loss)
    with torch.enable_grad():
        problem, rates = _problem(bridge, poly, draw, judge, plan)
        run = _Run(None, 0, 0, "steps", [(0, judge.score(bridge.apply(poly, judge.x)))], _rate(problem, plan))
        run = _attempts(bridge, draw, judge, problem, rates, plan, run, optimizers)
    return _answer(poly, data, bridge, judge, problem, run, plan)


class _Plan(NamedTuple):
    """What was asked for."""

    steps: int
    batch_size: int
    optimizer: str
    learning_rate: float | None
    momentum: float
    loss: str
    evaluate_every: int
    patience: int | None
    seed: int
    show: bool


def _check(plan: _Plan) -> None:
    if plan.optimizer not in ("sgd", "adamw"):
        raise ValueError(f"optimizer must be 'sgd' or 'adamw', got {plan.optimizer!r}.")
    if plan.loss not in ("mse", "kl"):
        raise ValueError(f"loss must be 'mse' or 'kl', got {plan.loss!r}.")
    if not 0 < plan.momentum < 1:
        raise ValueError(f"momentum must lie between 0 and 1, both excluded, got {plan.momentum}.")
    if plan.learning_rate is not None and not (plan.learning_rate > 0 and math.isfinite(plan.learning_rate)):
        raise ValueError(f"learning_rate must be positive and finite, got {plan.learning_rate}.")


def _check_functions(poly: Any, net: Any) -> None:
    if not isinstance(poly, Polynomial):
        raise TypeError(
            f"poly must be a polynomial, got {type(poly).__name__}; the order is finetune(poly, net, data)."
        )
    if not isinstance(net, (MLP, GLU)):
        hint = "; convert it first with mlpoly.from_torch(module)" if hasattr(net, "state_dict") else ""
        raise TypeError(f"net must be an mlpoly.MLP or mlpoly.GLU, got {type(net).__name__}{hint}.")
    if (net.dim_in, net.dim_out) != (poly.dim_in, poly.dim_out):
        raise ValueError(
            f"net maps {net.dim_in} -> {net.dim_out}, but poly maps {poly.dim_in} -> {poly.dim_out}; "
            f"was the polynomial fitted to another network?"
        )
    namespace(poly=poly.sample_array, net=_weight(net))


def _weight(net: MLP | GLU) -> Array:
    return net.W1 if isinstance(net, MLP) else net.W_gate


# -- between the caller's array library and torch ----------------------------------------------------------------------


class _Bridge:
    """Arrays into torch for the training, and back to the caller's library, dtype and device.

    The network is evaluated in its own library: its activation may be a function of the user's for that one.
    """

    def __init__(self, torch: Any, net: MLP | GLU, like: Array) -> None:
        self.torch, self.net, self.like = torch, net, like
        native = isinstance(like, torch.Tensor)
        self.native = native
        self.device = like.device if native else torch.device("cpu")
        self.given = like.dtype if native else getattr(torch, str(like.dtype))
        self.dtype = torch.promote_types(self.given, torch.float32)

    def inward(self, a: Array) -> Tensor:
        """Any array as a tensor to train with."""
        tensor = a.detach() if isinstance(a, self.torch.Tensor) else self.torch.tensor(to_numpy(a))
        return tensor.to(self.device, self.dtype)

    def samples(self, a: Array) -> Tensor:
        """Samples, rounded to the caller's precision, so that network and polynomial see the same numbers."""
        return self.inward(a).to(self.given).to(self.dtype)

    def outward(self, tensor: Tensor) -> Array:
        """A tensor in the caller's library, dtype and device."""
        return tensor.detach().to(self.like.dtype) if self.native else on(tensor, self.like)

    def apply(self, function: Callable[[Array], Array], x: Tensor) -> Tensor:
        """Values of the caller's network or polynomial at x (n, d), without a gradient."""
        with self.torch.no_grad():
            values = [function(x[rows] if self.native else on(x[rows], self.like)) for rows in blocks(len(x), _ROWS)]
            return self.torch.cat([self.inward(v) for v in values])


class _Judge:
    """The held-out samples, and how far a polynomial is from the network there."""

    def __init__(self, bridge: _Bridge, x: Tensor, loss: str) -> None:
        self.torch, self.x, self.loss = bridge.torch, x, loss
        self.target = bridge.apply(bridge.net, x).double()
        deviation = self.target - self.target.mean(0)
        self.variance = float(deviation.square().mean(0).sum())
        rounding = float(bridge.torch.finfo(bridge.given).eps) * float(self.target.abs().max())
        if not self.variance > len(deviation.T) * rounding**2:
            raise ValueError("the network is constant on the held-out samples, so there is nothing to explain.")

    @property
    def spread(self) -> float:
        """Root mean square deviation of an output."""
        return math.sqrt(self.variance / self.target.shape[1])

    def fvu(self, values: Tensor) -> float:
        """Fraction of variance unexplained; infinite where a value is not finite."""
        return _finite(float(self._squares(values).mean()))

    def kl(self, values: Tensor) -> float:
        """Mean divergence of softmax values (n, o) from the softmax of the network, in nats."""
        return _finite(float(_divergence(self.torch, values.double(), self.target).mean()))

    def score(self, values: Tensor) -> float:
        """What is to be made small."""
        return self.kl(values) if self.loss == "kl" else self.fvu(values)

    def gain(self, before: Tensor, after: Tensor) -> tuple[float, float]:
        """By how much the score falls, and the standard error of that."""
        if self.loss == "kl":
            fall = _divergence(self.torch, before.double(), self.target)
            fall = fall - _divergence(self.torch, after.double(), self.target)
        else:
            fall = self._squares(before) - self._squares(after)
        return float(fall.mean()), float(fall.std()) / math.sqrt(len(fall))

    def _squares(self, values: Tensor) -> Tensor:
        return (values.double() - self.target).square().sum(1) / self.variance


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _divergence(torch: Any, values: Tensor, target: Tensor) -> Tensor:
    """KL(softmax target || softmax values) of each sample, (n,)."""
    log_f, log_p = torch.log_softmax(target, -1), torch.log_softmax(values, -1)
    return (log_f.exp() * (log_f - log_p)).sum(-1)


# -- descent -----------------------------------------------------------------------------------------------------------


class _Run(NamedTuple):
    """The best parameters (None: the start) and how they were found."""

    best: list[Tensor] | None
    best_step: int
    steps: int
    reason: str
    history: list[tuple[int, float]]
    rate: float


def _rate(problem: Trainable, plan: _Plan) -> float:
    return _RATES[plan.optimizer, problem.separate] if plan.learning_rate is None else plan.learning_rate


def _attempts(
    bridge: _Bridge,
    draw: Draw,
    judge: _Judge,
    problem: Trainable,
    rates: Sequence[float],
    plan: _Plan,
    run: _Run,
    optimizers: Any,
) -> _Run:
    """Descend; should the default learning rate diverge, go on from the best so far with a lower one."""
    start = [p.detach().clone() for p in problem.parameters]
    for _ in range(_RETRIES):
        optimizer = _optimizer(optimizers, problem, [unit * run.rate for unit in rates], plan)
        run = _descend(bridge, draw, judge, problem, optimizer, plan, run._replace(reason="steps"))
        if run.reason != "diverged" or plan.learning_rate is not None:
            break
        for p, best in zip(problem.parameters, start if run.best is None else run.best, strict=True):
            p.data.copy_(best)
        run = run._replace(rate=run.rate / _RETREAT)
    return run


def _problem(
    bridge: _Bridge, poly: Polynomial, draw: Draw, judge: _Judge, plan: _Plan
) -> tuple[Trainable, list[float]]:
    """The polynomial's parameters, and the unit of the learning rate for each group of them."""
    # The covariance of a dense form needs some samples per dimension; a ridge form needs variances alone.
    rows = _ROWS if isinstance(poly, RidgePolynomial) else max(_ROWS, 4 * poly.dim_in)
    sample = bridge.samples(draw(max(rows, plan.batch_size), stream_seed(plan.seed, CALIBRATION, 0)))
    with bridge.torch.no_grad():
        problem = trainable(moved(poly, bridge.inward), sample.double(), plan.batch_size)
        z = problem.coordinates(sample[: plan.batch_size])
    for p in problem.parameters:
        p.requires_grad_()
    return problem, _rates(bridge.torch, problem, z, judge, plan)


def _descend(
    bridge: _Bridge, draw: Draw, judge: _Judge, problem: Trainable, optimizer: Any, plan: _Plan, run: _Run
) -> _Run:
    """Take the steps that are left; an interrupt keeps the best so far."""
    hopeless = _HOPELESS * max(run.history[0][1], 1.0)
    try:
        with progress("fine-tuning", plan.steps, plan.show) as update:
            for step in range(run.steps + 1, plan.steps + 1):
                x = bridge.samples(draw(plan.batch_size, stream_seed(plan.seed, TRAINING, step)))
                error = _step(bridge, problem, optimizer, x, judge)
                run = run._replace(steps=step)
                if not error < hopeless:
                    return _look(run, problem, optimizer, judge)._replace(reason="diverged")
                if step % plan.evaluate_every == 0 or step == plan.steps:
                    run = _look(run, problem, optimizer, judge)
                    if plan.patience is not None and _waiting(run) >= plan.patience and step < plan.steps:
                        return run._replace(reason="patience")
                update(step, f"{plan.loss} {run.history[-1][1]:.4g}")
    except KeyboardInterrupt:
        return run._replace(reason="interrupted")
    return run


def _step(bridge: _Bridge, problem: Trainable, optimizer: Any, x: Tensor, judge: _Judge) -> float:
    """One step on a batch, and the error there, as a fraction of the variance or in nats."""
    target = bridge.apply(bridge.net, x)
    values = problem.evaluate(problem.parameters, problem.coordinates(x))
    if judge.loss == "kl":
        unit, value = 1.0, _divergence(bridge.torch, values, target).mean()
    else:
        # Over the spread: gradients are then free of the units of the outputs, as the epsilon of AdamW wants them.
        unit = judge.variance / (2 * judge.spread)
        value = (values - target).square().sum(1).mean() / (2 * judge.spread)
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    return float(value.detach()) / unit


def _look(run: _Run, problem: Trainable, optimizer: Any, judge: _Judge) -> _Run:
    """Judge the averaged iterate, and keep it if it is the best."""
    optimizer.eval()  # schedule-free optimisers keep the average apart from the point where they take gradients
    at = problem.parameters
    with judge.torch.no_grad():
        values = [problem.evaluate(at, problem.coordinates(judge.x[r])) for r in blocks(len(judge.x), _ROWS)]
        score = judge.score(judge.torch.cat(values))
    if score < min(value for _, value in run.history):
        run = run._replace(best=[p.detach().clone() for p in at], best_step=run.steps)
    optimizer.train()
    return run._replace(history=[*run.history, (run.steps, score)])


def _waiting(run: _Run) -> int:
    """Looks since the best one."""
    return sum(step > run.best_step for step, _ in run.history)


def _optimizer(optimizers: Any, problem: Trainable, rates: Sequence[float], plan: _Plan) -> Any:
    # A group without curvature has nothing to learn from these inputs.
    groups = [{"params": [p], "lr": rate} for p, rate in zip(problem.parameters, rates, strict=True) if rate > 0]
    warmup = math.ceil(plan.steps / _WARMUP)
    if plan.optimizer == "sgd":
        made = optimizers.SGDScheduleFree(groups, momentum=plan.momentum, warmup_steps=warmup)
    else:
        made = optimizers.AdamWScheduleFree(groups, betas=(plan.momentum, 0.999), warmup_steps=warmup)
    made.train()
    return made


# -- learning rates ----------------------------------------------------------------------------------------------------


def _rates(torch: Any, problem: Trainable, z: Tensor, judge: _Judge, plan: _Plan) -> list[float]:
    """The unit of the learning rate for each group of parameters, from the Gauss-Newton matrix J'J / n of a batch.

    Its largest eigenvalue on a batch, not in expectation, is what bounds the step: where features outnumber the samples
    of a batch it is larger, by the sampling noise.
    """
    parameters = [p[:1] if problem.separate else p for p in problem.parameters]
    jacobian = _Jacobian(torch, problem, parameters, z, plan.seed)
    groups = range(len(parameters))
    if plan.optimizer == "adamw":
        sizes = jacobian.row_norms()
        return [judge.spread / size if size > 0 else 0.0 for size in sizes]
    own = [jacobian.largest([float(i == j) for j in groups]) for i in groups]
    joint = jacobian.largest([v**-0.5 if v > 0 else 0.0 for v in own])
    # Second derivative of the loss in the outputs: the divergence's is at most 1/2.
    bend = 0.5 if plan.loss == "kl" else 1 / judge.spread
    return [1 / (v * joint * bend) if v > 0 else 0.0 for v in own]


class _Jacobian:
    """Products with the derivative of the values (n, o) in the parameters, by differentiating twice."""

    def __init__(self, torch: Any, problem: Trainable, parameters: Sequence[Tensor], z: Tensor, seed: int) -> None:
        self.torch = torch
        self.parameters = [p.detach().requires_grad_() for p in parameters]
        self.values = problem.evaluate(self.parameters, z)
        self.probe = torch.zeros_like(self.values, requires_grad=True)
        self.pulled = torch.autograd.grad(self.values, self.parameters, self.probe, create_graph=True)
        self.rng = np.random.default_rng(stream_seed(seed, CALIBRATION, 1))

    def transposed(self, u: Tensor) -> Sequence[Tensor]:
        """J'u for u (n, o), one tensor per group."""
        return self.torch.autograd.grad(self.values, self.parameters, u, retain_graph=True)

    def forward(self, v: Sequence[Tensor]) -> Tensor:
        """J v: the derivative of J'u, which is linear in u."""
        return self.torch.autograd.grad(self.pulled, self.probe, v, retain_graph=True)[0]

    def largest(self, scales: Sequence[float]) -> float:
        """Largest eigenvalue of D J'J D / n, with D = scales on each group, by the power method."""
        v = [s * self._noise(p) for s, p in zip(scales, self.parameters, strict=True)]
        value = 0.0
        for _ in range(_ITERATIONS):
            size = math.sqrt(sum(float(a.square().sum()) for a in v))
            if not size > 0:
                return 0.0
            scaled = [s * a / size for s, a in zip(scales, v, strict=True)]
            image = self.transposed(self.forward(scaled))
            v = [s * a / len(self.values) for s, a in zip(scales, image, strict=True)]
            value = math.sqrt(sum(float(a.square().sum()) for a in v))
        return value

    def row_norms(self) -> list[float]:
        """Root mean square norm of the rows of J, for each group: E |J'u|^2 = |J|^2 for random signs u."""
        squares = np.zeros(len(self.parameters))
        for _ in range(_ITERATIONS):
            image = self.transposed(self._noise(self.values).sign())
            squares += [float(a.square().sum()) for a in image]
        return np.sqrt(squares / (_ITERATIONS * self.values.numel())).tolist()

    def _noise(self, like: Tensor) -> Tensor:
        return self.torch.tensor(self.rng.standard_normal(tuple(like.shape))).to(like)


# -- what is returned --------------------------------------------------------------------------------------------------


def _answer(
    poly: Polynomial, data: Any, bridge: _Bridge, judge: _Judge, problem: Trainable, run: _Run, plan: _Plan
) -> Any:
    """The best iterate, if it is surely better in the caller's library too, else the start, with the report."""
    _warn(run)
    before = bridge.apply(poly, judge.x)
    made, after, step, error = poly, before, 0, 0.0
    if run.best is not None:
        found = _finished(poly, data, moved(problem.polynomial(run.best), bridge.outward))
        values = bridge.apply(found, judge.x)
        gain, error = judge.gain(before, values)
        if gain > _SURE * error:
            made, after, step = found, values, run.best_step
    divergence = (judge.kl(before), judge.kl(after)) if plan.loss == "kl" else (None, None)
    report = FinetuneReport(
        judge.fvu(before),
        judge.fvu(after),
        run.steps,
        step,
        run.reason,
        tuple(run.history),
        _finite(error),
        run.rate,
        *divergence,
    )
    return replace_fields(made, report=report)


def _finished(poly: Any, data: Any, made: Polynomial) -> Any:
    """Say what it was trained under and where it comes from."""
    inputs = data.like(poly.sample_array) if isinstance(data, (Gaussian, GaussianMixture)) else None
    method = f"{poly.source.method or 'unknown start'}, then fine-tuned"
    return replace_fields(made, inputs=inputs, source=replace(poly.source, method=method, inputs=""))


def _warn(run: _Run) -> None:
    advice = {
        "diverged": "fine-tuning diverged; lower learning_rate. The best polynomial so far is returned.",
        "interrupted": "fine-tuning was interrupted; the best polynomial so far is returned.",
    }
    if run.reason in advice:
        warnings.warn(f"{advice[run.reason]} (step {run.steps})", RuntimeWarning, stacklevel=4)
