"""Measures, moments, spectra, similarities and sensitivities as bars and points; fits iteration by iteration."""

from typing import Literal

import numpy as np

from mlpoly.arrays import Array, as_integer, check_output, check_shape, scalar, to_numpy
from mlpoly.certificates import Certificate
from mlpoly.charts.chart import (
    Axis,
    Bars,
    Chart,
    Curve,
    Panel,
    Part,
    Points,
    Ranking,
    chart_of,
    curve_chart,
    minus,
    shortened,
)
from mlpoly.fitting.report import FitReport
from mlpoly.measures.compare import Comparison
from mlpoly.measures.degree_spectrum import DegreeSpectrum
from mlpoly.measures.second_moments import SecondMoment
from mlpoly.measures.sensitivity import Sensitivity
from mlpoly.measures.similarity import Similarity
from mlpoly.propagation import LayerMoments, Propagation
from mlpoly.scores import FVU, Estimate
from mlpoly.tables import output_label

_MEASURES = {
    "fvu": "fraction of variance unexplained",
    "kl": "KL divergence, nats",
    "agreement": "same class",
    "accuracy": "accuracy of the polynomial",
    "network_accuracy": "accuracy of the network",
}
_STEP = 4  # places of a group of inputs: three bars and a gap
_LETTERS = 84  # in a row below the bars
_DOUBTFUL = 0.05  # the excess above which moments need a check on samples


@chart_of.register
def fvu_chart(fvu: FVU, title: str = "") -> Chart:
    """Fraction of variance unexplained of each output, with that of all together as a line."""
    values, total = to_numpy(fvu.per_output), scalar(fvu.total)
    texts = [f"{value:.2g}" for value in values] if len(values) <= 12 else []
    guides = [(total, f"all: {total:.2g}")] if len(values) > 1 else []
    limits = (0.0, 1.1 * float(values.max()) or None)
    bars = Bars("", list(range(len(values))), values.tolist(), "negative", texts)
    x = Axis.numbered("output", len(values), limits=(-1.0, float(max(len(values), 3))))
    y = Axis("fraction of variance unexplained", guides=guides, limits=limits)
    return Chart("Fraction of variance unexplained by output", [Panel([bars], x, y, title)])


@chart_of.register
def comparison_ranking(found: Comparison, title: str = "") -> Ranking:
    """All measures of a comparison as bars, with their standard errors as text."""
    parts = [Part(_MEASURES[name], float(value), _with_error(value)) for name, value in found.measures().items()]
    title = title or "Polynomial and network on data"
    return Ranking(parts, "Measures of a polynomial on data", title, colour="blue")


@chart_of.register
def estimate_ranking(estimate: Estimate, title: str = "") -> Ranking:
    """A mean over samples as a bar, with its standard error as text."""
    return Ranking([Part("mean", float(estimate), _with_error(estimate))], "A mean over samples", title, colour="blue")


def _with_error(value: FVU | Estimate) -> str:
    error = value.standard_error
    return f"{float(value):.3g}" + ("" if error is None else f" ± {scalar(error):.1g}")


@chart_of.register
def moment_chart(moments: SecondMoment | LayerMoments, title: str = "") -> Chart:
    """Mean of each output with one standard deviation on either side."""
    mean, spread = to_numpy(moments.mean), np.sqrt(np.clip(np.diagonal(to_numpy(moments.cov)), 0, None))
    places = list(range(len(mean)))
    if len(mean) <= 40:
        marks: list[Points | Curve] = [Points("", places, mean.tolist(), spread.tolist(), "blue")]
    else:
        low, high = (mean - spread).tolist(), (mean + spread).tolist()
        marks = [Curve("", places, mean.tolist(), low, high, colour="blue", width=1.2)]
    y = Axis("mean and standard deviation", guides=[(0.0, "")])
    panel = Panel(marks, Axis.numbered("output", len(mean)), y, title)
    return Chart("Mean and standard deviation of each output", [panel])


