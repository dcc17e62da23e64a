"""The report of a study of a language model, as one page that loads nothing from a network."""

from mlpoly.lm.study.report.lm_page import write_lm_report

__all__ = ["write_lm_report"]
