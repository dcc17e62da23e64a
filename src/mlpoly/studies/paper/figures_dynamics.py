"""Polynomials over training: unexplained variance, KL divergence, accuracy and degree spectrum at every checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlpoly.plots import style

__all__ = ["plot_accuracy", "plot_dynamics", "plot_spectra"]

_GUIDES = (500, 1000, 4000)  # steps between which the paper sees phases of training
_DEGREES = {1: ("linear", style.LINEAR), 2: ("quadratic", style.QUADRATIC)}
_HOLLOW: dict[str, Any] = {"marker": "o", "markersize": 3.6, "markerfacecolor": "white", "markeredgewidth": 0.9}
_BARS: dict[str, Any] = {"linestyle": "none", "elinewidth": 1.0, "capsize": 2.0, "zorder": 4, "label": "_points"}
_BETWEEN = "#e8d5b5"  # not of the colormap of degrees: variance between classes has no degree
_INPUTS = {  # the last one is drawn on top
    "standard": style.Look("fit under N(0, I)", style.DOTTED, 1.2, 0.4),
    "gaussian": style.Look("fit under N(mean, cov)", style.DASH_DOT, 1.2, 0.4),
    "paper": style.Look("the same by the paper's route", style.DASHED, 1.6, 0.0),
    "mixture": style.Look("fit under the mixture, exact", "-", 2.0, 0.0),
}
_MEASURES = {  # of the curves, and of the points, under the mixture and on the test images
    "fvu": ("fraction of variance unexplained", ("fvu_mixture", "fvu_samples"), ("fvu_test", "fvu_test")),
    "kl": ("KL divergence from the network (nats)", ("kl_samples", "kl_samples"), ("kl_test", "kl_test")),
}


def plot_dynamics(points: Iterable[Any], measure: str = "fvu", title: str = "") -> Figure:
    """Draw how far polynomials are from the network over training, under the class mixture and on test images.

    Curves are means over the seeds, in closed form for the FVU under the mixture; the band is the range over the
    seeds. Points are sampled values of the fits under the mixture, with two standard errors.

    Parameters
    ----------
    points : iterable of records
        As in `mlpoly.studies.paper.results.Point`: one polynomial at one checkpoint of one seed.
    measure : {"fvu", "kl"}
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        `save_figure` writes it. No display is needed.
    """
    points = style.check_rows("points", points, "measured polynomial")
    if measure not in _MEASURES:
        raise ValueError(f"measure must be one of {sorted(_MEASURES)}, got {measure!r}.")
    ylabel, *quantities = _MEASURES[measure]
    figure = Figure(figsize=(style.WIDTH, 4.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, place, names in zip(axes, ("class mixture", "test images"), quantities, strict=True):
        exact, sampled = names
        for (inputs, look), (degree, (name, colour)) in product(_INPUTS.items(), _DEGREES.items()):
            rows = [p for p in points if p.inputs == inputs and p.degree == degree]
            if not rows:
                continue
            curve = style.curve_over_seeds(rows, "step", exact)
            x = style.step_places(curve.x)
            ax.plot(x, curve.mean, label=f"{name}, {inputs}", zorder=3, **look.options(colour))
            if inputs == "mixture":
                style.draw_band(ax, x, curve, colour)
                dots = style.curve_over_seeds(rows, "step", sampled)
                # The seeds may share their samples, so that their errors do not average out: their mean is on the safe
                # side.
                error = 2 * style.curve_over_seeds(rows, "step", f"{sampled}_error").mean
                ax.errorbar(style.step_places(dots.x), dots.mean, error, color=colour, **_HOLLOW, **_BARS)
        style.tidy(ax, title=f"on the {place}")
        style.step_axis(ax, [p.step for p in points], _GUIDES)
    axes[0].set_ylabel(ylabel)
    axes[0].set_yscale("log")
    degrees, kinds, last = {p.degree for p in points}, {p.inputs for p in points}, max(p.step for p in points)
    looks = {name: style.key(look.label, **look.options(style.INK)) for name, look in _INPUTS.items() if name in kinds}
    dot = style.key("sampled, ± 2 standard errors", linestyle="", **_HOLLOW) if "mixture" in kinds else None
    guides = ", ".join(str(g) for g in _GUIDES if g < last)
    guide = style.key(f"step {guides}", color=style.GUIDE) if guides else None
    colours = [style.key(name, color=colour, linewidth=3.0) for d, (name, colour) in _DEGREES.items() if d in degrees]
    columns: list[list[Artist | None]] = [
        [*colours, *style.band_key(len({p.seed for p in points}))],
        [looks.get("mixture"), looks.get("paper"), dot],
        [looks.get("gaussian"), looks.get("standard"), guide],
    ]
    style.legend_below(figure, style.in_columns(columns), 3)
    style.headline(figure, title)
    return figure


# -- accuracy ----------------------------------------------------------------------------------------------------------


def plot_accuracy(training: Iterable[Any], points: Iterable[Any], title: str = "") -> Figure:
    """Draw over training how often network and polynomials are right, and how often polynomials agree with the network.

    Parameters
    ----------
    training : iterable of records
        As in `mlpoly.studies.paper.results.TrainingPoint`.
    points : iterable of records
        As in `mlpoly.studies.paper.results.Point`; the fits under the mixture are drawn.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    training = style.check_rows("training", training, "checkpoint")
    points = [p for p in points if p.inputs == "mixture"]
    style.check_rows("points", points, "polynomial fitted under the mixture")
    figure = Figure(figsize=(style.WIDTH, 4.0), layout="constrained")
    axes = figure.subplots(1, 2)
    _draw_share(axes[0], training, "test_accuracy", "network")
    for degree, (name, _) in _DEGREES.items():
        rows = [p for p in points if p.degree == degree]
        for ax, quantity in zip(axes, ("accuracy", "agreement"), strict=True):
            _draw_share(ax, rows, quantity, name)
    for ax, text in zip(axes, ("accuracy on the test images", "agreement with the network"), strict=True):
        style.tidy(ax, title=text)
        style.step_axis(ax, [t.step for t in training], _GUIDES)
        style.percent(ax.yaxis)
    axes[0].set_ylim(0, 1.02)
    handles = [
        style.key(f"{line.get_label()}, {100 * line.get_ydata()[-1]:.1f} % right at the end", color=line.get_color())
        for line in axes[0].lines
        if line.get_label() in style.MODELS
    ]
    style.legend_below(figure, [*handles, *style.band_key(len({t.seed for t in training}))], 2)
    style.headline(figure, title)
    return figure


