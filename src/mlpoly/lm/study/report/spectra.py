"""Shares of the degrees in every block: what its polynomials can explain, told in advance."""

from __future__ import annotations

from collections.abc import Sequence

from mlpoly.lm.reading.token_features import LayerSpectrum
from mlpoly.lm.study.report.axes import degree_colour, hover, layer_axis
from mlpoly.page import Page, Plot, View
from mlpoly.page.plot import Trace
from mlpoly.page.widgets import figure

__all__ = ["spectra_section"]


def spectra_section(page: Page, spectra: Sequence[LayerSpectrum]) -> None:
    """Stacked bars, one for each block."""
    count = max(len(s.shares) for s in spectra)
    names = [*(f"degree {k + 1}" for k in range(count)), f"above degree {count}"]
    colours = [*(degree_colour(k + 1) for k in range(count)), "var(--area-rest)"]
    bars: list[Trace] = [
        {
            "type": "bar",
            "x": list(range(len(spectra))),
            "y": [(*s.shares, s.rest)[k] for s in spectra],
            "name": name,
            "marker": {"color": colour},
            "customdata": [s.layer for s in spectra],
            "hovertemplate": hover(name, "%{y:.3%}"),
        }
        for k, (name, colour) in enumerate(zip(names, colours, strict=True))
    ]
    views = [
        View(("all",), bars, {"yaxis": {"range": [0, 1]}}),
        View(("above degree 1",), bars[1:], {"yaxis": {"rangemode": "tozero"}}),
    ]
    axis = {"title": {"text": "share of the variance"}, "tickformat": ".1~%"}
    layout = {"xaxis": layer_axis([s.layer for s in spectra]), "yaxis": axis, "barmode": "stack", "bargap": 0.25}
    plot = Plot("plot-spectrum", "Shares of every block's variance by degree", views, ("Degrees",), layout)
    page.section("spectrum", "How much of each block lives at each degree", "Degree spectrum").add(
        "The variance of a block’s outputs under the Gaussian of its inputs, shared out over polynomial degrees: it "
        "says in advance what a polynomial of any degree leaves unexplained there.",
        figure(plot.html(), "Sums over the weights, no samples. A click on a name in the legend hides it."),
    )
