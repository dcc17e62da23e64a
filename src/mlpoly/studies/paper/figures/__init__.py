"""Every figure of the paper described once, for the files and for the report."""

from mlpoly.studies.paper.figures.figure_files import write_figures, write_tables

__all__ = ["write_figures", "write_tables"]
