"""Eigenfeatures, principal forms and singular directions of one polynomial, as bars, curves or images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mlpoly.arrays import Array, check_names, to_numpy
from mlpoly.features import EigenFeatures, PrincipalForms, SingularDirections
from mlpoly.plots.chart import Axis, Bars, Chart, Curve, Gallery, Panel, Part, Picture, Ranking, shortened
from mlpoly.plots.eigenfeatures import eigenfeature_gallery
from mlpoly.tables import largest_entries

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_features(
    features: EigenFeatures,
    ax: Axes | None = None,
    image_shape: tuple[int, int] | None = None,
    names: Sequence[str] | None = None,
    k: int = 12,
    title: str = "",
) -> Figure:
    """Draw the eigenvalues of an output's quadratic part as bars named by what they read, or as images.

    Parameters
    ----------
    features : EigenFeatures
        What `mlpoly.eigenfeatures` returns.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.
    image_shape : (int, int), optional
        Rows and columns, for inputs that are images.
    names : sequence of str, optional
        Names of the inputs; by default those that the features know.
    k : int
        Number of features to show.
    title : str

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.plots import plot_features
    >>> net = mp.MLP(np.eye(2), None, np.array([[1.0, -2.0]]), None, "gelu")
    >>> features = mp.eigenfeatures(mp.fit(net, mp.Gaussian.standard(2), degree=2), output=0)
    >>> figure = plot_features(features, names=["age", "dose"])  # or features.plot(names=["age", "dose"])
    >>> len(figure.axes[0].patches), figure.axes[0].get_xlabel()
    (2, 'eigenvalue')
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    if image_shape is not None:
        return show(eigenfeature_gallery({title: features}, image_shape), ax)
    title = title or "Eigenfeatures of the quadratic part"
    names = features.names if names is None else names
    return show(direction_ranking(features.values, features.directions, names, k, title, "eigenvalue"), ax)


def plot_singular(
    directions: SingularDirections,
    ax: Axes | None = None,
    image_shape: tuple[int, int] | None = None,
    names: Sequence[str] | None = None,
    k: int = 12,
    title: str = "",
) -> Figure:
    """Draw the singular values of the linear part as bars named by what they read, or the directions as images.

    The parameters are those of `plot_features`, for what `mlpoly.singular_directions` returns.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.plots import plot_singular
    >>> net = mp.MLP(np.array([[3.0, 0.0], [0.0, 1.0]]), activation="relu")
    >>> found = mp.singular_directions(mp.fit(net, mp.Gaussian.standard(2), degree=1))
    >>> figure = plot_singular(found, names=["age", "dose"])  # or found.plot(names=["age", "dose"])
    >>> len(figure.axes[0].patches), figure.axes[0].get_xlabel()
    (2, 'singular value')
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    title = title or "Singular directions of the linear part"
    if image_shape is None:
        names = directions.names if names is None else names
        return show(direction_ranking(directions.values, directions.vectors, names, k, title, "singular value"), ax)
    values, vectors = to_numpy(directions.values), to_numpy(directions.vectors)
    if math.prod(image_shape) != vectors.shape[1]:
        raise ValueError(f"image_shape is {tuple(image_shape)}, but the directions have {vectors.shape[1]} inputs.")
    shown = vectors[: min(k, 6)]
    cells: list[Picture | Panel | None] = [
        Picture(v.reshape(image_shape), "", f"{value:.3g}") for v, value in zip(shown, values, strict=False)
    ]
    ranks = list(range(1, len(values) + 1))
    ends = Axis(ticks=[(rank, str(rank)) for rank in sorted({1, len(values)})])
    cells.append(Panel([Bars("", ranks, values.tolist(), "black")], ends, Axis()))
    note = f"{title}; their signs have no meaning"
    return show(Gallery([("", cells)], limit=float(np.abs(shown).max()) or 1.0, note=note), ax)


def direction_ranking(
    values: Array, directions: Array, names: Sequence[str] | None, k: int, title: str, axis: str
) -> Ranking:
    """Describe values (r,) of directions (r, d) in input space as bars, each named by its largest entries."""
    strength, vectors = to_numpy(values), to_numpy(directions)
    d = vectors.shape[1]
    short = [shortened(name, 16) for name in check_names(names, d) or [f"x{i}" for i in range(d)]]
    parts = []
    for value, vector in zip(strength[:k].tolist(), vectors[:k], strict=True):
        label = largest_entries(vector.tolist(), short, 3, "\N{MINUS SIGN}")
        parts.append(Part(label, value, f"{value:.3g}".replace("-", "\N{MINUS SIGN}")))
    left = len(strength) - len(parts)
    colour = "blue" if axis == "singular value" else ""  # the sign of an eigenvalue means something
    return Ranking(parts, title, title, axis, colour=colour, note=f"and {left} more" if left else "")


def plot_forms(forms: PrincipalForms, ax: Axes | None = None) -> Figure:
    """Draw the fraction of the variance at one degree that the leading principal forms carry together."""
    from mlpoly.plots.draw import show  # needs matplotlib

    together = np.cumsum(to_numpy(forms.fractions)).tolist()
    counts = list(range(1, len(together) + 1))
    curve = Curve("", counts, together, colour="blue", dots=len(counts) <= 40)
    y = Axis(f"fraction of the variance at degree {forms.degree}", "fraction", percent=True, limits=(0.0, 1.02))
    panel = Panel([curve], Axis("leading principal forms", "forms"), y)
    return show(Chart(f"Principal forms of degree {forms.degree}", [panel]), ax)
