"""Eigenfeatures, principal forms, singular directions and decompositions of one polynomial: bars, curves or images."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlpoly.arrays import Array, as_integer, check_names, to_numpy
from mlpoly.charts.chart import (
    Axis,
    Bars,
    Chart,
    Gallery,
    Panel,
    Part,
    Picture,
    Ranking,
    chart_of,
    check_image_shape,
    curve_chart,
    minus,
    shortened,
)
from mlpoly.features import EigenFeatures, PrincipalForms, QuadraticDecomposition, SingularDirections
from mlpoly.tables import largest_entries

_SCALES = {"input": "pixels of the unit eigenvectors", "whitened": "change of the pixels by one standard deviation"}


@chart_of.register
def eigenfeature_ranking(
    features: EigenFeatures,
    image_shape: tuple[int, int] | None = None,
    names: Sequence[str] | None = None,
    k: int = 12,
    title: str = "",
) -> Ranking | Gallery:
    """Eigenvalues of an output's quadratic part as bars named by what they read, or the features as images.

    The k strongest; images where inputs have an `image_shape` of rows and columns, else by the `names` of the inputs.
    """
    if image_shape is not None:
        return eigenfeature_gallery({title: features}, image_shape)
    title = title or "Eigenfeatures of the quadratic part"
    names = features.names if names is None else names
    return direction_ranking(features.values, features.directions, names, k, title, "eigenvalue")


@chart_of.register
def singular_ranking(
    directions: SingularDirections,
    image_shape: tuple[int, int] | None = None,
    names: Sequence[str] | None = None,
    k: int = 12,
    title: str = "",
) -> Ranking | Gallery:
    """Singular values of the linear part as bars named by what they read, or the directions as images."""
    title = title or "Singular directions of the linear part"
    if image_shape is None:
        names = directions.names if names is None else names
        return direction_ranking(directions.values, directions.vectors, names, k, title, "singular value")
    values, vectors = to_numpy(directions.values), to_numpy(directions.vectors)
    check_image_shape(image_shape, vectors.shape[1])
    shown = vectors[: min(k, 6)]
    cells: list[Picture | Panel | None] = [
        Picture(v.reshape(image_shape), "", f"{value:.3g}") for v, value in zip(shown, values, strict=False)
    ]
    ranks = list(range(1, len(values) + 1))
    ends = Axis(ticks=[(rank, str(rank)) for rank in sorted({1, len(values)})])
    cells.append(Panel([Bars("", ranks, values.tolist(), "black")], ends, Axis()))
    note = f"{title}; their signs have no meaning"
    return Gallery([("", cells)], limit=float(np.abs(shown).max()) or 1.0, note=note)


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
        parts.append(Part(label, value, minus(f"{value:.3g}")))
    left = len(strength) - len(parts)
    colour = "blue" if axis == "singular value" else ""  # the sign of an eigenvalue means something
    return Ranking(parts, title, title, axis, colour=colour, note=f"and {left} more" if left else "")


def eigenfeature_gallery(
    features: Mapping[Any, EigenFeatures], image_shape: tuple[int, int], columns: int = 3
) -> Gallery:
    """The top eigenfeatures of several outputs as images, one row for each output.

    A row shows the features with the largest positive eigenvalues, then those with the most negative ones, then the
    spectrum of all eigenvalues given, of which k = d is the whole. All images share one colour scale, centred at zero;
    as a feature counts with its square, its sign has no meaning.

    Parameters
    ----------
    features : mapping of label to EigenFeatures
    image_shape : (int, int)
        Rows and columns of an image of d pixels.
    columns : int
        Images of each sign in a row.
    """
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
        check_image_shape(image_shape, images.shape[1])
        order = np.argsort(-values, kind="stable")
        positive, negative = [i for i in order if values[i] > 0], [i for i in order[::-1] if values[i] < 0]
        cells: list[Picture | Panel | None] = []
        bars = []
        for side, colour in ((positive, "positive"), (negative, "negative")):
            texts = {i: minus(f"{values[i]:+#.3g}") for i in side[:columns]}
            shown = [Picture(images[i].reshape(image_shape), "", text, colour) for i, text in texts.items()]
            limit = max([limit, *(float(np.abs(picture.image).max()) for picture in shown)])
            cells += [*shown, *[None] * (columns - len(shown))]
            ranks = np.arange(1, len(side) + 1) if colour == "positive" else values.size - np.arange(len(side))
            bars.append(Bars("", ranks.tolist(), values[side].tolist(), colour))
        ends = Axis(ticks=[(rank, str(rank)) for rank in (1, values.size)])
        rows.append((str(label), [*cells, Panel(bars, ends, Axis(guides=[(0.0, "")]))]))
    note = f"{_SCALES[metrics.pop()]}, one scale for all; red eigenvalues raise the output, blue ones lower it"
    return Gallery(rows, limit=limit or 1.0, note=note)


@chart_of.register
def principal_chart(forms: PrincipalForms, title: str = "") -> Chart:
    """Fraction of the variance at one degree that the leading principal forms carry together."""
    together = np.cumsum(to_numpy(forms.fractions)).tolist()
    y = Axis(f"fraction of the variance at degree {forms.degree}", "fraction", percent=True, limits=(0.0, 1.02))
    counts, axes = list(range(1, len(together) + 1)), (Axis("leading principal forms", "forms"), y)
    return curve_chart(f"Principal forms of degree {forms.degree}", counts, together, axes, title)


@chart_of.register
def decomposition_chart(terms: QuadraticDecomposition, title: str = "") -> Chart:
    """Fraction of the variance of the quadratic part that the first terms explain."""
    explained = [0.0, *to_numpy(terms.explained).tolist()]
    axes = Axis("number of squares"), Axis("variance explained", percent=True, limits=(0.0, 1.0))
    label = "Variance of the quadratic part explained by the first terms"
    return curve_chart(label, list(range(len(explained))), explained, axes, title or "Terms of the quadratic part")
