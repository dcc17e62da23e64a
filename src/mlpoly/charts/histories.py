"""Fits iteration by iteration, and moments layer by layer."""

import numpy as np

from mlpoly.arrays import scalar, to_numpy
from mlpoly.charts.chart import Axis, Chart, Curve, Panel, chart_of, curve_chart
from mlpoly.fitting.report import FitReport
from mlpoly.propagation import Propagation

_DOUBTFUL = 0.05  # the excess above which moments need a check on samples


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
