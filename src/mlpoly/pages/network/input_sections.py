"""Which inputs of a table matter, and how: the first words of the page, and its first sections."""

from dataclasses import dataclass

import numpy as np

from mlpoly.charts.chart import Chart, Part, Ranking, shortened
from mlpoly.inputs import Gaussian, Gaussians
from mlpoly.measures import AdditiveModel, Sensitivity, additive, sensitivity
from mlpoly.networks import Layer, check_network
from mlpoly.pages.network.fits import Fits, missed
from mlpoly.pages.network.subject import Subject, describe_inputs, distinct
from mlpoly.pages.toolkit import Page, plot
from mlpoly.pages.toolkit.pictures import ranking_html
from mlpoly.pages.toolkit.widgets import figure, listing, number, percent, table
from mlpoly.polynomials import to_dense
from mlpoly.records import replace
from mlpoly.scores import fvu_of_outputs

_MOST = 100  # inputs of a table; more are pixels or the like
_GROUPS = 9  # inputs with a Shapley effect of their own, which needs all sets of them
_UNITS = 256  # hidden units up to which these sets are asked of the network itself
_NAMED, _SMALL = 3, 0.05  # inputs of the first sentence, and what the last of them has to explain
_OTHERS, _SHORT = "all other inputs", 0.01  # effects below that, beside the largest, are left out
_CURVES = 8  # of an output
_BEND = 0.2  # of the way up: a curve that comes down by less is said to rise


@dataclass(frozen=True)
class Importance:
    """What the inputs of a table explain."""

    curves: AdditiveModel
    on_rows: bool  # whether the curves are closest on the rows of data, rather than under the inputs of the fits
    effects: Sensitivity | None  # of the strongest inputs and all others, for one Gaussian
    exact: bool  # whether these are of the network, rather than of its polynomial


def importance_of(subject: Subject, fits: Fits) -> Importance | None:
    """The measures, for tables."""
    varying = subject.spread > 0
    if subject.image_shape is not None or not 2 <= varying.sum() <= _MOST or len(varying) > _MOST:
        return None
    net = check_network(subject.net)
    on_rows = not isinstance(subject.inputs, Gaussians) or not isinstance(net, Layer)
    curves = replace(additive(subject.net, fits.rows if on_rows else subject.inputs), names=subject.names)
    if not isinstance(subject.inputs, Gaussian) or not fits.values.var(axis=0).all():
        return Importance(curves, on_rows, None, False)
    order = np.argsort(-np.sum(np.asarray(curves.importance) ** 2, axis=1), kind="stable")
    count = len(order) if len(order) <= _GROUPS + 1 else _GROUPS
    groups = {distinct(subject.names)[i]: [i] for i in order[:count].tolist()}
    if rest := order[count:].tolist():
        groups[_OTHERS] = rest
    exact = isinstance(net, Layer) and net.dim_hidden <= _UNITS
    of = net if exact else to_dense(fits.polynomials[min(2, fits.degree)], subject.mean)
    return Importance(curves, on_rows, sensitivity(of, subject.inputs, groups), exact)


def conclusion(subject: Subject, fits: Fits, importance: Importance) -> str:
    """Two sentences: which inputs matter and how, and how much of it is interactions."""
    curves, names = importance.curves, [shortened(name, 40) for name in subject.names]
    weight = np.asarray(curves.variance) / (np.sum(curves.variance) or 1.0)
    parts = np.asarray(curves.importance) ** 2
    size = parts.sum(axis=1) / (parts.sum() or 1.0)
    if (found := importance.effects) is not None:
        each = dict(zip(found.groups, (np.asarray(found.shapley) @ weight).tolist(), strict=True))
        size = np.array([each.get(name, 0.0) for name in distinct(subject.names)])
    top = [int(i) for i in np.argsort(-size, kind="stable")[:_NAMED] if size[i] >= _SMALL]
    if not top:
        return f"The network has {len(names)} inputs, and none of them matters much by itself."
    said = f"depend{'' if len(subject.outputs) > 1 else 's'} most on {listing([names[i] for i in top])}"
    if found is not None:
        explained = listing([percent(size[i], 0) for i in top])
        said += f", which explain{'s' if len(top) == 1 else ''} {explained} of the variance under a Gaussian"
    ways: dict[str, list[str]] = {}
    for i in top:
        output = int(np.argmax(parts[i]))
        title = shortened(subject.titles[output], 40) if len(subject.outputs) > 1 else "it"
        ways.setdefault(f"{title} {_way(curves, i, output, subject.x[:, i])}", []).append(names[i])
    moves = [f"{way} {listing(those)}" for way, those in ways.items()]
    named = "" if subject.outputs == ("output",) else f" “{shortened(subject.titles[0], 40)}”"
    who = "The network’s outputs" if len(subject.outputs) > 1 else f"The network’s output{named}"
    left = float(max(0.0, 1 - np.asarray(curves.additive) @ weight))
    how = "Each input acts nearly by itself" if left < _SMALL else "Inputs also act together"
    terms = [fits.written.terms(i, subject.names, 12, subject.mean, interactions=True) for i in fits.shown]
    # Two categories of one column never occur together: their product says nothing about the network.
    pairs = [t for ranked in terms for t in ranked if np.ptp(np.prod(subject.x[:, list(t.inputs)], axis=1)) > 0]
    pair = max(pairs, key=lambda term: abs(term.effect), default=None)
    where = " on the data" if importance.on_rows else "" if found else f" under {describe_inputs(subject.inputs)}"
    if pair is not None and left > 1e-6:
        where += f", above all those of {listing([names[i] for i in dict.fromkeys(pair.inputs)])}"
    return (
        f"{who} {said}; {', and '.join([', '.join(moves[:-1]), *moves[-1:]]).removeprefix(', and ')}. {how}: "
        f"interactions make up {missed(left)} of the variance{where}."
    )


