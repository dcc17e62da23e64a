"""Schedule-free gradient descent on the coefficients of a polynomial, which keeps the best iterate (PyTorch).

Training runs in the dtype of the polynomial, conversion to parameters and back in float64.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import schedulefree
import torch

from mlpoly.arrays import Array, chunks, on, take_rows, to_numpy
from mlpoly.fitting.report import FitReport
from mlpoly.inputs import Inputs, Samples
from mlpoly.moments.hermite_products import products
from mlpoly.networks import Network
from mlpoly.polynomials import ChaosPolynomial, DensePolynomial, Source, map_polynomial
from mlpoly.progress_bars import progress_bar
from mlpoly.records import map_arrays, replace
from mlpoly.scores import ErrorSums
from mlpoly.scores.classifiers import divergences

Tensor = torch.Tensor
Build = Callable[[Sequence[Tensor]], Any]  # from parameters, in any precision, to a polynomial for inputs in the same

_TRAINING, _VALIDATION, _CALIBRATION = 0, 1, 2  # streams of seeds, so that held-out samples are never trained on
_HELD_OUT = 4096  # samples, but at most one row of data in five
_SCALES = 4096  # least number of samples for measuring scales
_ROWS = 4096  # samples evaluated at a time
_POWERS = 10  # iterations of the power method: a curvature is needed only to a few per cent
_MOMENTUM = 0.9
_RATE = 5.0  # default, found on MNIST's mixture at d = 196 and on small networks; descents diverge from about 12 on
_WARMUP = 20  # the learning rate rises from zero during the first 1 / 20 of the steps
_LOOKS = 20  # evaluations on the held-out samples
_HOPELESS = 100.0  # an error this many times that of the start, or the variance, counts as divergence
_ATTEMPTS, _RETREAT = 6, 4.0  # a default learning rate that diverges is divided by four, and tried again
_SURE = 3.0  # standard errors of a gain: by chance alone the best of some twenty evaluations is ahead by one or two
_FLOOR_FULL, _FLOOR_HALF = 1e-4, 1e-2  # fraction of the mean variance below which a direction is not scaled up further
_ADVICE = {
    "diverged": "fine-tuning diverged; lower learning_rate. The best polynomial so far is returned.",
    "interrupted": "fine-tuning was interrupted; the best polynomial so far is returned.",
}


class Descent:
    """Descent of one polynomial; options as in `finetune`.

    The network is evaluated in its own array library, because its activation may be a user's function for that library.
    """

    def __init__(
        self,
        net: Network,
        poly: DensePolynomial | ChaosPolynomial,
        inputs: Inputs,
        steps: int,
        batch_size: int,
        learning_rate: float | None,
        loss: str,
        seed: int,
    ) -> None:
        self.net, self.poly = net, poly
        self.steps, self.batch_size, self.loss, self.seed = steps, batch_size, loss, seed
        like = poly.prototype
        # Scales are computed in float64, which Apple's GPUs do not have.
        device = like.device if isinstance(like, Tensor) and like.device.type != "mps" else torch.device("cpu")
        dtype = torch.promote_types(getattr(torch, str(like.dtype).removeprefix("torch.")), torch.float32)
        self.like = torch.zeros(1, dtype=dtype, device=device)
        self.source, self.x = _split(inputs, _stream_seed(seed, _VALIDATION, 0), self.like)
        self.target, self.before = self._values(net, self.x), self._values(poly, self.x)
        # zero where it is rounding
        self.variance = float(ErrorSums(standard_error=False).update(self.target, self.target).variance.sum())
        if not self.variance > 0:
            raise ValueError(
                "the network is constant on the held-out samples, so there is nothing to explain; use inputs on which "
                "it varies."
            )
        self.spread = math.sqrt(self.variance / self.target.shape[1])  # root mean square deviation of an output
        # A covariance needs several samples per dimension.
        sample = self._batch(max(_SCALES, 4 * poly.dim_in, batch_size), _CALIBRATION, 0)
        self.problem = trainable(map_polynomial(poly, lambda a: on(a, self.like).detach()), sample.double(), batch_size)
        units = steps_of(self.problem, sample[:batch_size], _stream_seed(seed, _CALIBRATION, 1))
        # over the second derivative of the loss in the values; the divergence's is at most 1/2
        self.units = [unit * (2 if loss == "kl" else self.spread) for unit in units]
        self.rate, self.attempts = (_RATE, _ATTEMPTS) if learning_rate is None else (learning_rate, 1)
        self.best, self.best_step, self.taken, self.reason = self.problem.parameters, 0, 0, "steps"
        self.history = [(0, _mean(self._errors(self.before)))]

    def result(self, inputs: Inputs) -> Any:
        """The best iterate if it is significantly better than the start in the caller's dtype too, else the start."""
        with torch.enable_grad():
            for _ in range(self.attempts):  # from the best iterate so far, with a lower rate each time
                self._attempt()
                if self.reason != "diverged":
                    break
                self.rate /= _RETREAT if self.attempts > 1 else 1.0
        if self.reason in _ADVICE:
            warnings.warn(f"{_ADVICE[self.reason]} (step {self.taken})", RuntimeWarning, stacklevel=3)
        poly, after, step, error = self.poly, self.before, 0, 0.0
        if self.best_step:
            tuned = map_polynomial(self.problem.polynomial(self.best), lambda a: on(a, self.poly.prototype))
            values = self._values(tuned, self.x)
            gain = self._errors(self.before) - self._errors(values)
            error = float(gain.std()) / math.sqrt(len(gain))
            if float(gain.mean()) > _SURE * error:
                source = Source(poly.source.activation, f"{poly.source.method or 'unknown start'}, then fine-tuned")
                poly, after, step = replace(tuned, inputs=inputs, source=source), values, self.best_step
        fvu_before, fvu = (_mean(self._squares(values)) for values in (self.before, after))
        details = {
            "fvu_before": fvu_before,
            "best_step": step,
            "reason": self.reason,
            "standard_error": error if math.isfinite(error) else math.inf,
            "learning_rate": self.rate,
        }
        if self.loss == "kl":
            details |= {"kl_before": _mean(self._errors(self.before)), "kl": _mean(self._errors(after))}
        converged = self.reason == "steps"
        summary = f"FVU {fvu_before:.4g} -> {fvu:.4g}, best at step {step} of {self.taken}"
        summary += "" if converged else f", stopped early ({self.reason})"
        figures: dict[str, Any] = {"fvu": fvu, "converged": converged, "iterations": self.taken, "details": details}
        return replace(poly, report=FitReport("fine-tuning", summary, history=tuple(self.history), **figures))

    def _attempt(self) -> None:
        """Take the remaining steps from the best iterate; an interrupt keeps the best."""
        theta = [p.clone().requires_grad_() for p in self.best]
        # A group without curvature has nothing to learn from these inputs.
        groups = [
            {"params": [p], "lr": self.rate * unit} for p, unit in zip(theta, self.units, strict=True) if unit > 0
        ]
        warmup = math.ceil(self.steps / _WARMUP)
        optimizer = schedulefree.SGDScheduleFree(groups, momentum=_MOMENTUM, warmup_steps=warmup)
        optimizer.train()
        hopeless, every = _HOPELESS * max(self.history[0][1], 1.0), max(self.steps // _LOOKS, 1)
        self.reason = "steps"
        try:
            with progress_bar("fine-tuning", self.steps) as update:
                for step in range(self.taken + 1, self.steps + 1):
                    error = self._step(optimizer, theta, self._batch(self.batch_size, _TRAINING, step))
                    self.taken = step
                    diverged = not error < hopeless
                    if diverged or step % every == 0 or step == self.steps:
                        optimizer.eval()  # schedule-free optimisers take gradients at another point than the average
                        with torch.no_grad():
                            averaged = self.problem.build(theta)
                            values = torch.cat([averaged(self.x[rows]) for rows in chunks(len(self.x), _ROWS)])
                        score = _mean(self._errors(values))
                        if score < min(value for _, value in self.history):
                            self.best, self.best_step = [p.detach().clone() for p in theta], step
                        optimizer.train()
                        self.history.append((step, score))
                    if diverged:
                        self.reason = "diverged"
                        return
                    update(step, f"{'KL' if self.loss == 'kl' else 'FVU'} {self.history[-1][1]:.4g}")
        except KeyboardInterrupt:
            self.reason = "interrupted"

    def _step(self, optimizer: Any, theta: list[Tensor], x: Tensor) -> float:
        """Take one step on a batch, and return the error there, as a fraction of the variance or in nats."""
        target, values = self._values(self.net, x), self.problem.build(theta)(x)
        if self.loss == "kl":
            unit, loss = 1.0, divergences(target, values).mean()
        else:  # over the spread, so that gradients do not depend on the units of the outputs
            unit = self.variance / (2 * self.spread)
            loss = (values - target).square().sum(1).mean() / (2 * self.spread)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach()) / unit

    def _batch(self, size: int, stream: int, step: int) -> Tensor:
        drawn: Tensor = self.source.sample(size, _stream_seed(self.seed, stream, step))
        return drawn

    def _values(self, function: Callable[[Array], Array], x: Tensor) -> Tensor:
        """Values of the caller's network or polynomial at x (n, d), without a gradient."""
        with torch.no_grad():
            parts = [on(x[rows], self.poly.prototype) for rows in chunks(len(x), _ROWS)]
            return torch.cat([on(function(part), self.like) for part in parts])

    def _errors(self, values: Tensor) -> Tensor:
        """What is minimised, of each held-out sample (n,): divergence or squared error."""
        return divergences(self.target, values) if self.loss == "kl" else self._squares(values)

    def _squares(self, values: Tensor) -> Tensor:
        """Squared error of each held-out sample (n,) over the variance, whose mean is the FVU."""
        return (values.double() - self.target).square().sum(1) / self.variance


