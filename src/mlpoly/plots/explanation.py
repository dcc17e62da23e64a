"""One prediction taken apart, as a waterfall of what moved it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from mlpoly.features import Explanation
from mlpoly.plots.chart import Part, Picture, Waterfall, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

By = Literal["degrees", "terms", "features"]


def plot_explanation(
    explanation: Explanation,
    ax: Axes | None = None,
    image_shape: tuple[int, int] | None = None,
    by: By | None = None,
    title: str = "",
) -> Figure:
    """Draw one prediction as bars that begin where the one before ended, from that at the mean of the inputs.

    Parameters
    ----------
    explanation : Explanation
        What `mlpoly.explain` returns.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.
    image_shape : (int, int), optional
        Rows and columns, for inputs that are images: the image and the patterns of its features are shown.
    by : "degrees", "terms" or "features", optional
        What the bars stand for: the parts of each degree, monomials, or eigenfeatures of the quadratic part. By default
        terms, or features for images.
    title : str

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.plots import plot_explanation
    >>> net = mp.MLP(np.array([[1.0, 2.0]]), None, np.ones((1, 1)), None, "square")
    >>> found = mp.explain(net, mp.Gaussian.standard(2), np.array([1.0, 1.0]))
    >>> figure = plot_explanation(found, by="degrees")  # or found.plot(by="degrees")
    >>> figure.axes[0].get_title()
    'One prediction'
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    return show(explained_waterfall(explanation, image_shape, by, title), ax)


def explained_waterfall(
    explanation: Explanation, image_shape: tuple[int, int] | None = None, by: By | None = None, title: str = ""
) -> Waterfall:
    """Describe what `plot_explanation` draws."""
    e, size = explanation, explanation.point.size
    if image_shape is not None and math.prod(image_shape) != size:
        raise ValueError(
            f"image_shape is {tuple(image_shape)}, but there are {size} inputs; give (rows, columns) with "
            f"rows * columns = {size}."
        )
    if by is None:
        by = "features" if image_shape is not None and e.features else "terms"
    if by not in ("degrees", "terms", "features"):
        raise ValueError(f"by must be 'degrees', 'terms' or 'features', got {by!r}.")
    labels = ["at the mean", *(f"{name} part" for name in e.part_names[1:])]
    degrees = [Part(label, float(amount)) for label, amount in zip(labels, e.parts, strict=True)]
    if by == "degrees":
        parts = degrees
    elif by == "terms":
        named = [Part(shortened(c.name), float(c.amount)) for c in e.terms]
        parts = [degrees[0], *named, *_rest("other terms", e.polynomial - degrees[0].amount, named)]
    else:
        named = [
            Part(
                c.name,
                float(c.amount),
                "" if c.eigenvalue is None else f"eigenvalue {c.eigenvalue:.2g}".replace("-", "\N{MINUS SIGN}"),
                None if image_shape is None or c.pattern is None else np.reshape(c.pattern, image_shape),
            )
            for c in e.features
        ]
        quadratic = degrees[2].amount if len(degrees) > 2 else 0.0
        parts = [*degrees[:2], *named, *_rest("other features", quadratic, named), *degrees[3:]]
    totals = [("polynomial", float(e.polynomial))]
    totals += [] if e.network is None else [("network", float(e.network))]
    picture = None if image_shape is None else Picture(np.reshape(e.point, image_shape))
    whose = "" if e.outputs == 1 else " of a direction" if e.output is None else f" of output {e.output}"
    title = title or f"One prediction{whose}"
    return Waterfall(parts, totals, picture, title, "value of the output", degrees[0].amount)


def _rest(label: str, whole: float, parts: list[Part]) -> list[Part]:
    """What the named parts leave of their sum, if it can be seen."""
    rest = float(whole) - sum(part.amount for part in parts)
    return [Part(label, rest)] if abs(rest) > 1e-9 * max([abs(float(whole)), *(abs(p.amount) for p in parts)]) else []
