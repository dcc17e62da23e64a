"""Outputs along lines: a network beside its polynomials, and its mean given the value of one input or two."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlpoly.arrays import Array, as_integer, check_output, constant, to_numpy, widen
from mlpoly.charts.chart import Axis, Chart, Curve, Dash, Panel, chart_of, degree_colour, minus, shortened
from mlpoly.inputs import Inputs, inputs_of
from mlpoly.measures.conditional_mean import ConditionalMean
from mlpoly.polynomials import Polynomial
from mlpoly.tables import output_label

_LOOKS: dict[int, tuple[str, Dash]] = {1: ("orange", "dash"), 2: ("blue", "dashdot"), 3: ("violet", "dot")}
_COLOURS = ("blue", "orange", "violet", "area-4", "black", "grey")  # of the outputs, and the dashes of their lines
_DASHES: tuple[Dash, ...] = ("solid", "dash", "dashdot", "dot", "solid", "dash")
_SECOND = (-2, -1, 0, 1, 2)  # standard deviations of the second input at which curves are drawn


def response_chart(
    net: Callable[[Array], Array] | None,
    polys: Polynomial | Sequence[Polynomial],
    inputs: Inputs | None = None,
    directions: Mapping[str, Any] | None = None,
    output: int | str = 0,
    span: float = 3.0,
    points: int = 121,
) -> Chart:
    """An output of a network and of its polynomials along lines through the mean of the inputs.

    Parameters
    ----------
    net : network, any callable from (n, d) to (n, o), or None
    polys : Polynomial or sequence of them
        Of a single one its truncations of degree 1, 2, ... are drawn.
    inputs : Gaussian, GaussianMixture or Samples, optional
        Inputs with the mean and the standard deviations of the lines; by default those of the fit.
    directions : mapping of str to int or array (d,), optional
        Lines by their labels: along one input, the others at their means, or along a direction in input space. By
        default the one along which the best linear map varies most. Each has a panel.
    span : float
        Half the length of the lines, in standard deviations.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.charts import response_chart
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, "gelu")
    >>> poly = mp.fit(net, mp.Gaussian.standard(2), degree=3)
    >>> chart = response_chart(net, poly, directions={"the first input": 0})
    >>> [curve.label for curve in chart.panels[0].marks]
    ['network', 'degree 1', 'degree 2', 'degree 3']
    """
    if isinstance(polys, Polynomial):
        polys = [polys.truncate(k) for k in range(1, polys.degree)] + [polys]
    if not polys:
        raise ValueError("polys is empty; give at least one polynomial.")
    first = polys[-1]
    output = check_output(output, first.dim_out, first.output_names)
    named = output_label(output, first.dim_out, first.output_names) or "output"
    inputs = inputs_of(first, inputs)
    mean, cov = to_numpy(widen(inputs.mean)), to_numpy(widen(inputs.covariance))
    if directions is None:
        if first.degree < 1:
            raise ValueError("polys are constants; give directions= of the lines to draw.")
        linear = to_numpy(widen(first.truncate(1).coefficients().linear))[output]
        along, widest = cov @ linear, int(np.argmax(np.diagonal(cov)))
        directions = {"the strongest linear direction": along} if along.any() else {f"input {widest}": widest}
    t = np.linspace(-span, span, as_integer("points", points, 2))
    panels = []
    for label, direction in directions.items():
        x = constant(mean + t[:, None] * _step(label, direction, cov), first.prototype)
        curves = []
        if net is not None:
            y = to_numpy(net(x))[:, output].tolist()
            curves.append(Curve("network", t.tolist(), y, colour="black", width=3.2))
        for poly in polys:
            colour, dash = _LOOKS.get(poly.degree, (degree_colour(poly.degree), "solid"))
            name = f"degree {poly.degree}"
            curves.append(Curve(name, t.tolist(), to_numpy(poly(x))[:, output].tolist(), colour=colour, dash=dash))
        # The network shows what matters; a polynomial may leave the picture far from the mean.
        low, high = (f([f(curve.y) for curve in (curves[:1] if net is not None else curves)]) for f in (min, max))
        room = (high - low) or abs(high) or 1.0
        y_axis = Axis(named, "output", limits=(low - 0.35 * room, high + 0.35 * room))
        x_axis = Axis("standard deviations", "standard deviations", limits=(-span, span))
        panels.append(Panel(curves, x_axis, y_axis, label, (label,)))
    return Chart(f"{named[:1].upper()}{named[1:]} along lines through the mean of the inputs", panels, ("Direction",))


def _step(label: str, direction: Any, cov: np.ndarray) -> np.ndarray:
    """Displacement (d,) of one standard deviation of the inputs along a direction."""
    d = len(cov)
    if np.ndim(direction) == 0:
        index = as_integer(f"direction {label!r}", direction, -d)
        if index >= d:
            raise ValueError(f"direction {label!r} is input {index}, but there are {d} inputs (0 to {d - 1}).")
        vector = np.eye(d)[index]
    else:
        vector = np.asarray(to_numpy(direction) if hasattr(direction, "shape") else direction, dtype=float)
    norm = np.linalg.norm(vector)
    if vector.shape != (d,) or not (np.isfinite(norm) and norm > 0):
        kind = f"a vector of {d} finite numbers, not all zero, or an input's index"
        raise ValueError(f"direction {label!r} must be {kind}.")
    unit = vector / norm
    return unit * np.sqrt(max(unit @ cov @ unit, 0.0))


@chart_of.register
def dependence_chart(
    mean: ConditionalMean, output: int | str | None = None, span: float = 3.0, title: str = "", points: int = 121
) -> Chart:
    """Mean of the outputs given one input over its range, or given two as curves for values of the second.

    By default of the first six outputs, or for two known inputs of the first. The range is `span` standard deviations
    of the input on either side of its mean.
    """
    if mean.dim_in not in (1, 2):
        raise ValueError(f"a mean given {mean.dim_in} inputs has no curve; take the mean given one or two of them.")
    known_names = mean.net.output_names
    output = None if output is None else check_output(output, mean.dim_out, known_names)
    if not 0 < span < np.inf:
        raise ValueError(f"span must be a positive number of standard deviations, got {span}.")
    inputs, places = mean.inputs, mean.given
    names = [shortened(name) for name in mean.names or [f"x{i}" for i in places.tolist()]]
    center = to_numpy(widen(inputs.mean))[places]
    spread = np.sqrt(np.diagonal(to_numpy(widen(inputs.covariance)))[places])
    for name, each in zip(names, spread.tolist(), strict=True):
        if not each > 0:
            raise ValueError(f"input {name} does not vary, so that there is no range to draw.")
    x = center[0] + np.linspace(-span, span, as_integer("points", points, 2)) * spread[0]
    curves = []
    if mean.dim_in == 1:
        y = to_numpy(mean(constant(x[:, None], mean.prototype)))
        outputs = range(min(mean.dim_out, len(_COLOURS))) if output is None else [output]
        for o, colour, dash in zip(outputs, _COLOURS, _DASHES, strict=False):
            label = output_label(o, len(outputs), known_names) if len(outputs) > 1 else ""
            curves.append(Curve(label, x.tolist(), y[:, o].tolist(), colour=colour, dash=dash))
    else:
        outputs = [output or 0]
        for number, deviations in enumerate(_SECOND, 1):
            second = center[1] + deviations * spread[1]
            at = np.stack([x, np.full_like(x, second)], axis=1)
            y = to_numpy(mean(constant(at, mean.prototype)))[:, outputs[0]]
            label = f"{names[1]} = {minus(f'{second:.3g}')}"
            curves.append(Curve(label, x.tolist(), y.tolist(), colour=f"area-{number}"))
    named = output_label(outputs[0], mean.dim_out, known_names) or "the output"
    what = f"mean of {named}" if len(outputs) == 1 else "means of the outputs"
    horizontal = Axis(names[0], names[0], limits=(float(x[0]), float(x[-1])), guides=[(float(center[0]), "mean")])
    known = " and ".join(names)
    panel = Panel(curves, horizontal, Axis(what, "mean"), title or f"{what[:1].upper()}{what[1:]} given {known}")
    return Chart(f"Mean of the outputs given {known}", [panel])
