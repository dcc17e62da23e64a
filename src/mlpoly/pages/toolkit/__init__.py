"""Pages that explain themselves: one HTML file with its plots, pictures and data inside (plots need plotly)."""

from mlpoly.extras import explain_missing

with explain_missing("mlpoly.pages.toolkit"):
    from mlpoly.pages.toolkit.page import Page, Section, asset
    from mlpoly.pages.toolkit.plot import plot

__all__ = ["Page", "Section", "asset", "plot"]
