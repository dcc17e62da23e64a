"""All neurons fitted together on samples: the best polynomial of the ridge class (MATH 13).

Under samples the errors of different neurons are correlated, and the readout of one can make up for another's. The
features are the neurons' own polynomials ("readout"), or every function that these are made of ("free"). With C0 the
coefficients of the fit neuron by neuron, F the features and D their standard deviations, the objective is

    E|f - F C|^2 + shrinkage |D (C - C0)|^2

Every fifth sample is held out. The errors on these samples decide what is fitted and how far it is shrunk, and they are
what the report states. The answer is then fitted to all samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from mlpoly.arrays import Array, cast_like, constant, eye, namespace, no_gradients, readable, scalar, widen
from mlpoly.errors import TooLargeError
from mlpoly.fitting.gaussian import fit_gaussian
from mlpoly.fitting.neuron_equations import NeuronBasis, NeuronEquations
from mlpoly.fitting.report import FitReport
from mlpoly.inputs import Samples
from mlpoly.linalg.shrinkage import ShrunkLeastSquares
from mlpoly.networks import Layer
from mlpoly.polynomials import BoundedPolynomial, RidgePolynomial
from mlpoly.records import map_arrays, replace
from mlpoly.units import Units

Coefficients = Literal["auto", "readout", "free"]

METHOD = "least squares over all neurons together on samples"
PRIOR = 1e-3  # weight of the closed form in the fit neuron by neuron, relative to that of all samples
_HELD = 5  # one sample in so many is held out
_NUMBERS = 2**24  # values of features held at once
_FREE = 4096  # features up to which "auto" tries free coefficients: decomposing their Gram matrix takes seconds
_MOST = 2**14  # features on request: a Gram matrix of 2 GiB
_SURE = 2.0  # standard errors by which fitting together must win on held-out samples
_GRID = [10.0**power for power in np.arange(4.0, -10.5, -0.5)]  # shrinkages, for features of variance one


@overload
def fit_joint(net: Layer, inputs: Samples, degree: int) -> RidgePolynomial: ...
@overload
def fit_joint(
    net: Layer,
    inputs: Samples,
    degree: int,
    bound: float | None = None,
    coefficients: Coefficients = "auto",
    shrinkage: float | None = None,
) -> RidgePolynomial | BoundedPolynomial: ...
def fit_joint(
    net: Layer,
    inputs: Samples,
    degree: int,
    bound: float | None = None,
    coefficients: Coefficients = "auto",
    shrinkage: float | None = None,
) -> RidgePolynomial | BoundedPolynomial:
    """Return the best polynomial of all neurons together on samples; without gradients.

    Parameters
    ----------
    net : Layer
    inputs : Samples
    degree : int
    bound : float, optional
        Standard deviations of a preactivation beyond which neurons are straight lines.
    coefficients : {"auto", "readout", "free"}
        "auto" takes what does best on held-out samples, neuron by neuron included.
    shrinkage : float, optional
        By default what does best on held-out samples.
    """
    if not readable(net.prototype, inputs.prototype):
        raise TypeError("fits on samples choose by value; call them outside jax.jit and torch.compile.")
    if inputs.count < 2 * _HELD:
        raise ValueError(
            f"inputs have {inputs.count} samples, but fitting neurons together takes {2 * _HELD}, as one in {_HELD} is "
            f"held out; use more samples, or method='neuronwise'."
        )
    with no_gradients(net.prototype):
        data = _HeldOutData(net, inputs)
        neurons = _Neurons(data, degree, bound)
        fits = [_Fit(data, neurons, kind, shrinkage) for kind in neurons.kinds(coefficients)]
        best = min(fits, key=lambda fit: fit.error)
        held = data.held_out(neurons.start, best.polynomial(best.learned))
        start, fvu = held.fractions
        poly, details = neurons.neuronwise, {"kind": "neuronwise", "samples": inputs.count, "start": start}
        summary = f"no better than neuron by neuron, fraction of variance unexplained {start:.3g} on held-out samples"
        if coefficients != "auto" or shrinkage is not None or held.gain > _SURE * held.gain_error:
            problem = best.everything
            poly, effective = best.polynomial(problem), problem.effective(best.shrinkage)
            details |= {"kind": best.kind, "coefficients": best.count, "rank": problem.rank}
            details |= {"effective": effective, "shrinkage": best.shrinkage}
            summary = (
                f"{best.kind}, {best.count} coefficients an output, {effective:.0f} after shrinkage; fraction of "
                f"variance unexplained {fvu:.3g} on held-out samples, {start:.3g} neuron by neuron"
            )
        else:
            fvu = start
        return replace(poly, inputs=inputs, report=FitReport(METHOD, summary, fvu=fvu, details=details))


@dataclass(frozen=True)
class _HeldOutErrors:
    """Two polynomials on the held-out samples: fractions of variance unexplained, and what the second gains."""

    fractions: tuple[float, float]
    gain: float
    gain_error: float  # its standard error


@dataclass(frozen=True, eq=False)
class _HeldOutData:
    """A network on samples, every fifth of which is held out."""

    net: Layer
    inputs: Samples

    def chunks(self, width: int) -> Iterator[tuple[Array, Array, Array]]:
        """Rows (m, d), their weights (m, 1), and which are held out (m, 1), for `width` numbers a row."""
        first = 0
        for x, weights in self.inputs.chunks(max(_HELD, _NUMBERS // max(width, self.net.dim_in))):
            rows = np.arange(first, first + x.shape[0])
            first += x.shape[0]
            yield x, weights, constant((rows % _HELD == _HELD - 1).astype(float)[:, None], weights)

    def held_out(self, one: Any, two: Any) -> _HeldOutErrors:
        """Errors of two polynomials on the held-out samples."""
        xp = namespace(like=self.net.prototype)
        level = widen(self.net(self.inputs.x[:1, ...]))  # of about the size of the outputs, against cancellation
        rows: Array = 0.0  # sums of w, w e, w f', w |f'|^2 and of (w gain)^k, k = 0, 1, 2, with f' = f - level
        for x, weights, held in self.chunks(self.net.dim_hidden):
            w, target = weights * held, widen(self.net(x))
            first, second = (xp.sum((target - widen(p(x))) ** 2, axis=1, keepdims=True) for p in (one, two))
            shifted, gain = target - level, first - second
            square = xp.sum(shifted**2, axis=1, keepdims=True)
            columns = [w, w * first, w * second, w * square, w**2, w**2 * gain, (w * gain) ** 2, w * shifted]
            rows = rows + xp.sum(xp.concat(columns, axis=1), axis=0)
        total, first, second, square, *gains = (scalar(rows[i]) for i in range(7))
        if not total > 0:
            raise ValueError("all samples that are held out have weight zero; leave rows of weight zero out.")
        variance = square / total - scalar(xp.sum((rows[7:] / total) ** 2))
        gain = (first - second) / total
        spread = max(gains[2] - 2 * gain * gains[1] + gain**2 * gains[0], 0.0) ** 0.5 / total
        fractions = tuple(e / total / variance if variance > 0 else float("nan") for e in (first, second))
        return _HeldOutErrors((fractions[0], fractions[1]), gain, spread)


class _Neurons:
    """The fit neuron by neuron: to all samples, and to those that are not held out, where the others start."""

    def __init__(self, data: _HeldOutData, degree: int, bound: float | None) -> None:
        net, gaussian = data.net, data.inputs.gaussian()
        self.net = net
        closed: Any = fit_gaussian(net, gaussian, degree)
        self.gate = Units.under(net, gaussian, spreads=True).gate if closed.series.gated is not None else None
        closed = closed if bound is None else closed.bounded(bound)
        self.basis: NeuronBasis[Any] = NeuronBasis(closed, self.gate)
        learning, everything = NeuronEquations(self.basis), NeuronEquations(self.basis)
        learned = 0.0
        for x, weights, held in data.chunks(self.basis.known.shape[0] * self.basis.known.shape[1]):
            (y, z), hidden = self.basis.start.forms_at(x), net.hidden(x)
            learning.add(y, z, hidden, weights * (1 - held))
            everything.add(y, z, hidden, weights)
            learned += scalar(namespace(w=weights).sum(weights * (1 - held)))
        if not learned > 0:
            raise ValueError("all samples that are not held out have weight zero; leave rows of weight zero out.")
        self.neuronwise = everything.polynomial(PRIOR, METHOD)
        own = learning.polynomial(PRIOR * learned, METHOD)
        # Where samples are few, the closed form is closer.
        self.start: Any = own if data.held_out(closed, own).gain > 0 else closed

    @property
    def free(self) -> int:
        """Number of functions that all neurons are made of, constants aside."""
        size, h = self.basis.known.shape
        return int((size - 1) * h)

    def kinds(self, coefficients: Coefficients) -> tuple[Literal["readout", "free"], ...]:
        """What is to be tried."""
        if coefficients == "auto":
            return ("readout", "free") if 0 < self.free <= _FREE else ("readout",)
        if coefficients == "free" and self.free > _MOST:
            raise TooLargeError(
                f"free coefficients of degree {self.basis.start.degree} have {self.free} features, whose Gram matrix "
                f"takes {8 * self.free**2 / 2**30:.0f} GiB; the limit is {_MOST}. Use coefficients='readout'."
            )
        return (coefficients,)

    def features(self, kind: str) -> Callable[[Array], Array]:
        """Function from points (n, d) to features (n, m)."""
        if kind == "readout":
            each = replace(self.start, readout=None, bias=None)
            constants = widen(each.series.plain[0, :])
            return lambda x: widen(each(x)) - constants
        basis, xp = self.basis, namespace(known=self.basis.known)

        def functions(x: Array) -> Array:
            values = widen(basis.values(*basis.start.forms_at(x)))[1:, ...]  # the constant is in the bias
            return xp.reshape(xp.permute_dims(values, (1, 0, 2)), (x.shape[0], self.free))

        return functions

    def with_readout(self, change: Array, level: Array) -> Any:
        """The start with `change` (h, o) more of every neuron, less its constant, and `level` (o,) more bias."""
        readout, bias = self._readout()
        bias = bias + level - widen(self.start.series.plain[0, :]) @ change
        return _read_by(self.start, readout + change.T, bias)

    def with_coefficients(self, change: Array, level: Array) -> Any:
        """The start with `change` (m, o) more of every function: one unit for each, with a readout of its own."""
        (size, h), xp = self.basis.known.shape, namespace(known=self.basis.known)

        def repeated(axis: int) -> Callable[[Array], Array]:
            return lambda a: xp.concat([a] * (size - 1), axis=axis)

        one: Any = self.basis.start
        several = replace(one, units=map_arrays(one.units, repeated(0)), series=map_arrays(one.series, repeated(1)))
        if isinstance(one, BoundedPolynomial):
            slopes, gate_slopes = map_arrays((one.slopes, one.gate_slopes), repeated(1))
            several = replace(several, bounds=repeated(0)(one.bounds), slopes=slopes, gate_slopes=gate_slopes)
        one_each = constant(np.kron(np.eye(size)[:, 1:], np.ones((1, h))), change)
        poly = NeuronBasis(several, map_arrays(self.gate, repeated(0))).polynomial(one_each, METHOD)
        known = NeuronBasis(self.start, self.gate).known
        readout, bias = self._readout()
        start = xp.concat([readout * known[k, :] for k in range(1, size)], axis=1)
        return _read_by(poly, start + change.T, bias + level + readout @ known[0, :])

    def _readout(self) -> tuple[Array, Array]:
        """Readout (o, h) and bias (o,) of the start."""
        readout, bias = self.start.readout, self.start.bias
        readout = eye(self.net.dim_hidden, self.basis.known) if readout is None else widen(readout)
        return readout, readout[:, 0] * 0 if bias is None else widen(bias)


class _Fit:
    """Features of one kind, and the shrinkage that does best with them on the held-out samples."""

    def __init__(
        self, data: _HeldOutData, neurons: _Neurons, kind: Literal["readout", "free"], shrinkage: float | None
    ) -> None:
        self.kind, self.neurons = kind, neurons
        self.count = neurons.free if kind == "free" else data.net.dim_hidden
        features, xp = neurons.features(kind), namespace(known=neurons.basis.known)
        moments: list[Array] = [0.0, 0.0]
        for x, weights, held in data.chunks(self.count):
            residual = widen(data.net(x)) - widen(neurons.start(x))
            rows = xp.concat([xp.ones_like(weights), features(x), residual], axis=1)
            for i, part in enumerate((weights * (1 - held), weights * held)):
                moments[i] = moments[i] + rows.T @ (part * rows)
        total = moments[0] + moments[1]
        if not bool(xp.all(xp.isfinite(total))):
            raise OverflowError("a neuron's polynomial overflows on some sample; use a lower degree, or a bound.")
        self.learned, self.total = ShrunkLeastSquares(moments[0], self.count), total
        values = _GRID if shrinkage is None else [shrinkage]
        errors = self.learned.errors(moments[1], values)
        self.error, self.shrinkage = min(zip(errors, values, strict=True))

    @property
    def everything(self) -> ShrunkLeastSquares:
        """The problem of all samples."""
        return ShrunkLeastSquares(self.total, self.count)

    def polynomial(self, problem: ShrunkLeastSquares) -> Any:
        """The polynomial that solves a problem."""
        build = self.neurons.with_readout if self.kind == "readout" else self.neurons.with_coefficients
        return build(*problem.solve(self.shrinkage))


def _read_by(poly: Any, readout: Array, bias: Array) -> Any:
    """The polynomial with another readout and bias."""
    like, source = poly.series.plain, replace(poly.source, method=METHOD)
    return replace(poly, readout=cast_like(readout, like), bias=cast_like(bias, like), source=source)
