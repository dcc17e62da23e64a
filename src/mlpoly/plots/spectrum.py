"""The degree spectrum as bars: the share of a network's variance at each polynomial degree."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlpoly.arrays import Array, to_numpy
from mlpoly.plots import style

__all__ = ["plot_spectrum"]

_ROOM = 4.0  # the axis goes this factor beyond the highest bar, for its label


class Spectrum(Protocol):
    """What is drawn: for example `mlpoly.degree_spectrum(net, inputs)`."""

    @property
    def variance(self) -> Array:
        """Variance at degree 1, ..., n, (n, o)."""

    @property
    def total(self) -> Array:
        """Variance (o,)."""

    @property
    def remainder(self) -> Array:
        """Variance above degree n, (o,)."""

    @property
    def between(self) -> Array:
        """Variance between the components of a mixture, (o,)."""


def plot_spectrum(
    spectrum: Spectrum, output: int | None = None, title: str = "", log: bool = False, ax: Axes | None = None
) -> Figure:
    """Draw the share of the variance at each degree, above the last one and, for a mixture, between its components.

    Parameters
    ----------
    spectrum : DegreeSpectrum
    output : int, optional
        One output; otherwise all together.
    title : str
    log : bool
        Logarithmic shares, for a spectrum that falls by orders of magnitude.
    ax : matplotlib.axes.Axes, optional
        Where to draw; otherwise a new figure of pyplot.

    Returns
    -------
    matplotlib.figure.Figure
        ``plt.show()`` shows it, a notebook does so by itself, ``figure.savefig(path, dpi=120)`` writes it.
    """
    parts = [to_numpy(a) for a in (spectrum.variance, spectrum.remainder, spectrum.between, spectrum.total)]
    outputs = parts[-1].shape[0]
    if output is not None and not -outputs <= output < outputs:
        raise ValueError(f"output is {output}, but the spectrum has {outputs} outputs.")
    variance, remainder, between, total = (a.sum(-1) if output is None else a[..., output] for a in parts)
    if not total > 0:
        raise ValueError("the spectrum has no variance to share out: the outputs are constant.")
    labels = [str(k) for k in range(1, len(variance) + 1)] + [f"> {len(variance)}"]
    labels += ["between\ncomponents"] if between > 0 else []
    shares = np.asarray([*variance, remainder, between][: len(labels)]) / total
    if ax is None:
        ax = style.shown_figure(figsize=(7.0, 4.0), layout="constrained").subplots()
    colours = [style.BAR if label.isdigit() else style.REST for label in labels]
    lowest = max(min(shares[shares > 0], default=1.0), 1e-16)
    bars = ax.bar(labels, shares, color=colours, width=0.7)
    if log:
        ax.set_yscale("log")
        ax.set_ylim(lowest / _ROOM, _ROOM * max(shares.max(), lowest))
    else:
        ax.set_ylim(0, 1.12 * max(shares.max(), lowest))
    names = ["0" if s <= 0 else f"{100 * s:.2g} %" if s >= 1e-4 else f"{100 * s:.0e} %" for s in shares]
    ax.bar_label(bars, labels=names, fontsize=style.SMALL, color=style.INK, padding=2)
    ax.set_xlabel("polynomial degree", fontsize=style.NORMAL, color=style.INK)
    ax.set_ylabel("share of the variance", fontsize=style.NORMAL, color=style.INK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(colors=style.INK, labelsize=style.SMALL)
    shown = "Degree spectrum" if output is None else f"Degree spectrum of output {output}"
    ax.set_title(title or shown, fontsize=style.LARGE, color=style.INK)
    return ax.figure  # type: ignore[return-value]
