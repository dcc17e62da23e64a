"""Shapley values of one prediction under dependent inputs, from closed-form conditional means (MATH 10)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpoly.arrays import Array, cast_result, constant, namespace, to_numpy, widen
from mlpoly.arrays.checks import as_float_array, check_columns, check_finite, check_shape
from mlpoly.arrays.host import by_value
from mlpoly.inputs import Gaussian, Gaussians, Given, InputsLike, as_inputs, check_possible
from mlpoly.inputs.interventions import ChainGraph
from mlpoly.measures.conditional_mean import ConditionalMean
from mlpoly.measures.functions import expansion, measured, widened
from mlpoly.measures.games import Worth, averaged, counted, input_groups, sets_needed, shapley_values
from mlpoly.networks import Network
from mlpoly.polynomials import Polynomial
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
        Where something was sampled: orders of the inputs, or means.
    groups : tuple of str
    note : str
        What was sampled, and the causal order, if there is one: "x2, then x0 and x3 (confounded), then x1".
    """

    values: Array
    mean: Array
    prediction: Array
    standard_error: Array | None = None
    groups: tuple[str, ...] = static(default=())
    note: str = static(default="")
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
        if self.standard_error is not None:  # of the output where it is largest
            columns.append("standard error")
            rows = [(*row, float(e)) for row, e in zip(rows, to_numpy(self.standard_error).max(axis=1), strict=True)]
            ends = [(*row, None) for row in ends]
        order = np.argsort(-np.abs(values).max(axis=1), kind="stable")
        table = (ends[0], *(rows[i] for i in order), ends[1])
        return Table(tuple(columns), table, title="A prediction as a sum over its inputs", note=self.note)


