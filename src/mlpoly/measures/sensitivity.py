"""How much of a network's variance some of its inputs explain: Var E[f | x_S], for dependent inputs too (MATH 10)."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mlpoly.arrays import Array, cast_result, constant_index, namespace, rounding_error, safe_inverse, to_numpy
from mlpoly.arrays.host import by_value
from mlpoly.inputs import Gaussian, Given, InputsLike, as_inputs, posterior
from mlpoly.measures.conditional_mean import REPLICATES, TO_ERROR, ConditionalMean, has_means, left_over, normal_draws
from mlpoly.measures.functions import expansion, expansions, gaussians, measured, widened
from mlpoly.measures.games import averaged, counted, drawn_orders, input_groups, sets_needed, shapley_values
from mlpoly.measures.orthogonal import Orthogonal
from mlpoly.measures.regression import without_gaussians
from mlpoly.moments import inner
from mlpoly.networks import Layer, Network
from mlpoly.polynomials import Polynomial
from mlpoly.progress_bars import progress_bar
from mlpoly.records import map_arrays, record, static
from mlpoly.special import normal_cdf
from mlpoly.tables import Plottable, Table, Tabular

_COUNTS = (64, 256, 1024, 2048)  # draws in each replicate, until the standard errors of fractions are small enough
_ENOUGH, _ENOUGH_OF_PAIRS = 5e-3, 1e-2
_TOLERANCE = 1e-3  # between two rules for the mean of a unit, of which the better one has about the square as its error


@record
class Sensitivity(Tabular, Plottable):
    """Fractions of the variance of every output that groups of inputs explain.

    Attributes
    ----------
    first : array (g, o)
        Var E[f | x_S] / Var f: what is explained by the group alone. Sobol's first-order index where inputs are
        independent.
    total : array (g, o)
        1 - Var E[f | all others] / Var f: what is lost without the group. Sobol's total index.
    shapley : array (g, o)
        Shapley effects: the growth of the explained fraction when the group joins others, averaged over all orders of
        joining. They add up to one, for dependent inputs too.
    variance, bound : array (o,)
        Variance of the outputs, and bound on the error of explained fractions from truncated series, rounding aside.
    pairs : array (g, g, o) or None
        What two groups explain together beyond what each explains alone, with ``interactions=True``; negative where
        they are redundant. For independent inputs, Sobol's second-order index.
    standard_error : array (g, o) or None
        The largest of those of `first`, `total` and `shapley` where something was sampled.
    remainder : array (o,)
        On data, the fraction of the variance that polynomials of all inputs leave unexplained; `shapley` adds up to the
        rest, and `total` is what they lose without the group. Of a polynomial under the independent inputs of its fit,
        what it leaves of the variance of its network; all fractions are those of its own variance. Zero otherwise.
    groups, sampled : tuple of str, str
        Names of the groups, and what was sampled; empty if everything is closed form.
    """

    first: Array
    total: Array
    shapley: Array
    variance: Array
    pairs: Array | None = None
    standard_error: Array | None = None
    bound: Array = None
    remainder: Array = None
    groups: tuple[str, ...] = static(default=())
    sampled: str = static(default="")
    output_names: tuple[str, ...] | None = static(default=None)

    def _table(self) -> Table:
        weights = to_numpy(self.variance).astype(float)
        weights = weights / weights.sum()
        parts = [self.first, self.total, self.shapley]
        columns = ["inputs", "first", "total", "Shapley"]
        if self.standard_error is not None:  # of outputs together at most the sum of theirs
            parts.append(self.standard_error)
            columns.append("standard error")
        numbers = zip(self.groups, *((to_numpy(a) @ weights).tolist() for a in parts), strict=True)
        rows: list[tuple[Any, ...]] = sorted(numbers, key=lambda row: -float(row[3]))
        if self.pairs is not None:
            pairs, count = to_numpy(self.pairs) @ weights, len(self.groups)
            both = [(i, j) for i in range(count) for j in range(i)]
            for i, j in sorted(both, key=lambda pair: -abs(pairs[pair])):
                empty = [None] * (len(columns) - 3)
                rows.append((f"{self.groups[j]} \N{MIDDLE DOT} {self.groups[i]}", float(pairs[i, j]), None, *empty))
        many = ", all outputs together" if len(weights) > 1 else ""
        note = f"sampled: {self.sampled}" if self.sampled else "closed form"
        left = float(to_numpy(self.remainder) @ weights)
        note += f", which leaves {left:.2g} unexplained" if left else ""
        note += "" if self.pairs is None else "; of pairs, what both explain beyond each alone"
        title = f"Fractions of the variance{many}"
        return Table(tuple(columns), tuple(rows), title=title, note=note, limit=40)


@by_value
def sensitivity(
    net: Network | Polynomial,
    inputs: InputsLike,
    groups: Any = None,
    interactions: bool = False,
    permutations: int | None = None,
    seed: int = 0,
) -> Sensitivity:
    """How much of the variance of every output the inputs explain, alone, together and on average.

    Var E[f | x_S] is closed form under a Gaussian, for correlated inputs too: the pair kernel of hidden units with the
    correlations that x_S leaves (MATH 10). Otherwise it is an average over draws of the inputs, until its standard
    error is 0.5 % of the variance, or 1 % where means given some inputs have no closed form; at most 16 384 of them.

    Parameters
    ----------
    net : network or Polynomial
        In closed form under a Gaussian: networks with one hidden layer, and all but composed polynomials. Deep networks
        themselves are sampled; `mlpoly.fit(net, inputs, 2)` has a closed form.
    inputs : Gaussian, GaussianMixture, Independent, Samples or data (n, d)
        Under independent inputs polynomials have a closed form, from their coefficients in orthogonal polynomials. On
        data, E[f | x_S] is a polynomial in x_S, fitted by least squares: of the degree of `net` if that is a
        polynomial, else of the highest degree up to 8 with five rows for each monomial. Groups of rows left out
        give the standard errors.
    groups : sequence of inputs or of sequences of inputs, or mapping from name to inputs, optional
        Inputs by index or name, each in one group at most; inputs in none form one more, "others". By default every
        input is a group.
    interactions : bool
        Add what all pairs of groups explain together, `Sensitivity.pairs`.
    permutations, seed : int, optional
        Number of orders that are drawn for the Shapley effects, an even number from 4, and their seed. By default all
        subsets are used for up to 12 groups, and 64 orders for more.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.array([[1.0, 2.0]]), None, "identity")  # x0 + 2 x1
    >>> mp.sensitivity(net, mp.Gaussian.standard(2)).first[:, 0].round(12).tolist()
    [0.2, 0.8]
    """
    net, inputs = measured(net, as_inputs(inputs))
    names, places = input_groups(groups, inputs)
    count, whole = len(names), tuple(range(len(names)))
    explained: Any = without_gaussians(net, inputs)
    if explained is None:
        closed = isinstance(net, Layer) or (isinstance(net, Polynomial) and net.closed_form)
        closed = closed and len(gaussians(net, inputs)) == 1
        explained = _ClosedForm(net, inputs.components[0]) if closed else _Sampled(net, inputs, seed)
    variance, xp = explained.variance, namespace(variance=explained.variance)
    if not bool(xp.all(variance > 0)):
        raise ValueError("an output has no variance under these inputs, so that there is nothing to explain.")

    def worth(chosen: tuple[int, ...]) -> Array:
        """Explained fraction by replicates, (r o,)."""
        inside = np.concatenate([np.zeros(0, dtype=np.int64), *(places[i] for i in chosen)])
        return xp.reshape(explained(inside), (-1,))

    with progress_bar("sets of inputs", sets_needed(count, permutations, interactions)) as update:
        known = counted(worth, update)
        first = xp.stack([known((i,)) for i in whole])
        total = known(whole) - xp.stack([known(whole[:i] + whole[i + 1 :]) for i in whole])
        if isinstance(explained, Orthogonal) and permutations is None:
            effects, of_orders = explained.effects(places), None
        else:
            effects, of_orders = shapley_values(known, count, permutations, seed)
        pairs = None
        if interactions:  # what two groups explain together beyond what each explains alone
            none = known(())
            table = [[none if i == j else known((i, j)) - known((i,)) - known((j,)) for j in whole] for i in whole]
            pairs = xp.stack([xp.stack(row) for row in table])
    drawn = [] if of_orders is None else [f"{drawn_orders(count, permutations)} orders of the inputs"]
    sampled = " and ".join(filter(None, [explained.sampled, *drawn]))

    outputs = int(variance.shape[0])
    listed = [(first, None), (total, None), (effects, of_orders)]
    parts, errors = zip(*(averaged(a, outputs, explained.factor, more) for a, more in listed), strict=True)
    error = xp.max(xp.stack(list(errors)), axis=0) if sampled else None
    both = None if pairs is None else averaged(pairs, outputs, 0.0)[0]
    found = Sensitivity(
        first=parts[0],
        total=parts[1],
        shapley=parts[2],
        variance=variance,
        pairs=both,
        standard_error=error,
        bound=explained.bound / variance,
        remainder=explained.remainder,
        groups=names,
        sampled=sampled,
        output_names=getattr(net, "output_names", None),
    )
    return map_arrays(found, lambda a: cast_result(a, getattr(net, "prototype", variance)))


# -- what inputs explain: functions of their positions to Var E[f | x_S] / Var f by replicates, (r, o) -----------------


class _ClosedForm:
    """Under one Gaussian, in closed form."""

    sampled, factor = "", 0.0

    def __init__(self, net: Any, inputs: Gaussian) -> None:
        # Sets that have all inputs that vary explain everything, exactly.
        self.inputs, self.varying = inputs, set(np.flatnonzero(to_numpy(inputs._variances())).tolist())
        self.function = expansion(net, inputs)
        whole = inner(self.function, self.function)
        self.variance, self.bound, self.remainder = whole.total, whole.bound, whole.total * 0

    def __call__(self, known: np.ndarray) -> Array:
        whole = self.variance[None, :] * 0 + 1
        if self.varying <= set(known.tolist()):
            return whole
        given = Given(self.inputs, known)
        return inner(self.function, self.function, given.explained).total / self.variance * whole


class _Sampled:
    """By draws, in whose coordinates those of x_S come first: what depends on few inputs needs few draws.

    An average of E[f | x_S]^2 where that is closed form, as for hidden units under a mixture. Otherwise of f(x) f(x'),
    with an x' that has x_S in common with x and is drawn anew given these. (f(x) - E f)^2, whose mean is known, is a
    control variate.
    """

    factor = TO_ERROR

    def __init__(self, net: Any, inputs: Any, seed: int) -> None:
        self.wide, self.seed, self.closed = widened(net), seed, has_means(net)
        self.enough = _ENOUGH if self.closed else _ENOUGH_OF_PAIRS
        self.conditional = ConditionalMean(net, inputs, np.zeros(0, dtype=np.int64), _TOLERANCE)
        self.weights = self.conditional.weights
        xp = namespace(weights=self.weights)
        what = "E[f | x_S]" if self.closed else "f(x) f(x')"
        self.sampled = f"the variance of E[f | x_S], as an average of {what} over draws of the inputs"
        if self.closed:
            each = [(f.mean, inner(f, f)) for _, f in expansions(net, inputs)]
            means, inside = (xp.stack(list(a))[:, None, :] for a in zip(*((m, v.total) for m, v in each), strict=True))
            bounds = xp.stack([v.bound for _, v in each])
        else:
            x, _, _ = self._draws(self.conditional, _COUNTS[-1])
            values = [self.wide(part) for part in x]
            means = xp.stack([xp.mean(a, axis=1) for a in values])  # (c, r, o)
            inside = xp.stack([xp.mean((a - xp.mean(a, axis=(0, 1))) ** 2, axis=1) for a in values])
            bounds = means[:, 0, :] * 0
        weights = self.weights[:, None, None]
        self.mean, gaps = xp.mean(xp.sum(weights * means, axis=0), axis=0), 0.0
        # The means of the components and of the mixture have a few rounding errors each; their gaps are no variance.
        gaps = xp.abs(xp.mean(means, axis=1, keepdims=True) - self.mean)
        gaps = xp.where(gaps > 8 * rounding_error(net.prototype) * xp.abs(self.mean), gaps, 0.0)
        self.squares = inside + gaps**2  # E[(f - E f)^2] of each component, (c, r, o)
        self.variances = xp.sum(weights * self.squares, axis=0)
        self.variance, self.bound = xp.mean(self.variances, axis=0), xp.sum(self.weights[:, None] * bounds, axis=0)
        self.remainder = self.variance * 0

    def __call__(self, known: np.ndarray) -> Array:
        xp = namespace(mean=self.mean)
        explained = xp.stack([self.variance * 0 + 1] * REPLICATES)
        if len(known) in (0, self.wide.dim_in):
            return explained * float(len(known) > 0)
        conditional = self.conditional.at(known)
        for count in _COUNTS:
            x, others, masses = self._draws(conditional, count)
            ends = [0, *np.cumsum([part.shape[1] for part in x]).tolist()]
            if self.closed:
                joined = take_columns(xp.concat(x, axis=1), known)
                means = conditional.means(xp.reshape(joined, (-1, len(known))))
                means = xp.reshape(means, (*joined.shape[:2], -1))
                others = [means[:, a:b, :] for a, b in pairwise(ends)]
            value = control = 0.0
            for c, (part, other) in enumerate(zip(x, others, strict=True)):
                one, two = self.wide(part) - self.mean, (other if self.closed else self.wide(other)) - self.mean
                squares = one**2 if self.closed else (one**2 + two**2) / 2
                values = two**2 if self.closed else one * two
                value = value + xp.mean(values * masses[c], axis=1)
                control = control + xp.mean((squares - self.squares[c, ...][:, None, :]) * masses[c], axis=1)
            # The slope of each replicate comes from all others, so that the control has mean zero there.
            one, two = ((xp.sum(a, axis=0) - a) / (REPLICATES - 1) for a in (control, value))
            both, own = (
                xp.sum(control * a, axis=0) - control * a - (REPLICATES - 1) * one * b
                for a, b in ((value, two), (control, one))
            )
            explained = (value - both * safe_inverse(own) * control) / self.variances
            if bool(xp.all(xp.std(explained, axis=0) * self.factor <= self.enough)):
                break
        return explained

    def _draws(self, given: ConditionalMean, count: int) -> tuple[list[Array], list[Array], list[Array]]:
        """By components, about as many as they have weight: x (r, n, d), x' if it is needed, and weights."""
        x, others, masses, d = [], [], [], self.wide.dim_in
        noises = [left_over(g) for g in given.components]
        for weight, g, noise in zip(to_numpy(self.weights).tolist(), given.components, noises, strict=True):
            number = 2 ** max(2, round(math.log2(max(weight * count, 1))))
            z = normal_draws(2 * d if self.closed else 3 * d + 1, number, g.center, self.seed)
            r = int(g.factor.shape[1])
            # Tails of few coordinates are drawn more often than they occur: there f^2 is large, and draws are few.
            wide = 1 + 0.8 / max(r, 1)
            x.append(g.center + (wide * z[..., :r]) @ g.factor.T + noise.colour(z[..., r : r + d]))
            square = namespace(z=z).sum(z[..., :r] ** 2, axis=-1, keepdims=True)
            masses.append(weight * wide**r * namespace(z=z).exp((1 - wide**2) * square / 2))
            if not self.closed:
                others.append(self._again(given, x[-1], noises, z[..., r + d :]))
        return x, others, masses

    def _again(self, given: ConditionalMean, x: Array, noises: Sequence[Gaussian], z: Array) -> Array:
        """Points x' (r, n, d) that have x_S in common with x, from normal draws (r, n, d + 1 or more)."""
        d, known = x.shape[-1], take_columns(x, given.given)
        xp, flat = namespace(x=x), namespace(x=x).reshape(known, (x.shape[0] * x.shape[1], len(given.given)))
        ends = xp.cumulative_sum(posterior(self.weights, given.components, flat), axis=1)
        chance, start, total = normal_cdf(z[..., d : d + 1]), -1.0, 0.0
        for c, (g, noise) in enumerate(zip(given.components, noises, strict=True)):
            end = xp.reshape(ends[:, c], chance.shape) if c < len(noises) - 1 else 2.0
            point = xp.reshape(g.mean(flat), x.shape) + noise.colour(z[..., :d])
            total, start = total + xp.where((chance > start) & (chance <= end), point, 0.0), end
        return total


def take_columns(x: Array, places: np.ndarray) -> Array:
    """Some of the last axis of x."""
    return namespace(x=x).take(x, constant_index(places, x), axis=-1)
