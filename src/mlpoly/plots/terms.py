"""The strongest terms of a polynomial as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpoly.features import Terms
from mlpoly.plots.chart import Part, Ranking, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_terms(terms: Terms, ax: Axes | None = None, title: str = "") -> Figure:
    """Draw the effects of the strongest monomials as bars, with their coefficients.

    Parameters
    ----------
    terms : Terms
        What ``poly.terms()`` returns.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.
    title : str

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.plots import plot_terms
    >>> net = mp.MLP(np.array([[1.0, 2.0]]), None, np.ones((1, 1)), None, "square")
    >>> poly = mp.fit(net, mp.Gaussian.standard(2), degree=2)
    >>> figure = plot_terms(poly.terms(names=["a", "b"]))  # or poly.terms(names=["a", "b"]).plot()
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['b^2', 'a b', 'a^2']
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    return show(term_ranking(terms, title), ax)


def term_ranking(terms: Terms, title: str = "") -> Ranking:
    """Describe what `plot_terms` draws."""
    output = "a direction of the outputs" if terms.output is None else f"output {terms.output}"
    output = "" if terms.outputs == 1 else f" of {output}"
    return Ranking(
        [
            Part(shortened(term.name), float(term.effect), f"{term.coefficient:.3g}".replace("-", "\N{MINUS SIGN}"))
            for term in terms
        ],
        f"The strongest terms{output}",
        title or f"{_count(len(terms), terms.total)}{output}",
        "effect: coefficient times the standard deviation of the monomial",
        "coefficient",
        "" if terms.center is None else "monomials of the deviations from the mean of the inputs",
    )


def _count(shown: int, count: int) -> str:
    return f"The {shown} strongest of {count:,} terms" if shown < count else "All terms"
