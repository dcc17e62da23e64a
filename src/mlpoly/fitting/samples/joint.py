"""All neurons fitted together on samples: the best polynomial of the ridge class (MATH 13).

Under samples the errors of different neurons are correlated, and the readout of one can make up for another's. With C0
the coefficients of the fit neuron by neuron, F the features and D their standard deviations, the objective is

    E|f - F C|^2 + shrinkage |D (C - C0)|^2

One sample in five, drawn at random, is held out. The errors on these samples decide what is fitted and how far it is
shrunk, and they are what the report states. The answer is then fitted to all samples.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtrit

from mlpoly.arrays import Array, chunks, namespace, no_gradients, readable, scalar, take_rows, to_numpy, widen
from mlpoly.fitting.gaussian import fit_gaussian
from mlpoly.fitting.joint_features import Coefficients, Features, features_of
from mlpoly.fitting.neuron_equations import NeuronEquations
from mlpoly.fitting.report import FitReport
from mlpoly.inputs import Samples
from mlpoly.linalg.shrinkage import MANY, ShrunkLeastSquares
from mlpoly.networks import Layer, Network, layers_of
from mlpoly.polynomials import BoundedPolynomial, RidgePolynomial
from mlpoly.records import replace
from mlpoly.units import Units

METHOD = "least squares over all neurons together on samples"
PRIOR = 1e-3  # weight of the closed form in the fit neuron by neuron, relative to that of all samples
_HELD = 5  # one sample in so many is held out
_NUMBERS = 2**24  # values of features held at once
_SUPPORT = 100  # samples that a feature's size rests on at least, as (sum of squares)^2 / (sum of fourth powers)
_SMALL = 1e-2  # of the part in the outputs that one neuron in ten exceeds
_SURE = 2.0  # standard errors of many samples by which fitting together must win on those held out
_GRID = [10.0 ** (power / 2) for power in range(8, -21, -1)]  # shrinkages, for features of variance one


def fit_joint(
    net: Layer,
    inputs: Samples,
    degree: int,
    bound: float | None = None,
    coefficients: Coefficients = "auto",
    shrinkage: float | None = None,
) -> RidgePolynomial | BoundedPolynomial:
    """Return the best polynomial of all neurons together on samples, without gradients; see `mlpoly.methods.Joint`."""
    if not readable(net.prototype, inputs.prototype):
        raise TypeError("fits on samples choose by value; call them outside jax.jit and torch.compile.")
    with no_gradients(net.prototype):
        split = Split(net, inputs)
        start, everything, real = _neuronwise(net, split, degree, bound)
        careful, every = shrinkage is None, features_of(start, coefficients, real)
        fits = [split.fill(JointFit(net, each, careful)).choose(shrinkage) for each in every]
        best = min(fits, key=lambda fit: fit.error)
        before, after, better = split.compare(start, best.polynomial(best.learned, best.shrinkage))
        details = {"kind": "neuronwise", "samples": split.count, "start": before}
        if better or coefficients != "auto" or shrinkage is not None:
            # From the fit neuron by neuron to all samples, so that it is no worse on them.
            final = split.fill(JointFit(net, features_of(everything, best.features.kind, real)[0], careful))
            problem = final.everything()
            poly, fvu = final.polynomial(problem, best.shrinkage), after
            details |= final.features.details(problem, best.shrinkage)
            summary = (
                f"{details['kind']}, {details['coefficients']} coefficients an output, {details['effective']:.0f} "
                f"after shrinkage; fraction of variance unexplained {fvu:.3g} on held-out samples, {before:.3g} neuron "
                f"by neuron"
            )
        else:
            poly, fvu = everything, before
            summary = f"no better than neuron by neuron, fraction of variance unexplained {fvu:.3g} on held-out samples"
        return replace(poly, inputs=inputs, report=FitReport(METHOD, summary, fvu=fvu, details=details))


class Split:
    """A network on samples, some of which are held out; those without weight do not count."""

    def __init__(self, net: Network, inputs: Samples) -> None:
        self.net, self.inputs = net, inputs
        self._width = max(max(layer.dim_in, layer.dim_hidden) for layer in layers_of(net))
        weights = np.ones(inputs.count) if inputs.weights is None else to_numpy(inputs.weights)
        rows = np.flatnonzero(weights)
        self.count = len(rows)
        if self.count < 2 * _HELD:
            raise ValueError(
                f"inputs have {self.count} samples with a weight, but fitting neurons together takes {2 * _HELD}, as "
                f"one in {_HELD} is held out; use more samples, or method='neuronwise'."
            )
        # Not every fifth: rows may come in an order that repeats.
        drawn = np.random.default_rng(0).permutation(rows)
        self._parts = np.sort(drawn[self.count // _HELD :]), np.sort(drawn[: self.count // _HELD])

    @property
    def learning(self) -> Samples:
        """The samples that are not held out."""
        rows, weights = self._parts[False], self.inputs.weights
        return Samples(take_rows(self.inputs.x, rows), None if weights is None else take_rows(weights, rows))

    def chunks(
        self, width: int = 0, held: Sequence[bool] = (False, True), more: Array | None = None
    ) -> Iterator[tuple[Array, Array, bool, Array | None]]:
        """Rows (m, d) and weights (m, 1), whether they are held out, and the same rows of `more`.

        A row takes `width` numbers.
        """
        for which in held:
            for part in chunks(len(self._parts[which]), max(_HELD, _NUMBERS // max(width, self._width))):
                rows = self._parts[which][part]
                x = take_rows(self.inputs.x, rows)
                weights = widen(x[:, :1]) * 0 + 1 / self.inputs.count
                if self.inputs.weights is not None:
                    weights = widen(take_rows(self.inputs.weights, rows))[:, None]
                yield x, weights, which, None if more is None else take_rows(more, rows)

    def fill(self, fit: "JointFit", target: Array | None = None) -> "JointFit":
        """Give all samples to a fit; returns it. The target is the network's values, or (n, o)."""
        for x, weights, held, wanted in self.chunks(fit.features.each.dim_out, more=target):
            fit.add(x, weights, held, wanted)
        return fit

    def compare(self, one: Any, two: Any) -> tuple[float, float, bool]:
        """Fractions of variance unexplained on the held-out samples, and whether the second is clearly better."""
        xp = namespace(like=self.net.prototype)
        level = widen(self.net(self.inputs.x[:1, ...]))  # of about the size of the outputs, against cancellation
        sums: Array = 0.0
        for x, w, _, _ in self.chunks(held=(True,)):
            target = widen(self.net(x))
            first, second = (xp.sum((target - widen(p(x))) ** 2, axis=1, keepdims=True) for p in (one, two))
            gain, values = first - second, target - level
            square = xp.sum(values**2, axis=1, keepdims=True)
            columns = [w, w * first, w * second, w * square, w**2, w**2 * gain, (w * gain) ** 2, w * values]
            sums = sums + xp.sum(xp.concat(columns, axis=1), axis=0)
        total, first, second, square, *squares = (scalar(sums[i]) for i in range(7))
        variance = square / total - scalar(xp.sum((sums[7:] / total) ** 2))
        gain = (first - second) / total
        error = max(squares[2] - 2 * gain * squares[1] + gain**2 * squares[0], 0.0) ** 0.5 / total
        # Few samples, or few with most of the weight, take more: the quantile is that of Student's t.
        freedom = total**2 / squares[0] - 1
        better = freedom > 1e-9 and gain > error * (1 + 1 / freedom) ** 0.5 * stdtrit(freedom, ndtr(_SURE))
        before, after = (e / total / variance if variance > 0 else float("nan") for e in (first, second))
        return before, after, bool(better)