@dataclass(frozen=True)
class Trainable:
    """A polynomial as a linear function of parameters: one tensor (o, ...) for each group of similar features."""

    parameters: list[Tensor]
    build: Build

    def polynomial(self, parameters: Sequence[Tensor]) -> Any:
        """The polynomial at given parameters, in float64 and in the form that it had."""
        poly = self.build([p.double() for p in parameters])
        if not isinstance(poly, DensePolynomial) or poly.directions is None:
            return poly
        poly = poly.expanded()
        return poly if poly.quadratic is None else replace(poly, quadratic=0.5 * (poly.quadratic + poly.quadratic.mT))


def trainable(poly: DensePolynomial | ChaosPolynomial, sample: Tensor, batch_size: int) -> Trainable:
    """Parameters of a polynomial over tensors, for descent on batches of the distribution of `sample` (n, d).

    The polynomial is rewritten, without changing its values, in coordinates in which the features that the parameters
    multiply have comparable sizes, little correlation and, where possible, mean zero: the speed of gradient descent is
    limited by the ratio of the largest curvature to the smallest. Fewer features than a batch has samples are whitened.
    More are not whitened fully: sampling noise would limit the steps in all directions alike, while directions with
    much variance matter first.
    """
    dtype: Any = poly.prototype.dtype
    wide: Any = map_polynomial(poly, lambda a: a.double())
    if isinstance(poly, DensePolynomial):
        full = math.comb(poly.dim_in + poly.degree, poly.degree) <= batch_size
        parameters, build = _dense(wide.expanded(), sample, full)
    else:
        parameters, build = _chaos(wide, sample, len(poly.exponents) <= batch_size)
    return Trainable([p.to(dtype) for p in parameters], build)


