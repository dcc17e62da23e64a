"""Deep networks layer by layer: every hidden layer replaced by its own polynomial (MATH 9).

The composition has the degree of one layer to the power of their number, and explodes in the tails, where the values of
one layer's polynomial leave the range on which the next one was fitted. Two things prevent it: straight lines
(`ComposedPolynomial.bounded`), which make it piecewise, or a guard, which keeps it a polynomial.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from numbers import Real
from typing import Any, Literal

import numpy as np

from mlpoly.arrays import Array, as_integer, cast_like, namespace, no_gradients, readable, safe_inverse, scalar, widen
from mlpoly.fitting.deep.on_samples import WAYS, Stages, fit_layers, is_affine
from mlpoly.fitting.mixture.neuronwise import fit_neuronwise
from mlpoly.fitting.report import FitReport
from mlpoly.inputs import Gaussian, GaussianMixture, Inputs, Samples, require_gaussians
from mlpoly.networks import Layer, Network, layers_of, walk
from mlpoly.polynomials import ComposedPolynomial, Polynomial, Source
from mlpoly.progress_bars import progress_bar
from mlpoly.propagation import Closure, State
from mlpoly.records import map_arrays, replace, trusted
from mlpoly.units import Series

GUARDS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)  # among which "auto" chooses
WIDER = 4.0  # covariance of the guard's component relative to that of the values
_TAILS = 2.0  # covariance of the wider samples on which "auto" chooses, relative to the inputs
_DRAWS = 2048  # number of these samples, and of samples of the inputs
_WORTH = 0.99  # a larger guard must bring the error below this multiple of that of a smaller one


def fit_composed(
    net: Network, inputs: Inputs, degree: int | Sequence[int], guard: float | Literal["auto"] | None = "auto"
) -> ComposedPolynomial:
    """Polynomial of a deep network in which every hidden layer is replaced by its own; see `mlpoly.methods.Composed`.

    With a guard eps the series that are evaluated are the best for each neuron under (1 - eps) N(m, S) + eps N(m, 4 S)
    instead of N(m, S). "auto" looks at samples of wider inputs, because tails that explode are too rare among so few
    samples of the inputs themselves.
    """
    guard, layers = check_guard(guard), layers_of(net)
    hidden = sum(not is_affine(layer) for layer in layers)
    each = list(degree) if isinstance(degree, Sequence) else [as_integer("degree", degree, 0)] * hidden
    if len(each) != hidden:
        raise ValueError(f"degree has {len(each)} entries, but the network has {hidden} hidden layers.")
    given = iter([as_integer(f"degree[{i}]", n, 0) for i, n in enumerate(each)])
    degrees = [1 if is_affine(layer) else next(given) for layer in layers]
    if isinstance(inputs, Samples):
        if guard not in ("auto", 0.0):
            raise ValueError(
                f"guard is {guard}, but polynomials fitted on samples have none; pass guard=None, and call "
                f".bounded(3.0) on the result, or fit under mlpoly.Gaussian.from_samples(x)."
            )
        stages, chosen, fvu = fit_layers(net, inputs, degrees)
        made = _finished(net, stages, inputs, "on samples", ())
        report = replace(made.report, fvu=fvu, details={**made.report.details, **chosen})
        return replace(made, report=replace(report, summary=f"{report.summary}, {WAYS[chosen['kind']]}"))
    inputs = require_gaussians(inputs)
    if not readable(net.prototype, inputs.mean):
        raise TypeError("moments choose their route by value; fit outside jax.jit and torch.compile.")
    closures = [Closure() for _ in inputs.components]
    with progress_bar("components", len(closures)) as update:
        for done, (closure, component) in enumerate(zip(closures, inputs.components, strict=True)):
            update(done, "")
            walk(net, closure, State.at(component))
    weights = widen(inputs.weights)
    entering = [[state.inputs for state in states] for states in zip(*(c.before for c in closures), strict=True)]
    rows = zip(layers, entering, degrees, strict=True)
    fitted = [fit_neuronwise(layer, _pooled(weights, parts), own) for layer, parts, own in rows]
    # Root mean square over units and components of what the closure ignores, in standard deviations.
    xp = namespace(weights=weights)
    squares = zip(*([xp.mean(shift**2) for shift in closure.shifts] for closure in closures), strict=True)
    errors = tuple(math.sqrt(scalar(sum(weights[c] * square for c, square in enumerate(row)))) for row in squares)
    method = "under a Gaussian" if isinstance(inputs, Gaussian) else "under a Gaussian mixture"
    plain = _finished(net, walk(net, _Assembly(fitted), ()), inputs, method, errors)

    def guarded(eps: float) -> ComposedPolynomial:
        if not eps:
            return plain
        both = xp.concat([(1 - eps) * weights, eps * weights])
        series: list[Series | None] = []
        for layer, stage, parts in zip(layers, fitted, entering, strict=True):
            if is_affine(layer):  # exact everywhere
                series.append(None)
                continue
            mixture = GaussianMixture.of(both, [*parts, *(_wider(g, WIDER) for g in parts)])
            wide, units = map_arrays((layer, stage.units), widen)
            wider = fit_neuronwise(wide, mixture, stage.degree)
            own = wider.series.rebase(wider.units, units)
            series.append(map_arrays(own, lambda a, like=stage.prototype: cast_like(a, like)))  # type: ignore[misc]
        report = replace(plain.report, details={**plain.report.details, "guard": eps})
        return replace(_with_guards(plain, iter(series)), report=report)

    if guard != "auto" or max(degrees) <= 1 or hidden <= 1:
        return guarded(0.0 if guard == "auto" else guard)
    wider = _pooled(weights, [_wider(component, _TAILS) for component in inputs.components])
    samples = [distribution.sample(_DRAWS, seed=0) for distribution in (inputs, wider)]
    with no_gradients(net.prototype), np.errstate(over="ignore", invalid="ignore"):
        values = [net(x) for x in samples]
        best, least = GUARDS[-1], math.inf
        for eps in GUARDS:
            p = guarded(eps)
            near, far = (_fvu(f, p(x)) for x, f in zip(samples, values, strict=True))
            score = near * (1 + math.log1p(far))
            if score < _WORTH * least:
                best, least = eps, score
    return guarded(best)


def check_guard(guard: Any) -> float | Literal["auto"]:
    """Return the guard, with 0 for None, or raise if it is none."""
    if guard is None or guard == "auto":
        return guard or 0.0
    if isinstance(guard, bool) or not isinstance(guard, Real) or not 0 <= float(guard) < 1:
        raise ValueError(f"guard must be 'auto', None, or a number from 0 to below 1 such as 0.01, got {guard!r}.")
    return float(guard)


def _pooled(weights: Array, parts: Sequence[Gaussian]) -> Gaussian | GaussianMixture:
    return parts[0] if len(parts) == 1 else GaussianMixture.of(weights, parts)


def _wider(inputs: Gaussian, factor: float) -> Gaussian:
    return trusted(Gaussian, mean=widen(inputs.mean), cov=factor * widen(inputs.covariance))


def _fvu(values: Array, fitted: Array) -> float:
    """Fraction of the variance of values (n, o) that is unexplained; zero where they do not vary."""
    values, fitted = widen(values), widen(fitted)
    xp = namespace(values=values)
    variance = xp.sum((values - xp.mean(values, axis=0)) ** 2)
    return scalar(xp.sum((values - fitted) ** 2) * safe_inverse(variance))


# -- walks that list the stages: one for each layer, and a composed one for each residual connection -------------------


class _Assembly:
    """Takes the polynomials of the layers in turn; the state is the stages so far."""

    def __init__(self, fitted: Iterable[Polynomial]) -> None:
        self.fitted = iter(fitted)

    def layer(self, layer: Layer, state: Stages) -> Stages:
        return (*state, next(self.fitted))

    def enter(self, state: Stages) -> Stages:
        return ()

    def join(self, before: Stages, branch: Stages) -> Stages:
        return (*before, ComposedPolynomial(branch, skip=True))


def _finished(
    net: Network, stages: Stages, inputs: Inputs, method: str, errors: tuple[float, ...]
) -> ComposedPolynomial:
    """The polynomial of all stages, with its source and report."""
    only = stages[0]
    made = only if len(stages) == 1 and isinstance(only, ComposedPolynomial) else ComposedPolynomial(stages)
    method, degrees = f"composed, layer by layer, {method}", _degrees(made)
    summary = f"{len(degrees)} layers of degrees {degrees}, {made.degree} in all"
    report = FitReport(method, summary, details={"degrees": degrees, "guard": 0.0, "closure_errors": errors})
    source = Source(net.activation_names, method)
    return replace(made, inputs=inputs, source=source, report=report)


def _degrees(poly: Polynomial) -> tuple[int, ...]:
    """Degrees of the layers' polynomials, in the order of the data."""
    if not isinstance(poly, ComposedPolynomial):
        return (poly.degree,)
    return tuple(degree for stage in poly.stages for degree in _degrees(stage))


# -- guards ------------------------------------------------------------------------------------------------------------


def _with_guards(poly: ComposedPolynomial, series: Iterator[Series | None]) -> ComposedPolynomial:
    """The polynomial with guarded series, one for each layer in the order of the data."""
    stages: list[Polynomial] = []
    guarded: list[Series | None] = []
    for stage in poly.stages:
        nested = _with_guards(stage, series) if isinstance(stage, ComposedPolynomial) else None
        stages.append(nested or stage)
        guarded.append(None if nested else next(series))
    return replace(poly, stages=tuple(stages), guarded=tuple(guarded) if any(guarded) else None)
