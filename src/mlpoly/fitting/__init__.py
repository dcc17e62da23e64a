"""Ways to fit: from a network and its inputs to the closest polynomial."""

from mlpoly.fitting import methods
from mlpoly.fitting.finetune import FinetuneReport, finetune
from mlpoly.fitting.fit import fit
from mlpoly.fitting.report import RegressionReport, SolveReport
from mlpoly.fitting.samples.neuronwise import SampleFit

__all__ = ["FinetuneReport", "RegressionReport", "SampleFit", "SolveReport", "finetune", "fit", "methods"]
