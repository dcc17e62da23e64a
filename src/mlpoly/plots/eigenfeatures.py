"""Eigenfeatures as images: the patterns an output is quadratic in, with the spectrum they come from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpoly.arrays import as_integer, to_numpy
from mlpoly.features import EigenFeatures
from mlpoly.plots.chart import Axis, Bars, Gallery, Panel, Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SCALES = {
    "input": "pixels of the unit eigenvectors",
    "whitened": "change of the pixels by one standard deviation",
}


def plot_eigenfeatures(
    features: Mapping[Any, EigenFeatures], image_shape: tuple[int, int], title: str = "", columns: int = 3
) -> Figure:
    """Draw the top eigenfeatures of several outputs as images, one row for each output.

    A row shows the features with the largest positive eigenvalues, then those with the most negative ones, then the
    spectrum of all eigenvalues given. All images share one colour scale, centred at zero; as a feature counts with its
    square, its sign has no meaning.

    Parameters
    ----------
    features : mapping of label to EigenFeatures
        Give many pairs (k = d) to see the whole spectrum. Features in the metric "whitened" are drawn by their
        ``.directions`` (k, d), which are patterns of pixels.
    image_shape : (int, int)
        Rows and columns of an image of d pixels.
    title : str
    columns : int
        Images of each sign in a row.

    Returns
    -------
    matplotlib.figure.Figure
        9 inches wide; ``figure.savefig(path, dpi=120)`` writes it. No display is needed.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.plots import plot_eigenfeatures
    >>> net = mp.MLP(np.eye(4), None, np.array([[4.0, 3.0, -2.0, -1.0]]), None, "gelu")  # images of 2 by 2 pixels
    >>> poly = mp.fit(net, mp.Gaussian.standard(4), degree=2)
    >>> figure = plot_eigenfeatures({"output 0": mp.eigenfeatures(poly, output=0, k=4)}, (2, 2), columns=2)
    >>> len(figure.axes)  # four images, the spectrum and the colour scale
    6
    """
    from mlpoly.plots.draw import draw  # needs matplotlib

    return draw(eigenfeature_gallery(features, image_shape, columns), title=title)


def eigenfeature_gallery(
    features: Mapping[Any, EigenFeatures], image_shape: tuple[int, int], columns: int = 3
) -> Gallery:
    """Describe what `plot_eigenfeatures` draws."""
    columns = as_integer("columns", columns, 1)
    if not features:
        raise ValueError("features is empty; give at least one label with its eigenfeatures.")
    metrics = {f.metric for f in features.values()}
    if len(metrics) > 1:
        raise ValueError(f"features come in the metrics {sorted(metrics)}; one colour scale needs one metric for all.")
    limit = 0.0
    rows: list[tuple[str, list[Picture | Panel | None]]] = []
    for label, f in features.items():
        values, images = to_numpy(f.values), to_numpy(f.directions)
        if len(image_shape) != 2 or math.prod(image_shape) != images.shape[1]:
            raise ValueError(
                f"image_shape is {tuple(image_shape)}, but the features of {label!r} have {images.shape[1]} pixels; "
                f"give (rows, columns) with rows * columns = {images.shape[1]}."
            )
        order = np.argsort(-values, kind="stable")
        positive, negative = [i for i in order if values[i] > 0], [i for i in order[::-1] if values[i] < 0]
        cells: list[Picture | Panel | None] = []
        bars = []
        for chosen, colour in ((positive, "positive"), (negative, "negative")):
            shown = [
                Picture(images[i].reshape(image_shape), "", f"{values[i]:+#.3g}".replace("-", "\N{MINUS SIGN}"), colour)
                for i in chosen[:columns]
            ]
            limit = max([limit, *(float(np.abs(picture.image).max()) for picture in shown)])
            cells += [*shown, *[None] * (columns - len(shown))]
            ranks = np.arange(1, len(chosen) + 1) if colour == "positive" else values.size - np.arange(len(chosen))
            bars.append(Bars("", ranks.tolist(), values[chosen].tolist(), colour))
        ends = Axis(ticks=[(rank, str(rank)) for rank in (1, values.size)])
        rows.append((str(label), [*cells, Panel(bars, ends, Axis(guides=[(0.0, "")]))]))
    note = f"{_SCALES[metrics.pop()]}, one scale for all; red eigenvalues raise the output, blue ones lower it"
    return Gallery(rows, limit=limit or 1.0, note=note)