def _dense(poly: Any, sample: Tensor, full: bool) -> tuple[list[Tensor], Build]:
    """Features 1, z and (z z' - E z z') / sqrt 2, with z = T (x - mean): orthonormal for whitened Gaussian inputs."""
    mean: Any = sample.mean(0)
    cov = (sample - mean).T @ (sample - mean) / len(sample)
    T, inverse = _whitener(cov, full)
    second = T @ cov @ T  # E z z', which is I only if whitened in full
    start: list[Any] = [poly(mean)]
    if poly.degree >= 1:
        start.append(poly.gradient(mean) @ inverse)
    if poly.degree == 2:
        # z' B z = <B, z z' - E z z'> + <B, E z z'>: the constant takes up the mean of the quadratic part.
        bend = inverse @ poly.quadratic @ inverse
        start[0] = start[0] + (bend * second).sum((1, 2))
        start.append(0.5 * (bend + bend.mT) * math.sqrt(2))

    def build(theta: Sequence[Tensor]) -> DensePolynomial:
        terms: list[Any] = [*theta, None, None]
        constant, linear, bend = terms[:3]
        center, directions, moment = (a.to(theta[0].dtype) for a in (mean, T, second))
        if bend is not None:
            bend = bend * math.sqrt(0.5)
            constant = constant - (bend * moment).sum((1, 2))
        return DensePolynomial(center, constant, linear, bend, directions if linear is not None else None)

    return start, build


