"""Ways to fit: from a network and its inputs to the closest polynomial."""

from mlpoly.fitting import methods
from mlpoly.fitting.finetune import finetune
from mlpoly.fitting.fit import fit
from mlpoly.fitting.report import FitReport
from mlpoly.fitting.samples.neuronwise import SampleFit

__all__ = ["FitReport", "SampleFit", "finetune", "fit", "methods"]