def _neuronwise(net: Layer, split: Split, degree: int, bound: float | None) -> tuple[Any, Any, Array]:
    """Fits neuron by neuron: to samples that are not held out, where the others start; to all; and units with gates."""
    gaussian = split.inputs.gaussian()
    closed: Any = fit_gaussian(net, gaussian, degree)
    gate = Units.under(net, gaussian, spreads=True).gate if closed.series.gated is not None else None
    closed = closed if bound is None else closed.bounded(bound)
    learning, everything = NeuronEquations(closed, gate), NeuronEquations(closed, gate)
    learned, (size, h) = 0.0, learning.known.shape
    for x, weights, held, _ in split.chunks(size * h):
        (y, z), hidden = closed.forms_at(x), net.hidden(x)
        everything.add(y, z, hidden, weights)
        if not held:
            learning.add(y, z, hidden, weights)
            learned += scalar(namespace(w=weights).sum(weights))
    own = learning.polynomial(PRIOR * learned, METHOD)
    before, after, _ = split.compare(closed, own)
    spreads = learning.spreads
    real = 1.0 if spreads is None else namespace(spreads=spreads).where(spreads > 0, 1.0, 0.0)
    # Where samples are few, the closed form is closer.
    return own if after < before else closed, everything.polynomial(PRIOR, METHOD), real