@chart_of.register
def spectrum_chart(spectrum: DegreeSpectrum, output: int | None = None, title: str = "", log: bool = False) -> Chart:
    """Fraction of the variance at each degree, above the last and, for a mixture, between its components.

    Of one output or of all together; with `log` on a logarithmic axis, for a spectrum that falls by orders of
    magnitude.
    """
    parts = [to_numpy(a) for a in (spectrum.variance, spectrum.remainder, spectrum.between, spectrum.total)]
    if output is not None:
        check_output(output, len(parts[-1]))
    variance, remainder, between, total = (a.sum(-1) if output is None else a[..., output] for a in parts)
    if not total > 0:
        raise ValueError("the spectrum has no variance to share out: the outputs are constant.")
    degrees = [str(k) for k in range(1, len(variance) + 1)]
    rest = [f"> {len(variance)}"] + ["between\ncomponents"] * bool(between > 0)
    fractions = np.asarray([*variance, remainder, between][: len(degrees) + len(rest)]) / total
    texts = ["0" if f <= 0 else f"{100 * f:.2g} %" if f >= 1e-4 else f"{100 * f:.0e} %" for f in fractions]
    n, lowest = len(degrees), max(min(fractions[fractions > 0], default=1.0), 1e-16)
    highest = max(fractions.max(), lowest)
    limits = (lowest / 4, 4 * highest) if log else (0.0, 1.12 * highest)  # with room for the texts
    bars = [
        Bars("", degrees, fractions[:n].tolist(), "negative", texts[:n]),
        Bars("", rest, fractions[n:].tolist(), "area-rest", texts[n:]),
    ]
    y = Axis("fraction of the variance", scale="log" if log else "linear", limits=limits)
    title = title or ("Degree spectrum" if output is None else f"Degree spectrum of output {output}")
    return Chart("Fraction of the variance at each degree", [Panel(bars, Axis("polynomial degree"), y, title)])


