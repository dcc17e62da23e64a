"""One prediction taken apart, as a waterfall of what moved it."""

from typing import Literal

import numpy as np

from mlpoly.arrays import as_integer, check_output, to_numpy
from mlpoly.charts.chart import Part, Picture, Waterfall, chart_of, check_image_shape, minus, shortened
from mlpoly.features import Explanation
from mlpoly.measures.shapley import Shapley
from mlpoly.tables import output_label


@chart_of.register
def explanation_waterfall(
    explanation: Explanation,
    image_shape: tuple[int, int] | None = None,
    by: Literal["degrees", "terms", "features"] | None = None,
    title: str = "",
) -> Waterfall:
    """One prediction as bars that begin where the one before ended, from that at the mean of the inputs.

    The bars are the parts of each degree, monomials, or eigenfeatures of the quadratic part: by default terms, or
    features for images, inputs with an `image_shape` of rows and columns, which are shown with the patterns of the
    features.
    """
    e = explanation
    if image_shape is not None:
        check_image_shape(image_shape, explanation.point.size)
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
        named = []
        for c in e.features:
            remark = "" if c.eigenvalue is None else minus(f"eigenvalue {c.eigenvalue:.2g}")
            image = None if image_shape is None or c.pattern is None else np.reshape(c.pattern, image_shape)
            named.append(Part(c.name, float(c.amount), remark, image))
        quadratic = degrees[2].amount if len(degrees) > 2 else 0.0
        parts = [*degrees[:2], *named, *_rest("other features", quadratic, named), *degrees[3:]]
    totals = [("polynomial", float(e.polynomial))]
    totals += [] if e.network is None else [("network", float(e.network))]
    picture = None if image_shape is None else Picture(np.reshape(e.point, image_shape))
    title = title or f"One prediction{e.output_name and f' of {e.output_name}'}"
    return Waterfall(parts, totals, picture, title, "value of the output", degrees[0].amount)


def _rest(label: str, whole: float, parts: list[Part]) -> list[Part]:
    """What the named parts leave of their sum, if it can be seen."""
    rest = float(whole) - sum(part.amount for part in parts)
    return [Part(label, rest)] if abs(rest) > 1e-9 * max([abs(float(whole)), *(abs(p.amount) for p in parts)]) else []


@chart_of.register
def shapley_waterfall(shapley: Shapley, output: int | str = 0, k: int = 12, title: str = "") -> Waterfall:
    """One prediction as bars from the mean of the network, one each for the k groups with the largest values."""
    mean, prediction = to_numpy(shapley.mean), to_numpy(shapley.prediction)
    output = check_output(output, len(mean), shapley.output_names)
    values = to_numpy(shapley.values)[:, output]
    errors = None if shapley.standard_error is None else to_numpy(shapley.standard_error)[:, output]
    order = np.argsort(-np.abs(values), kind="stable")
    shown, rest = np.split(order, [as_integer("k", k, 1)])
    parts = [Part("expected output", float(mean[output]))]
    for i in shown.tolist():
        remark = "" if errors is None else f"± {errors[i]:.1g}"
        parts.append(Part(shortened(shapley.groups[i]), float(values[i]), remark))
    if len(rest):
        parts.append(Part(f"{len(rest)} others", float(values[rest].sum())))
    label = output_label(output, len(mean), shapley.output_names)
    title = title or f"One prediction{label and f' of {label}'}"
    totals = [("prediction", float(prediction[output]))]
    return Waterfall(parts, totals, None, title, "value of the output", float(mean[output]))
