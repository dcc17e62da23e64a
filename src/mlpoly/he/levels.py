"""Degrees of the layers for a budget of levels, by dynamic programming on errors in closed form."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mlpoly.arrays import Array, as_integer, cast_like, eye, namespace, scalar
from mlpoly.fitting import fit
from mlpoly.fitting.deep.layerwise import GUARDS
from mlpoly.fitting.deep.on_samples import is_affine
from mlpoly.fitting.gaussian import fit_gaussian
from mlpoly.fitting.methods import Composed
from mlpoly.he.circuit import depth_of_power
from mlpoly.he.lowering import radius_for, to_circuit
from mlpoly.inputs import Gaussian, Inputs, Samples, checked_inputs
from mlpoly.measures import degree_spectrum
from mlpoly.networks import Affine, Layer, Network, check_network, layers_of, walk
from mlpoly.polynomials import ComposedPolynomial
from mlpoly.propagation import Closure, State
from mlpoly.records import trusted
from mlpoly.tables import Table, Tabular


@dataclass(frozen=True)
class LevelChoice:
    """Degrees of the hidden layers, the levels that they need, and the predicted fraction of variance unexplained."""

    levels: int
    degrees: tuple[int, ...]
    fvu: float


@dataclass(frozen=True)
class LevelPlan(Tabular):
    """Degrees of the hidden layers for a budget of levels, and the polynomial.

    Attributes
    ----------
    levels, degrees, fvu
        Levels that are needed, degrees in the order of the data, and the predicted fraction of variance unexplained:
        the sum of what each layer's polynomial leaves out, carried to the outputs by the closest linear maps of the
        layers behind it. It knows nothing of explosions in the tails.
    choices : tuple of LevelChoice
        The best choice for every smaller budget too.
    polynomial : ComposedPolynomial
        The fit of these degrees, with a guard under which it fits into an encryption.
    """

    levels: int
    degrees: tuple[int, ...]
    fvu: float
    choices: tuple[LevelChoice, ...]
    polynomial: ComposedPolynomial

    def __repr__(self) -> str:
        return f"LevelPlan(levels={self.levels}, degrees={self.degrees}, fvu={self.fvu:.3g})"

    def _table(self) -> Table:
        rows = tuple((c.levels, str(c.degrees), c.fvu) for c in self.choices)
        return Table(("levels", "degrees", "predicted FVU"), rows, repr(self))


def plan(
    net: Network,
    inputs: Inputs,
    levels: int,
    *,
    max_degree: int = 16,
    outside: float = 1e-6,
    guard: float | Literal["auto"] | None = "auto",
) -> LevelPlan:
    """Choose the degree of every hidden layer for encrypted inference with a budget of levels.

    A layer of degree 2^(c-1) + 1 to 2^c costs c + 1 levels, one of degree 1 none, and the first matrix one. So degrees
    are powers of two: those with the least predicted error that the budget allows, in closed form under the Gaussian
    with the moments of the inputs. The result prints as a table of the best degrees for every budget.

    Parameters
    ----------
    net : network
    inputs : Gaussian, GaussianMixture or Samples
    levels : int
        Products that may follow one another, such as 8 for a ring of dimension 16384 at 128-bit security.
    max_degree : int
        Largest degree of a layer; a power of two, or rounded down to one.
    outside : float
        Probability of leaving the range that the circuit is made for; as in `Polynomial.to_he`.
    guard : float, "auto" or None
        As in `fit`. With "auto", if the polynomial explodes on samples of the inputs, the next larger guard is taken.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.Chain([mp.MLP(np.eye(3), None, None, None, "gelu"), mp.MLP(np.eye(3)), mp.Affine(np.ones((1, 3)))])
    >>> mp.he.plan(net, mp.Gaussian.standard(3), levels=6).degrees  # and .polynomial.to_he()
    (2, 4)
    """
    net, levels = check_network(net), as_integer("levels", levels, 1)
    top = as_integer("max_degree", max_degree, 1)
    radius_for(outside, 1)  # raises before the work if it is no probability
    given = checked_inputs(net, inputs)
    degrees = [2**c for c in range(top.bit_length())]
    errors, variance = _errors(net, trusted(Gaussian, mean=given.mean, cov=given.covariance), degrees)
    choices = _choices(errors, variance, degrees, levels)
    best = choices[-1]
    polynomial = _fitted(net, given, best.degrees, guard, outside)
    return LevelPlan(best.levels, best.degrees, best.fvu, choices, polynomial)


def _errors(net: Network, inputs: Gaussian, degrees: list[int]) -> tuple[list[list[float]], float]:
    """Variance of the outputs that each layer loses at each of the degrees, and their variance."""
    closure = Closure()
    behind = walk(net, closure, State.at(inputs))
    xp = namespace(mean=behind.inputs.mean)
    variance = scalar(xp.sum(xp.linalg.diagonal(behind.inputs.covariance)))
    layers, entering = layers_of(net), [state.inputs for state in closure.before]
    slopes = [fit_gaussian(layer, under, 1).tensor(1) for layer, under in zip(layers, entering, strict=True)]
    responses = walk(net, _Responses(slopes), {})
    errors = []
    for i, (layer, under) in enumerate(zip(layers, entering, strict=True)):
        if is_affine(layer):
            continue
        carried = layer.followed_by(Affine(cast_like(responses[i], layer.prototype)))
        spectrum = degree_spectrum(carried, under, degrees[-1])
        by_degree = [scalar(xp.sum(row)) for row in spectrum.variance] + [scalar(xp.sum(spectrum.remainder))]
        errors.append([sum(by_degree[degree:]) for degree in degrees])
    return errors, variance


class _Responses:
    """A walk that carries a small change of each layer's outputs to the end: a matrix for each layer passed."""

    def __init__(self, slopes: Iterable[Array]) -> None:
        self.slopes, self.count = iter(slopes), 0

    def layer(self, layer: Layer, state: dict[int, Array]) -> dict[int, Array]:
        slope = next(self.slopes)
        made = {i: slope @ matrix for i, matrix in state.items()} | {self.count: eye(layer.dim_out, slope)}
        self.count += 1
        return made

    def enter(self, state: dict[int, Array]) -> dict[int, Array]:
        return state

    def join(self, before: dict[int, Array], branch: dict[int, Array]) -> dict[int, Array]:
        return {i: matrix + before[i] if i in before else matrix for i, matrix in branch.items()}


