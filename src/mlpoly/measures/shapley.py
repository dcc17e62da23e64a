"""Shapley values of one prediction under dependent inputs, from closed-form conditional means (MATH 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpoly.arrays import Array, cast_result, constant, namespace, to_numpy, widen
from mlpoly.arrays.checks import as_float_array, check_columns, check_finite, check_shape
from mlpoly.arrays.host import by_value
from mlpoly.inputs import Given, Inputs, check_possible, checked_inputs
from mlpoly.inputs.interventions import ChainGraph
from mlpoly.measures.conditional_mean import ConditionalMean
from mlpoly.measures.functions import gaussians
from mlpoly.measures.games import Counted, Worth, input_groups, sets_needed, shapley_values
from mlpoly.moments import Expansion
from mlpoly.networks import Network, check_layer
from mlpoly.progress_bars import progress_bar
from mlpoly.records import map_arrays, record, static
from mlpoly.tables import Cell, Plottable, Table, Tabular, output_label


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
    game : str
        The causal order, if there is one: "x2, then x0 and x3 (confounded), then x1".
    """

    values: Array
    mean: Array
    prediction: Array
    standard_error: Array | None = None
    groups: tuple[str, ...] = static(default=())
    game: str = static(default="")
    output_names: tuple[str, ...] | None = static(default=None)

    def _table(self) -> Table:
        count = self.mean.shape[0]
        columns = ["inputs", *(output_label(i, count, self.output_names) or "value" for i in range(count))]
        values = to_numpy(self.values).astype(float)
        rows: list[tuple[Cell, ...]] = [(self.groups[i], *values[i].tolist()) for i in range(len(values))]
        ends: list[tuple[Cell, ...]] = [
            (name, *to_numpy(a).astype(float).tolist())
            for name, a in (("expected output", self.mean), ("prediction", self.prediction))
        ]
        note = self.game
        if self.standard_error is not None:  # of the output where it is largest
            columns.append("standard error")
            rows = [(*row, float(e)) for row, e in zip(rows, to_numpy(self.standard_error).max(axis=1), strict=True)]
            ends, note = (
                [(*row, None) for row in ends],
                "; ".join(filter(None, (note, "sampled: orders of the inputs"))),
            )
        order = np.argsort(-np.abs(values).max(axis=1), kind="stable")
        table = (ends[0], *(rows[i] for i in order), ends[1])
        return Table(tuple(columns), table, title="A prediction as a sum over its inputs", note=note)


@by_value
def shapley(
    net: Network,
    x: Array,
    inputs: Inputs,
    groups: Any = None,
    permutations: int | None = None,
    seed: int = 0,
    causal: Sequence[Any] | None = None,
    confounding: bool | Sequence[bool] = False,
    asymmetric: bool = False,
) -> Shapley:
    """Shapley values of the prediction at x (d,) of a network with one hidden layer, under dependent inputs.

    The worth of a set of inputs is E[f | these inputs of x], in closed form; the values add up to f(x) - E[f]. With
    `causal` it is E[f | do(these inputs of x)] (Heskes et al. 2020), under one Gaussian: all inputs in one group are
    the conditional game again, and with `confounding=True` the marginal one.

    Parameters
    ----------
    net : network with one hidden layer
    x : array (d,)
    inputs : Gaussian or GaussianMixture
    groups, permutations, seed : optional
        As in `sensitivity`.
    causal : sequence of sequences of inputs, optional
        Groups of inputs, by index or name, in causal order: earlier ones influence later ones. Every input is in one.
    confounding : bool or sequence of bool
        Of every group of `causal`, or of all, whether its members have a common cause; otherwise they influence one
        another.
    asymmetric : bool
        Average only over orders in which all of an earlier group of `causal` join before a later one (Frye et al.
        2020).

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.array([[1.0, 2.0]]), None, "identity")  # x0 + 2 x1
    >>> mp.shapley(net, np.array([1.0, 1.0]), mp.Gaussian.standard(2)).values[:, 0].round(12).tolist()
    [1.0, 2.0]
    """
    net = check_layer(net)
    parts = gaussians(net, inputs)
    names, places = input_groups(groups, inputs)
    worth, players, order = prediction_worth(net, x, inputs, places), list(range(len(names))), None
    said = ""
    if causal is not None:
        if len(parts) > 1:
            raise TypeError("causal needs one Gaussian, such as that with the moments of the mixture.")
        graph = ChainGraph(checked_inputs(net, inputs), causal, confounding)
        worth, order = _under_interventions(net, graph, worth, places, x), graph.order
        said = f"{graph}{'; orders that respect it' if asymmetric else ''}"
    if asymmetric and order is None:
        raise ValueError("asymmetric needs causal, the order of the groups: causal=[[0, 1], [2]].")
    with progress_bar("sets of inputs", sets_needed(len(names), permutations)) as update:
        game = Counted(worth, update)
        if asymmetric and order is not None:
            values, error = _in_order(game, _players_by_group(places, order), permutations, seed)
        else:
            values, error = shapley_values(game, len(names), permutations, seed)
    mean, prediction = worth(()), worth(tuple(players))
    made = Shapley(values, mean, prediction, error, names, said, net.output_names)
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


def _under_interventions(net: Any, graph: ChainGraph, known: Worth, places: Sequence[np.ndarray], x: Any) -> Worth:
    """The game E[f | do(inputs of x)]; nothing set and all set are the same as in the game that is `known`."""
    wide = map_arrays(net, widen)
    point = constant(to_numpy(as_float_array("x", x, integers=True)).astype(np.float64), wide.prototype)

    def worth(chosen: tuple[int, ...]) -> Array:
        if len(chosen) in (0, len(places)):
            return known(chosen)
        law = graph.given(np.concatenate([places[i] for i in chosen]), point)
        return Expansion.of(wide, law).mean

    return worth


def _players_by_group(places: Sequence[np.ndarray], order: Sequence[np.ndarray]) -> list[list[int]]:
    """Players of every group of a causal order; each must belong to one."""
    owner = {i: k for k, group in enumerate(order) for i in group.tolist()}
    made: list[list[int]] = [[] for _ in order]
    for player, inside in enumerate(places):
        found = {owner[i] for i in inside.tolist()}
        if len(found) > 1:
            raise ValueError("groups has a group with inputs of several groups of causal; asymmetric values need one.")
        made[found.pop()].append(player)
    return made


def _in_order(game: Counted, groups: Sequence[list[int]], permutations: int | None, seed: int) -> tuple[Array, Any]:
    """Shapley values where all of a group join before those of the next, and errors where orders were drawn."""
    xp = namespace(worth=game(()))
    values, errors, before = dict[int, Array](), dict[int, Array](), list[int]()
    for group in filter(None, groups):

        def inside(chosen: Sequence[int], group: list[int] = group, before: tuple[int, ...] = tuple(before)) -> Array:
            return game([*before, *(group[i] for i in chosen)])

        found, error = shapley_values(inside, len(group), permutations if len(group) > 1 else None, seed)
        values |= {player: found[i, :] for i, player in enumerate(group)}
        errors |= {player: found[i, :] * 0 if error is None else error[i, :] for i, player in enumerate(group)}
        before += group
    total = xp.stack([errors[i] for i in sorted(errors)])
    return xp.stack([values[i] for i in sorted(values)]), total if bool(xp.any(total > 0)) else None