class JointFit:
    """Changes of a start in some features, from a stream of samples; those held out decide how far it is shrunk.

    A `careful` one lets two kinds of features keep their weights, since a large one would fit these samples and be
    absurd on others: features whose size rests on few samples, and neurons whose part in the start is small.
    """

    def __init__(self, net: Layer, features: Features, careful: bool = False) -> None:
        self.features, self._net, self._careful = features, net, careful
        self.constants = widen(features.each.series.plain[0, :])
        self._sums: list[Array] = [0.0, 0.0]
        self._fourth: Array = 0.0

    def add(self, x: Array, weights: Array, held: bool, target: Array | None = None) -> None:
        """Add samples (m, d) with weights (m, 1), all of them held out or none; targets are the network's values."""
        xp, each = namespace(x=x), widen(self.features.each(x))
        old = each @ self.features.readout.T + self.features.bias
        target = widen(self._net(x) if target is None else target)
        rows = xp.concat([xp.ones_like(weights), each - self.constants, target - old], axis=1)
        self._sums[held] = self._sums[held] + rows.T @ (weights * rows)
        self._fourth = self._fourth + xp.sum((weights * (each - self.constants) ** 2) ** 2, axis=0)

    def choose(self, shrinkage: float | None = None) -> "JointFit":
        """Choose the shrinkage that does best on the samples held out, or take this one; returns self."""
        others, m = self._sums[True], self.features.each.dim_out
        self.learned = self._problem(self._sums[False])
        values = _GRID if shrinkage is None else [shrinkage]
        values = values if m <= MANY else values[:: -(-len(values) // 10)]  # each takes a solution
        self.error, self.shrinkage = min(zip(self.learned.errors(others, values), values, strict=True))
        self.before = scalar(namespace(others=others).linalg.trace(others[m + 1 :, m + 1 :]) / others[0, 0])
        return self

    def everything(self) -> ShrunkLeastSquares:
        """The problem of all samples."""
        return self._problem(self._sums[False] + self._sums[True])

    def _problem(self, sums: Array) -> ShrunkLeastSquares:
        xp, m = namespace(sums=sums), self.features.each.dim_out
        if not bool(xp.all(xp.isfinite(sums))):
            raise OverflowError("a neuron's polynomial overflows on some sample; use a lower degree, or a bound.")
        if self._careful and m:
            variances = xp.linalg.diagonal(sums)[1 : m + 1] / sums[0, 0] - (sums[0, 1 : m + 1] / sums[0, 0]) ** 2
            part = xp.sum(self.features.readout**2, axis=0) * variances
            least = _SMALL**2 * float(np.quantile(to_numpy(part), 0.9)) if self.features.kind == "readout" else -1.0
            whole = xp.linalg.diagonal(self._sums[False] + self._sums[True])[1 : m + 1]
            kept = xp.where((part > least) & (whole**2 >= _SUPPORT * self._fourth), 1.0, 0.0)
            kept = xp.concat([kept[:1] * 0 + 1, kept, sums[0, m + 1 :] * 0 + 1])
            sums = sums * kept[:, None] * kept
        return ShrunkLeastSquares(sums, self.features.each.dim_out)

    def polynomial(self, problem: ShrunkLeastSquares, shrinkage: float) -> Any:
        """The polynomial that solves a problem."""
        change, level = problem.solve(shrinkage)
        return self.features.changed(change, self.features.bias + level - self.constants @ change, METHOD)
