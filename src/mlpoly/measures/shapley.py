"""Shapley values of one prediction under dependent inputs, from closed-form conditional means (MATH 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpoly.arrays import Array, cast_result, constant, to_numpy, widen
from mlpoly.arrays.checks import as_float_array, check_columns, check_finite, check_shape
from mlpoly.arrays.host import by_value
from mlpoly.inputs import Given, Inputs, check_possible, checked_inputs
from mlpoly.measures.conditional_mean import ConditionalMean
from mlpoly.measures.functions import gaussians
from mlpoly.measures.games import Counted, Worth, input_groups, sets_needed, shapley_values
from mlpoly.networks import Network, check_layer
from mlpoly.progress_bars import progress_bar
from mlpoly.records import map_arrays, record, static
from mlpoly.tables import Cell, Plottable, Table, Tabular


@record
class Shapley(Tabular, Plottable):
    """Shapley values of one prediction: what every group of inputs adds to it, on average over orders of joining.

    Attributes
    ----------
    values : array (g, o)
        They add up to ``prediction - mean``, f(x) - E[f].
    mean, prediction : array (o,)
    standard_error : array (g, o) or None
        Where orders were drawn instead of enumerated.
    groups : tuple of str
    """

    values: Array
    mean: Array
    prediction: Array
    standard_error: Array | None = None
    groups: tuple[str, ...] = static(default=())

    def _table(self) -> Table:
        count = self.mean.shape[0]
        columns = ["inputs", *(f"output {i}" for i in range(count))] if count > 1 else ["inputs", "value"]
        values = to_numpy(self.values).astype(float)
        rows: list[tuple[Cell, ...]] = [(self.groups[i], *values[i].tolist()) for i in range(len(values))]
        ends: list[tuple[Cell, ...]] = [
            (name, *to_numpy(a).astype(float).tolist())
            for name, a in (("expected output", self.mean), ("prediction", self.prediction))
        ]
        note = ""
        if self.standard_error is not None:  # of the output where it is largest
            columns.append("standard error")
            rows = [(*row, float(e)) for row, e in zip(rows, to_numpy(self.standard_error).max(axis=1), strict=True)]
            ends, note = [(*row, None) for row in ends], "sampled: orders of the inputs"
        order = np.argsort(-np.abs(values).max(axis=1), kind="stable")
        table = (ends[0], *(rows[i] for i in order), ends[1])
        return Table(tuple(columns), table, title="A prediction as a sum over its inputs", note=note)


@by_value
def shapley(
    net: Network, x: Array, inputs: Inputs, groups: Any = None, permutations: int | None = None, seed: int = 0
) -> Shapley:
    """Shapley values of the prediction at x (d,) of a network with one hidden layer, under dependent inputs.

    The worth of a set of inputs is E[f | these inputs of x], in closed form; the values add up to f(x) - E[f]. The
    other arguments are those of `sensitivity`.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.array([[1.0, 2.0]]), None, "identity")  # x0 + 2 x1
    >>> mp.shapley(net, np.array([1.0, 1.0]), mp.Gaussian.standard(2)).values[:, 0].round(12).tolist()
    [1.0, 2.0]
    """
    net = check_layer(net)
    gaussians(net, inputs)
    names, places = input_groups(groups, inputs)
    worth = prediction_worth(net, x, inputs, places)
    with progress_bar("sets of inputs", sets_needed(len(names), permutations)) as update:
        values, error = shapley_values(Counted(worth, update), len(names), permutations, seed)
    mean, prediction = worth(()), worth(tuple(range(len(names))))
    made = Shapley(values, mean, prediction, error, names)
    return map_arrays(made, lambda a: cast_result(a, net.prototype))


def prediction_worth(net: Network, x: Array, inputs: Any, places: Sequence[np.ndarray]) -> Worth:
    """The game of one prediction: a function of a set of groups to E[f | their inputs are those of x], (o,)."""
    net = check_layer(net)
    inputs = checked_inputs(net, inputs)
    check_columns("x", x, inputs.names)
    x = as_float_array("x", x, integers=True)
    check_shape("x", x, (net.dim_in,), "one point, one number per input")
    check_finite("x", x)
    point = to_numpy(widen(x)).astype(np.float64)
    whole = [Given(g, np.arange(net.dim_in)) for g in inputs.components]
    check_possible("x", whole, constant(point[None, :], widen(net.prototype)))
    mean = ConditionalMean(net, inputs, np.zeros(0, dtype=np.int64))

    def worth(chosen: tuple[int, ...]) -> Array:
        known = np.concatenate([places[i] for i in chosen]) if chosen else np.zeros(0, dtype=np.int64)
        if len(known) == net.dim_in:
            return widen(net(constant(point, net.prototype)))
        at = constant(point[known][None, :], widen(net.prototype))
        return mean.at(known)._mean(at)[0, :]

    return worth
