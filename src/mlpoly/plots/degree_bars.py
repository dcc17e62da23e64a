"""The degree spectrum as bars: the fraction of a network's variance at each polynomial degree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlpoly.arrays import to_numpy
from mlpoly.measures.degree_spectrum import DegreeSpectrum
from mlpoly.plots.chart import Axis, Bars, Chart, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_spectrum(
    spectrum: DegreeSpectrum, output: int | None = None, title: str = "", log: bool = False, ax: Axes | None = None
) -> Figure:
    """Draw the fraction of the variance at each degree, above the last and, for a mixture, between its components.

    Parameters
    ----------
    spectrum : DegreeSpectrum
    output : int, optional
        One output; otherwise all together.
    title : str
    log : bool
        Whether the vertical axis is logarithmic, for a spectrum that falls by orders of magnitude.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; otherwise those of a new figure of pyplot.

    Returns
    -------
    matplotlib.figure.Figure
        ``plt.show()`` shows it, a notebook does so by itself, ``figure.savefig(path, dpi=120)`` writes it.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.plots import plot_spectrum
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, "gelu")
    >>> figure = plot_spectrum(mp.degree_spectrum(net, mp.Gaussian.standard(2), max_degree=3))
    >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
    ['1', '2', '3', '> 3']
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    parts = [to_numpy(a) for a in (spectrum.variance, spectrum.remainder, spectrum.between, spectrum.total)]
    outputs = parts[-1].shape[0]
    if output is not None and not -outputs <= output < outputs:
        raise ValueError(f"output is {output}, but the spectrum has {outputs} outputs.")
    variance, remainder, between, total = (a.sum(-1) if output is None else a[..., output] for a in parts)
    if not total > 0:
        raise ValueError("the spectrum has no variance to share out: the outputs are constant.")
    degrees = [str(k) for k in range(1, len(variance) + 1)]
    rest = [f"> {len(variance)}"] + ["between\ncomponents"] * bool(between > 0)
    fractions = np.asarray([*variance, remainder, between][: len(degrees) + len(rest)]) / total
    texts = ["0" if f <= 0 else f"{100 * f:.2g} %" if f >= 1e-4 else f"{100 * f:.0e} %" for f in fractions]
    n, lowest = len(degrees), max(min(fractions[fractions > 0], default=1.0), 1e-16)
    highest = max(fractions.max(), lowest)
    limits = (lowest / 4, 4 * highest) if log else (0.0, 1.12 * highest)  # with room for the texts
    panel = Panel(
        [
            Bars("", degrees, fractions[:n].tolist(), "negative", texts[:n]),
            Bars("", rest, fractions[n:].tolist(), "area-rest", texts[n:]),
        ],
        Axis("polynomial degree"),
        Axis("fraction of the variance", scale="log" if log else "linear", limits=limits),
        title or ("Degree spectrum" if output is None else f"Degree spectrum of output {output}"),
    )
    return show(Chart("Fraction of the variance at each degree", [panel]), ax)