def _draw_share(ax: Axes, rows: list[Any], quantity: str, name: str) -> None:
    if not rows:
        return
    curve = style.curve_over_seeds(rows, "step", quantity)
    x, colour = style.step_places(curve.x), style.MODELS[name]
    # The polynomials follow the network closely: it is drawn wide, and they on top of it.
    width = 3.6 if name == "network" else 1.5
    ax.plot(x, curve.mean, color=colour, linewidth=width, marker="o", markersize=1.8 * width**0.5, label=name)
    style.draw_band(ax, x, curve, colour)


# -- degree spectrum ---------------------------------------------------------------------------------------------------


def plot_spectra(spectra: Iterable[Any], inputs: str = "gaussian", title: str = "") -> Figure:
    """Draw the shares of the network's variance by degree over training, and what is left above each degree.

    Parameters
    ----------
    spectra : iterable of records
        As in `mlpoly.studies.paper.results.Spectrum`.
    inputs : {"gaussian", "mixture"}
        Which of them to draw.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    spectra = style.check_rows("spectra", spectra, "degree spectrum")
    rows = [s for s in spectra if s.inputs == inputs]
    if not rows:
        raise ValueError(f"spectra has none under inputs={inputs!r}, only {sorted({s.inputs for s in spectra})}.")
    steps = sorted({r.step for r in rows})
    at = [[r for r in rows if r.step == step] for step in steps]
    # The layers from the bottom, (layers, t): between classes if there is such a share, degree 1, 2, ..., above.
    shares = np.array([np.mean([(r.between, *r.shares, r.rest) for r in group], axis=0) for group in at]).T
    degrees, first = len(shares) - 2, 0 if np.any(shares[0] > 0) else 1
    names = ["between classes", *(f"degree {k}" for k in range(1, degrees + 1)), f"above {degrees}"][first:]
    colours = list(colormaps["viridis"](np.linspace(0.0, 0.92, degrees)))  # without the palest yellow
    figure = Figure(figsize=(style.WIDTH, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    x = style.step_places(steps)
    areas = left.stackplot(x, shares[first:], colors=[_BETWEEN, *colours, style.REST][first:], linewidth=0)
    # What is left above degree k: the FVU of the best polynomial of degree k under one Gaussian.
    for k, colour in enumerate(colours, 1):

        def above(row: Any, k: int = k) -> float:
            return sum(row.shares[k:]) + row.rest

        curve = style.curve_over_seeds(rows, "step", above)
        right.plot(x, curve.mean, color=colour, linewidth=1.8, label=f"above degree {k}")
        style.draw_band(right, x, curve, colour)
    right.set_yscale("log")
    for ax, text in ((left, "share of the variance"), (right, "share above degree k, in the colour of k")):
        style.tidy(ax, title=text)
        style.step_axis(ax, steps)
    left.set(ylim=(0, 1), **({"xlim": (x[0], x[-1])} if len(x) > 1 else {}))
    style.percent(left.yaxis)
    # From the top of the stack to its bottom, as it is seen.
    figure.legend(areas[::-1], names[::-1], loc="outside right center", frameon=False, fontsize=style.SMALL)
    style.headline(figure, title)
    return figure
