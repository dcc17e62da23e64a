"""Responses along lines through the mean of the inputs: a network beside its polynomials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpoly.arrays import Array, as_integer, constant, to_numpy, widen
from mlpoly.inputs import Inputs, inputs_of
from mlpoly.plots.chart import Axis, Chart, Curve, Dash, Panel, degree_colour
from mlpoly.polynomials import Polynomial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS: dict[int, tuple[str, Dash]] = {1: ("orange", "dash"), 2: ("blue", "dashdot"), 3: ("violet", "dot")}


def plot_response(
    net: Callable[[Array], Array] | None,
    polys: Polynomial | Sequence[Polynomial],
    inputs: Inputs | None = None,
    directions: Mapping[str, Any] | None = None,
    output: int = 0,
    ax: Axes | None = None,
) -> Figure:
    """Draw an output of a network and of its polynomials along lines through the mean of the inputs.

    Parameters
    ----------
    net : network, any callable from (n, d) to (n, o), or None
    polys : Polynomial or sequence of them
        Of a single one its truncations of degree 1, 2, ... are drawn.
    inputs : Gaussian, GaussianMixture or Samples, optional
        Inputs with the mean and the standard deviations of the lines; by default those of the fit.
    directions : mapping of str to int or array (d,), optional
        Lines by their labels: along one input, the others at their means, or along a direction in input space. By
        default the one along which the best linear map varies most.
    output : int
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.plots import plot_response
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, "gelu")
    >>> poly = mp.fit(net, mp.Gaussian.standard(2), degree=3)
    >>> figure = plot_response(net, poly, directions={"the first input": 0})  # figure.savefig("response.png")
    >>> [line.get_label() for line in figure.axes[0].get_lines()]
    ['network', 'degree 1', 'degree 2', 'degree 3']
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    return show(response_chart(net, polys, inputs, directions, output), ax)


def response_chart(
    net: Callable[[Array], Array] | None,
    polys: Polynomial | Sequence[Polynomial],
    inputs: Inputs | None = None,
    directions: Mapping[str, Any] | None = None,
    output: int = 0,
    span: float = 3.0,
    points: int = 121,
) -> Chart:
    """Describe what `plot_response` draws: one panel for each line, from -span to span standard deviations."""
    if isinstance(polys, Polynomial):
        polys = [polys.truncate(k) for k in range(1, polys.degree)] + [polys]
    if not polys:
        raise ValueError("polys is empty; give at least one polynomial.")
    first = polys[-1]
    if not -first.dim_out <= output < first.dim_out:
        raise ValueError(f"output is {output}, but the polynomial has {first.dim_out} outputs.")
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
        y_axis = Axis(f"output {output}", "output", limits=(low - 0.35 * room, high + 0.35 * room))
        x_axis = Axis("standard deviations", "standard deviations", limits=(-span, span))
        panels.append(Panel(curves, x_axis, y_axis, label, (label,)))
    return Chart(f"Output {output} along lines through the mean of the inputs", panels, ("Direction",))


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
        raise ValueError(
            f"direction {label!r} must be a vector of {d} finite numbers, not all zero, or an input's index."
        )
    unit = vector / norm
    return unit * np.sqrt(max(unit @ cov @ unit, 0.0))
