"""How: from a network and a distribution to its closest polynomial."""

from mlpoly.fitting.finetune import FinetuneReport, finetune
from mlpoly.fitting.fit import fit
from mlpoly.fitting.fit_reports import RegressionReport, SolveReport

__all__ = ["FinetuneReport", "RegressionReport", "SolveReport", "finetune", "fit"]