def _chaos(poly: ChaosPolynomial, sample: Tensor, full: bool) -> tuple[list[Tensor], Build]:
    """Features he_a(z), scaled to unit mean square, and whitened while a batch outnumbers them."""
    features = products((sample - poly.center) @ poly.whitener.T, poly.table).T  # (n, t)
    scale = features.square().mean(0).sqrt()
    scale = scale.where(scale > 1e-9 * scale.max(), torch.ones_like(scale))  # features that vanish stay as they are
    T = inverse = torch.eye(len(scale)).to(scale)
    if full:  # The constant is one of the features, so they are not centred.
        T, inverse = _whitener((features / scale).T @ (features / scale) / len(features), True)

    def build(theta: Sequence[Tensor]) -> ChaosPolynomial:
        base = map_polynomial(poly, lambda a: a.to(theta[0].dtype))
        return replace(base, values=theta[0] @ (T / scale).to(theta[0].dtype))

    return [poly.values * scale @ inverse], build


def _whitener(cov: Tensor, full: bool) -> tuple[Tensor, Tensor]:
    """Symmetric T with T cov T = I if `full`, else cov^(1/2), and its inverse; small variances are not blown up."""
    values, vectors = torch.linalg.eigh(cov)
    values = values.clip(0) + (_FLOOR_FULL if full else _FLOOR_HALF) * values.clip(0).mean()
    roots = values ** (0.5 if full else 0.25)
    return (vectors / roots) @ vectors.T, (vectors * roots) @ vectors.T


def steps_of(problem: Trainable, x: Tensor, seed: int) -> list[float]:
    """1 / curvature for each group of parameters, such that one step of that size in all does not overshoot.

    With J the derivative of the values (n, o) in the parameters, the largest eigenvalue of J'J / n on a batch bounds
    the step. If features outnumber the samples of a batch, it exceeds the expected one by just the sampling noise that
    a step has to tolerate.
    """
    rng = np.random.default_rng(seed)
    with torch.enable_grad():
        # Outputs have parameters of their own, along the first axis, and all the same curvature: one is enough.
        theta = [p[:1].detach().requires_grad_() for p in problem.parameters]
        values = problem.build(theta)(x)
        probe = torch.zeros_like(values, requires_grad=True)
        pulled = torch.autograd.grad(values, theta, probe, create_graph=True)

    def largest(scales: Sequence[float]) -> float:
        """Largest eigenvalue of D J'J D / n, with D = scales on each group, by the power method."""
        v = [s * torch.tensor(rng.standard_normal(tuple(p.shape))).to(p) for s, p in zip(scales, theta, strict=True)]
        value = 0.0
        for _ in range(_POWERS):
            size = _norm(v)
            if not size > 0:
                return 0.0
            scaled = [s * a / size for s, a in zip(scales, v, strict=True)]
            # J'u is linear in u, and its derivative is J.
            along = torch.autograd.grad(pulled, probe, scaled, retain_graph=True)[0]
            image = torch.autograd.grad(values, theta, along, retain_graph=True)
            v = [s * a / len(values) for s, a in zip(scales, image, strict=True)]
            value = _norm(v)
        return value

    groups = range(len(theta))
    own = [largest([float(i == j) for j in groups]) for i in groups]
    joint = largest([v**-0.5 if v > 0 else 0.0 for v in own])
    return [1 / (v * joint) if v > 0 else 0.0 for v in own]


def _split(inputs: Inputs, seed: int, like: Tensor) -> tuple[Inputs, Tensor]:
    """Inputs from which batches are drawn, and the held-out samples; rows of data are one or the other."""
    if not isinstance(inputs, Samples):
        inputs = inputs.to(like)
        return inputs, inputs.sample(_HELD_OUT, seed)
    data = inputs.to(like)
    usable = np.arange(data.count) if data.weights is None else np.flatnonzero(to_numpy(data.weights))
    rows = np.random.default_rng(seed).permutation(usable)
    count = min(_HELD_OUT, len(rows) // 5)
    if count < 2:
        raise ValueError(f"inputs hold {len(rows)} rows with a weight, too few to hold some out; pass 10 or more.")

    def part(chosen: np.ndarray) -> Samples:
        return map_arrays(data, lambda a: take_rows(a, chosen))

    held = part(rows[:count])
    return part(rows[count:]), held.x if data.weights is None else held.sample(count, seed)


def _stream_seed(seed: int, stream: int, step: int) -> int:
    """A separate seed for every use."""
    return int(np.random.SeedSequence((seed, stream, step)).generate_state(1)[0])


def _norm(parts: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(a.square().sum()) for a in parts))


def _mean(each: Tensor) -> float:
    """Mean (n,), infinite if an entry is not finite."""
    value = float(each.double().mean())
    return value if math.isfinite(value) else math.inf
