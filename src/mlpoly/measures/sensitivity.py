"""How much of a network's variance some of its inputs explain: Var E[f | x_S], for dependent inputs too (MATH 10)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpoly.arrays import Array, cast_result, constant_index, namespace, rounding_error, to_numpy, widen
from mlpoly.arrays.host import by_value
from mlpoly.inputs import Gaussian, GaussianMixture, Given, Inputs
from mlpoly.measures.conditional_mean import ConditionalMean
from mlpoly.measures.functions import expansion, gaussians
from mlpoly.measures.games import Counted, drawn_orders, input_groups, sets_needed, shapley_values
from mlpoly.measures.second_moments import second_moment
from mlpoly.moments import inner
from mlpoly.networks import Network, check_layer
from mlpoly.polynomials import Polynomial
from mlpoly.progress_bars import progress_bar
from mlpoly.records import map_arrays, record, static
from mlpoly.tables import Plottable, Table, Tabular

_DRAWS = 2**14  # of a mixture
_TOLERANCE = 1e-6  # relative error of what is averaged over them, far below the scatter of the draws


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
        Of `shapley` where orders were drawn; under a mixture also the largest one of an explained fraction.
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
        note += "" if self.pairs is None else "; of pairs, what both explain beyond each alone"
        title = f"Fractions of the variance{many}"
        return Table(tuple(columns), tuple(rows), title=title, note=note, limit=40)


@by_value
def sensitivity(
    net: Network | Polynomial,
    inputs: Inputs,
    groups: Any = None,
    interactions: bool = False,
    permutations: int | None = None,
    seed: int = 0,
) -> Sensitivity:
    """How much of the variance of every output the inputs explain, alone, together and on average.

    Var E[f | x_S] is closed form under a Gaussian, for correlated inputs too: the pair kernel of hidden units with the
    correlations that x_S leaves (MATH 10). For a mixture E[f | x_S] is closed form, and its variance over x_S an
    average over draws of the mixture.

    Parameters
    ----------
    net : network with one hidden layer, or Polynomial
        Polynomials under a Gaussian.
    inputs : Gaussian or GaussianMixture
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
    net = net if isinstance(net, Polynomial) else check_layer(net)
    parts = gaussians(net, inputs)
    names, places = input_groups(groups, inputs)
    count, whole = len(names), tuple(range(len(names)))
    if isinstance(inputs, GaussianMixture) and len(parts) > 1:
        explained: Any = _SampledMixture(net, inputs, places, seed)
    else:
        explained = _ClosedForm(net, parts[0][1], places)
    variance, xp = explained.variance, namespace(variance=explained.variance)
    if not bool(xp.all(variance > 0)):
        raise ValueError("an output has no variance under these inputs, so that there is nothing to explain.")
    with progress_bar("sets of inputs", sets_needed(count, permutations, interactions)) as update:
        known = Counted(explained, update)
        first = xp.stack([known((i,)) for i in whole]) / variance
        total = 1 - xp.stack([known(whole[:i] + whole[i + 1 :]) for i in whole]) / variance
        effects, error = shapley_values(known, count, permutations, seed)
        pairs = None
        if interactions:  # what two groups explain together beyond what each explains alone
            none = known(())
            table = [[none if i == j else known((i, j)) - known((i,)) - known((j,)) for j in whole] for i in whole]
            pairs = xp.stack([xp.stack(row) for row in table]) / variance
    drawn = [] if error is None else [f"{drawn_orders(count, permutations)} orders of the inputs"]
    sampled = " and ".join([*explained.sampled, *drawn])
    if explained.error is not None:  # of the draws of a mixture
        error = explained.error + (effects * 0 if error is None else error)
    error = None if error is None else error / variance
    bound = explained.bound / variance
    made = Sensitivity(
        first, total, effects / variance, variance, pairs, error, bound, names, sampled, net.output_names
    )
    return map_arrays(made, lambda a: cast_result(a, net.prototype))


# -- what a set of inputs explains -------------------------------------------------------------------------------------


class _ClosedForm:
    """Var E[f | x_S] under one Gaussian, in closed form."""

    sampled: tuple[str, ...] = ()
    error = None

    def __init__(self, net: Any, inputs: Gaussian, places: Sequence[np.ndarray]) -> None:
        self.inputs, self.places = inputs, places
        # Sets that have all groups that vary explain everything, exactly.
        variances = to_numpy(inputs._variances())
        self.varying = {i for i, place in enumerate(places) if variances[place].any()}
        self.function = expansion(net, inputs)
        whole = inner(self.function, self.function)
        self.variance, self.bound = whole.total, whole.bound

    def __call__(self, chosen: tuple[int, ...]) -> Array:
        if not chosen:
            return self.variance * 0
        if self.varying <= set(chosen):
            return self.variance
        given = Given(self.inputs, np.concatenate([self.places[i] for i in chosen]))
        return inner(self.function, self.function, given.explained).total


class _SampledMixture:
    """Var E[f | x_S] under a mixture: E[f | x_S] in closed form, its variance over draws."""

    sampled = (f"the variance of E[f | x_S], over {_DRAWS} draws of the mixture",)

    def __init__(self, net: Any, inputs: GaussianMixture, places: Sequence[np.ndarray], seed: int) -> None:
        if isinstance(net, Polynomial):
            raise TypeError("sensitivity of a polynomial needs a Gaussian; for a mixture pass the network itself.")
        self.net, self.inputs, self.places = net, inputs, places
        self.x = widen(self.inputs.sample(_DRAWS, seed))
        moments = second_moment(net, self.inputs)
        xp = namespace(cov=moments.cov)
        self.variance, self.bound = widen(xp.linalg.diagonal(moments.cov)), widen(xp.linalg.diagonal(moments.bound))
        self.mean = widen(moments.mean)
        # The means of the components and of the mixture have a few rounding errors each; their gaps are no variance.
        rounding = 8 * rounding_error(moments.mean) * xp.abs(self.mean)
        self.variance = xp.where(self.variance > rounding**2, self.variance, 0.0)
        values = (widen(net(self.x)) - self.mean) ** 2
        # The same draws serve the whole variance: what they over- or underestimate there they do for every set.
        self.control = values - self.variance
        self.error = self.variance * 0  # the largest standard error of a set
        self.conditional = ConditionalMean(net, self.inputs, np.zeros(0, dtype=np.int64), _TOLERANCE)

    def __call__(self, chosen: tuple[int, ...]) -> Array:
        if not chosen:
            return self.variance * 0
        if len(chosen) == len(self.places):
            return self.variance
        xp, known = namespace(x=self.x), np.concatenate([self.places[i] for i in chosen])
        given = self.conditional.at(known)
        values = (widen(given(xp.take(self.x, constant_index(known, self.x), axis=1))) - self.mean) ** 2
        # A control variate: the part of the error that goes with that of the known variance is removed.
        centred = values - xp.mean(values, axis=0)
        slope = xp.mean(centred * self.control, axis=0) / xp.mean(self.control**2, axis=0)
        corrected = values - slope * self.control
        self.error = xp.maximum(self.error, xp.std(corrected, axis=0) / math.sqrt(_DRAWS))
        return xp.mean(corrected, axis=0)