def _choices(errors: list[list[float]], variance: float, degrees: list[int], levels: int) -> tuple[LevelChoice, ...]:
    """The best degrees for every budget up to `levels`; each entry needs more levels than the one before."""
    costs = [0 if degree == 1 else depth_of_power(degree) + 1 for degree in degrees]
    most = 1 + len(errors) * max(costs)  # more levels than all layers can use change nothing
    # by the levels that the hidden layers may use
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())] * min(levels, most)
    for layer in errors:
        options = list(zip(costs, degrees, layer, strict=True))
        best = [
            min(
                (best[budget - cost][0] + error, (*best[budget - cost][1], degree))
                for cost, degree, error in options
                if cost <= budget
            )
            for budget in range(len(best))
        ]
    found: list[LevelChoice] = []
    for error, chosen in best:
        needed = 1 + sum(costs[degrees.index(degree)] for degree in chosen)
        if not found or chosen != found[-1].degrees:
            found.append(LevelChoice(needed, chosen, error / variance if variance > 0 else 0.0))
    return tuple(found)


def _fitted(
    net: Network, inputs: Inputs, degrees: tuple[int, ...], guard: float | Literal["auto"] | None, outside: float
) -> ComposedPolynomial:
    """The fit of given degrees, with the first guard under which its circuit does not overflow."""
    poly = fit(net, inputs, degrees, method=Composed(guard))
    guards = GUARDS if guard == "auto" and not isinstance(inputs, Samples) else ()  # fits on samples have none
    larger = [eps for eps in guards if eps > poly.report.details["guard"]]
    while True:
        try:
            to_circuit(poly, outside)
            return poly
        except ValueError:
            if not larger:
                raise
            poly = fit(net, inputs, degrees, method=Composed(larger.pop(0)))
