"""A language model with polynomials in place of its blocks, as one page that asks no network for anything."""

from mlpoly.lm.study.lm_results import FitRow, LmResults, Loss
from mlpoly.lm.study.report.page import write_lm_report

__all__ = ["FitRow", "LmResults", "Loss", "write_lm_report"]
