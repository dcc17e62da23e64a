"""Histories of iterative fits: what they minimise, iteration by iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpoly.plots.chart import Axis, Chart, Curve, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mlpoly.fitting.finetune import FinetuneReport
    from mlpoly.fitting.report import SolveReport


def plot_solve(report: SolveReport, ax: Axes | None = None, title: str = "") -> Figure:
    """Draw the misfit after each iteration of a fit under a mixture.

    Parameters
    ----------
    report : SolveReport
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.
    title : str
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    if not report.history:
        raise ValueError(f"there is no history to draw: {report.method} took no iterations.")
    numbers = list(range(1, len(report.history) + 1))
    curve = Curve("", numbers, report.history, colour="blue", dots=len(numbers) <= 40)
    scale = Axis("misfit", scale="log" if min(report.history) > 0 else "linear")
    panel = Panel([curve], Axis("iteration"), scale, title or "Misfit of the mixture's optimum")
    return show(Chart("Misfit after each iteration", [panel]), ax)


def plot_finetuning(report: FinetuneReport, ax: Axes | None = None, title: str = "") -> Figure:
    """Draw the score on held-out samples over the steps of a fine-tuning; a line marks the step that was kept.

    Parameters
    ----------
    report : FinetuneReport
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure of pyplot.
    title : str
    """
    from mlpoly.plots.draw import show  # needs matplotlib

    if not report.history:
        raise ValueError("there is no history to draw: fine-tuning was not evaluated.")
    steps, scores = ([row[i] for row in report.history] for i in (0, 1))
    name = "fraction of variance unexplained" if report.kl_before is None else "KL divergence, nats"
    scale = Axis(name, scale="log" if min(scores) > 0 else "linear")
    kept = Axis("step", guides=[(float(report.best_step), "")])
    curve = Curve("", steps, scores, colour="blue", dots=len(steps) <= 40)
    panel = Panel([curve], kept, scale, title or f"Fine-tuning, best at step {report.best_step}")
    return show(Chart("Score on held-out samples by step", [panel]), ax)