def _way(curves: AdditiveModel, i: int, output: int, values: np.ndarray) -> str:
    """Which way a curve goes, within two standard deviations of the mean of its input, or between its two values."""
    at = np.unique(values)
    if len(at) > 2:
        at = float(curves.center[i]) + float(curves.scale[i]) * np.linspace(-2, 2, 81)
    steps = np.diff(np.asarray(curves.shape(i)(at))[:, output])
    up, down = float(steps[steps > 0].sum()), float(-steps[steps < 0].sum())
    if min(up, down) > _BEND * max(up, down):
        return "goes up and down with"
    return "rises with" if up > down else "falls with"


def importance_section(page: Page, importance: Importance) -> None:
    """What the strongest inputs explain under their correlations."""
    if (found := importance.effects) is None:
        return
    weight = np.asarray(found.variance) / np.sum(found.variance)
    first, total, effects = (100 * np.asarray(a) @ weight for a in (found.first, found.total, found.shapley))
    order = sorted(range(len(effects)), key=lambda g: (found.groups[g] == _OTHERS, -effects[g]))
    parts = [
        Part(found.groups[g], float(effects[g]), f"alone {number(first[g])}, in total {number(total[g])}")
        for g in order
        if effects[g] > _SHORT * max(effects)
    ]
    whose = "the network, exact" if importance.exact else "the closest quadratic polynomial"
    page.section("importance", "Which inputs matter", "Inputs").add(
        "Inputs that are correlated share some of what they explain. Alone, an input counts with all that it shares; "
        "in total, only with what no other input has. Between the two is its Shapley effect, the average over all "
        "orders in which inputs may be added. The effects add up to 100.",
        figure(
            ranking_html(Ranking(parts, colour="blue")),
            f"Shapley effects, in percent of the variance of all outputs together, under the Gaussian: of {whose}.",
        ),
    )


def shape_section(page: Page, subject: Subject, fits: Fits, model: AdditiveModel, on_rows: bool) -> None:
    """Curves of the strongest inputs and what all of them explain, for tables."""
    section = page.section("shapes", "One curve for each input", "Curves")
    where = "on the rows of data" if on_rows else f"under {describe_inputs(subject.inputs)}, in closed form"
    weight = np.asarray(model.variance) / np.sum(model.variance)
    said = (
        "The closest sum of functions of one input each. The inputs may be correlated: what two of them have in common "
        f"is not counted twice. Of the variance of the outputs {where}, it explains "
        f"{percent(float(model.additive @ weight), None)}"
    )
    if not on_rows:
        left = float(fvu_of_outputs(fits.values, np.asarray(model(fits.rows))))
        said += f"; on the rows of data themselves, {percent(1 - left, None)}"
    how = "exact" if not on_rows and isinstance(subject.inputs, Gaussian) else "polynomials of degree 8"
    section.add(f"{said}. The rest is interactions. The curves are {how}.")
    caption = (
        "What each input adds to an output, over three standard deviations on either side of its mean, the strongest "
        "first. Grey: the density of the input."
    )
    strength = np.sum(np.asarray(model.importance) ** 2, axis=1)
    strongest: list[int | str] = [int(i) for i in np.argsort(-strength, kind="stable")[:_CURVES] if strength[i] > 0]
    panels = []
    for name, i in zip(distinct(shortened(subject.outputs[i], 24) for i in fits.shown), fits.shown, strict=True):
        drawn = model.chart(inputs=strongest, output=i).panels
        names = distinct(panel.choice[0] for panel in drawn)
        panels += [replace(panel, choice=(name, own)) for panel, own in zip(drawn, names, strict=True)]
    chart = Chart("Functions of one input each", panels, ("Output", "Input"))
    section.add(figure(plot("plot-shapes", chart), caption))
    if len(fits.shown) > 1:
        rows = [(shortened(subject.outputs[i], 60), percent(float(model.additive[i]), None)) for i in fits.shown]
        section.add(table(["Output", f"Explained by the curves {where}"], rows))
