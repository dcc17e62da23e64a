"""Pages that explain themselves: one HTML file with its plots, pictures and data inside (plots need plotly)."""

from mlpoly.report.curves import Curve, Summary, over_seeds, step_axis, training_plot
from mlpoly.report.page import Page, Section
from mlpoly.report.plot import Plot, View

__all__ = ["Curve", "Page", "Plot", "Section", "Summary", "View", "over_seeds", "step_axis", "training_plot"]
