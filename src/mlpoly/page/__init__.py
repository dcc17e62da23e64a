"""Pages that explain themselves: one HTML file with its plots, pictures and data inside (plots need plotly)."""

from mlpoly.extras import explain_missing

with explain_missing("mlpoly.page"):
    from mlpoly.page.page import Page, Section, asset
    from mlpoly.page.plot import plot

__all__ = ["Page", "Section", "asset", "plot"]