@chart_of.register
def similarity_chart(found: Similarity, by: Literal["degrees", "outputs"] | None = None, title: str = "") -> Chart:
    """Distance and cosine of two functions at each degree or, as by default on samples, for each output."""
    if by not in (None, "degrees", "outputs"):
        raise ValueError(f"by must be 'degrees' or 'outputs', got {by!r}.")
    if by is None:
        by = "outputs" if found.by_degree is None else "degrees"
    parts = found.by_degree if by == "degrees" else found.per_output
    if parts is None:
        raise ValueError("a similarity on samples has no degrees; take by='outputs'.")
    distance, cosine = to_numpy(parts.distance), to_numpy(parts.cosine)
    places = list(range(len(distance)))
    labels = [str(i) for i in places]
    if by == "degrees":
        labels[-1] = f"> {len(places) - 2}"
    texts = [[minus(f"{v:.3g}") for v in a] if len(places) <= 12 else [] for a in (distance, cosine)]
    ticks = [(float(i), labels[i]) for i in places[:: -(-len(places) // 12)]]
    x = Axis("polynomial degree" if by == "degrees" else "output", ticks=ticks, limits=(-1.0, float(len(places))))
    total = scalar(found.cosine)
    y = Axis("E|f − g|²", limits=(0.0, 1.15 * float(distance.max()) or 1.0))
    angle = Axis("cosine", limits=(-1.15 if float(cosine.min()) < 0 else 0.0, 1.15), guides=[(total, "all")])
    title = title or f"distance, {scalar(found.distance):.3g} in all"
    panels = [
        Panel([Bars("", places, distance.tolist(), "negative", texts[0])], x, y, title),
        Panel([Bars("", places, cosine.tolist(), "area-rest", texts[1])], x, angle, f"cosine, {total:.3g} in all"),
    ]
    return Chart("Distance and cosine of two functions", panels)


@chart_of.register
def sensitivity_chart(sensitivity: Sensitivity, output: int | str | None = None, k: int = 12, title: str = "") -> Chart:
    """What the k groups with the largest Shapley effects explain, of one output or of all together.

    Alone, on average over orders of joining, and in total.
    """
    weights = to_numpy(sensitivity.variance).astype(float)
    outputs = len(weights)
    if output is not None:
        output = check_output(output, outputs, sensitivity.output_names)
        weights = np.eye(outputs)[output]
    weights = weights / weights.sum()
    first, effects, total = (to_numpy(a) @ weights for a in (sensitivity.first, sensitivity.shapley, sensitivity.total))
    order = np.argsort(-effects, kind="stable")[: as_integer("k", k, 1)]
    left = np.arange(len(order)) * _STEP
    marks: list[Bars | Points] = []
    looks = (("alone", "area-rest"), ("Shapley effect", "blue"), ("total", "grey"))
    for place, ((label, colour), values) in enumerate(zip(looks, (first, effects, total), strict=True)):
        marks.append(Bars(label, (left + place).tolist(), values[order].tolist(), colour))
    if sensitivity.standard_error is not None:  # of outputs together at most the sum of theirs
        error = (to_numpy(sensitivity.standard_error) @ weights)[order]
        marks.append(Points("Shapley effect", (left + 1).tolist(), effects[order].tolist(), error.tolist()))
    names = [shortened(sensitivity.groups[i], max(5, _LETTERS // len(order))) for i in order.tolist()]
    ticks = [(float(place + 1), name) for place, name in zip(left.tolist(), names, strict=True)]
    which = f"the strongest {len(order)} of {len(effects)} groups" if len(order) < len(effects) else ""
    subject = "all outputs" if output is None and outputs > 1 else ""
    subject = subject or output_label(output or 0, outputs, sensitivity.output_names) or "the output"
    x = Axis(which, ticks=ticks, limits=(-1.5, float(left[-1]) + 3.5))
    y = Axis("fraction of the variance", guides=[(0.0, "")])
    title = title or f"What inputs explain of {subject}"
    return Chart("Fractions of the variance that groups of inputs explain", [Panel(marks, x, y, title)])


@chart_of.register
def certificate_chart(found: Certificate, values: Array | None = None, title: str = "") -> Chart:
    """Certified range of every output, the range that search attains, and with values (n, o) on data also theirs."""
    o = len(found.low)
    rows = [("certified", found.low, found.high, "grey"), ("attained by search", found.lowest, found.highest, "blue")]
    if values is not None:
        data = to_numpy(values)
        check_shape("values", data, (None, o), "one row for each sample, one column for each output")
        rows.append((f"{len(data)} rows of data", data.min(axis=0), data.max(axis=0), "positive"))
    step = len(rows) + 1
    marks: list[Points | Curve] = []
    for place, (label, low, high, colour) in enumerate(rows):
        middle, half = (low + high) / 2, (high - low) / 2
        marks.append(Curve(label, [place], [float(middle[0])], colour=colour, width=1.5))  # its entry of the legend
        marks.append(Points(label, [step * i + place for i in range(o)], middle.tolist(), half.tolist(), colour))
    every = -(-o // 20)
    ticks = [(step * i + (step - 2) / 2, str(i)) for i in range(0, o, every)]
    ends = [float(min(row[1].min() for row in rows)), float(max(row[2].max() for row in rows))]
    room = (ends[1] - ends[0]) or 1.0
    finite = (ends[0] - 0.4 * room, ends[1] + 0.05 * room) if np.isfinite(room) else None  # the legend stands below
    x = Axis("output", ticks=ticks, limits=(-1.0, float(step * o)))
    panel = Panel(marks, x, Axis(guides=[(0.0, "")], limits=finite), title)
    return Chart("Certified and attained ranges of the outputs", [panel])


@chart_of.register
def fit_chart(report: FitReport, title: str = "") -> Chart:
    """What a fit minimised, after each iteration; a line marks the step that fine-tuning kept."""
    if not report.history:
        raise ValueError(f"there is no history to draw: {report.method} took no iterations.")
    numbers, values = ([row[i] for row in report.history] for i in (0, 1))
    kept = report.details.get("best_step")
    name = "KL divergence, nats" if "kl" in report.details else "fraction of variance unexplained"
    scale = Axis("misfit" if kept is None else name, scale="log" if min(values) > 0 else "linear")
    if kept is None:
        axes, title = (Axis("iteration"), scale), title or "Misfit of the answer"
        return curve_chart("Misfit after each iteration", numbers, values, axes, title)
    axes, title = (Axis("step", guides=[(float(kept), "")]), scale), title or f"Fine-tuning, best at step {kept}"
    return curve_chart("Score on held-out samples by step", numbers, values, axes, title)


@chart_of.register
def propagation_chart(behind: Propagation, title: str = "") -> Chart:
    """Mean and spread of the values behind each layer and, in a panel of its own, what the closure ignores."""
    layers = Axis.numbered("layer", len(behind))  # as in `behind[0]` and its table
    numbers = list(range(len(behind)))
    means = [float(np.sqrt(np.mean(to_numpy(layer.mean) ** 2))) for layer in behind]
    spreads = [float(np.sqrt(np.mean(np.diagonal(to_numpy(layer.cov))))) for layer in behind]
    excess = [scalar(layer.excess) for layer in behind]
    sizes = [
        Curve("means", numbers, means, colour="orange", dash="dash", dots=True),
        Curve("standard deviations", numbers, spreads, colour="blue", dots=True),
    ]
    size = Axis("root mean square over outputs", limits=(0.0, None))
    guide = [(_DOUBTFUL, "check")] if max(excess) > _DOUBTFUL / 4 else []
    error = Axis("error of means, in std of units", limits=(0.0, None), guides=guide)
    missed = Curve("excess", numbers, excess, colour="black", dash="dot", dots=True)
    panels = [
        Panel(sizes, layers, size, title or "Values behind each layer"),
        Panel([missed], layers, error, "What the closure ignores"),
    ]
    return Chart("Values behind each layer", panels)
