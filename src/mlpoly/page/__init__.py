"""Pages that explain themselves: one HTML file with its plots, pictures and data inside (plots need plotly)."""

from mlpoly.page.page import Page, Section
from mlpoly.page.plot import Plot, View

__all__ = ["Page", "Plot", "Section", "View"]
