"""Schedule-free descent that keeps the best iterate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mlpoly.fitting.tuning.curvature import Jacobian, curvature_units, spread_units
from mlpoly.fitting.tuning.draws import CALIBRATION, TRAINING, Draw, stream_seed
from mlpoly.fitting.tuning.judge import Bridge, Judge
from mlpoly.fitting.tuning.trainable import Tensor, trainable
from mlpoly.polynomials import Polynomial, RidgePolynomial
from mlpoly.polynomials.base import map_polynomial
from mlpoly.progress_bars import progress_bar
from mlpoly.records import replace
from mlpoly.scores.classifiers import divergences

_CALIBRATION = 4096  # least number of samples for measuring scales
# Default learning rates, found on MNIST's mixture at d = 196 and on small networks. Dense and chaos forms diverge from
# about 12 on; a ridge form is a product of readout and series, whose curvature grows during training.
_RATES = {("sgd", True): 5.0, ("sgd", False): 2.0, ("adamw", True): 0.1, ("adamw", False): 0.1}
_WARMUP = 20  # the learning rate rises from zero during the first 1 / 20 of the steps
_HOPELESS = 100.0  # an error this many times that of the start, or the variance, counts as divergence
_ATTEMPTS, _RETREAT = 6, 4.0  # a default learning rate that diverges is divided by four, and tried again


@dataclass(frozen=True)
class Plan:
    """Options of a fine-tuning; see `finetune`."""

    steps: int
    batch_size: int
    optimizer: str
    learning_rate: float | None
    momentum: float
    loss: str
    evaluate_every: int
    patience: int | None
    seed: int

    def __post_init__(self) -> None:
        if self.optimizer not in ("sgd", "adamw"):
            raise ValueError(f"optimizer must be 'sgd' or 'adamw', got {self.optimizer!r}.")
        if self.loss not in ("mse", "kl"):
            raise ValueError(f"loss must be 'mse' or 'kl', got {self.loss!r}.")
        if not 0 < self.momentum < 1:
            raise ValueError(f"momentum must be above 0 and below 1, got {self.momentum}.")
        if self.learning_rate is not None and not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise ValueError(f"learning_rate must be positive and finite, got {self.learning_rate}.")


@dataclass(frozen=True)
class TuningRun:
    """The best parameters (None: the start) and how they were found; see `finetune`."""

    best: list[Tensor] | None
    best_step: int
    steps: int
    reason: str
    history: list[tuple[int, float]]
    rate: float


class Descent:
    """Schedule-free descent of one polynomial.

    Parameters
    ----------
    optimizers : module
        The package schedulefree.
    """

    def __init__(self, bridge: Bridge, poly: Polynomial, draw: Draw, judge: Judge, plan: Plan, optimizers: Any) -> None:
        self.bridge, self.judge, self.plan = bridge, judge, plan
        self.draw, self.optimizers = draw, optimizers
        # The covariance of a dense form needs several samples per dimension; a ridge form needs only variances.
        rows = _CALIBRATION if isinstance(poly, RidgePolynomial) else max(_CALIBRATION, 4 * poly.dim_in)
        sample = self._batch(max(rows, plan.batch_size), CALIBRATION, 0)
        with bridge.torch.no_grad():
            self.problem = trainable(map_polynomial(poly, bridge.inward), sample.double(), plan.batch_size)
        for p in self.problem.parameters:
            p.requires_grad_()
        self.units = self._units(sample[: plan.batch_size])
        default = _RATES[plan.optimizer, self.problem.separate]
        self.rate = default if plan.learning_rate is None else plan.learning_rate
        self.start = judge.score(bridge.apply(poly, judge.x))

    def run(self) -> TuningRun:
        """Descend; if the default learning rate diverges, resume from the best iterate with a lower one."""
        start = [p.detach().clone() for p in self.problem.parameters]
        run = TuningRun(None, 0, 0, "steps", [(0, self.start)], self.rate)
        for _ in range(_ATTEMPTS):
            run = self._attempt(replace(run, reason="steps"))
            if run.reason != "diverged" or self.plan.learning_rate is not None:
                break
            for p, best in zip(self.problem.parameters, start if run.best is None else run.best, strict=True):
                p.data.copy_(best)
            run = replace(run, rate=run.rate / _RETREAT)
        return run

    def _attempt(self, run: TuningRun) -> TuningRun:
        """Take the remaining steps; an interrupt keeps the best iterate."""
        plan, optimizer = self.plan, self._optimizer(run.rate)
        hopeless = _HOPELESS * max(self.start, 1.0)
        try:
            with progress_bar("fine-tuning", plan.steps) as update:
                for step in range(run.steps + 1, plan.steps + 1):
                    error = self._step(optimizer, self._batch(plan.batch_size, TRAINING, step))
                    run = replace(run, steps=step)
                    if not error < hopeless:
                        return replace(self._look(run, optimizer), reason="diverged")
                    if step % plan.evaluate_every == 0 or step == plan.steps:
                        run = self._look(run, optimizer)
                        waiting = sum(at > run.best_step for at, _ in run.history)  # evaluations since the best one
                        if plan.patience is not None and waiting >= plan.patience and step < plan.steps:
                            return replace(run, reason="patience")
                    update(step, f"{'KL' if plan.loss == 'kl' else 'FVU'} {run.history[-1][1]:.4g}")
        except KeyboardInterrupt:
            return replace(run, reason="interrupted")
        return run

    def _batch(self, size: int, stream: int, step: int) -> Tensor:
        return self.bridge.samples(self.draw(size, stream_seed(self.plan.seed, stream, step)))

    def _step(self, optimizer: Any, x: Tensor) -> float:
        """Take one step on a batch, and return the error there, as a fraction of the variance or in nats."""
        target = self.bridge.apply(self.bridge.net, x)
        values = self._values(x)
        if self.plan.loss == "kl":
            unit, loss = 1.0, divergences(target, values).mean()
        else:
            # Over the spread: gradients then do not depend on the units of the outputs, which AdamW's epsilon requires.
            unit = self.judge.variance / (2 * self.judge.spread)
            loss = (values - target).square().sum(1).mean() / (2 * self.judge.spread)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach()) / unit

    def _values(self, x: Tensor) -> Tensor:
        return self.problem.evaluate(self.problem.parameters, self.problem.coordinates(x))

    def _look(self, run: TuningRun, optimizer: Any) -> TuningRun:
        """Evaluate the averaged iterate, and keep it if it is the best."""
        optimizer.eval()  # schedule-free optimisers take gradients at another point than the average
        score = self.judge.evaluate(self._values)
        if score < min(value for _, value in run.history):
            run = replace(run, best=[p.detach().clone() for p in self.problem.parameters], best_step=run.steps)
        optimizer.train()
        return replace(run, history=[*run.history, (run.steps, score)])

    def _units(self, x: Tensor) -> list[float]:
        """The unit of the learning rate for each group of parameters."""
        plan, torch = self.plan, self.bridge.torch
        jacobian = Jacobian(torch, self.problem, self.problem.coordinates(x), stream_seed(plan.seed, CALIBRATION, 1))
        if plan.optimizer == "adamw":
            return [unit * self.judge.spread for unit in spread_units(jacobian)]
        # Second derivative of the loss in the values; the divergence's is at most 1/2.
        bend = 0.5 if plan.loss == "kl" else 1 / self.judge.spread
        return [unit / bend for unit in curvature_units(jacobian)]

    def _optimizer(self, rate: float) -> Any:
        plan = self.plan
        pairs = zip(self.problem.parameters, self.units, strict=True)
        # A group without curvature has nothing to learn from these inputs.
        groups = [{"params": [p], "lr": rate * unit} for p, unit in pairs if unit > 0]
        warmup = math.ceil(plan.steps / _WARMUP)
        if plan.optimizer == "sgd":
            made = self.optimizers.SGDScheduleFree(groups, momentum=plan.momentum, warmup_steps=warmup)
        else:
            made = self.optimizers.AdamWScheduleFree(groups, betas=(plan.momentum, 0.999), warmup_steps=warmup)
        made.train()
        return made
