"""What explains an output: terms, interactions, shape functions of inputs, and single predictions taken apart."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from mlpoly.arrays import as_integer, check_names, check_output, constant, to_numpy
from mlpoly.charts.chart import (
    Axis,
    Chart,
    Curve,
    HeatMap,
    Panel,
    Part,
    Picture,
    Ranking,
    Waterfall,
    chart_of,
    check_image_shape,
    minus,
    shortened,
)
from mlpoly.features import Explanation, Terms
from mlpoly.features.monomials import interaction_effects
from mlpoly.inputs import Inputs, inputs_of
from mlpoly.measures.shape_functions import GRID, AdditiveModel
from mlpoly.measures.shapley import Shapley
from mlpoly.polynomials import Polynomial
from mlpoly.tables import output_label

_CELLS = 25  # of a map of a pair along each input


@chart_of.register
def term_ranking(terms: Terms, title: str = "") -> Ranking:
    """Effects of the strongest monomials as bars, with their coefficients."""
    which, kind = terms.output_name and f" of {terms.output_name}", "interactions" if terms.interactions else "terms"
    count = f"The {len(terms)} strongest of {terms.total:,} {kind}" if len(terms) < terms.total else f"All {kind}"
    return Ranking(
        [Part(shortened(term.name), float(term.effect), minus(f"{term.coefficient:.3g}")) for term in terms],
        f"The strongest {kind}{which}",
        title or f"{count}{which}",
        "effect: coefficient times the standard deviation of the monomial",
        "coefficient",
        "" if terms.center is None else "monomials of the deviations from the mean of the inputs",
    )


def interaction_map(
    poly: Polynomial,
    output: int | str = 0,
    inputs: Inputs | None = None,
    names: Sequence[str] | None = None,
    k: int = 30,
    title: str = "",
) -> HeatMap:
    """How strongly each pair of the k inputs with the strongest interactions acts together on an output.

    Of a polynomial of degree 2 or more; of a higher degree its quadratic truncation is drawn. Effects refer to
    `inputs`, by default those that it was fitted under.
    """
    inputs = inputs_of(poly, inputs)
    names = inputs.names if names is None else names
    label = output_label(check_output(output, poly.dim_out, poly.output_names), poly.dim_out, poly.output_names)
    title = title or f"Interactions{label and f', {label}'}"
    return effect_map(interaction_effects(poly, output, inputs), names, k, title)


def effect_map(
    effects: np.ndarray, names: Sequence[str] | None = None, k: int = 30, title: str = "Interactions"
) -> HeatMap:
    """Describe a symmetric matrix (d, d) of effects of pairs as a heat map of the k inputs with the largest ones."""
    d, k = len(effects), as_integer("k", k, 1)
    shown = check_names(names, d) or [f"x{i}" for i in range(d)]
    # The inputs of the strongest pairs, in their own order; squares count last.
    size = np.abs(effects) * np.where(np.eye(d, dtype=bool), 1e-9, 1.0)
    order = np.sort(np.argsort(-size.max(axis=1), kind="stable")[:k])
    kept = [shown[i] for i in order]
    note = f"the {k} of {d} inputs with the strongest interactions" if k < d else ""
    label = "How strongly each pair of inputs acts together"
    return HeatMap(effects[np.ix_(order, order)], kept, kept, label, title, "effect of the product", note=note)


@chart_of.register
def shape_chart(
    model: AdditiveModel,
    inputs: int | list[int | str] = 6,
    output: int | str = 0,
    pair: tuple[int | str, int | str] | None = None,
    title: str = "",
) -> Chart | HeatMap:
    """The functions of the strongest inputs, or of listed ones, over three standard deviations on either side.

    The grey area is the density of the input. All panels have the same vertical range. With `pair` the map of one pair
    instead.
    """
    output = check_output(output, model.dim_out, model.output_names)
    if pair is not None:
        return _pair_map(model, pair, output, title)
    spread = to_numpy(model.importance)[:, output]
    if isinstance(inputs, list):
        chosen = [model.place(each) for each in inputs]
    else:
        strongest = np.argsort(-spread, kind="stable")[: as_integer("inputs", inputs, 1)]
        chosen = [int(i) for i in strongest if spread[i] > 0]
    places = [to_numpy(model.center)[i] + to_numpy(model.scale)[i] * GRID for i in chosen]
    shapes = [
        to_numpy(model.shape(i)(constant(x, model.mean)))[:, output].tolist()
        for i, x in zip(chosen, places, strict=True)
    ]
    low, high = (f([f(y) for y in shapes], default=0.0) for f in (min, max))
    room = 0.08 * ((high - low) or 1.0)
    bottom, ceiling = low - room, high + room
    height = 0.25 * (ceiling - bottom)  # of the density, in the lowest quarter
    panels = []
    for i, x, y in zip(chosen, places, shapes, strict=True):
        name, density = shortened(model.labels[i]), to_numpy(model.density)[i]
        top = (bottom + height * density / (density.max() or 1.0)).tolist()
        area = Curve("density of the input", x.tolist(), top, [bottom] * len(x), top, colour="grey", width=0.8)
        axis = Axis(f"g({name})", "g", limits=(bottom, ceiling), guides=[(0.0, "")])
        curve = Curve("g", x.tolist(), y, colour="blue")
        panels.append(Panel([area, curve], Axis(name, name), axis, name, (name,)))
    fraction = float(to_numpy(model.additive)[output])
    label = output_label(output, model.dim_out, model.output_names) or "the output"
    note = f"{title or 'Closest additive model'}: {fraction:.3g} of the variance of {label}"
    return Chart(f"Shape functions of {label}", panels, ("Input",), note)


def _pair_map(model: AdditiveModel, pair: tuple[int | str, int | str], output: int, title: str) -> HeatMap:
    i, j = (model.place(each) for each in pair)
    z, center, scale = np.linspace(-2.5, 2.5, _CELLS), to_numpy(model.center), to_numpy(model.scale)
    across, up = center[i] + scale[i] * z, (center[j] + scale[j] * z)[::-1]
    one, two = np.meshgrid(across, up)
    values = to_numpy(model.pair(i, j)(constant(one, model.mean), constant(two, model.mean)))[..., output]
    names = [shortened(model.labels[k]) for k in (i, j)]
    rows, columns = ([minus(f"{v:.3g}") for v in at_k] for at_k in (up, across))
    label = f"{names[0]} (across) and {names[1]} (up)"
    return HeatMap(values, rows, columns, f"Pair function of {label}", title or label, "g")


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
    shown, rest = np.split(np.argsort(-np.abs(values), kind="stable"), [as_integer("k", k, 1)])
    parts = [Part("expected output", float(mean[output]))]
    for i in shown.tolist():
        remark = "" if errors is None else f"± {errors[i]:.1g}"
        parts.append(Part(shortened(shapley.groups[i]), float(values[i]), remark))
    parts += [Part(f"{len(rest)} others", float(values[rest].sum()))] if len(rest) else []
    label = output_label(output, len(mean), shapley.output_names)
    title = title or f"One prediction{label and f' of {label}'}"
    totals = [("prediction", float(prediction[output]))]
    return Waterfall(parts, totals, None, title, "value of the output", float(mean[output]))
