"""Shape functions of an additive model with the density of their inputs, and maps of its pairs."""

import numpy as np

from mlpoly.arrays import Array, as_integer, check_output, constant, to_numpy
from mlpoly.charts.chart import Axis, Chart, Curve, HeatMap, Panel, chart_of, minus, shortened
from mlpoly.measures.shape_functions import GRID, AdditiveModel
from mlpoly.tables import output_label

_CELLS = 25  # of a map along each input


@chart_of.register
def shape_chart(
    model: AdditiveModel,
    inputs: int | list[int | str] = 6,
    output: int | str = 0,
    pair: tuple[int | str, int | str] | None = None,
    title: str = "",
) -> Chart | HeatMap:
    """The functions of the strongest inputs, or of listed ones, over three standard deviations on either side.

    The grey area is the density of the input. All panels have the same vertical range. With `pair` the map of one pair
    instead.
    """
    output = check_output(output, model.dim_out, model.output_names)
    if pair is not None:
        return _pair_map(model, pair, output, title)
    spread = to_numpy(model.importance)[:, output]
    if isinstance(inputs, list):
        chosen = [model.place(each) for each in inputs]
    else:
        chosen = [
            int(i) for i in np.argsort(-spread, kind="stable")[: as_integer("inputs", inputs, 1)] if spread[i] > 0
        ]
    rows = [(i, *_curve(model, i, output)) for i in chosen]
    low, high = (f([f(y) for _, _, y in rows], default=0.0) for f in (min, max))
    room = 0.08 * ((high - low) or 1.0)
    panels = [_panel(model, i, x, y, (low - room, high + room)) for i, x, y in rows]
    fraction = float(to_numpy(model.additive)[output])
    label = output_label(output, model.dim_out, model.output_names) or "the output"
    note = f"{title or 'Closest additive model'}: {fraction:.3g} of the variance of {label}"
    return Chart(f"Shape functions of {label}", panels, ("Input",), note)


def _curve(model: AdditiveModel, i: int, output: int) -> tuple[np.ndarray, list[float]]:
    x = to_numpy(model.center)[i] + to_numpy(model.scale)[i] * GRID
    return x, to_numpy(model.shape(i)(constant(x, model.mean)))[:, output].tolist()


def _panel(model: AdditiveModel, i: int, x: np.ndarray, y: list[float], limits: tuple[float, float]) -> Panel:
    name, density = shortened(model.labels[i]), to_numpy(model.density)[i]
    bottom, height = limits[0], 0.25 * (limits[1] - limits[0])  # the density takes the lowest quarter
    top = (bottom + height * density / (density.max() or 1.0)).tolist()
    area = Curve("density of the input", x.tolist(), top, [bottom] * len(x), top, colour="grey", width=0.8)
    curve = Curve("g", x.tolist(), y, colour="blue")
    return Panel(
        [area, curve], Axis(name, name), Axis(f"g({name})", "g", limits=limits, guides=[(0.0, "")]), name, (name,)
    )


def _pair_map(model: AdditiveModel, pair: tuple[int | str, int | str], output: int, title: str) -> HeatMap:
    i, j = (model.place(each) for each in pair)
    at: list[Array] = []
    for k in (i, j):
        z = np.linspace(-2.5, 2.5, _CELLS)
        at.append(to_numpy(model.center)[k] + to_numpy(model.scale)[k] * z)
    one, two = np.meshgrid(at[0], at[1][::-1])  # upwards
    values = to_numpy(model.pair(i, j)(constant(one, model.mean), constant(two, model.mean)))[..., output]
    names = [shortened(model.labels[k]) for k in (i, j)]
    rows, columns = ([minus(f"{v:.3g}") for v in at_k] for at_k in (at[1][::-1], at[0]))
    label = f"{names[0]} (across) and {names[1]} (up)"
    return HeatMap(values, rows, columns, f"Pair function of {label}", title or label, "g")
