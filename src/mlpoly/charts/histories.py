"""Fits iteration by iteration, and moments layer by layer."""

from __future__ import annotations

import numpy as np

from mlpoly.arrays import scalar, to_numpy
from mlpoly.charts.chart import Axis, Chart, Curve, Panel, chart_of
from mlpoly.fitting.finetune import FinetuneReport
from mlpoly.fitting.report import SolveReport
from mlpoly.propagation import Propagation

_DOUBTFUL = 0.05  # the excess above which moments need a check on samples


@chart_of.register
def solve_chart(report: SolveReport, title: str = "") -> Chart:
    """Misfit after each iteration of a fit under a mixture."""
    if not report.history:
        raise ValueError(f"there is no history to draw: {report.method} took no iterations.")
    numbers = list(range(1, len(report.history) + 1))
    curve = Curve("", numbers, report.history, colour="blue", dots=len(numbers) <= 40)
    scale = Axis("misfit", scale="log" if min(report.history) > 0 else "linear")
    panel = Panel([curve], Axis("iteration"), scale, title or "Misfit of the mixture's optimum")
    return Chart("Misfit after each iteration", [panel])


@chart_of.register
def finetuning_chart(report: FinetuneReport, title: str = "") -> Chart:
    """Score on held-out samples over the steps of a fine-tuning; a line marks the step that was kept."""
    if not report.history:
        raise ValueError("there is no history to draw: fine-tuning was not evaluated.")
    steps, scores = ([row[i] for row in report.history] for i in (0, 1))
    name = "fraction of variance unexplained" if report.kl_before is None else "KL divergence, nats"
    scale = Axis(name, scale="log" if min(scores) > 0 else "linear")
    kept = Axis("step", guides=[(float(report.best_step), "")])
    curve = Curve("", steps, scores, colour="blue", dots=len(steps) <= 40)
    panel = Panel([curve], kept, scale, title or f"Fine-tuning, best at step {report.best_step}")
    return Chart("Score on held-out samples by step", [panel])


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
