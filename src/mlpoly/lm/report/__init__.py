"""A language model with polynomials in place of its blocks, as one page that asks no network for anything."""

from mlpoly.lm.report.page import write_lm_report
from mlpoly.lm.results import FitRow, LmResults, Loss

__all__ = ["FitRow", "LmResults", "Loss", "write_lm_report"]