@by_value
def shapley(
    net: Network | Polynomial,
    x: Array,
    inputs: InputsLike,
    groups: Any = None,
    permutations: int | None = None,
    seed: int = 0,
    causal: Sequence[Any] | None = None,
    confounding: bool | Sequence[bool] = False,
    asymmetric: bool = False,
) -> Shapley:
    """Shapley values of the prediction at x (d,), under dependent inputs.

    The worth of a set of inputs is E[f | these inputs of x], as in `conditional_mean`: in closed form but for deep
    networks, composed and bounded polynomials and data. The values add up to f(x) - E[f]. With
    `causal` it is E[f | do(these inputs of x)] (Heskes et al. 2020), under one Gaussian: all inputs in one group are
    the conditional game again, and with `confounding=True` the marginal one.

    Parameters
    ----------
    net : network or Polynomial
    x : array (d,)
    inputs : Gaussian, GaussianMixture, Independent, Samples or data (n, d)
    groups, permutations, seed : optional
        As in `sensitivity`.
    causal : sequence of sequences of inputs, optional
        Groups of inputs, by index, name or name in `groups`, in causal order: earlier ones influence later ones. Every
        input is in one.
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
    net, inputs = measured(net, as_inputs(inputs))
    names, places = input_groups(groups, inputs)
    conditional = ConditionalMean(net, inputs, np.zeros(0, dtype=np.int64))
    worth = game = prediction_worth(conditional, x, places)
    order, notes = None, [f"sampled: {conditional.sampled}"] if conditional.sampled else []
    if causal is not None:
        if not isinstance(inputs, Gaussian) or conditional.sampled:
            why = "one Gaussian, such as that with the moments of the mixture, and a network with one hidden layer or a"
            raise TypeError(f"causal needs {why} polynomial with a closed form, such as mlpoly.fit(net, inputs, 2).")
        members = dict(zip(names, places, strict=True))  # a name may be that of one of `groups`

        def listed(group: Any) -> Any:
            """Inputs of a causal group."""
            parts = [group] if isinstance(group, str) else group
            if not isinstance(parts, Sequence):
                return parts
            return [i for p in parts for i in (members[p] if isinstance(p, str) and p in members else [p])]

        graph = ChainGraph(inputs, [listed(group) for group in causal], confounding)
        wide = widened(net)
        point = constant(to_numpy(as_float_array("x", x, integers=True)).astype(np.float64), wide.prototype)

        def intervened(chosen: tuple[int, ...]) -> Array:
            """E[f | do(inputs of x)]; with none and with all set, that is the conditional game."""
            if len(chosen) in (0, len(places)):
                return worth(chosen)
            return expansion(wide, graph.given(np.concatenate([places[i] for i in chosen]), point)).mean

        game, order = intervened, graph.order
        notes.append(f"{graph}{'; orders that respect it' if asymmetric else ''}")
    if asymmetric and order is None:
        raise ValueError("asymmetric needs causal, the order of the groups: causal=[[0, 1], [2]].")
    with progress_bar("sets of inputs", sets_needed(len(names), permutations)) as update:
        game = counted(game, update)
        if asymmetric and order is not None:
            found, of_orders = _in_order(game, places, order, permutations, seed)
        else:
            found, of_orders = shapley_values(game, len(names), permutations, seed)
    if of_orders is not None:
        notes.append("sampled: orders of the inputs")
    outputs, factor = conditional.dim_out, conditional.factor
    values, error = averaged(found, outputs, factor, of_orders)
    mean, prediction = (averaged(worth(ends), outputs, 0.0)[0] for ends in ((), tuple(range(len(names)))))
    error = error if of_orders is not None or conditional.sampled else None
    labels = getattr(net, "output_names", None)
    made = Shapley(values, mean, prediction, error, names, "; ".join(notes), labels)
    return map_arrays(made, lambda a: cast_result(a, conditional.prototype))


def prediction_worth(mean: ConditionalMean, x: Array, places: Sequence[np.ndarray]) -> Worth:
    """The game of one prediction: a function of a set of groups to E[f | their inputs are those of x], (r o,)."""
    inputs: Any = mean.inputs
    like = widen(mean.prototype)
    check_columns("x", x, inputs.names)
    x = as_float_array("x", x, integers=True)
    check_shape("x", x, (inputs.dim,), "one point, one number per input")
    check_finite("x", x)
    point = to_numpy(widen(x)).astype(np.float64)
    if isinstance(inputs, Gaussians):
        whole = [Given(g, np.arange(inputs.dim)) for g in inputs.components]
        check_possible("x", whole, constant(point[None, :], like))
    xp = namespace(like=like)

    def worth(chosen: tuple[int, ...]) -> Array:
        known = np.concatenate([places[i] for i in chosen]) if chosen else np.zeros(0, dtype=np.int64)
        if len(known) == inputs.dim:
            return xp.concat([widen(mean.net(constant(point[None, :], like)))[0, :]] * mean.replicates)
        return xp.reshape(mean.at(known).means(constant(point[None, known], like)), (-1,))

    return worth


def _in_order(
    game: Any, places: Sequence[np.ndarray], order: Sequence[np.ndarray], permutations: int | None, seed: int
) -> tuple[Array, Any]:
    """Shapley values where all of a causal group join before those of the next, and errors where orders were drawn."""
    owner = {i: k for k, group in enumerate(order) for i in group.tolist()}
    players: list[list[int]] = [[] for _ in order]  # of every group
    for player, place in enumerate(places):
        found = {owner[i] for i in place.tolist()}
        if len(found) > 1:
            raise ValueError("groups has a group with inputs of several groups of causal; asymmetric values need one.")
        players[found.pop()].append(player)
    xp = namespace(worth=game(()))
    values, errors, before = dict[int, Array](), dict[int, Array](), list[int]()
    for group in filter(None, players):

        def inside(chosen: Sequence[int], group: list[int] = group, before: tuple[int, ...] = tuple(before)) -> Array:
            return game([*before, *(group[i] for i in chosen)])

        parts, error = shapley_values(inside, len(group), permutations if len(group) > 1 else None, seed)
        error = parts * 0 if error is None else error
        values |= {player: parts[i, :] for i, player in enumerate(group)}
        errors |= {player: error[i, :] for i, player in enumerate(group)}
        before += group
    total = xp.stack([errors[i] for i in sorted(errors)])
    return xp.stack([values[i] for i in sorted(values)]), total if bool(xp.any(total > 0)) else None
